"""Factorisation machines on hashed columns against the classical loop of the same rule and threads.

Rows, turns and losses are those of ``sparse``: 39 columns among 2¹⁸, ids by Zipf's law, a pass timed
as the difference of a run of many and one of 1. Both begin at the same parameters, N(0, 0.1) for the
factors, and take the same step for every example: leashed's batches of SGD one so many times as long,
those of Adagrad, which takes a batch's gradient by its own size, are of one row. The loop is compiled
with -O2 and with -O3, since g++ 12's -O3 makes its factors' loops slower.
"""

from __future__ import annotations

import ctypes
import os
import statistics
import subprocess
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import leashed as lsh
from bench import figures
from bench.context import Bench, Record
from bench.figures import Results
from bench.markdown import count, paragraphs, table
from bench.section import Goal
from bench.sections.sparse import (
    DIMENSIONS,
    FEATURES,
    Contender,
    Problem,
    problem,
    rate_and_loss,
    turn,
)
from bench.turns import Turn, record, take_turns

PLACE, TITLE = 150, "Factorisation machines"

K = 8
BATCH = 8
RATES = {"sgd": 0.005, "adagrad": 0.02}  # of an example
_ROWS = 300_000
_ROUNDS = 7
_LOSSES = 5
_PASSES = 6  # of the runs whose loss counts


def loss(p: Problem, w: NDArray[Any], v: NDArray[Any], b: float) -> float:
    """In double precision."""
    x, v = p.x.astype(np.float64), v.astype(np.float64)
    sums, squares = x @ v, x.multiply(x) @ v**2
    margin = x @ w.astype(np.float64) + b + 0.5 * (sums**2 - squares).sum(axis=1)
    return float(np.mean(np.logaddexp(0.0, margin) - p.y * margin))


def leashed(
    p: Problem, rule: lsh.Rule, threads: int, discipline: lsh.Discipline, batch: int
) -> Contender:
    model = lsh.models.fm(DIMENSIONS, K)
    theta = model.init(0)
    data = lsh.SparseDataset.from_csr(p.x, p.y)

    def run(passes: int) -> Callable[[], float]:
        result = lsh.train(
            model,
            data,
            until=lsh.until(epochs=passes),
            discipline=discipline,
            rule=rule,
            threads=threads,
            batch_size=batch,
            init=theta,
            observe=lsh.Observe(every=1e6),
        )
        parts = model.unflatten(result.parameters)
        return lambda: loss(p, parts["weight"], parts["factors"], float(parts["bias"][0]))

    return run


def classical(p: Problem, rule: str, threads: int, folder: Path, level: str) -> Contender:
    library = folder / f"hogwild_fm{level}.so"
    source = Path(__file__).parents[1] / "hogwild_fm.cc"
    compiler = os.environ.get("CXX", "g++")
    flags = [level, "-march=native", "-std=c++20", "-shared", "-fPIC", "-pthread"]
    subprocess.run([compiler, *flags, source, "-o", library], check=True)
    loop = ctypes.CDLL(str(library)).hogwild_fm
    model = lsh.models.fm(DIMENSIONS, K)
    rows = (
        p.x.indptr.astype(np.int64),
        p.x.indices.astype(np.int32),
        p.x.data.astype(np.float32),
        p.y.astype(np.float32),
    )

    def run(passes: int) -> Callable[[], float]:
        parts = model.unflatten(model.init(0))
        w, v = parts["weight"].copy(), parts["factors"].copy()
        b = np.zeros(16, np.float32)
        squares = [np.zeros_like(a) for a in (w, v, b)]
        loop(
            *(ctypes.c_void_p(a.ctypes.data) for a in rows),
            ctypes.c_size_t(len(p.y)),
            *(ctypes.c_void_p(a.ctypes.data) for a in (w, v, b, *squares)),
            ctypes.c_float(RATES[rule]),
            ctypes.c_int(rule == "adagrad"),
            ctypes.c_size_t(passes),
            ctypes.c_size_t(threads),
        )
        return lambda: loss(p, w, v, float(b[0]))

    return run


