"""What a discipline costs on the MLP: with one thread against Sequential, each turn right after one
of Sequential; and with all threads where its time goes.
"""

from __future__ import annotations

from typing import Any

import leashed
from bench import figures
from bench.charts import Bars
from bench.contenders import DISCIPLINES
from bench.context import BATCHES, Bench, Record, only
from bench.figures import Results
from bench.markdown import count, number, paragraphs, table
from bench.networks import NETWORKS
from bench.section import Goal, Parts
from bench.sections.ceilings import copies
from bench.turns import Turn, quiet_median, timed
from leashed.base.table import MISSING

PLACE, TITLE = 50, "Where the time goes"

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


def discipline_ratio(record: Record) -> float:
    """A discipline's examples per second over Sequential's, turn by turn."""
    return quiet_median(
        [a / b for a, b in zip(record["eps"], record["sequential_eps"], strict=True)],
        record["cpu_share"],
        record["sequential_cpu_share"],
    )


_PARTS = ("gradient", "update", "read", "sampling", "waiting", "rest")


def words(results: Results) -> Parts:
    records = figures.part(results, "disciplines", "all_threads")
    if not records:
        return ()
    one = figures.part(results, "disciplines", "one_thread")
    names = [f"{r['discipline']}, batch {r['batch_size']}" for r in records]
    shares = {
        name: [r["breakdown"][name] / sum(r["breakdown"].values()) for r in records]
        for name in _PARTS
    }
    chart = Bars(
        "disciplines",
        f"Where the time goes, MLP, {count(figures.threads(results), 'thread')} (SEQ: 1)",
        names,
        shares,
        "share of all threads' time",
        stacked=True,
    )
    rows = []
    for k, record in enumerate(records):
        alone = only(one, discipline=record["discipline"], batch_size=record["batch_size"])
        rows.append(
            [
                names[k],
                f"{record['eps']:,.0f}",
                f"{record['cpu_share']:.2f}",
                *(f"{100.0 * shares[name][k]:.1f}" for name in _PARTS),
                number(record["staleness"]),
                f"{discipline_ratio(alone[0]):.3f}" if alone else MISSING,
            ]
        )
    head = [
        "",
        "examples/s",
        "CPU share",
        *(f"{name}, %" for name in _PARTS),
        "staleness",
        "1 thread, over SEQ",
    ]
    return chart, table(head, rows)


def _least(results: Results) -> float | None:
    records = figures.part(results, "disciplines", "one_thread")
    return min(map(discipline_ratio, records), default=None)


def profile(results: Results) -> str:
    """What a step costs beyond Sequential's."""
    rows = []
    for record in figures.part(results, "disciplines", "one_thread"):
        sequential = quiet_median(record["sequential_eps"], record["sequential_cpu_share"])
        ratio = discipline_ratio(record)
        extra = record["batch_size"] / sequential * (1.0 / ratio - 1.0)
        rows.append(
            [
                f"{record['discipline']}, batch {record['batch_size']}",
                f"{ratio:.3f}",
                number(record["batch_size"] / sequential * 1e6),
                number(extra * 1e6),
            ]
        )
    d = NETWORKS["MLP"].dimension
    return paragraphs(
        table(["", "EPS over SEQ's", "SEQ's step, µs", "extra a step, µs"], rows),
        f"SEQ reads and writes θ in place: {number(12e-3 * d)} kB an update. ASYNC and HOG copy θ "
        f"before every gradient: {number(8e-3 * d)} kB more. Leashed writes a third buffer in "
        "place of θ: no byte more, but one buffer more to keep in the caches. Copies here reach: "
        f"{copies(results)}.",
    )


GOALS = (Goal("any discipline, 1 thread, batches 64 and 512, EPS over Sequential's", 0.97, _least),)
PROFILES = {"What a discipline costs": profile}
