"""The page's part on what goes between processes: its table, and the figures that goals ask for."""

from __future__ import annotations

from collections.abc import Callable

from bench import figures
from bench.figures import Results
from bench.markdown import number, paragraphs, table


def frames(results: Results) -> str:
    """Frames against raw sockets."""
    records = figures.figures(results, "net") or []
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


def _ratios(results: Results, trips: bool) -> list[float]:
    records = figures.figures(results, "net") or []
    return [r["ratio"] for r in records if r["work"].startswith("round trip") == trips]


def least_rate(results: Results) -> float | None:
    """Bytes a second in frames over those on raw sockets."""
    return min((1 / ratio for ratio in _ratios(results, trips=False)), default=None)


def longest_trip(results: Results) -> float | None:
    """The time of a round trip in frames over that on raw sockets."""
    return max(_ratios(results, trips=True), default=None)


SECTIONS: dict[str, Callable[[Results], str]] = {"Between processes": frames}
PROFILES = {"net": ("Frames", frames)}
"""By the name that goals give: a heading and what is below it."""
