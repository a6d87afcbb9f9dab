"""What the counters of trainers and sync servers tell: rates, and the average sync gap."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

__all__ = ["Counters", "Measures", "measure", "since", "total"]

Counters = Mapping[str, float]
"""Counted since the process began, by name, as ``Member.report`` was given them."""

_FLOAT = 4  # bytes


@dataclass(frozen=True)
class Measures:
    """Of one trainer, or of all together, over some time. NaN where nothing can be told.

    Attributes:
        eps: examples per second.
        syncs: per second.
        gap: average sync gap, iterations per synchronisation (shadowsync, eq. 2, first form).
        gap_out: the same from bytes sent: batches over transfers of the whole of w (second form).
        gap_in: from bytes received.
    """

    eps: float
    syncs: float
    gap: float
    gap_out: float
    gap_in: float


def measure(
    counters: Counters, seconds: float, *, batch_size: float, parameters: float
) -> Measures:
    """What counters tell.

    Args:
        counters: over the time.
        seconds: the time.
        batch_size: examples of an iteration.
        parameters: floats of w; NaN where unknown.
    """
    examples = counters.get("examples", math.nan)
    syncs = counters.get("syncs", math.nan)
    batches, whole = examples / batch_size, _FLOAT * parameters
    return Measures(
        eps=_ratio(examples, seconds),
        syncs=_ratio(syncs, seconds),
        gap=_ratio(counters.get("batches_used", math.nan), syncs),
        gap_out=_ratio(batches, counters.get("bytes_out", math.nan) / whole),
        gap_in=_ratio(batches, counters.get("bytes_in", math.nan) / whole),
    )


def since(now: Counters, before: Counters) -> dict[str, float]:
    """What was counted between two looks. A process that was started again counts from 0."""
    if any(now.get(name, 0.0) < value for name, value in before.items()):
        return dict(now)
    return {name: value - before.get(name, 0.0) for name, value in now.items()}


def total(several: Iterable[Counters]) -> dict[str, float]:
    """The sums over several processes, of what all of them count."""
    counted = list(several)
    names = set.intersection(*(set(each) for each in counted)) if counted else set()
    return {name: math.fsum(each[name] for each in counted) for name in sorted(names)}


def _ratio(above: float, below: float) -> float:
    if below == 0.0:
        return math.nan if above == 0.0 else math.copysign(math.inf, above)
    return above / below
