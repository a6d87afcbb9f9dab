"""Layers of models: frozen values, checked when they are made."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import ClassVar

from leashed.base import checks
from leashed.base.choice import Choice
from leashed.base.value import Value

__all__ = [
    "LAYERS",
    "BatchNorm",
    "Conv2d",
    "DataNorm",
    "Dense",
    "Dropout",
    "Layer",
    "MaxPool",
    "ReLU",
    "Sigmoid",
    "Tanh",
]


@dataclass(frozen=True, eq=False, repr=False)
class Layer(Value):
    """Base of the layers below; not one itself."""

    NATIVE: ClassVar[str]

    def choice(self) -> Choice:
        """The native layer's name and sizes."""
        return self.NATIVE, {item.name: getattr(self, item.name) for item in fields(self)}


@dataclass(frozen=True, eq=False, repr=False)
class Dense(Layer):
    """x W + b. Parameters: W [inputs, outputs], then b [outputs]. Without ``bias`` b is among the
    parameters too, and stays 0.
    """

    NATIVE: ClassVar[str] = "dense"

    outputs: int
    bias: bool = True

    def __post_init__(self) -> None:
        checks.size("outputs", self.outputs)
        if not isinstance(self.bias, bool):
            raise TypeError(f"bias must be True or False, got {self.bias!r}")


@dataclass(frozen=True, eq=False, repr=False)
class Conv2d(Layer):
    """Cross-correlation with square kernels. Parameters: W [filters, channels, kernel, kernel],
    then b [filters].
    """

    NATIVE: ClassVar[str] = "conv2d"

    filters: int
    kernel: int
    stride: int = 1
    padding: int = 0

    def __post_init__(self) -> None:
        checks.size("filters", self.filters)
        checks.size("kernel", self.kernel)
        checks.size("stride", self.stride)
        checks.size("padding", self.padding, 0)

    def choice(self) -> Choice:
        name, sizes = super().choice()
        sizes["kernel_h"] = sizes["kernel_w"] = sizes.pop("kernel")
        return name, sizes


@dataclass(frozen=True, eq=False, repr=False)
class MaxPool(Layer):
    """Maximum over square windows; rows and columns that fill no window are dropped.

    ``stride`` defaults to ``size``.
    """

    NATIVE: ClassVar[str] = "max_pool"

    size: int
    stride: int | None = None

    def __post_init__(self) -> None:
        checks.size("size", self.size)
        if self.stride is not None:
            checks.size("stride", self.stride)

    def choice(self) -> Choice:
        return self.NATIVE, {"size": self.size, "stride": self.stride or self.size}


@dataclass(frozen=True, eq=False, repr=False)
class ReLU(Layer):
    """max(0, x)."""

    NATIVE: ClassVar[str] = "relu"


@dataclass(frozen=True, eq=False, repr=False)
class Tanh(Layer):
    """tanh x, with a relative error under 5e-7."""

    NATIVE: ClassVar[str] = "tanh"


@dataclass(frozen=True, eq=False, repr=False)
class Sigmoid(Layer):
    """1 / (1 + e^−x), the logistic function, with a relative error under 5e-7; 0 below −87.3."""

    NATIVE: ClassVar[str] = "sigmoid"


@dataclass(frozen=True, eq=False, repr=False)
class BatchNorm(Layer):
    """Batch normalisation, each worker's batches by themselves (Ioffe and Szegedy, 2015;
    extreme-scale-asgd, Algorithm 1): scale · (x − mean) / √(variance + eps) + shift, of graphs.

    In training means and variances are those of the mini-batch, and gradients flow through them.
    Evaluation and prediction normalise by running ones, which are no parameters: each worker
    averages those of its own batches (momentum 0.99, begun with the first batch; variances as
    PyTorch keeps them, divided by one less than the batch), and what is used is the mean of the
    workers' weighted by batches. Parameters: scale [width], 1 at first, then shift [width], 0.

    Args:
        eps: at least 1e-12.
    """

    NATIVE: ClassVar[str] = "batch_norm"

    eps: float = 1e-5

    def __post_init__(self) -> None:
        object.__setattr__(self, "eps", checks.real("eps", self.eps, 1e-12, allow=True))


@dataclass(frozen=True, eq=False, repr=False)
class DataNorm(Layer):
    """Data normalisation (extreme-scale-asgd, eq. 10): scale · x / E(x) − shift, of graphs. E(x) is
    the mean of the mini-batch, and gradients flow through it; where |E(x)| is below 10⁻³ it counts
    as ±10⁻³, a constant, and ``TrainResult.config["statistics"]["near_zero"]`` counts how often.
    In evaluation and prediction E(x) is the running mean, as with ``BatchNorm``. Parameters: scale
    [width], then shift [width], both 1 at first (eq. 9).
    """

    NATIVE: ClassVar[str] = "data_norm"


@dataclass(frozen=True, eq=False, repr=False)
class Dropout(Layer):
    """Inverted dropout (Srivastava et al., 2014), of graphs: in training each value is 0 with
    probability ``rate``, and else divided by 1 − ``rate``; evaluation, prediction and export leave it
    as it is. Which values is drawn by the training's seed, the example's place in the stream of
    examples, and the node alone, so that a gradient that is computed again has the same.

    Args:
        rate: from 0 to below 1.
    """

    NATIVE: ClassVar[str] = "dropout"

    rate: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "rate", checks.real("rate", self.rate, 0.0, allow=True))
        if self.rate >= 1:
            raise ValueError(f"rate must be below 1, got {self.rate!r}; 0 drops nothing")


ACTIVATIONS: tuple[type[Layer], ...] = (ReLU, Tanh, Sigmoid)
NORMS: tuple[type[Layer], ...] = (BatchNorm, DataNorm)
OF_GRAPHS: tuple[type[Layer], ...] = (*NORMS, Dropout)

# Every layer that a list of layers may have; files know them by these names.
LAYERS: tuple[type[Layer], ...] = (
    Dense,
    Conv2d,
    MaxPool,
    *ACTIVATIONS,
)


def native_layer(layer: object) -> Choice:
    """The native layer; TypeError where it is none."""
    if isinstance(layer, OF_GRAPHS):
        raise TypeError(
            f"layers must not have {layer!r}, which is a layer of graphs; write the model as one: "
            f"Graph(Input(20) >> Dense(64) >> {layer!r} >> ReLU() >> Dense(10), loss='softmax')"
        )
    if not isinstance(layer, LAYERS):
        *most, last = (kind.__name__ for kind in LAYERS)
        raise TypeError(f"layers must be {', '.join(most)} or {last}, got {layer!r}")
    return layer.choice()
