"""What goes between processes of one machine: frames over TCP loopback beside raw sockets in the same
turns, and all-reduce over the ring, over TCP loopback and through shared memory, beside
torch.distributed's Gloo and MPICH, one after the other in turns.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

from bench import figures
from bench.context import Bench, Record, installed
from bench.figures import Results
from bench.markdown import number, paragraphs, table
from bench.section import Goal
from leashed.base.table import MISSING

PLACE, TITLE = 180, "Between processes"

_SECONDS = 1.0
_MEMBERS = (2, 4)
_ROUNDS = {540_000: 1000, 100_000_000: 9}  # by bytes
_TURNS = 7


def measure(bench: Bench) -> list[Record]:
    """A record for each kind of work of frames, both processes on one processor and on two; and one for
    each way, number of members and bytes: ``seconds`` and the peers' of its turns.
    """
    frames = bench.run("bench_net", bench.seconds(_SECONDS))
    return frames + [
        record for members in _MEMBERS for size in _ROUNDS for record in _sums(bench, members, size)
    ]


def _sums(bench: Bench, members: int, size: int) -> list[Record]:
    arguments = (members, size, _ROUNDS[size])
    contenders: dict[str, Callable[[], float]] = {
        way: lambda way=way: bench.run("bench_ring", *arguments, way)[0]["seconds"]  # type: ignore[misc]
        for way in ("tcp", "shm")
    }
    if installed("torch"):
        contenders["gloo"] = lambda: _gloo(*arguments)
    if installed("mpi4py"):
        contenders["mpich"] = lambda: _mpich(*arguments)
    turns = [
        {name: run() for name, run in contenders.items()}
        for _ in range(bench.times(_TURNS, least=2))
    ]

    def record(figure: str, way: str, peers: tuple[str, ...]) -> Record:
        peers = tuple(peer for peer in peers if peer in contenders)
        record: Record = {"figure": figure, "members": members, "bytes": size}
        record["seconds"] = [turn[way] for turn in turns]
        record |= {peer: [turn[peer] for turn in turns] for peer in peers}
        for peer in peers:
            ratio = statistics.median(turn[peer] / turn[way] for turn in turns)
            record["ratio" if peer == "gloo" else f"ratio_{peer}"] = ratio
        return record

    return [
        record("all-reduce", "tcp", ("gloo",)),
        record("all-reduce, shared memory", "shm", ("gloo", "mpich")),
    ]


def _seconds(*command: str, **environment: str) -> float:
    out = subprocess.run(
        command,
        env={**os.environ, **environment},
        check=True,
        stdout=subprocess.PIPE,
        encoding="utf-8",
    ).stdout
    return float(json.loads(out.splitlines()[-1])["seconds"])


def _gloo(*arguments: int) -> float:
    return _seconds(
        sys.executable, "-m", "bench.gloo", *map(str, arguments), GLOO_SOCKET_IFNAME="lo"
    )


def _mpich(members: int, *arguments: int) -> float:
    start = (str(Path(sys.executable).with_name("mpiexec")), "-n", str(members))
    return _seconds(*start, sys.executable, "-m", "bench.mpich", *map(str, arguments))


def frames(results: Results) -> str:
    """Frames against raw sockets."""
    records = figures.records(results, "net", figure="net")
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


def _all_reduce(results: Results, figure: str, text: str) -> str:
    records = figures.records(results, "net", figure=figure)
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


def words(results: Results) -> str:
    """Both."""
    return paragraphs(frames(results), all_reduce(results))


def _ratios(results: Results, trips: bool) -> list[float]:
    records = figures.records(results, "net", figure="net")
    return [r["ratio"] for r in records if r["work"].startswith("round trip") == trips]


def against(peer: str, figure: str, results: Results) -> float | None:
    """A peer's time over the ring's, the least."""
    ratio = _PEERS[peer][1]
    return min(
        (r[ratio] for r in figures.records(results, "net", figure=figure) if ratio in r),
        default=None,
    )


def least_rate(results: Results) -> float | None:
    """Bytes a second in frames over those on raw sockets."""
    return min((1 / ratio for ratio in _ratios(results, trips=False)), default=None)


def longest_trip(results: Results) -> float | None:
    """The time of a round trip in frames over that on raw sockets."""
    return max(_ratios(results, trips=True), default=None)


GOALS = (
    Goal(
        "frames over TCP loopback, 540 KB and 100 MB, bytes/s over raw sockets', least",
        0.85,
        least_rate,
    ),
    Goal(
        "frames over TCP loopback, round trip of 64 bytes, time over raw sockets', most",
        1.5,
        longest_trip,
        least=False,
    ),
    Goal(
        "all-reduce over TCP loopback, 540 KB and 100 MB, 2 and 4 processes, over Gloo, least",
        1.0,
        partial(against, "gloo", "all-reduce"),
        unit="×",
    ),
    *(
        Goal(
            f"all-reduce through shared memory, the same work, over {name}, least",
            1.0,
            partial(against, peer, "all-reduce, shared memory"),
            unit="×",
        )
        for peer, (name, _) in _PEERS.items()
    ),
)
