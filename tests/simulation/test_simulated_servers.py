"""Several servers over links, with workers that come and go, and with tables, in virtual time."""

from __future__ import annotations

import heapq
import math

import numpy as np
import pytest
from drawing import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from made_clicks import clicks, shared
from simulation.test_simulated_members import EPOCHS, EXAMPLES, changes, check_ledger, play_small
from simulation.test_simulated_modes import ALL, MODEL, play
from simulation.test_simulated_tables import PUSHING, same
from simulation.test_simulated_tables import play as play_tables

import leashed as lsh
from leashed import modes, simulation
from leashed.models import tables
from leashed.simulation import Network

SERVERLESS = (
    modes.AllReduce,
    modes.Swarm,
    modes.GoSGD,
    modes.ADPSGD,
    modes.DPSGD,
    modes.Prague,
)
SERVED = [mode for mode in ALL if not isinstance(mode, SERVERLESS)]
PUSHED = [mode for mode in PUSHING if not isinstance(mode, SERVERLESS)]
# Whose servers apply the same pushes together, whatever comes and goes on the way.
ALIKE = (modes.Sync, modes.HopBW, modes.LocalSGD, modes.Switching, modes.Automatic)
BYTES = 4 * MODEL.dimension
BATCHES = 160  # of `play`


@st.composite
def clusters(draw):
    made = draw(
        st.sampled_from(
            [
                simulation.constant(4, 1e-3),
                simulation.exponential(4, 1e-3, update=1e-4),
                simulation.heavy_tail(4, 1e-3, 1.5, update=1e-5).slower([8]),
                simulation.exponential(4, 1e-3, copy=3e-4),
                simulation.exponential(4, 7e-4, update=1e-4, fetch=3e-4),
            ]
        )
    )
    if draw(st.booleans()) and made.copy == 0.0:
        made = made.over(Network(bandwidth=5e4, latency=1e-4, server_bandwidth=1e5))
    if draw(st.booleans()):
        made = made.failing(draw(st.sampled_from([0.01, 0.05])), draw(st.sampled_from([0.0, 0.01])))
    return made.members(draw(changes()))


def check_shards(played, mode):
    examples = EPOCHS * EXAMPLES
    first = played.shards[0]
    assert first.missing == 0
    for shard in played.shards:
        assert shard.applied + shard.stale + shard.straggler + shard.missing in (
            (examples,) if not isinstance(mode, modes.EASGD) else (shard.missing,)
        )
        if isinstance(mode, ALIKE):
            assert shard.applied + shard.missing == first.applied
            assert (shard.stale, shard.straggler) == (first.stale, first.straggler)
            assert shard.updates <= first.updates


@pytest.mark.parametrize("mode", SERVED, ids=repr)
@settings(max_examples=examples(12), deadline=None, derandomize=True)
@given(
    cluster=clusters(),
    noticed=st.sampled_from([(0.02, None), (None, 0.005), (0.05, 0.003), (None, 0.0)]),
    shards=st.sampled_from([simulation.packed(2), simulation.memorywise(3)]),
    seed=st.integers(0, 99),
)
def test_no_server_counts_a_batch_twice_and_nobody_waits_for_ever(
    mode, cluster, noticed, shards, seed
):
    term, detection = noticed
    told = {"term": term, "detection": detection, "seed": seed, "shards": shards}
    played, again = play_small(mode, cluster, **told), play_small(mode, cluster, **told)
    check_ledger(played)
    check_shards(played, mode)
    assert np.array_equal(played.result.parameters, again.result.parameters)
    assert played.result.elapsed == again.result.elapsed


@pytest.mark.parametrize("mode", SERVED, ids=repr)
def test_one_shard_over_links_is_one_server(mode):
    network = Network(bandwidth=200.0 * BYTES, latency=1e-4, slower=[1, 3])
    cluster = simulation.exponential(5, 1e-3, update=1e-5).over(network).failing(0.1, 0.01)
    told = {"epochs": 1, "detection": 0.002}
    one = play(mode, cluster, **told)
    same_one = play(mode, cluster, shards=simulation.layerwise(1), **told)
    assert np.array_equal(one.result.parameters, same_one.result.parameters)
    assert one.result.elapsed == same_one.result.elapsed
    assert one.events == same_one.events


