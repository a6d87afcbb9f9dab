"""A gradient from outside against the engine's own: logistic regression by a Numba ``@cfunc``.

The function is that of ``examples/numba_logistic_regression.py``, which takes four rows at a time;
beside it stands the same written row by row. Whole training runs take turns, with one and with all
threads.
"""

from __future__ import annotations

import importlib.util
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

import leashed as lsh
from bench import figures
from bench.context import Bench, Record, only
from bench.figures import Results
from bench.markdown import count, paragraphs, table, thousands
from bench.section import Goal
from bench.sections.ceilings import team
from bench.turns import Turn, record, take_turns, timed

PLACE, TITLE = 120, "Gradients from outside"

_EXAMPLE = Path(__file__).parents[2] / "examples" / "numba_logistic_regression.py"
_FEATURES = (40, 784)
_ROWS = 20_000
_BATCH = 64
_ROUNDS = 9
_SECONDS = 0.2


def measure(bench: Bench) -> list[Record]:
    """A record a number of features and threads: examples per second of every turn."""
    return [
        {"features": features, "threads": threads, **_turns(bench, features, threads)}
        for features in _FEATURES
        for threads in sorted({1, bench.threads})
    ]


def _example(features: int) -> Any:
    spec = importlib.util.spec_from_file_location("numba_logistic_regression", _EXAMPLE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.logistic(features)


def _row_by_row(features: int) -> Any:
    import numba  # noqa: PLC0415

    @numba.cfunc(lsh.gradients.signature(), fastmath=True)
    def logistic(theta, x, rows, y, batch, gradient, workspace, user_data):  # type: ignore[no-untyped-def] # noqa: ARG001
        weights = numba.carray(theta, features)
        examples = numba.carray(x, (1 << 40, features))
        index = numba.carray(rows, batch)
        label = numba.carray(y, batch)
        out = numba.carray(gradient, features)
        out[:] = 0
        loss = np.float32(0)
        for i in range(batch):
            row = examples[index[i]]
            sign = np.float32(2 * label[i] - 1)
            margin = np.float32(0)
            for j in range(features):
                margin += weights[j] * row[j]
            margin *= sign
            loss += np.log1p(np.exp(-margin))
            slope = -sign / ((np.float32(1) + np.exp(margin)) * np.float32(batch))
            for j in range(features):
                out[j] += slope * row[j]
        return loss / np.float32(batch)

    return logistic


def _turns(bench: Bench, features: int, threads: int) -> Record:
    rng = np.random.default_rng(0)
    x = rng.standard_normal((_ROWS, features)).astype(np.float32)
    y = (x @ rng.standard_normal(features) > 0).astype(np.int32)
    models = {
        "built-in": lsh.models.logistic_regression(features),
        "Numba": _external(_example(features), features),
        "Numba, row by row": _external(_row_by_row(features), features),
    }

    def train(model: Any) -> float:
        return lsh.train(
            model,
            (x, y),
            rule=lsh.SGD(0.01),
            discipline=lsh.Hogwild(copy=False),
            threads=threads,
            batch_size=_BATCH,
            until=lsh.until(seconds=bench.seconds(_SECONDS, least=0.05)),
            observe=lsh.Observe(every=1e6),
        ).mean_eps

    def turn(model: Any) -> Turn:
        return timed(lambda: train(model), threads)

    return record(
        take_turns(
            {name: (lambda model=model: turn(model)) for name, model in models.items()},  # type: ignore[misc]
            bench.times(_ROUNDS, least=3),
        )
    )


def _external(function: Any, features: int) -> Any:
    return lsh.models.external(function, dimension=features, features=features)


def gradient_ratio(threads: int, results: Results) -> float | None:
    """The Numba function's examples per second over the engine's own, least of the sizes."""
    found = only(figures.figures(results, "gradients"), threads=threads)
    return min((figures.ratio(record, "Numba", "built-in") for record in found), default=None)


def words(results: Results) -> str:
    """Functions from outside."""
    records = figures.figures(results, "gradients")
    if not records:
        return ""
    names = list(records[0]["rate"])
    rows = [
        [
            f"{record['features']} features, {count(record['threads'], 'thread')}",
            *(thousands(figures.rate(record, name)) for name in names),
            *(f"{figures.ratio(record, name, 'built-in'):.2f}" for name in names[1:]),
        ]
        for record in records
    ]
    head = ["examples/s", *names, *(f"{name}, over built-in" for name in names[1:])]
    return paragraphs(
        "Logistic regression on dense rows, batches of 64, HOG_direct: the gradient of "
        "`examples/numba_logistic_regression.py`, which takes four rows at a time, and the same "
        "written row by row.",
        table(head, rows),
    )


def profile(_: Results) -> str:
    """What makes a function from outside slow."""
    return (
        "The engine calls the function with pointers to its own memory, once a batch: what it takes "
        "is its own loops, as the compiler made them."
    )


def goals(results: Results) -> list[Goal]:
    """With one thread and with all."""
    return [
        Goal(
            f"Numba gradient, EPS over the built-in one's, {count(threads, 'thread')}",
            0.90,
            partial(gradient_ratio, threads),
        )
        for threads in team(results)
    ]


PROFILES = {"Gradients from outside": profile}
