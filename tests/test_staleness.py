"""Staleness policies, as the native core evaluates them, against their formulas."""

from __future__ import annotations

import math
import sys
from decimal import Decimal, localcontext
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import leashed as lsh
from leashed import staleness

taus = st.lists(st.integers(0, 10**6), min_size=1, max_size=20)
powers = st.floats(0.1, 4.0)
means = st.floats(1.0, 1e4)


@given(taus)
def test_none_and_inverse(tau: list[int]) -> None:
    np.testing.assert_array_equal(staleness.none().factor(tau), 1.0)
    np.testing.assert_allclose(staleness.inverse().factor(tau), [1 / (i + 1) for i in tau])


@given(taus, powers)
def test_power(tau: list[int], k: float) -> None:
    np.testing.assert_allclose(staleness.power(k).factor(tau), [(i + 1.0) ** -k for i in tau])


@given(taus, means, powers)
def test_normalized(tau: list[int], mu: float, k: float) -> None:
    ours = [1.0 if i + 1 <= mu else (mu / (i + 1)) ** k for i in tau]
    np.testing.assert_allclose(staleness.normalized(mu, k).factor(tau), ours)
    printed = [1.0 if i + 1 <= mu else (i + 1.0) ** -k for i in tau]
    np.testing.assert_allclose(staleness.normalized_as_printed(mu, k).factor(tau), printed)


def test_only_the_printed_form_of_equation_7_jumps() -> None:
    ours = staleness.normalized(1000).factor([998, 999, 1000, 1999])
    np.testing.assert_allclose(ours, [1, 1, (1000 / 1001) ** 2, 0.25])
    printed = staleness.normalized_as_printed(1000).factor([999, 1000])
    np.testing.assert_allclose(printed, [1, 1001.0**-2])


@given(taus, means, st.floats(0.1, 100), means, st.floats(0.1, 100))
def test_tau_normalized(tau: list[int], mu: float, delta: float, mu1: float, delta1: float) -> None:
    policy = staleness.tau_normalized(mu1, delta1, mean=mu, deviation=delta)
    wanted = [1 / max(1.0, delta1 * (i + 1 - mu) / delta + mu1) for i in tau]
    np.testing.assert_allclose(policy.factor(tau), wanted, rtol=1e-9)
    short = staleness.tau_normalized_short(delta1, deviation=delta)
    wanted = [1 / max(1.0, delta1 * (i + 1) / delta) for i in tau]
    np.testing.assert_allclose(short.factor(tau), wanted, rtol=1e-9)


def test_tau_normalized_before_any_update() -> None:
    np.testing.assert_allclose(staleness.tau_normalized(1000, 69).factor([0, 7]), 1e-3)
    np.testing.assert_array_equal(staleness.tau_normalized_short(69).factor([0, 7]), 1)


@given(taus, st.floats(0.0, 100.0), st.floats(0.01, 10.0))
def test_stage_aware_scales_the_staleness(tau: list[int], norm: float, lam: float) -> None:
    policy = staleness.stage_aware(staleness.normalized(50, 2), lam)
    trans = 1 / (1 + math.exp(-lam * norm))
    wanted = [1.0 if i * trans + 1 <= 50 else (50 / (i * trans + 1)) ** 2 for i in tau]
    np.testing.assert_allclose(policy.factor(tau, last_update=norm), wanted, rtol=1e-9)


def test_stage_aware_counts_staleness_by_half_where_nothing_moves() -> None:
    policy = staleness.stage_aware(staleness.inverse())
    np.testing.assert_allclose(policy.factor([0, 2, 4]), [1, 1 / 2, 1 / 3])
    np.testing.assert_allclose(policy.factor([0, 2, 4], last_update=1e3), [1, 1 / 3, 1 / 5])


@given(taus, st.floats(0.0, 100.0), st.floats(0.01, 10.0))
def test_stage_aware_as_printed_scales_what_counts_from_1(
    tau: list[int], norm: float, lam: float
) -> None:
    trans = 1 / (1 + math.exp(-lam * norm))
    policy = staleness.stage_aware_as_printed(staleness.power(2), lam)
    wanted = [((i + 1) * trans) ** -2 for i in tau]
    np.testing.assert_allclose(policy.factor(tau, last_update=norm), wanted, rtol=1e-9)
    policy = staleness.stage_aware_as_printed(staleness.normalized(50, 2), lam)
    wanted = [min(1.0, 50 / ((i + 1) * trans)) ** 2 for i in tau]
    np.testing.assert_allclose(policy.factor(tau, last_update=norm), wanted, rtol=1e-9)


