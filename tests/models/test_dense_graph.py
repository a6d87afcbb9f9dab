"""Graphs that read no tables, on dense data: evaluated, and asked for what they say, as networks."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import leashed as lsh
from leashed.models import Dense, Graph, Input, Model, ReLU


def data(n: int = 700) -> lsh.Dataset:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(n, 6)).astype(np.float32)
    weights = rng.exponential(size=n)
    return lsh.Dataset.from_arrays(x, (x[:, 0] * x[:, 1] > 0).astype(int), weights=weights)


LAYERS = (Dense(8), ReLU(), Dense(1))


def chain() -> Graph:
    return Graph(Input(6) >> LAYERS[0] >> LAYERS[1] >> LAYERS[2], l2=1e-3)


def test_a_chain_says_what_the_network_of_its_layers_does() -> None:
    graph, network = chain(), Model((6, 1, 1), LAYERS, loss="log_loss")
    rows, theta = data(), np.random.default_rng(1).normal(size=65).astype(np.float32)
    assert graph.dimension == network.dimension == 65
    expected = network.predict(theta, rows.x)
    found = graph.predict(theta, rows.x)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(graph.predict(theta, rows.x[3]), found[3:4])
    loss, accuracy = network.evaluate(theta, rows)
    for threads in (None, 1):
        evaluated = graph.evaluate(theta, rows, threads=threads)
        assert evaluated.loss == pytest.approx(loss, rel=1e-5)
        assert evaluated.accuracy == accuracy
    assert rows.weights is not None
    above = expected[rows.y == 1] > expected[rows.y == 0].T
    share = np.outer(rows.weights[rows.y == 1], rows.weights[rows.y == 0])
    assert evaluated.auc == pytest.approx((share * above).sum() / share.sum(), abs=1e-3)


def test_a_result_tells_what_the_graph_tells() -> None:
    graph, rows = chain(), data()
    result = lsh.train(graph, rows, until=lsh.until(epochs=2), threads=1)
    found = graph.evaluate(result.parameters, rows)
    assert (found.loss, found.accuracy) == (result.loss[-1], result.accuracy[-1])


@pytest.mark.parametrize(
    ("ask", "error", "message"),
    [
        (lambda g, t: g.evaluate(t, 3), TypeError, "data must be a Dataset, got int"),
        (lambda g, t: g.predict(t, np.ones((2, 5))), ValueError, "x must have 6 values per row"),
        (lambda g, t: g.predict(t, np.ones((0, 6))), ValueError, "at least one row"),
        (lambda g, t: g.predict(t, [[np.nan] * 6]), ValueError, "x is NaN, infinite"),
        (lambda g, t: g.predict(t[:9], np.ones((2, 6))), ValueError, "parameters must have length"),
        (
            lambda g, t: g.evaluate(t, lsh.Dataset.from_arrays(np.ones((2, 5)), [0, 1])),
            ValueError,
            "data has 5 features, but the model takes 6",
        ),
        (lambda g, t: g.evaluate(t, data(), {"a": 1}), TypeError, "tables must map names to"),
    ],
)
def test_what_does_not_fit_is_refused(ask: Any, error: type[Exception], message: str) -> None:
    graph = chain()
    with pytest.raises(error, match=message):
        ask(graph, np.zeros(graph.dimension, np.float32))
