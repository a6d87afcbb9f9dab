"""Trainers that synchronise, in virtual time (shadowsync, Algorithms 2 to 4)."""

from __future__ import annotations

import math
from functools import partial

import numpy as np
import pytest

import leashed as lsh
from leashed import simulation, sync
from leashed.cluster import packing
from leashed.cluster.shadowsync.scaling import plateau

DATA = lsh.datasets.synthetic_digits(600, seed=3, test=100)
MODEL = lsh.models.mlp(784, [8], 10)
LINK = {"bandwidth": 1e8, "latency": 1e-5}
EVERY = sync.every(iterations=3)
KINDS = [
    None,
    sync.EASGD(),
    sync.EASGD(when=EVERY),
    sync.EASGD(when=sync.every(seconds=4e-3)),
    sync.EASGD(symmetric=True, parts=2, when=EVERY),
    sync.EASGD(compression="int8"),
    sync.MA(),
    sync.MA(when=EVERY),
    sync.MA(when=sync.every(seconds=4e-3)),
    sync.MA(difference=True),
    sync.BMUF(momentum=0.5),
    sync.BMUF(nesterov=True, momentum=0.5, when=EVERY),
]


def by(one):
    if one is None:
        return "apart"
    form = "-difference" if getattr(one, "difference", False) else ""
    return f"{one.label}{form}-{one.compression}-{one.parts}"


def play(cluster, how=None, discipline=None, model=MODEL, data=DATA, batch_size=8, **given):
    given = {"until": lsh.until(epochs=2)} | given
    return lsh.simulate(
        model,
        data,
        cluster=cluster,
        sync=how,
        discipline=lsh.Hogwild() if discipline is None else discipline,
        batch_size=batch_size,
        **given,
    )


CREW = simulation.exponential(6, 1e-3, update=1e-4, copy=5e-5)


@pytest.mark.parametrize("discipline", [lsh.Hogwild(), lsh.Locked(), lsh.Leashed()], ids=str)
def test_a_trainer_alone_has_the_bits_of_a_run_without(discipline):
    plain = play(CREW, discipline=discipline)
    alone = play(CREW.trainers(1), discipline=discipline)
    assert np.array_equal(plain.result.parameters, alone.result.parameters)
    assert plain.result.elapsed == alone.result.elapsed
    assert alone.trainers.iterations.tolist() == [plain.result.gradients]
    assert plain.trainers is None
    assert math.isnan(alone.trainers.sync_gap)


@pytest.mark.parametrize("discipline", [lsh.Hogwild(), lsh.Locked()], ids=str)
@pytest.mark.parametrize("how", [sync.EASGD(alpha=0), sync.EASGD(alpha=0, when=EVERY)], ids=by)
def test_without_elasticity_so_has_one_that_synchronises(how, discipline):
    link = LINK if how.when.kind == "background" else {}
    plain = play(CREW, discipline=discipline)
    played = play(CREW.trainers(1, **link), how, discipline)
    assert np.array_equal(plain.result.parameters, played.result.parameters)
    assert played.trainers.syncs.sum() > 0


def test_under_leashed_a_synchronisation_is_a_publication_that_counts_nothing():
    one = simulation.constant(1, 1e-3, update=1e-4)
    plain = play(one, discipline=lsh.Leashed())
    link = {"latency": 7e-5}
    played = play(one.trainers(1, **link), sync.EASGD(alpha=0), lsh.Leashed())
    assert np.array_equal(plain.result.parameters, played.result.parameters)
    assert played.result.staleness.max() == 0
    assert played.result.tries.max() > 0  # attempts that a synchronisation came between


@pytest.mark.parametrize("how", KINDS, ids=by)
def test_every_batch_is_one_trainer_s(how):
    cluster = CREW.trainers(3, **LINK).slower([4.0])
    played = play(cluster, how)
    counts, result = played.trainers, played.result
    assert counts.iterations.sum() == result.gradients == result.total_updates == 150
    assert (counts.iterations > 0).all()
    assert counts.iterations[0] < counts.iterations[1]
    assert len(result.worker_updates) == 18
    assert result.worker_updates.sum() == 150
    assert np.isfinite(result.parameters).all()
    assert (counts.syncs.sum() > 0) == (how is not None)
    assert (counts.bytes_out > 0) == (how is not None)
    assert counts.drawn <= result.elapsed


