"""Networks, as lists of layers whose parameters lie flattened in one vector."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike, NDArray

from leashed import _check, _core
from leashed.datasets import Dataset

__all__ = [
    "INITIALISATIONS",
    "Conv2d",
    "Dense",
    "Layer",
    "MaxPool",
    "Model",
    "ReLU",
    "cnn",
    "lenet",
    "mlp",
]

INITIALISATIONS = ("normal", "he", "glorot")

# Far beyond any memory, and small enough that no product in the native core overflows.
_LARGEST_SIZE = 2**31 - 1
_MOST_PARAMETERS = 2**48


def _size(name: str, value: int, minimum: int = 1) -> int:
    return _check.whole(name, value, minimum, _LARGEST_SIZE)


@dataclass(frozen=True)
class Dense:
    """x W + b. Parameters: W [inputs, outputs], then b [outputs]."""

    outputs: int

    def __post_init__(self) -> None:
        _size("outputs", self.outputs)


@dataclass(frozen=True)
class Conv2d:
    """Cross-correlation with square kernels. Parameters: W [filters, channels, kernel, kernel],
    then b [filters].
    """

    filters: int
    kernel: int
    stride: int = 1
    padding: int = 0

    def __post_init__(self) -> None:
        _size("filters", self.filters)
        _size("kernel", self.kernel)
        _size("stride", self.stride)
        _size("padding", self.padding, 0)


@dataclass(frozen=True)
class MaxPool:
    """Maximum over square windows; rows and columns that fill no window are dropped.

    ``stride`` defaults to ``size``.
    """

    size: int
    stride: int | None = None

    def __post_init__(self) -> None:
        _size("size", self.size)
        if self.stride is not None:
            _size("stride", self.stride)


@dataclass(frozen=True)
class ReLU:
    """max(0, x)."""


Layer = Dense | Conv2d | MaxPool | ReLU


def _native(layer: Layer) -> _core.Dense | _core.Conv2d | _core.MaxPool | _core.Relu:
    if isinstance(layer, Dense):
        return _core.Dense(layer.outputs)
    if isinstance(layer, Conv2d):
        return _core.Conv2d(layer.filters, layer.kernel, layer.kernel, layer.stride, layer.padding)
    if isinstance(layer, MaxPool):
        return _core.MaxPool(layer.size, layer.stride or layer.size)
    if isinstance(layer, ReLU):
        return _core.Relu()
    raise TypeError(f"layers must be Dense, Conv2d, MaxPool or ReLU, got {layer!r}")


@dataclass(frozen=True)
class Model:
    """A feed-forward classifier: ``layers``, then softmax with cross-entropy.

    Args:
        input_shape: (channels, height, width) of an example; (features, 1, 1) for a flat one.
        layers: the layers, the last giving one output per class.
        name: what plots and reports call it.

    Raises:
        TypeError: a layer is none of the four kinds, or a size is not a whole number.
        ValueError: the layers do not fit each other; the message names the layer by its index.
    """

    input_shape: tuple[int, int, int]
    layers: tuple[Layer, ...]
    name: str = "network"

    def __post_init__(self) -> None:
        if not isinstance(self.name, str):
            raise TypeError(f"name must be a str, got {self.name!r}")
        shape = tuple(_size("input_shape", n) for n in self.input_shape)
        if len(shape) != 3:
            raise ValueError(
                f"input_shape must be (channels, height, width), got {self.input_shape}"
            )
        object.__setattr__(self, "input_shape", shape)
        object.__setattr__(self, "layers", tuple(self.layers))
        _check_extent(shape, self.layers)
        _ = self.native

    @cached_property
    def native(self) -> _core.Network:
        """The native network."""
        return _core.Network(self.input_shape, [_native(layer) for layer in self.layers])

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
        """Number of classes."""
        return self.native.classes

    @property
    def flops_per_example(self) -> float:
        """Floating-point operations of one example's forward and backward pass."""
        return self.native.flops_per_example

    def init(self, seed: int = 0, scheme: str = "he") -> NDArray[np.float32]:
        """Initial parameters, float32 [d], a function of ``seed`` alone.

        Args:
            seed: whole number from 0.
            scheme: ``"normal"``: N(0, 0.01) over the whole vector, 0.01 being the standard
                deviation, biases included (leashed-sgd, Algorithm 1); ``"he"``: weights
                N(0, √(2/fan-in)), biases 0; ``"glorot"``: weights uniform in
                ±√(6/(fan-in + fan-out)), biases 0.

        Raises:
            TypeError: ``seed`` is not a whole number.
            ValueError: ``scheme`` is unknown or ``seed`` is negative.
        """
        random = np.random.Generator(np.random.Philox(_check.whole("seed", seed, 0)))
        if scheme == "normal":
            return random.normal(0.0, 0.01, self.dimension).astype(np.float32)
        if scheme not in INITIALISATIONS:
            raise ValueError(f"init must be one of {', '.join(INITIALISATIONS)}, got {scheme!r}")
        theta = np.zeros(self.dimension, np.float32)
        for name, part in self.unflatten(theta).items():
            block = next(b for b in self.native.parameters if b.name == name)
            if name.endswith(".bias"):
                continue
            if scheme == "he":
                part[...] = random.normal(0.0, np.sqrt(2.0 / block.fan_in), part.shape)
            else:
                limit = np.sqrt(6.0 / (block.fan_in + block.fan_out))
                part[...] = random.uniform(-limit, limit, part.shape)
        return theta

    def unflatten(self, parameters: NDArray[np.float32]) -> dict[str, NDArray[np.float32]]:
        """Views of the layers' parts of ``parameters`` [d], by name: ``"0.weight"``, ``"0.bias"``,
        …, the number being the layer's index.
        """
        if parameters.shape != (self.dimension,):
            raise ValueError(
                f"parameters must have shape ({self.dimension},), got {parameters.shape}"
            )
        return {
            block.name: parameters[block.offset : block.offset + int(np.prod(block.shape))].reshape(
                block.shape
            )
            for block in self.native.parameters
        }

    def predict(self, parameters: ArrayLike, x: ArrayLike) -> NDArray[np.float32]:
        """Class probabilities, float32 [n, classes], of examples ``x``: [n, features] or images.

        Raises:
            TypeError: a dtype is not numeric.
            ValueError: ``x`` or ``parameters`` has the wrong shape or is not finite.
        """
        examples = _check.numeric("x", x)
        if examples.ndim == 0:
            raise ValueError("x must be [n, features], images or one example, got a single number")
        if examples.ndim == 1:
            examples = examples[None, :]
        with np.errstate(over="ignore"):
            rows = np.ascontiguousarray(
                examples.reshape(len(examples), math.prod(examples.shape[1:])), np.float32
            )
        if rows.shape[1] != self.features:
            raise ValueError(f"x must have {self.features} values per row, got {rows.shape[1]}")
        if not np.isfinite(rows).all():
            raise ValueError("x is NaN, infinite or beyond float32 somewhere; it must be finite")
        return self.native.predict(_check.vector("parameters", parameters, self.dimension), rows)

    def evaluate(self, parameters: ArrayLike, data: Dataset) -> tuple[float, float]:
        """Mean loss and accuracy over a data set.

        Raises:
            TypeError: ``data`` is no Dataset, or ``parameters`` holds no real numbers.
            ValueError: ``parameters`` or ``data`` does not fit the model.
        """
        check_fits(self, data, "data")
        theta = _check.vector("parameters", parameters, self.dimension)
        return self.native.evaluate(theta, data.x, data.y)


