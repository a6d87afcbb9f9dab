"""Sparse logistic regression against scikit-learn, Vowpal Wabbit, xLearn and the classical loop.

The contenders take turns, round after round, on the same rows with the same step size: plain SGD on
the logistic loss, no penalty. A pass is timed as the difference of a run of many passes and one of
1, free of what a call costs once (reading, checking, preparing). Losses are those after 6 passes, in
double precision by NumPy, of the weights that the peer gives out; Vowpal Wabbit's is its own
progressive loss over all passes, an upper bound. Peers that cannot be had are named with the reason.
"""

from __future__ import annotations

import ctypes
import importlib
import os
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
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
from bench.turns import Turn, record, take_turns

PLACE, TITLE = 140, "Sparse rows"

FEATURES = 39
DIMENSIONS = 1 << 18
VOCABULARY = 100_000
EXPONENT = 1.1
_ROWS = 300_000
_ROUNDS = 7
_LOSSES = 5
LR = 0.02
_PASSES = 6  # of the runs whose loss counts
BATCH = 8


@dataclass(frozen=True)
class Problem:
    """Hashed categories: 39 columns of one value each, ids by Zipf's law, labels drawn from a
    planted model.
    """

    x: Any  # scipy.sparse.csr_matrix
    y: NDArray[np.int32]

    def loss(self, weights: NDArray[Any], intercept: float) -> float:
        margin = np.asarray(self.x @ weights.astype(np.float64)).ravel() + intercept
        return float(np.mean(np.logaddexp(0.0, margin) - self.y * margin))


def problem(rows: int, seed: int = 1) -> Problem:
    import scipy.sparse as sp  # noqa: PLC0415

    rng = np.random.default_rng(seed)
    weights = 1.0 / np.arange(1, VOCABULARY + 1) ** EXPONENT
    cumulative = np.cumsum(weights / weights.sum())
    ids = np.empty((rows, FEATURES), np.int32)
    for feature in range(FEATURES):
        hashed = rng.integers(0, DIMENSIONS, VOCABULARY)
        drawn = np.searchsorted(cumulative, rng.random(rows))
        ids[:, feature] = hashed[np.minimum(drawn, VOCABULARY - 1)]
    planted = rng.normal(scale=2 / np.sqrt(FEATURES), size=DIMENSIONS)
    y = rng.random(rows) < 1 / (1 + np.exp(-planted[ids].sum(axis=1)))
    data = np.ones(rows * FEATURES, np.float32)
    indptr = np.arange(0, rows * FEATURES + 1, FEATURES, dtype=np.int64)
    x = sp.csr_matrix((data, ids.ravel(), indptr), shape=(rows, DIMENSIONS))
    return Problem(x, y.astype(np.int32))


ALL_THREADS = ("leashed", "leashed, straight", "classical loop")
QUICK = (*ALL_THREADS, "leashed, 1 thread", "classical loop, 1 thread")

# Runs so many passes and tells the loss then.
Contender = Callable[[int], Callable[[], float]]


def leashed(p: Problem, threads: int, discipline: lsh.Discipline) -> Contender:
    model = lsh.models.logistic_regression(DIMENSIONS)
    zeros = np.zeros(model.dimension, np.float32)
    data = lsh.SparseDataset.from_csr(p.x, p.y)

    def run(passes: int) -> Callable[[], float]:
        result = lsh.train(
            model,
            data,
            until=lsh.until(epochs=passes),
            discipline=discipline,
            rule=lsh.SGD(LR * BATCH),
            threads=threads,
            batch_size=BATCH,
            init=zeros,
            observe=lsh.Observe(every=1e6),
        )
        theta = result.parameters
        return lambda: p.loss(theta[:-1], float(theta[-1]))

    return run


def scikit_learn(p: Problem, dtype: type[np.generic], shuffle: bool) -> Contender:
    linear_model = importlib.import_module("sklearn.linear_model")
    x = type(p.x)(
        (p.x.data.astype(dtype), p.x.indices.astype(np.int32), p.x.indptr.astype(np.int32)),
        shape=p.x.shape,
    )

    def run(passes: int) -> Callable[[], float]:
        model = linear_model.SGDClassifier(
            loss="log_loss",
            penalty=None,
            learning_rate="constant",
            eta0=LR,
            max_iter=passes,
            tol=None,
            random_state=0,
            shuffle=shuffle,
        ).fit(x, p.y)
        return lambda: p.loss(model.coef_[0], float(model.intercept_[0]))

    return run


