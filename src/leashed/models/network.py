"""Networks and linear models, as lists of layers whose parameters lie flattened in one vector."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike, NDArray

from leashed import _core
from leashed.base import checks
from leashed.base.target import TargetWord, check_target
from leashed.datasets import Dataset, SparseDataset
from leashed.models import _parameters, graphs, layers, recommenders
from leashed.models._columns import arranged, check_columns
from leashed.models._fits import check_fits, check_image, examples
from leashed.models._parameters import INITIALISATIONS
from leashed.models.external import BatchRows, External, external
from leashed.models.factorisation import FactorisationMachine
from leashed.models.graphs import *
from leashed.models.layers import *
from leashed.models.recommenders import *

__all__ = [
    "INITIALISATIONS",
    "LOSSES",
    "BatchRows",
    "External",
    "FactorisationMachine",
    "Model",
    "cnn",
    "external",
    "ffm",
    "fm",
    "lenet",
    "linear_regression",
    "linear_svm",
    "logistic_regression",
    "mlp",
    "softmax_regression",
]
__all__ += layers.__all__ + graphs.__all__ + recommenders.__all__

# Of networks; the losses of what is sampled are those of graphs.
LOSSES = tuple(
    name for name in _core.losses() if name not in ("sampled_softmax", "bpr", "in_batch")
)


@dataclass(frozen=True)
class Model:
    """A feed-forward network: ``layers``, and a loss on the outputs o of the last one.

    Losses, for an example of class c, with z_k = 1 where k = c and 0 elsewhere (with one output
    there are two classes, and z = c):

    - ``"softmax"``: −log softmax(o)_c, cross-entropy.
    - ``"log_loss"``: Σ_k log(1 + e^o_k) − z_k o_k: logistic regression, with several outputs each
      class against the rest.
    - ``"binary_cross_entropy"``: Σ_k log(1 + e^o_k) − v_k o_k, for an example of labels v_k of its
      own for each output, 0 or 1, that do not exclude each other (a click and a purchase). Their sum, so
      that each is learned as fast as alone. Of NaN, a label that is not known, nothing is added.
    - ``"hinge"``: Σ_k max(0, 1 − (2 z_k − 1) o_k), of support vector machines.
    - ``"modified_huber"``: of m = (2 z_k − 1) o_k, Σ_k max(0, 1 − m)² where m ≥ −1, and −4 m below.
    - ``"squared_error"``: Σ_k ½ (o_k − v_k)², for an example of a value v_k for each output.
    - ``"huber"``: ½ (o − v)² where |o − v| ≤ 1, and |o − v| − ½ beyond, likewise.

    A model of dense layers, with activations between them, takes a ``SparseDataset`` too. Where it is
    one, a linear model, updates of sparse rows touch the columns of a batch alone; else the first
    layer goes by the values that there are, and updates are of all parameters.

    Args:
        input_shape: (channels, height, width) of an example; (features, 1, 1) for a flat one.
        layers: the layers, the last giving one output per class, or label.
        name: what plots and reports call it.
        loss: one of the above.
        l2: λ of the penalty λ/2 |w|² over all weights that are no biases. It is part of what is
            minimised, not of the losses that are reported.

    Raises:
        TypeError: a layer is none of ``LAYERS``, or a size is not a whole number.
        ValueError: the layers do not fit each other; the message names the layer by its index.
    """

    input_shape: tuple[int, int, int]
    layers: tuple[Layer, ...]
    name: str = "network"
    loss: str = "softmax"
    l2: float = 0.0

    def __post_init__(self) -> None:
        if self.loss not in LOSSES:
            raise ValueError(f"loss must be one of {', '.join(LOSSES)}, got {self.loss!r}")
        object.__setattr__(self, "l2", checks.real("l2", self.l2, 0.0, allow=True))
        if not isinstance(self.name, str):
            raise TypeError(f"name must be a str, got {self.name!r}")
        shape = tuple(checks.size("input_shape", n) for n in self.input_shape)
        if len(shape) != 3:
            raise ValueError(
                f"input_shape must be (channels, height, width), got {self.input_shape}"
            )
        object.__setattr__(self, "input_shape", shape)
        object.__setattr__(self, "layers", tuple(self.layers))
        _ = self.native

    def __getstate__(self) -> dict[str, object]:
        return {item.name: getattr(self, item.name) for item in fields(self)}  # no native parts

    @cached_property
    def native(self) -> _core.Network:
        """The native network."""
        return _core.Network(
            self.input_shape,
            [layers.native_layer(layer) for layer in self.layers],
            loss=self.loss,
            l2=self.l2,
        )

    @cached_property
    def sparse(self) -> _core.SparseModel:
        """The native model of sparse rows.

        Raises:
            ValueError: the model has other layers than dense ones and activations, or an activation
                first or last.
        """
        first, last = self.layers[0], self.layers[-1]
        if isinstance(first, Dense) and len(self.layers) == 1:
            return _core.SparseLinear(
                self.features, self.outputs, self.loss, self.l2, trains_bias=first.bias
            )
        fits = all(isinstance(layer, (Dense, *layers.ACTIVATIONS)) for layer in self.layers)
        if not fits or not isinstance(first, Dense) or not isinstance(last, Dense):
            raise ValueError(
                f"model {self.name} cannot take sparse rows, which only models of dense layers do, "
                "such as models.logistic_regression(features) and models.mlp; make the data dense "
                "with x.toarray()"
            )
        return _core.SparseNetwork(self.native, self.loss, self.l2)

    @property
    def dimension(self) -> int:
        """d, the number of parameters."""
        return self.native.dimension

    @property
    def features(self) -> int:
        """Values per example."""
        return self.native.features

    @property
    def classes(self) -> int:
        """Number of classes; 0 with a loss of values, such as ``"squared_error"``, or several heads."""
        return self.native.classes

    @property
    def heads(self) -> int:
        """Labels of an example, where each output is of one of its own; else 0."""
        return _parameters.heads(self.native)

    @property
    def outputs(self) -> int:
        """Outputs of the last layer."""
        return self.native.outputs

    @property
    def flops_per_example(self) -> float:
        """Floating-point operations of one example's forward and backward pass."""
        return self.native.flops_per_example

    def init(self, seed: int = 0, scheme: str = "he") -> NDArray[np.float32]:
        """Initial parameters, float32 [d], a function of ``seed`` alone.

        Args:
            seed: whole number from 0.
            scheme: ``"normal"``: N(0, 0.01) over the whole vector, 0.01 being the standard
                deviation, biases included where they are trained (leashed-sgd, Algorithm 1);
                ``"he"``: weights N(0, √(2/fan-in)), biases 0; ``"glorot"``: weights uniform in
                ±√(6/(fan-in + fan-out)), biases 0.

        Raises:
            TypeError: ``seed`` is not a whole number.
            ValueError: ``scheme`` is unknown or ``seed`` is negative.
        """
        untrained = [
            f"{index}.bias"
            for index, layer in enumerate(self.layers)
            if isinstance(layer, Dense) and not layer.bias
        ]
        return _parameters.initial(self.native, seed, scheme, untrained)

    def unflatten(self, parameters: NDArray[np.float32]) -> dict[str, NDArray[np.float32]]:
        """Views of the layers' parts of ``parameters`` [d], by name: ``"0.weight"``, ``"0.bias"``,
        …, the number being the layer's index.
        """
        return _parameters.unflatten(self.native, parameters)

    def predict(
        self, parameters: ArrayLike, x: ArrayLike | Dataset | SparseDataset
    ) -> NDArray[np.float32]:
        """What the model says of examples ``x``, float32 [n, outputs]: the classes' probabilities
        with the losses ``"softmax"`` and ``"log_loss"`` (one output: that of class 1; several: each
        against the rest), each label's with ``"binary_cross_entropy"``, the outputs themselves with the others.

        Args:
            parameters: float32 [d].
            x: [n, features], images (of dtype uint8 they are divided by 255), a ``Dataset`` or a
                ``SparseDataset``.

        Raises:
            TypeError: a dtype is not numeric.
            ValueError: ``x`` or ``parameters`` has the wrong shape or is not finite, or ``x`` has
                other columns than the parameters were trained on.
        """
        if isinstance(x, SparseDataset):
            check_fits(self, x, "x")
            check_columns(parameters, self, x, "x")
            theta = checks.vector("parameters", parameters, self.dimension)
            return self.sparse.predict(theta, x.rows)
        x = arranged(parameters, self, x, "x")
        rows = examples(x.x if isinstance(x, Dataset) else x, self)
        if isinstance(x, Dataset):
            check_image(self, x.image_shape, "x")
        check_columns(parameters, self, x, "x", rows)
        return self.native.predict(checks.vector("parameters", parameters, self.dimension), rows)

    def evaluate(self, parameters: ArrayLike, data: Dataset | SparseDataset) -> tuple[float, float]:
        """Mean loss and accuracy over a data set; 0 for the accuracy where there are no classes.
        Losses count with the examples' weights, accuracy without.

        Raises:
            TypeError: ``data`` is no Dataset, or ``parameters`` holds no real numbers.
            ValueError: ``parameters`` or ``data`` does not fit the model, or ``data`` has other
                columns than the parameters were trained on.
        """
        data = arranged(parameters, self, data, "data")
        check_fits(self, data, "data")
        check_columns(parameters, self, data, "data")
        theta = checks.vector("parameters", parameters, self.dimension)
        if isinstance(data, SparseDataset):
            return self.sparse.evaluate(theta, data.rows, data.y, data.weights)
        return self.native.evaluate(theta, data.x, data.y, data.weights)


