"""Transfers over links, in virtual time: what can be said beforehand comes out."""

from __future__ import annotations

import heapq
import math

import numpy as np
import pytest
from simulation.test_simulated_modes import ALL, DATA, MODEL, play

import leashed as lsh
from leashed import modes, simulation
from leashed.simulation import Network

BYTES = 4 * MODEL.dimension
BATCHES = 160  # of `play`


def over(cluster, **network):
    return cluster.over(Network(**network))


@pytest.mark.parametrize("server", [1e6, 4e6])
def test_one_worker_takes_the_sum_of_its_parts(server):
    cluster = over(
        simulation.constant(1, 1e-3, update=2e-4),
        bandwidth=2e6,
        latency=3e-4,
        server_bandwidth=server,
    )
    transfer = 3e-4 + BYTES / min(server, 2e6)
    result = play(modes.ASP(), cluster).result
    assert result.elapsed == pytest.approx(BATCHES * (1e-3 + 2e-4 + 2 * transfer), rel=1e-6)


def test_without_bounds_on_bandwidth_there_is_the_latency_alone():
    cluster = over(simulation.constant(1, 1e-3), bandwidth=math.inf, latency=2e-3)
    assert play(modes.ASP(), cluster).result.elapsed == pytest.approx(BATCHES * 5e-3, rel=1e-6)


@pytest.mark.parametrize("workers", [8, 40])
def test_workers_fill_the_servers_link(workers):
    cluster = over(
        simulation.constant(workers, 1e-6), bandwidth=math.inf, server_bandwidth=100.0 * BYTES
    )
    result = play(modes.ASP(), cluster, epochs=40).result
    # A hundred a second, but for the beginning, at which the first are granted.
    assert 0.0 <= result.elapsed - result.total_updates / 100.0 <= 0.03


def test_of_two_that_begin_together_the_second_waits_both_ways():
    transfer, compute = 0.01, 0.004
    cluster = over(
        simulation.constant(2, compute),
        bandwidth=math.inf,
        server_bandwidth=BYTES / transfer,
    )
    result = play(modes.Sync(), cluster).result
    # The second's pull comes behind the first's, and its push fits behind that one's.
    assert result.elapsed == pytest.approx(BATCHES / 2 * (3 * transfer + compute), rel=1e-6)


def test_a_slow_link_is_its_workers_alone():
    network = {"bandwidth": 100.0 * BYTES, "server_bandwidth": math.inf, "slower": [10]}
    cluster = over(simulation.constant(4, 0.01), **network)
    examples = play(modes.ASP(), cluster).mode.worker_examples
    # 0.21 s a batch for the first, 0.03 for the others.
    assert examples[0] / examples[1] == pytest.approx(0.03 / 0.21, rel=0.15)
    assert np.ptp(examples[1:]) <= 16


def test_peers_send_each_other_their_models_and_no_server_anything():
    compute, latency, transfer = 1e-3, 5e-4, 2e-3
    cluster = over(
        simulation.constant(2, compute),
        bandwidth=BYTES / transfer,
        latency=latency,
        server_bandwidth=1e-3,
    )
    result = play(modes.DPSGD(), cluster).result
    steps = BATCHES / 2
    # After the last meeting nobody waits for what it sends.
    expected = steps * compute + (steps - 1) * (latency + transfer)
    assert result.elapsed == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("workers", [1, 4])
def test_an_all_reduce_is_a_ring_among_the_workers_and_no_server_is_asked(workers):
    compute, update, latency, transfer = 1e-3, 2e-4, 5e-4, 2e-3
    cluster = simulation.constant(workers, compute, update=update)
    slow_server = over(cluster, bandwidth=BYTES / transfer, latency=latency, server_bandwidth=1e-3)
    ring = 2 * (workers - 1) * (latency + transfer / workers)
    rounds = BATCHES / workers
    reduced = play(modes.AllReduce(), slow_server).result
    # After the last update nobody waits for what it sends.
    expected = rounds * (compute + update) + (rounds - 1) * ring
    assert reduced.elapsed == pytest.approx(expected, rel=1e-6)
    assert np.array_equal(reduced.parameters, play(modes.Sync(), cluster).result.parameters)


def test_without_a_network_an_all_reduce_takes_its_share_of_a_copy():
    cluster = simulation.constant(4, 1e-3, update=2e-4, copy=2e-3)
    reduced, sync = (play(mode, cluster).result for mode in (modes.AllReduce(), modes.Sync()))
    assert reduced.elapsed == pytest.approx(40 * 1.2e-3 + 39 * 2 * 3 / 4 * 2e-3, rel=1e-6)
    assert sync.elapsed == pytest.approx(40 * (1e-3 + 4 * 2e-4 + 2 * 2e-3), rel=1e-6)


def test_an_all_reduce_begins_when_its_round_is_over_and_batches_are_fetched_meanwhile():
    cluster = simulation.constant(4, 3e-3, copy=1e-3, fetch=2e-3)
    played = play(modes.AllReduce(), cluster).result
    rounds = played.total_updates
    assert played.elapsed == pytest.approx(
        rounds * 5e-3, abs=2.1e-3
    )  # the ring's 1.5 ms are in the 2


def test_who_joins_an_all_reduce_takes_the_parameters_of_another():
    transfer = 0.4
    joins = simulation.constant(2, 0.01).members([(0.005, 1, "join")])
    played = play(modes.AllReduce(), over(joins, bandwidth=BYTES / transfer))
    # All rounds are of two: the first waits for what the other is sent, and a ring is before each other one.
    expected = 0.005 + transfer + 0.01 + 79 * (0.01 + transfer)
    assert played.result.elapsed == pytest.approx(expected, abs=0.05)


