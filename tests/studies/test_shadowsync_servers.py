"""Sync servers behind limited links."""

from __future__ import annotations

import time

import numpy as np
import pytest

import leashed as lsh
from leashed import sync
from leashed.cluster.shadowsync.fleet import train_together
from leashed.cluster.shadowsync.servers import Link, Servers, pair

MODEL = lsh.models.mlp(784, [16], 10)
DATA = lsh.datasets.synthetic_digits(400, seed=0, test=100)


def train(synchroniser: sync.Synchroniser | None, servers: Servers | None = None, **settings):
    return train_together(
        MODEL,
        DATA.train,
        sync=synchroniser,
        servers=servers,
        **{
            "trainers": 2,
            "threads": 1,
            "batches": 50,
            "until": lsh.until(epochs=2),
            "batch_size": 16,
            "observe": lsh.Observe(every=1e6),
            **settings,
        },
    )


def test_a_link_carries_its_bandwidth_and_no_more() -> None:
    link = Link(1000.0)
    through = [link.carry(50, 0.0) for _ in range(100)]
    assert through[-1] == pytest.approx(5.0, abs=0.05)  # less what it had to spare at first
    assert np.diff(through) == pytest.approx(0.05)


def test_an_idle_link_saves_up_no_more_than_its_slack() -> None:
    link = Link(1000.0)
    assert link.carry(1000, 100.0) == pytest.approx(101.0, abs=0.05)
    assert link.carry(1000, 200.0) == pytest.approx(201.0, abs=0.05)


def test_a_late_caller_catches_up() -> None:
    link = Link(1000.0)
    first = link.carry(100, 0.0)
    assert link.carry(100, first + 0.01) == pytest.approx(first + 0.1)


def test_both_ends_of_a_pair_are_ours() -> None:
    one, other = pair()
    with one, other:
        one.sendall(b"x")
        assert other.recv(1) == b"x"


@pytest.mark.parametrize("bandwidth", [None, 5e6])
def test_trainers_exchange_with_servers_over_a_link(bandwidth: float | None) -> None:
    with Servers(MODEL.dimension, 1, bandwidth) as servers:
        trained = train(sync.EASGD(when=sync.every(iterations=5)), servers)
        sent = sum(each["bytes_out"] for each in trained.counters)
        received = sum(each["bytes_in"] for each in trained.counters)
        until = time.monotonic() + 30  # a server counts when a reply has gone, and so later
        while (counted := servers.counters())["bytes_out"] < received and time.monotonic() < until:
            time.sleep(0.01)
    assert trained.gradients == 50
    assert trained.syncs == 2 * (25 // 5)
    assert trained.sync_gap == 5
    # Beside the synchronisations each trainer has one exchange at its beginning.
    assert counted["exchanges"] == trained.syncs + 2
    assert counted["bytes_in"] == sent
    assert counted["bytes_out"] == received
    assert counted["cpu_seconds"] > 0


def test_nothing_goes_over_a_link_without_bandwidth() -> None:
    with Servers(MODEL.dimension, 1, 0.0) as servers:
        trained = train(sync.EASGD(), servers, timeout=0.2)
        assert servers.counters()["exchanges"] == 0
    assert trained.gradients == 50
    assert trained.syncs == 0
    assert trained.sync_gap is None


@pytest.mark.parametrize("kind", [sync.MA, sync.BMUF])
@pytest.mark.parametrize("when", [sync.background(), sync.every(iterations=5)])
def test_trainers_synchronise_with_each_other_until_the_last_has_ended(kind, when) -> None:
    trained = train(kind(when=when), trainers=3)
    assert trained.gradients == 50
    assert [result.gradients for result in trained.results] == [16, 17, 17]
    assert all(each["bytes_out"] > 0 for each in trained.counters)


def test_without_a_synchroniser_all_trainers_are_alone() -> None:
    trained = train(None)
    assert trained.counters == []
    assert trained.sync_gap is None
    assert trained.gradients == 50


def test_trainers_of_a_ring_need_an_end_that_is_known() -> None:
    with pytest.raises(ValueError, match="batches"):
        train(sync.MA(), batches=None, until=lsh.until(seconds=1))


def test_what_fails_in_a_trainer_comes_out() -> None:
    with pytest.raises(ValueError, match="batch_size"):
        train(None, batch_size=0)


@pytest.mark.parametrize("arguments", [(0, 1), (10, 0), (10, 256), (10, 1, -1.0)])
def test_arguments_are_checked(arguments) -> None:
    with pytest.raises(ValueError, match="must be at"):
        Servers(*arguments)
