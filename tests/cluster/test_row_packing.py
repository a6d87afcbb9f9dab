"""Which embedding server has which rows."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

import leashed as lsh
from leashed.cluster.row_packing import SHARDS, placed
from leashed.models import TableSpec


@st.composite
def models(draw):
    """Tables, the table of each feature, and a number of servers."""
    rows = st.none() | st.integers(1, 10**6)
    sizes = draw(st.lists(st.tuples(rows, st.integers(1, 64)), min_size=1, max_size=12))
    tables = [TableSpec(f"t{k}", dim, rows=count) for k, (count, dim) in enumerate(sizes)]
    more = draw(st.lists(st.integers(0, len(tables) - 1), max_size=12))
    return tables, [*range(len(tables)), *more], draw(st.integers(1, 9))


@given(models(), st.lists(st.integers(-(2**63), 2**63 - 1), min_size=1, max_size=20))
def test_each_row_is_at_one_server_that_has_its_shard(model, ids):
    tables, features, servers = model
    found = placed(tables, features, servers)
    for t, table in enumerate(tables):
        held = [found.placement.shards(t, server) for server in range(servers)]
        assert all(sum(of) == 1 for of in zip(*held, strict=True))
        assert all(len(of) == SHARDS for of in held)
        owners = [server for server in range(servers) if t in found.numbers(server, len(tables))]
        assert owners == [server for server in range(servers) if any(held[server])]
        for each in ids if table.rows is None else [one % table.rows for one in ids]:
            assert found.placement.server(t, each) in owners


@given(models())
def test_loads_add_up_and_are_within_greedy_assignments_bound(model):
    tables, features, servers = model
    found = placed(tables, features, servers)
    bytes_of = sum((8 + 8 * table.dim) * features.count(t) for t, table in enumerate(tables))
    assert sum(found.loads) == pytest.approx(bytes_of)
    assert 1.0 - 1e-9 <= found.imbalance <= 2.0 + 1e-9


@given(models())
def test_all_processes_find_the_same(model):
    tables, _, servers = model
    one, other = placed(*model), placed(*model)
    assert one.loads == other.loads
    for t in range(len(tables)):
        for server in range(servers):
            assert one.placement.shards(t, server) == other.placement.shards(t, server)


def _servers_of(found, table, servers):
    return [server for server in range(servers) if any(found.placement.shards(table, server))]


def test_tables_that_are_alike_stay_whole_and_are_shared_out():
    model = lsh.models.dlrm(1000)
    found = placed(model.tables, list(range(26)), 2)
    assert [len(found.numbers(server, 26)) for server in range(2)] == [13, 13]
    assert found.imbalance == 1.0


def test_large_tables_that_cost_what_small_ones_do_are_shared_out():
    rows = (1_000_000, 1000) * 4
    tables = [TableSpec(f"t{k}", 16, rows=count) for k, count in enumerate(rows)]
    found = placed(tables, list(range(8)), 2)
    owners = [_servers_of(found, t, 2) for t in range(0, 8, 2)]
    assert sorted(owners) == [[0], [0], [1], [1]]
    assert found.imbalance == 1.0


def test_what_is_more_than_a_servers_share_is_spread():
    large = TableSpec("large", 16, rows=1_000_000)
    small = [TableSpec(f"small{k}", 16, rows=1000) for k in range(9)]
    found = placed([large, *small], list(range(10)), 4)
    assert _servers_of(found, 0, 4) == [0, 1, 2, 3]
    assert all(len(_servers_of(found, t, 4)) == 1 for t in range(1, 10))
    often = placed(small, [0] * 20 + list(range(1, 9)), 4)  # read by 20 features
    assert _servers_of(often, 0, 4) == [0, 1, 2, 3]


def test_what_grows_is_spread():
    grows = [TableSpec("a", 4), TableSpec("b", 4)]
    found = placed(grows, [0, 1], 3)
    assert [_servers_of(found, t, 3) for t in range(2)] == [[0, 1, 2], [0, 1, 2]]
    assert max(found.loads) == min(found.loads)


@given(models())
def test_one_server_has_all(model):
    tables, features, _ = model
    assert placed(tables, features, 1).numbers(0, len(tables)) == list(range(len(tables)))


def test_what_is_wrong_is_named():
    tables = lsh.models.dlrm(10).tables
    for servers in (0, -1, 10_000):
        with pytest.raises(ValueError, match="servers must be"):
            placed(tables, list(range(26)), servers)
    with pytest.raises(TypeError, match="servers must be a whole number"):
        placed(tables, list(range(26)), 1.5)
    with pytest.raises(ValueError, match="without tables"):
        placed([], [], 1)
