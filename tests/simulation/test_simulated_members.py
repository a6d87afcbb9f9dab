"""Workers that crash, leave, join late and return, in virtual time."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from drawing import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from simulation.test_simulated_modes import ALL, DATA, MODEL, play

import leashed as lsh
from leashed import modes, simulation
from leashed.simulation import Network

WORKERS, EXAMPLES, EPOCHS = 4, 48, 3
RNG = np.random.default_rng(0)
X = RNG.random((EXAMPLES, 2), np.float32)
SMALL = (X, (X[:, 0] > 0.5).astype(np.int64))
LOGISTIC = lsh.models.logistic_regression(2)
KINDS = st.sampled_from(["leave", "crash"])
SOON = st.integers(0, 60)  # ms; all of it takes some 40 without losses


@st.composite
def changes(draw):
    """Of every worker comings and goings in turn, of which somebody stays."""
    all_of, stays = [], False
    for worker in range(WORKERS):
        times = sorted(draw(st.lists(SOON, max_size=4, unique=True)))
        there = draw(st.booleans())
        for ms in times:
            all_of.append((ms / 1000, worker, draw(KINDS) if there else "join"))
            there = not there
        stays = stays or there or not times
    if not stays:
        all_of.append((0.1, 0, "join"))
    return all_of


@st.composite
def clusters(draw):
    made = draw(
        st.sampled_from(
            [
                simulation.constant(WORKERS, 1e-3),
                simulation.exponential(WORKERS, 1e-3, update=1e-5),
                simulation.heavy_tail(WORKERS, 1e-3, 1.5).slower([8]),
                simulation.exponential(WORKERS, 1e-3, copy=3e-4),
                simulation.exponential(WORKERS, 7e-4, fetch=3e-4),
            ]
        )
    )
    if draw(st.booleans()) and made.copy == 0.0:
        made = made.over(Network(bandwidth=5e4, latency=1e-4, server_bandwidth=1e5))
    if draw(st.booleans()):
        made = made.failing(draw(st.sampled_from([0.01, 0.05])), draw(st.sampled_from([0.0, 0.01])))
    return made.members(draw(changes()))


def play_small(mode, cluster, epochs=EPOCHS, term=None, **given):
    mode = dataclasses.replace(mode, term=term)
    return lsh.simulate(
        LOGISTIC,
        SMALL,
        cluster=cluster,
        until=lsh.until(epochs=epochs),
        mode=mode,
        rule=lsh.Momentum(0.1, 0.9),
        batch_size=2,
        **given,
    )


def check_ledger(played):
    counts, examples = played.mode, EPOCHS * EXAMPLES
    assert played.result.reason == "epochs"
    assert counts.worker_examples.sum() - counts.late == examples
    if counts.applied:
        assert counts.applied + counts.stale + counts.straggler == examples
    assert np.isfinite(played.result.parameters).all()
    assert played.result.breakdown["waiting"] >= 0.0


@pytest.mark.parametrize("mode", ALL, ids=repr)
@settings(max_examples=examples(12), deadline=None, derandomize=True)
@given(
    cluster=clusters(),
    noticed=st.sampled_from([(0.02, None), (None, 0.005), (0.05, 0.003), (None, 0.0)]),
    seed=st.integers(0, 99),
)
def test_nothing_is_lost_and_nobody_waits_for_ever(mode, cluster, noticed, seed):
    term, detection = noticed
    told = {"term": term, "detection": detection, "seed": seed}
    played, again = play_small(mode, cluster, **told), play_small(mode, cluster, **told)
    check_ledger(played)
    assert np.array_equal(played.result.parameters, again.result.parameters)
    assert played.result.elapsed == again.result.elapsed
    assert played.mode.lost == again.mode.lost


def test_who_fails_often_loses_much():
    cluster = simulation.exponential(8, 1e-3)
    rare = play(modes.ASP(), cluster.failing(1.0, 1e-2), detection=0.01)
    often = play(modes.ASP(), cluster.failing(5e-3, 1e-2), detection=0.01)
    assert often.mode.departures > 10 * max(1, rare.mode.departures)
    assert often.mode.lost > rare.mode.lost
    assert often.result.elapsed > 2.0 * rare.result.elapsed


def test_a_share_of_the_time_is_away():
    # A third of it, so two thirds of the work are done.
    cluster = simulation.constant(16, 1e-4).failing(2e-3, 1e-3)
    played = play(modes.ASP(), cluster, epochs=100, detection=0.0)
    whole = play(modes.ASP(), simulation.constant(16, 1e-4), epochs=100)
    assert whole.result.elapsed / played.result.elapsed == pytest.approx(2.0 / 3.0, abs=0.06)


@pytest.mark.parametrize(
    ("mode", "told"), [(modes.Sync(term=0.02), {}), (modes.Sync(), {"detection": 0.015})], ids=str
)
def test_an_update_that_is_made_without_who_has_crashed_counts_towards_the_limit(mode, told):
    cluster = simulation.constant(2, 1e-3).members([(0.0005, 1, "crash")])
    made = [
        play(mode, cluster, until=lsh.until(updates=n), **told).result.total_updates
        for n in (1, 2, 5)
    ]
    assert made == [1, 2, 5]  # the first when it is noticed


def test_sync_goes_on_without_who_has_crashed_once_that_is_noticed():
    cluster = simulation.constant(4, 1e-3).members([(0.0105, 3, "crash")])
    # 40 batches of four, then the other 120 of three, after a wait for the term or the detection.
    for mode, told, wait in (
        (modes.Sync(term=0.02), {}, 0.02),
        (modes.Sync(), {"detection": 0.015}, 0.0155),
    ):
        played = play(mode, cluster, **told)
        assert played.mode.lost == 16
        assert played.mode.departures == 1
        assert played.result.elapsed == pytest.approx(0.010 + wait + 1e-3 * 120 / 3, abs=3e-3)


def test_who_leaves_is_not_waited_for():
    left = simulation.constant(4, 1e-3).members([(0.0105, 3, "leave")])
    played = play(modes.Sync(), left)
    assert played.result.elapsed == pytest.approx(0.010 + 1e-3 * 120 / 3, abs=3e-3)


def test_who_joins_late_brings_nothing_before():
    cluster = simulation.constant(4, 1e-3).members([(0.02, 1, "join"), (0.03, 2, "join")])
    pushed = play(modes.ASP(), cluster).mode.worker_examples / 16
    assert pushed[0] - pushed[1] == pytest.approx(20, abs=1)
    assert pushed[0] - pushed[2] == pytest.approx(30, abs=1)
    assert abs(pushed[0] - pushed[3]) <= 1


@pytest.mark.parametrize("told", [{"term": 0.5}, {"detection": 1.0}], ids=str)
def test_a_batch_that_is_computed_again_is_as_fresh_as_its_parameters(told):
    # Whoever crashes is missed when some ten steps have gone by, more than GBA tolerates.
    crashes = [(0.15 + 0.3 * i, i, "crash") for i in range(8)]
    cluster = simulation.constant(20, 0.1).members(crashes)
    played = play_small(modes.GBA(iota=4), cluster, epochs=80, **told)
    assert played.mode.lost == 8 * 2
    assert played.mode.stale == 0
    assert played.mode.applied == 80 * EXAMPLES


def test_a_batch_that_takes_longer_than_the_term_goes_to_another():
    cluster = simulation.constant(4, 1e-3).slower([30])
    played = play(modes.ASP(term=0.01), cluster)
    assert played.mode.late > 0
    assert played.mode.lost == 0
    assert played.mode.worker_examples.sum() - played.mode.late == 4 * 640


def step_from(theta, steps):
    x = np.array([[1.0], [2.0]], np.float32)
    y = np.array([0, 1], np.int32)
    for _ in range(steps):
        theta = theta - LINE.native.gradient(theta, x, y)[1]
    return theta


LINE = lsh.models.logistic_regression(1)
WHOLE = (np.array([[1.0], [2.0]], np.float32), np.array([0, 1]))


def whole_batches(mode, cluster, seconds):
    return lsh.simulate(
        LINE,
        WHOLE,
        cluster=cluster,
        mode=mode,
        until=lsh.until(seconds=seconds),
        rule=lsh.SGD(1.0),
        batch_size=2,
        init=np.zeros(LINE.dimension, np.float32),
        detection=0.1,
    ).result.parameters


def test_a_peer_that_returns_takes_the_next_ones_model():
    alone = modes.GoSGD(p=0.0)
    cluster = simulation.constant(2, 1.0).members([(1.5, 1, "crash"), (2.5, 1, "join")])
    # Both are after three steps then: the second after one of its own, from the other's two.
    start = np.zeros(LINE.dimension, np.float32)
    assert np.allclose(whole_batches(alone, cluster, 3.7), step_from(start, 3), atol=1e-6)


def test_one_of_an_ensemble_goes_on_from_its_own():
    cluster = simulation.constant(2, 1.0).members([(1.5, 1, "crash"), (2.5, 1, "join")])
    start = np.zeros(LINE.dimension, np.float32)
    expected = (step_from(start, 3) + step_from(start, 2)) / 2
    assert np.allclose(whole_batches(modes.Ensemble(), cluster, 3.7), expected, atol=1e-6)


def test_who_returns_to_a_server_takes_what_it_holds():
    # Elastic models a good way apart; the second's next push is one step from the server's.
    mode = modes.EASGD(alpha=1.0)
    cluster = simulation.constant(2, 1.0).slower([1.0, 1.4])
    cluster = cluster.members([(1.5, 1, "crash"), (2.5, 1, "join")])
    start = np.zeros(LINE.dimension, np.float32)
    # At 3.9 the server takes over the second's model: the server's of 2.0, and a step.
    assert np.allclose(whole_batches(mode, cluster, 3.95), step_from(start, 3), atol=1e-6)


def test_in_the_mean_of_the_models_are_those_of_who_is_there():
    alone = modes.GoSGD(p=0.0)
    cluster = simulation.constant(2, 1.0).slower([1.0, 1.9]).members([(2.5, 0, "leave")])
    start = np.zeros(LINE.dimension, np.float32)
    assert np.allclose(whole_batches(alone, cluster, 3.85), step_from(start, 2), atol=1e-6)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ([(1.0, 2, "leave")], "worker's number must be at most 1"),
        ([(1.0, 0, "sleep")], "changes must say leave, crash or join"),
        ([(-1.0, 0, "leave")], "seconds must be at least 0"),
        ([(1.0, 0, "leave"), (2.0, 0, "crash")], "worker 0 is not there when it is to crash at 2"),
        ([(1.0, 0, "leave"), (2.0, 0, "join"), (3.0, 0, "join")], "worker 0 is there already"),
        ([(1.0, 0, "leave"), (2.0, 1, "crash")], "must leave somebody"),
    ],
)
def test_wrong_changes(changes, message):
    with pytest.raises(ValueError, match=message):
        simulation.constant(2, 1e-3).members(changes)


def test_a_change_is_a_time_a_worker_and_what():
    with pytest.raises(TypeError, match="changes must be such as"):
        simulation.constant(2, 1e-3).members([(1.0, "leave")])


@pytest.mark.parametrize(
    ("cluster", "told", "message"),
    [
        (simulation.constant(2, 1e-3).failing(1.0, 1.0), {}, "term or detection must be given"),
        (simulation.constant(2, 1e-3).members([(1.0, 0, "crash")]), {}, "term or detection must"),
        (simulation.constant(2, 1e-3), {"detection": -1.0}, "detection must be at least 0"),
    ],
)
def test_wrong_arguments(cluster, told, message):
    with pytest.raises(ValueError, match=message):
        play(modes.ASP(), cluster, **told)


@pytest.mark.parametrize(
    ("cluster", "told", "name"),
    [
        (simulation.constant(2, 1e-3), {"detection": 1.0}, "detection"),
        (simulation.constant(2, 1e-3).failing(1.0, 1.0), {}, "failing"),
        (simulation.constant(2, 1e-3).members([(1.0, 0, "leave")]), {}, "members"),
    ],
)
def test_members_are_for_modes(cluster, told, name):
    with pytest.raises(ValueError, match=f"{name} is for runs with a mode"):
        lsh.simulate(MODEL, DATA, cluster=cluster, until=lsh.until(updates=3), **told)


def test_a_mean_time_is_above_0():
    with pytest.raises(ValueError, match="mean_between must be greater than 0"):
        simulation.constant(2, 1e-3).failing(0.0, 1.0)


def test_one_worker_s_changes_are_at_moments_of_their_own():
    cluster = simulation.constant(2, 0.01)
    with pytest.raises(ValueError, match="moments of their own: worker 1"):
        cluster.members([(0.005, 1, "join"), (0.005, 1, "leave")])
