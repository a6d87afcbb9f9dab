"""What the machine can do at most: multiply-adds and copies, by one thread and by all."""

from __future__ import annotations

from bench.context import Bench, Record

_SECONDS = 1.0


def measure(bench: Bench) -> list[Record]:
    """A record a ceiling and number of threads, with the rate of every turn."""
    return bench.run("bench_ceilings", bench.threads, bench.seconds(_SECONDS))
