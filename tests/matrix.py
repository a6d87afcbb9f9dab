#!/usr/bin/env python3
"""What goes with what: tries each of 771 combinations for an epoch, and counts those that train.

    tests/matrix.py [--refused]

Eight problems, nine ways to coordinate and twelve options. It asks nothing of leashed but to train, and
knows none of its tables: what it leaves out, since that means nothing, stands here.
"""

from __future__ import annotations

import argparse
import itertools
import sys
import tempfile
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

import leashed as lsh
from leashed import disciplines, models, modes, simulation, stream

N, FEATURES, BATCH = 400, 12, 16
DISCIPLINES = {
    "SEQ": disciplines.Sequential(),
    "SYNC": disciplines.Synchronous(),
    "ASYNC": disciplines.Locked(),
    "HOG": disciplines.Hogwild(),
    "LSH": disciplines.Leashed(),
}
MODES = {"sync": modes.Sync(), "asp": modes.ASP(), "gba": modes.GBA(m=2), "shat": modes.SHAT()}
WAYS = (*DISCIPLINES, *MODES)
STREAMS = ("stream", "stream of clicks", "stream of sparse rows")
SPARSE = ("sparse", "fm", "stream of sparse rows")
OPTIONS = (
    "plain", "checkpoint", "resume", "checkpoint_updates", "record", "metrics", "auto", "loss",
    "stage_aware", "swap", "adam", "virtual",
)  # fmt: skip


def _dense() -> tuple[Any, Any, Any]:
    random = np.random.default_rng(0)
    x = random.normal(size=(N, FEATURES)).astype(np.float32)
    planted = random.normal(size=FEATURES)
    return x, (x @ planted > 0).astype(np.int32), planted


def _clicks() -> tuple[Any, Any]:
    model = models.dlrm(12, 4, 3, bottom=(4,), top=(4,), categories=2)
    random = np.random.default_rng(0)
    x = random.normal(size=(N, 3)).astype(np.float32)
    ids = random.integers(0, 12, (N, 2))
    return model, lsh.datasets.ClickDataset.from_arrays(x, ids, x[:, 0] + (ids[:, 0] % 2) > 0.5)


def _external() -> Any:
    def gradient(theta: Any, x: Any, y: Any, out: Any) -> float:
        error = x @ theta[:-1] + theta[-1] - y
        out[:-1], out[-1] = x.T @ error / len(y), error.mean()
        return float((error**2).mean() / 2)

    def loss(theta: Any, x: Any, y: Any) -> float:
        return float(((x @ theta[:-1] + theta[-1] - y) ** 2).mean() / 2)

    return models.external(
        gradient, dimension=FEATURES + 1, features=FEATURES, loss=loss, y="float32"
    )


def problems(folder: Path) -> dict[str, Callable[[], tuple[Any, Any]]]:
    """By name: what makes a model and its data, which are read anew each time."""
    x, y, _ = _dense()
    dense = lsh.Dataset.from_arrays(x, y, 2)
    indptr = np.arange(0, N * FEATURES + 1, FEATURES)
    columns = np.tile(np.arange(FEATURES, dtype=np.int32), N)
    sparse = lsh.datasets.SparseDataset(indptr, columns, x.ravel(), FEATURES, y, 2)
    numbers, clicked, rows = folder / "numbers.csv", folder / "clicks.csv", folder / "rows.svm"
    names = [f"I{j}" for j in range(FEATURES)]
    lines = [",".join(["y", *names])]
    lines += [",".join([str(a), *map(repr, map(float, b))]) for a, b in zip(y, x, strict=True)]
    numbers.write_text("\n".join(lines) + "\n")
    rows.write_text(
        "".join(
            f"{2 * a - 1} " + " ".join(f"{j + 1}:{float(v)!r}" for j, v in enumerate(b)) + "\n"
            for a, b in zip(y, x, strict=True)
        )
    )
    graph, data = _clicks()
    lines = ["y,I0,I1,I2,C1,C2"]
    for i in range(N):
        lines.append(",".join(map(str, [data.y[i], *map(float, data.x[i]), *data.ids[i]])))
    clicked.write_text("\n".join(lines) + "\n")
    number, word = stream.Number(), stream.Vocabulary([str(i) for i in range(11)])
    of_numbers = {"y": stream.Label(), **dict.fromkeys(names, number)}
    of_clicks: Any = {"y": stream.Label(), "I0": number, "I1": number, "I2": number}
    of_clicks |= {"C1": word, "C2": word}
    logistic = models.logistic_regression(FEATURES)
    return {
        "dense": lambda: (logistic, dense),
        "sparse": lambda: (logistic, sparse),
        "fm": lambda: (models.fm(FEATURES, 4), sparse),
        "tables": lambda: (graph, data),
        "stream": lambda: (logistic, stream.csv(numbers, of_numbers)),
        "stream of clicks": lambda: (graph, stream.csv(clicked, of_clicks)),
        "stream of sparse rows": lambda: (logistic, stream.libsvm(rows, FEATURES)),
        "external": lambda: (_external(), (x, y.astype(np.float32))),
    }


