"""Virtual time: DLRM by 3,000 asynchronous workers beside the plain sequential loop.

Both take turns in one process, in which nothing else is kept, so that its peak is the
simulation's. What a run takes before its workers have begun and behind their last update, of which
evaluations are most, is left out: of a long run and a short one the difference counts.
"""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

from bench import figures
from bench.context import Bench, Record
from bench.figures import Results
from bench.markdown import number, paragraphs, thousands
from bench.section import Goal

PLACE, TITLE = 240, "Virtual time"

_WORKERS = 3000
_SECONDS = 5.0  # of a turn
_ROUNDS = 3


def measure(bench: Bench) -> list[dict[str, Any]]:
    """One record, with the turns of both and the peak of memory."""
    command = [sys.executable, "-m", "bench.virtual_dlrm", str(_WORKERS)]
    seconds, rounds = bench.seconds(_SECONDS, least=0.5), bench.times(_ROUNDS)
    told = subprocess.run(
        [*command, str(seconds), str(rounds)], check=True, stdout=subprocess.PIPE, encoding="utf-8"
    ).stdout
    return [json.loads(told)]


def _one(results: Results) -> Record | None:
    return figures.one(results, "virtual", "asp")


def rate(results: Results) -> float | None:
    """Examples per second over those of the sequential loop."""
    found = _one(results)
    return (
        None
        if found is None
        else figures.rate(found, "virtual") / figures.rate(found, "sequential")
    )


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
        f"asynchronous workers in virtual time make {thousands(figures.rate(found, 'virtual'))} examples "
        f"per second, the sequential loop, with which they take turns "
        f"({len(found['rate']['virtual'])} each), {thousands(figures.rate(found, 'sequential'))}. "
        f"{number(found['peak_bytes'] / 1e9)} GB at most. A row's update is stale by "
        f"{number(staleness)} of its own in the mean.",
    )


GOALS = (
    Goal(
        "DLRM by 3,000 asynchronous workers in virtual time, EPS over the sequential loop's",
        0.8,
        rate,
    ),
    Goal("memory of it", 2.0, gigabytes, least=False, unit=" GB"),
)
