"""A run while it goes on, in the terminal (extra ``view``)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from types import TracebackType
from typing import Any

from leashed.cluster.history import present
from leashed.cluster.measures import counted, pulse
from leashed.report.table import duration, mebibytes, number

try:
    from rich.console import Console, Group
    from rich.live import Live
    from rich.table import Table
    from rich.text import Text
except ImportError as error:
    raise ImportError("the view needs rich: pip install leashed[view]") from error

__all__ = ["View"]

_HEADER = ("trainer", "examples", "EPS", "sync gap", "syncs/s", "out/s", "in/s", "staleness")


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
        self._before: Mapping[str, Any] | None = None

    def __enter__(self) -> View:  # noqa: PYI034 (Self is of Python 3.11)
        self._live.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._live.stop()

    def __call__(self, report: Mapping[str, Any]) -> None:
        """Show a report, in the layout of run.json."""
        if self._before is not None and report["seconds"] <= self._before["seconds"]:
            return
        self._live.update(_drawn(report, self._before), refresh=True)
        self._before = report


def _drawn(report: Mapping[str, Any], before: Mapping[str, Any] | None) -> Group:
    table = Table(box=None, pad_edge=False)
    for name in _HEADER:
        table.add_column(name, justify="left" if name == "trainer" else "right")
    trainers = counted(report, "trainer")
    for index, measures in pulse(report, before).items():
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
    return Group(Text(head), table)
