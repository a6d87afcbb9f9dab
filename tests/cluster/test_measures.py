"""Rates and the average sync gap from counters."""

from __future__ import annotations

import math

import pytest
from cluster import fakes

from leashed.cluster.measures import Pulse, counted, lives, measure, total


def test_both_forms_of_the_average_sync_gap():
    # 100 batches of 50 examples in 10 s; 20 syncs, each of which moved the whole of w both ways.
    counters = {
        "examples": 5000.0,
        "batches_used": 100.0,
        "syncs": 20.0,
        "bytes_out": 20 * 4000.0,
        "bytes_in": 20 * 4000.0,
        "transfers_out": 20.0,
        "transfers_in": 20.0,
    }
    found = measure(counters, 10.0, 50)
    assert found.eps == 500.0
    assert found.syncs == 2.0
    assert found.gap == found.gap_out == found.gap_in == 5.0
    assert (found.bytes_out, found.bytes_in) == (8000.0, 8000.0)


def test_the_directions_of_bytes_stay_apart():
    counters = {"examples": 500.0, "transfers_out": 1.0, "transfers_in": 0.5}
    found = measure(counters, 1.0, 50)
    assert (found.gap_out, found.gap_in) == (10.0, 20.0)  # half of the answers have come
    assert math.isnan(found.gap)


def test_without_a_synchronisation_the_gap_is_infinite_and_before_a_batch_unknown():
    one = measure({"batches_used": 3.0, "syncs": 0.0}, 1.0, 1)
    assert one.gap == math.inf
    none = measure({"batches_used": 0.0, "syncs": 0.0}, 0.0, 1)
    assert math.isnan(none.gap)
    assert math.isnan(none.eps)


def test_a_pulse_is_what_came_since():
    pulse = Pulse()
    assert pulse({0: {"examples": 1000.0}}, 4.0, 1)[0].eps == 250.0  # since the beginning
    both = pulse({0: {"examples": 2000.0}, 1: {"examples": 600.0}}, 6.0, 1)
    assert [each.eps for each in both.values()] == [500.0, 300.0]  # the new one since the last look


def test_a_master_that_was_started_again_makes_no_spike():
    pulse = Pulse()
    pulse({0: {"examples": 1000.0}, 1: {"examples": 1000.0}}, 4.0, 1)
    fallen = pulse({0: {"examples": 400.0}}, 6.0, 1)  # what its journal has
    assert math.isnan(fallen[0].eps)
    again = pulse({0: {"examples": 2000.0}, 1: {"examples": 2000.0}}, 8.0, 1)
    assert [each.eps for each in again.values()] == [250.0, 250.0]


def test_counters_that_are_lost_begin_anew():
    pulse = Pulse()
    pulse({0: {"examples": 1000.0}}, 4.0, 1)
    assert math.isnan(pulse({0: {"examples": 100.0}}, 5.0, 1)[0].eps)
    assert pulse({0: {"examples": 150.0}}, 6.0, 1)[0].eps == 50.0


def members(*several):
    return {"members": list(several)}


def test_what_a_trainer_has_counted_is_over_all_its_lives():
    # Killed at 6 s, and told last at 5 s; started again at 10 s.
    report = members(
        fakes.member(1, "trainer", 0, 6.0, fakes.trainer(1000.0, staleness_mean=9.0), 5.0),
        fakes.member(4, "trainer", 0, 20.0, fakes.trainer(500.0), joined=10.0),
        fakes.member(2, "trainer", 1, 8.0, fakes.trainer(100.0)),
        fakes.member(3, "sync-ps", 0, None, fakes.SERVER, 20.0),
    )
    found = counted(report, "trainer")
    assert found[0]["examples"] == 1500.0
    assert found[0]["bytes_out"] == 4000.0 * 1500 / 500
    assert found[0]["staleness_mean"] == 1.5  # a mean: of the last
    assert found[1] == fakes.trainer(100.0)
    first, second = lives(report, "trainer")[0]
    assert (first.seconds, second.seconds) == (5.0 - 1.0, 20.0 - 10.0)
    assert list(counted(report, "sync-ps")) == [0]


