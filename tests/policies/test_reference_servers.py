"""The formulas of the papers on parameter servers, against their tables and against simulation."""

from __future__ import annotations

import math
import random
from statistics import fmean

import numpy as np
import pytest
import reference_servers as ref
from policies.oracles import Asp
from policies.schedules import Cluster, Happening, Schedule


@pytest.mark.parametrize(
    ("base", "expected"),
    [(math.e, [0.0, 0.04, 0.45, 0.62]), (2.0, [0.0, 0.33, 0.62, 0.73])],
)
def test_alpha_in_an_even_cluster(base: float, expected: list[float]) -> None:
    found = [ref.shat_alpha(n, n - 1, base) for n in (2, 4, 8, 16)]
    assert np.round(found, 2).tolist() == expected


def test_alpha_is_clipped() -> None:
    for alpha in (ref.shat_alpha, ref.shat_root_alpha):
        assert alpha(1, 0) == alpha(1, 9) == 1.0
        assert alpha(7, 0) == 0.0
        assert alpha(3, 1) == 0.0
        assert 0.999 < alpha(10, 10**6) <= 1.0
    assert ref.shat_root_alpha(4, 4) == 0.5


def test_alpha_grows_with_what_others_did() -> None:
    found = [ref.shat_alpha(8, c) for c in range(200)]
    assert found == sorted(found)


def test_a_step_descends_eq_1() -> None:
    """With α = ηρ the step is that of eq. 2 to first order in η."""
    rng = np.random.default_rng(3)
    w, g, shared = rng.normal(size=(3, 5))
    eta, rho = 1e-6, 2.5
    descended = w - eta * (g + rho * (w - shared))
    assert np.allclose(ref.shat_step(w, g, shared, eta, eta * rho), descended, rtol=0, atol=1e-10)
    assert ref.shat_rho(eta * rho, eta) == pytest.approx(rho)

    def objective(at: np.ndarray) -> float:
        return ref.shat_objective([float(g @ at)], [at], shared, rho)

    assert objective(descended) < objective(w)


def test_alpha_1_replaces_and_0_trains_alone() -> None:
    w, g, shared = [1.0, 2.0], [0.5, -0.5], [9.0, 8.0]
    assert ref.shat_step(w, g, shared, 0.1, 1.0).tolist() == shared
    assert ref.shat_step(w, g, shared, 0.1, 0.0).tolist() == [0.95, 2.05]


BATCHES = {
    4: {7: [1.0, 2.0], 9: [4.0, 0.0]},
    2: {9: [2.0, 6.0]},
    3: {},
}


@pytest.mark.parametrize(
    ("divide_by", "seven", "nine"),
    [
        ("kept", [1 / 3, 2 / 3], [2.0, 2.0]),
        ("containing", [1.0, 2.0], [3.0, 3.0]),
        (4, [0.25, 0.5], [1.5, 1.5]),
    ],
)
def test_rows_are_summed_by_id(
    divide_by: str | float, seven: list[float], nine: list[float]
) -> None:
    found = ref.aggregate_rows(BATCHES, divide_by)
    assert set(found) == {7, 9}
    assert np.allclose(found[7], seven)
    assert np.allclose(found[9], nine)


def test_rows_without_staleness_are_the_dense_gradient_of_their_table() -> None:
    """Dividing by the batches kept makes rows what a dense table's mean gradient would have."""
    rng = np.random.default_rng(0)
    rows = {k: {i: rng.normal(size=3) for i in rng.choice(6, 4, False).tolist()} for k in range(5)}
    table = {k: np.array([own.get(i, np.zeros(3)) for i in range(6)]) for k, own in rows.items()}
    dense = ref.aggregate_dense(table, 5)
    found = ref.aggregate_rows(rows)
    assert all(np.allclose(dense[i], found.get(i, np.zeros(3))) for i in range(6))