@pytest.mark.parametrize("shards", [simulation.layerwise(2), simulation.memorywise(5)], ids=str)
@pytest.mark.parametrize("mode", SERVED, ids=repr)
def test_without_transfers_several_have_the_bits_of_one(mode, shards):
    for cluster in (simulation.exponential(5, 1e-3), simulation.heavy_tail(4, 1e-3, 1.5)):
        one = play(mode, cluster, epochs=1)
        several = play(mode, cluster, epochs=1, shards=shards)
        assert np.array_equal(one.result.parameters, several.result.parameters)
        assert one.result.elapsed == several.result.elapsed
        assert all(shard.updates == one.shards[0].updates for shard in several.shards)


@pytest.mark.parametrize("mode", [modes.Sync(), modes.LocalSGD(h=2), modes.HopBW(b3=0)], ids=repr)
def test_rounds_have_the_bits_of_one_server_whatever_transfers_take(mode):
    """Each is over at every server before anybody begins the next."""
    network = Network(bandwidth=50.0 * BYTES, latency=1e-4, server_bandwidth=70.0 * BYTES)
    busy = simulation.exponential(4, 1e-3, update=3e-3).over(network)
    several = play(mode, busy, epochs=1, shards=simulation.memorywise(3))
    assert all(shard.staleness.max() == 0 for shard in several.shards)
    equal = simulation.constant(4, 1e-3)
    one = play(mode, equal, epochs=1).result.parameters
    apart = play(mode, equal.over(network), epochs=1, shards=simulation.memorywise(3))
    np.testing.assert_allclose(one, apart.result.parameters, atol=1e-5)


def test_a_part_that_is_lost_is_no_part_of_the_mean():
    """A worker that crashes between its two parts: one server has its gradient, the other has not."""
    data = (np.ones((2, 2), np.float32), np.array([0, 1]))
    line = lsh.models.logistic_regression(2)
    # A parameter takes 0.2 s, and the servers have two and one: after a pull of 0.6 s and a gradient
    # of 1 s the first worker's parts get there at 2.0 and 2.2.
    network = Network(bandwidth=20.0, server_bandwidth=math.inf)
    cluster = simulation.constant(2, 1.0).over(network).members([(2.1, 0, "crash")])
    played = lsh.simulate(
        line,
        data,
        cluster=cluster,
        mode=modes.Sync(),
        shards=simulation.memorywise(2),
        until=lsh.until(seconds=3.0),
        batch_size=1,
        rule=lsh.SGD(1.0),
        init=np.zeros(line.dimension, np.float32),
        detection=0.5,
    )
    first, second = played.shards
    assert (first.applied, first.missing) == (2, 0)
    assert (second.applied, second.missing) == (1, 1)
    # The gradients of the two examples are opposite: their mean is none, the second's alone is.
    moved = played.result.parameters
    assert np.allclose(moved, [0.0, 0.0, moved[2]], atol=1e-6)
    assert abs(moved[2]) == pytest.approx(0.5)


@pytest.mark.parametrize("servers", [1, 2, 4])
def test_servers_side_by_side_pass_as_many_times_the_pushes(servers):
    network = Network(bandwidth=math.inf, server_bandwidth=100.0 * BYTES)
    cluster = simulation.constant(40, 1e-6).over(network)
    shards = simulation.memorywise(servers)
    result = play(modes.ASP(), cluster, epochs=40, shards=shards).result
    assert result.total_updates / result.elapsed == pytest.approx(100.0 * servers, rel=0.03)