def test_as_printed_a_fresh_gradient_at_rest_is_multiplied() -> None:
    for k in (1, 2, 3):
        power = staleness.power(k)
        assert staleness.stage_aware(power).factor(0) == 1
        assert staleness.stage_aware_as_printed(power).factor(0) == pytest.approx(2**k)
    # What has no formula between 0 and 1 takes it for fresh.
    table = staleness.table([0.9, 0.5, 0.1])
    found = staleness.stage_aware_as_printed(table).factor([0, 1, 2, 3])
    np.testing.assert_allclose(found, [0.9, 0.9, 0.7, 0.5])


@pytest.mark.parametrize(
    "policy",
    [
        staleness.inverse(),
        staleness.normalized_as_printed(3),
        staleness.tau_normalized(5, 1, mean=2, deviation=1),
        staleness.tau_normalized_short(),
        staleness.cutoff(0),
        staleness.tail_tau(1.0),
        staleness.fleet(),
        staleness.mindthestep(3.0, 0.5),
        staleness.mindthestep(scaled=True),
    ],
    ids=lambda policy: policy.config(),
)
def test_every_policy_is_defined_where_staleness_as_printed_is_below_1(
    policy: staleness.Policy,
) -> None:
    found = staleness.stage_aware_as_printed(policy).factor([0, 1, 5])
    assert np.isfinite(found).all()
    assert (found >= 0).all()
    assert found[0] > 0


@given(taus, st.integers(0, 1000))
def test_cutoff(tau: list[int], iota: int) -> None:
    wanted = [float(i <= iota) for i in tau]
    np.testing.assert_array_equal(staleness.cutoff(iota).factor(tau), wanted)


@given(taus, st.floats(0.1, 1e4))
def test_fleet_meets_the_inverse_at_half_its_threshold(tau: list[int], threshold: float) -> None:
    policy = staleness.fleet(threshold)
    beta = math.log(1 + threshold / 2) / (threshold / 2)
    wanted = np.maximum(np.exp(-beta * np.array(tau)), sys.float_info.min)
    np.testing.assert_allclose(policy.factor(tau), wanted, rtol=1e-6)
    np.testing.assert_allclose(policy.factor(threshold / 2), 1 / (threshold / 2 + 1))


def mindthestep_of(mean: float, momentum: float, tau: int) -> float:
    """λ^−τ τ! (1 − κ P[staleness < τ]) in 60 digits, or the smallest normal double.

    P[staleness < τ] as 1 − P[staleness ≥ τ]: of the difference itself thousands of digits are lost.
    """
    with localcontext() as context:
        context.prec = 60
        lam, kappa = Decimal(mean), Decimal(momentum)
        term, above, i = Decimal(1), Decimal(0), tau  # λ^(i − τ) τ! / i!, and their sum over i ≥ τ
        while term > above * Decimal(10) ** -50:
            above += term
            i += 1
            term *= lam / i
        fresh = Decimal(math.factorial(tau)) / lam**tau
        rho = (1 - kappa) * fresh + kappa * (-lam).exp() * above
        return float(min(max(rho, Decimal(sys.float_info.min)), Decimal("1e300")))


TAUS = [0, 1, 2, 5, 20, 150, 499, 500, 501, 870, 875, 880, 1023, 1024, 2090, 4999, 5001, 10_000]


@pytest.mark.parametrize("momentum", [0.0, 0.3, 0.999, 1.0])
@pytest.mark.parametrize("mean", [0.5, 1.0, 7.3, 30.0, 500.0, 875.0, 2090.0, 5000.0])
def test_mindthestep_is_its_formula(mean: float, momentum: float) -> None:
    taus = TAUS + [int(mean + k * math.sqrt(mean)) for k in range(-4, 5) if mean > 30]
    found = staleness.mindthestep(mean, momentum, bound=1e300).factor(taus)
    wanted = [mindthestep_of(mean, momentum, tau) for tau in taus]
    np.testing.assert_allclose(found, wanted, rtol=1e-9)


@given(st.floats(0.05, 6000.0), st.sampled_from([0.0, 0.5, 1.0]), st.integers(0, 10_000))
def test_mindthestep_anywhere(mean: float, momentum: float, tau: int) -> None:
    found = staleness.mindthestep(mean, momentum, bound=1e300).factor(tau)
    assert found == pytest.approx(mindthestep_of(mean, momentum, tau), rel=1e-9)


def test_mindthestep_falls_from_1_and_is_bounded() -> None:
    for mean in (0.1, 1.0, 20.0, 500.0, 5000.0):
        found = staleness.mindthestep(mean).factor(range(50))
        assert found[0] == 1.0
        assert (np.diff(found) < 0).all()
        assert (found > 0).all()
    assert staleness.mindthestep(1.0, 0.0).factor(20) == 5.0
    np.testing.assert_array_equal(staleness.mindthestep(None, 0.5).factor([0, 3]), [1.0, 5.0])
    # Of what is smaller than any number something is left: no gradient is left out.
    assert staleness.mindthestep(5000.0).factor(5000) > 0
    assert staleness.fleet(2.0).factor(5000) > 0