@pytest.mark.parametrize("how", KINDS, ids=by)
def test_a_seed_gives_the_same_bits_and_another_does_not(how):
    cluster = CREW.trainers(3, **LINK)
    first, again, other = (play(cluster, how, seed=seed) for seed in (5, 5, 6))
    assert np.array_equal(first.result.parameters, again.result.parameters)
    assert first.result.elapsed == again.result.elapsed
    assert first.trainers.bytes_out == again.trainers.bytes_out
    assert not np.array_equal(first.result.parameters, other.result.parameters)


def test_each_worker_exchanges_after_its_gap():
    crew = simulation.constant(2, 1e-3)
    played = play(crew.trainers(2, latency=1e-4), sync.EASGD(when=EVERY))
    # 150 batches by four workers of equal speed: 37 or 38 iterations each.
    assert played.trainers.syncs.tolist() == [24, 24]
    assert played.trainers.sync_gap == pytest.approx(150 / 48)
    assert played.trainers.seconds == pytest.approx([24 * 2e-4] * 2)
    assert played.result.breakdown["waiting"] == pytest.approx(48 * 2e-4)


def test_a_gap_may_change_as_training_goes_on():
    crew = simulation.constant(1, 1e-3)
    how = sync.EASGD(when=sync.every(iterations={0: 10, 20: 2}))
    played = play(crew.trainers(1, latency=1e-4), how, until=lsh.until(updates=30))
    assert played.trainers.syncs.sum() == 1 + 6  # at 10, then at 20 and every second from there on


FEATURES = np.full((64, 1), 1.0, np.float32), np.zeros(64, np.int32)


def constant_gradient(dimension):
    """Each step takes η off every parameter."""

    def gradient(*given):
        given[-1][:] = 1.0
        return 0.0

    return lsh.models.external(gradient, loss=lambda *_: 0.0, dimension=dimension, features=1)


def steps_of(how, steps, trainers=2, dimension=3):
    crew = simulation.constant(1, 1e-3)
    played = play(
        crew.trainers(trainers, output="mean"),
        how,
        lsh.Sequential(),
        model=constant_gradient(dimension),
        data=FEATURES,
        until=lsh.until(updates=trainers * steps),
        rule=lsh.SGD(0.5),
        batch_size=1,
        init=np.zeros(dimension, np.float32),
    )
    assert played.trainers.syncs.tolist() == [steps] * trainers
    return float(played.result.parameters[0])


@pytest.mark.parametrize("symmetric", [False, True])
def test_easgd_is_algorithm_2(symmetric):
    alpha, held, theta = 0.3, 0.0, [0.0, 0.0]
    for _ in range(4):
        for trainer in range(2):
            theta[trainer] -= 0.5
            old = held
            held = (1 - alpha) * held + alpha * theta[trainer]
            answer = old if symmetric else held
            theta[trainer] = (1 - alpha) * theta[trainer] + alpha * answer
    how = sync.EASGD(alpha=alpha, symmetric=symmetric, when=sync.every(iterations=1))
    assert steps_of(how, 4) == pytest.approx(sum(theta) / 2, rel=1e-6)


@pytest.mark.parametrize("nesterov", [False, True])
def test_bmuf_is_algorithm_4(nesterov):
    alpha, eta, momentum = 0.4, 0.8, 0.6
    held = velocity = theta = 0.0
    for _ in range(5):
        theta -= 0.5
        descent = eta * (theta - held)
        velocity = momentum * velocity + descent
        held += descent + momentum * velocity if nesterov else velocity
        theta = (1 - alpha) * theta + alpha * held
    how = sync.BMUF(
        alpha=alpha, eta=eta, momentum=momentum, nesterov=nesterov, when=sync.every(iterations=1)
    )
    assert steps_of(how, 5) == pytest.approx(theta, rel=1e-5)


@pytest.mark.parametrize("discipline", [lsh.Hogwild(), lsh.Locked(), lsh.Leashed()], ids=str)
@pytest.mark.parametrize("kind", [sync.MA, partial(sync.BMUF, eta=1.0, momentum=0.0)])
def test_by_differences_no_update_is_lost_in_the_background(kind, discipline):
    """The mean of the replicas moves by the updates, and by nothing else."""

    def moved(**given):
        result = play(
            simulation.exponential(2, 1e-3).trainers(3, latency=1e-3, output="mean"),
            kind(alpha=0.5, **given),
            discipline,
            model=constant_gradient(2 * packing.FRAGMENT),
            data=FEATURES,
            until=lsh.until(updates=300),
            rule=lsh.SGD(0.5),
            batch_size=1,
            init=np.zeros(2 * packing.FRAGMENT, np.float32),
        ).result
        return result.parameters / (-0.5 * result.total_updates / 3)

    np.testing.assert_allclose(moved(difference=True), 1.0, rtol=1e-5)
    np.testing.assert_allclose(moved(difference=True, parts=2), 1.0, rtol=1e-5)
    assert moved().max() < 0.7


