"""The first of several policy servers that is killed, and started again: it goes on from its snapshot and its
journal, so that all decide as they had, and what was lost with it is missing for its part alone.
"""

from __future__ import annotations

import logging
import os
import random
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from cluster.led_kills import KILLS, kill, later, plan_of, went_on
from cluster.processes import pids
from cluster.test_led_keeping import LONG, clicks, snapshot
from cluster.test_led_modes import started, whole
from cluster.test_up import PATIENCE

import leashed as lsh
from leashed.cluster.checkpoints import Checkpoint, newest
from leashed.cluster.commanding import command
from leashed.cluster.led_first_keeping import FirstKeeping
from leashed.cluster.measures import counted

KILLED = "policy-ps-0"

MODES = ["sync", "gba:m=3,iota=4", "switching:m=3", "ssp:s=3", "easgd:alpha=0.5,gap=2"]


@pytest.mark.process(1)
@pytest.mark.parametrize("mode", MODES)
def test_a_run_goes_on_when_its_first_policy_server_is_killed(mode: str, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    alike = mode.startswith(("sync", "switching"))
    plan = plan_of(folder, {"mode": mode, **LONG})
    report = went_on(plan, folder, KILLED, 64, alike=alike)
    assert report["test_accuracy"] > 0.9


@pytest.mark.process(1)
@pytest.mark.parametrize("mode", ["gba:iota=4", "sync"])
def test_so_does_one_with_tables(mode: str, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    plan = plan_of(folder, clicks(tmp_path, mode))
    report = went_on(plan, folder, KILLED, 30, alike=mode == "sync")
    assert report["test_auc"] > 0.6


@pytest.mark.process(1)
@pytest.mark.parametrize("mode", ["gba:iota=4", "sync"])
def test_cuts_are_taken_of_one_that_was_killed(mode: str, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    plan = plan_of(folder, {"mode": mode, **LONG}, checkpoint_every=1.0)
    report = went_on(plan, folder, KILLED, 64, alike=mode == "sync")
    assert report["checkpoints"]["made"] > 0
    last = Checkpoint(newest(folder))
    assert last.complete
    found = lsh.load(last.folder).parameters
    assert np.isfinite(found).all()


@pytest.mark.process(1)
@pytest.mark.parametrize("mode", ["gba:m=3,iota=4", "sync"])
def test_all_policy_servers_may_be_killed_at_once(mode: str, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    process = started("--plan", str(plan_of(folder, {"mode": mode, **LONG})))
    rng, pushes, killed = random.Random(0), 0, 0
    try:
        while killed < KILLS and (pushes := kill(folder, process, KILLED, rng, pushes)):
            killed += 1
            os.kill(pids(folder)["policy-ps-1"], signal.SIGKILL)
        report = whole(folder, process)
    finally:
        process.kill()
    assert killed
    ledger, first = report["ledger"], counted(report, "policy-ps")[0]
    assert ledger["complete"] == ledger["total"]
    assert ledger["undone"] == 0
    fates = ("mode_applied", "mode_stale", "mode_straggler", "mode_missing")
    assert sum(first[fate] for fate in fates) == 64 * ledger["total"]
    assert report["test_accuracy"] > 0.9


def tell(folder: Path, word: str) -> None:
    """The mode, as soon as the run's report knows where its server is."""
    deadline = time.monotonic() + PATIENCE
    while True:
        try:
            command(folder, word)
            return
        except ConnectionError:
            assert time.monotonic() < deadline
            time.sleep(0.05)


@pytest.mark.process
def test_a_command_stays_told(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    long = {**LONG, "epochs": 200.0}
    process = started("--plan", str(plan_of(folder, {"mode": "switching:m=3", **long})))
    rng, told = random.Random(0), 0
    try:
        pushes = later(folder, process, KILLED, 0)
        for word in ("gba", "sync", "gba"):
            if not pushes:
                break
            tell(folder, word)
            told += 1
            pushes = kill(folder, process, KILLED, rng, pushes)
            pushes = pushes and later(folder, process, KILLED, pushes)
        report = whole(folder, process)
    finally:
        process.kill()
    first = counted(report, "policy-ps")[0]
    assert told > 0
    assert first["mode_commands"] == told
    assert first["mode_told"] == told % 2  # to be gba the first time, which is 1
    assert first["undone_commands"] == 0


@pytest.mark.process
def test_without_its_journal_the_run_ends_by_that(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    process = started("--plan", str(plan_of(folder, {"mode": "sync", **LONG})))
    try:
        assert later(folder, process, KILLED, 0)
        os.kill(pids(folder)[KILLED], signal.SIGSTOP)
        for path in folder.glob(f"{KILLED}.journal.*"):
            path.unlink()
        os.kill(pids(folder)[KILLED], signal.SIGKILL)
        told, _ = process.communicate(timeout=2 * PATIENCE)
    finally:
        process.kill()
    assert process.returncode == 1
    assert "there is no journal" in told


MADE: list[FirstKeeping] = []


@pytest.fixture(autouse=True)
def closed_at_the_end() -> Iterator[None]:
    yield
    while MADE:
        MADE.pop().close()


class Served:
    """What is kept of a server of the core's, of which each push is a line of the journal."""

    def __init__(self) -> None:
        self.pushes = 0
        self.told: list[int] = []
        self.unwritten = ""
        self.is_home = True

    def standing(self) -> dict[str, Any]:
        return {
            "failure": "", "unwritten": self.unwritten, "done": 4 * self.pushes,
            "elapsed": 0.5 * self.pushes, "since": 0.5, "told": 1,
        }  # fmt: skip

    def counters(self) -> dict[str, Any]:
        return {
            "pushes": self.pushes, "pushed_examples": 4 * self.pushes, "commands": self.pushes,
            "summed": 0, "summed_examples": 0,
        }  # fmt: skip

    def quiet(self, f: Any) -> None:
        f()

    def stay_home(self, _: bool) -> None:
        pass

    def keep(self, _: int) -> Any:
        found = snapshot(0)
        return (found.state, 1), found.served, self.pushes

    def kept(self, line: int) -> None:
        self.told.append(line)

    def sync_journal(self) -> None:
        pass

    def let_end(self) -> None:
        pass


def keeping(folder: Path) -> FirstKeeping:
    led: Any = SimpleNamespace(batch_size=4, batches=100, examples=400, passed=7.0)
    place: Any = SimpleNamespace(folder=folder, snapshot_every=0.0)
    MADE.append(FirstKeeping(led, place, None))
    return MADE[-1]


class Told:
    """What is told of the mode's own commands."""

    def goes_on(self, *told: float) -> None:
        self.told = told


def test_it_goes_on_behind_what_the_master_was_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / f"{KILLED}.journal.0").write_text("another run's")
    first, server = keeping(tmp_path), Served()
    assert first.begin("it") is None
    assert not list(tmp_path.glob("*.journal.*"))
    assert first.journal(None) == (str(tmp_path / f"{KILLED}.journal"), 0, 0)
    assert first.known(7) == 7  # of a run that goes on from a checkpoint
    first.serve(server, lambda: (2.0, 1, 0))  # type: ignore[arg-type]
    first.pushes[:] += np.array([3, 12], np.uint64)
    server.pushes = 3
    first.keep(3, done=False)
    assert server.told == [3]  # once it is written
    first.done(9)
    first.scheduled(2)
    first.pushes[:] += np.array([2, 8], np.uint64)
    first.close()
    second = keeping(tmp_path)
    offered = second.offer()
    assert offered is not None
    assert (offered.run, offered.next) == ("it", 9)
    with caplog.at_level(logging.WARNING):
        then = second.begin("it")
    assert then is not None
    assert second.boot == first.boot
    assert second.journal(then) == (str(tmp_path / f"{KILLED}.journal"), 3, 1)
    assert second.known(11) == 9
    again, commands = Served(), Told()
    again.pushes = 5  # as the journal has it
    second.serve(again, lambda: (2.0, 2, 0))  # type: ignore[arg-type]
    second.goes_on(then, again, commands)  # type: ignore[arg-type]
    assert commands.told == (3.0, 2, 5, 1)
    told = second.counters()
    assert (told["restarts"], told["undone_pushes"], told["undone_examples"]) == (1, 2, 8)
    assert told["undone_commands"] == 0
    assert (
        "goes on from 3 pushes; with all restarts 2 pushes, of 8 examples, are lost" in caplog.text
    )


def test_one_that_died_before_it_knew_anything_begins_as_it_would_have(tmp_path: Path) -> None:
    keeping(tmp_path).begin("it")
    MADE.pop().close()
    second = keeping(tmp_path)
    offered = second.offer()
    assert offered is not None
    assert offered.next == 0
    assert second.begin("it") is None
    files = str(tmp_path / f"{KILLED}.journal")
    assert second.journal(None) == (files, 0, 0)  # it may have died before there was a file
    (tmp_path / f"{KILLED}.journal.0").touch()
    assert second.journal(None) == (files, 0, 0)
    assert not list(tmp_path.glob("*.journal.*"))
    (tmp_path / f"{KILLED}.journal.0").write_text("what it has heard")  # behind a power cut
    assert second.journal(None) == (files, 0, 1)
    assert second.known(7) == 7


def test_before_its_first_snapshot_the_time_goes_on_from_where_the_run_began(
    tmp_path: Path,
) -> None:
    first, server, commands = keeping(tmp_path), Served(), Told()
    first.begin("it")
    server.pushes = 3
    first.goes_on(None, server, commands)  # type: ignore[arg-type]
    assert commands.told == (7.0 + 1.5 - 0.5, 0, 3, 1)


def test_a_journal_that_cannot_be_written_is_told_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    first, server = keeping(tmp_path), Served()
    first.begin("it")
    first.serve(server, lambda: (0.0, 0, 0))  # type: ignore[arg-type]
    server.unwritten = "the journal it.* cannot be written: no space"
    with caplog.at_level(logging.WARNING):
        for pushes in range(3):
            first._synced = 0.0
            first.keep(pushes, done=False)
    (record,) = [r for r in caplog.records if "no space" in r.getMessage()]
    assert "should this server die, the run ends by that" in record.getMessage()


def test_at_the_end_nothing_is_left(tmp_path: Path) -> None:
    first, server = keeping(tmp_path), Served()
    first.begin("it")
    (tmp_path / f"{KILLED}.journal.5").write_bytes(b"")
    first.serve(server, lambda: (0.0, 0, 0))  # type: ignore[arg-type]
    with first.left():
        pass
    assert list(tmp_path.iterdir()) == []
