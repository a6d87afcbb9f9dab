"""Trainings in virtual time."""

from __future__ import annotations

import math

import numpy as np
import pytest

import leashed as lsh
from leashed import simulation

DATA = lsh.datasets.synthetic_digits(600, seed=3, test=100)
MODEL = lsh.models.mlp(784, [8], 10)
PLAYED = [
    lsh.Leashed(),
    lsh.Leashed(persistence=0),
    lsh.Leashed(persistence=1),
    lsh.Locked(),
    lsh.Hogwild(),
]
RULES = [
    lsh.Momentum(0.1),
    lsh.Adam(0.01),
    lsh.SGD(0.1, clip_norm=0.5, weight_decay=1e-3),
]


def by(one):
    return one.label


def play(discipline, cluster, updates=60, **given):
    return lsh.simulate(
        MODEL,
        DATA,
        cluster=cluster,
        until=lsh.until(updates=updates),
        discipline=discipline,
        batch_size=16,
        **given,
    )


@pytest.mark.parametrize("rule", RULES, ids=str)
@pytest.mark.parametrize("discipline", [lsh.Sequential(), *PLAYED], ids=by)
def test_one_worker_has_the_bits_of_one_thread(discipline, rule):
    cluster = simulation.exponential(1, 1e-3, update=1e-4, copy=1e-5)
    virtual = play(discipline, cluster, rule=rule).result
    real = lsh.train(
        MODEL,
        DATA,
        until=lsh.until(updates=60),
        discipline=discipline,
        threads=1,
        rule=rule,
        batch_size=16,
    )
    assert np.array_equal(virtual.parameters, real.parameters)
    assert virtual.final_loss == real.final_loss
    assert virtual.validation_accuracy[-1] == real.validation_accuracy[-1]
    assert virtual.staleness.max() == 0


@pytest.mark.parametrize(
    "policy",
    [lsh.staleness.tail_tau(), lsh.staleness.stage_aware(lsh.staleness.inverse())],
    ids=str,
)
@pytest.mark.parametrize("discipline", PLAYED, ids=by)
def test_staleness_policies_are_the_real_ones(discipline, policy):
    cluster = simulation.exponential(1, 1e-3, update=1e-4)
    virtual = play(discipline, cluster, staleness=policy).result
    real = lsh.train(
        MODEL,
        DATA,
        until=lsh.until(updates=60),
        discipline=discipline,
        threads=1,
        staleness=policy,
        batch_size=16,
    )
    assert np.array_equal(virtual.parameters, real.parameters)


@pytest.mark.parametrize("discipline", PLAYED, ids=by)
def test_a_seed_gives_the_same_bits_and_another_does_not(discipline):
    cluster = simulation.heavy_tail(8, 1e-3, 1.5, update=2e-4, copy=1e-4)
    first, again = play(discipline, cluster, seed=5), play(discipline, cluster, seed=5)
    other = play(discipline, cluster, seed=6)
    assert np.array_equal(first.result.parameters, again.result.parameters)
    assert first.result.elapsed == again.result.elapsed
    assert np.array_equal(first.updating, again.updating)
    assert not np.array_equal(first.result.parameters, other.result.parameters)


@pytest.mark.parametrize("discipline", PLAYED, ids=by)
def test_what_was_computed_was_published_or_dropped(discipline):
    cluster = simulation.exponential(16, 1e-3, update=5e-4, copy=1e-4)
    result = play(discipline, cluster, updates=400).result
    assert result.total_updates == 400
    assert result.gradients == 400 + result.dropped + result.excluded
    assert result.staleness.total == 400
    assert result.worker_updates.sum() == 400
    bound = getattr(discipline, "persistence", math.inf)
    assert result.tries.max() <= bound + 1
    assert (result.dropped > 0) == (bound < math.inf)
    assert result.staleness.mean() > 1


