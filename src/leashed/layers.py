"""Layers of models: frozen values, checked when they are made."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import ClassVar

from leashed import _check
from leashed.choice import Choice

__all__ = [
    "LAYERS",
    "Conv2d",
    "Dense",
    "Layer",
    "MaxPool",
    "ReLU",
]


@dataclass(frozen=True)
class Layer:
    """Base of the layers below; not one itself."""

    NATIVE: ClassVar[str]

    def choice(self) -> Choice:
        """The native layer's name and sizes."""
        return self.NATIVE, {item.name: getattr(self, item.name) for item in fields(self)}


@dataclass(frozen=True)
class Dense(Layer):
    """x W + b. Parameters: W [inputs, outputs], then b [outputs]. Without ``bias`` b is among the
    parameters too, and stays 0.
    """

    NATIVE: ClassVar[str] = "dense"

    outputs: int
    bias: bool = True

    def __post_init__(self) -> None:
        _check.size("outputs", self.outputs)
        if not isinstance(self.bias, bool):
            raise TypeError(f"bias must be True or False, got {self.bias!r}")


@dataclass(frozen=True)
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
        _check.size("filters", self.filters)
        _check.size("kernel", self.kernel)
        _check.size("stride", self.stride)
        _check.size("padding", self.padding, 0)

    def choice(self) -> Choice:
        name, sizes = super().choice()
        sizes["kernel_h"] = sizes["kernel_w"] = sizes.pop("kernel")
        return name, sizes


@dataclass(frozen=True)
class MaxPool(Layer):
    """Maximum over square windows; rows and columns that fill no window are dropped.

    ``stride`` defaults to ``size``.
    """

    NATIVE: ClassVar[str] = "max_pool"

    size: int
    stride: int | None = None

    def __post_init__(self) -> None:
        _check.size("size", self.size)
        if self.stride is not None:
            _check.size("stride", self.stride)

    def choice(self) -> Choice:
        return self.NATIVE, {"size": self.size, "stride": self.stride or self.size}


@dataclass(frozen=True)
class ReLU(Layer):
    """max(0, x)."""

    NATIVE: ClassVar[str] = "relu"


# Every layer there is; files know them by these names.
LAYERS: tuple[type[Layer], ...] = (
    Dense,
    Conv2d,
    MaxPool,
    ReLU,
)


def native_layer(layer: object) -> Choice:
    """The native layer; TypeError where it is none."""
    if not isinstance(layer, LAYERS):
        *most, last = (kind.__name__ for kind in LAYERS)
        raise TypeError(f"layers must be {', '.join(most)} or {last}, got {layer!r}")
    return layer.choice()
