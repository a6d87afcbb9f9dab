"""The networks of leashed-sgd, Tables II and III, and their parameters as PyTorch lays them out.

leashed keeps the weights of a dense layer as [inputs, outputs], PyTorch as [outputs, inputs]. The
rest is alike: convolutions, the order of the layers, and of the values between them.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

import leashed

NETWORKS = {"MLP": leashed.models.mlp(784, [128] * 3, 10), "CNN": leashed.models.cnn()}
_LINE = 16  # floats of a cache line

Floats = NDArray[np.float32]


def memory_floats(network: str) -> int:
    """How much memory holds a network's parameters, from whatever address on."""
    model = NETWORKS[network]
    return model.dimension + _LINE * (len(model.native.parameters) + 1)


def aligned(memory: Floats) -> Floats:
    """The memory from its first cache line on."""
    skip = -memory.ctypes.data // memory.itemsize % _LINE
    return memory[skip:]


def torch_parameters(network: str, memory: Floats) -> list[Floats]:
    """PyTorch's parameters in ``memory``: each starts on a cache line where that does, as those that
    PyTorch makes itself do.
    """
    model = NETWORKS[network]
    rest = memory
    views = []
    for part in model.unflatten(np.empty(model.dimension, np.float32)).values():
        shape = part.shape[::-1] if part.ndim == 2 else part.shape
        views.append(rest[: part.size].reshape(shape))
        rest = rest[-(-part.size // _LINE) * _LINE :]
    return views


def to_torch(network: str, theta: Floats, memory: Floats) -> None:
    """Write leashed's parameters into the memory of PyTorch's."""
    parts = NETWORKS[network].unflatten(theta).values()
    for view, part in zip(torch_parameters(network, memory), parts, strict=True):
        view[...] = part.T if part.ndim == 2 else part


def from_torch(network: str, memory: Floats) -> Floats:
    """PyTorch's parameters in leashed's order."""
    parts = torch_parameters(network, memory)
    return np.concatenate([(part.T if part.ndim == 2 else part).ravel() for part in parts])