def test_staleness_of_exponential_workers_is_that_of_theory():
    """Without a time of their own, updates of n workers are a Poisson process: a gradient's staleness
    is geometric, of mean n - 1 and variance n (n - 1).
    """
    n, updates = 20, 20_000
    model = lsh.models.logistic_regression(2)
    x = np.random.default_rng(0).random((64, 2), np.float32)
    y = (x[:, 0] > 0.5).astype(np.int64)
    result = lsh.simulate(
        model,
        (x, y),
        cluster=simulation.exponential(n, 1.0),
        until=lsh.until(updates=updates),
        batch_size=1,
    ).result
    values, counts = np.arange(len(result.staleness.counts)), result.staleness.counts
    mean = values @ counts / counts.sum()
    variance = (values - mean) ** 2 @ counts / counts.sum()
    deviation = math.sqrt(n * (n - 1))
    # The staleness of gradients that overlap is correlated: a worker's come n updates apart.
    assert abs(mean - (n - 1)) < 4 * deviation / math.sqrt(updates / n)
    assert variance == pytest.approx(n * (n - 1), rel=0.2)


@pytest.mark.parametrize("mode", [None, lsh.modes.ASP()], ids=["discipline", "mode"])
@pytest.mark.parametrize("make", [simulation.exponential, simulation.rates], ids=["one", "rates"])
@pytest.mark.parametrize("share", [0.25, 0.875])
def test_what_is_fetched_before_the_read_makes_nothing_stale(mode, make, share):
    """As many others' updates come between read and publish as their share of the cycle says."""
    n, updates = 40, 20_000
    spread = (0.1,) if make is simulation.rates else ()
    x = np.array([[0.0], [1.0]], np.float32)
    result = lsh.simulate(
        lsh.models.logistic_regression(1),
        (x, np.array([0, 1])),
        cluster=make(n, share, *spread, fetch=1.0 - share),
        until=lsh.until(updates=updates),
        mode=mode,
        rule=lsh.SGD(1e-6),
        batch_size=1,
    ).result
    assert result.staleness.mean() == pytest.approx(share * (n - 1), rel=0.05)
    assert result.elapsed == pytest.approx(updates / n, rel=0.05)
    shares = {name: result.breakdown[name] / (n * result.elapsed) for name in result.breakdown}
    assert shares["sampling"] == pytest.approx(1.0 - share, rel=0.05)
    assert shares["gradient"] == pytest.approx(share, rel=0.05)
    assert shares["waiting"] == 0.0


@pytest.mark.parametrize("discipline", [*PLAYED, lsh.Synchronous()], ids=by)
def test_a_batch_is_fetched_before_each_gradient(discipline):
    alone = play(discipline, simulation.constant(1, 3e-3, update=1e-4)).result
    fetching = play(discipline, simulation.constant(1, 3e-3, update=1e-4, fetch=2e-3)).result
    assert np.array_equal(alone.parameters, fetching.parameters)
    assert fetching.elapsed == pytest.approx(alone.elapsed + 60 * 2e-3)
    assert fetching.config["virtual"]["fetch"] == 2e-3
    loaded = simulation.trace(2, [2e-3, 4e-3], update=1e-4, fetch=2e-3).slower([2, 2]).under(1.0)
    cycle = 4 * (3e-3 + 2e-3) + 1e-4  # what is fetched is held up as gradients are
    assert play(discipline, loaded).result.elapsed > 60 / 2 * 0.99 * cycle


def test_the_loop_s_occupancy_is_n_star():
    """A gradient that leaves the retry loop at its first attempt stays for T_u: section IV's model."""
    m, compute, update = 64, 1e-3, 2e-4
    cluster = simulation.exponential(m, compute, update=update)
    played = play(lsh.Leashed(persistence=0), cluster, updates=2000)
    expected = lsh.analysis.fixed_point(m, compute, update)
    assert played.mean_updating == pytest.approx(expected, rel=0.05)
    assert played.updating_seconds.sum() == pytest.approx(played.result.elapsed)
    assert len(played.updating) == len(played.updating_moments)
    assert played.updating.max() <= m


