"""Estimators for scikit-learn over the engine: linear models and multilayer perceptrons whose
gradients are computed by ``threads`` native threads under a discipline of your choice.

    from leashed.sklearn import SGDClassifier
    SGDClassifier(loss="log_loss", threads=8).fit(X, y).score(X, y)

They follow scikit-learn's conventions and take its sparse matrices where the model is linear. With
``threads=1`` and a ``random_state`` a fit is deterministic.

What scikit-learn's own have and these have not: weights of examples and of classes
(``sample_weight``, ``class_weight``), the penalties ``"l1"`` and ``"elasticnet"``, averaged
parameters, a validation set to stop by (``early_stopping``), schedules by name (``lr`` takes those
of ``leashed.schedules``), the losses not named below; with ``MLPClassifier`` and ``MLPRegressor``
activations other than ReLU, the solver L-BFGS, several outputs and labels per example.

The only module of the package that imports scikit-learn (extra ``sklearn``); nothing else imports
it.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.utils import check_random_state
from sklearn.utils.metaestimators import available_if
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

from leashed import _check, models
from leashed.datasets import Dataset, SparseDataset
from leashed.datasets.sparse import is_csr
from leashed.disciplines import Discipline, Hogwild, Leashed, Sequential
from leashed.models import Model
from leashed.resuming import Kept
from leashed.rules import SGD, Adam, Rule
from leashed.schedules import Schedule
from leashed.stopping import until
from leashed.train import train

__all__ = ["MLPClassifier", "MLPRegressor", "SGDClassifier", "SGDRegressor"]


class _Estimator(BaseEstimator):
    """What all four share: rounds of epochs until the loss falls no more."""

    # Set by the estimators' own constructors, as scikit-learn wants it.
    lr: float | Schedule
    max_iter: int
    tol: float | None
    n_iter_no_change: int
    batch_size: int
    threads: int
    discipline: Discipline | None
    rule: Rule | None
    random_state: Any
    warm_start: bool
    parameters_: NDArray[np.float32]
    t_: int

    def _rule(self, data: Dataset | SparseDataset) -> Rule:  # noqa: ARG002
        return SGD(self.lr) if self.rule is None else self.rule

    def _model(self, features: int, rows: int) -> Model:
        raise NotImplementedError

    def _initial(self, model: Model, seed: int) -> NDArray[np.float32]:  # noqa: ARG002
        return np.zeros(model.dimension, np.float32)

    def _reached(self, model: Model) -> NDArray[np.float32]:
        """The parameters of the last fit, to go on from."""
        if len(self.parameters_) != model.dimension:
            raise ValueError(
                f"the last fit left {len(self.parameters_)} parameters, and now there are "
                f"{model.dimension}; go on with the same layers, or fit with warm_start=False"
            )
        return self.parameters_

    def _warm(self) -> bool:
        """Whether a fit goes on from the last one."""
        return _flag(self, "warm_start") and hasattr(self, "parameters_")

    def _fit(self, data: Dataset | SparseDataset, epochs: int, *, resume: bool) -> None:
        """Trains for at most so many epochs, from where the last call ended or from the start."""
        rows = len(data)
        model = self._model(data.features, rows)
        random = check_random_state(self.random_state)
        seed = int(random.randint(2**31 - 1))
        if resume:
            theta, self.t_ = self._reached(model), self.t_ + 1
        else:
            theta, self.t_ = self._initial(model, seed), 0
        threads = _check.whole("threads", self.threads)
        discipline = self.discipline
        if discipline is None:
            # Dense models may be a few numbers, all in the vector that a Hogwild thread holds when
            # it is interrupted, and puts back.
            sparse = isinstance(data, SparseDataset)
            discipline = Sequential() if threads == 1 else Hogwild() if sparse else Leashed()
        tol = math.nan if self.tol is None else _check.real("tol", self.tol, 0.0, allow=True)
        each = (
            epochs if math.isnan(tol) else _check.whole("n_iter_no_change", self.n_iter_no_change)
        )
        before, self.n_iter_, run = math.inf, 0, Kept()
        while self.n_iter_ < epochs:
            self.n_iter_ = min(self.n_iter_ + each, epochs)
            result = train(
                model,
                data,
                until=until(epochs=self.n_iter_),
                discipline=discipline,
                rule=self._rule(data),
                threads=threads,
                batch_size=min(_check.whole("batch_size", self.batch_size), rows),
                seed=(seed + 7919 * self.t_) % 2**31,
                init=theta,
                evaluate_every=1e6,
                checkpoint=run,
                resume=run,
            )
            theta, loss = result.parameters, float(result.loss[-1])
            if result.outcome == "crashed" or not np.isfinite(theta).all():
                raise ValueError(
                    "training ran to infinity; scale the features, for example with "
                    f"sklearn.preprocessing.StandardScaler, or lower lr, got {self.lr!r}"
                )
            if result.reason == "interrupted":
                raise KeyboardInterrupt
            if before - loss < tol:
                break
            before = loss
        self.parameters_ = theta
        self.loss_ = loss
        self._store(model)

    def _store(self, model: Model) -> None:
        """Sets the attributes that the parameters are read by."""
        raise NotImplementedError

    def _validated(self, x: Any, *y: Any, reset: bool, numeric: bool = False) -> Any:
        """x, or x and y, checked the way of scikit-learn."""
        options: dict[str, Any] = {
            "accept_sparse": "csr" if isinstance(self, _Linear) else False,
            "dtype": (np.float32, np.float64),
            "reset": reset,
        }
        if y:
            return validate_data(self, x, *y, y_numeric=numeric, **options)
        return validate_data(self, x, **options)


class _Linear(_Estimator):
    """A model of one dense layer, with ``coef_`` and ``intercept_``."""

    loss: str
    penalty: str | None
    alpha: float
    fit_intercept: bool

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags

    def _l2(self) -> float:
        if self.penalty not in ("l2", None):
            raise ValueError(f"penalty must be 'l2' or None, got {self.penalty!r}")
        alpha = _check.real("alpha", self.alpha, 0.0, allow=True)
        return 0.0 if self.penalty is None else alpha

    def _linear_model(self, features: int, outputs: int) -> Model:
        layer = models.Dense(outputs, bias=_flag(self, "fit_intercept"))
        return Model((features, 1, 1), (layer,), "linear", loss=self.loss, l2=self._l2())

    def _reached(self, model: Model) -> NDArray[np.float32]:
        theta = super()._reached(model).copy()
        if not self.fit_intercept:
            model.unflatten(theta)["0.bias"][...] = 0
        return theta

    def _store(self, model: Model) -> None:
        parts = model.unflatten(self.parameters_)
        self.coef_ = parts["0.weight"].T.astype(np.float64)
        self.intercept_ = parts["0.bias"].astype(np.float64)

    def _scores(self, x: Any) -> NDArray[np.float64]:
        check_is_fitted(self)
        x = self._validated(x, reset=False)
        return np.asarray(x @ self.coef_.T, np.float64) + self.intercept_


class _Classifier(ClassifierMixin, _Estimator):
    """What a classifier adds: labels of any kind."""

    def fit(self, X: Any, y: Any) -> Any:  # noqa: N803
        """Fits to X [n, features] and labels y [n]."""
        warm = self._warm()
        X, y = self._validated(X, y, reset=not warm)  # noqa: N806
        if not warm:
            self._set_classes(y)
        elif not np.array_equal(self.classes_, np.unique(y)):
            raise ValueError(
                "with warm_start y must have the classes of the last fit, "
                f"{self.classes_}, got {np.unique(y)}"
            )
        self._fit(self._data(X, y), _check.whole("max_iter", self.max_iter), resume=warm)
        return self

    def partial_fit(self, X: Any, y: Any, classes: Any = None) -> Any:  # noqa: N803
        """Goes on for one epoch over X and y. The first call needs ``classes``, all labels there
        will be.
        """
        first = not hasattr(self, "parameters_")
        X, y = self._validated(X, y, reset=first)  # noqa: N806
        if first:
            if classes is None:
                raise ValueError("classes must be passed on the first call to partial_fit.")
            self._set_classes(classes)
        elif classes is not None and not np.array_equal(self.classes_, np.unique(classes)):
            raise ValueError(
                f"classes is not the same as on the last call to partial_fit: {self.classes_}"
            )
        self._fit(self._data(X, y), 1, resume=not first)
        return self

    def _set_classes(self, y: Any) -> None:
        check_classification_targets(y)
        self.classes_ = np.unique(y)
        if len(self.classes_) < 2:
            raise ValueError(
                f"The number of classes has to be greater than one; got {len(self.classes_)} class"
            )

    def _data(self, x: Any, y: Any) -> Dataset | SparseDataset:
        check_classification_targets(y)
        unknown = np.setdiff1d(y, self.classes_)
        if len(unknown):
            raise ValueError(f"y has the label {unknown[0]!r}, which is none of {self.classes_}")
        labels = np.searchsorted(self.classes_, y)
        if is_csr(x):
            return SparseDataset.from_csr(x, labels, len(self.classes_))
        return Dataset.from_arrays(x, labels, len(self.classes_))


class _Regressor(RegressorMixin, _Estimator):
    """What a regressor adds: numbers."""

    def fit(self, X: Any, y: Any) -> Any:  # noqa: N803
        """Fits to X [n, features] and numbers y [n]."""
        warm = self._warm()
        X, y = self._validated(X, y, reset=not warm, numeric=True)  # noqa: N806
        self._fit(self._data(X, y), _check.whole("max_iter", self.max_iter), resume=warm)
        return self

    def partial_fit(self, X: Any, y: Any) -> Any:  # noqa: N803
        """Goes on for one epoch over X and y."""
        first = not hasattr(self, "parameters_")
        X, y = self._validated(X, y, reset=first, numeric=True)  # noqa: N806
        self._fit(self._data(X, y), 1, resume=not first)
        return self

    def _data(self, x: Any, y: Any) -> Dataset | SparseDataset:
        return SparseDataset.regression(x, y) if is_csr(x) else Dataset.regression(x, y)


def _flag(estimator: Any, name: str) -> bool:
    value = getattr(estimator, name)
    if not isinstance(value, (bool, np.bool_)):
        raise TypeError(f"{name} must be True or False, got {value!r}")
    return bool(value)


def _has_probabilities(estimator: Any) -> bool:
    return bool(estimator.loss == "log_loss")


class SGDClassifier(_Classifier, _Linear):
    """Linear classifiers: support vector machines and logistic regression, with more than two
    classes each against the rest, all at once.

    Args:
        loss: ``"hinge"`` or ``"log_loss"``; only the second has ``predict_proba``.
        penalty: ``"l2"``, α/2 |w|², or None.
        alpha: α.
        fit_intercept: whether there is an intercept; without it ``intercept_`` is 0.
        lr: the step size for the mean gradient of a batch, or a schedule of ``leashed.schedules``.
        max_iter: the most epochs.
        tol: training ends when the loss over the training set has not fallen by so much for
            ``n_iter_no_change`` epochs; None: after ``max_iter``.
        n_iter_no_change: epochs between two evaluations of the loss.
        batch_size: examples per gradient, at most all there are.
        threads: worker threads.
        discipline: of ``leashed``. Default: ``Leashed()``, on sparse features ``Hogwild()``, with one
            thread ``Sequential()``.
        rule: of ``leashed.rules``, in place of ``SGD(lr)``.
        random_state: of the order of the examples.
        warm_start: ``fit`` goes on from the parameters of the last ``fit`` or ``partial_fit``, on
            data with the same features and classes, in place of beginning anew.

    Attributes:
        classes_: the labels, sorted.
        coef_: float64 [1, features] with two classes, else [classes, features].
        intercept_: float64 [1] or [classes]; 0 without ``fit_intercept``.
        n_iter_: epochs of the last fit.
        loss_: mean loss over the training set after it, without the penalty.
        parameters_: float32, as ``leashed.models`` have them.

    Raises:
        TypeError, ValueError: from ``fit``, where a parameter or the data is wrong.
    """

    def __init__(
        self,
        loss: str = "hinge",
        *,
        penalty: str | None = "l2",
        alpha: float = 1e-4,
        fit_intercept: bool = True,
        lr: float | Schedule = 0.1,
        max_iter: int = 1000,
        tol: float | None = 1e-4,
        n_iter_no_change: int = 5,
        batch_size: int = 16,
        threads: int = 1,
        discipline: Discipline | None = None,
        rule: Rule | None = None,
        random_state: Any = None,
        warm_start: bool = False,
    ) -> None:
        self.loss = loss
        self.penalty = penalty
        self.alpha = alpha
        self.fit_intercept = fit_intercept
        self.lr = lr
        self.max_iter = max_iter
        self.tol = tol
        self.n_iter_no_change = n_iter_no_change
        self.batch_size = batch_size
        self.threads = threads
        self.discipline = discipline
        self.rule = rule
        self.random_state = random_state
        self.warm_start = warm_start

    def _model(self, features: int, rows: int) -> Model:  # noqa: ARG002
        if self.loss not in ("hinge", "log_loss"):
            raise ValueError(f"loss must be 'hinge' or 'log_loss', got {self.loss!r}")
        classes = len(self.classes_)
        return self._linear_model(features, 1 if classes == 2 else classes)

    def decision_function(self, X: Any) -> NDArray[np.float64]:  # noqa: N803
        """Signed distances to the hyperplanes, times the norms of their weights: [n] with two
        classes, else [n, classes].
        """
        scores = self._scores(X)
        return scores[:, 0] if scores.shape[1] == 1 else scores

    def predict(self, X: Any) -> NDArray[Any]:  # noqa: N803
        """Labels [n]."""
        scores = self.decision_function(X)
        found = (scores > 0).astype(int) if scores.ndim == 1 else scores.argmax(axis=1)
        return np.asarray(self.classes_[found])

    @available_if(_has_probabilities)  # type: ignore[untyped-decorator]
    def predict_proba(self, X: Any) -> NDArray[np.float64]:  # noqa: N803
        """Probabilities [n, classes]; with more than two classes those of each against the rest,
        scaled to add up to 1.
        """
        share = 0.5 * (1.0 + np.tanh(0.5 * self._scores(X)))
        if share.shape[1] == 1:
            return np.hstack([1.0 - share, share])
        total = share.sum(axis=1, keepdims=True)
        even = np.full_like(share, 1.0 / share.shape[1])
        return np.divide(share, total, out=even, where=total > 0)


class SGDRegressor(_Regressor, _Linear):
    """Linear regression with the squared error ½ (o − y)². Parameters and attributes as those of
    ``SGDClassifier``, but for ``loss`` and ``classes_``; ``coef_`` is [features]. A number ``lr`` is
    divided by the mean of 1 + |x|² over the examples, without which a step overshoots where features
    are not scaled; a schedule is taken as it is.
    """

    loss = "squared_error"

    def __init__(
        self,
        *,
        penalty: str | None = "l2",
        alpha: float = 1e-4,
        fit_intercept: bool = True,
        lr: float | Schedule = 0.2,
        max_iter: int = 1000,
        tol: float | None = 1e-4,
        n_iter_no_change: int = 5,
        batch_size: int = 16,
        threads: int = 1,
        discipline: Discipline | None = None,
        rule: Rule | None = None,
        random_state: Any = None,
        warm_start: bool = False,
    ) -> None:
        self.penalty = penalty
        self.alpha = alpha
        self.fit_intercept = fit_intercept
        self.lr = lr
        self.max_iter = max_iter
        self.tol = tol
        self.n_iter_no_change = n_iter_no_change
        self.batch_size = batch_size
        self.threads = threads
        self.discipline = discipline
        self.rule = rule
        self.random_state = random_state
        self.warm_start = warm_start

    def _rule(self, data: Dataset | SparseDataset) -> Rule:
        if self.rule is not None or isinstance(self.lr, Schedule):
            return super()._rule(data)
        values = data.data if isinstance(data, SparseDataset) else data.x
        squares = float(np.square(values, dtype=np.float64).sum()) / len(data)
        return SGD(_check.step("lr", self.lr) / (1.0 + squares))

    def _model(self, features: int, rows: int) -> Model:  # noqa: ARG002
        return self._linear_model(features, 1)

    def _store(self, model: Model) -> None:
        super()._store(model)
        self.coef_ = self.coef_[0]

    def predict(self, X: Any) -> NDArray[np.float64]:  # noqa: N803
        """Numbers [n]."""
        check_is_fitted(self)
        x = self._validated(X, reset=False)
        return np.asarray(x @ self.coef_, np.float64) + self.intercept_[0]


class _Perceptron(_Estimator):
    """Dense layers with ReLU between them."""

    hidden_layer_sizes: tuple[int, ...]
    alpha: float

    def _rule(self, data: Dataset | SparseDataset) -> Rule:  # noqa: ARG002
        return Adam(self.lr) if self.rule is None else self.rule

    def _initial(self, model: Model, seed: int) -> NDArray[np.float32]:
        return model.init(seed, "glorot")

    def _network(self, features: int, rows: int, outputs: int, loss: str) -> Model:
        alpha = _check.real("alpha", self.alpha, 0.0, allow=True)
        layers: list[models.Layer] = []
        for width in np.atleast_1d(np.asarray(self.hidden_layer_sizes, dtype=object)):
            layers += [models.Dense(_check.whole("hidden_layer_sizes", width)), models.ReLU()]
        return Model(
            (features, 1, 1), (*layers, models.Dense(outputs)), "mlp", loss, l2=alpha / rows
        )

    def _store(self, model: Model) -> None:
        self._network_ = model
        parts = list(model.unflatten(self.parameters_).values())
        self.coefs_, self.intercepts_ = parts[::2], parts[1::2]
        self.n_layers_ = len(self.coefs_) + 1

    def _outputs(self, x: Any) -> NDArray[np.float64]:
        check_is_fitted(self)
        x = self._validated(x, reset=False)
        return self._network_.predict(self.parameters_, x).astype(np.float64)


class MLPClassifier(_Classifier, _Perceptron):
    """A multilayer perceptron with ReLU and softmax.

    Args:
        hidden_layer_sizes: widths of the hidden layers.
        alpha: α of the penalty α/(2n) |w|² over n examples, as scikit-learn has it.
        lr: the step size of ``Adam``.
        max_iter: the most epochs.
        tol: see ``SGDClassifier``.
        n_iter_no_change: likewise.
        batch_size: examples per gradient, at most all there are.
        threads: worker threads.
        discipline: of ``leashed``. Default: ``Leashed()``, with one thread ``Sequential()``.
        rule: of ``leashed.rules``, in place of ``Adam(lr)``.
        random_state: of the initial parameters and of the order of the examples.
        warm_start: see ``SGDClassifier``; the layers must be the same as well.

    Attributes:
        classes_: the labels, sorted.
        coefs_: the layers' weights, float32 [inputs, outputs].
        intercepts_: their biases.
        n_iter_, loss_, parameters_: as for ``SGDClassifier``.

    Raises:
        TypeError, ValueError: from ``fit``, where a parameter or the data is wrong.
    """

    def __init__(
        self,
        hidden_layer_sizes: tuple[int, ...] = (100,),
        *,
        alpha: float = 1e-4,
        lr: float | Schedule = 1e-3,
        max_iter: int = 200,
        tol: float | None = 1e-4,
        n_iter_no_change: int = 10,
        batch_size: int = 64,
        threads: int = 1,
        discipline: Discipline | None = None,
        rule: Rule | None = None,
        random_state: Any = None,
        warm_start: bool = False,
    ) -> None:
        self.hidden_layer_sizes = hidden_layer_sizes
        self.alpha = alpha
        self.lr = lr
        self.max_iter = max_iter
        self.tol = tol
        self.n_iter_no_change = n_iter_no_change
        self.batch_size = batch_size
        self.threads = threads
        self.discipline = discipline
        self.rule = rule
        self.random_state = random_state
        self.warm_start = warm_start

    def _model(self, features: int, rows: int) -> Model:
        return self._network(features, rows, len(self.classes_), "softmax")

    def predict_proba(self, X: Any) -> NDArray[np.float64]:  # noqa: N803
        """Probabilities [n, classes]."""
        return self._outputs(X)

    def predict(self, X: Any) -> NDArray[Any]:  # noqa: N803
        """Labels [n]."""
        found = self._outputs(X).argmax(axis=1)
        return np.asarray(self.classes_[found])


class MLPRegressor(_Regressor, _Perceptron):
    """A multilayer perceptron with ReLU and the squared error ½ (o − y)². Parameters and attributes
    as those of ``MLPClassifier``, but for ``classes_``.
    """

    def __init__(
        self,
        hidden_layer_sizes: tuple[int, ...] = (100,),
        *,
        alpha: float = 1e-4,
        lr: float | Schedule = 1e-3,
        max_iter: int = 200,
        tol: float | None = 1e-4,
        n_iter_no_change: int = 10,
        batch_size: int = 64,
        threads: int = 1,
        discipline: Discipline | None = None,
        rule: Rule | None = None,
        random_state: Any = None,
        warm_start: bool = False,
    ) -> None:
        self.hidden_layer_sizes = hidden_layer_sizes
        self.alpha = alpha
        self.lr = lr
        self.max_iter = max_iter
        self.tol = tol
        self.n_iter_no_change = n_iter_no_change
        self.batch_size = batch_size
        self.threads = threads
        self.discipline = discipline
        self.rule = rule
        self.random_state = random_state
        self.warm_start = warm_start

    def _model(self, features: int, rows: int) -> Model:
        return self._network(features, rows, 1, "squared_error")

    def predict(self, X: Any) -> NDArray[np.float64]:  # noqa: N803
        """Numbers [n]."""
        return self._outputs(X)[:, 0]
