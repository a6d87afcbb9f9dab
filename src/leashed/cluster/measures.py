"""What the counters of trainers and servers tell: rates, and the average sync gap."""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

__all__ = [
    "Counters",
    "Life",
    "Measures",
    "Pulse",
    "counted",
    "lives",
    "measure",
    "total",
]

Counters = Mapping[str, float]
"""Counted, by name, as ``Member.report`` was given them."""

_ADDED = frozenset({
    "examples", "batches_used", "syncs", "sync_failed", "sync_partial", "sync_not_finite",
    "sync_seconds", "bytes_out", "bytes_in", "not_finite", "kernel_out", "kernel_in",
    "transfers_out", "transfers_in", "serving_seconds", "refused",
    "snapshots_failed", "snapshots", "stalled",
    "lookups", "reads", "looked_up", "pooled", "pushed", "expired", "repeated", "row_updates", "row_staleness",
    "apart", "row_asked", "row_evicted", "row_refused", "row_deferred", "row_late", "row_unadmitted",
    "row_lookups", "row_reads", "row_rows", "row_examples", "row_least_bytes", "row_seconds",
    "row_all_rows_bytes", "row_pools",
    "row_pushes", "row_settled", "row_settling", "row_lost", "row_lost_examples", "row_not_finite",
    "row_expired", "row_unsettled", "row_cuts", "row_bytes_out", "row_bytes_in", "row_kernel_out",
    "row_kernel_in", "rows_sent", "rows_received", "parts_parsed",
    "mode_cut", "mode_hung", "mode_left_out", "row_moved", "row_least",
})  # fmt: skip
"""Counted by each process from 0, so that the sum over those that came one after the other tells what
all of them have. Of anything else the last one's is the newest.
"""

K = TypeVar("K", bound=Hashable)


@dataclass(frozen=True)
class Measures:
    """Of one trainer, or of all together, over some time. NaN where nothing can be told.

    Attributes:
        eps: examples per second.
        syncs: per second.
        gap: average sync gap, iterations per synchronisation (shadowsync, eq. 2, first form).
        gap_out: the same from bytes sent: batches over transfers of the whole of w (second form), in
            as many bytes as it has as it is sent, compressed or not, with headers.
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


@dataclass
class Life:
    """One process of a role, from its start to its end.

    Attributes:
        counters: what it has counted, as it was told last; empty: it has told nothing.
        seconds: for which it was a member, until then: more than once where it was taken for dead.
    """

    counters: Counters = field(default_factory=dict)
    seconds: float = 0.0


def measure(counters: Counters, seconds: float, batch_size: float) -> Measures:
    """What counters tell.

    Args:
        counters: over the time.
        seconds: the time.
        batch_size: examples of an iteration.
    """

    def of(name: str) -> float:
        return counters.get(name, math.nan)

    batches = of("examples") / batch_size
    return Measures(
        eps=_ratio(of("examples"), seconds),
        syncs=_ratio(of("syncs"), seconds),
        gap=_ratio(of("batches_used"), of("syncs")),
        gap_out=_ratio(batches, of("transfers_out")),
        gap_in=_ratio(batches, of("transfers_in")),
        bytes_out=_ratio(of("bytes_out"), seconds),
        bytes_in=_ratio(of("bytes_in"), seconds),
    )


class Pulse:
    """What each trainer does, from one look at the counters to the next.

    A master that was started again knows of a trainer what its journal has, which may be less than
    what it had told. When it tells again, that is what it has done since it had told so much, not
    since the master was back; where its counters are lost, they begin anew.
    """

    def __init__(self) -> None:
        self._looked = 0.0
        # When each had told most, and what; and, of whose counters fell below that, the last look.
        self._most: dict[Hashable, tuple[float, Counters]] = {}
        self._fallen: dict[Hashable, tuple[float, Counters]] = {}

    def __call__(
        self, now: Mapping[K, Counters], seconds: float, batch_size: float
    ) -> dict[K, Measures]:
        """The rates since the last call; of one that is new since then, or since the beginning.

        Args:
            now: what each has counted.
            seconds: of the run.
            batch_size: examples of an iteration.
        """
        found = {}
        for key, counters in now.items():
            since, before = self._most.get(key, (self._looked, {}))
            if counters.get("examples", 0.0) < before.get("examples", 0.0):
                since, before = self._fallen.get(key, (seconds, counters))  # at first: unknown
                self._fallen[key] = seconds, counters
            else:
                self._most[key] = seconds, counters
                fallen = self._fallen.pop(key, None)
                if fallen is not None and any(
                    value < before.get(name, 0.0) for name, value in counters.items()
                ):
                    since, before = fallen  # its counters had begun anew
            done = {name: value - before.get(name, 0.0) for name, value in counters.items()}
            found[key] = measure(done, seconds - since, batch_size)
        self._looked = seconds
        return found


def lives(report: Mapping[str, Any], role: str) -> dict[int, list[Life]]:
    """The processes of a role that came one after the other, by index; at least one each.

    Args:
        report: as in run.json.
        role: one of ``ROLES``.
    """
    found: dict[int, list[Life]] = {}
    of: dict[int, Life] = {}  # by member
    for member in sorted(report["members"], key=lambda each: int(each["id"])):
        if member["role"] != role:
            continue
        life = of.get(member["before"])  # which is 0, nobody's, where the process is new
        if life is None:
            life = Life()
            found.setdefault(member["index"], []).append(life)
        of[member["id"]] = life
        if member["counted"] is not None:
            life.counters = member["counters"]
            life.seconds += member["counted"] - member["joined"]
    return dict(sorted(found.items()))


def counted(report: Mapping[str, Any], role: str) -> dict[int, Counters]:
    """What the processes of a role have counted, by index, over all their lives: each up to its last
    word, or, where it died, to what it had told last. Who has told nothing yet is left out.
    """
    told = {
        index: [life.counters for life in several if life.counters]
        for index, several in lives(report, role).items()
    }
    return {
        index: {k: v for k, v in several[-1].items() if k not in _ADDED}
        | {k: v for k, v in total(several).items() if k in _ADDED}
        for index, several in told.items()
        if several
    }


def total(several: Iterable[Counters]) -> dict[str, float]:
    """The sums over several processes, of what all of them count."""
    counted = list(several)
    names = set.intersection(*(set(each) for each in counted)) if counted else set()
    return {name: math.fsum(each[name] for each in counted) for name in sorted(names)}


def _ratio(above: float, below: float) -> float:
    if below == 0.0:
        return math.inf if above > 0.0 else math.nan
    return above / below
