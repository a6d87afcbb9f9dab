"""Trainings whose rows embedding servers pool, beside those that read rows, and those of one process."""

from __future__ import annotations

from typing import Any

import made_clicks
import numpy as np
import pytest
from cluster.test_remote_rows import Example, Servers, ids_of, same_bits, watch

import leashed as lsh
from leashed import _core
from leashed.models import Concat, Dense, Dot, Embedding, Graph, Input, ReLU, TableSpec

UPDATES = 40
KINDS = ["one", "bags", "weights"]


def pooled(rows: int | None = 300, dim: int = 8) -> Graph:
    """Each feature has a table of its own, and is read as another pool of its ids."""
    kinds = ("sum", "sum", "mean", "max")
    read = [Embedding(TableSpec(f"t{i}", dim, rows), kind) for i, kind in enumerate(kinds)]
    z = Input(3) >> Dense(dim) >> ReLU()
    return Graph(Concat(z, read[3], Dot(z, *read[:3])) >> Dense(8) >> ReLU() >> Dense(1))


def example(graph: Graph, kind: str, rule: lsh.Rule | None = None, **given: Any) -> Example:
    data = made_clicks.clicks(graph, n=2000, kind=kind, rows=300)
    return Example(graph, data, rule or lsh.Adagrad(0.05), given)


def differences(of: Example, servers: Servers, outcome: dict[str, Any]) -> list[float]:
    """The largest between what one process comes to and that, of parameters and of each table."""
    local = of.tables()
    alone = _core.train(of.training(1, list(local.values())), watch(UPDATES))
    found = [np.abs(alone["parameters"] - outcome["parameters"]).max()]
    for name, table in local.items():
        ids = ids_of(table)
        found.append(np.abs(table.lookup(ids) - servers.lookup(name, ids)).max())
    return [float(one) for one in found]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("count", [1, 2, 3])
def test_whole_tables_have_the_bits_of_one_process(count: int, kind: str) -> None:
    of = example(pooled(), kind)
    servers = Servers(of, count, whole=True)
    outcome, counted = servers.train(pooling="servers")
    same_bits(of, servers, outcome, UPDATES)
    assert counted["pools"] > 0
    rows = Servers(of, count, whole=True)
    read, beside = rows.train(pooling="rows")
    assert np.array_equal(read["parameters"], outcome["parameters"])
    assert beside["pools"] == 0


@pytest.mark.parametrize(
    "rule",
    [lsh.SGD(0.1), lsh.Adam(0.01), lsh.SWAP(lsh.Adagrad(0.05), period=7)],
    ids=["sgd", "adam", "swap"],
)
def test_by_every_rule(rule: lsh.Rule) -> None:
    of = example(pooled(), "bags", rule)
    servers = Servers(of, 2, whole=True)
    same_bits(of, servers, servers.train(pooling="servers")[0], UPDATES)


@pytest.mark.parametrize("given", [{}, {"admit_after": 3}], ids=["growing", "admitted after 3"])
def test_growing_tables_too(given: dict[str, Any]) -> None:
    of = example(pooled(None), "bags", max_bytes=1 << 24, **given)
    servers = Servers(of, 2, whole=True, loops=2)
    same_bits(of, servers, servers.train(pooling="servers")[0], UPDATES)


def test_tables_that_evict_keep_within_their_memory() -> None:
    of = example(pooled(None), "bags", max_bytes=1 << 14, evict="age")
    servers = Servers(of, 2, whole=True)
    outcome, counted = servers.train(2, look_ahead=1, updates=200, pooling="servers")
    assert counted["settled"] == 400
    assert outcome["rows"]["applied"] + outcome["rows"]["refused"] > 0
    for tables in servers.tables:
        for table in tables.values():
            assert table.statistics()["bytes"] <= 1 << 14


@pytest.mark.parametrize("kind", KINDS)
def test_spread_tables_are_equal_to_rounding(kind: str) -> None:
    of = example(pooled(), kind)
    servers = Servers(of, 3)
    outcome, _ = servers.train(pooling="servers")
    assert max(differences(of, servers, outcome)) < 1e-4


