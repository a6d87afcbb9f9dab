"""A policy server behind the first of several that is killed, and started again: the run goes on, what was lost
with it is missing for its part alone, and the report tells how much that is.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import random
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from cluster.processes import pids
from cluster.test_led_keeping import LONG, clicks, snapshot
from cluster.test_led_modes import started, whole
from cluster.test_up import PATIENCE

import leashed as lsh
from leashed.cluster import mode_table
from leashed.cluster import plan as plans
from leashed.cluster.checkpoints import Checkpoint, newest
from leashed.cluster.led_keeping import head_of, keeps
from leashed.cluster.led_part_keeping import PartKeeping
from leashed.cluster.measures import counted
from leashed.cluster.plan import Cluster, Plan, Sync, Train
from leashed.files import folders

KILLED, KILLS, TRAINERS, SERVERS = "policy-ps-1", 3, 2, 2


def plan_of(folder: Path, train: dict[str, Any], **cluster: Any) -> Path:
    """The file of a run's plan, whose policy servers keep what they have ten times a second."""
    place = {"trainers": TRAINERS, "sync_ps": 0, "policy_ps": SERVERS, "run": folder, **cluster}
    path = folder.with_suffix(".toml")
    asked = Cluster(snapshot_every=0.1, grace=PATIENCE / 2, **place)
    plans.write(path, Plan(asked, Sync("none"), Train(**train)))
    return path


def kept(folder: Path) -> dict[str, Any] | None:
    """What its newest snapshot tells, if it has trained by then."""
    path: Path = folder / f"{KILLED}.snapshot"
    with contextlib.suppress(OSError, ValueError):  # (With tables that one is named with the rows.)
        path = path.with_name(folders.Rows(folder / KILLED, hashed=False).told["mode"])
    told = head_of(path)
    return told if told is not None and told["pushes"] > 0 else None


def kill(folder: Path, process: subprocess.Popen[str], rng: random.Random, least: int) -> int:
    """At some moment behind a snapshot with more pushes than that; with how many, or 0: the run ends before."""
    deadline = time.monotonic() + PATIENCE
    while (told := kept(folder)) is None or told["pushes"] <= least:
        if process.poll() is not None:
            return 0
        assert time.monotonic() < deadline, (folder / f"{KILLED}.log").read_text()
        time.sleep(0.01)
    time.sleep(0.2 * rng.random())
    try:
        os.kill(pids(folder)[KILLED], signal.SIGKILL)
    except (KeyError, ProcessLookupError):
        return 0
    return int(told["pushes"])


def played(path: Path, folder: Path, times: int = KILLS) -> tuple[dict[str, Any], int]:
    """The report of a run whose second policy server was killed so often, or less; and how often."""
    process = started("--plan", str(path))
    rng, killed, pushes = random.Random(0), 0, 0
    try:
        while killed < times and (pushes := kill(folder, process, rng, pushes)):
            killed += 1
        report = whole(folder, process)
    finally:
        process.kill()
    assert killed
    assert pids(folder) == {}
    assert list(folder.glob("*.snapshot*")) == list(folder.glob("*.ever")) == []
    return report, killed


def accounted(report: dict[str, Any], killed: int, batch: int, *, alike: bool) -> None:
    """Each example is done at the first once, and of the other it is told what became of its part."""
    ledger, servers = report["ledger"], counted(report, "policy-ps")
    first, second = (servers[index] for index in range(SERVERS))
    examples = ledger["total"] * batch
    assert ledger["complete"] == ledger["total"]
    assert ledger["undone"] == ledger["again"] == 0
    fates = ("mode_applied", "mode_stale", "mode_straggler", "mode_missing")
    told = [sum(server[fate] for fate in fates) for server in (first, second)]
    moved = [batch * server["mode_exchanges"] for server in (first, second)]
    assert told[0] + moved[0] == examples
    assert first["mode_missing"] == 0
    # (What is on its way to who decides by itself when it is killed, and has got to the first, it may hear of
    # before that one has.)
    ways = 0 if alike else killed * TRAINERS * batch
    assert examples - ways <= told[1] + moved[1] <= examples
    assert second["restarts"] == killed == report["restarts"][KILLED]
    assert second["undone_examples"] == batch * second["undone_pushes"]
    # Beside what was lost with it those are missing that were on their way; what came too late, of that nothing is.
    on_their_way = 2 * killed * TRAINERS * batch
    lost, late = second["undone_examples"], first["mode_straggler"]
    assert lost - late - on_their_way <= second["mode_missing"] <= lost + on_their_way
    assert first["strange"] == second["strange"] == 0
    said = dict(mode_table.facts(report))["policy server 1"]
    assert (
        f"parts of {second['undone_pushes']:,.0f} pushes, of {second['undone_examples']:,.0f}"
        in said
    )


MODES = ["gba:m=3,iota=4", "easgd:alpha=0.5,gap=2", "ssp:s=3", "sync", "hop_bw:b3=1"]


