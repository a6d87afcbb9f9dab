"""Runs that write checkpoints are struck by signals, at every stage of a checkpoint.

    python tests/checkpoint_signals.py [--runs 60] [--seed N] [--only KIND ...]

A run is a process of its own, struck once or twice: by Ctrl-C, or by an alarm whose handler raises, at a
step of writing or at any moment. It has to end with its result, and then what lies in the file is what it
has reached; or with what the handler has raised, and then the file is the newest that it had begun to
write. Either way the next run goes on from there, to the bits of a run that nobody struck. Tables that
are saved by hand are struck by a handler that saves them too. The seed is printed; a run that fails, or
hangs, is told with what it needs to be made again.
"""

from __future__ import annotations

import argparse
import gc
import os
import random
import signal
import sys
import tempfile
import threading
import time
import traceback
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
from table_files import rows_in

import leashed as lsh
from leashed.files import folders, resuming

PATIENCE = 120.0  # seconds until a run hangs
EVERY, UPDATES = 10, 60
DEEPEST = 8  # handlers within each other: on a busy machine one takes longer than its alarm does
DATA = lsh.datasets.synthetic_clicks(600, 1, test=50, cardinalities=[30, 40, 50])
SETTINGS: dict[str, Any] = {"rule": lsh.Adam(0.01), "threads": 1, "batch_size": 16, "seed": 3}


class Alarm(Exception):
    """Of a handler."""


def behind(frame: FrameType | None) -> bool:
    """Whether a signal comes when ``with`` is over here, and what its handler raised would go on."""
    if frame is None or frame.f_back is None:
        return False
    return frame.f_code.co_name == "__exit__" and frame.f_back.f_globals is globals()


@dataclass
class Strikes:
    """What becomes of a process.

    Attributes:
        steps: at which so manieth steps of writing it is struck, counted from 1.
        seconds: after which times.
        error: what the handler raises; None: nothing.
        begun: the updates of checkpoints that it has begun to write.
        struck: how often.
        lasted: seconds.
    """

    steps: tuple[int, ...] = ()
    seconds: tuple[float, ...] = ()
    error: type[BaseException] | None = KeyboardInterrupt
    count: int = 0
    struck: int = 0
    lasted: float = 0.0
    begun: list[int] = field(default_factory=list)

    def told(self) -> str:
        """What is drawn of it."""
        name = "nothing" if self.error is None else self.error.__name__
        return f"{name} at {self.steps or 'any step'}, {self.seconds or 'any time'}"

    def step(self) -> None:
        """One, on any thread."""
        self.count += 1
        if self.count in self.steps:
            os.kill(os.getpid(), signal.SIGUSR1)

    def handle(self, _: int, frame: FrameType | None) -> None:
        self.struck += 1
        if self.error is not None and not behind(frame):
            raise self.error

    def ignored(self, what: sys.UnraisableHookArgs) -> None:
        """In a callback of Python's own weak references what a handler raises reaches nobody."""
        if getattr(what.object, "__module__", None) == "weakref":
            self.struck -= 1
        sys.__unraisablehook__(what)

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Within, steps are counted and signals come."""
        sys.unraisablehook = self.ignored
        signal.signal(signal.SIGUSR1, self.handle)
        signal.signal(signal.SIGALRM, self.handle)
        owners: list[tuple[Any, str]] = [
            (folders, "_saved"),
            (folders, "put_manifest"),
            (os, "fsync"),
            (Path, "unlink"),
            (Path, "replace"),
            (ThreadPoolExecutor, "submit"),
            (resuming.Checkpointer, "__call__"),
            (resuming.Checkpointer, "__exit__"),
            (resuming, "contents"),
        ]
        before = [(owner, name, getattr(owner, name)) for owner, name in owners]

        def noting(write: Callable[..., None]) -> Callable[..., None]:
            def put_(checkpointer: Any, reached: resuming.Reached) -> None:
                self.begun.append(reached.training.updates)
                write(checkpointer, reached)

            return put_

        def between(work: Callable[..., Any]) -> Callable[..., Any]:
            def stepping(*given: Any, **named: Any) -> Any:
                self.step()
                result = work(*given, **named)
                self.step()
                return result

            return stepping

        for owner, name, work in before:
            setattr(owner, name, between(work))
        kind = resuming.Checkpointer  # for good: one may be written yet
        kind._put = noting(kind._put)  # type: ignore[method-assign]
        try:
            if self.seconds:
                later = self.seconds[-1] if len(self.seconds) > 1 else 0.0
                signal.setitimer(signal.ITIMER_REAL, self.seconds[0], later)
            began = time.monotonic()
            yield
            self.lasted = time.monotonic() - began
        finally:
            try:
                self.error = None  # one that is under way yet raises nothing
                signal.setitimer(signal.ITIMER_REAL, 0)
            finally:
                for owner, name, work in before:
                    setattr(owner, name, work)


def dlrm() -> Any:
    return lsh.models.dlrm(50, 4, bottom=(8, 4), top=(8,), categories=3)


def train_tables(updates: int, **given: Any) -> lsh.TrainResult:
    return lsh.train(dlrm(), DATA, until=lsh.until(updates=updates), **{**SETTINGS, **given})


def train_file(updates: int, **given: Any) -> lsh.TrainResult:
    rng = np.random.default_rng(0)
    x = rng.standard_normal((600, 12)).astype(np.float32)
    given = {"until": lsh.until(updates=updates), **SETTINGS, **given}
    return lsh.train(lsh.models.mlp(12, [8], 2), (x, (x[:, 0] > 0).astype(int)), **given)


def train_again(updates: int, **given: Any) -> lsh.TrainResult:
    """On tables that were trained before, which a run that goes on gets from the folder."""
    before = train_tables(25)
    given = {"init": lsh.Init(before.parameters, before.tables), **given}
    return train_tables(updates, **given)


# By kind: what trains, and how it writes.
TRAININGS: dict[str, tuple[Callable[..., lsh.TrainResult], dict[str, Any]]] = {
    "file": (train_file, {"updates": EVERY}),
    "file at the end": (train_file, {}),
    "file beside": (train_file, {"every": 0.002}),
    "tables": (train_tables, {"updates": EVERY}),
    "tables at the end": (train_tables, {}),
    "incremental": (train_tables, {"updates": EVERY, "incremental": True}),
    "trained before": (train_again, {"updates": EVERY}),
}


def reached(result: lsh.TrainResult, scratch: Path) -> list[Any]:
    """All of a result, to the bit."""
    return [result.parameters.tobytes(), rows_of(result.tables, scratch)]


def rows_of(tables: dict[str, lsh.Table], scratch: Path) -> list[Any]:
    """Each table's, states and all."""
    found = []
    for table in tables.values():
        table.save(scratch)
        found.append(rows_in(scratch))
    return found


