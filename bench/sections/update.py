"""T_u of Leashed against one fused pass over the same memory, and what a read costs."""

from __future__ import annotations

from bench.context import Bench, Record

_SECONDS = 2.0


def measure(bench: Bench) -> list[Record]:
    """A record a length of the parameter vector, and one of read and release."""
    return bench.run("bench_update", bench.seconds(_SECONDS))
