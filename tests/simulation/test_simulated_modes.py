"""Modes of training in virtual time."""

from __future__ import annotations

import numpy as np
import pytest

import leashed as lsh
from leashed import modes, simulation

DATA = lsh.datasets.synthetic_digits(640, seed=3, test=100)
MODEL = lsh.models.mlp(784, [8], 10)
ALL = [
    modes.Sync(),
    modes.AllReduce(),
    modes.BSP(),
    modes.BSP(b2=3),
    modes.ASP(),
    modes.SSP(s=1),
    modes.DSSP(lower=0, upper=3),
    modes.HopBS(),
    modes.HopBS(b1=1, m=3, divide_by_containing=True),
    modes.HopBW(b3=1),
    modes.EASGD(alpha=0.5, gap=2),
    modes.LocalSGD(h=2),
    modes.GBA(),
    modes.GBA(m=4, iota=0),
    modes.Switching(at=((0.01, "gba"), (0.02, "sync"))),
    modes.Switching(gba_batch=8, m=12, at=((0.01, "gba"),)),
    modes.Automatic(window=0.01),
    modes.Automatic(window=0.01, capacity=1e6),
    modes.SHAT(),
    modes.SHAT(base=2),
    modes.SHATRoot(),
    modes.Ensemble(),
    modes.Swarm(h=2),
    modes.GoSGD(p=0.5),
    modes.ADPSGD(),
    modes.DPSGD(),
    modes.Prague(group=2),
]
ALONE = [
    modes.Sync(),
    modes.AllReduce(),
    modes.BSP(b2=1),
    modes.ASP(),
    modes.SSP(s=0),
    modes.DSSP(lower=0, upper=2),
    modes.HopBS(),
    modes.GBA(m=1),
    modes.LocalSGD(h=1),
    modes.SHAT(),
]


def play(mode, cluster, epochs=4, **given):
    return lsh.simulate(
        MODEL,
        DATA,
        cluster=cluster,
        mode=mode,
        batch_size=16,
        **{"rule": lsh.SGD(0.1), "until": lsh.until(epochs=epochs), **given},
    )


def alone(rule, epochs=4):
    return lsh.train(
        MODEL,
        DATA,
        until=lsh.until(epochs=epochs),
        discipline=lsh.Sequential(),
        threads=1,
        rule=rule,
        batch_size=16,
    )


@pytest.mark.parametrize("rule", [lsh.SGD(0.1), lsh.Adam(0.01)], ids=["sgd", "adam"])
@pytest.mark.parametrize("mode", ALONE, ids=repr)
def test_one_worker_has_the_bits_of_sequential(mode, rule):
    played = play(mode, simulation.exponential(1, 1e-3), rule=rule).result
    real = alone(rule)
    assert played.gradients == real.gradients
    assert np.array_equal(played.parameters, real.parameters)


@pytest.mark.parametrize("mode", ALL, ids=repr)
def test_every_example_is_applied_once_or_counted(mode):
    cluster = simulation.heavy_tail(6, 1e-3, 1.5, update=1e-5, copy=1e-4)
    played = play(mode, cluster)
    counts, result = played.mode, played.result
    examples = 4 * 640
    assert counts.worker_examples.sum() == examples
    if not counts.exchanges and not isinstance(
        mode, (modes.Swarm, modes.GoSGD, modes.ADPSGD, modes.DPSGD, modes.Prague)
    ):
        assert counts.applied + counts.stale + counts.straggler + counts.late == examples
    assert result.reason == "epochs"
    assert np.isfinite(result.final_loss)


@pytest.mark.parametrize("mode", ALONE, ids=repr)
def test_a_batch_is_fetched_before_each_pull(mode):
    alone, fetching = (play(mode, simulation.constant(1, 3e-3, fetch=f)).result for f in (0, 2e-3))
    assert np.array_equal(alone.parameters, fetching.parameters)
    assert fetching.elapsed == pytest.approx(160 * 5e-3, abs=2.1e-3)  # or one more finds the end


def test_a_batch_is_fetched_while_the_push_is_under_way():
    pushing = play(modes.ASP(), simulation.constant(1, 3e-3, copy=1e-3, fetch=2e-3)).result
    assert pushing.elapsed == pytest.approx(160 * (1e-3 + 3e-3 + 2e-3), rel=1e-2)


