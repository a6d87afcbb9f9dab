"""The page's part on keeping trainers in sync: its tables, and the figures that goals ask for."""

from __future__ import annotations

import statistics
from collections.abc import Callable

from bench import figures
from bench.context import Record, only
from bench.figures import Results
from bench.markdown import number, paragraphs, table
from leashed.base.table import MISSING

_NAMES = {
    "background": "in the background, link limited, a processor free for it",
    "hung": "a sync server that accepts and never answers",
    "slow": "a sync server behind 2 MB/s",
}


def _records(results: Results, **wanted: object) -> list[Record]:
    return only(figures.figures(results, "synchronisation") or [], **wanted)


def _gap(gaps: list[float | None]) -> str:
    known = [gap for gap in gaps if gap is not None]
    return number(statistics.median(known)) if known else MISSING


def cost(results: Results) -> str:
    """Pairs of runs with and without it."""
    rows = []
    for figure, name in _NAMES.items():
        for record in _records(results, figure=figure):
            mean, low, high = record["ratio"]
            pairs = len(record["eps"]["with"])
            rows.append(
                [name, str(pairs), f"{mean:.4f} ({low:.4f} to {high:.4f})", _gap(record["gaps"])]
            )
    if not rows:
        return ""
    return paragraphs(
        "One trainer with one worker and S-EASGD, beside the same without it: examples per second "
        "over those of the run next to it, mean of the pairs and its 95% interval.",
        table(["", "pairs", "EPS, ratio (95%)", "sync gap"], rows),
    )


def same_work(results: Results) -> str:
    """CPU seconds and what is dropped."""
    rows = []
    for record in _records(results, figure="same work"):
        medians = [
            number(statistics.median(record[name]))
            for name in ("eps", "cpu_seconds", "server_cpu_seconds")
        ]
        dropped = sum(record["dropped"]) / sum(record["gradients"])
        lost = sum(record["dropped_for_sync"]) / sum(record["gradients"])
        rows.append([record["way"], *medians, _gap(record["gap"]), f"{dropped:.3%}", f"{lost:.3%}"])
    if not rows:
        return ""
    return paragraphs(
        "All processors train, and the link has no limit: the same batches under Leashed with T_p = 0, "
        "in the background as often as it goes, in the foreground as often, and without "
        "synchronisation. Medians of the turns.",
        table(
            [
                "",
                "examples/s",
                "CPU, s",
                "sync server's CPU, s",
                "sync gap",
                "gradients dropped",
                "for it",
            ],
            rows,
        ),
    )


def exchanges(results: Results) -> str:
    """Exchanges against a raw loop."""
    rows = [
        [
            f"{record['bytes'] / 1e6:g} MB",
            str(record["processors"]),
            number(1e3 * record["raw_seconds"]),
            number(1e3 * record["seconds"]),
            f"{record['ratio']:.2f}",
        ]
        for record in _records(results, figure="exchange")
    ]
    if not rows:
        return ""
    return paragraphs(
        "A vector pushed to a sync server and pulled from it, mixed there, between two processes over "
        "TCP loopback, beside a raw loop in turns that moves as many bytes both ways.",
        table(["", "processors", "raw, ms", "exchange, ms", "bytes/s, ratio"], rows),
    )


def synchronisation(results: Results) -> str:
    """All of it."""
    return paragraphs(cost(results), same_work(results), exchanges(results))


def loss(results: Results) -> float | None:
    """Of examples per second by the background's synchronisation: the upper end of its interval."""
    found = _records(results, figure="background")
    return 1.0 - float(found[0]["ratio"][1]) if found else None


def faulty(results: Results) -> float | None:
    """What a hung or slow sync server changes examples per second by, at most: the farther end of
    either interval.
    """
    found = [record for name in ("hung", "slow") for record in _records(results, figure=name)]
    return max((abs(end - 1.0) for r in found for end in r["ratio"][1:]), default=None)


def least_exchange(results: Results) -> float | None:
    """Bytes per second of exchanges over the raw loop's, each side with a processor: the least."""
    found = _records(results, figure="exchange", processors=2)
    return min((record["ratio"] for record in found), default=None)


SECTIONS: dict[str, Callable[[Results], str]] = {"Synchronisation": synchronisation}
PROFILES = {"synchronisation": ("Synchronisation", synchronisation)}
"""By the name that goals give: a heading and what is below it."""
