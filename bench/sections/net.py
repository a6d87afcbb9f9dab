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
from pathlib import Path

from bench.context import Bench, Record, installed

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