def test_where_transfers_are_slow_fewer_of_them_are_faster():
    cluster = over(simulation.constant(4, 1e-3), bandwidth=10.0 * BYTES)
    sync, local = (play(mode, cluster).result for mode in (modes.Sync(), modes.LocalSGD(h=4)))
    assert local.elapsed == pytest.approx(
        sync.elapsed, rel=0.1
    )  # the same messages: of 16 examples
    larger = lsh.simulate(
        MODEL,
        DATA,
        cluster=cluster,
        until=lsh.until(epochs=4),
        mode=modes.LocalSGD(h=4),
        batch_size=64,
    ).result
    assert larger.elapsed < 0.5 * sync.elapsed


def asynchronous(factors, compute, update, network):
    """When the last push is carried out, and the pushes of each worker: the plainest program of it."""
    server = network.server_bandwidth
    bandwidths = [network.bandwidth / by for by in network.slower]
    leaves, reaches, serves, pushes = 0.0, 0.0, 0.0, [0] * len(factors)
    due = [(0.0, "pull", w) for w in range(len(factors))]
    leased, now = 0, 0.0
    while due:
        now, what, w = heapq.heappop(due)
        own, its = BYTES / bandwidths[w], BYTES / server
        if what == "pull" and leased < BATCHES:
            leased += 1
            leaves = max(now, leaves) + its
            there = leaves - its + network.latency + max(own, its)
            heapq.heappush(due, (there + compute * factors[w] + network.latency, "reach", w))
        elif what == "reach":
            reaches = max(now, reaches) + its
            heapq.heappush(due, (max(reaches, now + own), "arrive", w))
        elif what == "arrive":
            serves = max(now, serves) + update
            heapq.heappush(due, (serves, "push", w))
        elif what == "push":
            pushes[w] += 1
            heapq.heappush(due, (now, "pull", w))
    return now, pushes


@pytest.mark.parametrize("server_bandwidth", [3e6, 8e6, 1e9])
@pytest.mark.parametrize("slower", [[1, 1, 1, 1, 1], [1, 2.3, 5.9, 1, 1.1]])
def test_queues_are_those_of_the_plainest_program(server_bandwidth, slower):
    factors, compute = [1.0, 1.37, 2.11, 6.3, 0.83], 7.1e-3
    network = Network(5.3e6, 3.3e-4, server_bandwidth, slower)
    cluster = simulation.constant(5, compute, update=1.9e-3).slower(factors).over(network)
    played = play(modes.ASP(), cluster)
    elapsed, pushes = asynchronous(factors, compute, 1.9e-3, network)
    assert played.result.elapsed == pytest.approx(elapsed, rel=1e-6)
    assert list(played.mode.worker_examples // 16) == pushes


@pytest.mark.parametrize("mode", ALL, ids=repr)
def test_every_mode_goes_over_links_and_keeps_its_ledger(mode):
    cluster = over(
        simulation.exponential(5, 1e-3, update=1e-5),
        bandwidth=200.0 * BYTES,
        latency=1e-4,
        slower=[1, 3],
    )
    played, again = play(mode, cluster), play(mode, cluster)
    assert played.result.reason == "epochs"
    assert played.mode.worker_examples.sum() == 4 * 640
    assert np.array_equal(played.result.parameters, again.result.parameters)
    assert played.result.elapsed == again.result.elapsed
    slower = play(mode, over(simulation.exponential(5, 1e-3, update=1e-5), bandwidth=5.0 * BYTES))
    if not isinstance(mode, modes.GoSGD):
        assert slower.result.elapsed > played.result.elapsed


def test_a_network_without_bounds_is_none():
    cluster = simulation.exponential(5, 1e-3, update=1e-5)
    bare, wide = play(modes.GBA(), cluster), play(modes.GBA(), over(cluster, bandwidth=math.inf))
    assert np.array_equal(bare.result.parameters, wide.result.parameters)
    assert bare.result.elapsed == wide.result.elapsed


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"bandwidth": 0}, "bandwidth must be greater than 0"),
        ({"bandwidth": math.nan}, "bandwidth must be finite"),
        ({"bandwidth": 1.0, "latency": -1.0}, "latency must be at least 0"),
        ({"bandwidth": 1.0, "latency": 1e7}, "latency must be at most"),
        ({"bandwidth": 1.0, "server_bandwidth": 0}, "server_bandwidth must be greater"),
        ({"bandwidth": 1.0, "slower": [1, 0]}, "slower must be greater than 0"),
        ({"bandwidth": 1.0, "slower": [1, 1, 1]}, "slower must be of at most the 2 workers"),
    ],
)
def test_wrong_links(given, message):
    with pytest.raises(ValueError, match=message):
        simulation.constant(2, 1e-3).over(Network(**given))


def test_a_transfer_takes_a_given_time_or_goes_over_links():
    with pytest.raises(ValueError, match="copy is not for clusters with a network"):
        simulation.constant(2, 1e-3, copy=1e-3).over(Network(bandwidth=1.0))
    with pytest.raises(TypeError, match="network must be leashed"):
        simulation.constant(2, 1e-3).over(1e9)


def test_links_are_for_modes():
    cluster = over(simulation.constant(2, 1e-3), bandwidth=1e6)
    with pytest.raises(ValueError, match="network is for runs with a mode"):
        lsh.simulate(MODEL, DATA, cluster=cluster, until=lsh.until(updates=3))
