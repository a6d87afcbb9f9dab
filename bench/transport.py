"""The page's part on what goes between processes: its table, and the figures that goals ask for."""

from __future__ import annotations

import statistics
from collections.abc import Callable

from bench import figures
from bench.context import Record, only
from bench.figures import Results
from bench.markdown import number, paragraphs, table
from leashed.report.table import MISSING


def _records(results: Results, figure: str) -> list[Record]:
    return only(figures.figures(results, "net") or [], figure=figure)


def frames(results: Results) -> str:
    """Frames against raw sockets."""
    records = _records(results, "net")
    if not records:
        return ""
    lines = [
        [
            f"{record['work']}, {'one processor' if record['processors'] == 1 else 'two'}",
            number(1e6 * record["raw_seconds"]),
            number(1e6 * record["seconds"]),
            f"{record['ratio']:.2f}",
        ]
        for record in records
    ]
    return paragraphs(
        "Two processes over TCP loopback: frames without checksums of their payload, beside `send` "
        "and `recv` on raw sockets that take turns with them. With both on one processor a round "
        "trip is two switches; with one on each it wakes a processor that sleeps.",
        table(["", "raw, µs", "frames, µs", "time, ratio"], lines),
    )


def all_reduce(results: Results) -> str:
    """The ring against Gloo."""
    records = _records(results, "all-reduce")
    if not records:
        return ""
    lines = [
        [
            f"{record['members']} processes, {record['bytes'] / 1e6:g} MB",
            number(1e3 * statistics.median(record["seconds"])),
            number(1e3 * statistics.median(record["gloo"])) if "gloo" in record else MISSING,
            f"{record['ratio']:.2f} ({min(each):.2f} to {max(each):.2f})" if each else MISSING,
        ]
        for record in records
        for each in [
            [b / a for a, b in zip(record["seconds"], record.get("gloo", []), strict=False)]
        ]
    ]
    return paragraphs(
        "All-reduce of float32 over TCP loopback: the ring's, and torch.distributed's with Gloo, a "
        "program of each in turns; milliseconds of a round at the first member, medians of the turns.",
        table(["", "ring, ms", "Gloo, ms", "Gloo over ring (of the turns)"], lines),
    )


def between(results: Results) -> str:
    """Both."""
    return paragraphs(frames(results), all_reduce(results))


def _ratios(results: Results, trips: bool) -> list[float]:
    records = _records(results, "net")
    return [r["ratio"] for r in records if r["work"].startswith("round trip") == trips]


def against_gloo(results: Results) -> float | None:
    """Gloo's time over the ring's, the least."""
    records = _records(results, "all-reduce")
    return min((r["ratio"] for r in records if "ratio" in r), default=None)


def least_rate(results: Results) -> float | None:
    """Bytes a second in frames over those on raw sockets."""
    return min((1 / ratio for ratio in _ratios(results, trips=False)), default=None)


def longest_trip(results: Results) -> float | None:
    """The time of a round trip in frames over that on raw sockets."""
    return max(_ratios(results, trips=True), default=None)


SECTIONS: dict[str, Callable[[Results], str]] = {"Between processes": between}
PROFILES = {"net": ("Between processes", between)}
"""By the name that goals give: a heading and what is below it."""
