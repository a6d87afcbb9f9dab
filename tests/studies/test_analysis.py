import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from leashed import analysis

threads = st.integers(1, 100)
seconds = st.floats(1e-6, 10.0)
gammas = st.floats(0.0, 100.0)


@given(threads, seconds, seconds)
def test_at_the_fixed_point_as_many_threads_enter_as_leave(m, T_c, T_u):
    n = analysis.fixed_point(m, T_c, T_u)
    assert (m - n) / T_c == pytest.approx(n / T_u, rel=1e-6)
    assert n / m == pytest.approx(T_u / (T_u + T_c))


@given(threads, seconds, seconds, gammas)
def test_at_the_fixed_point_of_eq_7_as_many_threads_enter_as_leave(m, T_c, T_u, gamma):
    n = analysis.fixed_point_persistence(m, T_c, T_u, gamma)
    assert (m - n) / T_c == pytest.approx(n / T_u * (1 + gamma), rel=1e-6)


@given(threads, seconds, seconds, gammas, gammas)
def test_a_persistence_bound_only_lowers_the_fixed_point(m, T_c, T_u, first, second):
    low, high = sorted((first, second))
    assert analysis.fixed_point_persistence(m, T_c, T_u, high) <= (
        analysis.fixed_point_persistence(m, T_c, T_u, low)
    )
    assert analysis.fixed_point_persistence(m, T_c, T_u, 0.0) == analysis.fixed_point(m, T_c, T_u)


def test_without_end_gamma_empties_the_loop():
    assert analysis.fixed_point_persistence(8, 1.0, 1.0, math.inf) == 0.0


@pytest.mark.filterwarnings("error")
def test_without_end_gamma_empties_the_loop_at_once():
    n = analysis.occupancy([0.0, 1e-300, 1.0, math.inf], 8, 1e-3, 1e-4, n0=3.0, gamma=math.inf)
    assert n.tolist() == [3.0, 0.0, 0.0, 0.0]
    assert analysis.occupancy(0.0, 8, 1.0, 1.0, gamma=math.inf) == 0.0
    # As for any gamma that is only large, also where its rate is no number any more.
    assert analysis.occupancy([0.0, 1.0], 8, 1.0, 1e-9, 3.0, gamma=1e308).tolist() == [3.0, 0.0]


def test_steps_of_the_recurrence_need_a_finite_gamma():
    with pytest.raises(ValueError, match="gamma must be finite"):
        analysis.recurrence(3, 8, 1.0, 1.0, gamma=math.inf)


@given(threads, st.floats(1.1, 1e3), st.floats(1.1, 1e3), st.floats(0.0, 1.0))
def test_recurrence_with_unit_steps_is_the_closed_form_as_printed(m, T_c, T_u, share):
    n0 = share * m
    steps = np.arange(40)
    closed = analysis.closed_form(steps, m, T_c, T_u, n0)
    assert analysis.recurrence(39, m, T_c, T_u, n0) == pytest.approx(closed, abs=1e-6 * m)


@given(threads, st.floats(1.1, 1e3), st.floats(1.1, 1e3), st.floats(0.0, 1.0))
def test_the_closed_form_converges_to_the_fixed_point(m, T_c, T_u, share):
    n = analysis.closed_form(100_000, m, T_c, T_u, share * m)
    assert n == pytest.approx(analysis.fixed_point(m, T_c, T_u), rel=1e-6)


@given(threads, seconds, seconds, gammas, st.floats(0.0, 1.0))
def test_small_steps_approach_the_continuous_limit(m, T_c, T_u, gamma, share):
    n0 = share * m
    relaxation = 1.0 / (1.0 / T_c + (1.0 + gamma) / T_u)
    errors = []
    for steps in (50, 500):
        dt = 2.0 * relaxation / steps
        t = dt * np.arange(steps + 1)
        stepped = analysis.recurrence(steps, m, T_c, T_u, n0, dt=dt, gamma=gamma)
        exact = analysis.occupancy(t, m, T_c, T_u, n0, gamma=gamma)
        errors.append(np.abs(stepped - exact).max() / m)
    assert errors[0] < 0.02
    assert errors[1] < 0.15 * errors[0] + 1e-9


@given(threads, seconds, seconds, st.floats(0.0, 1.0))
def test_occupancy_goes_from_its_start_to_the_fixed_point(m, T_c, T_u, share):
    n0 = share * m
    start, end = analysis.occupancy([0.0, 1e6], m, T_c, T_u, n0)
    assert start == pytest.approx(n0, abs=1e-9 * m)
    assert end == pytest.approx(analysis.fixed_point(m, T_c, T_u))


def test_occupancy_converges_where_the_printed_form_does_not():
    T_c, T_u = 5e-3, 5e-5
    printed = analysis.closed_form(np.arange(1, 5), 8, T_c, T_u, 8.0)
    assert (np.abs(np.diff(printed)) > 8.0).all()
    assert analysis.occupancy(1.0, 8, T_c, T_u, 8.0) == pytest.approx(8 / 101)


def test_occupancy_keeps_the_shape_of_its_times():
    assert analysis.occupancy(np.zeros((2, 3)), 4, 1.0, 1.0).shape == (2, 3)
    assert analysis.occupancy(0.5, 4, 1.0, 1.0).shape == ()


def test_gamma_is_dropped_over_published():
    assert analysis.gamma(5, 20) == 0.25
    assert analysis.gamma(0, 0) == 0.0
    assert analysis.gamma(3, 0) == math.inf


@pytest.mark.parametrize(
    ("call", "name"),
    [
        (lambda: analysis.fixed_point(0, 1.0, 1.0), "m"),
        (lambda: analysis.fixed_point(2.5, 1.0, 1.0), "m"),
        (lambda: analysis.fixed_point(True, 1.0, 1.0), "m"),
        (lambda: analysis.fixed_point(2, 0.0, 1.0), "T_c"),
        (lambda: analysis.fixed_point(2, math.nan, 1.0), "T_c"),
        (lambda: analysis.fixed_point(2, 1.0, -1.0), "T_u"),
        (lambda: analysis.fixed_point(2, 1.0, math.inf), "T_u"),
        (lambda: analysis.fixed_point_persistence(2, 1.0, 1.0, -0.1), "gamma"),
        (lambda: analysis.fixed_point_persistence(2, 1.0, 1.0, math.nan), "gamma"),
        (lambda: analysis.occupancy([-1.0], 2, 1.0, 1.0), "t"),
        (lambda: analysis.occupancy(0.0, 2, 1.0, 1.0, n0=3.0), "n0"),
        (lambda: analysis.recurrence(-1, 2, 1.0, 1.0), "steps"),
        (lambda: analysis.recurrence(1.5, 2, 1.0, 1.0), "steps"),
        (lambda: analysis.recurrence(1, 2, 1.0, 1.0, dt=0.0), "dt"),
        (lambda: analysis.recurrence(1, 2, 1.0, 1.0, n0=-1.0), "n0"),
        (lambda: analysis.closed_form(0.5, 2, 1.0, 1.0), "t"),
        (lambda: analysis.closed_form(-1, 2, 1.0, 1.0), "t"),
        (lambda: analysis.gamma(-1, 2), "dropped"),
        (lambda: analysis.gamma(1, 0.5), "published"),
    ],
)
def test_a_wrong_argument_is_named(call, name):
    with pytest.raises((TypeError, ValueError), match=f"^{name} must"):
        call()
