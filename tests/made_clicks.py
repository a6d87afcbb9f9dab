"""Clicks drawn at random, for the tests of training with tables."""

from __future__ import annotations

from typing import Any

import numpy as np

import leashed as lsh
from leashed.datasets import Bags, ClickDataset
from leashed.models import Concat, Dense, Dot, Embedding, Graph, Input, ReLU, TableSpec

ROWS = 12  # few, so that ids repeat within a batch
LONGEST = 4  # ids of a row


def bags(random: np.random.Generator, n: int, rows: int, weighed: bool) -> Bags:
    """Of 0 to LONGEST ids, some of them twice."""
    lengths = random.integers(0, LONGEST + 1, n)
    ids = random.integers(0, rows, lengths.sum())
    ids[1::3] = ids[:-1:3]
    weights = random.normal(1, 0.5, len(ids)) if weighed else None
    return Bags(ids, np.append(0, np.cumsum(lengths)), weights)


def clicks(
    graph: Graph, n: int = 400, kind: str = "one", seed: int = 0, rows: int = ROWS
) -> ClickDataset:
    """Examples that ``graph`` can read, clicked where the first number and the first id's parity
    say so; of each feature one id, ``"bags"``, or ``"weights"``: bags with weights.
    """
    random = np.random.default_rng(seed)
    x = random.normal(size=(n, graph.features)).astype(np.float32)
    features = max(graph.id_features) + 1
    ids = random.integers(0, rows, (n, features))
    told = np.where(ids[:, 0] % 2 == 0, 1.0, -1.0) + (x[:, 0] if graph.features else 0)
    y = told + random.normal(0, 0.3, n) > 0
    if kind == "one":
        return ClickDataset.from_arrays(x, ids, y)
    columns: dict[str, Any] = {"C1": ids[:, 0]}
    for f in range(1, features):
        columns[f"C{f + 1}"] = bags(random, n, rows, kind == "weights")
    return ClickDataset.from_arrays(x, columns, y)


def small(rows: int | None = ROWS, dim: int = 8, **given: Any) -> Graph:
    """A DLRM of two features."""
    return lsh.models.dlrm(rows, dim, 3, bottom=(dim,), top=(8,), categories=2, **given)


def shared(dim: int = 10, rows: int | None = ROWS) -> Graph:
    """A table that three features read, one of them as a sequence, and one of which the mean."""
    items, other = TableSpec("items", dim, rows), TableSpec("other", dim, rows)
    candidate, also = Embedding(items), Embedding(items)
    history = Embedding(items, "sequence", length=LONGEST)
    mean, largest = Embedding(other, "mean"), Embedding(other, "max")
    z = Input(3) >> Dense(dim) >> ReLU()
    joined = Concat(z, candidate, history, Dot(z, candidate, also, mean, largest))
    return Graph(joined >> Dense(8) >> ReLU() >> Dense(1))
