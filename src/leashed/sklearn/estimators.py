"""The estimators; ``leashed.sklearn`` says when a fit ends and how it goes on."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np
from joblib import effective_n_jobs
from numpy.typing import NDArray
from scipy.sparse import issparse  # type: ignore[import-untyped]
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin, is_classifier
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import accuracy_score, r2_score
from sklearn.model_selection import train_test_split
from sklearn.utils import check_random_state
from sklearn.utils.class_weight import compute_class_weight
from sklearn.utils.metaestimators import available_if
from sklearn.utils.multiclass import check_classification_targets, type_of_target
from sklearn.utils.validation import (
    _check_sample_weight,
    check_is_fitted,
    column_or_1d,
    validate_data,
)

from leashed import disciplines, models
from leashed.base import checks
from leashed.base.choice import Choice
from leashed.base.warning import warn
from leashed.datasets import Dataset, SparseDataset
from leashed.datasets.sparse import is_csr
from leashed.disciplines import Discipline, Hogwild, Leashed, Sequential, Synchronous
from leashed.files.resuming import Kept
from leashed.models.network import Model
from leashed.rules import SGD, Adam, Momentum, Nesterov, Rule, check_rule
from leashed.schedules import Schedule
from leashed.sklearn.rates import of_epochs, rates
from leashed.training.run import mean_loss, train_passes
from leashed.training.sets import batches_of

__all__ = ["MLPClassifier", "MLPRegressor", "SGDClassifier", "SGDRegressor"]

_APART = 1e3  # scales of two columns, of which a warning is due
_FEW = 10  # numbers, which do not tell what scale they are of
_ROUNDING = 1e-9  # what scaling leaves of a column that is constant
_REGRESSORS_LR, _PERCEPTRONS_LR = 0.2, 1e-3
_AT_ONCE = 1 << 20  # numbers of dense rows that are copied
_MOST_JOBS = 1 << 20
_LEAST_STEP = 1e-20
_ACTIVATIONS: dict[str, tuple[models.Layer, ...]] = {
    "identity": (),
    "logistic": (models.Sigmoid(),),
    "tanh": (models.Tanh(),),
    "relu": (models.ReLU(),),
}


@dataclass
class _Progress:
    """What a fit goes on from, beside the parameters."""

    seed: int
    weight: float = 1.0  # mean weight of an example in the first call
    lr: float | None = None  # that of the first call which tells one, where it is the default
    epochs: int = 0
    updates: int = 0
    examples: float = 0.0  # of these updates, by which step sizes fall that count them
    rule: str = ""
    states: NDArray[np.float32] | None = None  # [S, d]
    scale: float = 1.0  # of the rule that left them


class _Patience:
    """So many epochs in a row may bring no improvement of a score by ``tol``."""

    def __init__(self, tol: float | None, epochs: int) -> None:
        self._tol = tol
        self._epochs = epochs
        self._best = -math.inf
        self._without = 0

    @property
    def left(self) -> float:
        """Epochs before it can be at an end."""
        if self._tol is None:
            return math.inf
        return self._epochs - self._without + (self._best == -math.inf)

    def see(self, score: float) -> None:
        if self._tol is not None:
            self._without = self._without + 1 if score < self._best + self._tol else 0
        self._best = max(self._best, score)

    def begin_again(self) -> None:
        """Count epochs without improvement anew, beside the best so far."""
        self._without = 0


@dataclass
class _Held:
    """Examples kept for validation."""

    x: Any
    y: NDArray[Any]
    weights: NDArray[Any] | None


@dataclass(eq=False, repr=False, kw_only=True)
class _Settings:
    """What all four are given."""

    alpha: float = 1e-4
    lr: Any = None
    max_iter: int = 1000
    tol: float | None = 1e-3
    n_iter_no_change: int = 5
    early_stopping: bool = False
    validation_fraction: float = 0.1
    batch_size: int = 16
    threads: int | None = None
    n_jobs: int | None = None
    discipline: Discipline | str | None = None
    rule: Rule | str | None = None
    random_state: Any = None
    warm_start: bool = False
    verbose: int = 0


class _Estimator(_Settings, BaseEstimator):
    """What all four share: epochs until there is no improvement any more."""

    loss: str
    parameters_: NDArray[np.float32]
    loss_curve_: list[float]
    _iterate: NDArray[np.float32] | None = None
    validation_scores_: list[float] | None

    # Epochs without improvement beyond n_iter_no_change, and whether early stopping goes back to the
    # parameters that scored best: as scikit-learn's estimators of the same names have it.
    MORE_PATIENCE: ClassVar[int] = 0
    SEVERAL: ClassVar[bool] = False  # targets a row may have
    KEEPS_BEST: ClassVar[bool] = False

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags

    def _rule(self, data: Dataset | SparseDataset) -> Rule:  # noqa: ARG002
        return SGD(self.lr) if self.rule is None else check_rule(self.rule)

    def _rules(self, data: Dataset | SparseDataset, examples: float) -> Iterator[Rule]:  # noqa: ARG002
        """What a fit goes by, the next one where the last brings no improvement any more, in
        updates of so many examples.
        """
        yield self._rule(data)

    def _by_epochs(self) -> bool:
        """Whether each of these is for an epoch instead."""
        return False

    def _scale(self, rule: Rule) -> float:  # noqa: ARG002
        """What the rule's states times it are others' of the same kind times theirs."""
        return 1.0

    def _step_size(self, rule: Rule) -> tuple[str, Any]:
        """The parameter that steps of this rule go by, and what it is."""
        return "lr", rule.config()["lr"] if self.lr is None else self.lr

    def _slower(self, rule: Rule) -> str:
        """What makes steps smaller."""
        name, rate = self._step_size(rule)
        return f"lower {name}, got {rate!r}"

    def _threads(self) -> int:
        if self.threads is None:
            if self.n_jobs is not None and checks.whole("n_jobs", self.n_jobs, -_MOST_JOBS) == 0:
                raise ValueError("n_jobs must be -1, for all cores, or at least 1, got 0")
            return int(effective_n_jobs(self.n_jobs))
        if self.n_jobs is not None:
            raise ValueError(
                f"threads={self.threads!r} and n_jobs={self.n_jobs!r} say the same; leave one out"
            )
        return checks.whole("threads", self.threads)

    def _verbose(self) -> bool:
        if isinstance(self.verbose, (bool, np.bool_)):
            return bool(self.verbose)
        return checks.whole("verbose", self.verbose, 0) > 0

    def _unit(self) -> float:
        """What targets are divided by for the model."""
        return 1.0

    def _penalised(self, rule: Rule, model: Model, data: Dataset | SparseDataset) -> Rule:  # noqa: ARG002
        """The rule with what no gradient has of the penalty."""
        return rule

    def _model(self, features: int, rows: int) -> Model:
        raise NotImplementedError

    def _problems(self) -> int:
        """How many losses the model's loss is the sum of."""
        return 1

    def _initial(self, model: Model, seed: int) -> NDArray[np.float32]:  # noqa: ARG002
        return np.zeros(model.dimension, np.float32)

    def _reached(self, model: Model) -> NDArray[np.float32]:  # noqa: ARG002
        """The parameters of the last fit, to go on from."""
        return self.parameters_ if self._iterate is None else self._iterate

    def _averages(self) -> bool:
        """Whether what is fitted is the mean of the iterates, the first of the rule's states."""
        return False

    def _warm(self) -> bool:
        """Whether a fit goes on from the last one."""
        return _flag(self, "warm_start") and hasattr(self, "parameters_")

    @contextmanager
    def _whole_or_not(self) -> Iterator[None]:
        """What fails within leaves the estimator as it was."""
        before = dict(vars(self))
        try:
            yield
        except BaseException:
            self.__dict__ = before
            raise

    def _with_classes(self, y: Any, weights: Any) -> Any:  # noqa: ARG002
        """The examples' weights times those of their classes."""
        return weights

    def _fit_all(self, x: Any, y: Any, sample_weight: Any, *, go_on: bool) -> None:
        """Trains for ``max_iter`` epochs or until there is no improvement any more."""
        weights = self._begin(x, y, sample_weight, go_on=go_on)
        held = None
        if _flag(self, "early_stopping"):
            x, y, weights, held = self._split(x, y, weights, sample_weight)
        epochs = checks.whole("max_iter", self.max_iter)
        tol = None if self.tol is None else checks.real("tol", self.tol, 0.0, allow=True)
        patience = _Patience(
            tol if tol is None or held else tol * self._problems(),
            checks.whole("n_iter_no_change", self.n_iter_no_change) + self.MORE_PATIENCE,
        )
        self._train(self._data(x, y, weights), epochs, patience, held, go_on=go_on)
        if patience.left > 0 and self.tol is not None:
            warn(
                f"max_iter={epochs} epochs were made before the fit converged; raise max_iter or "
                "tol",
                ConvergenceWarning,
            )

    def _fit_part(self, x: Any, y: Any, sample_weight: Any, *, go_on: bool) -> None:
        """Trains for one epoch."""
        if _flag(self, "early_stopping"):
            raise ValueError(
                "early_stopping must be False with partial_fit, which makes one epoch; use fit"
            )
        weights = self._begin(x, y, sample_weight, go_on=go_on)
        self._train(self._data(x, y, weights), 1, _Patience(None, 1), None, go_on=go_on)

    def _begin(self, x: Any, y: Any, sample_weight: Any, *, go_on: bool) -> Any:
        """What the examples weigh, their mean in the first call being 1."""
        weights = self._with_classes(y, sample_weight)
        if not go_on:
            _warn_of_scales(x, getattr(self, "feature_names_in_", None))
            seed = int(check_random_state(self.random_state).randint(2**31 - 1))
            mean = 1.0 if weights is None else _mean(weights)
            self._progress = _Progress(seed, mean if self._scales_weights() else 1.0)
        unit = self._progress.weight
        if weights is None:
            return None if unit == 1.0 else np.full(x.shape[0], 1.0 / unit)
        return weights / unit

    def _scales_weights(self) -> bool:
        """Whether steps are those of weights with the mean 1."""
        return True

    def _counts_examples(self) -> bool:
        """Whether the rule's t is of examples, in batches."""
        return False

    def _alpha(self) -> float:
        alpha = checks.real("alpha", self.alpha, 0.0, allow=True)
        return checks.real("alpha over the mean of the weights", alpha / self._progress.weight)

    def _split(
        self, x: Any, y: Any, weights: Any, sample_weight: Any
    ) -> tuple[Any, Any, Any, _Held]:
        """The examples to train on, and those held out: with one seed always the same ones."""
        share = checks.real("validation_fraction", self.validation_fraction, 0.0)
        if share >= 1.0:
            raise ValueError(f"validation_fraction must be less than 1, got {share:g}")
        rows = np.arange(len(y))
        try:
            rest, held = train_test_split(
                rows,
                test_size=share,
                random_state=self._progress.seed,
                stratify=y if is_classifier(self) and y.ndim == 1 else None,
            )
        except ValueError as error:
            raise ValueError(
                f"no validation set can be split off {len(y)} examples: {error} Change "
                f"validation_fraction, got {share:g}, or fit with early_stopping=False"
            ) from None
        if len(held) < 2 and not is_classifier(self):
            raise ValueError(
                f"one example of {len(y)} is held out, which has no R²; raise validation_fraction, "
                f"got {share:g}, or fit with early_stopping=False"
            )
        counts = None if sample_weight is None else sample_weight[held]
        if counts is not None and not counts.any():
            raise ValueError(
                "sample_weight is 0 for the whole validation set; choose another random_state"
            )
        weights = None if weights is None else weights[rest]
        if weights is not None and not weights.any():
            raise ValueError(
                "all examples that are not held out weigh 0; choose another random_state"
            )
        return x[rest], y[rest], weights, _Held(x[held], y[held], counts)

    def _train(
        self,
        data: Dataset | SparseDataset,
        epochs: int,
        patience: _Patience,
        held: _Held | None,
        *,
        go_on: bool,
    ) -> None:
        """Trains for at most so many epochs, from where the last call ended or from the start."""
        model = self._model(data.features, len(data))
        batch_size = min(checks.whole("batch_size", self.batch_size), len(data))
        examples = len(data) / batches_of(data, batch_size, 1)
        rules = self._rules(data, examples)
        rule = self._penalised(next(rules), model, data)
        threads = self._threads()
        square = self._unit() ** 2  # of a loss
        columnwise = _is_columnwise(model, data)
        # Where decay of columns comes late, a call's end is a moment at which all get it.
        tells = self._verbose() and not columnwise
        discipline = self.discipline
        if discipline is not None:
            discipline = disciplines.of(discipline)
        else:
            # Dense models may be a few numbers, all in the vector that a Hogwild thread holds when
            # it is interrupted, and puts back.
            several = Hogwild() if columnwise else Leashed()
            discipline = Sequential() if threads == 1 else several
        # A step of all threads together takes a batch each, also those that begin the next epoch.
        reaches_over = isinstance(discipline, Synchronous) and threads > 1
        theta = self._reached(model) if go_on else self._initial(model, self._progress.seed)
        run = self._run(theta, rule, data, batch_size, examples)
        begun = 0 if run.reached is None else run.reached.updates
        curve = list(self.loss_curve_) if go_on else []
        scores = list(self.validation_scores_ or []) if go_on and held else [] if held else None
        best, best_score = theta, -math.inf
        done = 0
        by_epochs = self._by_epochs()
        while done < epochs:
            slower = None
            if patience.left <= 0:
                slower = None if by_epochs else next(rules, None)
                if slower is None:
                    break
                patience.begin_again()
            elif by_epochs and done:
                slower = next(rules)
            if slower is not None:
                before, rule = rule, self._penalised(slower, model, data)
                run = self._changed(run, before, rule)
            one = held or reaches_over or tells or by_epochs
            more = 1 if one else int(min(patience.left, epochs - done))
            done += more
            updates = 0 if run.reached is None else run.reached.updates
            outcome = train_passes(
                model,
                data,
                theta,
                run,
                epochs=self._progress.epochs + done,
                passes=more,
                discipline=discipline,
                rule=rule,
                threads=threads,
                batch_size=batch_size,
                seed=self._progress.seed,
            )
            theta = outcome["parameters"]
            if outcome["outcome"] == "crashed" or not np.isfinite(theta).all():
                raise ValueError(
                    "training ran to infinity; scale the features, for example with "
                    f"sklearn.preprocessing.StandardScaler, or {self._slower(rule)}"
                )
            if outcome["reason"] == "interrupted":
                raise KeyboardInterrupt
            assert run.reached is not None
            if reaches_over and run.reached.updates == updates:
                # Steps before have had its batches too, and what has not changed cannot improve.
                curve.append(curve[-1])
                if scores:
                    scores.append(scores[-1])
                self._tell(done, curve[-1:], scores)
                continue
            losses = (square * outcome["pass_losses"]).tolist()
            if reaches_over:
                found = mean_loss(model, data, theta, threads) + _penalty(model, data, theta)
                losses = [square * found]
            curve += losses
            if held is None:
                for loss in losses:
                    patience.see(-loss)
                self._tell(done, losses, scores)
                continue
            assert scores is not None
            shown = self._shown(run)
            self._store(model, shown)
            scores.append(self._score(held))
            patience.see(scores[-1])
            if scores[-1] > best_score:
                best, best_score = shown, scores[-1]
            self._tell(done, losses, scores)
        self._keep(run, rule, done, begun, examples)
        self._iterate = theta if self._averages() else None
        self._store(model, best if held and self.KEEPS_BEST else self._shown(run))
        self.n_iter_ = done
        self.loss_curve_ = curve
        self.best_loss_ = None if held else min(curve)
        self.validation_scores_ = scores
        self.best_validation_score_ = max(scores) if scores else None
        self.loss_ = square * mean_loss(model, data, self.parameters_, threads)

    def _shown(self, run: Kept) -> NDArray[np.float32]:
        """What is fitted, of what a run has reached."""
        assert run.reached is not None
        return run.reached.vectors[1 if self._averages() else 0]

    def _tell(self, done: int, losses: Sequence[float], scores: Sequence[float] | None) -> None:
        """A line for each of the last epochs, where it is asked for."""
        if not self._verbose():
            return
        for k, loss in enumerate(losses, done - len(losses) + 1):
            score = f", validation score = {scores[-1]:.6f}" if scores else ""
            print(f"Epoch {k}, loss = {loss:.8f}{score}", flush=True)

    def _run(
        self,
        theta: NDArray[np.float32],
        rule: Rule,
        data: Dataset | SparseDataset,
        batch_size: int,
        examples: float,
    ) -> Kept:
        """The run that goes on from the last fit's state and at the pass over the data after it."""
        last = self._progress
        if last.states is None:
            return Kept()
        if last.rule != _kind(rule):
            self._progress = _Progress(last.seed, last.weight, last.lr)
            return Kept()
        batches = batches_of(data, batch_size, last.epochs)
        t = round(last.examples / examples) if self._counts_examples() else last.updates
        states = last.states * np.float32(last.scale / self._scale(rule))
        return Kept.at(np.vstack([theta, states]), t, batches)

    def _changed(self, run: Kept, before: Rule, rule: Rule) -> Kept:
        """The run for another rule of the same kind."""
        reached = run.reached
        if reached is None:
            return run
        states = reached.vectors[1:] * np.float32(self._scale(before) / self._scale(rule))
        vectors = np.vstack([reached.vectors[:1], states])
        return Kept.at(vectors, reached.updates, reached.batches)

    def _keep(self, run: Kept, rule: Rule, epochs: int, begun: int, examples: float) -> None:
        last, reached = self._progress, run.reached
        assert reached is not None
        updates = reached.updates - begun
        self._progress = replace(
            last,
            epochs=last.epochs + epochs,
            updates=last.updates + updates,
            examples=last.examples + updates * examples,
            rule=_kind(rule),
            states=reached.vectors[1:],
            scale=self._scale(rule),
        )
        self.t_ = self._progress.updates

    def _store(self, model: Model, theta: NDArray[np.float32]) -> None:
        """Sets the attributes that the parameters are read by."""
        raise NotImplementedError

    def _score(self, held: _Held) -> float:
        raise NotImplementedError

    def _validated(self, x: Any, *y: Any, reset: bool, numeric: bool = False) -> Any:
        """x, or x and y, checked the way of scikit-learn."""
        options: dict[str, Any] = {
            "accept_sparse": "csr",
            "dtype": (np.float32, np.float64),
            "reset": reset,
        }
        if not y:
            return validate_data(self, x, **options)
        if self.SEVERAL:
            options["multi_output"] = True
        x, *targets = validate_data(self, x, *y, y_numeric=numeric, **options)
        if is_csr(x) and not x.has_canonical_format:
            x = x.copy()
            x.sum_duplicates()  # step sizes and warnings go by the sizes of numbers, not of their parts
        return x, *targets

    def _data(self, x: Any, y: Any, weights: Any) -> Dataset | SparseDataset:
        raise NotImplementedError

    def _outputs(self, x: Any) -> NDArray[np.float64]:
        """Of rows that have been checked, [n, outputs]."""
        raise NotImplementedError


