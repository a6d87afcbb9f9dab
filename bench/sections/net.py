"""What goes between processes over TCP loopback: frames beside raw sockets in the same turns, and
all-reduce over the ring beside torch.distributed's Gloo, one after the other in turns.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys

from bench.context import Bench, Record, installed

_SECONDS = 1.0
_MEMBERS = (2, 4)
_ROUNDS = {540_000: 200, 100_000_000: 9}  # by bytes
_TURNS = 7


def measure(bench: Bench) -> list[Record]:
    """A record for each kind of work of frames, both processes on one processor and on two; and one for
    each number of members and bytes: ``seconds`` and ``gloo`` of its turns.
    """
    frames = bench.run("bench_net", bench.seconds(_SECONDS))
    return frames + [_all_reduce(bench, members, size) for members in _MEMBERS for size in _ROUNDS]


def _all_reduce(bench: Bench, members: int, size: int) -> Record:
    arguments = (members, size, _ROUNDS[size])
    ours: list[float] = []
    gloo: list[float] = []
    for _ in range(bench.times(_TURNS, least=2)):
        ours += [r["seconds"] for r in bench.run("bench_ring", *arguments)]
        if installed("torch"):
            gloo.append(_gloo(*arguments))
    record: Record = {"figure": "all-reduce", "members": members, "bytes": size, "seconds": ours}
    if gloo:
        record["gloo"] = gloo
        record["ratio"] = statistics.median(b / a for a, b in zip(ours, gloo, strict=True))
    return record


def _gloo(*arguments: int) -> float:
    out = subprocess.run(
        [sys.executable, "-m", "bench.gloo", *map(str, arguments)],
        env={**os.environ, "GLOO_SOCKET_IFNAME": "lo"},
        check=True,
        stdout=subprocess.PIPE,
        encoding="utf-8",
    ).stdout
    return float(json.loads(out.splitlines()[-1])["seconds"])