def classical(p: Problem, threads: int, folder: Path) -> Contender:
    library = folder / "hogwild_loop.so"
    source = Path(__file__).parents[1] / "hogwild_loop.cc"
    compiler = os.environ.get("CXX", "g++")
    flags = ["-O3", "-march=native", "-std=c++20", "-shared", "-fPIC", "-pthread"]
    subprocess.run([compiler, *flags, source, "-o", library], check=True)
    loop = ctypes.CDLL(str(library)).hogwild
    offsets = p.x.indptr.astype(np.int64)
    columns = p.x.indices.astype(np.int32)
    values = p.x.data.astype(np.float32)
    y = p.y.astype(np.float32)

    def run(passes: int) -> Callable[[], float]:
        w, b = np.zeros(DIMENSIONS, np.float32), np.zeros(16, np.float32)
        loop(
            *(ctypes.c_void_p(a.ctypes.data) for a in (offsets, columns, values, y)),
            ctypes.c_size_t(len(y)),
            ctypes.c_void_p(w.ctypes.data),
            ctypes.c_void_p(b.ctypes.data),
            ctypes.c_float(LR),
            ctypes.c_size_t(passes),
            ctypes.c_size_t(threads),
        )
        return lambda: p.loss(w, float(b[0]))

    return run


def vowpal_wabbit(p: Problem, folder: Path) -> Contender:
    workspace = importlib.import_module("vowpalwabbit").Workspace
    text, cache = folder / "rows.vw", folder / "rows.cache"
    with text.open("w", encoding="ascii") as file:
        for label, ids in zip(p.y, p.x.indices.reshape(-1, FEATURES), strict=True):
            file.write(f"{2 * label - 1} | {' '.join(map(str, ids))}\n")

    def run(passes: int) -> Callable[[], float]:
        learner = workspace(
            f"-d {text} --cache_file {cache} --passes {passes} --loss_function logistic -b 18 --sgd "
            f"--power_t 0 --initial_t 1 -l {LR} --holdout_off --quiet"
        )
        loss = float(learner.get_sum_loss()) / (passes * len(p.y))
        learner.finish()
        return lambda: loss

    run(2)  # writes the cache that all turns read
    return run


def xlearn(p: Problem, folder: Path) -> Contender:
    xl = importlib.import_module("xlearn")
    path = folder / "rows.libsvm"
    with path.open("w", encoding="ascii") as file:
        for label, ids in zip(p.y, p.x.indices.reshape(-1, FEATURES), strict=True):
            file.write(f"{label} {' '.join(f'{k}:1' for k in ids)}\n")
    out = folder / "xlearn.model"

    def run(passes: int) -> Callable[[], float]:
        model = xl.create_linear()
        model.setTrain(str(path))
        model.setQuiet()
        model.disableNorm()
        model.disableEarlyStop()
        model.setTXTModel(str(out))
        settings = {"task": "binary", "lr": LR, "lambda": 0.0, "epoch": passes, "opt": "sgd"}
        model.fit(settings, str(folder / "xlearn.bin"))

        def loss() -> float:
            w, b = np.zeros(DIMENSIONS), 0.0
            for line in out.read_text("ascii").splitlines():
                name, _, value = line.partition(": ")
                if name == "bias":
                    b = float(value)
                elif name.startswith("i_"):
                    w[int(name[2:])] = float(value)
            return p.loss(w, b)

        return loss

    return run


def contenders(
    p: Problem, threads: int, folder: Path
) -> tuple[dict[str, Contender], dict[str, str]]:
    """Those that can run here, and why the others cannot."""
    makers: dict[str, Callable[[], Contender]] = {
        "leashed": lambda: leashed(p, threads, lsh.Hogwild()),
        "leashed, 1 thread": lambda: leashed(p, 1, lsh.Sequential()),
        "leashed, straight": lambda: leashed(p, threads, lsh.Hogwild(copy=False)),
        "classical loop": lambda: classical(p, threads, folder),
        "classical loop, 1 thread": lambda: classical(p, 1, folder),
        "scikit-learn, shuffled": lambda: scikit_learn(p, np.float64, True),
        "scikit-learn, in order": lambda: scikit_learn(p, np.float64, False),
        "scikit-learn, in order, float32": lambda: scikit_learn(p, np.float32, False),
        "vowpal-wabbit": lambda: vowpal_wabbit(p, folder),
        "xlearn": lambda: xlearn(p, folder),
    }
    found: dict[str, Contender] = {}
    missing: dict[str, str] = {}
    for name, make in makers.items():
        try:
            found[name] = make()
        except (ImportError, OSError, subprocess.CalledProcessError) as error:
            missing[name] = f"{type(error).__name__}: {error}"
    return found, missing


