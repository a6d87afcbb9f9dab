"""What the counters of trainers and sync servers tell: rates, and the average sync gap."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

__all__ = ["Counters", "Measures", "counted", "measure", "over", "pulse", "total"]

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
        bytes_out: sent per second.
        bytes_in: received per second.
    """

    eps: float
    syncs: float
    gap: float
    gap_out: float
    gap_in: float
    bytes_out: float
    bytes_in: float


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
    bytes_out, bytes_in = counters.get("bytes_out", math.nan), counters.get("bytes_in", math.nan)
    batches, whole = examples / batch_size, _FLOAT * parameters
    return Measures(
        eps=_ratio(examples, seconds),
        syncs=_ratio(syncs, seconds),
        gap=_ratio(counters.get("batches_used", math.nan), syncs),
        gap_out=_ratio(batches, bytes_out / whole),
        gap_in=_ratio(batches, bytes_in / whole),
        bytes_out=_ratio(bytes_out, seconds),
        bytes_in=_ratio(bytes_in, seconds),
    )


def pulse(report: Mapping[str, Any], before: Mapping[str, Any] | None) -> dict[int, Measures]:
    """What each trainer has done between two reports, by its index.

    Args:
        report: in the layout of run.json.
        before: an earlier one, or None: since the beginning.
    """
    seconds = report["seconds"] - (0.0 if before is None else before["seconds"])
    earlier = {} if before is None else counted(before, "trainer")
    return {
        index: over(_since(counters, earlier.get(index, {})), seconds, report)
        for index, counters in counted(report, "trainer").items()
    }


def counted(report: Mapping[str, Any], role: str) -> dict[int, Counters]:
    """What each process of a role has counted, by its index: since it was started last, up to its
    last word where it has had one.
    """
    found: dict[int, Counters] = {}
    for told in (report["metrics"], report.get("summaries", {})):
        for name, counters in told.items():
            of, _, index = name.rpartition("-")
            if of == role:
                found[int(index)] = {**found.get(int(index), {}), **counters}
    return dict(sorted(found.items()))


def over(counters: Counters, seconds: float, report: Mapping[str, Any]) -> Measures:
    """What counters of a run tell; the run's report, as in run.json, has its batch size and d."""
    parameters = report["terms"].get("parameters")
    return measure(
        counters,
        seconds,
        batch_size=report["terms"]["batch_size"],
        parameters=math.nan if parameters is None else parameters,
    )


def _since(now: Counters, before: Counters) -> Counters:
    """What was counted between two looks. A process that was started again counts from 0."""
    if now.get("examples", 0.0) < before.get("examples", 0.0):
        return now
    return {name: value - before.get(name, 0.0) for name, value in now.items()}


def total(several: Iterable[Counters]) -> dict[str, float]:
    """The sums over several processes, of what all of them count."""
    counted = list(several)
    names = set.intersection(*(set(each) for each in counted)) if counted else set()
    return {name: math.fsum(each[name] for each in counted) for name in sorted(names)}


def _ratio(above: float, below: float) -> float:
    if below == 0.0:
        return math.inf if above > 0.0 else math.nan
    return above / below
