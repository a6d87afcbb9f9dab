"""The page's part on files of changed rows, and the figures that goals ask for."""

from __future__ import annotations

import statistics

from bench import figures
from bench.context import Record, only
from bench.figures import Results
from bench.markdown import number, table

KINDS = ("fixed", "growing", "evicting")


def _median(record: Record, what: str) -> float:
    return statistics.median(record["seconds"][what])


def _bytes(record: Record) -> float:
    return float(100 * record["bytes"]["changes"] / record["bytes"]["all"])


def _time(record: Record) -> float:
    beside_scan = _median(record, "changes") - _median(record, "scan")
    return 100 * beside_scan / _median(record, "all")


def _of(kind: str, results: Results) -> Record | None:
    found = only(figures.figures(results, "increments") or [], figure=kind)
    return found[0] if found else None


def bytes_share(kind: str, results: Results) -> float | None:
    """Of a file of all rows, in percent."""
    found = _of(kind, results)
    return None if found is None else _bytes(found)


def time_share(kind: str, results: Results) -> float | None:
    """Beside the scan, of what writing all rows takes, in percent."""
    found = _of(kind, results)
    return None if found is None else _time(found)


def increments(results: Results) -> str:
    """Bytes and times by kind of table."""
    rows = [
        [
            record["figure"],
            f"{record['rows']:,}",
            *(f"{number(1000 * _median(record, what))} ms" for what in ("all", "changes", "scan")),
            f"{number(_bytes(record))}%",
            f"{number(_time(record))}%",
        ]
        for record in figures.figures(results, "increments") or []
    ]
    head = ["table", "rows", "all rows", "1% changed", "none changed: the scan"]
    return table([*head, "bytes", "time beside the scan"], rows) if rows else ""


SECTIONS = {"Incremental checkpoints": increments}
PROFILES = {"increments": ("Incremental checkpoints", increments)}