def _is_columnwise(model: Model, data: Dataset | SparseDataset) -> bool:
    """Whether updates may be of a batch's columns alone."""
    return isinstance(data, SparseDataset) and len(model.layers) == 1


def _penalty(model: Model, data: Dataset | SparseDataset, theta: NDArray[np.float32]) -> float:
    """What is in the losses that gradients find beside that of the examples."""
    if _is_columnwise(model, data):
        return 0.0
    weights = [w for name, w in model.unflatten(theta).items() if not name.endswith("bias")]
    return 0.5 * model.l2 * sum(float(np.square(w, dtype=np.float64).sum()) for w in weights)


@dataclass(frozen=True)
class _Truncated(Rule):
    """A rule after which the parameters from ``begin`` to ``end`` go towards 0 by what they owe of
    the penalty ``l1``, and no farther.
    """

    rule: Rule
    l1: float
    begin: int
    end: int

    @property
    def state_names(self) -> tuple[str, ...]:
        return (*self.rule.state_names, "due_from_above", "due_from_below")

    def choice(self) -> Choice:
        name, settings = self.rule.choice()
        part: Choice = (
            "truncation",
            {"l1": self.l1, "begin": float(self.begin), "end": float(self.end)},
        )
        return name, {**settings, "truncation": part}

    def config(self) -> dict[str, Any]:
        return {**self.rule.config(), "l1": self.l1}


