"""Rates and the average sync gap from counters."""

from __future__ import annotations

import math

import pytest
from cluster import fakes

from leashed.cluster.measures import counted, measure, pulse, total


def test_both_forms_of_the_average_sync_gap():
    # 100 batches of 50 examples in 10 s; 20 syncs, each of which moved w, 1,000 floats, both ways.
    counters = {
        "examples": 5000.0,
        "batches_used": 100.0,
        "syncs": 20.0,
        "bytes_out": 20 * 4000.0,
        "bytes_in": 20 * 4000.0,
    }
    found = measure(counters, 10.0, batch_size=50, parameters=1000)
    assert found.eps == 500.0
    assert found.syncs == 2.0
    assert found.gap == found.gap_out == found.gap_in == 5.0
    assert (found.bytes_out, found.bytes_in) == (8000.0, 8000.0)


def test_the_directions_of_bytes_stay_apart():
    counters = {"examples": 500.0, "bytes_out": 4000.0, "bytes_in": 2000.0}
    found = measure(counters, 1.0, batch_size=50, parameters=1000)
    assert (found.gap_out, found.gap_in) == (10.0, 20.0)  # compressed one way, for instance
    assert math.isnan(found.gap)


def test_without_a_synchronisation_the_gap_is_infinite_and_before_a_batch_unknown():
    one = measure({"batches_used": 3.0, "syncs": 0.0}, 1.0, batch_size=1, parameters=math.nan)
    assert one.gap == math.inf
    none = measure({"batches_used": 0.0, "syncs": 0.0}, 0.0, batch_size=1, parameters=math.nan)
    assert math.isnan(none.gap)
    assert math.isnan(none.eps)


def test_a_process_has_counted_what_its_last_word_says():
    report = fakes.report()
    assert report["metrics"]["trainer-1"]["examples"] == 1900.0
    assert counted(report, "trainer")[1]["examples"] == 2000.0
    assert list(counted(report, "sync-ps")) == [0]
    many = {"metrics": {f"trainer-{k}": {} for k in (10, 9, 1)}}
    assert list(counted(many, "trainer")) == [1, 9, 10]


def test_a_pulse_is_what_came_since():
    before = fakes.report(4.0, "running", metrics={"trainer-0": fakes.trainer(1000.0)})
    now = fakes.report(6.0, "running", metrics={"trainer-0": fakes.trainer(2000.0)})
    assert pulse(now, before)[0].eps == 500.0
    assert pulse(now, None)[0].eps == pytest.approx(2000.0 / 6.0)


def test_one_that_was_started_again_counts_from_0():
    before = fakes.report(4.0, "running", metrics={"trainer-0": fakes.trainer(1000.0)})
    now = fakes.report(6.0, "running", metrics={"trainer-0": fakes.trainer(500.0)})
    assert pulse(now, before)[0].eps == 250.0


def test_totals_are_of_what_all_count():
    assert total([{"a": 1.0, "b": 2.0}, {"a": 3.0}]) == {"a": 4.0}
    assert total([]) == {}


def test_a_report_stays_as_it_was_when_told():
    """Rates are differences between reports: the master must not go on writing into them."""
    pytest.importorskip("msgspec", reason="NOT TESTED: msgspec is not installed")
    from leashed.cluster.coordinator import Coordinator  # noqa: PLC0415
    from leashed.cluster.state import State, Terms  # noqa: PLC0415

    terms = Terms(total=10, batch_size=1, trainers=1)
    master = Coordinator(terms, "run", State.of(terms), 0.0)
    master.metrics["trainer-0"] = {"examples": 1.0}
    told = master.standing(1.0)
    master.metrics["trainer-0"] = {"examples": 2.0}
    assert told["metrics"] == {"trainer-0": {"examples": 1.0}}