@pytest.mark.parametrize("mode", ALL, ids=repr)
def test_a_seed_gives_the_same_bits(mode):
    cluster = simulation.exponential(5, 1e-3, copy=1e-4)
    first, again = play(mode, cluster, seed=2), play(mode, cluster, seed=2)
    assert np.array_equal(first.result.parameters, again.result.parameters)
    assert first.result.elapsed == again.result.elapsed


@pytest.mark.parametrize(
    "mode", [modes.AllReduce(), modes.GBA(), modes.BSP(), modes.HopBW(b3=0)], ids=repr
)
def test_equal_workers_make_it_sync(mode):
    cluster = simulation.constant(4, 1e-3)
    sync, other = play(modes.Sync(), cluster), play(mode, cluster)
    assert np.array_equal(sync.result.parameters, other.result.parameters)
    assert other.result.staleness.max() == 0


def test_asynchronous_modes_do_not_wait_for_the_slow():
    cluster = simulation.constant(4, 1e-3).slower([10])
    sync, asp, gba = (play(mode, cluster) for mode in (modes.Sync(), modes.ASP(), modes.GBA()))
    assert asp.result.elapsed < 0.5 * sync.result.elapsed
    assert gba.result.elapsed < 0.5 * sync.result.elapsed
    assert sync.result.staleness.max() == 0
    assert asp.result.staleness.max() > 10
    backup = play(modes.HopBW(b3=1), cluster)
    assert backup.mode.straggler > 0
    assert f"straggler={backup.mode.straggler}, " in repr(backup.mode)
    assert "array" not in repr(backup.mode)


@pytest.mark.parametrize("s", [0, 2, 5])
def test_ssp_keeps_its_bound(s):
    workers = 4
    played = play(modes.SSP(s=s), simulation.constant(workers, 1e-3).slower([20]), epochs=1)
    assert played.result.staleness.max() <= (2 * s + 1) * (workers - 1)


def test_hop_bs_is_stale_by_steps_and_ssp_by_gradients():
    # The slow one holds all up in either, so both are as fast; only what an update is differs.
    cluster = simulation.exponential(20, 1e-3).slower([4])
    hop_bs, ssp = (play(mode, cluster, epochs=20) for mode in (modes.HopBS(), modes.SSP(s=2)))
    assert hop_bs.result.total_updates == ssp.result.total_updates // 20
    assert hop_bs.result.elapsed == ssp.result.elapsed
    assert 1 <= hop_bs.result.staleness.max() <= 4
    assert 0.2 < hop_bs.result.staleness.mean() < 1.5
    assert ssp.result.staleness.max() > 30
    same = play(modes.HopBS(m=1), cluster, epochs=20).result
    assert np.array_equal(same.parameters, ssp.result.parameters)


@pytest.mark.parametrize("shards", [None, simulation.memorywise(3)], ids=str)
@pytest.mark.parametrize(
    "mode", [modes.EASGD(alpha=1.0, gap=2), modes.LocalSGD(h=2), modes.SHAT(base=1.0001)], ids=repr
)
def test_the_answer_to_the_last_push_is_taken_too(mode, shards):
    # α is 1, or so near it that nothing is left of what a worker had. One server answers at the end,
    # each of several as soon as it has the push: only to the last is that the end.
    played = play(mode, simulation.constant(3, 1e-3, update=1e-4), shards=shards)
    apart = np.abs(played.models - played.result.parameters).max(axis=1)
    assert apart.min() < 1e-4
    if shards is None or isinstance(mode, modes.LocalSGD):
        assert apart.max() < 1e-4


def test_staleness_of_exponential_workers_is_that_of_theory():
    n = 30
    model = lsh.models.logistic_regression(2)
    x = np.random.default_rng(0).random((64, 2), np.float32)
    result = lsh.simulate(
        model,
        (x, (x[:, 0] > 0.5).astype(np.int64)),
        cluster=simulation.exponential(n, 1.0),
        until=lsh.until(updates=20_000),
        mode=modes.ASP(),
        batch_size=1,
    ).result
    assert result.total_updates == 20_000
    counts = result.staleness.counts
    mean = np.arange(len(counts)) @ counts / counts.sum()
    assert abs(mean - (n - 1)) < 4 * n / np.sqrt(20_000 / n)


def test_staleness_policies_damp():
    cluster = simulation.exponential(8, 1e-3)
    plain = play(modes.ASP(), cluster)
    damped = play(modes.ASP(), cluster, staleness=lsh.staleness.inverse())
    assert not np.array_equal(plain.result.parameters, damped.result.parameters)
    assert np.array_equal(plain.result.staleness.counts, damped.result.staleness.counts)


