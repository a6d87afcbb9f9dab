"""What a mode costs on threads: pushes of 1 kB to the server under its lock, and training with all
threads beside the discipline that does the same without a server.
"""

from __future__ import annotations

import leashed
from bench.context import Bench, Record
from bench.turns import Turn, record, take_turns, timed

_SECONDS = 0.2  # a figure of pushes
_TURN = 0.4
_ROUNDS = 25
_BATCH = 64
_MODEL = leashed.models.mlp(784, [128], 10)


def measure(bench: Bench) -> list[Record]:
    """Records of decisions and of pushes, and one of training for each pair."""
    return [
        *bench.run("bench_modes", bench.seconds(_SECONDS, least=0.02)),
        _beside(bench, leashed.modes.ASP(), leashed.Hogwild()),
        _beside(bench, leashed.modes.Sync(), leashed.Synchronous()),
    ]


def _beside(bench: Bench, mode: leashed.modes.Mode, discipline: leashed.Discipline) -> Record:
    def turn(**how: leashed.modes.Mode | leashed.Discipline) -> Turn:
        def train() -> float:
            result = leashed.train(
                _MODEL,
                bench.data,
                until=leashed.until(seconds=bench.seconds(_TURN, least=0.1)),
                rule=leashed.SGD(0.01),
                threads=bench.threads,
                batch_size=_BATCH,
                observe=leashed.Observe(every=1e6),
                **how,  # type: ignore[arg-type]
            )
            return float(result.mean_eps)

        return timed(train, bench.threads)

    turns = take_turns(
        {"mode": lambda: turn(mode=mode), "discipline": lambda: turn(discipline=discipline)},
        bench.times(_ROUNDS, least=3),
    )
    return {
        "figure": "training",
        "mode": type(mode).__name__,
        "discipline": type(discipline).__name__,
        "threads": bench.threads,
        "batch_size": _BATCH,
        **record(turns),
    }
