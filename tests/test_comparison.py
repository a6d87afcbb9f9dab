import numpy as np
import pytest
from factories import make_comparison, make_result, make_run

from leashed import analysis, comparison
from leashed.histogram import Histogram, TimeDistribution


def test_cells_hold_the_repeats_in_the_papers_order():
    cells = comparison.cells(make_comparison(threads=(1, 8), repeats=3))
    assert [(c.algorithm, c.threads) for c in cells][:3] == [("SEQ", 1), ("SYNC", 1), ("SYNC", 8)]
    assert cells[-1].algorithm == "LSH_ps0"
    assert {len(cell.runs) for cell in cells} == {3}


def test_an_unknown_algorithm_comes_last():
    runs = [make_run("HOG_direct"), make_run("LSH_ps3"), make_run("LSH_ps0"), make_run("SEQ")]
    order = [cell.algorithm for cell in comparison.cells(runs)]
    assert order == ["SEQ", "LSH_ps0", "HOG_direct", "LSH_ps3"]


def test_failed_runs_are_counted_and_have_no_time():
    runs = [make_run(), make_run(outcome="diverged"), make_run(outcome="crashed")]
    (cell,) = comparison.cells(runs)
    assert cell.seconds_to(0.5).size == cell.updates_to(0.5).size == 1
    assert cell.outcomes(0.5) == {"converged": 1, "diverged": 1, "crashed": 1}
    assert cell.crashed == 1


def test_totals_are_over_all_repeats():
    (cell,) = comparison.cells(
        [make_run(updates=100, dropped=30, seed=1), make_run(updates=300, dropped=10, seed=2)]
    )
    assert cell.gamma == 40 / 400
    assert cell.staleness.total == 400
    assert cell.gradient_seconds.count == 440
    assert cell.seconds_per_update.tolist() == [2.0 / 100, 2.0 / 300]


def test_an_attempt_takes_the_time_in_the_loop_over_all_attempts():
    # 3 published, after 0, 0 and 1 failed attempts; 1 dropped after 1: 5 attempts.
    result = make_result(
        config=make_run().result.config,
        updates=3,
        dropped=1,
        tries=Histogram([2, 2]),
        update_seconds=TimeDistribution([0.01, 1.0], [4], 0.5),
        gradient_seconds=TimeDistribution([0.1, 10.0], [4], 8.0),
        elapsed=5.0,
    )
    (cell,) = comparison.cells([comparison.Run.of(result)])
    assert cell.attempt_seconds == pytest.approx(0.1)
    assert cell.in_loop == pytest.approx(0.1)
    assert cell.section_iv.fixed_point == analysis.fixed_point(2, 2.0, 0.1)
    assert cell.section_iv.fixed_point_persistence == analysis.fixed_point_persistence(
        2, 2.0, 0.1, 1 / 3
    )


def test_section_iv_needs_measured_times():
    nothing = TimeDistribution([1.0, 2.0], [0], 0.0)
    (cell,) = comparison.cells([make_run(gradient_seconds=nothing)])
    assert cell.section_iv is None


def test_occupancy_settles_within_a_few_time_constants():
    (cell,) = comparison.cells([make_run("LSH_ps0", 8, dropped=50)])
    found = cell.section_iv
    near = found.occupancy(np.array([0.0, 10.0 * found.relaxation]))
    assert near[0] == 0.0
    assert near[1] == pytest.approx(found.fixed_point_persistence, rel=1e-3)


def test_precisions_are_collected_largest_first():
    runs = [make_run(fractions=(0.1,)), make_run(fractions=(0.75, 0.25)), make_run(fractions=())]
    assert comparison.fractions(runs) == (0.75, 0.25, 0.1)
    assert comparison.overview_fraction(runs) == 0.75
    assert comparison.overview_fraction([*runs, make_run(fractions=(0.5,))]) == 0.5
    assert comparison.overview_fraction(runs[-1:]) is None


def test_the_yardstick_is_the_setting_at_which_most_runs_converged():
    good = [make_run(lr=0.05) for _ in range(3)]
    poor = [make_run(lr=0.09, outcome="diverged") for _ in range(5)]
    assert comparison.yardstick(good + poor) == good
    assert comparison.yardstick([]) == []
