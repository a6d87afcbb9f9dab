"""Runs by a mode on two policy servers of which one is killed again and again, and what is told of them."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

from cluster.processes import pids
from cluster.test_led_modes import started, whole
from cluster.test_up import PATIENCE

from leashed.cluster import mode_table
from leashed.cluster import plan as plans
from leashed.cluster.led_keeping import head_of
from leashed.cluster.measures import counted
from leashed.cluster.plan import Cluster, Plan, Sync, Train
from leashed.files import folders

KILLS, TRAINERS, SERVERS = 3, 2, 2


def plan_of(folder: Path, train: dict[str, Any], **cluster: Any) -> Path:
    """The file of a run's plan, whose policy servers keep what they have ten times a second."""
    place = {"trainers": TRAINERS, "sync_ps": 0, "policy_ps": SERVERS, "run": folder, **cluster}
    path = folder.with_suffix(".toml")
    asked = Cluster(snapshot_every=0.1, grace=PATIENCE / 2, **place)
    plans.write(path, Plan(asked, Sync("none"), Train(**train)))
    return path


def kept(folder: Path, name: str) -> dict[str, Any] | None:
    """What the newest snapshot of that server tells, if it has trained by then."""
    path: Path = folder / f"{name}.snapshot"
    with contextlib.suppress(OSError, ValueError):  # (With tables that one is named with the rows.)
        path = path.with_name(folders.Rows(folder / name, hashed=False).told["mode"])
    told = head_of(path)
    return told if told is not None and told["pushes"] > 0 else None


def later(folder: Path, process: subprocess.Popen[str], name: str, least: int) -> int:
    """Waits for a snapshot with more pushes than that; how many it has, or 0: the run ends before."""
    deadline = time.monotonic() + PATIENCE
    while (told := kept(folder, name)) is None or told["pushes"] <= least:
        if process.poll() is not None:
            return 0
        assert time.monotonic() < deadline, (folder / f"{name}.log").read_text()
        time.sleep(0.01)
    return int(told["pushes"])


def kill(
    folder: Path, process: subprocess.Popen[str], name: str, rng: random.Random, least: int
) -> int:
    """At some moment behind a snapshot with more pushes than that; with how many, or 0: the run ends before."""
    pushes = later(folder, process, name, least)
    if not pushes:
        return 0
    time.sleep(0.2 * rng.random())
    try:
        os.kill(pids(folder)[name], signal.SIGKILL)
    except (KeyError, ProcessLookupError):
        return 0
    return pushes


def played(path: Path, folder: Path, name: str, times: int = KILLS) -> tuple[dict[str, Any], int]:
    """The report of a run whose policy server of that name was killed so often, or less; and how often."""
    process = started("--plan", str(path))
    rng, killed, pushes = random.Random(0), 0, 0
    try:
        while killed < times and (pushes := kill(folder, process, name, rng, pushes)):
            killed += 1
        report = whole(folder, process)
    finally:
        process.kill()
    assert killed
    assert pids(folder) == {}
    left = [path.name for path in folder.iterdir() if path.name.startswith(name)]
    assert not [one for one in left if ".snapshot" in one or ".ever" in one or ".journal" in one]
    return report, killed


def accounted(report: dict[str, Any], name: str, killed: int, batch: int, *, alike: bool) -> None:
    """Each example is done at the first once, and of the other it is told what became of its part."""
    dead = int(name[-1])
    ledger, servers = report["ledger"], counted(report, "policy-ps")
    first, second = (servers[index] for index in range(SERVERS))
    examples = ledger["total"] * batch
    assert ledger["complete"] == ledger["total"]
    assert ledger["undone"] == ledger["again"] == 0
    fates = ("mode_applied", "mode_stale", "mode_straggler", "mode_missing")
    told = [sum(server[fate] for fate in fates) for server in (first, second)]
    moved = [batch * server["mode_exchanges"] for server in (first, second)]
    assert told[0] + moved[0] == examples
    # (What is on its way to who decides by itself when it is killed, and has got to the first, it may hear of
    # before that one has.)
    ways = 0 if alike else killed * TRAINERS * batch
    assert examples - ways <= told[1] + moved[1] <= examples
    one = servers[dead]
    assert one["restarts"] == killed == report["restarts"][name]
    assert one["undone_examples"] == batch * one["undone_pushes"]
    # Beside what was lost with it those are missing that were on their way; what came too late, of that nothing is.
    on_their_way = 2 * killed * TRAINERS * batch
    lost, late = one["undone_examples"], first["mode_straggler"] + one["mode_stale"]
    assert lost - late - on_their_way <= one["mode_missing"] <= lost + on_their_way
    if dead > 0:
        assert first["mode_missing"] == 0
    assert first["strange"] == second["strange"] == 0
    said = dict(mode_table.facts(report))["policy server 1" if dead else "policy server"]
    assert f"parts of {one['undone_pushes']:,.0f} pushes, of {one['undone_examples']:,.0f}" in said


def went_on(path: Path, folder: Path, name: str, batch: int, *, alike: bool) -> dict[str, Any]:
    """The report of a run of that plan whose policy server of that name was killed, once it is ``accounted``."""
    report, killed = played(path, folder, name)
    accounted(report, name, killed, batch, alike=alike)
    return report
