"""Which embedding server has which rows."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

import leashed as lsh
from leashed.cluster.messages import Placed, Welcome
from leashed.cluster.packing import BY_ROW_BYTES, FRAGMENT, Costs
from leashed.cluster.row_packing import SHARDS, placed, told
from leashed.models import TableSpec
from leashed.training.rows_read import RowsRead


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
    bytes_of = sum(
        (8 + 8 * table.dim) * min(features.count(t), table.rows or len(features))
        for t, table in enumerate(tables)
    )
    assert sum(found.loads) == pytest.approx(bytes_of)
    assert 1.0 - 1e-9 <= found.imbalance <= 2.0 + 1e-9


def test_a_table_costs_what_its_rows_of_a_batch_do():
    costs = Costs(1.0, 1.0 + 2.0 * (FRAGMENT - 1))  # 1 + 2 (dim - 1)
    tables = [TableSpec("few", 3, rows=10), TableSpec("many", 3, rows=10**6), TableSpec("grows", 1)]
    found = placed(tables, [0, 1, 1, 2], 1, costs, 512)
    assert found.loads == (pytest.approx(5 * 10 + 5 * 2 * 512 + 1 * 512),)


def test_tables_of_few_rows_do_not_count_as_much_as_others():
    tables = [TableSpec(f"t{k}", 16, rows=10 if k < 4 else 10_000) for k in range(8)]
    found = placed(tables, list(range(8)), 2, BY_ROW_BYTES, 512)
    assert [len({*range(4, 8)} & {*found.numbers(s, 8)}) for s in range(2)] == [2, 2]
    assert found.imbalance < 1.01


@given(models(), st.floats(1e-9, 1e-6), st.floats(0, 1e-8), st.integers(1, 4096))
def test_whatever_is_profiled_loads_are_within_the_bound(model, one, each, batch_size):
    tables, features, _ = model
    found = placed(*model, Costs(one, one + each * (FRAGMENT - 1)), batch_size)
    batch = [
        (one + each * (table.dim - 1))
        * min(features.count(t) * batch_size, table.rows or features.count(t) * batch_size)
        for t, table in enumerate(tables)
    ]
    assert sum(found.loads) == pytest.approx(sum(batch))
    assert 1.0 - 1e-9 <= found.imbalance <= 2.0 + 1e-9


def test_what_the_master_tells_decides():
    tables = [
        TableSpec("wide", 64, rows=100),
        *(TableSpec(f"t{k}", 4, rows=1000) for k in range(8)),
    ]
    read = RowsRead(tables, range(9), lsh.Adagrad(0.1), lsh.staleness.none(), 0)
    by_bytes = told(read, 2, Welcome("run", 1, 0.5, 5.0, {}))
    assert _servers_of(by_bytes, 0, 2) == [0, 1]  # as much as 13 of the others
    costs = {"embedding-ps": Placed(2, Costs(1e-6, 2e-6), 64)}
    by_costs = told(read, 2, Welcome("run", 1, 0.5, 5.0, costs))
    assert len(_servers_of(by_costs, 0, 2)) == 1
    assert max(by_costs.loads) == pytest.approx(5 * 64e-6, rel=0.01)


@given(models(), st.floats(1.0, 4.0))
def test_no_server_has_more_than_it_has_room_for(model, more):
    tables, _, servers = model
    row = [8 * table.dim for table in tables]
    needed = sum(each * (table.rows or 0) for each, table in zip(row, tables, strict=True))
    room = max(1.0, more * needed * -(-SHARDS // servers) / SHARDS)
    found = placed(*model, row_bytes=row, room=room)
    for server in range(servers):
        taken = 0.0
        for t, table in enumerate(tables):
            part = sum(found.placement.shards(t, server)) / SHARDS
            taken += part * row[t] * (table.rows or 0)
        assert taken <= room * (1 + 1e-9)


def test_memory_decides_where_costs_would_not():
    tables = [
        TableSpec("large", 4, rows=1000),
        *(TableSpec(f"t{k}", 4, rows=500) for k in range(4)),
    ]
    row = [16] * 5
    whole = placed(tables, list(range(5)), 2, batch_size=64)
    assert all(len(_servers_of(whole, t, 2)) == 1 for t in range(5))
    tight = placed(tables, list(range(5)), 2, batch_size=64, row_bytes=row, room=24_000)
    large = _servers_of(tight, 0, 2)
    assert [len(tight.numbers(server, 5)) for server in large] == [2]  # and one of the others
    spread = placed([tables[0], tables[1]], [0, 1], 2, row_bytes=row[:2], room=12_000)
    assert _servers_of(spread, 0, 2) == [0, 1]
    with pytest.raises(ValueError, match="no room on 2 embedding servers of"):
        placed(tables, list(range(5)), 2, row_bytes=row, room=23_000)


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
    assert max(found.loads) / found.bound == pytest.approx(3 * 86 / 256)  # of 256 shards


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
