"""Frames between two processes over TCP loopback beside raw sockets, in the same turns."""

from __future__ import annotations

from bench.context import Bench, Record

_SECONDS = 1.0


def measure(bench: Bench) -> list[Record]:
    """A record for each kind of work, with both processes on one processor and on two."""
    return bench.run("bench_net", bench.seconds(_SECONDS))