def mlp(inputs: int, hidden: Sequence[int], classes: int, name: str = "mlp") -> Model:
    """Dense layers with ReLU between them. ``mlp(784, [128, 128, 128], 10)`` is leashed-sgd's
    Table II, d = 134,794.
    """
    if not isinstance(hidden, Iterable):
        raise TypeError(
            f"hidden must be the widths of the hidden layers, such as [128, 128], got {hidden!r}"
        )
    layers: list[Layer] = []
    for width in hidden:
        layers += [Dense(checks.size("a width of hidden", width)), ReLU()]
    last = Dense(checks.size("classes", classes))
    return Model((checks.size("inputs", inputs), 1, 1), (*layers, last), name)


def linear_regression(features: int, *, l2: float = 0.0) -> Model:
    """O = x·w + b with the loss ½ (o − v)². Takes dense and sparse data.

    Args:
        features: values per example.
        l2: λ of the penalty λ/2 |w|², which leaves the intercept out.
    """
    return _linear(features, 1, "linear_regression", "squared_error", l2)


def logistic_regression(features: int, classes: int = 2, *, l2: float = 0.0) -> Model:
    """Logistic regression; with more than two classes, of each against the rest. Takes dense and
    sparse data.

    Args:
        features: values per example.
        classes: at least 2.
        l2: λ of the penalty λ/2 |w|², which leaves the intercepts out.
    """
    return _linear(features, _outputs(classes), "logistic_regression", "log_loss", l2)