def test_a_lock_is_for_one_at_a_time():
    cluster = simulation.constant(10, 1e-3, update=1e-3, copy=1e-3)
    result = play(lsh.Locked(), cluster, updates=100).result
    # Each update needs the lock for a copy and for itself; ten workers keep it busy.
    assert result.elapsed == pytest.approx(100 * 2e-3, rel=0.1)
    assert result.breakdown["waiting"] > result.breakdown["update"]


def test_time_that_nothing_takes_cannot_end_a_run():
    with pytest.raises(ValueError, match="until needs updates or epochs"):
        lsh.simulate(MODEL, DATA, cluster=simulation.constant(2, 0), until=lsh.until(seconds=1))


def test_stop_rules_are_of_virtual_time():
    cluster = simulation.constant(4, 1e-2)
    result = lsh.simulate(
        MODEL, DATA, cluster=cluster, until=lsh.until(seconds=1.005), batch_size=8
    )
    assert result.result.reason == "seconds"
    assert result.result.elapsed == 1.005
    assert result.result.total_updates == 400
    epochs = lsh.simulate(MODEL, DATA, cluster=cluster, until=lsh.until(epochs=2), batch_size=8)
    assert epochs.result.reason == "epochs"
    assert epochs.result.gradients == 150
    loss = lsh.simulate(
        MODEL,
        DATA,
        cluster=cluster,
        until=lsh.until(loss_fraction=0.5, seconds=100),
        rule=lsh.SGD(0.1),
        observe=lsh.Observe(every=0.05),
        batch_size=8,
    ).result
    assert loss.outcome == "converged"
    assert loss.final_loss <= 0.5 * loss.initial_loss
    assert np.allclose(np.diff(loss.seconds), 0.05)


@pytest.mark.filterwarnings("ignore:the training crashed:RuntimeWarning")
def test_divergence_is_told():
    result = play(
        lsh.Leashed(), simulation.constant(4, 1e-3), updates=500, rule=lsh.SGD(1e30)
    ).result
    assert result.outcome == "crashed"
    assert result.reason == "not_finite"


def test_ctrl_c_returns_the_state_reached():
    def progress(now):
        if now.updates > 0:
            raise KeyboardInterrupt

    result = play(
        lsh.Leashed(),
        simulation.constant(4, 1e-3),
        10_000,
        observe=lsh.Observe(progress, every=0.01),
    ).result
    assert result.reason == "interrupted"
    assert 0 < result.total_updates < 10_000


def test_an_error_of_a_callback_surfaces():
    def progress(_):
        raise RuntimeError("mine")

    with pytest.raises(RuntimeError, match="mine"):
        play(lsh.Leashed(), simulation.constant(4, 1e-3), observe=progress)


def test_an_error_of_a_gradient_surfaces():
    def gradient(*_):
        raise ZeroDivisionError("mine")

    model = lsh.models.external(gradient, dimension=3, features=784)
    with pytest.raises(ZeroDivisionError, match="mine"):
        lsh.simulate(
            model,
            (DATA.train.x, DATA.train.y),
            cluster=simulation.constant(2, 1e-3),
            until=lsh.until(updates=5),
        )


def test_costs_are_measured():
    costs = simulation.measure(MODEL, DATA)
    assert min(costs.compute, costs.update, costs.copy) > 0


