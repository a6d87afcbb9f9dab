"""A policy server behind the first of several that is killed, and started again: the run goes on, what was lost
with it is missing for its part alone, and the report tells how much that is.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from cluster.led_kills import plan_of, went_on
from cluster.test_led_keeping import LONG, clicks, snapshot

import leashed as lsh
from leashed.cluster.checkpoints import Checkpoint, newest
from leashed.cluster.led_keeping import keeps
from leashed.cluster.led_part_keeping import PartKeeping

KILLED = "policy-ps-1"

MODES = ["gba:m=3,iota=4", "easgd:alpha=0.5,gap=2", "ssp:s=3", "sync", "hop_bw:b3=1"]


@pytest.mark.process(1)
@pytest.mark.parametrize("mode", MODES)
def test_a_run_goes_on_when_its_second_policy_server_is_killed(mode: str, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    alike = mode.startswith(("sync", "hop_bw"))
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
    ("servers", "reduces", "record", "restarts", "found"),
    [(2, False, None, True, True), (2, True, None, True, False), (1, True, None, True, True),
     (1, False, ("a", "b"), True, False), (1, False, None, False, False)],
)  # fmt: skip
def test_those_that_nobody_starts_again_keep_nothing(
    servers: int, reduces: bool, record: Any, restarts: bool, found: bool
) -> None:
    led: Any = SimpleNamespace(servers=servers, reduces=reduces, record=record)
    place: Any = SimpleNamespace(restarts=restarts)
    assert keeps(led, place) == found