def in_file(path: Path, scratch: Path) -> list[Any]:
    """And of what lies in a file, or a folder that is whole."""
    if path.is_dir():
        folders.opened(path)
    restored = lsh.load(path)
    return [restored.parameters.tobytes(), rows_of(restored.tables, scratch)]


def wait_for_writers() -> None:
    """A run that was struck twice, or between two lines of Python, does not wait itself."""
    gc.collect()  # so that the thread of a run that is gone ends
    # (One may not have started yet, and is not to be joined then.)
    while any(thread.name.startswith("leashed-checkpoint") for thread in threading.enumerate()):
        time.sleep(0.001)


def is_there(path: Path) -> bool:
    return folders.is_one(path) or path.is_file()


def play_training(kind: str, strikes: Strikes, home: Path) -> str:
    """How it ended; AssertionError where that is wrong."""
    train, how = TRAININGS[kind]
    path, scratch = home / "run", home / "rows"
    whole = reached(train(UPDATES), scratch)
    error, result = strikes.error or Alarm, None
    within = None  # how often it was struck by then; None: also behind it
    with suppress(error), strikes.watched():
        result = train(UPDATES, checkpoint=lsh.Checkpoint(path, **how))
        within = strikes.struck
    wait_for_writers()
    if result is not None:
        ended = f"{result.reason} after {result.total_updates}"
        if within is not None:
            assert error is not Alarm or not within, "what the handler raised is lost"
            assert result.reason == ("interrupted" if within else "updates"), ended
        assert resuming.updates_in(path) == result.total_updates, ended
        assert in_file(path, scratch) == reached(result, scratch), ended
    else:
        ended = f"{error.__name__} after {strikes.begun}"
        newest = strikes.begun[-strikes.struck :]
        if not is_there(path):
            assert len(strikes.begun) < strikes.struck, f"nothing was written: {ended}"
            return ended
        assert resuming.updates_in(path) in newest, (resuming.updates_in(path), ended)
    if train is train_again:
        tables = lsh.tables.of(dlrm().tables, rule=SETTINGS["rule"], seed=SETTINGS["seed"])
        resumed = train_tables(UPDATES, init=lsh.Init(tables=tables), resume=path)
    else:
        resumed = train(UPDATES, resume=path)
    assert reached(resumed, scratch) == whole, f"other bits than of the run nobody struck: {ended}"
    return ended


def play_days(strikes: Strikes, home: Path) -> str:
    """The same of days that are trained on one after another."""
    parts = [DATA.train[:200], DATA.train[200:400], DATA.train[400:]]
    error, ended = strikes.error or Alarm, "raised"

    def run(name: str) -> lsh.Continual:
        settings = {**SETTINGS, "folder": home / name, "checkpoint": lsh.Checkpoint(updates=5)}
        return lsh.continual(dlrm(), parts, **settings)

    whole = run("whole")
    within = None
    with suppress(error), strikes.watched():
        ended = run("struck").outcome
        within = strikes.struck
    assert ended != "done" or not within, "the signal is lost"
    wait_for_writers()
    later = run("struck")
    scratch = home / "rows"
    assert later.outcome == "done"
    assert [day.updates for day in later.days] == [day.updates for day in whole.days]
    assert in_file(home / "struck" / "state", scratch) == in_file(home / "whole" / "state", scratch)
    return ended