@pytest.mark.parametrize("kind", [sync.MA, sync.BMUF])
def test_in_the_foreground_differences_change_nothing(kind):
    cluster = CREW.trainers(3, **LINK)
    runs = [play(cluster, kind(when=EVERY, difference=each)).result for each in (False, True)]
    np.testing.assert_allclose(runs[0].parameters, runs[1].parameters, rtol=1e-3, atol=1e-4)
    assert runs[0].elapsed == runs[1].elapsed


@pytest.mark.parametrize("output", ["first", "mean"])
def test_averaging_at_every_step_is_the_mean_of_the_gradients(output):
    """Trainers of equal speed under MA, whose replicas all become their mean: as Sync has it."""
    crew = simulation.constant(1, 1e-3)
    until, rule = lsh.until(updates=60), lsh.SGD(0.2)
    how = sync.MA(alpha=1.0, when=sync.every(iterations=1))
    averaged = play(
        crew.trainers(4, output=output), how, lsh.Sequential(), until=until, rule=rule
    ).result
    summed = lsh.simulate(
        MODEL,
        DATA,
        cluster=simulation.constant(4, 1e-3),
        mode=lsh.modes.Sync(),
        until=lsh.until(updates=15),
        rule=rule,
        batch_size=8,
    ).result
    assert np.abs(averaged.parameters - summed.parameters).max() < 1e-5
    assert np.abs(averaged.parameters - MODEL.init(0, "he")).max() > 1e-2


def test_a_round_waits_for_the_slowest_and_the_shadow_s_does_not_make_workers_wait():
    cluster = simulation.constant(2, 1e-3).trainers(3, latency=1e-5).slower([10.0])
    until = lsh.until(seconds=0.5)
    together = play(cluster, sync.MA(when=sync.every(iterations=1)), until=until).trainers
    assert together.iterations.max() <= together.iterations.min() + 2 * 2
    apart = play(cluster, None, until=until).trainers
    behind = play(cluster, sync.MA(), until=until).trainers
    assert behind.iterations.tolist() == apart.iterations.tolist()
    assert apart.iterations[1] == pytest.approx(10 * apart.iterations[0], rel=0.05)


def test_a_ring_takes_the_time_and_the_bytes_of_a_ring():
    n, bandwidth, latency = 5, 2e7, 1e-4
    cluster = simulation.constant(2, 1e-3).trainers(n, bandwidth=bandwidth, latency=latency)
    counts = play(cluster, sync.MA(), until=lsh.until(seconds=1.0)).trainers
    size = 4 * MODEL.dimension
    seconds = 2 * (n - 1) * (latency + size / n / bandwidth)
    assert counts.syncs.tolist() == [int(1.0 / seconds)] * n
    assert counts.bytes_out == pytest.approx((counts.syncs[0] + 1) * 2 * (n - 1) * size)
    assert counts.sync_gap_by_bytes == pytest.approx(counts.sync_gap * n / (2 * (n - 1)), rel=0.05)


WIDE = lsh.models.mlp(784, [64], 10)  # of four fragments
PACED = simulation.exponential(4, 1e-2, update=1e-4, copy=1e-4)


@pytest.mark.parametrize("servers", [1, 2])
def test_a_fixed_rate_has_the_plateau_of_bytes_over_bandwidth(servers):
    dimension, bandwidth, gap = 2 * packing.FRAGMENT, 8e6, 5
    cluster = PACED.trainers(10, servers=servers, bandwidth=bandwidth)
    predicted = plateau(dimension, servers, bandwidth, gap, 1)

    def eps(how):  # between two moments of the same run, when its links have long been full
        early, late = (
            play(
                cluster,
                how,
                model=constant_gradient(dimension),
                data=FEATURES,
                batch_size=1,
                until=lsh.until(seconds=seconds),
            )
            for seconds in (1, 3)
        )
        return (late.result.gradients - early.result.gradients) / 2, late.trainers

    alone, _ = eps(None)
    assert alone > 1.3 * predicted
    fixed, counts = eps(sync.EASGD(when=sync.every(iterations=gap)))
    assert fixed == pytest.approx(predicted, rel=0.1)
    assert counts.sync_gap_by_bytes == pytest.approx(gap, rel=0.2)
    shadow, _ = eps(sync.EASGD())
    assert shadow == alone


