"""The page's part on virtual time: what goals ask for, and where its time goes."""

from __future__ import annotations

from collections.abc import Callable

from bench import figures
from bench.context import Record, only
from bench.figures import Results
from bench.markdown import number, paragraphs, thousands
from bench.turns import quiet_median


def _one(results: Results) -> Record | None:
    found = only(figures.figures(results, "virtual"), figure="asp")
    return found[0] if found else None


def _rate(found: Record, name: str) -> float:
    return quiet_median(found["rate"][name], found["cpu_share"][name])


def rate(results: Results) -> float | None:
    """Examples per second over those of the sequential loop."""
    found = _one(results)
    return None if found is None else _rate(found, "virtual") / _rate(found, "sequential")


def gigabytes(results: Results) -> float | None:
    """Of the process, at most."""
    found = _one(results)
    return None if found is None else float(found["peak_bytes"]) / 1e9


def words(results: Results) -> str:
    """All of it."""
    found = _one(results)
    if found is None:
        return ""
    staleness = found["rows"]["staleness"] / found["rows"]["applied"]
    return paragraphs(
        f"DLRM of 26 tables of 10,000 × 16, Adagrad, batch {found['batch']}: {found['workers']:,} "
        f"asynchronous workers in virtual time make {thousands(_rate(found, 'virtual'))} examples "
        f"per second, the sequential loop, with which they take turns "
        f"({len(found['rate']['virtual'])} each), {thousands(_rate(found, 'sequential'))}. "
        f"{number(found['peak_bytes'] / 1e9)} GB at most. A row's update is stale by "
        f"{number(staleness)} of its own in the mean.",
    )


SECTIONS: dict[str, Callable[[Results], str]] = {"Virtual time": words}
PROFILES = {"virtual": ("Virtual time", words)}
"""By the name that goals give: a heading and what is below it."""