def test_models_of_peers_are_averaged():
    played = play(modes.DPSGD(), simulation.constant(4, 1e-3), epochs=10)
    assert played.mode.meetings > 0
    assert played.result.final_loss < 0.8 * played.result.initial_loss


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"mode": 3}, "mode must be ASP"),
        ({"mode": modes.ASP(), "discipline": lsh.Leashed()}, "discipline is not for runs"),
        ({"mode": modes.SSP(s=-1)}, "'s' must be from 0"),
        ({"mode": modes.GBA(iota=-1)}, "'iota' must be from 0"),
        (
            {"mode": modes.SHAT(), "staleness": lsh.staleness.stage_aware(lsh.staleness.inverse())},
            "staleness by stages is not for modes whose workers mix",
        ),
    ],
)
def test_wrong_arguments(given, message):
    asked = {"cluster": simulation.constant(2, 1e-3), "until": lsh.until(updates=3), **given}
    with pytest.raises((TypeError, ValueError), match=message):
        lsh.simulate(MODEL, DATA, **asked)


def test_a_switch_changes_nothing_where_nobody_is_stale():
    cluster = simulation.constant(4, 1e-3)
    at = ((0.0095, "gba"), (0.0195, "sync"), (0.0305, "gba"))
    sync, switched = play(modes.Sync(), cluster), play(modes.Switching(at=at), cluster)
    assert np.array_equal(sync.result.parameters, switched.result.parameters)


def test_a_switch_is_a_time_and_a_mode():
    with pytest.raises(ValueError, match="at must say sync or gba"):
        modes.Switching(at=((1.0, "asp"),))
    with pytest.raises(ValueError, match="at must be at least 0"):
        modes.Switching(at=((-1.0, "gba"),))


@pytest.mark.parametrize("base", [0, 1, -2, float("nan")])
def test_a_logarithm_s_base_is_above_one(base):
    with pytest.raises(ValueError, match="base must be"):
        modes.SHAT(base=base)


def test_the_natural_logarithm_is_the_default():
    cluster = simulation.exponential(4, 1e-3)
    natural, given = play(modes.SHAT(), cluster), play(modes.SHAT(base=np.e), cluster)
    assert np.array_equal(natural.result.parameters, given.result.parameters)


def test_servers_without_capacity_keep_automatic_at_sync():
    cluster = simulation.constant(4, 1e-3).slower([20])
    sync, bounded, free = (
        play(mode, cluster, epochs=10).result
        for mode in (
            modes.Sync(),
            modes.Automatic(window=0.02, capacity=1.0),
            modes.Automatic(window=0.02),
        )
    )
    assert bounded.elapsed == sync.elapsed
    assert free.elapsed < sync.elapsed
    with pytest.raises(ValueError, match="capacity must be greater than 0"):
        modes.Automatic(capacity=0)


def test_easgd_mixes_with_the_model_as_its_own_exchange_has_left_it():
    """Though the other exchanges before it pulls again: pushes of a moment come before pulls."""
    x = np.array([[1.0], [2.0]], np.float32)
    y = np.array([0, 1])
    model = lsh.models.logistic_regression(1)
    zero = np.zeros(model.dimension, np.float32)
    played = lsh.simulate(
        model,
        (x, y),
        cluster=simulation.constant(2, 1.0),
        mode=modes.EASGD(alpha=0.5),
        until=lsh.until(seconds=2.1),
        rule=lsh.SGD(1.0),
        batch_size=2,
        init=zero,
    )

    def stepped(theta):
        _, gradient = model.native.gradient(theta, x, y.astype(np.int32))
        return theta - gradient

    own, server = [zero, zero], zero
    for _ in range(2):
        for worker in range(2):
            moved = stepped(own[worker])
            server = 0.5 * server + 0.5 * moved
            own[worker] = 0.5 * moved + 0.5 * server
    assert played.mode.exchanges == 4
    assert np.allclose(played.result.parameters, server, atol=1e-6)


def test_a_mode_s_numbers_are_numbers():
    with pytest.raises(TypeError, match="s must be a number"):
        modes.SSP(s="1")


def test_what_each_worker_published_is_told():
    cluster = simulation.constant(4, 1e-3).slower([5])
    played = play(modes.HopBW(b3=1), cluster)
    published = played.result.worker_updates
    assert played.mode.straggler > 0
    assert published.sum() == played.result.gradients - played.result.dropped
    assert published[0] < published[1]


