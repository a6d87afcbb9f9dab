"""Ctrl-C while a table's calls last: it ends them, and they have changed nothing."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any, cast

import numpy as np
import pytest

import leashed as lsh

ROWS = 1_000_000


@contextmanager
def interrupted() -> Iterator[None]:
    """Signals soon, and again and again: one comes while the native call lasts. What counts is what
    this process computes: by the wall's clock one might come before the call.
    """

    def raises(_number: int, _frame: FrameType | None) -> None:
        signal.setitimer(signal.ITIMER_PROF, 0)
        raise KeyboardInterrupt

    signal.signal(signal.SIGPROF, raises)
    try:
        signal.setitimer(signal.ITIMER_PROF, 0.002, 0.002)
        yield
        while True:
            pass  # it has gone through: its caller sees what that has changed
    except KeyboardInterrupt:
        pass
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, signal.SIG_IGN)  # one on its way would end the process


def is_ended(call: Callable[[], object], went_through: Callable[[], bool]) -> None:
    """By a signal: on a busy machine a call may be over before it looks for one, and is made again."""
    for _ in range(20):
        with interrupted():
            call()
        if not went_through():
            return
    pytest.fail("no signal has ended it")


def made() -> lsh.Table:
    return lsh.Table(rows=ROWS, dim=8, rule=lsh.SGD(1.0), init=lsh.tables.normal(1.0), seed=3)


def test_making_a_large_table_is_interrupted() -> None:
    tables: list[lsh.Table] = []
    is_ended(lambda: tables.append(made()), lambda: bool(tables and tables.pop()))


def test_a_look_up_and_an_update_are_interrupted_and_no_row_has_changed() -> None:
    table = lsh.Table(rows=1000, dim=1, init=lsh.tables.zeros(), rule=lsh.SGD(1.0))
    ids = np.arange(10_000_000, dtype=np.int64) % 1000
    gradients = np.ones(ids.size, np.float32)
    read: list[object] = []
    is_ended(
        lambda: read.append(table.native.lookup(ids)), lambda: bool(read and read.pop() is not None)
    )
    made_steps = 0

    def updated() -> bool:
        nonlocal made_steps
        steps, made_steps = made_steps, table.statistics()["steps"]
        return steps != made_steps

    is_ended(lambda: table.native.update(ids, gradients), updated)
    values, versions = table.lookup(np.arange(1000), versions=True)
    assert (versions == made_steps).all()
    assert (values == values[0]).all()
    assert made_steps or not values.any()


def test_saving_and_loading_are_interrupted_and_leave_file_and_table(tmp_path: Path) -> None:
    table = made()
    path, other = tmp_path / "table", tmp_path / "other"
    table.save(path)
    ids = np.arange(0, ROWS, 1000)
    before = table.lookup(ids)

    def saved() -> bool:
        was, _ = other.read_bytes(), other.write_bytes(b"before")
        return was != b"before"

    other.write_bytes(b"before")
    is_ended(lambda: table.native.save(str(other), "another"), saved)
    assert sorted(tmp_path.iterdir()) == [other, path]
    table.update(ids, np.ones((ids.size, 8), np.float32))
    values = table.lookup(ids)

    def loaded() -> bool:
        if np.array_equal(table.lookup(ids), values):
            return False
        np.testing.assert_array_equal(table.lookup(ids), before)
        table.update(ids, np.ones((ids.size, 8), np.float32))
        return True

    is_ended(lambda: table.load(path), loaded)
    np.testing.assert_array_equal(table.lookup(ids), values)
    table.load(path)  # nobody is left in it
    np.testing.assert_array_equal(table.lookup(ids), before)


def test_a_load_of_another_seed_that_is_cut_short_is_whole_or_nothing(tmp_path: Path) -> None:
    """Also where the signal comes when the rows are there, before the call returns."""
    ids = np.arange(5, 100)

    def table(seed: int, number: int) -> lsh.Table:
        normal = lsh.tables.normal(1.0)
        return lsh.Table(dim=2, max_bytes=10**5, init=normal, seed=seed, number=number)

    other, ours = table(8, 2), table(3, 1)
    other.update(ids[:10], np.ones((10, 2), np.float32))
    path = tmp_path / "table"
    other.save(path)

    class Interrupted:
        def __init__(self, native: Any) -> None:
            self._native = native

        def load(self, *given: Any) -> None:
            self._native.load(*given)
            raise KeyboardInterrupt

        def __getattr__(self, name: str) -> Any:
            return getattr(self._native, name)

    native: Any = ours.native
    ours.native = cast("Any", Interrupted(native))
    with pytest.raises(KeyboardInterrupt):
        ours.load(path, any_seed=True)
    ours.native = native
    assert (ours.seed, ours.number) == (8, 2)
    np.testing.assert_array_equal(ours.lookup(ids), other.lookup(ids))
    ours.save(tmp_path / "again")
    other.load(tmp_path / "again")
    with pytest.raises(ValueError, match="is of another table"):
        table(3, 1).load(tmp_path / "again")


def test_who_saves_from_a_handler_while_a_table_is_saved_is_refused(tmp_path: Path) -> None:
    """In a process of its own, since it would wait for itself."""
    code = f"""
import signal
from pathlib import Path
import numpy as np
import leashed as lsh

table = lsh.Table(rows={ROWS}, dim=8, rule=lsh.SGD(1.0))
path = Path({str(tmp_path)!r})
told = []

def handler(*_):
    try:
        table.save_changes(path / "within")
    except ValueError as error:
        told.append(str(error))

table.save_tracked(path / "all")
signal.signal(signal.SIGALRM, handler)
for k in range(1000):
    table.update(np.arange({ROWS}), np.ones(({ROWS}, 8), np.float32))
    signal.setitimer(signal.ITIMER_REAL, 0.02)
    table.save_changes(path / f"changes{{k}}")
    if told:
        break
    (path / f"changes{{k}}").unlink()
assert "is being saved" in told[0], told
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=200)