def test_fragments_lie_on_servers_as_they_are_packed():
    for fragments in (1, 2, 3, 7, 8, 9):
        for servers in (1, 2, 3, 8, 12):
            for rest in (1, packing.FRAGMENT):
                owners = packing.owners(
                    (fragments - 1) * packing.FRAGMENT + rest, servers, packing.BY_LENGTH
                )
                assert owners == [f % servers for f in range(fragments)]


def test_parts_take_turns():
    cluster = simulation.constant(1, 1e-3).trainers(2, latency=1e-4)

    def moved(parts):
        how = sync.EASGD(parts=parts, when=sync.every(iterations=5))
        counts = play(cluster, how, model=WIDE).trainers
        return counts.bytes_out / counts.syncs.sum()

    whole = moved(1)
    assert whole == pytest.approx(4 * WIDE.dimension, rel=0.01)
    assert moved(4) < 0.35 * whole
    assert moved(100) == moved(4)  # no part is without a fragment


@pytest.mark.parametrize(("compression", "share"), [("bfloat16", 1 / 2), ("int8", 1 / 3.9)])
def test_compression_sends_fewer_bytes_and_loses_nothing_for_good(compression, share):
    cluster = simulation.constant(2, 1e-3).trainers(3, latency=1e-4)

    def run(compression):
        how = sync.EASGD(compression=compression, when=EVERY)
        return play(cluster, how, model=WIDE, until=lsh.until(epochs=8))

    exact, less = run("none"), run(compression)
    assert less.trainers.syncs.tolist() == exact.trainers.syncs.tolist()
    first = 6 * 4 * WIDE.dimension  # by each worker, as values are
    assert less.trainers.bytes_out - first == pytest.approx(
        share * (exact.trainers.bytes_out - first), rel=0.02
    )
    apart = np.abs(exact.result.parameters - less.result.parameters).max()
    assert 0 < apart < 0.05 * np.abs(exact.result.parameters - WIDE.init(0, "he")).max()


def test_synchronisation_keeps_replicas_together():
    def run(how, output):
        return play(CREW.trainers(4, **LINK, output=output), how, until=lsh.until(epochs=6)).result

    def apart(how):  # the first replica from the mean of all
        first, mean = run(how, "first"), run(how, "mean")
        return np.abs(first.parameters - mean.parameters).max()

    assert apart(sync.EASGD(alpha=1.0)) < 0.5 * apart(None)
    assert apart(sync.MA(alpha=1.0, when=EVERY)) < 0.5 * apart(None)
    assert run(None, "first").config["sync"] is None
    config = run(sync.EASGD(), "first").config
    assert config["sync"] == "S-EASGD"
    assert config["virtual"]["trainers"]["count"] == 4


def test_ctrl_c_returns_what_was_reached():
    def progress(now):
        if now.seconds > 0.01:
            raise KeyboardInterrupt

    played = play(
        CREW.trainers(3, **LINK),
        sync.MA(),
        until=lsh.until(epochs=1000),
        observe=lsh.Observe(progress, every=0.005),
    )
    assert played.result.reason == "interrupted"
    assert 0 < played.result.total_updates < 10_000


@pytest.mark.filterwarnings("ignore:the training crashed:RuntimeWarning")
def test_a_replica_that_is_not_finite_ends_the_run():
    played = play(
        CREW.trainers(2, **LINK), sync.EASGD(), rule=lsh.SGD(1e30), until=lsh.until(epochs=50)
    )
    assert played.result.outcome == "crashed"


