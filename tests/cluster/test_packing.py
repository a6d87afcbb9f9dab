"""Fragments of the vector, and which server holds which."""

from __future__ import annotations

import itertools
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leashed.cluster.packing import (
    BY_LENGTH,
    FRAGMENT,
    Costs,
    fragments,
    owners,
    pack,
    packed,
    profile,
)

COSTS = st.lists(st.floats(1e-6, 1e6), min_size=1, max_size=60)


@given(st.integers(1, 200_000))
def test_fragments_cover_the_vector_in_order(dimension):
    pieces = fragments(dimension)
    assert pieces[0][0] == 0
    assert pieces[-1][1] == dimension
    assert all(end == begin for (_, end), (begin, _) in itertools.pairwise(pieces))
    assert all(end - begin == FRAGMENT for begin, end in pieces[:-1])
    assert 0 < pieces[-1][1] - pieces[-1][0] <= FRAGMENT


@given(COSTS, st.integers(1, 9))
def test_every_fragment_has_one_server_and_loads_add_up(costs, servers):
    packing = pack(costs, servers)
    assert sorted(itertools.chain(*packing.servers)) == list(range(len(costs)))
    assert all(list(mine) == sorted(mine) for mine in packing.servers)
    for mine, load in zip(packing.servers, packing.loads, strict=True):
        assert load == pytest.approx(math.fsum(costs[k] for k in mine))
    assert packing.bound == pytest.approx(max(math.fsum(costs) / servers, *costs))


@given(COSTS, st.integers(1, 9))
def test_the_imbalance_is_within_what_greedy_assignment_promises(costs, servers):
    # Whoever has the most had the least before its last fragment: at most the mean of the others.
    assert 1.0 - 1e-9 <= pack(costs, servers).imbalance <= 2.0 - 1.0 / servers + 1e-9


@given(st.lists(st.integers(1, 50), min_size=1, max_size=7), st.integers(1, 4))
def test_the_largest_load_is_within_grahams_bound_of_the_best(costs, servers):
    def largest(assignment):
        loads = [0] * servers
        for cost, server in zip(costs, assignment, strict=True):
            loads[server] += cost
        return max(loads)

    best = min(map(largest, itertools.product(range(servers), repeat=len(costs))))
    packing = pack(costs, servers)
    assert packing.bound <= best + 1e-9
    assert max(packing.loads) <= (4.0 / 3.0 - 1.0 / (3.0 * servers)) * best + 1e-9


def test_grahams_worst_case_is_met():
    # Two servers, 3 3 2 2 2: the best is 6, this way gives 7 = (4/3 − 1/6) · 6.
    packing = pack([3, 3, 2, 2, 2], 2)
    assert max(packing.loads) == 7
    assert packing.imbalance == pytest.approx(7 / 6)


def test_the_same_costs_give_the_same_assignment():
    assert pack([1.0] * 7, 3) == pack([1.0] * 7, 3)
    assert pack([1.0] * 7, 3).servers == ((0, 3, 6), (1, 4), (2, 5))


def test_more_servers_than_fragments_leave_some_without():
    packing = pack([2.0], 3)
    assert packing.servers == ((0,), (), ())
    assert packing.imbalance == 1.0


@pytest.mark.parametrize(
    ("costs", "servers", "complaint"),
    [
        ([], 2, "at least one part"),
        ([1.0, 0.0], 2, r"costs\[1\] must be greater than 0"),
        ([math.nan], 2, r"costs\[0\] must be finite"),
        ([1.0], 0, "servers must be at least 1"),
    ],
)
def test_what_is_wrong_is_told(costs, servers, complaint):
    with pytest.raises(ValueError, match=complaint):
        pack(costs, servers)


def by_cost_alone(costs, servers):
    """As fragments have always been: the dearest first, to whom has the least."""
    held, loads = [[] for _ in range(servers)], [0.0] * servers
    for part in sorted(range(len(costs)), key=lambda k: -costs[k]):
        server = loads.index(min(loads))
        held[server].append(part)
        loads[server] += costs[part]
    return tuple(tuple(sorted(mine)) for mine in held)


@given(COSTS, st.integers(1, 9))
def test_without_sizes_cost_alone_decides(costs, servers):
    packing = pack(costs, servers)
    assert packing.servers == by_cost_alone(costs, servers)
    assert packing.sizes == (0.0,) * servers
    assert packing.pieces == (1,) * len(costs)


@given(COSTS, st.integers(1, 9))
def test_room_for_everything_changes_nothing_but_the_order_of_what_is_large(costs, servers):
    small = [1e-9] * len(costs)
    packing = pack(costs, servers, sizes=small, room=[1e9] * servers)
    assert packing.servers == pack(costs, servers).servers