@pytest.mark.process(1)
@pytest.mark.parametrize("mode", MODES)
def test_a_run_goes_on_when_its_second_policy_server_is_killed(mode: str, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    report, killed = played(plan_of(folder, {"mode": mode, **LONG}), folder)
    alike = mode.startswith(("sync", "hop_bw"))
    accounted(report, killed, 64, alike=alike)
    assert report["test_accuracy"] > 0.9


@pytest.mark.process(1)
@pytest.mark.parametrize("mode", ["gba:iota=4", "sync"])
def test_so_does_one_with_tables(mode: str, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    report, killed = played(plan_of(folder, clicks(tmp_path, mode)), folder)
    accounted(report, killed, 30, alike=mode == "sync")
    assert report["test_auc"] > 0.6


@pytest.mark.process
@pytest.mark.parametrize("mode", ["gba:iota=4", "sync"])
def test_cuts_are_taken_of_one_that_was_killed(mode: str, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    report, killed = played(plan_of(folder, {"mode": mode, **LONG}, checkpoint_every=1.0), folder)
    accounted(report, killed, 64, alike=mode == "sync")
    assert report["checkpoints"]["made"] > 0
    last = Checkpoint(newest(folder))
    assert last.complete
    found = lsh.load(last.folder).parameters
    assert np.isfinite(found).all()
    if mode == "sync":  # (Else the second makes its last update once nobody is there any more.)
        np.testing.assert_array_equal(found, lsh.load(folder / "output.safetensors").parameters)


MADE: list[PartKeeping] = []


@pytest.fixture(autouse=True)
def closed_at_the_end() -> Iterator[None]:
    yield
    while MADE:
        MADE.pop().close()


class Served:
    """What is kept of a server of the core's, whose position in the log is ten times its pushes."""

    def __init__(self) -> None:
        self.pushes = 0
        self.told: list[int] = []

    def standing(self) -> dict[str, Any]:
        return {"failure": "", "position": 10 * self.pushes}

    def counters(self) -> dict[str, Any]:
        return {"pushes": self.pushes + 1}  # of which one is there, and not used

    def quiet(self, f: Any) -> None:
        f()

    def keep(self) -> Any:
        found = snapshot(0)
        return (found.state, 1), found.served, (self.pushes, 4 * self.pushes)

    def kept(self, position: int) -> None:
        self.told.append(position)


def keeping(folder: Path, index: int = 1) -> PartKeeping:
    led: Any = SimpleNamespace()
    place: Any = SimpleNamespace(folder=folder, snapshot_every=0.0)
    MADE.append(PartKeeping(led, place, None, index))
    return MADE[-1]


def test_what_came_since_the_snapshot_is_counted_as_lost_and_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    first, server = keeping(tmp_path), Served()
    assert first.begin("it") is None
    assert not first.again
    first.serve(server)  # type: ignore[arg-type]
    ever = first.pushes
    ever[:] += np.array([3, 12], np.uint64)
    server.pushes = 3
    first.keep(4)
    assert server.told == [30]  # once it is written
    ever[:] += np.array([2, 8], np.uint64)
    first.close()
    second = keeping(tmp_path)
    offered = second.offer()
    assert offered is not None
    assert (offered.run, offered.next) == ("it", 0)  # it has leased nothing
    with caplog.at_level(logging.WARNING):
        then = second.begin("it")
    assert then is not None
    assert (then.told["pushes"], then.told["position"], second.again) == (3, 30, True)
    assert second.boot == first.boot
    second.serve(Served())  # type: ignore[arg-type]
    told = second.counters()
    assert (told["restarts"], told["undone_pushes"], told["undone_examples"]) == (1, 2, 8)
    assert (
        "goes on from 3 pushes; with all restarts 2 pushes, of 8 examples, are lost" in caplog.text
    )


def test_one_that_has_kept_nothing_begins_anew_and_all_is_lost(tmp_path: Path) -> None:
    first = keeping(tmp_path, 2)
    first.begin("it")
    first.pushes[:] += np.array([5, 20], np.uint64)
    first.close()
    second = keeping(tmp_path, 2)
    assert second.begin("it") is None
    assert second.again
    second.serve(Served())  # type: ignore[arg-type]
    assert second.counters()["undone_examples"] == 20
    assert {path.name for path in tmp_path.iterdir()} == {
        "policy-ps-2.snapshot",
        "policy-ps-2.ever",
    }
    assert json.loads((tmp_path / "policy-ps-2.snapshot").read_text())["run"] == "it"


@pytest.mark.parametrize(
    ("index", "servers", "restarts", "found"),
    [(0, 2, True, False), (1, 2, True, True), (1, 2, False, False), (0, 1, True, True)],
)
def test_the_first_of_several_and_those_that_nobody_starts_again_keep_nothing(
    index: int, servers: int, restarts: bool, found: bool
) -> None:
    led: Any = SimpleNamespace(servers=servers, reduces=False, record=None)
    place: Any = SimpleNamespace(restarts=restarts)
    assert keeps(led, place, index) == found
