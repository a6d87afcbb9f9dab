"""The recommenders that studies of days and modes train, and their clicks, day after day."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from leashed.datasets import Bags, ClickDataset, synthetic_clicks, synthetic_histories
from leashed.datasets.clicks import by_feature
from leashed.models import (
    Concat,
    Dense,
    Dot,
    Embedding,
    Graph,
    Input,
    ReLU,
    TableSpec,
    recommenders,
    tables,
)
from leashed.models.tables import Table
from leashed.rules import Adagrad
from leashed.training.result import TrainResult

__all__ = [
    "CARDINALITY",
    "MODELS",
    "NAME",
    "Gradient",
    "Recommender",
    "columns",
    "days",
    "gradient",
    "model",
    "new_tables",
    "require_finite",
]

CARDINALITY = 1000
"""Ids of a feature, but of categories."""

_CATEGORIES = 50
_DIM = 8
_LONGEST = 10


class Recommender(NamedTuple):
    """A model, and its clicks.

    Attributes:
        words: what it is.
        graph: the model; one logit.
        days: so many clicks a day, so many days, a seed, and the share of the hidden model that is
            drawn anew from one day to the next.
    """

    words: str
    graph: Callable[[], Graph]
    days: Callable[[int, int, int, float], list[ClickDataset]]


def _criteo(rows: int, count: int, seed: int = 0, drift: float = 0.0) -> list[ClickDataset]:
    made = synthetic_clicks(rows, seed, test=1, days=count, drift=drift, cardinalities=CARDINALITY)
    return _apart(made.train, rows)


def _histories(rows: int, count: int, seed: int, drift: float) -> list[ClickDataset]:
    made = synthetic_histories(
        rows,
        seed,
        test=1,
        days=count,
        drift=drift,
        users=CARDINALITY,
        items=CARDINALITY,
        categories=_CATEGORIES,
        longest=_LONGEST,
    )
    return _apart(made.train, rows)


def _apart(clicks: ClickDataset, rows: int) -> list[ClickDataset]:
    return [clicks[first : first + rows] for first in range(0, len(clicks), rows)]


def _of_histories(make: Callable[..., Graph], *sizes: Any) -> Graph:
    return make(CARDINALITY, CARDINALITY, _CATEGORIES, _DIM, 1, *sizes, longest=_LONGEST)


def _youtube_dnn() -> Graph:
    """YouTubeDNN where what was shown and not clicked is known too: u · row of what is shown."""
    items = TableSpec("items", _DIM, CARDINALITY)
    seen = Concat(
        Input(1), Embedding(items, "mean", feature=3), Embedding(_table("users"), feature=0)
    )
    user = seen >> Dense(16) >> ReLU() >> Dense(_DIM)
    shown = Embedding(_table("choices"), feature=1)
    return Graph(Dot(user, shown) >> Dense(1), loss="log_loss", name="youtube_dnn")


def _table(name: str) -> TableSpec:
    return TableSpec(name, _DIM, CARDINALITY)


MODELS: dict[str, Recommender] = {
    "deepfm": Recommender(
        "a small DeepFM, of 26 tables of 1,000 rows of 8, and of 1, and a layer of 16 units",
        lambda: recommenders.deepfm(CARDINALITY, _DIM, hidden=(16,)),
        _criteo,
    ),
    "dlrm": Recommender(
        "a small DLRM, of 26 tables of 1,000 rows of 8 and layers of 16, 8 and 16 units",
        lambda: recommenders.dlrm(CARDINALITY, _DIM, bottom=(16, _DIM), top=(16,)),
        _criteo,
    ),
    "dien": Recommender(
        "a small DIEN, of 1,000 users and items in rows of 8, states of 16 and layers of 16 and 8 units",
        partial(_of_histories, recommenders.dien, None, (16, _DIM)),
        _histories,
    ),
    "youtube_dnn": Recommender(
        "a small YouTubeDNN that tells clicks, of 1,000 users and items in rows of 8 and layers of 16 and "
        "8 units",
        _youtube_dnn,
        _histories,
    ),
    "ecommerce": Recommender(
        "Wide & Deep with attention, small, of 1,000 users and items in rows of 8, attention of 16 units "
        "and layers of 16 and 8",
        partial(_of_histories, recommenders.ecommerce, (16,), (16, _DIM)),
        _histories,
    ),
}
"""By name; their sizes are ours."""

NAME, model, _ = MODELS["dlrm"]
"""Of DLRM, which was the only one."""

days = _criteo
"""Likewise."""


class Gradient(NamedTuple):
    """Of the mean loss of some clicks.

    Attributes:
        dense: float32 [d]; for the parameters.
        rows: float32 [all rows · dim]; for the rows of all tables.
    """

    dense: NDArray[np.float32]
    rows: NDArray[np.float32]


def new_tables(lr: float, seed: int, graph: Graph | None = None) -> dict[str, Table]:
    """Of a graph (default: ``model()``), trained by Adagrad without damping. A table keeps its rule,
    whatever the mode.
    """
    graph = model() if graph is None else graph
    return tables.of(graph.tables, rule=Adagrad(lr), seed=seed)


def columns(clicks: ClickDataset) -> list[tuple[NDArray[np.int64], NDArray[np.int64]]]:
    """Of each feature the ids of all clicks, and the click that each of them is of."""
    every = np.arange(len(clicks))
    return [
        (one.ids.astype(np.int64), np.repeat(every, np.diff(one.offsets)))
        if isinstance(one, Bags)
        else (one.astype(np.int64), every)
        for one in by_feature(clicks)
    ]


def require_finite(trained: TrainResult, what: str, remedy: str) -> None:
    """ValueError where ``what`` was trained to NaN or infinity, from which nothing goes on."""
    if trained.outcome == "crashed":
        raise ValueError(f"{what} crashed: what it trains is no longer finite; {remedy}")


def gradient(trained: TrainResult, clicks: ClickDataset, graph: Graph | None = None) -> Gradient:
    """Where a training of ``graph`` (default: ``model()``) ended."""
    graph = model() if graph is None else graph
    values = [_all(trained.tables, spec) for spec in graph.tables]
    given = by_feature(clicks)
    read = [
        given[k if node.feature is None else node.feature]
        for k, node in enumerate(graph.embeddings)
    ]
    parts = [
        (one.ids, one.offsets.astype(np.uint32), one.weights)
        if isinstance(one, Bags)
        else (np.ascontiguousarray(one), None, None)
        for one in read
    ]
    _, dense, rows = graph.native.gradient(trained.parameters, clicks.x, clicks.y, parts, values)
    return Gradient(dense, np.concatenate([one.ravel() for one in rows]))


def _all(trained: Mapping[str, Table], spec: TableSpec) -> NDArray[np.float32]:
    assert spec.rows is not None
    return trained[spec.name].lookup(np.arange(spec.rows))
