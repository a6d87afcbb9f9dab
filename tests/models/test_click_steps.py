"""Training of models that read tables follows PyTorch step by step, parameters and rows."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from graph_reference import Batch, Column, outputs
from made_clicks import LONGEST, ROWS, clicks, shared

import leashed as lsh
from leashed import models
from leashed.datasets import Bags, ClickDataset
from leashed.models import Graph, tables

torch = pytest.importorskip("torch")

STEPS, BATCH, SEED = 50, 8, 5

GRAPHS = {
    "dlrm": lambda dim: models.dlrm(ROWS, dim, 3, bottom=(12, dim), top=(12,), categories=4),
    "deepfm": lambda dim: models.deepfm(ROWS, dim, 3, (12,), categories=3),
    "dcn": lambda dim: models.dcn(ROWS, dim, 3, 2, (12,), categories=3),
    "dcn_v2": lambda dim: models.dcn(ROWS, dim, 3, 2, (12,), weights="matrix", categories=3),
    "wide_deep": lambda dim: models.wide_deep(ROWS, dim, 3, (12,), categories=3),
    "din": lambda dim: models.din(ROWS, ROWS, ROWS, dim, 3, (9, 5), (12,), longest=LONGEST),
    "dien": lambda dim: models.dien(ROWS, ROWS, ROWS, dim, 3, 7, (12,), longest=LONGEST),
    "ecommerce": lambda dim: models.ecommerce(
        ROWS, ROWS, ROWS, dim, 3, (9,), (12,), longest=LONGEST
    ),
    "shared": shared,
}
# The rule, PyTorch's of the parameters, PyTorch's of the rows.
RULES = {
    "sgd": (lsh.SGD(0.03), "SGD", "SGD"),
    # (A larger ε: with the default, gradients that are rounding alone make whole steps.)
    "adagrad": (lsh.Adagrad(0.05, eps=1e-3), "Adagrad", "Adagrad"),
    "adam": (lsh.Adam(0.005, eps=1e-3), "Adam", "SparseAdam"),
}


def column(data: ClickDataset, feature: int, rows: Any) -> Column:
    if not isinstance(data.ids, tuple):
        return Column(data.ids[rows, feature], None, None)
    ids = data.ids[feature]
    if not isinstance(ids, Bags):
        return Column(ids[rows], None, None)
    taken = ids.take(np.asarray(rows))
    return Column(taken.ids, taken.offsets, taken.weights)


class PyTorch:
    """A model with its optimizers, in double precision."""

    def __init__(
        self, graph: Graph, data: ClickDataset, rule: str, start: dict[str, lsh.Table]
    ) -> None:
        self.graph, self.data = graph, data
        self.theta = torch.tensor(graph.init(SEED), dtype=torch.float64, requires_grad=True)
        self.rows = [
            torch.tensor(start[t.name].lookup(np.arange(ROWS)), dtype=torch.float64)
            for t in graph.tables
        ]
        for rows in self.rows:
            rows.requires_grad = True
        ours, *optimizers = RULES[rule]
        settings = {"lr": ours.lr, **({"eps": ours.eps} if rule != "sgd" else {})}
        self.optimizers = [
            getattr(torch.optim, name)(optimized, **settings)
            for name, optimized in zip(optimizers, ([self.theta], self.rows), strict=True)
        ]

    def step(self, numbers: Any) -> None:
        data = self.data
        columns = [column(data, f, numbers) for f in self.graph.id_features]
        batch = Batch(data.x[numbers], data.y[numbers], columns)
        o = outputs(self.graph, self.theta, self.rows, batch)[:, 0]
        weights = None if data.weights is None else torch.tensor(data.weights[numbers])
        loss = torch.nn.functional.binary_cross_entropy_with_logits(
            o, torch.tensor(batch.y, dtype=torch.float64), weights
        )
        self.theta.grad, *found = torch.autograd.grad(loss, [self.theta, *self.rows])
        with torch.sparse.check_sparse_tensor_invariants():
            for table, rows, gradient in zip(self.graph.tables, self.rows, found, strict=True):
                read = [
                    c.ids
                    for c, node in zip(columns, self.graph.embeddings, strict=True)
                    if node.table is table
                ]
                touched = torch.tensor(np.unique(np.concatenate(read)).astype(np.int64))
                rows.grad = torch.sparse_coo_tensor(touched[None], gradient[touched], rows.shape)
            for optimizer in self.optimizers:
                optimizer.step()


@pytest.mark.parametrize(("dim", "kind"), [(10, "weights"), (16, "one")])
@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("name", GRAPHS)
def test_training_follows_pytorch(name: str, rule: str, dim: int, kind: str) -> None:
    graph = GRAPHS[name](dim)
    data = clicks(graph, 50, kind)
    if kind == "weights":
        data = ClickDataset.from_arrays(
            data.x,
            dict(zip(data.names, data.ids, strict=True)),
            data.y,
            weights=np.random.default_rng(1).integers(0, 3, len(data)),
        )
    ours = RULES[rule][0]

    def new() -> dict[str, lsh.Table]:
        return tables.of(graph.tables, rule=ours, init=tables.normal(0.4), seed=SEED)

    torchs = PyTorch(graph, data, rule, new())
    for k in range(STEPS):
        torchs.step(lsh._core.batch_rows(SEED, len(data), BATCH, k))
        if k > 1 and k % 8 != 1:
            continue
        result = lsh.train(
            graph,
            data,
            until=lsh.until(updates=k + 1),
            discipline=lsh.Sequential(),
            rule=ours,
            batch_size=BATCH,
            seed=SEED,
            init=lsh.Init(tables=new()),
            observe=lsh.Observe(every=60.0),
        )
        close = {"atol": 2e-4, "rtol": 0}
        np.testing.assert_allclose(result.parameters, torchs.theta.detach().numpy(), **close)
        for table, rows in zip(graph.tables, torchs.rows, strict=True):
            got = result.tables[table.name].lookup(np.arange(ROWS))
            np.testing.assert_allclose(got, rows.detach().numpy(), **close)
