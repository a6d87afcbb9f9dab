"""Graphs of blocks against PyTorch's autograd, which follows their nodes' definitions in double."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from dataclasses import FrozenInstanceError
from typing import Any

import numpy as np
import pytest
from graph_reference import ROWS, Batch, draw, outputs, reference, tables_of

from leashed import _core, models
from leashed.models import (
    FM,
    GRU,
    AttentionPool,
    AttentionUnit,
    Concat,
    Conv2d,
    Dense,
    Dot,
    Embedding,
    Graph,
    Input,
    Product,
    ReLU,
    Sigmoid,
    Sum,
    TableSpec,
    Tanh,
)

torch = pytest.importorskip("torch")
torch.set_num_threads(1)  # its own threads would only wait for each other here


def sequences() -> Graph:
    """Every pooling, a shared table, a sequence, values that several nodes read."""
    shared = TableSpec("shared", 6)
    other = TableSpec("other", 6)
    history = Embedding(shared, "sequence", length=3)
    candidate = Embedding(shared)
    mean, largest = Embedding(other, "mean"), Embedding(other, "max")
    x = Input(5) >> ReLU()
    z = x >> Dense(6) >> ReLU()
    joined = Concat(history, candidate, x, candidate, Dot(z, candidate, mean, largest))
    again = Product(z, Sum(mean, largest, z)) >> ReLU() >> Tanh()
    deep = joined >> Dense(9) >> ReLU() >> Dense(7) >> Tanh() >> Dense(4) >> Sigmoid()
    return Graph(Sum(deep >> Sigmoid() >> Dense(1), Concat(joined, again) >> Dense(1)))


def ids_alone() -> Graph:
    e = [Embedding(TableSpec(f"c{i}", 4)) for i in range(3)]
    return Graph(Sum(FM(*e), Dot(e[0], e[1], e[0]) >> Dense(1, bias=False)), l2=0.0)


GRAPHS = {
    "dlrm": lambda: models.dlrm(ROWS, 10, bottom=(20, 10), top=(24, 12), categories=7),
    "dlrm-4": lambda: models.dlrm(ROWS, 4, 3, bottom=(4,), top=(), categories=20),
    "deepfm": lambda: models.deepfm(ROWS, 10, 5, (12,), categories=4),
    "wide_deep": lambda: models.wide_deep(ROWS, 8, 5, (12, 6), categories=4),
    "dcn": lambda: models.dcn(ROWS, 5, 4, 3, (12,), categories=4),
    "dcn_v2": lambda: models.dcn(ROWS, 5, 4, 3, (12,), weights="matrix", categories=4),
    "sequences": sequences,
    "din": lambda: models.din(ROWS, ROWS, ROWS, 6, 2, (9, 5), (12,), longest=3),
    "dien": lambda: models.dien(ROWS, ROWS, ROWS, 5, 2, 7, (12,), longest=3),
    "ecommerce": lambda: models.ecommerce(ROWS, ROWS, ROWS, 4, 2, (9,), (12,), longest=3),
    "ids_alone": ids_alone,
}


@pytest.fixture(params=GRAPHS)
def graph(request: pytest.FixtureRequest) -> Graph:
    return GRAPHS[request.param]()


@pytest.mark.parametrize("kind", ["one", "bags", "weights"])
@pytest.mark.parametrize("size", [1, 17, 70, 130])
def test_loss_and_gradients_are_those_of_autograd(graph, kind, size):
    random = np.random.default_rng(size)
    theta = graph.init(1) + random.normal(0, 0.1, graph.dimension).astype(np.float32)
    tables = tables_of(graph, random)
    batch = draw(graph, size, random, kind)
    loss, dense, rows = reference(graph, theta, tables, batch)
    columns = [column.native for column in batch.columns]
    for isa in _core.available_isas():
        own = graph.native_at(isa).gradient(theta, batch.x, batch.y, columns, tables)
        np.testing.assert_allclose(own[0], loss, rtol=2e-5)
        np.testing.assert_allclose(own[1], dense, atol=2e-5 * np.abs(dense).max(initial=1))
        for got, expected in zip(own[2], rows, strict=True):
            np.testing.assert_allclose(got, expected, atol=2e-5 * max(np.abs(expected).max(), 0.1))


class Steps:
    """A rule applied to arrays, θ and tables alike."""

    def __init__(self, rule: str, arrays: list[Any]) -> None:
        self.rule = rule
        self.arrays = arrays
        self.sums = [np.zeros_like(array) for array in arrays]

    def apply(self, gradients: list[Any]) -> None:
        for i, g in enumerate(gradients):
            self.sums[i] += np.asarray(g * g, self.sums[i].dtype)
            scale = 0.1 if self.rule == "sgd" else 0.05 / (np.sqrt(self.sums[i]) + 1e-3)
            self.arrays[i] -= np.asarray(scale * g, self.arrays[i].dtype)


def batches(graph: Graph, steps: int) -> Iterator[Batch]:
    random = np.random.default_rng(7)
    for step in range(steps):
        kind = ("one", "bags", "weights")[step % 3]
        yield draw(graph, 17 if step % 5 == 4 else 66, random, kind)


@pytest.mark.parametrize("rule", ["sgd", "adagrad"])
def test_50_steps_follow_pytorch(graph, rule):
    random = np.random.default_rng(3)
    start = [graph.init(2), *tables_of(graph, random)]
    own = Steps(rule, [array.copy() for array in start])
    torchs = Steps(rule, [array.astype(np.float64) for array in start])
    for batch in batches(graph, 50):
        columns = [column.native for column in batch.columns]
        loss, dense, rows = graph.native.gradient(
            own.arrays[0], batch.x, batch.y, columns, own.arrays[1:]
        )
        expected, *gradients = reference(graph, torchs.arrays[0], torchs.arrays[1:], batch)
        np.testing.assert_allclose(loss, expected, rtol=2e-3)
        own.apply([dense, *rows])
        torchs.apply([gradients[0], *gradients[1]])
    for got, expected in zip(own.arrays, torchs.arrays, strict=True):
        np.testing.assert_allclose(got, expected, atol=2e-3)


def test_evaluation_and_predictions_are_those_of_autograd(graph):
    random = np.random.default_rng(4)
    theta, tables = graph.init(5), tables_of(graph, random)
    batch = draw(graph, 150, random, "bags")
    columns = [column.native for column in batch.columns]
    o = outputs(
        graph,
        torch.tensor(theta, dtype=torch.float64),
        [torch.tensor(t, dtype=torch.float64) for t in tables],
        batch,
    )[:, 0].numpy()
    probability = 1 / (1 + np.exp(-o))
    predicted = graph.native.predict(theta, batch.x, columns, tables)
    np.testing.assert_allclose(predicted[:, 0], probability, atol=1e-5)
    loss, accuracy = graph.native.evaluate(theta, batch.x, batch.y, columns, tables)
    judged = -np.log(np.where(batch.y == 1, probability, 1 - probability))
    np.testing.assert_allclose(loss, judged.mean(), rtol=1e-4)
    assert accuracy == pytest.approx(np.mean((o > 0) == (batch.y == 1)))


def test_rows_weights_count():
    graph = GRAPHS["dlrm"]()
    random = np.random.default_rng(6)
    theta, tables = graph.init(5), tables_of(graph, random)
    batch = draw(graph, 40, random, "one")
    columns = [column.native for column in batch.columns]
    counts = random.integers(0, 3, 40)
    loss, dense, rows = graph.native.gradient(
        theta, batch.x, batch.y, columns, tables, counts.astype(np.float32)
    )
    again = np.repeat(np.arange(40), counts)
    repeated = [(ids[again], None, None) for ids, _, _ in columns]
    other = graph.native.gradient(theta, batch.x[again], batch.y[again], repeated, tables)
    share = len(again) / 40
    np.testing.assert_allclose(loss, other[0] * share, rtol=1e-5)
    np.testing.assert_allclose(dense, other[1] * share, atol=1e-6)
    for got, expected in zip(rows, other[2], strict=True):
        np.testing.assert_allclose(got, expected * share, atol=1e-6)


def test_nan_in_a_row_is_not_lost():
    for graph in (make() for make in GRAPHS.values()):
        random = np.random.default_rng(8)
        tables = tables_of(graph, random)
        for table in tables:
            table[:] = np.nan
        batch = draw(graph, 30, random, "one")
        columns = [column.native for column in batch.columns]
        for isa in _core.available_isas():
            loss, *_ = graph.native_at(isa).gradient(
                graph.init(1), batch.x, batch.y, columns, tables
            )
            assert np.isnan(loss)


def test_dlrm_has_the_sizes_of_its_paper():
    graph = models.dlrm(100_000)
    assert graph.dimension == 13 * 64 + 64 + 64 * 16 + 16 + 367 * 64 + 64 + 64 * 32 + 32 + 33
    assert [(t.dim, t.rows) for t in graph.tables] == [(16, 100_000)] * 26
    assert graph.features == 13
    assert graph.classes == 2
    assert graph.flops_per_example == pytest.approx(198_000, rel=0.01)


def test_a_feature_may_have_two_tables():
    graph = models.deepfm([5, 6, 7], dim=4)
    assert len(graph.tables) == 6
    assert sorted(graph.id_features) == [0, 0, 1, 1, 2, 2]


def test_a_shared_table_is_one():
    shared = TableSpec("ids", 3)
    graph = Graph(Concat(Embedding(shared), Embedding(shared)) >> Dense(1))
    assert graph.tables == (shared,)
    assert graph.native.features_of_tables == [0, 0]
    assert graph.id_features == (0, 1)


@pytest.mark.parametrize("activation", [ReLU(), Tanh(), Sigmoid()], ids=repr)
def test_initial_values_and_gradients_are_those_of_a_chain(activation):
    chain = models.Model((4, 1, 1), (Dense(3, bias=False), activation, Dense(2)))
    graph = Graph(Input(4) >> Dense(3, bias=False) >> activation >> Dense(2), "softmax")
    for scheme in models.INITIALISATIONS:
        np.testing.assert_array_equal(graph.init(3, scheme), chain.init(3, scheme))
    np.testing.assert_array_equal(graph.init(3), chain.init(3, "glorot"))
    x = np.random.default_rng(0).normal(size=(70, 4)).astype(np.float32)
    y = np.arange(70, dtype=np.int32) % 2
    loss, gradient, rows = graph.native.gradient(graph.init(3, "he"), x, y, [], [])
    expected = chain.native.gradient(chain.init(3), x, y)
    assert loss == expected[0]
    np.testing.assert_array_equal(gradient, expected[1])
    assert rows == []


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: Dot(Input(3)), "Dot takes at least 2 inputs, got 1"),
        (lambda: Graph(Input(3)), "at least one node with parameters"),
        (
            lambda: Graph(Dot(Input(3), Embedding(TableSpec("a", 4)))),
            r"node 2 \(dot\): its inputs must have one width, but node 0 has 3 and node 1 has 4",
        ),
        (lambda: Graph(Concat(Input(3), Input(3)) >> Dense(1)), r"node 1 \(input\): there is an"),
        (lambda: Graph(Input(3) >> Dense(2), "huber"), "huber takes a last layer"),
        (lambda: Graph(Input(3) >> Dense(2), "none"), "loss must be one of"),
        (
            lambda: Graph(
                Sum(Embedding(TableSpec("a", 2)), Embedding(TableSpec("a", 2, 5))) >> Dense(1)
            ),
            "two tables are called 'a'",
        ),
        (
            lambda: Graph(
                Sum(Embedding(TableSpec("a", 2)), Embedding(TableSpec("b", 2), feature=0))
                >> Dense(1)
            ),
            "feature must be given for all embeddings of a graph, or for none",
        ),
        (lambda: Embedding(TableSpec("a", 2), "median"), "pooling must be one of sum, mean"),
        (lambda: Embedding(TableSpec("a", 2), "sequence"), "length is given for"),
        (lambda: Embedding(TableSpec("a", 2), length=3), "length is given for"),
        (lambda: TableSpec("a", 0), "dim must be at least 1"),
        (lambda: models.dlrm(10, 8, bottom=(64, 16)), "bottom must end in dim, 8"),
        (lambda: models.dlrm([]), "rows must name at least one table"),
        (lambda: models.dcn(10, hidden=()), "hidden must have at least one width"),
        (lambda: models.dcn(10, weights="full"), "weights must be"),
        (lambda: models.din(attention=()), "hidden must have at least one width"),
        (lambda: models.dien(units=0), "units must be at least 1"),
        (
            lambda: Graph(AttentionUnit(Input(3), Embedding(TableSpec("a", 4), "sequence", 2))),
            r"\(attention_unit\): the query must be as wide as a key, 4, but is 3",
        ),
        (
            lambda: Graph(AttentionPool(Input(2), Embedding(TableSpec("a", 4), "sequence", 2))),
            "its input 0 must be a sequence: an embedding whose pooling is",
        ),
        (
            lambda: Graph(GRU(Embedding(TableSpec("a", 2**20), "sequence", 2**20), 2**30)),
            "too large for any memory",
        ),
        (
            lambda: Graph(Embedding(TableSpec("a", 2**31 - 1), "sequence", 2**31 - 1) >> Dense(1)),
            "too large for any memory",
        ),
    ],
)
def test_what_does_not_fit_is_told(build, message):
    with pytest.raises(ValueError, match=message):
        build()


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: Input(3) >> Conv2d(1, 1), "must be Dense, ReLU"),
        (lambda: Concat(Input(3), Dense(2)), "Concat's input 1 must be a node.*node >> layer"),
        (lambda: Graph(Dense(2)), "output must be a node"),
        (lambda: Embedding("a"), "table must be a TableSpec"),
        (lambda: TableSpec(3, 4), "name must be a str"),
    ],
)
def test_what_is_none_is_told(build, message):
    with pytest.raises(TypeError, match=message):
        build()


@pytest.mark.parametrize(
    ("nodes", "tables", "message"),
    [
        ([], [], "at least one node"),
        (
            [("dense", {"outputs": 1}, [0])],
            [],
            r"node 0 \(dense\): it reads node 0, which does not",
        ),
        ([("dense", {"outputs": 1}, [])], [], r"node 0 \(dense\): it takes 1 input, got 0"),
        (
            [("nothing", {}, [])],
            [],
            "unknown node 'nothing'; choose one of: attention_pool, attention_scores, attention_unit, augru, batch_norm, concat",
        ),
        (
            [("input", {"features": 2}, []), ("input", {"features": 2}, [])],
            [],
            r"node 0 \(input\): nothing reads it",
        ),
        (
            [("embedding", {"table": 1, "pooling": ("sum", {})}, [])],
            [("a", 2)],
            "table 1 is not among the 1 there are",
        ),
        (
            [("input", {"features": 2}, []), ("dense", {"outputs": 1}, [0])],
            [("a", 2)],
            "table a is read by no embedding",
        ),
        ([("input", {"features": 0.5}, [])], [], "features must be a whole number from 1"),
        ([("concat", {}, [])], [], "it takes at least 1 input"),
    ],
)
def test_the_core_names_the_node(nodes, tables, message):
    with pytest.raises(ValueError, match=message):
        _core.Graph(nodes, tables)


def test_batches_that_do_not_fit_are_told():
    graph = Graph(Embedding(TableSpec("a", 2)) >> Dense(1))
    theta, table = graph.init(), np.zeros((3, 2), np.float32)
    y = np.zeros(2, np.int32)

    def gradient(ids, offsets=None, weights=None, tables=(table,)):
        column = (np.array(ids, np.uint64), offsets, weights)
        return graph.native.gradient(theta, None, y, [column], list(tables))

    gradient([0, 2])
    with pytest.raises(ValueError, match="has id 3, but table a has 3 rows"):
        gradient([0, 3])
    with pytest.raises(ValueError, match="offsets must not descend"):
        gradient([0, 1], np.array([0, 2, 1], np.uint32))
    with pytest.raises(ValueError, match="offsets must be 3, from 0"):
        gradient([0, 1], np.array([1, 2, 3], np.uint32))
    with pytest.raises(ValueError, match="tables 1, got 1 and 0"):
        gradient([0, 1], tables=())


def test_nodes_do_not_change():
    x = Input(3)
    node = x >> Dense(2)
    for one, name in ((x, "features"), (node, "layer"), (node, "inputs"), (Sum(node), "inputs")):
        with pytest.raises(FrozenInstanceError):
            setattr(one, name, None)
    again = pickle.loads(pickle.dumps(Graph(Concat(node, x) >> Dense(1))))
    assert [type(one).__name__ for one in again.nodes] == ["Input", "Applied", "Concat", "Applied"]


def test_a_matrix_s_cross_layer_is_that_of_its_paper():
    graph = models.dcn(ROWS, 2, 3, 1, (1,), weights="matrix", categories=2)
    width = 3 + 2 * 2
    plain = models.dcn(ROWS, 2, 3, 1, (1,), categories=2)
    assert graph.dimension - plain.dimension == width * width - width
