"""The page's part on what goes between processes: its table, and the figures that goals ask for."""

from __future__ import annotations

import statistics
from collections.abc import Callable

from bench import figures
from bench.context import Record, only
from bench.figures import Results
from bench.markdown import number, paragraphs, table
from leashed.base.table import MISSING


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
            number(1e6 * record["shared_seconds"]) if "shared_seconds" in record else MISSING,
            f"{record['shared_ratio']:.2f}" if "shared_ratio" in record else MISSING,
        ]
        for record in records
    ]
    return paragraphs(
        "Two processes: frames without checksums of their payload over TCP loopback, and through "
        "shared memory, beside `send` and `recv` on raw sockets that take turns with them. With "
        "both on one processor a round trip is two switches; with one on each it wakes a processor "
        "that sleeps, or, through shared memory, that still looks.",
        table(
            ["", "raw, µs", "frames, µs", "time, ratio", "shared memory, µs", "time, ratio"], lines
        ),
    )


_PEERS = {"gloo": ("Gloo", "ratio"), "mpich": ("MPICH", "ratio_mpich")}
"""By their name in a record: on the page, and where the ratio to them is."""


def _all_reduce(results: Results, figure: str, text: str) -> str:
    records = _records(results, figure)
    if not records:
        return ""
    peers = [peer for peer in _PEERS if any(peer in record for record in records)]

    def against(record: Record, peer: str) -> list[str]:
        if peer not in record:
            return [MISSING, MISSING]
        each = [b / a for a, b in zip(record["seconds"], record[peer], strict=True)]
        return [
            number(1e3 * statistics.median(record[peer])),
            f"{record[_PEERS[peer][1]]:.2f} ({min(each):.2f} to {max(each):.2f})",
        ]

    lines = [
        [
            f"{record['members']} processes, {record['bytes'] / 1e6:g} MB",
            number(1e3 * statistics.median(record["seconds"])),
            *(cell for peer in peers for cell in against(record, peer)),
        ]
        for record in records
    ]
    names = [_PEERS[peer][0] for peer in peers]
    heads = [head for name in names for head in (f"{name}, ms", f"{name} over ring (of the turns)")]
    return paragraphs(text, table(["", "ring, ms", *heads], lines))


def all_reduce(results: Results) -> str:
    """The ring against its peers."""
    return paragraphs(
        _all_reduce(
            results,
            "all-reduce",
            "All-reduce of float32 over TCP loopback: the ring's, and torch.distributed's with "
            "Gloo, a program of each in turns; milliseconds of a round at the first member, medians "
            "of the turns.",
        ),
        _all_reduce(
            results,
            "all-reduce, shared memory",
            "The same through shared memory, beside Gloo, which has TCP only, and MPICH through "
            "mpi4py, which reads the other process's memory itself.",
        ),
    )


def between(results: Results) -> str:
    """Both."""
    return paragraphs(frames(results), all_reduce(results))


def _ratios(results: Results, trips: bool) -> list[float]:
    records = _records(results, "net")
    return [r["ratio"] for r in records if r["work"].startswith("round trip") == trips]


def against(peer: str, figure: str, results: Results) -> float | None:
    """A peer's time over the ring's, the least."""
    ratio = _PEERS[peer][1]
    return min((r[ratio] for r in _records(results, figure) if ratio in r), default=None)


def least_rate(results: Results) -> float | None:
    """Bytes a second in frames over those on raw sockets."""
    return min((1 / ratio for ratio in _ratios(results, trips=False)), default=None)


def longest_trip(results: Results) -> float | None:
    """The time of a round trip in frames over that on raw sockets."""
    return max(_ratios(results, trips=True), default=None)


SECTIONS: dict[str, Callable[[Results], str]] = {"Between processes": between}
PROFILES = {"net": ("Between processes", between)}
"""By the name that goals give: a heading and what is below it."""
