"""Files of the rows that have changed against files of all rows: bytes and time after 1% of the rows
of a table were updated, and after none, which is the scan over the rows' headers.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import leashed as lsh
from bench import figures
from bench.context import Bench, Record
from bench.figures import Results
from bench.markdown import number, table
from bench.section import Goal

PLACE, TITLE = 260, "Incremental checkpoints"

_ROWS, _DIM = 1_000_000, 16
_ROUNDS = 7
_PERCENT = 1


def _seconds(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def _made(kind: str, rows: int) -> tuple[lsh.Table, int]:
    """A table of about so many rows, and the number of ids that have come, 0 to that."""
    size: dict[str, dict[str, Any]] = {
        "fixed": {"rows": rows},
        "growing": {"max_bytes": 400 * rows},
        "evicting": {"max_bytes": 250 * rows, "evict": "age"},
    }
    table = lsh.Table(dim=_DIM, rule=lsh.Adagrad(0.05), **size[kind])
    ids = rows if kind != "evicting" else table.statistics()["capacity"] * 5 // 4
    for part in np.array_split(np.arange(ids), max(1, ids // 20_000)):
        table.update(part, np.ones((len(part), _DIM), np.float32))
    return table, ids


def _ids(table: lsh.Table) -> NDArray[np.int64]:
    """Those that have a row since they have come."""
    ids = table.ids()
    return ids[ids >= 0]


def measure(bench: Bench) -> list[dict[str, Any]]:
    """A record of each kind of table. Where rows are evicted, half of those that change are of new
    ids, which take the place of others.
    """
    found = []
    for kind in KINDS:
        table, come = _made(kind, bench.times(_ROWS, least=20_000))
        rng = np.random.default_rng(1)
        live = _ids(table)
        count = len(live) * _PERCENT // 100
        seconds: dict[str, list[float]] = {"all": [], "changes": [], "scan": []}
        with tempfile.TemporaryDirectory() as folder:
            path = {what: Path(folder) / what for what in seconds}
            for _ in range(bench.times(_ROUNDS)):
                seconds["all"].append(_seconds(lambda: table.save_tracked(path["all"])))  # noqa: B023
                new = np.arange(come, come + count // 2) if kind == "evicting" else live[:0]
                come += len(new)
                known = rng.choice(_ids(table), count - len(new), replace=False)
                some = np.concatenate([known, new])
                table.update(some, np.ones((len(some), _DIM), np.float32))
                for what in ("changes", "scan"):
                    seconds[what].append(_seconds(lambda: table.save_changes(path[what])))  # noqa: B023
            bytes_of = {what: file.stat().st_size for what, file in path.items()}
        found.append({"figure": kind, "rows": len(live), "seconds": seconds, "bytes": bytes_of})
    return found


KINDS = ("fixed", "growing", "evicting")


def _median(record: Record, what: str) -> float:
    return statistics.median(record["seconds"][what])


def _bytes(record: Record) -> float:
    return float(100 * record["bytes"]["changes"] / record["bytes"]["all"])


def _time(record: Record) -> float:
    beside_scan = _median(record, "changes") - _median(record, "scan")
    return 100 * beside_scan / _median(record, "all")


def bytes_share(kind: str, results: Results) -> float | None:
    """Of a file of all rows, in percent."""
    found = figures.one(results, "increments", kind)
    return None if found is None else _bytes(found)


def time_share(kind: str, results: Results) -> float | None:
    """Beside the scan, of what writing all rows takes, in percent."""
    found = figures.one(results, "increments", kind)
    return None if found is None else _time(found)


def words(results: Results) -> str:
    """Bytes and times by kind of table."""
    rows = [
        [
            record["figure"],
            f"{record['rows']:,}",
            *(f"{number(1000 * _median(record, what))} ms" for what in ("all", "changes", "scan")),
            f"{number(_bytes(record))}%",
            f"{number(_time(record))}%",
        ]
        for record in figures.records(results, "increments")
    ]
    head = ["table", "rows", "all rows", "1% changed", "none changed: the scan"]
    return table([*head, "bytes", "time beside the scan"], rows) if rows else ""


GOALS = [
    Goal(
        f"1% of the rows changed, {kind} table: {what}",
        3.0,
        partial(share, kind),
        least=False,
        unit="%",
    )
    for kind in KINDS
    for what, share in (
        ("bytes of all rows'", bytes_share),
        ("time of all rows', beside the scan", time_share),
    )
]