@given(
    st.lists(st.tuples(st.floats(1e-3, 1e3), st.floats(0, 1.0)), min_size=1, max_size=40),
    st.lists(st.floats(0.5, 8.0), min_size=1, max_size=6),
)
def test_nobody_gets_more_than_there_is_room_for(parts, room):
    costs, sizes = zip(*parts, strict=True)
    try:
        packing = pack(costs, len(room), sizes=sizes, room=room)
    except ValueError as error:
        # What had no room was no larger than any room that was left.
        assert "no server has room for part" in str(error)  # noqa: PT017
        assert math.fsum(sizes) + len(room) * max(sizes) > math.fsum(room)
        return
    assert sorted(itertools.chain(*packing.servers)) == list(range(len(costs)))
    for mine, size, most in zip(packing.servers, packing.sizes, room, strict=True):
        assert size == pytest.approx(math.fsum(sizes[k] for k in mine))
        assert size <= most * (1 + 1e-12)


def test_what_is_large_goes_where_there_is_room_and_what_is_dear_to_whom_has_the_least():
    # By cost alone server 0 would hold parts 0 and 3, which are 9 large together.
    packing = pack([4.0, 3.0, 3.0, 2.0], 2, sizes=[6.0, 1.0, 1.0, 3.0], room=[8.0, 8.0])
    assert by_cost_alone([4.0, 3.0, 3.0, 2.0], 2) == ((0, 3), (1, 2))
    assert packing.servers == ((0,), (1, 2, 3))
    assert (packing.loads, packing.sizes) == ((4.0, 8.0), (6.0, 5.0))
    assert (packing.bound, packing.imbalance) == (6.0, 8.0 / 6.0)
    # A cheap part that only the empty server has room for is placed before dear ones fill it up.
    assert pack([4.0, 4.0, 1.0], 2, sizes=[2.0, 2.0, 8.0], room=[8.0, 8.0]).servers == (
        (2,),
        (0, 1),
    )


def test_what_is_more_than_a_share_is_cut_where_it_may_be():
    whole = pack([100.0, 1.0, 1.0], 2)
    assert whole.imbalance == 1.0  # of 100, which nobody can halve
    cut = pack([100.0, 1.0, 1.0], 2, pieces=[4, 4, 4])
    assert cut.pieces == (4, 1, 1)
    assert cut.servers == ((0, 2, 4), (1, 3, 5))  # pieces 0 to 3, then the two others
    assert (cut.loads, cut.bound, cut.imbalance) == ((51.0, 51.0), 51.0, 1.0)
    # And where it is larger than a server's memory, whatever it costs.
    large = pack([1.0, 9.0], 2, sizes=[8.0, 1.0], room=[6.0, 6.0], pieces=[2, 2])
    assert large.pieces == (2, 2)
    assert large.sizes == (4.5, 4.5)


@pytest.mark.parametrize(
    ("given", "complaint"),
    [
        ({"sizes": [1.0]}, "sizes must have 2 numbers, got 1"),
        ({"sizes": [1.0, -1.0]}, r"sizes\[1\] must be at least 0"),
        ({"sizes": [1.0, 1.0], "room": [9.0]}, "room must have 3 numbers, got 1"),
        ({"sizes": [1.0, 1.0], "room": [9.0, 0.0, 9.0]}, r"room\[1\] must be greater than 0"),
        ({"room": [9.0] * 3}, "room needs sizes"),
        ({"pieces": [1]}, "pieces must have 2 numbers, got 1"),
        ({"pieces": [0, 1]}, r"pieces\[0\] must be at least 1"),
        (
            {"sizes": [1.0, 8.0], "room": [4.0] * 3},
            r"no server has room for part 1, or a piece of it, of size 8: of 12 in all 1 are taken",
        ),
    ],
)
def test_what_is_wrong_with_sizes_is_told(given, complaint):
    with pytest.raises(ValueError, match=complaint):
        pack([2.0, 1.0], 3, **given)


def test_a_cost_lies_between_those_that_were_profiled():
    costs = Costs(2.0, 10.0)
    assert (costs.of(1), costs.of(FRAGMENT)) == (2.0, 10.0)
    middle = costs.of(1 + (FRAGMENT - 1) // 3)
    assert middle == pytest.approx(2.0 + 8.0 / 3, abs=8.0 / FRAGMENT)
    assert BY_LENGTH.of(7) == 7.0


def test_the_same_costs_give_the_same_owners_and_others_may_not():
    # Three whole fragments and one float, for two servers: what the float costs decides its place.
    dimension = 3 * FRAGMENT + 1
    assert owners(dimension, 2, Costs(0.1, 1.0)) == [0, 1, 0, 1]
    assert owners(dimension, 2, Costs(0.1, 1.0)) == owners(dimension, 2, Costs(0.1, 1.0))
    assert owners(dimension, 2, Costs(3.0, 1.0)) == [1, 1, 1, 0]
    assert packed(dimension, 2, Costs(0.1, 1.0)).imbalance == pytest.approx(2.0 / 1.55)


@pytest.mark.parametrize("transport", ["tcp", "shm", "auto"])
def test_exchanges_are_profiled_over_the_runs_own_transport(transport):
    costs = profile(transport)
    assert 0.0 < costs.one < costs.whole
