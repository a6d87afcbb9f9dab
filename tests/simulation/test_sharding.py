"""The parameters of a mode on several servers, in virtual time."""

from __future__ import annotations

import math

import numpy as np
import pytest

import leashed as lsh
from leashed import modes, simulation

DATA = lsh.datasets.synthetic_digits(320, seed=3, test=50)
MODEL = lsh.models.mlp(784, [8, 6], 10)
ALONE = [
    modes.ASP(),
    modes.SSP(s=1),
    modes.HopBS(m=1),
    modes.EASGD(alpha=0.5, gap=2),
    modes.SHAT(),
    modes.SHATRoot(),
    modes.Ensemble(),
]
SHARDINGS = [simulation.layerwise(3), simulation.memorywise(4), simulation.packed(2)]


def play(mode, cluster, shards=None, **given):
    return lsh.simulate(
        MODEL,
        DATA,
        cluster=cluster,
        mode=mode,
        shards=shards,
        batch_size=16,
        **{"rule": lsh.Momentum(0.05), "until": lsh.until(epochs=2), **given},
    )


def test_layers_are_kept_together_and_variables_need_not_be():
    first, second, third = 784 * 8 + 8, 8 * 6 + 6, 6 * 10 + 10
    ends = np.cumsum([first, second, third]).tolist()
    assert simulation.layerwise(3).spans(MODEL) == [
        [(0, ends[0])],
        [(ends[0], ends[1])],
        [(ends[1], ends[2])],
    ]
    assert simulation.layerwise(5).spans(MODEL).count([]) == 2
    dimension = MODEL.dimension
    assert simulation.memorywise(2).spans(MODEL) == [
        [(0, dimension // 2 + dimension % 2)],
        [(dimension // 2 + dimension % 2, dimension)],
    ]
    assert simulation.packed(2).spans(MODEL) == [[(0, 784 * 8)], [(784 * 8, dimension)]]
    # Costs of one's own: the first bias is what takes longest.
    assert simulation.packed(2, [1, 9, 1, 1, 1, 1]).spans(MODEL)[0] == [(784 * 8, 784 * 8 + 8)]
    assert simulation.packed(2).imbalance(MODEL) == 1.0
    assert simulation.layerwise(2).imbalance(MODEL) == 1.0  # the first layer is one in any case


@pytest.mark.parametrize("mode", ALONE, ids=repr)
def test_one_shard_is_one_server(mode):
    cluster = simulation.exponential(4, 1e-3, update=1e-4, copy=1e-4)
    one, same = play(mode, cluster), play(mode, cluster, simulation.memorywise(1))
    assert np.array_equal(one.result.parameters, same.result.parameters)
    assert one.result.elapsed == same.result.elapsed
    assert [shard.spans for shard in one.shards] == [((0, MODEL.dimension),)]


@pytest.mark.parametrize("mode", ALONE, ids=repr)
@pytest.mark.parametrize("shards", SHARDINGS, ids=str)
def test_every_shard_makes_every_update(mode, shards):
    cluster = simulation.heavy_tail(5, 1e-3, 1.5, update=1e-3, copy=1e-4)
    played = play(mode, cluster, shards)
    pushes = 2 * 320 // 16
    assert played.mode.worker_examples.sum() == 2 * 320
    assert [shard.updates for shard in played.shards] == [pushes] * len(played.shards)
    assert played.result.total_updates == pushes
    assert played.result.reason == "epochs"
    if not isinstance(mode, modes.EASGD):
        assert [shard.staleness.total for shard in played.shards] == [pushes] * len(played.shards)
    held = sorted(span for shard in played.shards for span in shard.spans)
    assert held == sorted(span for spans in shards.spans(MODEL) for span in spans)


def test_every_shard_sums_as_many_gradients():
    cluster = simulation.heavy_tail(5, 1e-3, 1.5, update=1e-3, copy=1e-4)
    played = play(modes.HopBS(m=4), cluster, simulation.memorywise(3))
    assert [shard.updates for shard in played.shards] == [10, 10, 10]
    assert [shard.applied for shard in played.shards] == [640, 640, 640]


@pytest.mark.parametrize("mode", ALONE, ids=repr)
def test_alone_it_has_the_bits_of_one_server(mode):
    """With one worker every part is of the version that a single server has, whoever holds it."""
    cluster = simulation.exponential(1, 1e-3, update=1e-4)
    for shards in SHARDINGS:
        parts, whole = play(mode, cluster, shards), play(mode, cluster)
        assert np.array_equal(parts.result.parameters, whole.result.parameters)
        assert all(shard.staleness.max() == 0 for shard in parts.shards)


def test_equal_shards_of_equal_workers_are_one_server_four_times_as_fast():
    cluster = simulation.constant(4, 1e-3, update=4e-3)
    parts = play(modes.ASP(), cluster, simulation.memorywise(4))
    whole = play(modes.ASP(), simulation.constant(4, 1e-3, update=1e-3))
    assert parts.result.elapsed == pytest.approx(whole.result.elapsed, rel=1e-3)
    assert play(modes.ASP(), cluster).result.elapsed > 3 * parts.result.elapsed


def test_parts_that_are_pulled_may_be_of_different_versions():
    """Each worker sends its parts in an order of its own, so servers have pushes in other orders."""
    cluster = simulation.exponential(6, 1e-3, update=1e-4, copy=1e-3)
    played = play(modes.ASP(), cluster, simulation.memorywise(3))
    first, *others = (shard.staleness.counts for shard in played.shards)
    assert any(not np.array_equal(first, other) for other in others)
    whole = play(modes.ASP(), cluster)
    assert not np.array_equal(played.result.parameters, whole.result.parameters)


@pytest.mark.parametrize("shards", SHARDINGS, ids=str)
def test_a_seed_gives_the_same_bits(shards):
    cluster = simulation.exponential(5, 1e-3, update=5e-4)
    first, again = (play(modes.SHAT(base=2), cluster, shards, seed=2) for _ in range(2))
    assert np.array_equal(first.result.parameters, again.result.parameters)
    assert np.array_equal(first.models, again.models)
    assert np.isfinite(first.result.final_loss)


def test_it_ends_at_so_many_updates_of_all():
    cluster = simulation.exponential(3, 1e-3, update=1e-3)
    played = play(modes.ASP(), cluster, simulation.layerwise(3), until=lsh.until(updates=17))
    assert played.result.total_updates == 17
    assert min(shard.updates for shard in played.shards) == 17
    assert played.result.reason == "updates"


def test_staleness_policies_see_each_shards_own():
    cluster = simulation.exponential(6, 1e-3, update=1e-3)
    cutoff = lsh.staleness.cutoff(2)
    played = play(modes.ASP(), cluster, simulation.memorywise(2), staleness=cutoff)
    assert played.result.excluded > 0
    assert all(shard.staleness.max() <= 2 for shard in played.shards)


def test_what_cannot_be_is_told():
    cluster = simulation.constant(2, 1e-3)
    two = simulation.memorywise(2)
    with pytest.raises(TypeError, match=r"shards must be 1 with DPSGD\(\)"):
        play(modes.DPSGD(), cluster, two)
    with pytest.raises(TypeError, match="shards must be layerwise"):
        play(modes.ASP(), cluster, 4)
    with pytest.raises(ValueError, match="shards is for runs with a mode"):
        play(None, cluster, two)
    with pytest.raises(ValueError, match="a staleness policy that adapts"):
        play(modes.ASP(), cluster, two, staleness=lsh.staleness.tail_tau())
    with pytest.raises(ValueError, match="clip_norm"):
        play(modes.ASP(), cluster, two, rule=lsh.SGD(0.1, clip_norm=1.0))
    with pytest.raises(ValueError, match="costs must be one for each of the 6 variables"):
        play(modes.ASP(), cluster, simulation.packed(2, [1.0]))
    with pytest.raises(ValueError, match="shards must be at least 1"):
        simulation.layerwise(0)
    with pytest.raises(ValueError, match=r"costs\[1\] must be finite"):
        simulation.packed(2, [1.0, math.nan])
    with pytest.raises(ValueError, match="kind must be one of"):
        simulation.Sharding("rowwise", 2)


def test_own_models_are_given_at_the_end():
    cluster = simulation.exponential(3, 1e-3)
    played = play(modes.Ensemble(), cluster)
    assert played.models.shape == (3, MODEL.dimension)
    assert np.allclose(played.models.mean(axis=0), played.result.parameters, atol=1e-6)
    assert play(modes.ASP(), cluster).models is None


def test_the_workers_steps_follow_the_servers_schedule():
    """A gradient is one update of the server and one of its worker's: both with the same η."""
    frozen = lsh.schedules.step(0.05, every=8, factor=1e-9)  # no further steps after 8 updates
    cluster = simulation.constant(4, 1e-3)
    late = play(modes.Ensemble(), cluster, rule=lsh.SGD(frozen)).models
    early = play(
        modes.Ensemble(), cluster, rule=lsh.SGD(frozen), until=lsh.until(updates=12)
    ).models
    assert np.allclose(early, late, atol=1e-6)


def test_costs_of_tables_need_tables():
    wrong = simulation.layerwise(2, tables=[1.0, 2.0])
    with pytest.raises(ValueError, match="costs of each of the 0 tables"):
        wrong.servers_of_tables(MODEL)
    assert simulation.layerwise(2).servers_of_tables(MODEL) == []
