"""Dropout against NumPy's masks, in training, in evaluation, and in whatever computes again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import matrix
import numpy as np
import pytest
from graph_reference import draw, reference, tables_of
from made_clicks import clicks
from reference_philox import philox

import leashed as lsh
from leashed import _core, models
from leashed.models import (
    Concat,
    Dense,
    Dropout,
    Embedding,
    Graph,
    Input,
    Product,
    ReLU,
    Sum,
    TableSpec,
)

Floats = np.ndarray[Any, np.dtype[np.float32]]

RATE = 0.3
ZOO: dict[str, Any] = {
    "dlrm": models.dlrm,
    "deepfm": models.deepfm,
    "dcn": models.dcn,
    "wide_deep": models.wide_deep,
    "din": models.din,
    "dien": models.dien,
    "ecommerce": models.ecommerce,
}


def mask(seed: int, place: int, node: int, size: int, width: int, rate: float) -> Floats:
    """Of the examples from that place of the stream on, [size, width]."""
    stream = int.from_bytes(b"dropout!", "big")
    kept = np.empty((size, width), np.float32)
    for row in range(size):
        words = [
            w
            for j in range(0, width, 4)
            for w in philox(seed, stream ^ (place + row), node << 32 | j // 4)
        ]
        kept[row] = np.array(words[:width]) >= round(rate * 2**32)
    return kept / np.float32(1 - rate)


def dropping() -> Graph:
    """Behind a ReLU, of a row, of what others read too, and last."""
    e = Embedding(TableSpec("a", 6))
    z = Input(4) >> Dense(6) >> ReLU() >> Dropout(RATE)
    both = Concat(z, e >> Dropout(0.5), Product(z, e)) >> Dropout(0.0)
    return Graph(Sum(both >> Dense(1), both >> Dense(5) >> ReLU() >> Dense(1) >> Dropout(0.1)))


@pytest.mark.parametrize("size", [1, 17, 130])
def test_loss_and_gradients_are_those_of_autograd_with_the_same_masks(size: int) -> None:
    graph, seed, place = dropping(), 2**40 + 3, 2**33 + 7
    random = np.random.default_rng(size)
    theta = graph.init(1) + random.normal(0, 0.1, graph.dimension).astype(np.float32)
    tables = tables_of(graph, random)
    masks = {
        node: mask(
            seed,
            place,
            i,
            size,
            {RATE: 6, 0.5: 6, 0.0: 18, 0.1: 1}[node.layer.rate],
            node.layer.rate,
        )
        for i, node in enumerate(graph.nodes)
        if isinstance(getattr(node, "layer", None), Dropout)
    }
    assert len(masks) == 4
    batch = draw(graph, size, random, "one")
    loss, dense, rows = reference(graph, theta, tables, batch, masks=masks)
    columns = [column.native for column in batch.columns]
    for isa in _core.available_isas():
        native = graph.native_at(isa)
        own = native.gradient(theta, batch.x, batch.y, columns, tables, seed=seed, place=place)
        np.testing.assert_allclose(own[0], loss, rtol=1e-4)
        np.testing.assert_allclose(own[1], dense, atol=1e-4)
        for got, expected in zip(own[2], rows, strict=True):
            np.testing.assert_allclose(got, expected, atol=1e-4)


def test_the_share_that_is_dropped_is_the_rate() -> None:
    graph = Graph(Input(64) >> Dropout(RATE) >> Dense(1), loss="squared_error")
    x = np.ones((2000, 64), np.float32)
    theta = np.append(np.ones(64), 0).astype(np.float32)
    _, gradient, _ = graph.native.gradient(theta, x, np.zeros(2000, np.float32), [], [], seed=1)
    # Each example's output is then its gradient too: of 64 on average, what is dropped made up for.
    assert gradient[-1] == pytest.approx(64, rel=0.01)
    kept = mask(1, 0, 1, 2000, 64, RATE)
    assert float((kept > 0).mean()) == pytest.approx(1 - RATE, abs=0.01)
    np.testing.assert_allclose(gradient[-1], kept.sum(1).mean(), rtol=1e-4)


def small(dropout: float, name: str = "dlrm") -> Graph:
    if name in ("din", "dien", "ecommerce"):
        return ZOO[name](12, 12, 12, 4, hidden=(8, 4), dropout=dropout)
    sizes = {"bottom": (4,), "top": (8, 6)} if name == "dlrm" else {"hidden": (8, 6)}
    return ZOO[name](12, 4, 3, categories=2, dropout=dropout, **sizes)


def data_for(graph: Graph) -> lsh.ClickDataset:
    if len(graph.id_features) > 3 and max(graph.id_features) == 4:
        made = lsh.datasets.synthetic_histories(300, 1, test=10, users=12, items=12, categories=12)
        return made.train
    return clicks(graph, 300)


def trained(graph: Graph, data: Any, updates: int = 30, **settings: Any) -> lsh.TrainResult:
    return lsh.train(
        graph,
        data,
        until=lsh.until(updates=updates),
        rule=lsh.Adagrad(0.05),
        batch_size=16,
        **{"threads": 1, "seed": 3, **settings},
    )


@pytest.mark.parametrize("name", ZOO)
def test_a_rate_of_0_changes_no_bit_and_another_does(name: str) -> None:
    plain = small(0.0, name)
    data = data_for(plain)
    before = trained(plain, data)
    assert len(small(0.0, name).nodes) < len(small(0.4, name).nodes)
    theta = before.parameters
    dropped = trained(small(0.4, name), data)
    assert dropped.parameters.shape == theta.shape
    assert dropped.config["init"] == "glorot"  # of graphs that are not told any
    assert not np.array_equal(dropped.parameters, theta)
    # What has been trained gives the same without it.
    tables = dropped.tables
    np.testing.assert_array_equal(
        small(0.4, name).predict(dropped.parameters, data, tables),
        plain.predict(dropped.parameters, data, tables),
    )
    assert dropped.final_loss == plain.evaluate(dropped.parameters, data, tables).loss


def test_a_layer_of_rate_0_changes_no_bit() -> None:
    def graph(*between: Any) -> Graph:
        node = Concat(Input(3), Embedding(TableSpec("a", 4, 12))) >> Dense(8) >> ReLU()
        for layer in between:
            node = node >> layer
        return Graph(node >> Dense(1))

    one, other = graph(), graph(Dropout(0))
    data = clicks(one, 300)
    np.testing.assert_array_equal(trained(one, data).parameters, trained(other, data).parameters)


def test_one_thread_gives_the_same_bits_under_every_discipline_and_goes_on(tmp_path: Path) -> None:
    graph = small(0.4)
    data = data_for(graph)
    expected = trained(graph, data)
    others = [
        trained(graph, data, discipline=each)
        for each in (lsh.Sequential(), lsh.Hogwild(), lsh.Locked(), lsh.Synchronous())
    ]
    trained(graph, data, 17, checkpoint=tmp_path / "run")
    others.append(trained(graph, data, resume=tmp_path / "run"))
    others.append(trained(graph, data, mode=lsh.modes.ASP()))
    for other in others:
        np.testing.assert_array_equal(other.parameters, expected.parameters)
    found = lsh.load(tmp_path / "run").model
    assert isinstance(found, Graph)
    assert [node.choice() for node in found.nodes] == [node.choice() for node in graph.nodes]
    played = lsh.simulate(
        graph,
        data,
        cluster=lsh.simulation.constant(1, 1.0),
        until=lsh.until(updates=30),
        rule=lsh.Adagrad(0.05),
        batch_size=16,
        seed=3,
    ).result
    np.testing.assert_array_equal(played.parameters, expected.parameters)


@pytest.mark.parametrize(
    "way", [{"discipline": lsh.Synchronous()}, {"mode": lsh.modes.ASP()}], ids=["sync", "asp"]
)
def test_a_recorded_run_is_made_again(way: dict[str, Any], tmp_path: Path) -> None:
    graph = small(0.4)
    data = data_for(graph)
    result = trained(graph, data, threads=2, observe=lsh.Observe(record=tmp_path / "run"), **way)
    made = lsh.replay(tmp_path / "run", graph, data)
    np.testing.assert_array_equal(made.parameters, result.parameters)


def test_streams_draw_by_the_seed_too(tmp_path: Path) -> None:
    _, stream = matrix.problems(tmp_path)["stream of clicks"]()

    def run(seed: int, rate: float) -> Floats:
        model = models.dlrm(12, 4, 3, bottom=(4,), top=(4,), categories=2, dropout=rate)
        start = lsh.Init(model.init(0), models.tables.of(model.tables, seed=0))
        return trained(model, stream, 15, seed=seed, init=start).parameters

    np.testing.assert_array_equal(run(1, 0.0), run(2, 0.0))
    np.testing.assert_array_equal(run(1, 0.4), run(1, 0.4))
    assert not np.array_equal(run(1, 0.4), run(2, 0.4))


def test_what_is_no_rate_is_refused() -> None:
    for wrong, told in ((1.0, "below 1"), (-0.1, "rate must be"), (float("nan"), "rate must be")):
        with pytest.raises(ValueError, match=told):
            Dropout(wrong)
        with pytest.raises(ValueError, match="dropout must be"):
            small(wrong)
    with pytest.raises(TypeError, match="rate must be"):
        Dropout("half")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="layers must not have Dropout"):
        models.Model((20, 1, 1), [Dense(8), Dropout(0.5), Dense(2)])
