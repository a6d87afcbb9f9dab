"""What is evaluated and predicted with tables: equal to NumPy's, and without a trace in them."""

from __future__ import annotations

import os
import signal
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from made_clicks import clicks, shared, small

import leashed as lsh
from leashed.datasets import ClickDataset, ClickSplit
from leashed.models import Graph, tables


def judged(predicted: Any, data: ClickDataset) -> tuple[float, float, float, float]:
    """Loss, accuracy, AUC of all pairs, and normalised entropy."""
    p = predicted[:, 0].astype(np.float64)
    clicked = data.y == 1
    losses = -np.log(np.where(clicked, p, 1 - p))
    pairs = p[clicked][:, None] - p[~clicked][None]
    share = clicked.mean()
    entropy = -share * np.log(share) - (1 - share) * np.log(1 - share)
    auc = (pairs > 0).mean() + 0.5 * (pairs == 0).mean()
    return losses.mean(), ((p > 0.5) == clicked).mean(), auc, losses.mean() / entropy


def growing(graph: Graph, **settings: Any) -> dict[str, lsh.Table]:
    return tables.of(graph.tables, rule=lsh.Adagrad(0.1), **settings)


@pytest.mark.parametrize("kind", ["one", "bags", "weights"])
def test_a_result_tells_what_the_model_and_numpy_tell(kind: str) -> None:
    graph = shared()
    data, test = clicks(graph, 700, kind), clicks(graph, 300, kind, seed=1)
    result = lsh.train(
        graph,
        data,
        validation=test,
        until=lsh.until(epochs=4),
        rule=lsh.Adagrad(0.1),
        threads=2,
        batch_size=16,
    )
    for given, prefix in ((data, ""), (test, "validation_")):
        found = graph.evaluate(result.parameters, given, result.tables)
        for name in ("auc", "normalised_entropy", "accuracy"):
            wanted = pytest.approx(getattr(found, name), rel=1e-12)
            assert getattr(result, prefix + name)[-1] == wanted
        predicted = graph.predict(result.parameters, given, result.tables)
        expected = judged(predicted, given)
        assert found.loss == pytest.approx(expected[0], rel=1e-4)
        assert found.accuracy == pytest.approx(expected[1])
        assert found.auc == pytest.approx(expected[2], abs=2e-3)
        assert found.normalised_entropy == pytest.approx(expected[3], rel=1e-4)
        logits = graph.logits(result.parameters, given, result.tables)
        np.testing.assert_allclose(1 / (1 + np.exp(-logits)), predicted[:, 0], rtol=1e-5)
        one = graph.logits(result.parameters, given, result.tables, threads=1)
        np.testing.assert_array_equal(logits, one)
        for threads in (1, 2, 5):
            again = graph.evaluate(result.parameters, given, result.tables, threads=threads)
            assert again[:2] == found[:2]
            np.testing.assert_allclose(again, found, rtol=1e-12)
        metrics = pytest.importorskip("sklearn.metrics")
        assert found.auc == pytest.approx(metrics.roc_auc_score(given.y, predicted[:, 0]), abs=2e-3)
        assert found.loss == pytest.approx(
            metrics.log_loss(given.y, predicted[:, 0].astype(np.float64)), rel=1e-4
        )
    assert result.loss[-1] == graph.evaluate(result.parameters, data, result.tables).loss


def test_a_split_brings_its_test_rows() -> None:
    graph = small()
    split = clicks(graph, 300).split(100)
    assert isinstance(split, ClickSplit)
    result = lsh.train(graph, split, until=lsh.until(updates=5), threads=1, batch_size=16)
    found = graph.evaluate(result.parameters, split.test, result.tables)
    assert result.validation_accuracy[-1] == found.accuracy
    assert result.validation_auc[-1] == pytest.approx(found.auc, rel=1e-12)


@pytest.mark.parametrize("settings", [{}, {"admit_after": 3}, {"evict": "age"}])
def test_evaluation_and_prediction_leave_no_trace(settings: dict[str, Any]) -> None:
    graph = small(rows=None)
    new = growing(graph, max_bytes=100_000, **settings)
    data = clicks(graph, 600, rows=10**9)
    result = lsh.train(
        graph, data, init=lsh.Init(tables=new), until=lsh.until(epochs=1), threads=2, batch_size=16
    )
    seen = np.concatenate([data.ids, clicks(graph, 50, seed=9, rows=10**9).ids])

    def state() -> list[Any]:
        told: list[Any] = [table.statistics() for table in new.values()]
        for feature, table in enumerate(new.values()):
            values, versions = table.lookup(seen[:, feature], versions=True)
            told += [values.tobytes(), versions.tobytes()]
        return told

    before = state()
    other = clicks(graph, 2000, seed=9, rows=10**9)
    for threads in (1, 2):
        graph.evaluate(result.parameters, other, new, threads=threads)
    graph.predict(result.parameters, other, new)
    assert state() == before


def test_rows_are_admitted_by_batches_alone() -> None:
    """Not by the evaluations before, beside and after, of ids that are all different."""
    graph = small(rows=None)
    n, batch, updates = 2000, 10, 20
    random = np.random.default_rng(0)
    ids = np.arange(1, 2 * n + 1).reshape(n, 2)
    data = ClickDataset.from_arrays(random.normal(size=(n, 3)), ids, np.arange(n) % 2)
    result = lsh.train(
        graph,
        data,
        validation=clicks(graph, seed=4, rows=10**9),
        init=lsh.Init(tables=growing(graph)),
        until=lsh.until(updates=updates),
        threads=1,
        batch_size=batch,
        observe=lsh.Observe(every=1e-4),
    )
    for table in result.tables.values():
        told = table.statistics()
        assert told["applied"] == updates * batch
        assert told["asked"] == told["admitted"] == updates * batch


def test_initial_losses_are_those_of_rows_as_they_begin() -> None:
    """Of an id without a row, too."""
    grows, fixed = small(rows=None), small()
    data = clicks(fixed)
    until = lsh.until(updates=1)
    losses = [
        lsh.train(
            graph,
            data,
            init=lsh.Init(tables=tables.of(graph.tables, seed=8)),
            until=until,
            threads=1,
        ).loss[0]
        for graph in (grows, fixed)
    ]
    assert losses[0] == losses[1]


def test_one_label_has_neither_area_nor_entropy() -> None:
    graph = small()
    data = clicks(graph, 40)
    only = ClickDataset.from_arrays(data.x, data.ids, np.ones(40))
    result = lsh.train(graph, only, until=lsh.until(updates=2), threads=1, batch_size=8)
    assert np.isnan(result.auc).all()
    assert np.isnan(result.normalised_entropy).all()
    assert np.isfinite(result.loss).all()


@pytest.mark.parametrize("threads", [1, 2, None])
def test_ctrl_c_ends_evaluation_and_prediction_and_lets_rows_go(
    threads: int | None, tmp_path: Path
) -> None:
    graph = small(rows=None)
    data = clicks(graph, 50_000, rows=1000)
    new = growing(graph)
    theta = graph.init()

    def evaluate(timer: threading.Timer) -> None:
        timer.start()
        while True:
            graph.evaluate(theta, data, new, threads=threads)

    def predict(timer: threading.Timer) -> None:
        timer.start()
        while True:
            graph.predict(theta, data, new)

    for lasting in (evaluate, predict):
        timer = threading.Timer(0.05, os.kill, (os.getpid(), signal.SIGINT))
        with pytest.raises(KeyboardInterrupt):
            lasting(timer)
        timer.join()
        for name, table in new.items():  # which only nobody's being there lets load
            table.save(tmp_path / name)
            table.load(tmp_path / name)
