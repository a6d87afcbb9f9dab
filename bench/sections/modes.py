"""What a mode costs on threads: pushes of 1 kB to the server under its lock, and training with all
threads beside the discipline that does the same without a server.
"""

from __future__ import annotations

import statistics
from functools import partial

import leashed
from bench import figures
from bench.context import Bench, Record, only
from bench.figures import Results
from bench.markdown import count, number, paragraphs, table
from bench.section import Goal
from bench.turns import Turn, record, take_turns, timed

PLACE, TITLE = 230, "Modes on threads"

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


def least_rate(results: Results) -> float | None:
    """Millions of pushes of 1 kB per second, of the mode that does fewest."""
    rates = [float(record["rate"]) for record in figures.records(results, "modes", figure="push")]
    return min(rates) / 1e6 if rates else None


def ratio(mode: str, results: Results) -> float | None:
    """Examples per second with a mode over those of the discipline beside it: the turns' median."""
    found = figures.records(results, "modes", figure="training", mode=mode)
    return _ratio(found[0]) if found else None


def _ratio(record: Record) -> float:
    rate = record["rate"]
    pairs = zip(rate["mode"], rate["discipline"], strict=True)
    return statistics.median(mode / discipline for mode, discipline in pairs)


def _pushes(results: Results) -> str:
    pushes = {record["mode"]: record for record in figures.records(results, "modes", figure="push")}
    if not pushes:
        return ""
    decisions = figures.records(results, "modes", figure="decision")
    counts = list(dict.fromkeys(r["workers"] for r in decisions))
    rows = []
    for mode in dict.fromkeys(r["mode"] for r in decisions):
        times = [only(decisions, mode=mode, workers=n)[0]["rate"] for n in counts]
        line = [mode, *(number(1e9 / rate) for rate in times)]
        rows.append([*line, number(1e9 / pushes[mode]["rate"]) if mode in pushes else ""])
    workers = next(iter(pushes.values()))["workers"]
    return paragraphs(
        "One thread plays all workers: nanoseconds for what a mode decides about a push and the "
        "pull after it, and for all of it where the push is 1 kB: the lock, what is held and summed, "
        "the update, the grant.",
        table(
            [
                "",
                *(f"decision, {count(n, 'worker')}" for n in counts),
                f"all of it, {count(workers, 'worker')}",
            ],
            rows,
        ),
    )


def _training(results: Results) -> str:
    records = figures.records(results, "modes", figure="training")
    if not records:
        return ""
    rows = [
        [
            f"{record['mode']}, over {record['discipline']}",
            *(f"{statistics.median(record['rate'][who]):,.0f}" for who in ("mode", "discipline")),
            *(
                f"{statistics.median(record['cpu_share'][who]):.2f}"
                for who in ("mode", "discipline")
            ),
            f"{_ratio(record):.3f}",
        ]
        for record in records
    ]
    first = records[0]
    return paragraphs(
        f"Training an MLP of 784-128-10, batch {first['batch_size']}, "
        f"{count(first['threads'], 'thread')}, in turns ({len(first['rate']['mode'])} each):",
        table(
            ["", "examples/s", "the discipline's", "CPU share", "the discipline's", "ratio"], rows
        ),
    )


def words(results: Results) -> str:
    """All of it."""
    return paragraphs(_pushes(results), _training(results))


GOALS = (
    Goal(
        "a push of 1 kB through the server, one thread, million a second, least of ASP, Sync, GBA",
        1.0,
        least_rate,
    ),
    *(
        Goal(
            f"training with mode={mode}(), MLP, batch 64, all threads, EPS over {discipline}'s",
            0.9,
            partial(ratio, mode),
        )
        for mode, discipline in (("ASP", "Hogwild"), ("Sync", "Synchronous"))
    ),
)
