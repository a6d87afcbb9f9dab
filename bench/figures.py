"""What the page says, computed from a file of results."""

from __future__ import annotations

from functools import partial
from typing import Any

from bench.context import Record, only
from bench.turns import QUIET, quiet_median

Results = dict[str, Any]


def figures(results: Results, section: str) -> Any:
    """What a section measured; an empty list where it did not."""
    return results["sections"].get(section, {}).get("figures", [])


def part(results: Results, section: str, name: str) -> list[Record]:
    """A named part of what a section measured."""
    found = figures(results, section)
    records: list[Record] = found[name] if found else []
    return records


def threads(results: Results) -> int:
    """All threads of the machine."""
    count: int = results["machine"]["cores"]
    return count


def disturbed(results: Results) -> tuple[int, int]:
    """How many turns of whole threads got less of the processors than counts as quiet, of all."""
    shares = [
        share
        for records in (
            figures(results, "peers"),
            figures(results, "scaling"),
            part(results, "network", "training"),
            part(results, "disciplines", "one_thread"),
        )
        for record in records
        for share in record["cpu_share"]
    ]
    return sum(share < QUIET for share in shares), len(shares)


def eps(record: Record) -> float:
    """Examples per second of a record with turns."""
    return quiet_median(record["eps"], record["cpu_share"])


def records(results: Results, section: str, **wanted: object) -> list[Record]:
    """Those that have these values, of what a section measured."""
    return only(figures(results, section) or [], **wanted)


def one(results: Results, section: str, figure: str) -> Record | None:
    """The first of a figure; None where there is none."""
    return next(iter(records(results, section, figure=figure)), None)


def rate(record: Record, contender: str) -> float:
    """What a contender did per second."""
    return quiet_median(record["rate"][contender], record["cpu_share"][contender])


def ratio(record: Record, ours: str, theirs: str) -> float:
    """Ours over theirs, turn by turn."""
    return quiet_median(
        [a / b for a, b in zip(record["rate"][ours], record["rate"][theirs], strict=True)],
        record["cpu_share"][ours],
        record["cpu_share"][theirs],
    )


def fastest(record: Record, library: str) -> str:
    """The name of a library's contender that is fastest."""
    return max(
        (name for name in record["rate"] if name.split(",")[0] == library),
        key=partial(rate, record),
    )
