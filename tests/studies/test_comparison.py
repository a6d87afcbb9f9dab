import dataclasses
import math

import numpy as np
import pytest
from factories import make_comparison, make_result, make_run

from leashed.studies import comparison
from leashed.training.histogram import Histogram, TimeDistribution


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
    failed = ("unfinished", "diverged", "crashed")
    runs = [make_run(), *(make_run(outcome=outcome) for outcome in failed)]
    (cell,) = comparison.cells(runs)
    assert cell.seconds_to(0.5).size == cell.updates_to(0.5).size == 1
    assert cell.outcomes(0.5) == {"converged": 1, **dict.fromkeys(failed, 1)}
    assert cell.crashed == 1


def test_totals_are_over_all_repeats():
    (cell,) = comparison.cells(
        [make_run(updates=100, dropped=30, seed=1), make_run(updates=300, dropped=10, seed=2)]
    )
    assert cell.gamma == 40 / 400
    assert cell.staleness.total == 400
    assert cell.gradient_seconds.count == 440
    assert cell.seconds_per_update.tolist() == [2.0 / 100, 2.0 / 300]


def test_time_in_the_loop_over_published_gradients():
    # 3 published, after 0, 0 and 1 failed attempts; 1 dropped after 1.
    result = make_result(
        config=make_run().result.config,
        updates=3,
        dropped=1,
        tries=Histogram([2, 2]),
        update_seconds=TimeDistribution([0.01, 1.0], [4], 0.6),
        gradient_seconds=TimeDistribution([0.1, 10.0], [4], 8.0),
        elapsed=5.0,
    )
    (cell,) = comparison.cells([comparison.Run.of(result)])
    assert cell.published_seconds == pytest.approx(0.6 / 3)
    assert cell.in_loop == pytest.approx(0.6 / 5.0)
    assert cell.section_iv.fixed_point == pytest.approx(2 / (2.0 / 0.2 + 1))
    assert cell.section_iv.fixed_point_persistence == pytest.approx(2 / (2.0 / 0.2 * 4 / 3 + 1))


@pytest.mark.parametrize("dropped", [0, 5, 40])
def test_eq_6_is_exact_where_threads_only_compute_and_publish(dropped):
    # m threads for 1 s, each in the loop or computing, so that T_c is what the loop leaves over.
    m, published, in_loop = 4, 50, 0.3
    result = make_result(
        config=make_run("LSH_ps0", m).result.config,
        updates=published,
        dropped=dropped,
        update_seconds=TimeDistribution([1e-3, 1.0], [published + dropped], in_loop),
        gradient_seconds=TimeDistribution([1e-3, 1.0], [published + dropped], m - in_loop),
        elapsed=1.0,
    )
    (cell,) = comparison.cells([comparison.Run.of(result)])
    assert cell.section_iv.fixed_point_persistence == pytest.approx(cell.in_loop)
    assert cell.in_loop == pytest.approx(in_loop)


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


def test_among_steps_at_which_as_many_converged_the_fastest_is_the_yardstick():
    slow = [make_run(lr=0.01, rate=1.0) for _ in range(3)]
    fast = [make_run(lr=0.05, rate=rate) for rate in (0.1, 0.2, 1.5)]
    failed = [make_run(lr=0.05, outcome="diverged")]
    assert comparison.yardstick(slow + fast + failed) == fast + failed


def test_runs_of_other_presets_or_precisions_are_no_repeats():
    one = make_run(fractions=(0.5, 0.1))
    other = make_run(fractions=(0.5, 0.25))
    preset = dataclasses.replace(one, preset="S2")
    assert len(comparison.cells([one, other, preset, one])) == 3


def test_memory_is_counted_while_workers_ran():
    live = np.array([1, 7, 9, 2])
    (cell,) = comparison.cells([make_run("HOG", 4, evaluations=4, live_vectors=live)])
    assert cell.vectors_in_use.tolist() == [7.0, 9.0]


def test_savings_are_against_the_baselines_with_as_many_threads():
    def run(algorithm, m, vectors, mib):
        live, memory = np.full(20, vectors), np.full(20, mib * 2**20)
        return make_run(algorithm, m, live_vectors=live, memory_bytes=memory)

    alone = [run("HOG", 1, 3, 50), run("LSH_ps0", 1, 1, 1)]
    with_two = [run("HOG", 2, 5, 90), run("ASYNC", 2, 5, 110), run("LSH_ps0", 2, 4, 95)]
    with_four = [run("HOG", 4, 9, 200), run("LSH_ps0", 4, 6, 250)]
    group = comparison.cells([*alone, *with_two, *with_four, run("LSH_ps0", 8, 9, 9)])
    one, two, four, eight = comparison.savings(group)
    assert (two.of_bound, two.of_vectors, two.of_resident) == pytest.approx((0.2, 0.2, 0.05))
    assert four.of_resident == pytest.approx(-0.25)
    assert math.isnan(eight.of_vectors)
    bound, vectors, resident = comparison.mean_savings([one, two, four])
    assert (bound, vectors) == pytest.approx((0.5 * (1 / 5 + 3 / 9),) * 2)
    assert resident == pytest.approx(-0.1)
    assert np.isnan(comparison.mean_savings([one])).all()


def test_rates_of_threads_need_their_counts():
    run = make_run(elapsed=2.0)
    assert comparison.thread_rates(run).size == 0
    object.__setattr__(run.result, "worker_updates", np.array([10, 30]))
    assert comparison.thread_rates(run).tolist() == [5.0, 15.0]
