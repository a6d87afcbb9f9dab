"""Recorded runs by a mode are made again: what Python adds to tests/cpp/modes/test_mode_replay.cc."""

from __future__ import annotations

import itertools
import os
import re
import signal
import threading
import time
from pathlib import Path
from typing import Any

import killed
import numpy as np
import pytest
from interrupting import require_an_early_end
from training.test_modes_in_training import ALL

import leashed as lsh
from leashed import TrainResult, cli, modes
from leashed.training.spelled import mode_of

DATA = lsh.datasets.synthetic_digits(640, seed=3, test=100)
MODEL = lsh.models.mlp(784, [8], 10)
PAGE = 1 << 16


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    return tmp_path / "run.trace"


def run(mode: modes.Mode, trace: Path, **given: Any) -> TrainResult:
    settings: dict[str, Any] = {
        "until": lsh.until(epochs=3),
        "rule": lsh.Adam(0.003, clip_norm=1.0),
        "staleness": lsh.staleness.tail_tau(warmup=20),
        "batch_size": 16,
        "threads": 8,
        "observe": lsh.Observe(record=trace),
        **given,
    }
    data = settings.pop("data", DATA)
    return lsh.train(settings.pop("model", MODEL), data, mode=mode, **settings)


def require_same(made: lsh.Replay, result: TrainResult) -> None:
    np.testing.assert_array_equal(made.parameters, result.parameters)
    assert made.updates == result.total_updates
    assert made.ended
    assert made.exact
    assert made.difference == 0
    assert made.counts["dropped"] == result.dropped
    assert made.counts["excluded"] == result.excluded
    assert made.counts["published"] == result.worker_updates.sum()


@pytest.mark.parametrize("word", ALL)
def test_eight_threads_of_a_mode(word: str, trace: Path) -> None:
    result = run(mode_of(word), trace)
    require_same(lsh.replay(trace, data=DATA), result)
    half = result.total_updates // 2
    then = lsh.replay(trace, MODEL, DATA, until=half)
    assert then.updates == half
    assert then.applied
    names = [one.name for one in then.inspect("0.weight")]
    summed = word.partition(":")[0] in ("easgd", "local_sgd")
    expected = ["value", "change"] if summed else ["value", "gradient", "change"]
    assert names == [f"0.weight {what}" for what in expected]


def test_switches_happen_where_they_did(trace: Path) -> None:
    mode = modes.Switching(gba_batch=4, at=((0.0, "gba"), (0.01, "sync"), (0.02, "gba")))
    result = run(mode, trace, until=lsh.until(epochs=20))
    require_same(lsh.replay(trace, MODEL, DATA), result)


def test_the_parts_of_an_update(trace: Path) -> None:
    run(modes.BSP(b2=3), trace, staleness=lsh.staleness.inverse(), rule=lsh.SGD(0.05))
    made = lsh.replay(trace, MODEL, DATA, until=20)
    assert len(made.applied) == 3
    assert made.last == made.applied[0]
    for one in made.applied:
        assert one.read + one.staleness == 19
        assert one.factor == 1 / (1 + one.staleness)
    change = made.parameters - made.before
    np.testing.assert_allclose(change, np.float32(-0.05) * made.gradient, rtol=1e-4, atol=1e-7)


KILLED = """
import sys
import leashed as lsh
from leashed.training.spelled import mode_of
data = lsh.datasets.synthetic_digits(640, seed=3, test=100)
lsh.train(lsh.models.mlp(784, [8], 10), data, mode=mode_of(sys.argv[1]),
          rule=lsh.Adam(0.003, clip_norm=1.0), staleness=lsh.staleness.tail_tau(warmup=20),
          threads=8, batch_size=16, until=lsh.until(seconds=120),
          observe=lsh.Observe(lambda now: print(now.updates, float(now.loss).hex(), flush=True),
                              every=0.05, record=sys.argv[2]))
"""


@pytest.mark.process(1)
@pytest.mark.parametrize("word", ["gba:m=4", "automatic:window=0.01", "shat"])
def test_what_a_killed_process_had_recorded(word: str, trace: Path) -> None:
    updates, loss = killed.told_by(KILLED, word, str(trace))[-1]
    then = lsh.replay(trace, MODEL, DATA, until=updates)
    found = MODEL.evaluate(then.parameters, DATA.train)
    assert found[0] == pytest.approx(loss, rel=1e-12)
    made = lsh.replay(trace, MODEL, DATA)
    assert made.updates >= updates > 0
    assert not made.ended


def test_a_changed_byte_is_refused(trace: Path) -> None:
    run(modes.GBA(), trace)
    good = trace.read_bytes()
    rng = np.random.default_rng(0)
    for place in (0, 20, PAGE + 100, *rng.integers(0, len(good), 20)):
        bad = bytearray(good)
        bad[place] ^= 1
        trace.write_bytes(bad)
        with pytest.raises(ValueError, match=r"cannot replay .*(damaged|no trace)"):
            lsh.replay(trace, MODEL, DATA)