def _check_extent(shape: tuple[int, ...], layers: tuple[Layer, ...]) -> None:
    """ValueError where the layers, were none of them to make its input smaller, would have more
    parameters than any machine can hold.
    """
    channels, height, width = shape
    parameters = 0
    for index, layer in enumerate(layers):
        if isinstance(layer, Dense):
            parameters += channels * height * width * layer.outputs
            channels, height, width = layer.outputs, 1, 1
        elif isinstance(layer, Conv2d):
            height, width = height + 2 * layer.padding, width + 2 * layer.padding
            parameters += channels * height * width * layer.filters
            channels = layer.filters
        if parameters > _MOST_PARAMETERS:
            raise ValueError(f"layer {index}: {layer} is too large for any memory; make it smaller")


def check_fits(model: Model, data: Dataset, name: str) -> None:
    """TypeError where ``data`` is no Dataset, ValueError where it has not the model's number of
    features or too many classes.
    """
    if not isinstance(data, Dataset):
        raise TypeError(f"{name} must be a Dataset, got {type(data).__name__}")
    if data.features != model.features:
        raise ValueError(
            f"{name} has {data.features} features, but the model takes {model.features}"
        )
    if int(data.y.max()) >= model.classes:
        raise ValueError(
            f"{name} has labels up to {int(data.y.max())}, but the model knows "
            f"{model.classes} classes"
        )


def mlp(inputs: int, hidden: Sequence[int], classes: int, name: str = "mlp") -> Model:
    """Dense layers with ReLU between them. ``mlp(784, [128, 128, 128], 10)`` is leashed-sgd's
    Table II, d = 134,794.
    """
    layers: list[Layer] = []
    for width in hidden:
        layers += [Dense(width), ReLU()]
    return Model((_size("inputs", inputs), 1, 1), (*layers, Dense(classes)), name)


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
