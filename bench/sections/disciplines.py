"""What a discipline costs on the MLP: with one thread against Sequential, each turn right after one
of Sequential; and with all threads where its time goes.
"""

from __future__ import annotations

from typing import Any

import leashed
from bench.contenders import DISCIPLINES
from bench.context import BATCHES, Bench, Record
from bench.networks import NETWORKS
from bench.turns import Turn, timed

COMPARED = (64, 512)  # batch sizes
_SECONDS = 0.25
_ROUNDS = 9
_BREAKDOWN_SECONDS = 1.0


def measure(bench: Bench) -> dict[str, list[Record]]:
    """``one_thread``: rates of every turn beside Sequential's; ``all_threads``: a run each."""
    return {
        "one_thread": [
            _beside_sequential(bench, name, batch_size)
            for batch_size in COMPARED
            for name in DISCIPLINES
            if name != "SEQ"
        ],
        "all_threads": [
            _breakdown(bench, name, batch_size) for batch_size in BATCHES for name in DISCIPLINES
        ],
    }


def _train(
    bench: Bench, name: str, threads: int, batch_size: int, seconds: float
) -> leashed.TrainResult:
    return leashed.train(
        NETWORKS["MLP"],
        bench.data,
        until=leashed.until(seconds=seconds),
        discipline=DISCIPLINES[name],
        rule=leashed.SGD(0.01),
        threads=threads,
        batch_size=batch_size,
        observe=leashed.Observe(every=1e6),
    )


def _beside_sequential(bench: Bench, name: str, batch_size: int) -> Record:
    def turn(which: str) -> Turn:
        seconds = bench.seconds(_SECONDS, least=0.05)
        return timed(lambda: _train(bench, which, 1, batch_size, seconds).mean_eps, 1)

    turns: dict[str, list[Turn]] = {"SEQ": [], name: []}
    for _ in range(bench.times(_ROUNDS, least=3)):
        for which, played in turns.items():
            played.append(turn(which))
    return {
        "discipline": name,
        "batch_size": batch_size,
        "eps": [round(t.eps, 1) for t in turns[name]],
        "cpu_share": [round(t.cpu_share, 3) for t in turns[name]],
        "sequential_eps": [round(t.eps, 1) for t in turns["SEQ"]],
        "sequential_cpu_share": [round(t.cpu_share, 3) for t in turns["SEQ"]],
    }


def _breakdown(bench: Bench, name: str, batch_size: int) -> Record:
    threads = 1 if name == "SEQ" else bench.threads
    shown: list[Any] = []

    def run() -> float:
        shown.append(
            _train(bench, name, threads, batch_size, bench.seconds(_BREAKDOWN_SECONDS, least=0.1))
        )
        return float(shown[0].mean_eps)

    turn = timed(run, threads)
    result: leashed.TrainResult = shown[0]
    return {
        "discipline": name,
        "batch_size": batch_size,
        "threads": threads,
        "eps": turn.eps,
        "cpu_share": turn.cpu_share,
        "updates": result.total_updates,
        "gradients": result.gradients,
        "staleness": result.staleness.mean() if result.total_updates else 0.0,
        "breakdown": result.breakdown,
    }
