"""The page's part on metrics while training: what goals ask for, and what it costs."""

from __future__ import annotations

import statistics
from collections.abc import Callable

from bench import figures
from bench.context import Record, only
from bench.figures import Results
from bench.markdown import count, number, paragraphs, table


def _records(results: Results, **wanted: object) -> list[Record]:
    return only(figures.figures(results, "counting") or [], **wanted)


def _ratio(record: Record, name: str) -> float:
    """Examples per second with it over those without: the turns' median."""
    rate = record["rate"]
    return statistics.median(
        counted / plain for counted, plain in zip(rate[name], rate["without"], strict=True)
    )


def rate(results: Results) -> float | None:
    """Of DLRM with metrics, over without."""
    found = _records(results, figure="DLRM")
    return _ratio(found[0], "with") if found else None


def words(results: Results) -> str:
    """All of it."""
    found = _records(results)
    if not found:
        return ""
    rows = [
        [record["figure"], *(number(_ratio(record, name)) for name in ("with", "with GAUC"))]
        for record in found
    ]
    return paragraphs(
        f"Examples per second with progressive validation over those without, "
        f"{count(found[0]['threads'], 'thread')}, the median of turns "
        "(logistic regression on sparse rows in place, where an example takes some tens of nanoseconds):",
        table(["", "metrics", "with GAUC"], rows),
    )


SECTIONS: dict[str, Callable[[Results], str]] = {"Metrics while training": words}
PROFILES = {"counting": ("Metrics while training", words)}
"""By the name that goals give: a heading and what is below it."""