def asynchronous(factors, compute, update, network, sizes):
    """When the last part is carried out, and the pushes of each worker: the plainest program of it."""
    out = [network.bandwidth / by for by in network.slower]
    n, total = len(sizes), sum(sizes)
    inward, outward = [0.0] * len(factors), [0.0] * len(factors)
    leaves, reaches, serves = [0.0] * n, [0.0] * n, [0.0] * n
    pushes, come, there = [0] * len(factors), [0] * len(factors), [0.0] * len(factors)
    due = [(0.0, 3, w, s) for w in range(len(factors)) for s in range(n)]
    heapq.heapify(due)
    leased, granted, last = 0, [0] * len(factors), 0.0
    while due:
        now, what, w, s = heapq.heappop(due)
        own, its = 4 * sizes[s] / out[w], 4 * sizes[s] / network.server_bandwidth
        if what == 3:  # it pulls
            if s == 0 and leased == BATCHES:
                granted[w] = -n  # there are no more batches
                continue
            leased += s == 0
            begin = max(now, leaves[s])
            leaves[s] = begin + its
            heapq.heappush(due, (begin + network.latency, 0, w, s))
        elif what == 0:  # the first byte is at the worker's link
            inward[w] = max(now, inward[w]) + own
            there[w] = max(there[w], inward[w], now + its)
            come[w] += 1
            if come[w] < n:
                continue
            come[w], at = 0, there[w] + compute * factors[w]
            for k in range(n):
                to = (w + k) % n
                begin = max(at, outward[w])
                outward[w] = begin + 4 * sizes[to] / out[w]
                heapq.heappush(due, (begin + network.latency, 1, w, to))
        elif what == 1:  # and at the server's
            reaches[s] = max(now, reaches[s]) + its
            heapq.heappush(due, (max(reaches[s], now + own), 1.5, w, s))
        elif what == 1.5:
            serves[s] = max(now, serves[s]) + update * sizes[s] / total
            heapq.heappush(due, (serves[s], 2, w, s))
        else:  # carried out
            last = max(last, now)
            pushes[w] += s == 0
            heapq.heappush(due, (now, 3, w, s))
    return last, pushes