def linear_svm(features: int, classes: int = 2, *, l2: float = 0.0) -> Model:
    """A linear support vector machine: the hinge loss; with more than two classes, of each against
    the rest. Takes dense and sparse data; arguments as for ``logistic_regression``.
    """
    return _linear(features, _outputs(classes), "linear_svm", "hinge", l2)


def softmax_regression(features: int, classes: int, *, l2: float = 0.0) -> Model:
    """Multinomial logistic regression. Takes dense and sparse data; arguments as for
    ``logistic_regression``.
    """
    return _linear(
        features, checks.whole("classes", classes, 2), "softmax_regression", "softmax", l2
    )


def _outputs(classes: int) -> int:
    return 1 if checks.whole("classes", classes, 2) == 2 else classes


def _linear(features: int, outputs: int, name: str, loss: str, l2: float) -> Model:
    return Model((checks.size("features", features), 1, 1), (Dense(outputs),), name, loss, l2)


def fm(
    features: int,
    k: int = 8,
    *,
    target: TargetWord | None = None,
    loss: str | None = None,
    l2: float = 0.0,
    sigma: float = 0.1,
    name: str = "fm",
) -> FactorisationMachine:
    """A factorisation machine (Rendle, "Factorization machines", 2010, eq. 1), on sparse data:
    o = b + Σ_j w_j x_j + Σ_{i<j} ⟨v_i, v_j⟩ x_i x_j. A column that occurs twice in a row counts with
    the sum of its values, and does not meet itself.

    Args:
        features: columns of the data.
        k: factors v of each column. 4, 8 and 16 are fastest for their size.
        target: ``"click"``, 0 or 1, with the loss ``"log_loss"`` (default), or ``"number"``, with
            ``"squared_error"``.
        loss: in its place, of ``Model``'s one with one output: ``"log_loss"``, ``"hinge"`` or
            ``"squared_error"``.
        l2: λ of the penalty λ/2 (|w|² + |v|²), which leaves the intercept out.
        sigma: standard deviation of the factors at first, above 0.
        name: what plots and reports call it.

    Raises:
        TypeError, ValueError: an argument is no such number or loss, or there is no memory for so
            many parameters; the message names it.
    """
    return FactorisationMachine(features, k, name, _one_output(name, target, loss), l2, sigma)


