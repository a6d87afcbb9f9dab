"""What algorithms do to parameters: where they must agree they agree to the bit."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
import reference_servers as ref
from policies.executor import Array, Executor
from policies.schedules import Happening, Schedule

RNG = np.random.default_rng(11)
X, Y = RNG.normal(size=(600, 6)), RNG.normal(size=600)
THETA = RNG.normal(size=6)
ETA = 0.03


def gradient(theta: Array, first: int, count: int) -> Array:
    """Of the mean squared error over these rows."""
    x, y = X[first : first + count], Y[first : first + count]
    return x.T @ (x @ theta - y) / count


def schedule(algorithm: str, workers: int, durations: tuple[int, ...], **own: Any) -> Schedule:
    happenings = own.pop("happenings", ())
    shared = {"workers": workers, "batch": 4, "examples": 477, "term_ns": 0}
    return Schedule(algorithm, shared | own, tuple((d,) for d in durations), happenings)


def train(one: Schedule, **how: Any) -> Executor:
    return Executor(one, gradient, THETA, ETA, **how)


def sequential(batches: list[tuple[int, int]]) -> list[Array]:
    found = [THETA]
    for first, count in batches:
        found.append(found[-1] - ETA * gradient(found[-1], first, count))
    return found


ALL = [(first, min(4, 477 - first)) for first in range(0, 477, 4)]


@pytest.mark.parametrize(
    ("algorithm", "own"),
    [
        ("sync", {}),
        ("bsp", {"b2": 1}),
        ("asp", {}),
        ("ssp", {"s": 1}),
        ("dssp", {"lower": 1, "upper": 3}),
        ("hop_bs", {"b1": 2, "m": 1}),
        ("gba", {"m": 1, "iota": 4}),
        ("shat", {}),
    ],
)
def test_one_worker_is_sequential_to_the_bit(algorithm: str, own: dict[str, int]) -> None:
    alpha = {"alpha": ref.shat_alpha} if algorithm == "shat" else {}
    found = train(schedule(algorithm, 1, (9,), **own), **alpha)
    assert np.array_equal(found.versions, sequential(ALL))


def test_equal_workers_make_gba_and_bsp_sync_to_the_bit() -> None:
    sync = train(schedule("sync", 5, (10,) * 5)).versions
    assert np.array_equal(sync, train(schedule("bsp", 5, (10,) * 5, b2=5)).versions)
    assert np.array_equal(sync, train(schedule("gba", 5, (10,) * 5, m=5, iota=0)).versions)
    # And Sync does not care how fast its workers are.
    assert np.array_equal(sync, train(schedule("sync", 5, (3, 9, 27, 81, 5))).versions)


def test_switches_without_staleness_are_sync_to_the_bit() -> None:
    rng = random.Random(2)
    commands = tuple(Happening(7 * i, "command", argument=rng.randint(0, 1)) for i in range(40))
    switching = schedule("switching", 4, (10,) * 4, gba_batch=4, m=4, iota=0, happenings=commands)
    sync = train(schedule("sync", 4, (10,) * 4))
    assert np.array_equal(sync.versions, train(switching).versions)


def test_stale_gradients_make_a_difference() -> None:
    assert not np.array_equal(
        train(schedule("gba", 3, (10, 10, 95), m=3, iota=0)).versions[-1],
        train(schedule("gba", 3, (10, 10, 95), m=3, iota=9)).versions[-1],
    )


def test_an_ensembles_models_train_alone() -> None:
    found = train(schedule("ensemble", 2, (10, 10)), alpha=lambda _n, _c: 0.0)
    for node in range(2):
        assert np.array_equal(found.own[node], sequential(ALL[node::2])[-1])


def test_alpha_1_is_asp() -> None:
    """Where no two push at once: SHAT's reply does not wait for the other pushes of its moment."""
    durations = (7001, 11003, 13007)
    mixed = train(schedule("shat", 3, durations), alpha=lambda _n, _c: 1.0)
    assert np.array_equal(mixed.versions, train(schedule("asp", 3, durations)).versions)
