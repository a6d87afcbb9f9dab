"""The recommender that studies of many workers train, and its clicks, day after day."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from leashed.datasets import ClickDataset, synthetic_clicks
from leashed.models import tables
from leashed.models.graphs import Graph
from leashed.models.recommenders import dlrm
from leashed.models.tables import Table
from leashed.rules import Adagrad
from leashed.training.result import TrainResult

__all__ = [
    "CARDINALITY",
    "NAME",
    "Gradient",
    "days",
    "gradient",
    "model",
    "new_tables",
    "require_finite",
]

NAME = "a small DLRM, of 26 tables of 1,000 rows of 8 and layers of 16, 8 and 16 units"
"""What it is, in words."""

CARDINALITY = 1000
"""Ids of each of the clicks' 26 features."""

_DIM = 8


class Gradient(NamedTuple):
    """Of the mean loss of some clicks.

    Attributes:
        dense: float32 [d]; for the parameters.
        rows: float32 [all rows · dim]; for the rows of all tables.
    """

    dense: NDArray[np.float32]
    rows: NDArray[np.float32]


def model() -> Graph:
    """The model; one logit."""
    return dlrm(CARDINALITY, _DIM, bottom=(16, _DIM), top=(16,))


def new_tables(lr: float, seed: int) -> dict[str, Table]:
    """Its tables, trained by Adagrad without damping. A table keeps its rule, whatever the mode."""
    return tables.of(model().tables, rule=Adagrad(lr), seed=seed)


def days(rows: int, count: int, seed: int = 0, drift: float = 0.0) -> list[ClickDataset]:
    """So many days of ``rows`` clicks each, between which what makes people click drifts."""
    clicks = synthetic_clicks(
        rows, seed, test=1, days=count, drift=drift, cardinalities=CARDINALITY
    ).train
    return [clicks[day * rows : (day + 1) * rows] for day in range(count)]


def require_finite(trained: TrainResult, what: str, remedy: str) -> None:
    """ValueError where ``what`` was trained to NaN or infinity, from which nothing goes on."""
    if trained.outcome == "crashed":
        raise ValueError(f"{what} crashed: what it trains is no longer finite; {remedy}")


def gradient(trained: TrainResult, clicks: ClickDataset, graph: Graph | None = None) -> Gradient:
    """Where a training of ``graph`` (default: ``model()``) ended."""
    graph = model() if graph is None else graph
    values = [_all(trained.tables, spec.name) for spec in graph.tables]
    ids = np.asarray(clicks.ids)
    columns = [
        (np.ascontiguousarray(ids[:, k if node.feature is None else node.feature]), None, None)
        for k, node in enumerate(graph.embeddings)
    ]
    _, dense, rows = graph.native.gradient(trained.parameters, clicks.x, clicks.y, columns, values)
    return Gradient(dense, np.concatenate([one.ravel() for one in rows]))


def _all(trained: Mapping[str, Table], name: str) -> NDArray[np.float32]:
    return trained[name].lookup(np.arange(CARDINALITY))