def meaningless(problem: str, way: str, option: str) -> bool:
    """93 of the 864."""
    return (
        (option == "loss" and problem in STREAMS)
        or (option == "metrics" and problem == "external")
        or (option == "auto" and (way in MODES or way == "SEQ"))
        or (
            option == "record"
            and way in ("ASYNC", "HOG", "LSH")
            and problem in ("tables", STREAMS[1])
        )
        or (option == "record" and way == "HOG" and problem in SPARSE)
        or (option == "stage_aware" and way == "shat")
    )


def run(
    problem: Callable[[], tuple[Any, Any]], way: str, option: str, folder: Path
) -> lsh.TrainResult:
    """Raises where it does not train."""
    given: dict[str, Any] = {"batch_size": BATCH, "rule": lsh.SGD(0.05)}
    given |= {"mode": MODES[way]} if way in MODES else {"discipline": DISCIPLINES[way]}
    until = lsh.until(epochs=1)
    workers = 1 if way == "SEQ" else 2
    if option == "virtual":
        model, data = problem()
        cluster = simulation.constant(workers, 1.0)
        return lsh.simulate(model, data, cluster=cluster, until=until, **given).result
    given["threads"] = "auto" if option == "auto" else workers
    kept = folder / "kept"
    extra: dict[str, Callable[[], dict[str, Any]]] = {
        "checkpoint": lambda: {"checkpoint": kept},
        "checkpoint_updates": lambda: {"checkpoint": lsh.Checkpoint(kept, updates=10)},
        "record": lambda: {"observe": lsh.Observe(record=folder / "trace")},
        "metrics": lambda: {"observe": lsh.Observe(metrics=lsh.metrics.progressive())},
        "stage_aware": lambda: {"staleness": lsh.staleness.stage_aware(lsh.staleness.inverse())},
        "swap": lambda: {"rule": lsh.rules.SWAP(lsh.rules.Adagrad(0.05), 10)},
        "adam": lambda: {"rule": lsh.Adam(0.01)},
    }
    if option == "loss":
        until = lsh.until(epochs=1, loss=1e-3)
    model, data = problem()
    if option == "resume":
        begun = lsh.train(model, data, until=until, checkpoint=kept, **given)
        model, data = problem()
        lsh.train(model, data, until=lsh.until(epochs=2), resume=kept, **given)
        return begun  # of two threads of SHAT a second epoch may end above the first
    return lsh.train(model, data, until=until, **{**given, **extra.get(option, dict)()})


def cells(folder: Path) -> Iterator[tuple[str, str, str, str | None]]:
    """Problem, way, option, and why it did not train; None: it did."""
    made = problems(folder)
    for number, (problem, way, option) in enumerate(itertools.product(made, WAYS, OPTIONS)):
        if meaningless(problem, way, option):
            continue
        place = folder / str(number)
        place.mkdir()
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                result = run(made[problem], way, option, place)
        except (TypeError, ValueError) as error:
            yield problem, way, option, f"{type(error).__name__}: {error}"
        else:
            # Of a stream nobody knows what it began with.
            first = np.nan_to_num(result.initial_loss, nan=np.inf)
            assert result.final_loss < first, (problem, way, option, result.final_loss, first)
            yield problem, way, option, None


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--refused", action="store_true", help="name each that does not train")
    arguments = parser.parse_args()
    trained: Counter[str] = Counter()
    all_of: Counter[str] = Counter()
    why: Counter[str] = Counter()
    with tempfile.TemporaryDirectory() as folder:
        for problem, way, option, refused in cells(Path(folder)):
            for name in (problem, way, option):
                all_of[name] += 1
                trained[name] += refused is None
            all_of["all"] += 1
            trained["all"] += refused is None
            if refused is None:
                continue
            why[refused] += 1
            if arguments.refused:
                print(f"{problem:22} {way:6} {option:19} {refused}")
    for name, count in all_of.items():
        print(f"{name:22} {trained[name]:4} of {count:4}")
    for reason, count in why.most_common():
        print(f"{count:4}  {reason}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
