"""Modes of training on threads: what Python adds to tests/cpp/modes/test_policy_threads.cc."""

from __future__ import annotations

import dataclasses
import itertools
import os
import signal
import threading
import time

import numpy as np
import pytest

import leashed as lsh
from leashed import modes
from leashed.cli import main
from leashed.training.result import TrainResult
from leashed.training.spelled import MODE_WORDS, mode_of

DATA = lsh.datasets.synthetic_digits(640, seed=3, test=100)
MODEL = lsh.models.mlp(784, [8], 10)
ALL = [
    "sync",
    "all_reduce",
    "bsp:b2=3",
    "asp",
    "ssp:s=1",
    "dssp:lower=0,upper=3",
    "hop_bs",
    "hop_bw:b3=1",
    "easgd:alpha=0.5,gap=2",
    "local_sgd:h=2",
    "gba:m=4,iota=0",
    "switching:gba_batch=8",
    "automatic:window=0.01",
    "shat:base=2",
    "shat_root",
    "ensemble",
    "swarm:h=2",
    "go_sgd:p=0.5",
    "ad_psgd",
    "d_psgd",
    "prague:group=2",
]
PEERS = (modes.Swarm, modes.GoSGD, modes.ADPSGD, modes.DPSGD, modes.Prague)


def train(mode, threads=2, **given):
    settings = {
        "until": lsh.until(epochs=4),
        "rule": lsh.SGD(0.1),
        "batch_size": 16,
        **given,
    }
    return lsh.train(MODEL, DATA, mode=mode, threads=threads, **settings)


def test_no_mode_is_left_out() -> None:
    assert {word.partition(":")[0] for word in ALL} == set(MODE_WORDS)


@pytest.mark.parametrize("word", ALL)
def test_a_mode_trains_and_counts(word: str) -> None:
    mode = mode_of(word)
    result = train(mode, 3)
    counts = result.mode
    assert counts is not None
    examples = 4 * 640
    assert counts.worker_examples.sum() == examples == result.examples
    assert len(counts.worker_examples) == 3
    if not counts.exchanges and not isinstance(mode, PEERS):
        assert counts.applied + counts.stale + counts.straggler == examples
    assert result.reason == "epochs"
    assert result.final_loss < result.initial_loss
    assert result.config["discipline"] == type(mode).__name__
    assert result.config["mode"]["name"] == mode.NAME
    again = TrainResult.from_json(result.to_json())
    assert again.mode is not None
    assert again.mode.to_dict() == counts.to_dict()


@pytest.mark.parametrize("word", ["sync", "asp", "gba", "ssp:s=0", "shat", "local_sgd:h=1"])
def test_one_thread_has_the_bits_of_sequential(word: str) -> None:
    alone = lsh.train(
        MODEL,
        DATA,
        until=lsh.until(epochs=4),
        discipline=lsh.Sequential(),
        rule=lsh.Adam(0.01),
        batch_size=16,
    )
    result = train(mode_of(word), 1, rule=lsh.Adam(0.01))
    assert np.array_equal(result.parameters, alone.parameters)


@pytest.mark.parametrize(
    ("mode", "rule"),
    [
        (modes.Sync(), lsh.Adam(0.01, clip_norm=0.5)),
        (modes.HopBW(b3=0), lsh.Momentum(0.1)),
        (modes.LocalSGD(h=2), lsh.SGD(0.1)),
    ],
    ids=repr,
)
def test_those_who_wait_help_to_the_bits_of_one_thread(mode, rule) -> None:
    """An update of so many parameters comes in parts, for whoever waits."""
    model = lsh.models.mlp(784, [64], 10)
    given = {"until": lsh.until(epochs=2), "rule": rule, "batch_size": 16}
    result = lsh.train(model, DATA, mode=mode, threads=4, **given)
    cluster = lsh.simulation.constant(4, 1.0)
    played = lsh.simulate(model, DATA, mode=mode, cluster=cluster, **given).result
    np.testing.assert_array_equal(result.parameters, played.parameters)


def test_switching_happens_at_its_time() -> None:
    for longer in (1, 5, 25):  # where the machine has no time for a worker before, or after
        mode = modes.Switching(gba_batch=4, at=((0.0, "gba"), (0.02 * longer, "sync")))
        result = train(mode, 2, until=lsh.until(epochs=100 * longer))
        assert result.mode is not None
        examples = 64_000 * longer
        assert result.mode.worker_examples.sum() == examples
        # Not all leases had the batch size of one mode.
        if examples / 16 < result.gradients < examples / 4:
            return
    pytest.fail(f"{result.gradients} gradients of {examples} examples: all of one mode")


def test_stop_rules_and_progress() -> None:
    seen = []
    result = train(
        modes.ASP(),
        until=lsh.until(loss_fraction=0.5),
        observe=lsh.Observe(seen.append, every=0.01),
    )
    assert (result.outcome, result.reason) == ("converged", "loss_fraction")
    assert seen
    assert train(modes.GBA(), until=lsh.until(updates=17)).total_updates == 17
    assert train(modes.Sync(), until=lsh.until(seconds=0.02)).reason == "seconds"


def waiting(gradient_of):
    """A model whose gradient is Python's."""
    return lsh.models.external(
        gradient_of, loss=lambda *_: 1.0, dimension=4, features=4, y="float32"
    )