@dataclass(frozen=True)
class _Averaged(Rule):
    """SGD with the mean of its iterates from the update after ``begin`` on."""

    rule: SGD
    begin: int

    @property
    def state_names(self) -> tuple[str, ...]:
        return (*self.rule.state_names, "mean")

    def choice(self) -> Choice:
        _, settings = self.rule.choice()
        return "averaged_sgd", {**settings, "begin": float(self.begin)}

    def config(self) -> dict[str, Any]:
        return {**self.rule.config(), "begin": self.begin}


def _kind(rule: Rule) -> str:
    """What tells rules apart whose states mean something else."""
    return f"{rule.config()['name']} with {rule.state_vectors} states"


def _weights_of(x: Any, sample_weight: Any) -> NDArray[Any] | None:
    if sample_weight is None:
        return None
    weights = _check_sample_weight(sample_weight, x, ensure_non_negative=True)
    if not weights.any():
        raise ValueError("sample_weight must contain at least one non-zero number")
    return weights


def _mean(weights: NDArray[Any]) -> float:
    with np.errstate(over="ignore"):
        mean = float(weights.mean())
    return checks.real("the mean of sample_weight times class_weight", mean, 0.0)


def _warn_of_scales(x: Any, names: Any) -> None:
    """Once where no step size fits all columns, by the mean size of what they hold but zeros."""
    sums, counts = np.zeros(x.shape[1]), np.zeros(x.shape[1])
    if is_csr(x):
        sums += np.bincount(x.indices, np.abs(x.data), x.shape[1])
        counts += np.bincount(x.indices, x.data != 0, x.shape[1])
    else:
        rows = max(1, _AT_ONCE // x.shape[1])
        for first in range(0, len(x), rows):
            part = np.abs(x[first : first + rows])
            sums += part.sum(axis=0, dtype=np.float64)
            counts += np.count_nonzero(part, axis=0)
    # A few numbers may be small by chance; many columns that have a few each are one together.
    seldom = counts < _FEW
    labels = np.append(np.flatnonzero(~seldom), -1)
    counts = np.append(counts[~seldom], counts[seldom].sum())
    sizes = np.append(sums[~seldom], sums[seldom].sum()) / np.maximum(counts, 1)
    there = (sizes > _ROUNDING) & ((labels >= 0) | (counts >= _FEW))
    labels, sizes = labels[there], sizes[there]
    if sizes.size == 0 or sizes.max() < _APART * sizes.min():
        return

    def those(at: np.intp) -> str:
        if labels[at] < 0:
            return f"those that are seldom another number than 0 of about {sizes[at]:.2g}"
        name = labels[at] if names is None else repr(names[labels[at]])
        return f"column {name} has numbers of about {sizes[at]:.2g}"

    warn(
        f"columns of X differ in scale by a factor of {sizes.max() / sizes.min():.2g}, and no step "
        f"size fits all: {those(sizes.argmax())}, {those(sizes.argmin())}; scale them, for example "
        "with sklearn.preprocessing.StandardScaler, or MaxAbsScaler, which leaves zeros as they are"
    )


@dataclass(eq=False, repr=False, kw_only=True)
class _Linear(_Estimator):
    """A model of one dense layer, with ``coef_`` and ``intercept_``."""

    penalty: str | None = "l2"
    l1_ratio: float = 0.15
    fit_intercept: bool = True
    learning_rate: str | None = None
    eta0: float | None = None
    power_t: float = 0.5
    average: bool | int = False

    LOSSES: ClassVar[tuple[str, ...]] = ()

    def _scales_weights(self) -> bool:
        return self.learning_rate is None

    def _counts_examples(self) -> bool:
        return self.learning_rate is not None or self._averages()

    def _averages(self) -> bool:
        if isinstance(self.average, (bool, np.bool_)):
            return bool(self.average)
        return checks.whole("average", self.average, 0) > 0

    def _rules(self, data: Dataset | SparseDataset, examples: float) -> Iterator[Rule]:
        rules = self._steps(data, examples)
        if not self._averages():
            return rules
        if self.rule is not None:
            raise ValueError("average is of SGD(lr) alone; leave it out, or rule")
        if self._l1_share() > 0:
            raise ValueError(
                f"average must be False with penalty={self.penalty!r}: a mean of weights of which "
                "some are 0 has none"
            )
        begin = math.ceil((int(self.average) - 1) / examples)
        return (_Averaged(rule, begin) for rule in rules if isinstance(rule, SGD))

    def _steps(self, data: Dataset | SparseDataset, examples: float) -> Iterator[Rule]:
        """The rules, with whatever parameters are taken."""
        if self.learning_rate is None:
            if self.eta0 is not None:
                raise ValueError(
                    "eta0 needs learning_rate: 'constant', 'invscaling' or 'adaptive'; or give the "
                    "step size as lr"
                )
            return super()._rules(data, examples)
        for name in ("lr", "rule"):
            if getattr(self, name) is not None:
                raise ValueError(
                    f"learning_rate={self.learning_rate!r} and {name} both say how far steps go; "
                    "leave one out"
                )
        found = rates(self.learning_rate, self.eta0, self.power_t, self._alpha(), examples)
        return map(SGD, found)

    def _step_size(self, rule: Rule) -> tuple[str, Any]:
        if self.learning_rate is None:
            return super()._step_size(rule)
        return "eta0", rule.config()["lr"]

    def _slower(self, rule: Rule) -> str:
        if self.learning_rate != "optimal":
            return super()._slower(rule)
        return (
            f"raise alpha, got {self.alpha!r}, by which steps of learning_rate='optimal' begin at "
            f"{rule.config()['lr']:g}, or take 'invscaling'"
        )

    def _l1_share(self) -> float:
        """Of the penalty."""
        shares = {"l2": 0.0, "l1": 1.0, None: 0.0}
        if self.penalty == "elasticnet":
            share = checks.real("l1_ratio", self.l1_ratio, 0.0, allow=True)
            if share > 1.0:
                raise ValueError(f"l1_ratio must be at most 1, got {share:g}")
            return share
        if self.penalty not in shares:
            raise ValueError(
                f"penalty must be 'l2', 'l1', 'elasticnet' or None, got {self.penalty!r}"
            )
        return shares[self.penalty]

    def _l2(self) -> float:
        share = self._l1_share()
        return 0.0 if self.penalty is None else (1.0 - share) * self._alpha()

    def _penalised(self, rule: Rule, model: Model, data: Dataset | SparseDataset) -> Rule:
        l1 = self._l1_share() * self._alpha() / self._unit()
        if l1 == 0.0:
            return rule
        # A run on sparse rows has the intercepts first, on dense ones last.
        outputs = model.dimension // (model.features + 1)
        begin = outputs if isinstance(data, SparseDataset) else 0
        return _Truncated(rule, l1, begin, begin + model.features * outputs)

    def _linear_model(self, features: int, outputs: int) -> Model:
        if self.loss not in self.LOSSES:
            listed = ", ".join(f"{loss!r}" for loss in self.LOSSES[:-1])
            raise ValueError(f"loss must be {listed} or {self.LOSSES[-1]!r}, got {self.loss!r}")
        layer = models.Dense(outputs, bias=_flag(self, "fit_intercept"))
        return Model((features, 1, 1), (layer,), "linear", loss=self.loss, l2=self._l2())

    def _reached(self, model: Model) -> NDArray[np.float32]:
        theta, last = super()._reached(model).copy(), self._progress
        if not self.fit_intercept:
            states = None if last.states is None else last.states.copy()
            for vector in (theta, *(() if states is None else states)):
                model.unflatten(vector)["0.bias"][...] = 0
            self._progress = replace(last, states=states)
        return theta

    def _store(self, model: Model, theta: NDArray[np.float32]) -> None:
        self.parameters_ = theta
        parts = model.unflatten(theta)
        self.coef_ = self._unit() * parts["0.weight"].T.astype(np.float64)
        self.intercept_ = self._unit() * parts["0.bias"].astype(np.float64)

    def _outputs(self, x: Any) -> NDArray[np.float64]:
        return np.asarray(x @ np.atleast_2d(self.coef_).T, np.float64) + self.intercept_


class _Classifier(ClassifierMixin, _Estimator):
    """What a classifier adds: labels of any kind."""

    _several: bool

    class_weight: Any = None

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Any:  # noqa: N803
        """Fits to X [n, features] and labels y [n].

        Args:
            sample_weight: how much each example counts, [n], not negative; None: 1 each.
        """
        warm = self._warm()
        with self._whole_or_not():
            X, y = self._labelled(X, y, reset=not warm)  # noqa: N806
            weights = _weights_of(X, sample_weight)
            classes = np.arange(y.shape[1]) if y.ndim == 2 else np.unique(y)
            if not warm:
                self._set_classes(classes, several=y.ndim == 2)
            elif (y.ndim == 2) != self._several:
                raise ValueError(
                    "with warm_start y must have as many labels a row as in the last fit; fit with "
                    "warm_start=False"
                )
            elif not np.array_equal(self.classes_, classes):
                raise ValueError(
                    "with warm_start y must have the classes of the last fit, "
                    f"{self.classes_}, got {classes}"
                )
            self._fit_all(X, y, weights, go_on=warm)
        return self

    def partial_fit(
        self,
        X: Any,  # noqa: N803
        y: Any,
        classes: Any = None,
        sample_weight: Any = None,
    ) -> Any:
        """Goes on for one epoch over X and y. The first call needs ``classes``, all labels there
        will be. ``class_weight="balanced"``, which needs all labels at once, is refused.
        """
        first = not hasattr(self, "parameters_")
        with self._whole_or_not():
            X, y = self._labelled(X, y, reset=first)  # noqa: N806
            weights = _weights_of(X, sample_weight)
            if isinstance(self.class_weight, str):
                raise ValueError(  # noqa: TRY004 (what scikit-learn raises)
                    f"class_weight must be a dict or None with partial_fit, got {self.class_weight!r}; "
                    "compute the weights over all labels with "
                    "sklearn.utils.class_weight.compute_class_weight"
                )
            if first:
                if classes is None:
                    raise ValueError("classes must be passed on the first call to partial_fit.")
                check_classification_targets(classes)
                self._set_classes(np.unique(classes), several=y.ndim == 2)
            elif classes is not None and not np.array_equal(self.classes_, np.unique(classes)):
                raise ValueError(
                    f"classes is not the same as on the last call to partial_fit: {self.classes_}"
                )
            labels = y.shape[1] if y.ndim == 2 else None
            if labels != (len(self.classes_) if self._several else None):
                raise ValueError(
                    f"y must have the labels {self.classes_}, of which classes tells, as columns of an "
                    f"indicator matrix or else as one label a row as in the first call, got {y.shape}"
                )
            self._fit_part(X, y, weights, go_on=not first)
        return self

    def _labelled(self, x: Any, y: Any, *, reset: bool) -> tuple[Any, Any]:
        """Rows and their labels, [n], or of several a row whether each is there, [n, labels]."""
        if self.SEVERAL and issparse(y):
            y = y.toarray()
        x, y = self._validated(x, y, reset=reset)
        if y.ndim == 2 and y.shape[1] == 1:
            y = column_or_1d(y, warn=True)
        check_classification_targets(y)
        if y.ndim == 2 and not np.isin(y, (0, 1)).all():
            raise ValueError(
                "y must be a label a row, or of several an indicator matrix of 0 and 1, [n, labels]; "
                f"got {type_of_target(y)} of shape {y.shape}"
            )
        return x, y

    def _set_classes(self, classes: NDArray[Any], *, several: bool) -> None:
        self.classes_, self._several = classes, several
        if len(self.classes_) < 2:
            raise ValueError(
                f"The number of classes has to be greater than one; got {len(self.classes_)} class"
            )

    def _with_classes(self, y: Any, weights: Any) -> Any:
        given = self.class_weight
        if given is None:
            return weights
        if self._several:
            raise ValueError(
                "class_weight must be None where rows have several labels; weigh them with sample_weight"
            )
        if isinstance(given, dict):
            unknown = [label for label in given if label not in self.classes_]
            if unknown:
                raise ValueError(
                    f"class_weight has the label {unknown[0]!r}, which is none of {self.classes_}"
                )
            for label, weight in given.items():
                checks.real(f"class_weight[{label!r}]", weight, 0.0, allow=True)
            of_class = np.array([float(given.get(label, 1.0)) for label in self.classes_])
        elif isinstance(given, str) and given == "balanced":
            of_class = compute_class_weight(given, classes=self.classes_, y=y)
        else:
            raise ValueError(f"class_weight must be a dict, 'balanced' or None, got {given!r}")
        of_examples = of_class[self._numbers(y)]
        return of_examples if weights is None else of_examples * weights

    def _numbers(self, y: Any) -> NDArray[np.intp]:
        """The labels' numbers in ``classes_``."""
        labels = np.minimum(np.searchsorted(self.classes_, y), len(self.classes_) - 1)
        unknown = self.classes_[labels] != y
        if unknown.any():
            label = y[unknown][:1].tolist()[0]
            raise ValueError(f"y has the label {label!r}, which is none of {self.classes_}")
        return labels

    def _data(self, x: Any, y: Any, weights: Any) -> Dataset | SparseDataset:
        if self._several:
            as_numbers = SparseDataset.regression if is_csr(x) else Dataset.regression
            return as_numbers(x, y, weights=weights)
        make = SparseDataset.from_csr if is_csr(x) else Dataset.from_arrays
        return make(x, self._numbers(y), len(self.classes_), weights=weights)

    def _told(self, x: Any) -> NDArray[Any]:
        """What ``predict`` tells of rows that have been checked."""
        outputs = self._outputs(x)
        if self._several:
            return (outputs > 0.5).astype(int)
        return np.asarray(self.classes_[self._found(outputs)])

    @staticmethod
    def _found(outputs: NDArray[Any]) -> NDArray[Any]:
        """The labels' numbers in ``classes_``."""
        return (outputs[:, 0] > 0).astype(int) if outputs.shape[1] == 1 else outputs.argmax(axis=1)

    def _score(self, held: _Held) -> float:
        return float(accuracy_score(held.y, self._told(held.x), sample_weight=held.weights))

    def predict(self, X: Any) -> NDArray[Any]:  # noqa: N803
        """Labels [n]; of several labels a row 0 or 1, [n, labels]."""
        check_is_fitted(self)
        return self._told(self._validated(X, reset=False))


class _Regressor(RegressorMixin, _Estimator):
    """What a regressor adds: numbers."""

    _targets: int

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Any:  # noqa: N803
        """Fits to X [n, features] and numbers y [n].

        Args:
            sample_weight: how much each example counts, [n], not negative; None: 1 each.
        """
        warm = self._warm()
        with self._whole_or_not():
            X, y = self._targeted(X, y, go_on=warm)  # noqa: N806
            self._fit_all(X, y, _weights_of(X, sample_weight), go_on=warm)
        return self

    def partial_fit(self, X: Any, y: Any, sample_weight: Any = None) -> Any:  # noqa: N803
        """Goes on for one epoch over X and y."""
        first = not hasattr(self, "parameters_")
        with self._whole_or_not():
            X, y = self._targeted(X, y, go_on=not first)  # noqa: N806
            self._fit_part(X, y, _weights_of(X, sample_weight), go_on=not first)
        return self

    def _targeted(self, x: Any, y: Any, *, go_on: bool) -> tuple[Any, Any]:
        """Rows and what they are to give, [n], or [n, targets] where there are several."""
        x, y = self._validated(x, y, reset=not go_on, numeric=True)
        if y.ndim == 2 and y.shape[1] == 1:
            y = column_or_1d(y, warn=True)
        targets = y.shape[1] if y.ndim == 2 else 1
        if go_on and targets != self._targets:
            raise ValueError(
                f"y has {targets} numbers a row and had {self._targets} in the last fit; go on with as "
                "many, or fit with warm_start=False"
            )
        self._targets = targets
        return x, y

    def _data(self, x: Any, y: Any, weights: Any) -> Dataset | SparseDataset:
        make = SparseDataset.regression if is_csr(x) else Dataset.regression
        return make(x, y, weights=weights)

    def _score(self, held: _Held) -> float:
        return float(r2_score(held.y, self._outputs(held.x), sample_weight=held.weights))

    def predict(self, X: Any) -> NDArray[np.float64]:  # noqa: N803
        """Numbers [n], or [n, targets]."""
        check_is_fitted(self)
        outputs = self._outputs(self._validated(X, reset=False))
        return outputs[:, 0] if outputs.shape[1] == 1 else outputs


def _flag(estimator: Any, name: str) -> bool:
    value = getattr(estimator, name)
    if not isinstance(value, (bool, np.bool_)):
        raise TypeError(f"{name} must be True or False, got {value!r}")
    return bool(value)


def _logarithms(probabilities: NDArray[np.float64]) -> NDArray[np.float64]:
    with np.errstate(divide="ignore"):
        return np.log(probabilities)


def _has_probabilities(estimator: Any) -> bool:
    return estimator.loss in ("log_loss", "modified_huber")


@dataclass(eq=False, repr=False, kw_only=True)
class SGDClassifier(_Classifier, _Linear):
    """Linear classifiers: support vector machines and logistic regression, with more than two
    classes each against the rest, all at once.

    Args:
        loss: ``"hinge"``, ``"log_loss"``, or ``"modified_huber"``, a squared hinge that labels
            which are wrong move no more than so far; the last two have ``predict_proba``.
        penalty: ``"l2"``, α/2 |w|²; ``"l1"``, α |w|₁; ``"elasticnet"``, α ((1 − ``l1_ratio``)/2 |w|²
            + ``l1_ratio`` |w|₁); or None. The l1 part truncates: after each update a weight goes
            towards 0, and no farther, by all the η α so far that it has not gone yet, as
            scikit-learn's own, so that weights are exactly 0. With it, updates on sparse features
            pass over all parameters.
        alpha: α.
        l1_ratio: the share of l1 in ``"elasticnet"``, from 0 to 1.
        fit_intercept: whether there is an intercept; without it ``intercept_`` is 0.
        lr: the step size for the mean gradient of a batch, or a schedule of ``leashed.schedules``.
            Default: 0.1, on a sparse matrix 1 over the mean of 1 + |x|² over the examples, but
            1/``alpha`` at most; where calls go on, that of the first whose rows are not all empty.
        learning_rate: scikit-learn's name of a schedule in place of ``lr``, t being 1 + the examples
            so far: ``"constant"``, ``eta0``; ``"invscaling"``, ``eta0`` / t^``power_t``;
            ``"optimal"``, 1 / (α (t₀ + t − 1)) with t₀ = α^(−3/4); ``"adaptive"``, ``eta0``, a fifth of
            it each time that the fit would end, until it is at most 1e-6. Default: none.
        eta0: for it, above 0; default 0.01. It is for the mean gradient of a batch: of scikit-learn's
            own with ``batch_size=1``.
        power_t: see ``learning_rate``.
        average: True: what is fitted is the mean of the parameters after each update; a number: of
            those from the update on with which so many examples have been seen. Fits go on from the
            parameters themselves. Not with an l1 part of the penalty. On sparse features updates then
            pass over all parameters.
        max_iter: the most epochs.
        tol: what counts as an improvement of the loss, with more than two classes for each of them
            that its loss is summed over, or of the score with ``early_stopping``; None: training
            ends after ``max_iter`` epochs.
        n_iter_no_change: epochs in a row without one that end the training.
        early_stopping: to hold a part of the examples out and stop by the accuracy on it; each
            class has its share in it.
        validation_fraction: that part, between 0 and 1.
        batch_size: examples per gradient, at most all there are; fewer where they do not divide by
            it, for an epoch has each once.
        threads: worker threads. Default: 1.
        n_jobs: scikit-learn's name of ``threads``; -1: all cores. One of them alone is given.
        discipline: of ``leashed``, or a word. Default: ``Leashed()``, on sparse features
            ``Hogwild()``, with one thread ``Sequential()``.
        rule: of ``leashed.rules``, or a word, in place of ``SGD(lr)``.
        random_state: of the order of the examples.
        warm_start: ``fit`` goes on from the parameters of the last ``fit`` or ``partial_fit``, on
            data with the same features and classes, in place of beginning anew.
        verbose: above 0: a line for each epoch with its loss, and its score with
            ``early_stopping``; on sparse features those of several epochs together.
        class_weight: of each class, by label (1 for those that are missing), or ``"balanced"``: n
            over the number of classes and that of the class's examples; None: 1 each.

    Attributes:
        classes_: the labels, sorted.
        coef_: float64 [1, features] with two classes, else [classes, features].
        intercept_: float64 [1] or [classes]; 0 without ``fit_intercept``.
        n_iter_: epochs of the last fit.
        t_: updates so far.
        loss_: mean loss over the training set after it, without the penalty.
        loss_curve_: mean losses of the epochs as their gradients found them, those of the calls that
            this one goes on from included; with dense features with the penalty l2.
        best_loss_: the least of them; None with ``early_stopping``.
        validation_scores_: the accuracies (R²) after each epoch; None without ``early_stopping``.
        best_validation_score_: the best of them, or None.
        parameters_: float32, as ``leashed.models`` have them.

    Raises:
        TypeError, ValueError: from ``fit``, where a parameter or the data is wrong.
    """

    loss: str = field(default="hinge", kw_only=False)
    lr: float | Schedule | None = None
    class_weight: Any = None

    LOSSES = ("hinge", "log_loss", "modified_huber")

    def _rule(self, data: Dataset | SparseDataset) -> Rule:
        if self.rule is not None or self.lr is not None:
            return super()._rule(data)
        if self._progress.lr is not None:
            return SGD(self._progress.lr)
        if not isinstance(data, SparseDataset):
            lr, tells = 0.1, True
        else:
            square = _mean_square(data)
            lr, tells = 1.0 / max(1.0 + square, self._alpha()), square > 0
        if tells:  # rows without a number do not
            self._progress = replace(self._progress, lr=lr)
        return SGD(lr)

    def _model(self, features: int, rows: int) -> Model:  # noqa: ARG002
        return self._linear_model(features, self._problems())

    def _problems(self) -> int:
        classes = len(self.classes_)
        return 1 if classes == 2 else classes

    def decision_function(self, X: Any) -> NDArray[np.float64]:  # noqa: N803
        """Signed distances to the hyperplanes, times the norms of their weights: [n] with two
        classes, else [n, classes].
        """
        check_is_fitted(self)
        scores = self._outputs(self._validated(X, reset=False))
        return scores[:, 0] if scores.shape[1] == 1 else scores

    @available_if(_has_probabilities)  # type: ignore[untyped-decorator]
    def predict_proba(self, X: Any) -> NDArray[np.float64]:  # noqa: N803
        """Probabilities [n, classes]; with more than two classes those of each against the rest,
        scaled to add up to 1. With ``"modified_huber"`` (o + 1) / 2 of the distances o, cut off at
        0 and 1 (Zadrozny and Elkan, 2002).
        """
        check_is_fitted(self)
        scores = self._outputs(self._validated(X, reset=False))
        if self.loss == "modified_huber":
            share = 0.5 * (1.0 + np.clip(scores, -1.0, 1.0))
        else:
            share = 0.5 * (1.0 + np.tanh(0.5 * scores))
        if share.shape[1] == 1:
            return np.hstack([1.0 - share, share])
        total = share.sum(axis=1, keepdims=True)
        even = np.full_like(share, 1.0 / share.shape[1])
        return np.divide(share, total, out=even, where=total > 0)

    @available_if(_has_probabilities)  # type: ignore[untyped-decorator]
    def predict_log_proba(self, X: Any) -> NDArray[np.float64]:  # noqa: N803
        """Logarithms of ``predict_proba``, [n, classes]."""
        return _logarithms(self.predict_proba(X))


@dataclass(eq=False, repr=False, kw_only=True)
class SGDRegressor(_Regressor, _Linear):
    """Linear regression. Parameters and attributes as those of ``SGDClassifier``, but for what is
    said here, ``class_weight`` and ``classes_``; ``coef_`` is [features].

    Args:
        loss: ``"squared_error"``, ½ (o − y)², or ``"huber"``, the same where |o − y| is at most
            ``epsilon``, and ε |o − y| − ½ ε² beyond.
        epsilon: ε, above 0. A model with ``"huber"`` is of y / ε, in ``parameters_`` too; where fits
            go on it must be the same.
        lr: a number, by default 0.2, is divided by the mean of 1 + |x|² over the examples, without
            which a step overshoots where features are not scaled; a schedule is taken as it is, and
            so is ``eta0``.
        power_t: by default 0.25.
    """

    loss: str = field(default="squared_error", kw_only=False)
    lr: float | Schedule | None = None
    epsilon: float = 0.1
    power_t: float = 0.25

    LOSSES = ("squared_error", "huber")
    _unit_ = 1.0

    def _rule(self, data: Dataset | SparseDataset) -> Rule:
        if self.rule is not None or isinstance(self.lr, Schedule):
            return super()._rule(data)
        lr = _REGRESSORS_LR if self.lr is None else checks.rate("lr", self.lr)
        return SGD(lr / (1.0 + _mean_square(data)))

    def _model(self, features: int, rows: int) -> Model:  # noqa: ARG002
        return self._linear_model(features, 1)

    def _unit(self) -> float:
        return checks.real("epsilon", self.epsilon, 0.0) if self.loss == "huber" else 1.0

    def _reached(self, model: Model) -> NDArray[np.float32]:
        if self._unit() != self._unit_:
            raise ValueError(
                f"loss={self.loss!r} with epsilon={self.epsilon!r} is of other units than the last "
                "fit; go on with the same ones, or fit with warm_start=False"
            )
        return super()._reached(model)

    def _data(self, x: Any, y: Any, weights: Any) -> Dataset | SparseDataset:
        return super()._data(x, y if self._unit() == 1.0 else y / self._unit(), weights)

    def _store(self, model: Model, theta: NDArray[np.float32]) -> None:
        super()._store(model, theta)
        self.coef_ = self.coef_[0]
        self._unit_ = self._unit()


def _mean_square(data: Dataset | SparseDataset) -> float:
    """Of the examples' norms |x|, with their weights."""
    values = data.data if isinstance(data, SparseDataset) else data.x
    weighed = values
    if data.weights is not None and isinstance(data, SparseDataset):
        weighed = values * np.repeat(data.weights, np.diff(data.indptr))
    elif data.weights is not None:
        weighed = values * data.weights[:, None]
    square = float(np.vdot(weighed, values)) / len(data)
    if not math.isfinite(square):
        raise ValueError(
            "the features' squares are beyond float32; scale them, for example with "
            "sklearn.preprocessing.StandardScaler"
        )
    return square


@dataclass(eq=False, repr=False, kw_only=True)
class _Perceptron(_Estimator):
    """Dense layers, with an activation between them or nothing."""

    hidden_layer_sizes: tuple[int, ...] = field(default=(100,), kw_only=False)
    activation: str = "relu"
    lr: float | Schedule | None = None
    learning_rate_init: float | None = None
    solver: str | None = None
    learning_rate: str | None = None
    power_t: float = 0.5
    momentum: float = 0.9
    nesterovs_momentum: bool = True
    max_iter: int = 200
    tol: float | None = 1e-4
    n_iter_no_change: int = 10
    batch_size: int = 64

    MORE_PATIENCE = 1
    KEEPS_BEST = True

    def _rule(self, data: Dataset | SparseDataset) -> Rule:  # noqa: ARG002
        for name in ("solver", "learning_rate", "learning_rate_init"):
            if self.rule is not None and getattr(self, name) is not None:
                raise ValueError(f"rule has a learning rate of its own; leave {name} out, or rule")
        if self.rule is not None:
            return check_rule(self.rule)
        name, lr = self._given_rate()
        lr = lr if isinstance(lr, Schedule) else checks.rate(name, lr)
        if self.solver in (None, "adam"):
            if self.learning_rate is not None:
                raise ValueError(
                    f"learning_rate={self.learning_rate!r} needs solver='sgd', for Adam has steps of "
                    f"its own; or give a schedule of leashed.schedules as lr"
                )
            return Adam(lr)
        if self.solver != "sgd":
            raise ValueError(f"solver must be 'adam' or 'sgd', got {self.solver!r}")
        return self._descent(lr)

    def _descent(self, lr: float | Schedule) -> Rule:
        """scikit-learn's solver "sgd"."""
        if self.momentum == 0:
            return SGD(lr)
        kind = Nesterov if _flag(self, "nesterovs_momentum") else Momentum
        return kind(lr, self.momentum)

    def _rules(self, data: Dataset | SparseDataset, examples: float) -> Iterator[Rule]:  # noqa: ARG002
        first = self._rule(data)
        if self.learning_rate is None:
            return iter([first])
        name, lr = self._given_rate()
        if isinstance(lr, Schedule):
            raise ValueError(  # noqa: TRY004 (of two that do not go together)
                f"learning_rate={self.learning_rate!r} and {name}={lr!r} both say how far steps go; "
                "leave one out"
            )
        begun = round(self._progress.examples)
        steps = of_epochs(self.learning_rate, float(lr), self.power_t, len(data), begun)
        return map(self._descent, steps)

    def _by_epochs(self) -> bool:
        return self.learning_rate == "invscaling"

    def _scale(self, rule: Rule) -> float:
        # scikit-learn's velocity has the step size in it of when it came. Steps under the least move
        # nothing that float32 would show.
        return max(rule.config()["lr"], _LEAST_STEP) if self.solver == "sgd" else 1.0

    def _given_rate(self) -> tuple[str, Any]:
        if self.learning_rate_init is None:
            return "lr", _PERCEPTRONS_LR if self.lr is None else self.lr
        if self.lr is not None:
            raise ValueError(
                f"lr={self.lr!r} and learning_rate_init={self.learning_rate_init!r} say the same; "
                "leave one out"
            )
        return "learning_rate_init", self.learning_rate_init

    def _step_size(self, rule: Rule) -> tuple[str, Any]:
        return super()._step_size(rule) if self.rule is not None else self._given_rate()

    def _initial(self, model: Model, seed: int) -> NDArray[np.float32]:
        theta = model.init(seed, "glorot")
        # As scikit-learn's: ±√(2/(fan-in + fan-out)), where Glorot's has a 6.
        return theta / np.float32(math.sqrt(3)) if self.activation == "logistic" else theta

    def _reached(self, model: Model) -> NDArray[np.float32]:
        if model.layers != self._network_.layers:
            raise ValueError(
                f"hidden_layer_sizes={self.hidden_layer_sizes!r} with activation={self.activation!r} "
                "are not those of the last fit; go on with the same layers, or fit with "
                "warm_start=False"
            )
        return super()._reached(model)

    def _network(self, features: int, rows: int, outputs: int, loss: str) -> Model:
        if self.activation not in tuple(_ACTIVATIONS):
            raise ValueError(
                "activation must be 'identity', 'logistic', 'tanh' or 'relu', got "
                f"{self.activation!r}"
            )
        between = _ACTIVATIONS[self.activation]
        layers: list[models.Layer] = []
        for width in np.atleast_1d(np.asarray(self.hidden_layer_sizes, dtype=object)):
            layers += [models.Dense(checks.whole("hidden_layer_sizes", width)), *between]
        return Model(
            (features, 1, 1), (*layers, models.Dense(outputs)), "mlp", loss, l2=self._alpha() / rows
        )

    def _store(self, model: Model, theta: NDArray[np.float32]) -> None:
        self.parameters_ = theta
        self._network_ = model
        parts = list(model.unflatten(theta).values())
        self.coefs_, self.intercepts_ = parts[::2], parts[1::2]
        self.n_layers_ = len(self.coefs_) + 1

    def _outputs(self, x: Any) -> NDArray[np.float64]:
        if is_csr(x):
            rows = SparseDataset.regression(x, np.zeros(x.shape[0])).rows
            return self._network_.sparse.predict(self.parameters_, rows).astype(np.float64)
        return self._network_.predict(self.parameters_, x).astype(np.float64)


@dataclass(eq=False, repr=False, kw_only=True)
class MLPClassifier(_Perceptron, _Classifier):
    """A multilayer perceptron with softmax. Of several labels a row, y [n, labels] of 0 and 1, each
    has a probability of its own, what is minimised is the sum of their log losses, and ``score`` is the
    share of rows all of whose labels are right.

    Args:
        hidden_layer_sizes: widths of the hidden layers.
        activation: between them: ``"relu"``, ``"tanh"``, ``"logistic"`` (σ) or ``"identity"``, none.
            Weights begin uniform in ±√(6/(fan-in + fan-out)), with ``"logistic"`` in
            ±√(2/(fan-in + fan-out)), biases with 0.
        alpha: α of the penalty α/(2n) |w|² over n examples, as scikit-learn has it.
        lr: the step size of ``Adam``, or a schedule; default 0.001.
        learning_rate_init: scikit-learn's name of ``lr``. One of them alone is given.
        solver: scikit-learn's name of a rule: ``"adam"``, the default, or ``"sgd"``, with momentum.
        learning_rate: with ``"sgd"``, how far an epoch's steps go: ``"constant"``, ``lr``;
            ``"invscaling"``, ``lr`` / (1 + t)^``power_t``, t being the examples before the epoch;
            ``"adaptive"``, ``lr``, a fifth of it each time that the fit would end, until it is at
            most 1e-6. Default: ``"constant"``.
        power_t: the exponent of ``"invscaling"``, at least 0.
        momentum: of ``"sgd"``, from 0 to below 1.
        nesterovs_momentum: of ``"sgd"``, whether it is Nesterov's.
        max_iter: the most epochs.
        tol: see ``SGDClassifier``.
        n_iter_no_change: likewise; it takes more than so many epochs.
        early_stopping: likewise.
        validation_fraction: likewise.
        batch_size: examples per gradient, at most all there are; fewer where they do not divide by
            it, for an epoch has each once.
        threads: worker threads. Default: 1.
        n_jobs: scikit-learn's name of ``threads``; -1: all cores. One of them alone is given.
        discipline: of ``leashed``, or a word. Default: ``Leashed()``, with one thread ``Sequential()``.
        rule: of ``leashed.rules``, or a word, in place of ``Adam(lr)``.
        random_state: of the initial parameters and of the order of the examples.
        warm_start: see ``SGDClassifier``; the layers must be the same as well.
        verbose: see ``SGDClassifier``.
        class_weight: likewise.

    Attributes:
        classes_: the labels, sorted.
        coefs_: the layers' weights, float32 [inputs, outputs]; with ``early_stopping`` those that
            scored best.
        intercepts_: their biases.
        n_iter_, t_, loss_, loss_curve_, best_loss_, validation_scores_, best_validation_score_,
            parameters_: as for ``SGDClassifier``.

    Raises:
        TypeError, ValueError: from ``fit``, where a parameter or the data is wrong.
    """

    class_weight: Any = None

    SEVERAL = True

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_label = True
        return tags

    def _model(self, features: int, rows: int) -> Model:
        loss = "binary_cross_entropy" if self._several else "softmax"
        return self._network(features, rows, len(self.classes_), loss)

    def predict_proba(self, X: Any) -> NDArray[np.float64]:  # noqa: N803
        """Probabilities [n, classes]; of several labels a row each one's."""
        check_is_fitted(self)
        return self._outputs(self._validated(X, reset=False))

    def predict_log_proba(self, X: Any) -> NDArray[np.float64]:  # noqa: N803
        """Logarithms of ``predict_proba``, [n, classes]."""
        return _logarithms(self.predict_proba(X))


# (Fields come from the last base first: those of a perceptron are the newest.)
@dataclass(eq=False, repr=False, kw_only=True)
class MLPRegressor(_Perceptron, _Regressor):
    """A multilayer perceptron with the squared error ½ (o − y)², of several targets, y [n, targets],
    the sum of theirs. Parameters and attributes as those
    of ``MLPClassifier``, but for ``class_weight`` and ``classes_``.
    """

    SEVERAL = True

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags

    def _model(self, features: int, rows: int) -> Model:
        return self._network(features, rows, self._targets, "squared_error")

    def _problems(self) -> int:
        return self._targets