def test_what_does_not_belong_to_the_trace_is_refused(trace: Path) -> None:
    result = run(modes.SSP(s=1), trace)
    other = lsh.datasets.synthetic_digits(640, seed=4, test=100)
    with pytest.raises(ValueError, match=r"its data was .* give the same"):
        lsh.replay(trace, MODEL, other)
    with pytest.raises(ValueError, match="of another model"):
        lsh.replay(trace, lsh.models.mlp(784, [9], 10), DATA)
    most = result.total_updates
    with pytest.raises(ValueError, match=rf"goes to update {most}; give at most that"):
        lsh.replay(trace, MODEL, DATA, until=most + 1)


def gradient_model(gradient: Any) -> Any:
    return lsh.models.external(gradient, loss=lambda *_: 1.0, dimension=4, features=4, y="float32")


ONES = np.ones((32, 4), np.float32), np.ones(32, np.float32)


@pytest.mark.parametrize("word", ["sync", "asp", "easgd:alpha=0.5", "swarm:h=2"])
def test_up_to_a_gradient_that_failed(word: str, trace: Path) -> None:
    calls = itertools.count(1)

    def gradient(theta: Any, _x: Any, _y: Any, out: Any) -> float:
        if next(calls) == 50:
            raise ArithmeticError("boom")
        out[:] = theta - 1
        return 1.0

    model = gradient_model(gradient)
    given = {"model": model, "data": ONES, "batch_size": 4, "threads": 4}
    with pytest.raises(ArithmeticError, match="boom"):
        run(mode_of(word), trace, until=lsh.until(updates=10_000), **given)
    made = lsh.replay(trace, model, ONES)
    assert made.updates > 0
    assert not made.ended
    assert next(calls) > 51  # those of the replay


@pytest.mark.parametrize("word", ["sync", "gba:m=2", "ensemble", "prague:group=2"])
def test_a_run_that_is_interrupted_has_its_end(word: str, trace: Path) -> None:
    began = threading.Event()

    def gradient(theta: Any, x: Any, _y: Any, out: Any) -> float:
        began.set()
        time.sleep(0.002)
        out[:] = theta * 0.9 + x.mean()
        return 1.0

    def interrupt() -> None:
        began.wait()
        time.sleep(0.1)
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=interrupt)
    thread.start()
    model = gradient_model(gradient)
    given = {"model": model, "data": ONES, "batch_size": 4, "threads": 4}
    given["observe"] = lsh.Observe(
        every=1e6, record=trace
    )  # Ctrl-C within the loss would be raised by it
    result = run(mode_of(word), trace, until=lsh.until(updates=1_000_000), **given)
    thread.join()
    assert result.reason == "interrupted"
    require_same(lsh.replay(trace, model, ONES), result)


@pytest.mark.parametrize(("word", "updates"), [("asp", 30_000), ("local_sgd:h=4", 6_000)])
def test_ctrl_c_ends_a_replay(word: str, updates: int, trace: Path) -> None:
    run(mode_of(word), trace, threads=2, until=lsh.until(updates=updates))
    require_an_early_end(lambda: lsh.replay(trace, MODEL, DATA))


def test_recording_changes_no_bit(trace: Path) -> None:
    recorded = run(modes.ASP(), trace, threads=1)
    plain = lsh.train(
        MODEL,
        DATA,
        mode=modes.ASP(),
        until=lsh.until(epochs=3),
        rule=lsh.Adam(0.003, clip_norm=1.0),
        staleness=lsh.staleness.tail_tau(warmup=20),
        batch_size=16,
        threads=1,
    )
    np.testing.assert_array_equal(recorded.parameters, plain.parameters)


def test_a_path_that_cannot_be_written_is_an_error_before_training(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="folder does not exist"):
        run(modes.ASP(), tmp_path / "none" / "run.trace")
    with pytest.raises(FileExistsError, match="/dev/null"):
        run(modes.ASP(), Path("/dev/null"))


def test_the_command_line(trace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    train = ["train", "--mode", "gba:m=4", "--threads", "4", "--updates", "12"]
    assert cli.main([*train, "--record", str(trace)]) == 0
    capsys.readouterr()
    assert cli.main(["replay", str(trace)]) == 0
    out = capsys.readouterr().out
    assert "the recorded one, bit for bit" in out
    assert re.search(r"algorithm +GBA, m = 4", out)
    assert re.search(r"last +worker .*; and \d more\n", out)
    assert cli.main(["replay", str(trace), "--until", "update=6", "--inspect", "2"]) == 0
    assert re.search(r"updates +6\n", capsys.readouterr().out)
