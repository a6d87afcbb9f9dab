"""Checkpoints for which workers pause: of one moment, tables and all, so that each leads to the same
bits.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from files.test_table_checkpoints import assert_alike, manifest_of, run

import leashed as lsh
from leashed import models
from leashed.files import folders, model_file

SIGNALS = Path(__file__).parents[1] / "checkpoint_signals.py"


@pytest.fixture
def each(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """Copies of all generations that are written from here on."""
    copies: list[Path] = []
    write = folders.write

    def and_copy(folder: Path, *arguments: Any, **options: Any) -> None:
        write(folder, *arguments, **options)
        copies.append(tmp_path / f"copy{len(copies)}")
        shutil.copytree(folder, copies[-1])

    monkeypatch.setattr(folders, "write", and_copy)
    return copies


def updates_in(folder: Path) -> int:
    metadata = model_file.read(folders.opened(folder).model)[2]
    return int(json.loads(metadata["run"])["updates"])


DISCIPLINES = [lsh.Sequential(), lsh.Leashed(), lsh.Hogwild(), lsh.Locked(), lsh.Synchronous()]


@pytest.mark.parametrize("discipline", DISCIPLINES, ids=lambda one: one.label)
def test_one_thread_goes_on_from_each_to_the_same_bits(
    discipline: lsh.Discipline, tmp_path: Path, each: list[Path]
) -> None:
    rule = lsh.SWAP(lsh.Adam(0.01), period=7)
    whole = run(40, rule=rule, discipline=discipline)
    told = run(
        40,
        rule=rule,
        discipline=discipline,
        checkpoint=lsh.Checkpoint(tmp_path / "run", updates=12),
    )
    assert_alike(told, whole, tmp_path / "rows")
    ends = []
    for folder in each.copy():
        assert manifest_of(folder)["exact"]
        resumed = run(40, rule=rule, discipline=discipline, resume=folder)
        ends.append(resumed.config["resumed_at"])
        assert_alike(resumed, whole, tmp_path / "rows")
    assert ends == [12, 24, 36, 40]


@pytest.mark.parametrize(
    "rule",
    [
        lsh.Adam(lsh.schedules.cosine(0.01, total=80)),
        lsh.SWAP(lsh.Adam(0.01), period=7),
        lsh.Adagrad(lsh.schedules.step(0.05, every=9)),
    ],
    ids=lambda rule: type(rule).__name__,
)
@pytest.mark.parametrize("discipline", [lsh.Sequential(), lsh.Synchronous()], ids=str)
def test_tables_that_were_trained_before_go_on_from_their_own_steps(
    discipline: lsh.Discipline, rule: lsh.Rule, tmp_path: Path, each: list[Path]
) -> None:
    """A run's updates count from its beginning, and a table's from the table's."""

    def again(**given: Any) -> lsh.TrainResult:
        before = run(25, rule=rule)
        given = {"init": lsh.Init(before.parameters, before.tables), **given}
        return run(40, rule=rule, discipline=discipline, **given)

    whole = again(checkpoint=lsh.Checkpoint(tmp_path / "run", updates=12))
    for folder in each.copy():
        resumed = again(resume=folder)
        assert_alike(resumed, whole, tmp_path / "rows")
        steps = {table.statistics()["steps"] for table in resumed.tables.values()}
        assert steps == {65}
    assert len(each) == 4


def test_who_saves_a_table_under_way_has_its_steps() -> None:
    tables = run(25).tables
    seen = []

    def look(now: lsh.Progress) -> None:
        seen.append(now.updates)
        # The worker goes on, and says at its end how far it has come, of one table after another.
        steps = {table.statistics()["steps"] for table in tables.values()}
        assert steps <= {25 + now.updates, 3025}

    run(3000, init=lsh.Init(tables=tables), observe=lsh.Observe(look, every=0.01))
    assert seen[-1] == 3000


@pytest.mark.parametrize("discipline", DISCIPLINES[1:], ids=lambda one: one.label)
def test_several_threads_all_wait(
    discipline: lsh.Discipline, tmp_path: Path, each: list[Path]
) -> None:
    result = run(
        200,
        discipline=discipline,
        threads=3,
        checkpoint=lsh.Checkpoint(tmp_path / "run", updates=50),
    )
    assert result.total_updates == 200
    assert len(each) == 4
    for k, folder in enumerate(each.copy(), 1):
        assert manifest_of(folder)["exact"]
        # Of the updates that are claimed about then some are made before, some after.
        assert abs(updates_in(folder) - 50 * k) < 3


def test_where_checkpoints_fall_every_step(tmp_path: Path, each: list[Path]) -> None:
    run(5, threads=3, checkpoint=lsh.Checkpoint(tmp_path / "run", updates=1))
    assert 1 <= len(each) <= 5