def play_rows(strikes: Strikes, home: Path) -> str:
    """A table is saved by hand, and by the handler too."""
    table = lsh.Table(rows=200_000, dim=8, rule=lsh.SGD(0.1))
    error, ended = strikes.error or Alarm, "raised"
    refused: list[str] = []
    saved = [home / "all"]
    handlers = 0  # that are under way, one within the other

    def handle(_: int, frame: FrameType | None) -> None:
        nonlocal handlers
        strikes.struck += 1
        if handlers == DEEPEST:
            return
        handlers += 1
        within = home / f"within{strikes.struck}"
        try:
            table.save_changes(within)
            saved.append(within)
        except ValueError as told:
            refused.append(str(told))
        finally:
            handlers -= 1
        if strikes.error is not None and not behind(frame):
            raise strikes.error

    table.save_tracked(home / "all")
    with suppress(error), strikes.watched():
        signal.signal(signal.SIGUSR1, handle)
        signal.signal(signal.SIGALRM, handle)
        for k in range(20):
            ids = np.arange(k, 200_000, 3)
            table.update(ids, np.ones((len(ids), 8), np.float32))
            strikes.step()
            table.save_changes(home / f"changes{k}")
            saved.append(home / f"changes{k}")
            strikes.step()
        ended = "done"
    assert all("is being saved" in why for why in refused), refused
    if ended == "done":  # else all rows have to be saved anew
        other = lsh.Table(rows=200_000, dim=8, rule=lsh.SGD(0.1))
        other.load(saved[0], saved[1:])
        rows = np.arange(200_000)
        np.testing.assert_array_equal(other.lookup(rows), table.lookup(rows))
    table.save_tracked(home / "all")
    table.save_changes(home / "none")
    return f"{ended}, {len(refused)} refused"


KINDS = (*TRAININGS, "days", "rows")


def play(kind: str, strikes: Strikes, home: Path) -> str:
    warnings.simplefilter("error")
    if kind == "days":
        return play_days(strikes, home)
    return play_rows(strikes, home) if kind == "rows" else play_training(kind, strikes, home)


def forked(work: Callable[[], str], told: Path) -> str | None:
    """What a child's work returns; None where it has failed or hung, and then ``told`` says why."""
    pid = os.fork()
    if not pid:
        try:
            told.write_text(work())
            os._exit(0)
        except BaseException:  # noqa: BLE001 (a child of fork must not return)
            told.write_text(traceback.format_exc())
        os._exit(1)
    end = time.monotonic() + PATIENCE
    while True:
        found, status = os.waitpid(pid, os.WNOHANG)
        if found:
            return told.read_text() if status == 0 else None
        if time.monotonic() > end:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            told.write_text("it hangs")
            return None
        time.sleep(0.01)


def measured(kind: str, home: Path) -> tuple[int, float]:
    """Steps and seconds of a run that nobody strikes."""
    home.mkdir()
    strikes = Strikes()

    def work() -> str:
        play(kind, strikes, home)
        return f"{strikes.count} {strikes.lasted}"

    found = forked(work, home / "told")
    if found is None:
        raise SystemExit(f"{kind}, without a signal: {(home / 'told').read_text()}")
    steps, seconds = found.split()
    return int(steps), float(seconds)


def drawn(rng: random.Random, kind: str, steps: int, lasts: float) -> Strikes:
    """One or two, at steps or at any moments; of rows, that the handler saves too, any number."""
    if kind == "rows":
        again = rng.uniform(0.01, 0.1) * lasts
        return Strikes((), (again, again), rng.choice([None, KeyboardInterrupt]))
    error = rng.choice([KeyboardInterrupt, Alarm])
    count = rng.choice([1, 1, 2])
    if rng.random() < 0.3:
        return Strikes((), tuple(rng.uniform(0.001, lasts) for _ in range(count)), error)
    return Strikes(tuple(sorted(rng.sample(range(1, steps + 1), count))), (), error)


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=60)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--only", nargs="+", choices=KINDS, default=list(KINDS))
    given = parser.parse_args()
    print(f"seed {given.seed}", flush=True)
    rng = random.Random(given.seed)
    failed = 0
    with tempfile.TemporaryDirectory() as name:
        home = Path(name)
        known = {kind: measured(kind, home / f"steps of {kind}") for kind in given.only}
        for number in range(given.runs):
            kind = given.only[number % len(given.only)]
            strikes = drawn(rng, kind, *known[kind])
            place = home / str(number)
            place.mkdir()
            ended = forked(lambda k=kind, s=strikes, p=place: play(k, s, p), place / "told")  # type: ignore[misc]
            failed += ended is None
            print(f"{number}: {kind}, {strikes.told()}: {ended or 'FAILED'}", flush=True)
            if ended is None:
                print((place / "told").read_text(), flush=True)
    print(f"{given.runs} runs, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
