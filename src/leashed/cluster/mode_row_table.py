"""What a run's policy servers have done with rows of tables, and what these have cost, in tables."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from leashed.base.table import Table, number
from leashed.cluster.cells import count, size
from leashed.cluster.measures import Counters, counted, total

__all__ = ["NOTE", "facts", "servers"]

NOTE = (
    "rows: that have a place now, of all of its tables. lookups: of batches; looked up: their ids, each once, for "
    "training and not. staleness: of updates of rows, in updates of the same row between its look-up and its update. "
    "moved: bytes of ids, rows and gradients, with frames; least: each id once, and each float there and back."
)
_HEADER = (
    "rows of policy server",
    "rows",
    "memory",
    "lookups",
    "looked up",
    "updates of rows",
    "staleness",
    "moved",
    "least",
)


def servers(report: Mapping[str, Any]) -> Table:
    """A row per policy server that has rows of tables; none in a run without.

    Args:
        report: as in run.json.
    """
    return Table(list(_HEADER), [_server(index, each) for index, each in _with_rows(report)])


def facts(report: Mapping[str, Any]) -> list[tuple[str, str]]:
    """What rows have cost in the run as a whole, by name; nothing of one without."""
    here = [each for _, each in _with_rows(report)]
    examples = counted(report, "policy-ps").get(0, {}).get("mode_pushed", 0.0)
    every = total(here)
    if not here or not examples or not (least := every.get("row_least", 0.0)):
        return []
    moved = every["row_moved"]
    told = (
        f"{moved / examples:,.0f} bytes an example, {number(moved / least)} times the least, "
        f"{least / examples:,.0f}"
    )
    reads = every.get("reads", 0.0)
    return [
        ("bytes of rows", f"{told} (with {reads:,.0f} look-ups of evaluations)" if reads else told)
    ]


def _with_rows(report: Mapping[str, Any]) -> list[tuple[int, Counters]]:
    every = counted(report, "policy-ps")
    return [(index, each) for index, each in every.items() if "row_bytes" in each]


def _server(index: int, counters: Counters) -> list[str]:
    updates = counters.get("row_updates", 0.0)
    stale = counters.get("row_staleness", math.nan) / updates if updates else math.nan
    return [
        str(index),
        count(counters, "rows"),
        size(counters, "row_bytes"),
        count(counters, "lookups"),
        count(counters, "looked_up"),
        count(counters, "row_updates"),
        number(stale),
        size(counters, "row_moved"),
        size(counters, "row_least"),
    ]