def ffm(
    fields: ArrayLike,
    k: int = 4,
    *,
    target: TargetWord | None = None,
    loss: str | None = None,
    l2: float = 0.0,
    sigma: float = 0.1,
    name: str = "ffm",
) -> FactorisationMachine:
    """A field-aware factorisation machine (Juan et al., "Field-aware Factorization Machines for CTR
    Prediction", 2016, eq. 4, with a linear part and an intercept as ``fm`` has them), on sparse
    data: o = b + Σ_j w_j x_j + Σ_{i<j} ⟨v_i,f(j), v_j,f(i)⟩ x_i x_j, f being a column's field. Columns
    of one field meet too. One that occurs twice in a row is as with ``fm``.

    It has features · (1 + F · k) + 1 parameters, F being the number of fields. What a row takes grows
    with its values times its distinct fields.

    Args:
        fields: of each column its field, whole numbers from 0 to 65,535, [features]; F is the
            largest + 1. ``datasets.read_libffm`` gives them.
        k: factors of each column for each field. 4, 8 and 16 are fastest for their size.
        target, loss: as of ``fm``.
        l2: λ of the penalty λ/2 (|w|² + |v|²), which leaves the intercept out.
        sigma: standard deviation of the factors at first, above 0.
        name: what plots and reports call it.

    Raises:
        TypeError, ValueError: an argument is no such number, array or loss, or there is no memory
            for so many parameters; the message names it.
    """
    given = checks.numeric("fields", fields)
    if given.ndim != 1 or given.size == 0:
        raise ValueError(f"fields must be one for each column, [features], got {given.shape}")
    loss = _one_output(name, target, loss)
    return FactorisationMachine(len(given), k, name, loss, l2, sigma, tuple(given.tolist()))


def _one_output(name: str, target: TargetWord | None, loss: str | None) -> str:
    """The loss of a machine. ValueError where its one output cannot tell what is to be predicted."""
    if target is None:
        return "log_loss" if loss is None else loss
    if loss is not None:
        raise ValueError(f"loss is what target={target!r} says; give one of them")
    if check_target(target) not in ("click", "number"):
        raise ValueError(
            f'target of {name} must be "click" or "number", since it has one output, got {target!r}; '
            "models.softmax_regression takes several classes of sparse rows, models.deepfm(target=...) "
            "of ids"
        )
    return "squared_error" if target == "number" else "log_loss"


def cnn(
    input_shape: tuple[int, int, int] = (1, 28, 28), classes: int = 10, name: str = "cnn"
) -> Model:
    """leashed-sgd's Table III, d = 27,354 for 28×28 images: two 3×3 convolutions (4 and 8 filters)
    with ReLU and 2×2 pooling, a dense layer of 128, the output layer.
    """
    return Model(
        input_shape,
        (
            Conv2d(4, 3),
            ReLU(),
            MaxPool(2),
            Conv2d(8, 3),
            ReLU(),
            MaxPool(2),
            Dense(128),
            ReLU(),
            Dense(classes),
        ),
        name,
    )


def lenet(
    input_shape: tuple[int, int, int] = (1, 28, 28), classes: int = 10, name: str = "lenet"
) -> Model:
    """LeNet-5 with ReLU and max-pooling: 5×5 convolutions of 6 (padding 2) and 16 filters, dense
    layers of 120 and 84; d = 61,706 for 28×28 images.
    """
    return Model(
        input_shape,
        (
            Conv2d(6, 5, padding=2),
            ReLU(),
            MaxPool(2),
            Conv2d(16, 5),
            ReLU(),
            MaxPool(2),
            Dense(120),
            ReLU(),
            Dense(84),
            ReLU(),
            Dense(classes),
        ),
        name,
    )