@pytest.mark.parametrize("server_bandwidth", [3e6, 8e6, 1e9])
@pytest.mark.parametrize("shards", [2, 3])
def test_queues_are_those_of_the_plainest_program(server_bandwidth, shards):
    factors, compute = [1.0, 1.37, 2.11, 6.3, 0.83], 7.1e-3
    network = Network(5.3e6, 3.3e-4, server_bandwidth, [1, 2.3, 5.9, 1, 1.1])
    cluster = simulation.constant(5, compute, update=1.9e-3).slower(factors).over(network)
    sharding = simulation.memorywise(shards)
    played = play(modes.ASP(), cluster, shards=sharding)
    sizes = [sum(e - b for b, e in spans) for spans in sharding.spans(MODEL)]
    elapsed, pushes = asynchronous(factors, compute, 1.9e-3, network, sizes)
    assert played.result.elapsed == pytest.approx(elapsed, rel=1e-6)
    assert list(played.mode.worker_examples // 16) == pushes


@pytest.mark.parametrize(
    "mode", [modes.AllReduce(), modes.Swarm(h=2), modes.Prague(group=2)], ids=repr
)
def test_peers_have_no_servers(mode):
    with pytest.raises(TypeError, match="whose workers have no server"):
        play(mode, simulation.constant(4, 1e-3), shards=simulation.memorywise(2))


TABLED = [
    simulation.memorywise(3),
    simulation.memorywise(3, tables="whole"),
    simulation.layerwise(2, tables=[1.0, 5.0]),
]


def test_whole_tables_go_to_the_server_with_the_least():
    graph = lsh.models.dlrm(50, 4, 1, bottom=(4,), top=(4,), categories=4)
    shards = simulation.memorywise(2, tables=[5, 1, 1, 1])
    assert shards.servers_of_tables(graph) == [0, 1, 1, 1]
    assert simulation.memorywise(2).servers_of_tables(graph) == []
    assert sorted(simulation.memorywise(2, tables="whole").servers_of_tables(graph)) == [0, 0, 1, 1]
    assert simulation.memorywise(2, tables="whole").servers_of_tables(MODEL) == []
    with pytest.raises(ValueError, match="tables must be costs of each of the 4 tables"):
        simulation.memorywise(2, tables=[1.0]).servers_of_tables(graph)
    with pytest.raises(ValueError, match="tables must be hash or whole, or costs"):
        simulation.memorywise(2, tables="rows")
    with pytest.raises(ValueError, match=r"tables\[0\] must be at least 0"):
        simulation.memorywise(2, tables=[-1.0])


@pytest.mark.parametrize("shards", TABLED, ids=str)
@pytest.mark.parametrize("mode", PUSHED, ids=repr)
def test_rows_on_several_servers_have_the_bits_of_one(mode, shards):
    graph = shared()
    data = clicks(graph, 96, kind="weights")
    cluster = simulation.exponential(4, 1e-3)
    one = play_tables(graph, data, cluster, mode=mode)
    several = play_tables(graph, data, cluster, mode=mode, shards=shards)
    same(one.result, several.result)
    assert one.result.rows == several.result.rows
    assert one.result.elapsed == several.result.elapsed


@pytest.mark.parametrize("mode", PUSHED, ids=repr)
def test_every_row_gradient_is_counted_over_links(mode):
    graph = shared(rows=None)
    data = clicks(graph, 400, kind="bags", rows=600)
    network = Network(bandwidth=2e6, latency=1e-5, server_bandwidth=3e6)
    busy = simulation.exponential(6, 1e-3, update=1e-4).over(network)
    runs = []
    for _ in range(2):
        made = tables.of(graph.tables, rule=lsh.SGD(0.1), max_bytes=2**17, evict="age")
        cluster = busy.failing(mean_between=0.1, mean_down=0.01)
        runs.append(
            play_tables(
                graph,
                data,
                cluster,
                mode=mode,
                init=lsh.Init(tables=made),
                detection=0.005,
                shards=simulation.memorywise(3),
            )
        )
    first, again = runs
    assert first.result.reason == "epochs"
    assert first.mode.lost > 0
    counts, examples = first.mode, 2 * 400
    assert counts.worker_examples.sum() - counts.late == examples
    assert np.array_equal(first.result.parameters, again.result.parameters)
    assert np.isfinite(first.result.final_loss)


def test_transfers_weigh_the_rows_of_their_server():
    """One row of a table that the first of three servers has, in each of so many batches."""
    dim, batches, server = 64, 10, 1e5
    graph = lsh.models.dlrm(5, dim, 1, bottom=(dim,), top=(4,), categories=1)
    data = lsh.datasets.ClickDataset.from_arrays(
        np.ones((4 * batches, 1), np.float32),
        np.zeros((4 * batches, 1), np.int64),
        np.arange(4 * batches) % 2,
    )
    shards = simulation.memorywise(3, tables="whole")
    assert shards.servers_of_tables(graph) == [0]
    cluster = simulation.constant(1, 1e-3).over(Network(math.inf, server_bandwidth=server))
    told = {"mode": modes.ASP(), "batch_size": 4, "until": lsh.until(epochs=1), "shards": shards}
    elapsed = play_tables(graph, data, cluster, **told).result.elapsed
    own = [4 * sum(end - begin for begin, end in spans) for spans in shards.spans(graph)]
    own[0] += 4 * dim + 8
    # A server's next pull begins when its own and the first one's part of the push are there.
    between = max(max(own[0], one) + one for one in own)
    carried = 2 * max(own) + (batches - 1) * between
    assert elapsed == pytest.approx(1e-3 * batches + carried / server, rel=1e-5)


def test_a_seed_gives_the_same_bits_with_everything():
    cluster = simulation.exponential(5, 1e-3, update=5e-4)
    cluster = cluster.over(Network(bandwidth=100.0 * BYTES)).failing(0.05, 0.01)
    told = {"shards": simulation.packed(2), "detection": 0.01, "epochs": 1}
    first, again = (play(modes.GBA(m=3, term=0.5), cluster, **told) for _ in range(2))
    assert np.array_equal(first.result.parameters, again.result.parameters)
    counted, told_again = (
        [(s.applied, s.stale, s.late, s.missing) for s in played.shards]
        for played in (first, again)
    )
    assert counted == told_again
