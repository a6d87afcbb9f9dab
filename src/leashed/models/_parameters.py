"""Parameters of a model's blocks, flattened in one vector: their places in it, their first values."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from leashed import _core
from leashed.base import checks

INITIALISATIONS = ("normal", "he", "glorot")


class Blocks(Protocol):
    """What a native model tells of its parameters."""

    @property
    def dimension(self) -> int: ...
    @property
    def parameters(self) -> list[_core.ParameterBlock]: ...


class Judged(Protocol):
    """What a native model tells of what rows are to give."""

    @property
    def classes(self) -> int: ...
    @property
    def values(self) -> int: ...
    @property
    def gives_logits(self) -> bool: ...


def heads(native: Judged) -> int:
    """Labels of a row, where each output is of one of its own; else 0."""
    return native.values if native.gives_logits and not native.classes else 0


def unflatten(native: Blocks, parameters: NDArray[np.float32]) -> dict[str, NDArray[np.float32]]:
    """Views of the blocks of ``parameters`` [d], by name."""
    if parameters.shape != (native.dimension,):
        raise ValueError(
            f"parameters must have shape ({native.dimension},), got {parameters.shape}"
        )
    return {
        block.name: parameters[block.offset : block.offset + int(np.prod(block.shape))].reshape(
            block.shape
        )
        for block in native.parameters
    }


def initial(
    native: Blocks,
    seed: int,
    scheme: str,
    untrained: Collection[str],
    given: Mapping[str, float] | None = None,
) -> NDArray[np.float32]:
    """First values, float32 [d], a function of ``seed`` alone; those of ``untrained`` blocks are 0,
    and of those that are ``given``, by name, what is given.
    """
    given = given or {}
    random = np.random.Generator(np.random.Philox(checks.whole("seed", seed, 0)))
    if scheme == "normal":
        theta = random.normal(0.0, 0.01, native.dimension).astype(np.float32)
        for name in untrained:
            unflatten(native, theta)[name][...] = 0
        for name, value in given.items():
            unflatten(native, theta)[name][...] = value
        return theta
    if scheme not in INITIALISATIONS:
        raise ValueError(f"init must be one of {', '.join(INITIALISATIONS)}, got {scheme!r}")
    theta = np.zeros(native.dimension, np.float32)
    parts = unflatten(native, theta)
    for block in native.parameters:
        if block.name.endswith(".bias"):
            continue
        part = parts[block.name]
        if block.name in given:
            part[...] = given[block.name]
            continue
        if scheme == "he":
            part[...] = random.normal(0.0, np.sqrt(2.0 / block.fan_in), part.shape)
        else:
            limit = np.sqrt(6.0 / (block.fan_in + block.fan_out))
            part[...] = random.uniform(-limit, limit, part.shape)
    return theta