@pytest.mark.parametrize("discipline", [lsh.Sequential(), lsh.Hogwild(copy=False)], ids=str)
def test_sparse_rows_in_place(discipline: lsh.Discipline, tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    data = lsh.SparseDataset(
        np.arange(0, 4001, 4),
        random.integers(0, 50, 4000).astype(np.int32),
        np.ones(4000, np.float32),
        50,
        random.integers(0, 2, 1000).astype(np.int32),
        2,
    )

    def train(**given: Any) -> lsh.TrainResult:
        given = {"until": lsh.until(updates=900), **given}
        model = models.logistic_regression(50)
        return lsh.train(
            model, data, discipline=discipline, threads=1, batch_size=1, seed=0, **given
        )

    kept = tmp_path / "kept"
    seen: list[int] = []
    write: Callable[..., None] = model_file.write

    def and_count(path: Path, *rest: Any) -> None:
        write(path, *rest)
        seen.append(1)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(model_file, "write", and_count)
        whole = train(checkpoint=lsh.Checkpoint(kept, updates=300))
    assert len(seen) >= 3
    np.testing.assert_array_equal(whole.parameters, train().parameters)


class Alarm(Exception):
    """Of a signal's handler."""


@contextmanager
def struck(
    monkeypatch: pytest.MonkeyPatch, at: int, error: type[BaseException], times: int = 1
) -> Iterator[None]:
    """While so manieth a checkpoint is written so many signals come, whose handler raises that."""
    write, handled, calls = model_file.write, threading.Semaphore(0), []
    main = threading.main_thread().ident
    assert main is not None

    def handler(*_: object) -> None:
        handled.release()
        raise error

    def and_strike(*arguments: Any) -> None:
        calls.append(1)
        if len(calls) == at:
            for _ in range(times):
                os.kill(os.getpid(), signal.SIGUSR1)
                # Another thread may have got it, which wakes nobody.
                while not handled.acquire(timeout=5):
                    signal.pthread_kill(main, signal.SIGUSR1)
                # The next one within the handler would be the same exception.
                while sys._current_frames()[main].f_code is handler.__code__:
                    time.sleep(0.001)
        write(*arguments)

    before = signal.signal(signal.SIGUSR1, handler)
    try:
        with monkeypatch.context() as patch:
            patch.setattr(model_file, "write", and_strike)
            yield
    finally:
        signal.signal(signal.SIGUSR1, before)


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("at", [1, 3], ids=["the first", "the last"])
def test_ctrl_c_while_one_is_written_ends_the_run_with_its_last_state(
    at: int, threads: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "run"
    with struck(monkeypatch, at, KeyboardInterrupt):
        result = run(30, threads=threads, checkpoint=lsh.Checkpoint(folder, updates=10))
    assert result.reason == "interrupted"
    assert manifest_of(folder)["exact"]
    assert updates_in(folder) == result.total_updates
    kept = lsh.load(folder)
    np.testing.assert_array_equal(kept.parameters, result.parameters)
    for name, table in result.tables.items():
        rows = np.arange(table.rows or 0)
        np.testing.assert_array_equal(kept.tables[name].lookup(rows), table.lookup(rows))


@pytest.mark.parametrize("at", [1, 3], ids=["the first", "the last"])
@pytest.mark.parametrize(
    ("error", "times"), [(Alarm, 1), (TimeoutError, 1), (KeyboardInterrupt, 2)]
)
def test_what_a_handler_raises_while_one_is_written_is_raised_and_the_file_is_there(
    error: type[BaseException],
    times: int,
    at: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    folder = tmp_path / "run"
    with struck(monkeypatch, at, error, times), pytest.raises(error):
        run(30, checkpoint=lsh.Checkpoint(folder, updates=10))
    assert manifest_of(folder)["exact"]
    assert updates_in(folder) == 10 * at
    assert run(40, resume=folder).total_updates == 40


@pytest.mark.parametrize("error", [Alarm, TimeoutError, KeyboardInterrupt])
def test_at_the_end_the_last_is_waited_for_whatever_a_handler_raises(
    error: type[BaseException], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody waits for a disk before: the signal comes when all workers have ended."""
    folder = tmp_path / "run"
    with struck(monkeypatch, 1, error), pytest.raises(error):
        run(30, checkpoint=folder)
    assert updates_in(folder) == 30


def test_a_state_whose_handing_over_ctrl_c_cuts_short_is_handed_over_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where it comes before the thread that writes has been told."""
    from concurrent.futures import ThreadPoolExecutor  # noqa: PLC0415 (whose method is replaced)

    submit, cut = ThreadPoolExecutor.submit, []

    def and_cut(self: ThreadPoolExecutor, work: Any, *arguments: Any) -> Any:
        if work is not int and not cut:
            cut.append(1)
            raise KeyboardInterrupt
        return submit(self, work, *arguments)

    monkeypatch.setattr(ThreadPoolExecutor, "submit", and_cut)
    result = run(30, checkpoint=tmp_path / "run")
    assert cut
    assert result.reason == "interrupted"
    assert updates_in(tmp_path / "run") == 30


def test_a_full_disk_stops_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise OSError("no space left")

    monkeypatch.setattr(folders, "write", fail)
    with pytest.warns(RuntimeWarning, match="no checkpoint was written.*no space left"):
        result = run(30, threads=2, checkpoint=lsh.Checkpoint(tmp_path / "run", updates=10))
    assert result.total_updates == 30


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"updates": 0}, r"checkpoint\.updates must be at least 1"),
        ({"updates": 2**64}, r"checkpoint\.updates must be at most"),
        ({"updates": 5, "every": 1.0}, r"checkpoint\.updates is not for checkpoints by seconds"),
    ],
)
def test_what_does_not_go_together(given: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        run(5, checkpoint=lsh.Checkpoint("x", **given))


@pytest.mark.process
def test_signals_at_every_stage_leave_the_newest_file_or_an_exception() -> None:
    command = [sys.executable, SIGNALS, "--runs", "18", "--seed", "1"]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=280, check=False)
    assert ended.returncode == 0, ended.stdout + ended.stderr