def test_rows_add_in_the_order_of_batches() -> None:
    batches = {3: {0: [1.0]}, 1: {0: [1e17]}, 2: {0: [-1e17]}}
    assert ref.aggregate_rows(batches, 1)[0] == 1.0


def staleness(durations: list[list[int]], until: int) -> list[int]:
    """τ of all updates but the first, with the oracle of ASP on these workers."""
    arguments = {"workers": len(durations), "batch": 1, "examples": 0, "term_ns": 0}
    schedule = Schedule(
        "asp", arguments, tuple(map(tuple, durations)), (Happening(until, "data_end"),), ties=1
    )
    oracle, cluster, found = Asp(**arguments), Cluster(schedule), []
    while step := cluster.next():
        for event in step:
            if event.kind == "push":
                found.append(oracle.version - event.version)
            cluster.take(event.now_ns, oracle.on(*event))
    return found[10 * len(durations) :]


def test_staleness_of_exponential_workers() -> None:
    n, mean = 20, 1_000_000
    rng = random.Random(0)
    found = staleness(
        [[1 + int(rng.expovariate(1 / mean)) for _ in range(997)] for _ in range(n)], 700 * mean
    )
    assert fmean(found) + 1 == pytest.approx(n, rel=0.02)
    assert np.var(found) == pytest.approx(n * (n - 1), rel=0.06)


def test_staleness_of_workers_with_rates_of_their_own() -> None:
    rates = [0.5, 1.0, 1.0, 2.0, 4.0]
    rng = random.Random(1)
    found = staleness(
        [[1 + int(rng.expovariate(r) * 1e6) for _ in range(9973)] for r in rates], 2_000_000_000
    )
    mean, variance = ref.staleness_moments(rates)
    assert mean == pytest.approx(4.0)
    assert fmean(found) == pytest.approx(mean, rel=0.03)
    assert np.var(found) == pytest.approx(variance, rel=0.1)


def test_constant_times_have_the_mean_and_no_variance() -> None:
    found = staleness([[1000 + i] + [1000] * 10**4 for i in range(8)], 500_000)
    assert set(found) == {7}


@pytest.mark.parametrize("n", [1, 2, 1000, 3000])
def test_moments_of_equal_workers(n: int) -> None:
    mean, variance = ref.staleness_moments(np.full(n, 0.3))
    assert mean + 1 == pytest.approx(n)
    assert variance == pytest.approx(n * (n - 1))


def test_gba_measures() -> None:
    assert ref.gba_zeta([({1, 2, 3}, {2, 3, 4}), ({5}, {6})], 10) == pytest.approx(0.1)
    now, then = [[3.0, 4.0], [0.0, 5.0]], [[3.0, 4.0], [0.0, 3.0]]
    assert ref.gba_gamma(now, then) == pytest.approx(4 / 50)
    assert ref.gba_gamma(now, then, 0.1) == pytest.approx(0.4 / 50)
    assert ref.gba_p0([(3, 3), (3, 4), (5, 5), (1, 5)]) == 0.5
    assert ref.gba_gamma_prime(0.2, 0.5) == pytest.approx(1.05)


def test_gbas_bound_is_the_synchronous_one_at_gamma_prime_1() -> None:
    common = {"eta": 0.1, "lipschitz": 2.0, "variance": 3.0, "convexity": 0.5, "start": 7.0}
    floor = 0.1 * 2.0 * 3.0 / (2 * 0.5 * 64)  # ηLσ²/(2cNB), eq. 2
    expected = floor + 0.95**9 * (7.0 - floor)
    assert ref.gba_error_bound(9, batch=64, **common) == pytest.approx(expected)
    assert ref.gba_error_bound(0, batch=64, gamma_prime=0.3, **common) == pytest.approx(7.0)
    assert ref.gba_error_bound(10**6, batch=64, gamma_prime=0.5, **common) == pytest.approx(
        2 * floor
    )