@pytest.mark.parametrize(
    ("wrong", "word"),
    [
        (lambda: CREW.trainers(0), "count"),
        (lambda: CREW.trainers(10_000), "count"),
        (lambda: CREW.trainers(2, servers=0), "servers"),
        (lambda: CREW.trainers(2, bandwidth=0.0), "bandwidth"),
        (lambda: CREW.trainers(2, latency=-1.0), "latency"),
        (lambda: CREW.trainers(2, output="best"), "output"),
        (lambda: CREW.trainers(2).slower([1.0, 2.0, 3.0]), "factors"),
        (lambda: play(CREW, sync.EASGD()), "trainers"),
        (lambda: play(CREW.trainers(2), sync.EASGD()), "bandwidth"),
        (lambda: play(CREW.trainers(2, **LINK), "easgd"), "sync"),
        (lambda: play(CREW.trainers(2, **LINK), sync.MA(compression="int8")), "compression"),
        (lambda: play(CREW.trainers(2, **LINK), discipline=lsh.Sequential()), "1 worker"),
        (
            lambda: lsh.simulate(
                MODEL,
                DATA,
                cluster=CREW.trainers(2),
                mode=lsh.modes.ASP(),
                until=lsh.until(epochs=1),
            ),
            "mode",
        ),
    ],
)
def test_bad_input_is_told(wrong, word):
    with pytest.raises((TypeError, ValueError), match=word):
        wrong()


def test_a_mix_of_one_s_own_is_not_played():
    class Halfway(sync.Synchroniser):
        def mix(self, theta, other, _):
            theta += 0.5 * (other - theta)

    with pytest.raises(TypeError, match="mix"):
        play(CREW.trainers(2, **LINK), Halfway())


@pytest.mark.parametrize("how", [sync.EASGD(), sync.MA()])
def test_rounds_that_no_update_of_leashed_gets_through_are_refused(how):
    cluster = simulation.constant(2, 1e-3, update=2e-4)
    with pytest.raises(ValueError, match="cluster: a round of the background takes"):
        play(cluster.trainers(2, latency=5e-5), how, lsh.Leashed())
    assert play(cluster.trainers(2, latency=2e-4), how, lsh.Leashed()).result.reason == "epochs"


def test_a_trainer_alone_has_no_rounds_to_get_through():
    cluster = simulation.constant(2, 1e-3, update=2e-4).trainers(1, latency=5e-5)
    assert play(cluster, sync.MA(), lsh.Leashed()).result.reason == "epochs"


@pytest.mark.parametrize(
    ("how", "link"),
    [(sync.EASGD(), {"bandwidth": 1e15}), (sync.MA(), {"latency": 1e-10})],
)
def test_time_goes_on_whatever_the_link(how, link):
    cluster = simulation.constant(2, 1e-6).trainers(2, **link)
    assert play(cluster, how, until=lsh.until(seconds=1e-6)).result.reason == "seconds"


def test_nothing_is_sent_after_the_end():
    how = sync.EASGD(when=sync.every(iterations=1))
    played = play(
        simulation.constant(3, 1.0, update=1.0).trainers(2, bandwidth=1e6),
        how,
        until=lsh.until(seconds=1.5),
    )
    assert played.trainers.syncs.sum() == played.trainers.bytes_out == 0


@pytest.mark.parametrize("discipline", [lsh.Locked(), lsh.Sequential(), lsh.Hogwild()])
def test_what_is_published_at_the_end_is_counted(discipline):
    cluster = simulation.constant(1, 1.0, update=1.0)
    result = play(cluster, None, discipline, until=lsh.until(seconds=1.5)).result
    assert result.total_updates == result.staleness.total == 1


def test_threads_beyond_what_the_memory_feeds_add_nothing() -> None:
    def rate(threads: int, **fleet) -> float:
        crew = simulation.exponential(threads, 1e-3)
        result = play(crew.trainers(2, **fleet)).result
        return result.gradients / result.elapsed

    saturated = {"saturated": 6}
    assert rate(3, **saturated) == rate(3)
    assert rate(12) == pytest.approx(2 * rate(6), rel=0.2)
    assert rate(12, **saturated) == pytest.approx(rate(6), rel=0.2)
    for wrong in (0.0, 1e-300, 0.5):
        with pytest.raises(ValueError, match="saturated must be at least 1"):
            CREW.trainers(2, saturated=wrong)


def test_the_replicas_of_all_trainers_come_out() -> None:
    played = play(CREW.trainers(3, **LINK), sync.MA())
    assert played.models.shape == (3, MODEL.dimension)
    np.testing.assert_array_equal(played.models[0], played.result.parameters)
    mean = play(CREW.trainers(3, output="mean", **LINK), sync.MA()).result.parameters
    np.testing.assert_allclose(played.models.mean(axis=0), mean, atol=1e-6)