def test_a_mean_is_clipped_not_the_sum():
    rule = lsh.SGD(0.1, clip_norm=0.5, clip_value=0.1)
    played = play(modes.Sync(), simulation.constant(4, 1e-3), rule=rule).result
    real = lsh.train(
        MODEL,
        DATA,
        until=lsh.until(epochs=4),
        discipline=lsh.Synchronous(),
        threads=4,
        rule=rule,
        batch_size=16,
    )
    assert np.allclose(played.parameters, real.parameters, atol=1e-5)


def test_what_a_policy_leaves_out_is_no_update():
    result = play(
        modes.ASP(), simulation.exponential(8, 1e-3), staleness=lsh.staleness.cutoff(0)
    ).result
    assert result.excluded > 0
    assert result.total_updates == result.gradients - result.excluded
    assert result.staleness.max() == 0


def test_the_server_carries_out_one_push_after_the_other():
    cluster = simulation.constant(100, 0.01, update=0.01)
    result = play(modes.ASP(), cluster, epochs=5).result
    assert result.elapsed == pytest.approx(0.01 * result.total_updates, rel=0.02)


def test_peers_do_not_wait_for_each_others_updates():
    cluster = simulation.constant(4, 1e-3, update=1e-3)
    result = play(modes.Swarm(h=1), cluster).result
    assert result.elapsed == pytest.approx(160 / 4 * 2e-3)


def test_a_meeting_does_not_change_what_a_gradient_is_taken_on():
    x = np.array([[1.0], [2.0]], np.float32)
    y = np.array([0, 1])
    model = lsh.models.logistic_regression(1)
    played = lsh.simulate(
        model,
        (x, y),
        cluster=simulation.constant(2, 1.0).slower([1.0, 1.5]),
        mode=modes.GoSGD(p=1.0),
        until=lsh.until(seconds=1.6),
        rule=lsh.SGD(1.0),
        batch_size=2,
        init=np.zeros(model.dimension, np.float32),
    )
    start = np.zeros(model.dimension, np.float32)
    _, gradient = model.native.gradient(start, x, y.astype(np.int32))
    # The first steps and both take the mean; the second, begun before, steps from it; and the mean.
    expected = start - 0.5 * gradient - 0.5 * gradient
    assert np.allclose(played.result.parameters, expected, atol=1e-6)


def test_who_waited_for_a_meeting_goes_on_from_it():
    # Two that always meet are a barrier: each goes on from the mean of both.
    cluster = simulation.constant(2, 1e-3)
    sync, peers = play(modes.Sync(), cluster).result, play(modes.DPSGD(), cluster).result
    assert np.allclose(peers.parameters, sync.parameters, atol=1e-5)


def test_where_time_stands_still_the_end_is_evaluated():
    result = lsh.simulate(
        MODEL,
        DATA,
        cluster=simulation.constant(2, 0.0),
        mode=modes.ASP(),
        until=lsh.until(updates=50),
        batch_size=16,
    ).result
    assert result.final_loss != result.initial_loss


def test_data_is_stale_by_its_token():
    cluster = simulation.exponential(8, 1e-3)
    sync, gba, asp = (play(mode, cluster) for mode in (modes.Sync(), modes.GBA(), modes.ASP()))
    assert sync.mode.data_staleness.tolist() == [160]
    assert gba.mode.data_staleness.sum() == 160 - gba.mode.stale // 16
    # A batch is handed out a step before its own: few gradients are behind by their token.
    assert lsh.result.Histogram(gba.mode.data_staleness).mean() < 0.6 * gba.result.staleness.mean()
    assert asp.mode.data_staleness.sum() == 160
    assert play(modes.LocalSGD(h=2), cluster).mode.data_staleness.sum() == 0


def test_updates_of_gradients_that_count_next_to_nothing_are_finite() -> None:
    """Where a policy's factors are 1e-308, neither they nor their inverses are floats."""
    result = lsh.simulate(
        MODEL,
        DATA,
        cluster=simulation.constant(8, 1.0),
        mode=modes.BSP(b2=2),
        rule=lsh.SGD(0.1),
        staleness=lsh.staleness.tail_tau(1.0, 2),
        batch_size=16,
        until=lsh.until(updates=20),
    ).result
    assert result.outcome == "stopped"
    assert np.isfinite(result.parameters).all()