def turn(run: Contender, threads: int, passes: int) -> Turn:
    """Rows per second of a pass are what a turn of so many passes more took."""
    start, cpu = time.perf_counter(), time.process_time()
    run(1)
    middle = time.perf_counter()
    run(1 + passes)
    end = time.perf_counter()
    seconds = ((end - middle) - (middle - start)) / passes
    return Turn(1.0 / seconds, (time.process_time() - cpu) / (end - start) / threads)


def measure(bench: Bench) -> dict[str, Any]:
    """``turns``: rows per second of every contender's turns; ``loss``es of each; what is missing."""
    rows = bench.times(_ROWS, least=10_000)
    p = problem(rows)
    with tempfile.TemporaryDirectory() as name:
        teams, missing = contenders(p, bench.threads, Path(name))

        for run in teams.values():
            run(1)

        def play(team: str) -> Turn:
            threads = bench.threads if team in ALL_THREADS else 1
            rate, share = turn(teams[team], threads, 4 * _PASSES if team in QUICK else _PASSES)
            return Turn(rows * rate, share)

        turns = take_turns(
            {team: (lambda team=team: play(team)) for team in teams},  # type: ignore[misc]
            bench.times(_ROUNDS, least=3),
        )
        losses = {
            team: [run(_PASSES)() for _ in range(bench.times(_LOSSES))]
            for team, run in teams.items()
        }
    return {
        "rows": rows,
        "features": FEATURES,
        "dimensions": DIMENSIONS,
        "threads": bench.threads,
        "batch_size": BATCH,
        "lr": LR,
        "missing": missing,
        "loss": losses,
        **record(turns),
    }


def sparse_ratio(peer: str, results: Results) -> float | None:
    """Rows per second over a peer's at its fastest setting."""
    found = figures.figures(results, "sparse")
    if not found or peer in found["missing"]:
        return None
    return figures.ratio(found, "leashed", figures.fastest(found, peer))


def rate_and_loss(found: Record, name: str) -> list[str]:
    """A contender's cells: million rows per second, its processors, and the losses it came to."""
    losses = found["loss"][name]
    return [
        name,
        f"{figures.rate(found, name) / 1e6:.2f}",
        f"{statistics.median(found['cpu_share'][name]):.2f}",
        f"{statistics.median(losses):.4f}",
        f"{min(losses):.4f} to {max(losses):.4f}",
    ]


def words(results: Results) -> str:
    """Sparse logistic regression."""
    found = figures.figures(results, "sparse")
    if not found:
        return ""
    rows = [
        [
            *rate_and_loss(found, name),
            "" if name == "leashed" else f"{figures.ratio(found, 'leashed', name):.2f}",
        ]
        for name in found["rate"]
    ]
    rows += [[name, "–", "–", "–", "–", reason] for name, reason in found["missing"].items()]
    return paragraphs(
        f"{found['rows']:,} rows of {found['features']} hashed categories, "
        f"{found['dimensions']:,} dimensions, Zipf ids; {count(found['threads'], 'thread')} where "
        f"nothing else is said (scikit-learn has one). Losses after 6 passes with the same "
        f"steps, of {found['lr']:g} for each row.",
        table(["", "M rows/s", "CPU share", "loss, median", "its runs", "leashed over it"], rows),
    )


def profile(results: Results) -> str:
    """How both scale."""
    found = figures.figures(results, "sparse")
    ours, theirs = (
        figures.ratio(found, name, f"{name}, 1 thread") for name in ("leashed", "classical loop")
    )
    alone = figures.ratio(found, "leashed, 1 thread", "classical loop, 1 thread")
    return (
        f"One thread is {alone:.2f} times as fast as the classical loop's. All threads are "
        f"{ours:.2f} times as fast as one here, the classical loop's {theirs:.2f} times."
    )


GOALS = [
    Goal(
        f"sparse logistic regression, rows/s over {peer}",
        target,
        partial(sparse_ratio, peer),
        unit="×",
    )
    for peer, target in (
        ("scikit-learn", 2.0),
        ("vowpal-wabbit", 1.0),
        ("xlearn", 1.0),
        ("classical loop", 1.5),
    )
]
PROFILES = {"Sparse rows": profile}
