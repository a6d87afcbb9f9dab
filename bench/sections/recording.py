"""What recording a run costs: an update in a loop of its own, and training beside the same unrecorded."""

from __future__ import annotations

from bench.context import Bench, Record

_SECONDS = 2.0
_TURN = 0.4
_TURNS = 25


def measure(bench: Bench) -> list[Record]:
    """A record of the loop, with its bytes, and one of training with all threads."""
    return bench.run(
        "bench_trace",
        bench.threads,
        bench.seconds(_SECONDS),
        bench.seconds(_TURN, least=0.1),
        bench.times(_TURNS, least=3),
    )
