"""A run while it goes on, in the terminal (extra ``view``)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from leashed.base.table import Table as Told
from leashed.base.table import duration, mebibytes, number
from leashed.cluster import mode_row_table, mode_table, row_table
from leashed.cluster.history import present
from leashed.cluster.measures import Counters, Measures, Pulse, counted

try:
    from rich.console import Console, Group
    from rich.live import Live
    from rich.table import Table
    from rich.text import Text
except ImportError as error:
    raise ImportError("the view needs rich: pip install leashed[view]") from error

__all__ = ["View"]

_HEADER = ("trainer", "examples", "EPS", "sync gap", "syncs/s", "out/s", "in/s", "staleness")
_OF_ROWS = ("embedding server", "rows", "memory", "looked up", "pushes", "staleness", "lost")
_OF_MODES = ("policy server", "workers", "grants", "pushes", "updates", "staleness", "in", "out")
_OF_THEIR_ROWS = (
    "rows of policy server",
    "rows",
    "memory",
    "looked up",
    "staleness",
    "moved",
    "least",
)
# Of the columns of row_table, of mode_table and of mode_row_table.


class View:
    """A table of the trainers that rewrites itself, with rates over the time since the last report.

    A context manager.

    Args:
        console: where; default: standard error.
    """

    def __init__(self, console: Console | None = None) -> None:
        self._live = Live(
            console=Console(stderr=True) if console is None else console,
            auto_refresh=False,
            transient=True,
        )
        self._pulse, self._looked = Pulse(), 0.0

    def __enter__(self) -> View:  # noqa: PYI034 (Self is of Python 3.11)
        self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._live.stop()

    def __call__(self, report: Mapping[str, Any]) -> None:
        """Show a report, in the layout of run.json."""
        if report["seconds"] <= self._looked:
            return
        self._looked = report["seconds"]
        trainers = counted(report, "trainer")
        rates = self._pulse(trainers, self._looked, report["terms"]["batch_size"])
        self._live.update(_drawn(report, trainers, rates), refresh=True)


def _drawn(
    report: Mapping[str, Any], trainers: Mapping[int, Counters], rates: Mapping[int, Measures]
) -> Group:
    table = Table(box=None, pad_edge=False)
    for name in _HEADER:
        table.add_column(name, justify="left" if name == "trainer" else "right")
    for index, measures in rates.items():
        counters = trainers[index]
        table.add_row(
            str(index),
            f"{counters.get('examples', 0.0):,.0f}",
            number(measures.eps),
            number(measures.gap),
            number(measures.syncs),
            mebibytes(measures.bytes_out),
            mebibytes(measures.bytes_in),
            number(counters.get("staleness_mean", math.nan)),
        )
    members = ", ".join(f"{count} × {role}" for role, count in sorted(present(report).items()))
    ledger = report["ledger"]
    of = "" if ledger.get("total") is None else f" of {ledger['total']:,}"
    head = f"{duration(report['seconds'])}   {ledger['complete']:,}{of} batches   {members}"
    return Group(Text(head), table, *_of_servers(report))


def _of_servers(report: Mapping[str, Any]) -> list[Table]:
    """Of embedding servers and policy servers what changes while they serve; nothing in a run without."""
    told = (
        (row_table.servers(report), _OF_ROWS),
        (mode_table.servers(report), _OF_MODES),
        (mode_row_table.servers(report), _OF_THEIR_ROWS),
    )
    return [_of_columns(servers, columns) for servers, columns in told if servers.rows]


def _of_columns(told: Told, columns: Sequence[str]) -> Table:
    table = Table(box=None, pad_edge=False)
    for name in columns:
        table.add_column(name, justify="left" if name == columns[0] else "right")
    places = [told.header.index(name) for name in columns]
    for row in told.rows:
        table.add_row(*(row[k] for k in places))
    return table