@pytest.mark.parametrize("whole", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_a_table_that_is_read_as_rows_too_is_equal_to_rounding(kind: str, whole: bool) -> None:
    """Three features share it, and one of them reads a sequence."""
    graph = made_clicks.shared()
    of = Example(graph, made_clicks.clicks(graph, kind=kind))
    servers = Servers(of, 2, whole)
    outcome, counted = servers.train(pooling="servers")
    assert max(differences(of, servers, outcome)) < 1e-4
    assert counted["pools"] > 0


def test_a_sequence_always_takes_rows() -> None:
    graph = made_clicks.shared()
    read = [one.pooling for one in graph.embeddings]
    assert sorted(read) == ["max", "mean", "sequence", "sum", "sum"]
    assert graph.poolings == tuple(None if one == "sequence" else one for one in read)
    rows = Servers(Example(graph, made_clicks.clicks(graph)), 1).rows(1, 0, "servers")
    assert rows.pooled == [one != "sequence" for one in read]


@pytest.mark.parametrize(("workers", "loops"), [(1, 1), (3, 2)])
def test_with_a_look_ahead_all_pushes_are_in_the_rows(workers: int, loops: int) -> None:
    servers = Servers(example(pooled(), "weights"), 2, loops=loops)
    outcome, counted = servers.train(workers, look_ahead=1, updates=200, pooling="servers")
    assert outcome["updates"] == counted["pushes"] == 200
    assert counted["settled"] == 400
    told = [native.counters() for native in servers.natives]
    assert outcome["rows"]["applied"] == sum(each["pushed"] for each in told)
    assert all(each["pooled"] > 0 for each in told)


def test_losses_are_those_of_one_process() -> None:
    of = example(pooled(), "bags")
    servers = Servers(of, 2, whole=True)
    rows = servers.rows(1, 0, "servers")
    servers.join(rows)

    def until() -> _core.Watch:
        return _core.Watch(until={"updates": 40.0, "loss": 0.01}, evaluate_every=0.001)

    outcome = _core.train(of.training(1, []), until(), rows=rows)
    alone = _core.train(of.training(1, list(of.tables().values())), until())
    assert outcome["evaluations"][-1]["loss"] == alone["evaluations"][-1]["loss"]
    assert rows.counters()["reads"] > 0


def test_auto_finds_by_feature_what_takes_fewer_bytes() -> None:
    """Long bags are pooled; single ids, and bags of ids that come again and again, are not."""
    tables = [TableSpec(name, 8, 5000) for name in ("one", "long", "also")]
    z = Input(3) >> Dense(8) >> ReLU()
    read = [Embedding(tables[0]), Embedding(tables[1], "mean"), Embedding(tables[2], "mean")]
    graph = Graph(Dot(z, *read) >> Dense(1))
    random = np.random.default_rng(1)
    n = 3000
    columns: dict[str, Any] = {"C1": random.integers(0, 5000, n)}
    for name, length, below in (("C2", 40, 5000), ("C3", 2, 20)):
        ends = np.arange(n + 1) * length
        columns[name] = lsh.datasets.Bags(random.integers(0, below, ends[-1]), ends)
    x = random.normal(size=(n, 3)).astype(np.float32)
    of = Example(graph, lsh.datasets.ClickDataset.from_arrays(x, columns, x[:, 0] > 0))
    servers = Servers(of, 1)
    rows = servers.rows(1, 0)
    assert not rows.pooled
    servers.join(rows)
    outcome = _core.train(of.training(1, []), watch(UPDATES), rows=rows)
    assert rows.pooled == [False, True, False]
    counted = rows.counters()
    assert counted["bytes_in"] + counted["bytes_out"] < 0.7 * counted["all_rows_bytes"]
    assert counted["least_bytes"] < counted["all_rows_bytes"]
    same_bits(of, servers, outcome, UPDATES)


def test_words_and_poolings_that_make_no_sense_are_refused() -> None:
    servers = Servers(example(pooled(), "one"), 1)
    with pytest.raises(_core.Error, match="pooling"):
        servers.rows(1, 0, "nowhere")
    with pytest.raises(ValueError, match="pooling must be one of auto, rows, servers"):
        lsh.cluster.join(embedding_servers=1, pooling="nowhere")
