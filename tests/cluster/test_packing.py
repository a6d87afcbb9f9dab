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
        ([], 2, "at least one fragment"),
        ([1.0, 0.0], 2, r"costs\[1\] must be greater than 0"),
        ([math.nan], 2, r"costs\[0\] must be finite"),
        ([1.0], 0, "servers must be at least 1"),
    ],
)
def test_what_is_wrong_is_told(costs, servers, complaint):
    with pytest.raises(ValueError, match=complaint):
        pack(costs, servers)


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