def test_a_slow_worker_publishes_less():
    even = simulation.constant(4, 1e-3)
    result = play(lsh.Leashed(), even.slower([10]), updates=300).result
    assert result.worker_updates[0] < 0.2 * result.worker_updates[1]
    with pytest.raises(ValueError, match="factors must be of at most the 4 workers"):
        even.slower([1] * 5)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"cluster": 3}, "cluster must be"),
        ({"discipline": lsh.Hogwild(copy=False)}, r"Hogwild\(copy=False\) reads all the while"),
        ({"discipline": lsh.Sequential()}, "cluster must have 1 worker"),
        ({"until": lsh.until(loss=0.1)}, r"observe\.every must be given"),
        ({"until": lsh.until(loss=0.0, updates=3)}, r"observe\.every must be given"),
        ({"model": lsh.models.dlrm(100, 4, bottom=(8, 4), categories=2)}, "reads tables"),
    ],
)
def test_wrong_arguments(given, message):
    asked = {
        "model": MODEL,
        "data": DATA,
        "cluster": simulation.constant(2, 1e-3),
        "until": lsh.until(updates=3),
        **given,
    }
    with pytest.raises((TypeError, ValueError), match=message):
        lsh.simulate(**asked)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: simulation.constant(0, 1), "workers must be at least 1"),
        (lambda: simulation.constant(2, -1), "seconds must be at least 0"),
        (lambda: simulation.constant(2, math.nan), "seconds must be finite"),
        (lambda: simulation.constant(2, 1e9), "seconds must be at most"),
        (lambda: simulation.heavy_tail(2, 1.0, 1.0), "shape must be greater than 1"),
        (lambda: simulation.rates(2, 1.0, -1), "spread must be at least 0"),
        (lambda: simulation.trace(2, []), "seconds must be a list"),
        (lambda: simulation.trace(2, [math.nan]), "seconds must be a list"),
        (lambda: simulation.constant(2, 1.0, fetch=-1), "fetch must be at least 0"),
        (lambda: simulation.constant(2, 0.0, fetch=1.0), "fetch is drawn as a gradient's time"),
        (lambda: simulation.Costs(1, 1, -1), "copy must be at least 0"),
    ],
)
def test_wrong_clusters(make, message):
    with pytest.raises((TypeError, ValueError), match=message):
        make()


def test_a_load_holds_workers_up():
    alone = simulation.constant(8, 1e-3)
    seconds = [
        play(lsh.Leashed(), cluster, updates=200).result.elapsed
        for cluster in (alone, alone.under(1.0), alone.under([(0.0, 0.0), (1.0, 2.0), (2.0, 0.0)]))
    ]
    assert seconds[1] == pytest.approx(2 * seconds[0])
    assert seconds[0] < seconds[2] < 1.2 * seconds[0]
    uneven = play(lsh.Leashed(), alone.under(1.0, every=0.01), updates=200).result
    assert uneven.worker_updates.max() > 1.3 * uneven.worker_updates.min()
    told = uneven.config["virtual"]
    assert told["load"] == [1.0]
    assert told["load_every"] == 0.01


def test_a_day_is_vacant_at_night():
    x = np.array([[0.0], [1.0]], np.float32)
    result = lsh.simulate(
        lsh.models.logistic_regression(1),
        (x, np.array([0, 1])),
        cluster=simulation.day(10, 60.0, busiest=3.0),
        until=lsh.until(seconds=2 * 86_400.0),
        mode=lsh.modes.ASP(),
        batch_size=1,
        observe=lsh.Observe(every=3600.0),
    ).result
    by_hour = result.eps[1:49].reshape(2, 24)
    night, evening = by_hour[:, 2:6].mean(axis=1), by_hour[:, 16:20].mean(axis=1)
    assert (night > 1.8 * evening).all()


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"load": -1.0}, "load must be at least 0"),
        ({"load": "much"}, "load must be a number, or pairs"),
        ({"load": []}, "load must be a number, or pairs"),
        ({"load": [(1.0, 1.0)]}, "load must begin at 0 seconds"),
        ({"load": [(0.0, 1.0), (0.0, 2.0)]}, "go on with later ones, got 0, 0"),
        ({"load": 1.0, "every": 0.0}, "every must be at least"),
        ({"load": 2e6}, "load must leave a gradient at most"),
        ({"load": math.nan}, "load must be"),
    ],
)
def test_wrong_loads(given, message):
    with pytest.raises((TypeError, ValueError), match=message):
        simulation.constant(2, 1.0).under(**given)