X = np.ones((32, 4), np.float32), np.ones(32, np.float32)


@pytest.mark.parametrize("word", ALL)
def test_an_exception_reaches_those_who_wait(word: str) -> None:
    calls = itertools.count(1)

    def gradient(theta, _x, _y, out):
        if next(calls) == 5:
            raise ArithmeticError("boom")
        out[:] = theta - 1
        return 1.0

    with pytest.raises(ArithmeticError, match="boom"):
        lsh.train(
            waiting(gradient),
            X,
            mode=mode_of(word),
            threads=4,
            until=lsh.until(updates=10_000),
            batch_size=4,
        )


@pytest.mark.parametrize("word", ["sync", "asp", "gba", "prague:group=2"])
def test_an_interrupt_reaches_those_who_wait(word: str) -> None:
    began = threading.Event()

    def gradient(_theta, _x, _y, out):
        began.set()
        time.sleep(0.01)
        out[:] = 0
        return 1.0

    def interrupt() -> None:
        began.wait()
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=interrupt)
    thread.start()
    result = lsh.train(
        waiting(gradient),
        X,
        mode=mode_of(word),
        threads=4,
        until=lsh.until(updates=1_000_000),
        batch_size=4,
        observe=lsh.Observe(every=1e6),  # Ctrl-C within the loss would be raised by it
    )
    thread.join()
    assert result.reason == "interrupted"


@pytest.mark.parametrize("word", ["sync", "ssp:s=1", "local_sgd:h=1", "d_psgd", "prague:group=2"])
def test_nobody_waits_longer_than_the_term_for_one_that_hangs(word: str) -> None:
    others = threading.Event()
    lock = threading.Lock()
    calls: dict[int, int] = {}

    def gradient(theta, _x, _y, out):
        me = threading.get_ident()
        with lock:
            hangs = not calls
            calls[me] = calls.get(me, 0) + 1
            if len(calls) == 2 and min(calls.values()) < 4 <= max(calls.values()):
                others.set()
        if hangs:  # without a term the others would come to one batch, or to a few
            assert others.wait(60)
        out[:] = theta - 1
        return 1.0

    result = lsh.train(
        waiting(gradient),
        X,
        threads=2,
        mode=dataclasses.replace(mode_of(word), term=0.1),
        until=lsh.until(epochs=4),
        batch_size=4,
    )
    assert result.reason == "epochs"
    assert result.mode is not None
    assert result.mode.late > 0
    assert result.config["mode"]["term_ns"] == 10**8


def test_a_term_that_nobody_misses_changes_nothing() -> None:
    one, other = (train(modes.Sync(term=term)) for term in (None, 1000.0))
    assert other.mode is not None
    assert other.mode.late == 0
    np.testing.assert_array_equal(one.parameters, other.parameters)


def test_a_recorded_term_is_replayed(tmp_path) -> None:
    path = tmp_path / "run.trace"
    result = train(modes.BSP(term=1e-3), threads=4, observe=lsh.Observe(record=path))
    np.testing.assert_array_equal(lsh.replay(path, data=DATA).parameters, result.parameters)


@pytest.mark.parametrize(
    ("given", "error", "message"),
    [
        ({"mode": 3}, TypeError, "mode must be ASP"),
        ({"discipline": lsh.Leashed()}, ValueError, "discipline is not for runs with a mode"),
        ({"cluster": object()}, ValueError, "cluster without a policy server is not for runs"),
        ({"threads": "auto"}, ValueError, "is not for runs with a mode"),
        ({"threads": 0}, ValueError, "threads must be at least 1"),
        (
            {
                "mode": modes.EASGD(alpha=0.5),
                "staleness": lsh.staleness.stage_aware(lsh.staleness.inverse(), 1.0),
            },
            ValueError,
            "staleness by stages is not for modes whose workers send models",
        ),
        ({"mode": modes.GBA(m=0)}, ValueError, "m"),
    ],
)
def test_what_cannot_be_had_is_refused_by_name(given, error, message) -> None:
    with pytest.raises(error, match=message):
        train(**{"mode": modes.ASP(), **given})


def test_the_command(capsys) -> None:
    small = ["train", "--epochs", "1", "--threads", "2"]
    assert main([*small, "--mode", "gba:m=2,iota=1"]) == 0
    assert "GBA, m = 2" in capsys.readouterr().out
    assert main([*small, "--mode", "gbx"]) == 2
    assert "--mode 'gbx' is unknown; choose one of sync" in capsys.readouterr().err
    assert main([*small, "--mode", "asp", "--discipline", "locked"]) == 2
    assert "discipline is not for runs with a mode" in capsys.readouterr().err


def test_numbers_of_its_own_are_refused_by_name() -> None:
    with pytest.raises(ValueError, match="gba_batch must be at most the 640 examples"):
        train(modes.Switching(gba_batch=10**13, at=((0.05, "gba"),)))
    for window in (0.0, -1.0, 1e300):
        with pytest.raises(ValueError, match="window must be from 1e-9"):
            modes.Automatic(window=window)


def test_what_is_held_at_the_end_is_no_update() -> None:
    result = train(modes.BSP(b2=10**6), until=lsh.until(seconds=0.1))
    assert result.total_updates == result.worker_updates.sum() == 0