def test_scaled_mindthestep_has_a_name_of_its_own_and_begins_with_1() -> None:
    assert staleness.mindthestep().config() == "mindthestep"
    assert staleness.mindthestep(scaled=True).config() == "mindthestep(scaled)"
    assert staleness.mindthestep(8, scaled=True).config() == "mindthestep(8, scaled)"
    np.testing.assert_array_equal(staleness.mindthestep(8, scaled=True).factor([0, 8, 100]), 1.0)


def test_adaptive_policies_before_any_update() -> None:
    np.testing.assert_array_equal(staleness.tail_tau().factor([0, 5]), 1.0)
    np.testing.assert_array_equal(staleness.tail_tau(1.0).factor([0, 5]), 1.0)
    np.testing.assert_allclose(staleness.fleet().factor([0, 0.5]), [1.0, 1 / 1.5])
    np.testing.assert_allclose(staleness.mindthestep().factor(0), 1.0)


@given(st.lists(st.floats(0.0, 2.0), min_size=1, max_size=30), st.floats(0.0, 40.0))
def test_a_table_is_linear_between_its_values(values: list[float], tau: float) -> None:
    values[0] += 0.5
    found = staleness.table(values).factor(tau)
    np.testing.assert_allclose(found, np.interp(tau, np.arange(len(values)), values), atol=1e-12)


def test_a_function_is_called_once_for_each_staleness() -> None:
    seen: list[int] = []

    def f(tau: int) -> float:
        seen.append(tau)
        return 2.0**-tau

    policy = staleness.from_function(f, length=5)
    assert seen == [0, 1, 2, 3, 4]
    np.testing.assert_allclose(policy.factor([0, 1, 4, 9]), [1, 0.5, 1 / 16, 1 / 16])
    assert seen == [0, 1, 2, 3, 4]


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: staleness.power(0), ValueError, "k must be greater than 0"),
        (lambda: staleness.normalized(0.5), ValueError, "mu must be at least 1"),
        (lambda: staleness.tau_normalized(deviation=0), ValueError, "deviation must be greater"),
        (lambda: staleness.tau_normalized_short(0), ValueError, "baseline_deviation must be"),
        (lambda: staleness.cutoff(-1), ValueError, "iota must be at least 0"),
        (lambda: staleness.cutoff(1.5), TypeError, "iota must be a whole number"),
        (lambda: staleness.stage_aware(0.5), TypeError, "policy must come from"),
        (lambda: staleness.stage_aware(staleness.none(), 0), ValueError, "lam must be greater"),
        (
            lambda: staleness.stage_aware(staleness.stage_aware(staleness.none())),
            ValueError,
            "already",
        ),
        (
            lambda: staleness.stage_aware_as_printed(staleness.stage_aware(staleness.none())),
            ValueError,
            "already",
        ),
        (
            lambda: staleness.stage_aware(staleness.stage_aware_as_printed(staleness.none())),
            ValueError,
            "already",
        ),
        (lambda: staleness.tail_tau(1.1), ValueError, "amplitude must be at most 1"),
        (lambda: staleness.fleet(percentile=101), ValueError, "percentile must be at most 100"),
        (lambda: staleness.mindthestep(0), ValueError, "mean must be greater"),
        (lambda: staleness.mindthestep(1, 2), ValueError, "momentum must be at most 1"),
        (lambda: staleness.mindthestep(scaled=1), TypeError, "scaled must be True or False"),
        (
            lambda: staleness.mindthestep(bound=1, scaled=True),
            ValueError,
            "bound must be greater than 1",
        ),
        (lambda: staleness.table([]), ValueError, "of length 1 to"),
        (lambda: staleness.table([[1.0]]), ValueError, "one-dimensional"),
        (lambda: staleness.table([0.0, 1.0]), ValueError, r"values\[0\] is 0"),
        (lambda: staleness.table([1.0, -1.0]), ValueError, r"values\[1\] is -1"),
        (lambda: staleness.table([1.0, math.nan]), ValueError, r"values\[1\] is nan"),
        (lambda: staleness.from_function(3), TypeError, "f must be callable"),
        (lambda: staleness.from_function(lambda _: None), TypeError, r"f\(0\) must be a number"),
        (lambda: staleness.none().factor(-1), ValueError, "tau must be finite"),
        (lambda: staleness.none().factor(1, last_update=-1), ValueError, "last_update must be"),
    ],
)
def test_wrong_arguments_are_named(call: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        call()


def test_train_takes_a_policy_and_nothing_else(digits: lsh.Dataset) -> None:
    model = lsh.models.mlp(784, [], 10)
    with pytest.raises(TypeError, match=r"staleness must come from leashed\.staleness"):
        lsh.train(model, digits, staleness=0.5, until=lsh.until(updates=1))