def test_what_was_not_finite_is_over_all_lives_of_trainers_and_servers():
    report = members(
        fakes.member(1, "trainer", 0, 6.0, {**fakes.trainer(1000.0), "sync_not_finite": 3.0}),
        fakes.member(2, "trainer", 0, 9.0, {**fakes.trainer(500.0), "sync_not_finite": 1.0}),
        fakes.member(3, "sync-ps", 0, 6.0, {**fakes.SERVER, "not_finite": 2.0}),
        fakes.member(4, "sync-ps", 0, None, {**fakes.SERVER, "not_finite": 5.0}, 20.0),
    )
    assert counted(report, "trainer")[0]["sync_not_finite"] == 4.0
    assert counted(report, "sync-ps")[0]["not_finite"] == 7.0


def test_partial_rounds_are_of_all_lives_and_the_lag_is_the_last_ones():
    first, second = ({"sync_partial": 3.0, "sync_lag": lag} for lag in (9.0, 2.0))
    report = members(
        fakes.member(1, "trainer", 0, 6.0, {**fakes.trainer(1000.0), **first}),
        fakes.member(2, "trainer", 0, 9.0, {**fakes.trainer(500.0), **second}),
    )
    found = counted(report, "trainer")[0]
    assert (found["sync_partial"], found["sync_lag"]) == (6.0, 2.0)


def test_one_that_was_taken_for_dead_goes_on_counting():
    # Stopped from 3 s on, removed at 6 s, back at 8 s as another member: the same process.
    report = members(
        fakes.member(1, "trainer", 0, 6.0, fakes.trainer(1000.0), 3.0),
        fakes.member(2, "trainer", 0, None, fakes.trainer(1700.0), 10.0, joined=8.0, before=1),
    )
    assert counted(report, "trainer")[0]["examples"] == 1700.0
    (life,) = lives(report, "trainer")[0]
    assert life.seconds == 2.0 + 2.0


def test_a_life_that_told_nothing_hides_no_other():
    report = members(
        fakes.member(1, "trainer", 0, 6.0, fakes.trainer(1000.0)),
        fakes.member(2, "trainer", 0, 7.0, joined=6.5),
        fakes.member(3, "trainer", 1, None),
    )
    assert counted(report, "trainer") == {0: fakes.trainer(1000.0)}
    assert [len(several) for several in lives(report, "trainer").values()] == [2, 1]


@pytest.mark.parametrize("lacking", [0, 1])
def test_a_count_that_a_life_lacks_is_none_of_them_all(lacking):
    told = [{**fakes.trainer(10.0), "kernel_out": 5.0} for _ in range(2)]
    del told[lacking]["kernel_out"]
    report = members(
        fakes.member(1, "trainer", 0, 6.0, told[0]),
        fakes.member(2, "trainer", 0, 7.0, told[1], joined=6.5),
    )
    assert "kernel_out" not in counted(report, "trainer")[0]


def test_totals_are_of_what_all_count():
    assert total([{"a": 1.0, "b": 2.0}, {"a": 3.0}]) == {"a": 4.0}
    assert total([]) == {}


def test_a_report_stays_as_it_was_when_told():
    """Rates are differences between reports: the master must not go on writing into them."""
    pytest.importorskip("msgspec", reason="NOT TESTED: msgspec is not installed")
    from leashed.cluster.coordinator import Coordinator  # noqa: PLC0415
    from leashed.cluster.messages import Join, Report  # noqa: PLC0415
    from leashed.cluster.state import State, Terms  # noqa: PLC0415

    terms = Terms(total=10, batch_size=1, trainers=1)
    master = Coordinator(terms, "run", State.of(terms), 0.0)
    master.opened(1, 0.0)
    master.heard(1, Join("trainer", 0, ""), 0.0)
    master.heard(1, Report(metrics={"examples": 1.0}), 0.5)
    told = master.standing(1.0)
    master.heard(1, Report(metrics={"examples": 2.0}), 1.5)
    assert told["metrics"] == {"trainer-0": {"examples": 1.0}}
    assert told["members"][0]["counters"] == {"examples": 1.0}
    assert told["members"][0]["counted"] == 0.5
