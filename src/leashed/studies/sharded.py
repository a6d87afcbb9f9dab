"""Throughput of SHAT by how its parameters are spread over servers: shat, Figure 6, in virtual time."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product

import numpy as np
from numpy.typing import NDArray

from leashed import models, modes, simulation
from leashed.datasets import Dataset
from leashed.models.network import Model
from leashed.rules import SGD
from leashed.simulation.sharding import Sharding, layerwise, memorywise, packed
from leashed.stopping import Until

__all__ = ["NETS", "SHARDINGS", "Throughput", "imbalance", "rate", "throughputs"]

_WIDTH = 32
_SERVERS = 4
_DEVIATION = 0.05  # of the times, as a share

SHARDINGS: dict[str, Sharding | None] = {
    "no": None,
    "layerwise": layerwise(_SERVERS),
    "memorywise": memorywise(_SERVERS),
    "packed": packed(_SERVERS),
}
"""The paper's three, and variables packed by their sizes; four servers."""

NETS: dict[str, tuple[Model, float]] = {
    "equal layers": (models.mlp(_WIDTH, [_WIDTH] * 7, _WIDTH), 0.15),
    "heavy layers": (models.mlp(_WIDTH, [*[_WIDTH] * 6, 1600], _WIDTH), 0.9),
}
"""Eight layers, alike or with nine tenths of the parameters in the last two, and the seconds that one
server takes for a push and its answer beside a gradient's one second. These are what the bytes of
ResNet-50 (23 M parameters) and VGG-16 (138 M) take over 10 Gbit/s, in and out; the gradient's second
is ours."""


@dataclass(frozen=True, eq=False)
class Throughput:
    """Of a net with a sharding.

    Attributes:
        net: of ``NETS``.
        sharding: of ``SHARDINGS``.
        workers: n.
        rates: float64 [repeats]; updates by all per second.
    """

    net: str
    sharding: str
    workers: int
    rates: NDArray[np.float64]


def imbalance(net: str, sharding: str) -> float:
    """The largest shard over the mean."""
    model, chosen = NETS[net][0], SHARDINGS[sharding]
    if chosen is None:
        return 1.0
    sizes = [sum(end - begin for begin, end in spans) for spans in chosen.spans(model)]
    return max(sizes) * len(sizes) / sum(sizes)


def rate(net: str, sharding: str, workers: int, seed: int, updates: int = 60) -> float:
    """Updates by all per second, of a net with a sharding, from ``updates`` of each worker. What is
    trained, and on what, does not matter to it; gradients are of one example.
    """
    model, update = NETS[net]
    x = np.random.default_rng(0).random((_WIDTH, _WIDTH), np.float32)
    data = Dataset(x, np.arange(_WIDTH, dtype=np.int32), classes=_WIDTH, name="noise")
    result = simulation.simulate(
        model,
        data,
        cluster=simulation.normal(workers, 1.0, _DEVIATION, update=update),
        mode=modes.SHAT(),
        shards=SHARDINGS[sharding],
        until=Until(updates=updates * workers),
        rule=SGD(1e-4),
        batch_size=1,
        seed=seed,
    ).result
    return result.total_updates / result.elapsed


def throughputs(
    workers: tuple[int, ...], repeats: int, seed: int, updates: int = 60
) -> Iterator[Throughput]:
    """Of every net, sharding and number of workers."""
    for net, name, n in product(NETS, SHARDINGS, workers):
        rates = [rate(net, name, n, seed + repeat, updates) for repeat in range(repeats)]
        yield Throughput(net, name, n, np.array(rates))
