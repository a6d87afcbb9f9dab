"""The page's part on modes on threads: its tables, and the figures that goals ask for."""

from __future__ import annotations

import statistics
from collections.abc import Callable

from bench import figures
from bench.context import Record, only
from bench.figures import Results
from bench.markdown import count, number, paragraphs, table


def _records(results: Results, **wanted: object) -> list[Record]:
    return only(figures.figures(results, "modes") or [], **wanted)


def least_rate(results: Results) -> float | None:
    """Millions of pushes of 1 kB per second, of the mode that does fewest."""
    rates = [float(record["rate"]) for record in _records(results, figure="push")]
    return min(rates) / 1e6 if rates else None


def ratio(mode: str, results: Results) -> float | None:
    """Examples per second with a mode over those of the discipline beside it: the turns' median."""
    found = _records(results, figure="training", mode=mode)
    return _ratio(found[0]) if found else None


def _ratio(record: Record) -> float:
    rate = record["rate"]
    pairs = zip(rate["mode"], rate["discipline"], strict=True)
    return statistics.median(mode / discipline for mode, discipline in pairs)


def _pushes(results: Results) -> str:
    pushes = {record["mode"]: record for record in _records(results, figure="push")}
    if not pushes:
        return ""
    decisions = _records(results, figure="decision")
    counts = list(dict.fromkeys(record["workers"] for record in decisions))
    rows = []
    for mode in dict.fromkeys(record["mode"] for record in decisions):
        times = [only(decisions, mode=mode, workers=n)[0]["rate"] for n in counts]
        line = [mode, *(number(1e9 / rate) for rate in times)]
        rows.append([*line, number(1e9 / pushes[mode]["rate"]) if mode in pushes else ""])
    workers = next(iter(pushes.values()))["workers"]
    return paragraphs(
        "One thread plays all workers: nanoseconds for what a mode decides about a push and the "
        "pull after it, and for all of it where the push is 1 kB: the lock, what is held and summed, "
        "the update, the grant.",
        table(
            [
                "",
                *(f"decision, {count(n, 'worker')}" for n in counts),
                f"all of it, {count(workers, 'worker')}",
            ],
            rows,
        ),
    )


def _training(results: Results) -> str:
    records = _records(results, figure="training")
    if not records:
        return ""
    rows = [
        [
            f"{record['mode']}, over {record['discipline']}",
            *(f"{statistics.median(record['rate'][who]):,.0f}" for who in ("mode", "discipline")),
            *(
                f"{statistics.median(record['cpu_share'][who]):.2f}"
                for who in ("mode", "discipline")
            ),
            f"{_ratio(record):.3f}",
        ]
        for record in records
    ]
    first = records[0]
    return paragraphs(
        f"Training an MLP of 784-128-10, batch {first['batch_size']}, "
        f"{count(first['threads'], 'thread')}, in turns ({len(first['rate']['mode'])} each):",
        table(
            ["", "examples/s", "the discipline's", "CPU share", "the discipline's", "ratio"], rows
        ),
    )


def words(results: Results) -> str:
    """All of it."""
    return paragraphs(_pushes(results), _training(results))


SECTIONS: dict[str, Callable[[Results], str]] = {"Modes on threads": words}
PROFILES = {"modes": ("Modes on threads", words)}
"""By the name that goals give: a heading and what is below it."""