def contenders(p: Problem, threads: int, folder: Path) -> dict[str, tuple[int, Contender]]:
    """By name, with the threads of each."""
    rules = {
        "sgd": (lsh.SGD(RATES["sgd"] * BATCH), BATCH),
        "adagrad": (lsh.Adagrad(RATES["adagrad"]), 1),
    }
    found: dict[str, tuple[int, Contender]] = {}
    for name, (rule, batch) in rules.items():
        for team, alone in ((threads, ""), (1, ", 1 thread")):
            discipline = lsh.Hogwild() if not alone else lsh.Sequential()
            ours = leashed(p, rule, team, discipline, batch)
            found[f"leashed, {name}{alone}"] = team, ours
            for level in ("-O2", "-O3"):
                loop = classical(p, name, team, folder, level)
                found[f"classical loop, {name}{alone}, {level}"] = team, loop
    return found


def measure(bench: Bench) -> dict[str, Any]:
    """``turns``: rows per second of every contender's turns; ``loss``es of each."""
    rows = bench.times(_ROWS, least=10_000)
    p = problem(rows)
    p.x.sum_duplicates()  # a row of the loop has no column twice either
    with tempfile.TemporaryDirectory() as name:
        teams = contenders(p, bench.threads, Path(name))

        def play(team: str) -> Turn:
            threads, run = teams[team]
            rate, share = turn(run, threads, 2 * _PASSES)
            return Turn(rows * rate, share)

        turns = take_turns(
            {team: (lambda team=team: play(team)) for team in teams},  # type: ignore[misc]
            bench.times(_ROUNDS, least=3),
        )
        losses = {
            team: [run(_PASSES)() for _ in range(bench.times(_LOSSES))]
            for team, (_, run) in teams.items()
        }
    return {
        "rows": rows,
        "features": FEATURES,
        "dimensions": DIMENSIONS,
        "k": K,
        "threads": bench.threads,
        "batch_size": BATCH,
        "loss": losses,
        **record(turns),
    }


def _loops(found: Record, rule: str) -> list[str]:
    """The classical loop's settings for a rule, on all threads."""
    wanted = f"classical loop, {rule}, -"
    return [name for name in found["rate"] if name.startswith(wanted)]


def factorisation_ratio(rule: str, results: Results) -> float | None:
    """Rows per second over the classical loop's, compiled to be fastest."""
    found = figures.figures(results, "factorisation")
    if not found:
        return None
    loop = max(_loops(found, rule), key=partial(figures.rate, found))
    return figures.ratio(found, f"leashed, {rule}", loop)


def factorisation_loss(results: Results) -> float | None:
    """The loss over the classical loop's, most of both rules."""
    found = figures.figures(results, "factorisation")
    if not found:
        return None
    return max(
        statistics.median(found["loss"][f"leashed, {rule}"])
        / min(statistics.median(found["loss"][loop]) for loop in _loops(found, rule))
        for rule in RATES
    )


def words(results: Results) -> str:
    """Factorisation machines."""
    found = figures.figures(results, "factorisation")
    if not found:
        return ""
    rows = [rate_and_loss(found, name) for name in found["rate"]]
    return paragraphs(
        f"`models.fm` with k = {found['k']} on rows as above; {count(found['threads'], 'thread')} "
        "where nothing else is said. The loop (`bench/hogwild_fm.cc`) is compiled with "
        "`-march=native`, at two levels. Losses after 6 passes with the same step for every example.",
        table(["", "M rows/s", "CPU share", "loss, median", "its runs"], rows),
    )


def profile(results: Results) -> str:
    """How both scale."""
    found = figures.figures(results, "factorisation")
    lines = []
    for rule in RATES:
        loop = max(_loops(found, rule), key=partial(figures.rate, found))
        alone = loop.replace(", -", ", 1 thread, -")
        lines.append(
            f"{rule}: one thread is {figures.ratio(found, f'leashed, {rule}, 1 thread', alone):.2f} times as "
            "fast as the classical loop's; all threads are "
            f"{figures.ratio(found, f'leashed, {rule}', f'leashed, {rule}, 1 thread'):.2f} times as fast as "
            f"one here, the classical loop's {figures.ratio(found, loop, alone):.2f} times."
        )
    return " ".join(lines)


GOALS = (
    *(
        Goal(
            f"factorisation machine, k = 8, {rule}, rows/s over the classical loop",
            2.0,
            partial(factorisation_ratio, rule),
            unit="×",
        )
        for rule in RATES
    ),
    Goal(
        "factorisation machine, loss over the classical loop's, most of both rules",
        1.02,
        factorisation_loss,
        least=False,
    ),
)
PROFILES = {"Factorisation machines": profile}
