"""Sparse logistic regression against scikit-learn, Vowpal Wabbit, xLearn and the classical loop.

    python -m bench.sparse [--rows 300000] [--rounds 5] [--threads 2] [--output FILE]

The contenders take turns, round after round, on the same rows with the same step size: plain SGD on
the logistic loss, no penalty. A turn is a run of 6 passes and one of 1; a fifth of the difference is
the time of a pass, free of what a call costs once (reading, checking, preparing). That is in
`seconds_6_passes`, which for leashed is from SciPy's matrix on. Ratios are per round: the peer's time
over ours; the summary has their medians. Losses are those after 6 passes, in double precision by
NumPy, of the weights that the peer gives out; Vowpal Wabbit's is its own progressive loss over all
passes, an upper bound. Peers that are not installed are named with the reason.

    pip install scikit-learn vowpalwabbit xlearn
"""

from __future__ import annotations

import argparse
import ctypes
import importlib
import json
import os
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

import leashed as lsh
from bench import machine
from leashed.machine import cores

FEATURES = 39
DIMENSIONS = 1 << 18
VOCABULARY = 100_000
EXPONENT = 1.1
LR = 0.02
LONG, SHORT = 6, 1
BATCH = 8
GOALS = {"scikit-learn": 2.0, "vowpal-wabbit": 1.0, "xlearn": 1.0, "classical loop": 1.5}


@dataclass(frozen=True)
class Problem:
    """Hashed categories: 39 columns of one value each, ids by Zipf's law, labels drawn from a
    planted model.
    """

    x: sp.csr_matrix
    y: NDArray[np.int32]

    def loss(self, weights: NDArray[Any], intercept: float) -> float:
        margin = np.asarray(self.x @ weights.astype(np.float64)).ravel() + intercept
        return float(np.mean(np.logaddexp(0.0, margin) - self.y * margin))


def problem(rows: int, seed: int = 1) -> Problem:
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


# Runs so many passes and tells the loss then.
Contender = Callable[[int], Callable[[], float]]


def leashed(p: Problem, threads: int, discipline: lsh.Discipline) -> Contender:
    model = lsh.models.logistic_regression(DIMENSIONS)
    zeros = np.zeros(model.dimension, np.float32)

    def run(passes: int) -> Callable[[], float]:
        result = lsh.train(
            model,
            lsh.SparseDataset.from_csr(p.x, p.y),
            until=lsh.until(epochs=passes),
            discipline=discipline,
            rule=lsh.SGD(LR * BATCH),
            threads=threads,
            batch_size=BATCH,
            init=zeros,
            evaluate_every=1e6,
        )
        theta = result.parameters
        return lambda: p.loss(theta[:-1], float(theta[-1]))

    return run


def scikit_learn(p: Problem, dtype: type[np.generic]) -> Contender:
    linear_model = importlib.import_module("sklearn.linear_model")
    x = sp.csr_matrix(
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
        ).fit(x, p.y)
        return lambda: p.loss(model.coef_[0], float(model.intercept_[0]))

    return run


def classical(p: Problem, threads: int, folder: Path) -> Contender:
    library = folder / "hogwild_loop.so"
    source = Path(__file__).with_name("hogwild_loop.cc")
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
        "scikit-learn": lambda: scikit_learn(p, np.float64),
        "scikit-learn, float32": lambda: scikit_learn(p, np.float32),
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


def turn(run: Contender, threads: int) -> dict[str, float]:
    seconds: dict[int, float] = {}
    start, cpu = time.perf_counter(), time.process_time()
    for passes in (SHORT, LONG):
        begin = time.perf_counter()
        loss = run(passes)
        seconds[passes] = time.perf_counter() - begin
    share = (time.process_time() - cpu) / (time.perf_counter() - start) / threads
    return {
        "pass_seconds": (seconds[LONG] - seconds[SHORT]) / (LONG - SHORT),
        "seconds_6_passes": seconds[LONG],
        "loss": loss(),
        "cpu_share": share,
    }


def run(rows: int = 300_000, rounds: int = 5, threads: int | None = None) -> dict[str, Any]:
    """All turns, and the ratios of each round."""
    threads = cores() if threads is None else threads
    p = problem(rows)
    with tempfile.TemporaryDirectory() as name:
        teams, missing = contenders(p, threads, Path(name))
        turns: dict[str, list[dict[str, float]]] = {team: [] for team in teams}
        for _ in range(rounds):
            for team, play in turns.items():
                play.append(turn(teams[team], 1 if "1 thread" in team else threads))
    ours = turns["leashed"]
    ratios = {
        team: [t["pass_seconds"] / o["pass_seconds"] for t, o in zip(play, ours, strict=True)]
        for team, play in turns.items()
        if team != "leashed"
    }
    summary = {
        team: {
            "rows_per_second": rows / statistics.median(t["pass_seconds"] for t in play),
            "loss": statistics.median(t["loss"] for t in play),
            "cpu_share": statistics.median(t["cpu_share"] for t in play),
            "times_as_long_as_leashed": statistics.median(ratios.get(team, [1.0])),
            "goal": GOALS.get(team),
        }
        for team, play in turns.items()
    }
    return {
        "machine": machine.describe(),
        "load": os.getloadavg()[0],
        "rows": rows,
        "features": FEATURES,
        "dimensions": DIMENSIONS,
        "threads": threads,
        "batch_size": BATCH,
        "lr": LR,
        "missing": missing,
        "summary": summary,
        "ratios": ratios,
        "turns": turns,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--rows", type=int, default=300_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int)
    parser.add_argument("--output", type=Path)
    arguments = parser.parse_args()
    result = run(arguments.rows, arguments.rounds, arguments.threads)
    for team, line in result["summary"].items():
        goal = "" if line["goal"] is None else f", goal {line['goal']:g}"
        print(
            f"{team:26} {line['rows_per_second'] / 1e6:6.2f} M rows/s, loss {line['loss']:.4f}, "
            f"{line['times_as_long_as_leashed']:.2f} times as long as leashed{goal} "
            f"(CPU share {line['cpu_share']:.2f})"
        )
    for team, why in result["missing"].items():
        print(f"{team}: not measured: {why}")
    if arguments.output:
        arguments.output.write_text(json.dumps(result, indent=1) + "\n", "utf-8")


if __name__ == "__main__":
    main()
