"""What progressive validation costs: DLRM, and logistic regression on sparse rows in place, trained
without it, with it, and with GAUC, turn by turn.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

import leashed as lsh
from bench import dlrm, figures
from bench.context import Bench, Record
from bench.figures import Results
from bench.markdown import count, number, paragraphs, table
from bench.section import Goal
from bench.turns import record, take_turns, timed

PLACE, TITLE = 210, "Metrics while training"

_SECONDS = 1.0  # of a turn
_ROUNDS = 11
_BATCH = 512
_USERS = 20_000
_SPARSE = (200_000, 20_000, 40)  # rows, columns, entries of a row
_SPARSE_BATCH = 64


def measure(bench: Bench) -> list[Record]:
    """A record of each model."""
    return [
        {
            "figure": name,
            "threads": bench.threads,
            **record(take_turns(_contenders(bench, *made), bench.times(_ROUNDS, least=3))),
        }
        for name, made in (("DLRM", _dlrm()), ("logistic regression", _sparse()))
    ]


def _contenders(
    bench: Bench, model: Any, data: Any, how: dict[str, Any]
) -> dict[str, Callable[[], Any]]:
    users = np.random.default_rng(0).integers(0, _USERS, len(data))

    def train(metrics: lsh.metrics.Progressive | None) -> float:
        result = lsh.train(
            model,
            data,
            until=lsh.until(seconds=bench.seconds(_SECONDS, least=0.1)),
            discipline=lsh.Hogwild(),
            threads=bench.threads,
            observe=lsh.Observe(every=1e6, metrics=metrics),
            **how,
        )
        return float(result.mean_eps)

    return {
        name: partial(timed, partial(train, metrics), bench.threads)
        for name, metrics in (
            ("without", None),
            ("with", lsh.metrics.progressive()),
            ("with GAUC", lsh.metrics.progressive(gauc=users)),
        )
    }


def _dlrm() -> tuple[Any, Any, dict[str, Any]]:
    x, ids, y = dlrm.data()
    model = dlrm.model()
    rule = lsh.Adagrad(dlrm.LR)
    tables = lsh.tables.of(model.tables, rule=rule)
    how = {"rule": rule, "init": lsh.Init(tables=tables), "batch_size": _BATCH}
    return model, lsh.ClickDataset.from_arrays(x, ids, y), how


def _sparse() -> tuple[Any, Any, dict[str, Any]]:
    rows, columns, entries = _SPARSE
    rng = np.random.default_rng(1)
    indices = rng.zipf(1.3, (rows, entries)) % columns
    x = lsh.datasets.SparseDataset(
        np.arange(rows + 1, dtype=np.int64) * entries,
        indices.astype(np.int32).ravel(),
        np.ones(rows * entries, np.float32),
        columns,
        (rng.random(rows) < 0.25).astype(np.int32),
        2,
    )
    return lsh.models.logistic_regression(columns), x, {"batch_size": _SPARSE_BATCH}


def _ratio(record: Record, name: str) -> float:
    """Examples per second with it over those without: the turns' median."""
    rate = record["rate"]
    return statistics.median(
        counted / plain for counted, plain in zip(rate[name], rate["without"], strict=True)
    )


def rate(results: Results) -> float | None:
    """Of DLRM with metrics, over without."""
    found = figures.records(results, "counting", figure="DLRM")
    return _ratio(found[0], "with") if found else None


def words(results: Results) -> str:
    """All of it."""
    found = figures.records(results, "counting")
    if not found:
        return ""
    rows = [
        [record["figure"], *(number(_ratio(record, name)) for name in ("with", "with GAUC"))]
        for record in found
    ]
    return paragraphs(
        f"Examples per second with progressive validation over those without, "
        f"{count(found[0]['threads'], 'thread')}, the median of turns "
        "(logistic regression on sparse rows in place, where an example takes some tens of nanoseconds):",
        table(["", "metrics", "with GAUC"], rows),
    )


GOALS = (
    Goal(
        "DLRM with metrics while training, without GAUC, all threads, EPS over without", 0.98, rate
    ),
)
