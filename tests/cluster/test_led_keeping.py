"""A policy server that is killed, and started again: the run goes on from what it had kept, no example is lost or
of use twice, and the report tells what was trained anew.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import math
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
from cluster import written
from cluster.processes import pids
from cluster.test_led_modes import started, whole
from cluster.test_up import PATIENCE

import leashed as lsh
from leashed import _core
from leashed.cli import cluster as cli
from leashed.cluster import led_keeping, mode_table
from leashed.cluster import plan as plans
from leashed.cluster.commanding import Commanded
from leashed.cluster.led_commands import Commands
from leashed.cluster.led_keeping import Ever, LedKeeping, Snapshot, head_of, read, write
from leashed.cluster.measures import counted
from leashed.cluster.plan import Cluster, Plan, Sync, Train

ENOUGH = 3  # times that it is killed


def newest(folder: Path) -> int:
    """When the policy server has kept something last; 0: it never has."""
    found = [0]
    for path in kept_in(folder):
        with contextlib.suppress(FileNotFoundError):
            found.append(path.stat().st_mtime_ns)
    return max(found)


def kept_in(folder: Path) -> list[Path]:
    return [path for path in folder.glob("policy-ps-0.snapshot*") if not path.name.endswith("-new")]


def kill(folder: Path, process: subprocess.Popen[str], rng: random.Random) -> bool:
    """The policy server, at some moment behind a snapshot, when it has trained; False: the run ends before."""
    deadline, before = time.monotonic() + PATIENCE, 0
    for _ in range(2):  # (Of a new one the first may be that with which it began.)
        while newest(folder) <= before:
            if process.poll() is not None:
                return False
            assert time.monotonic() < deadline, (folder / "policy-ps-0.log").read_text()
            time.sleep(0.01)
        before = newest(folder)
    time.sleep(0.3 * rng.random())
    try:
        os.kill(pids(folder)["policy-ps-0"], signal.SIGKILL)
    except (KeyError, ProcessLookupError):
        return False
    return True


def closed(report: dict[str, Any], batch: int) -> dict[str, float]:
    """What the policy server has counted, of which nothing is missing."""
    (server,) = counted(report, "policy-ps").values()
    fates = ("mode_applied", "mode_stale", "mode_straggler", "mode_missing")
    examples = server["mode_pushed"] - server["mode_late"]
    whole = report["ledger"]["total"] * batch
    assert whole - batch < examples <= whole, server  # (The last one may have fewer.)
    if not server["mode_exchanges"]:
        assert sum(server[name] for name in fates) == examples, server
    assert server["strange"] == 0
    return dict(server)


def plan_of(folder: Path, trainers: int, **train: Any) -> Path:
    """The file of a run's plan, whose policy server keeps what it has ten times a second."""
    cluster = Cluster(
        trainers=trainers,
        sync_ps=0,
        policy_ps=1,
        run=folder,
        snapshot_every=0.1,
        grace=PATIENCE / 2,
    )
    path = folder.with_suffix(".toml")
    plans.write(path, Plan(cluster, Sync("none"), Train(**train)))
    return path


def played(
    folder: Path, trainers: int, times: int = ENOUGH, **train: Any
) -> tuple[dict[str, Any], dict[str, float]]:
    """The report of a run whose policy server was killed so often, and what that has counted."""
    process = started("--plan", str(plan_of(folder, trainers, **train)))
    rng, killed = random.Random(0), 0
    try:
        while killed < times and kill(folder, process, rng):
            killed += 1
        report = whole(folder, process)
    finally:
        process.kill()
    assert killed
    server = closed(report, train.get("batch_size", 64))
    assert server["restarts"] == killed == report["restarts"]["policy-ps-0"]
    assert pids(folder) == {}
    assert kept_in(folder) == []
    return report, server


LONG = {"epochs": 100.0, "lr": 0.05}  # 15,625 batches
MODES = ["sync", "gba:m=3,iota=4", "easgd:alpha=0.5,gap=2"]


@pytest.mark.process(1)
@pytest.mark.parametrize("mode", MODES)
def test_a_run_goes_on_when_its_policy_server_is_killed(mode: str, tmp_path: Path) -> None:
    report, server = played(tmp_path / "run", 3, mode=mode, **LONG)
    assert report["test_accuracy"] > 0.9
    sent = sum(each["examples"] for each in counted(report, "trainer").values())
    heard = server["mode_pushed"] + server["undone_examples"]
    assert heard <= sent <= heard + ENOUGH * 3 * 64  # what was on its way at each kill
    told = dict(mode_table.facts(report))["policy server"]
    assert told.startswith("started again ")
    assert f"; {server['undone_examples']:,.0f} examples" in told


@pytest.mark.process(1)
@pytest.mark.parametrize("mode", ["sync", "gba:m=4,iota=4"])
def test_one_worker_has_the_bits_of_one_process(mode: str, tmp_path: Path) -> None:
    how = {"mode": mode, "rule": "momentum", **LONG}
    report, server = played(tmp_path / "run", 1, **how)
    problem = plans.read(tmp_path / "run" / "plan.toml").problem()
    alone = lsh.train(
        problem.model,
        problem.train,
        mode=mode,
        rule=lsh.rules.Momentum(0.05),
        threads=1,
        batch_size=64,
        until=lsh.until(epochs=100),
    )
    found = lsh.load(tmp_path / "run" / "output.safetensors").parameters
    np.testing.assert_array_equal(found, alone.parameters)
    assert server["mode_applied"] == alone.mode.applied
    assert server["mode_updates"] == alone.total_updates
    assert report["ledger"]["undone"] * 64 <= server["undone_examples"]


def clicks(folder: Path, mode: str) -> dict[str, Any]:
    """A training of a model with tables that grow, of 20,000 batches."""
    data, schema = written.clicks(folder)
    return {
        "mode": mode, "model": "dlrm", "data": str(data), "schema": str(schema),
        "table_mib": 1.0, "dim": 4, "batch_size": 30, "epochs": 200.0,
    }  # fmt: skip


def rows_of(folder: Path) -> tuple[Any, dict[str, Any]]:
    """Parameters, and the rows of each table."""
    found = lsh.load(folder / "output")
    ids = np.arange(100, dtype=np.uint64)
    return found.parameters, {name: table.lookup(ids) for name, table in found.tables.items()}


@pytest.mark.process
def test_rows_are_of_the_moment_of_what_the_run_goes_on_from(tmp_path: Path) -> None:
    how = clicks(tmp_path, "sync")
    _, server = played(tmp_path / "killed", 1, **how)
    process = started("--plan", str(plan_of(tmp_path / "lives", 1, **how)))
    try:
        lived = closed(whole(tmp_path / "lives", process), 30)
    finally:
        process.kill()
    assert server["mode_updates"] == lived["mode_updates"]
    assert server["rows"] == lived["rows"]
    parameters, tables = rows_of(tmp_path / "killed")
    alone, others = rows_of(tmp_path / "lives")
    np.testing.assert_array_equal(parameters, alone)
    for name, rows in tables.items():
        np.testing.assert_array_equal(rows, others[name], err_msg=name)


@pytest.mark.process
def test_a_run_with_tables_goes_on_when_its_policy_server_is_killed(tmp_path: Path) -> None:
    report, server = played(tmp_path / "run", 2, **clicks(tmp_path, "gba:m=2,iota=4"))
    assert report["test_auc"] > 0.6
    assert server["undone_examples"] > 0


def snapshot(pushes: int) -> Snapshot:
    vectors = np.arange(8, dtype=np.float32).reshape(2, 4)
    nothing = np.empty(0, np.float32)
    state = _core.Resumption(
        vectors=vectors,
        last_updates=np.array([0.5], np.float32),
        updates=7,
        batches=9,
        initial_loss=math.nan,
        staleness=[1, 2, 3],
        behind=nothing,
        shrink=(0.1, [0.25, 1 / 3], 4),
        mode=(np.array([1, 1 << 63], np.uint64), vectors[0]),
    )
    return Snapshot({"run": "it", "pushes": pushes}, state, np.array([5, 6], np.uint64))


def test_what_is_kept_is_read_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "kept"
    with path.open("wb") as file:
        write(file, kept := snapshot(3))
    found = read(path)
    assert found.told["pushes"] == head_of(path)["pushes"] == 3  # type: ignore[index]
    np.testing.assert_array_equal(found.served, kept.served)
    for name in ("vectors", "last_updates", "behind"):
        np.testing.assert_array_equal(getattr(found.state, name), getattr(kept.state, name))
    for mine, its in zip(found.state.mode, kept.state.mode, strict=True):
        np.testing.assert_array_equal(mine, its)
    assert found.state.staleness == kept.state.staleness
    assert found.state.shrink == kept.state.shrink
    assert (found.state.updates, found.state.batches) == (7, 9)
    content = path.read_bytes()
    for end in (len(content) - 1, len(content) // 2, 3):
        path.write_bytes(content[:end])
        with pytest.raises(ValueError, match=r"kept is damaged: remove it"):
            read(path)
    for place in (-1, content.index(b'"pushes": 3') + 10):
        changed = bytearray(content)
        changed[place] ^= 1
        path.write_bytes(changed)
        with pytest.raises(ValueError, match=r"kept is damaged: .*checksum"):
            read(path)
    assert head_of(path) is None
    for line in (b"5", b"[]", b"{}"):
        path.write_bytes(line + b"\n")
        assert head_of(path) is None
    assert head_of(tmp_path / "nothing") is None


def test_what_there_ever_was_outlives_a_process_and_is_of_one_run(tmp_path: Path) -> None:
    path = tmp_path / "ever"
    first = Ever(path)
    assert not first.of("it")
    first.begin("it")
    boot = first.boot
    first.pushes[:] += np.array([2, 64], np.uint64)
    first.commands += 1
    with pytest.raises(BlockingIOError, match="another policy server of the run still has it"):
        Ever(path)
    first.close()
    second = Ever(path)
    assert second.of("it")
    assert not second.of("another")
    second.begin("it")
    assert (second.boot, second.lives, second.commands) == (boot, 2, 1)
    assert second.pushes.tolist() == [2, 64]
    second.begin("another")
    assert second.boot != boot
    assert (second.lives, second.commands, second.pushes.tolist()) == (1, 0, [0, 0])
    second.remove()
    second.close()
    assert not path.exists()


class Served:
    """What is kept of a server of the core's, which has done so many of 10 batches."""

    def __init__(self) -> None:
        self.told = {"done": 0, "failure": "", "updates": 0, "elapsed": 0.0}
        self.counted = {
            "pushes": 0, "pushed_examples": 0, "summed": 0, "summed_examples": 0, "commands": 0,
        }  # fmt: skip
        self.ended = False
        self.is_home, self.stays = True, False

    def standing(self) -> dict[str, Any]:
        return self.told

    def counters(self) -> dict[str, Any]:
        return self.counted

    def quiet(self, f: Any) -> None:
        f()

    def stay_home(self, stays: bool) -> None:
        self.stays = stays

    def keep(self, _: int) -> Any:
        assert self.is_home
        kept = snapshot(0)
        return (kept.state, 1), kept.served, 0

    def let_end(self) -> None:
        self.ended = True


def rows() -> Any:
    """Tables that nothing was saved of."""
    return SimpleNamespace(
        told=lambda: None,
        begin=lambda *_, **__: None,
        report=lambda: {"row_bytes": 0.0},
        beside=None,
    )


MADE: list[LedKeeping] = []


@pytest.fixture(autouse=True)
def closed_at_the_end() -> Iterator[None]:
    yield
    while MADE:
        MADE.pop().close()


def keeping(folder: Path, tables: Any = None) -> LedKeeping:
    led: Any = SimpleNamespace(batches=10, batch_size=4, examples=40)
    place: Any = SimpleNamespace(folder=folder, snapshot_every=1000.0)
    MADE.append(LedKeeping(led, place, tables))
    return MADE[-1]


def serving(folder: Path, tables: Any = None) -> tuple[LedKeeping, Any]:
    """Of a run that begins."""
    kept, server = keeping(folder, tables), Served()
    assert kept.begin("it") is None
    kept.serve(server, lambda: (0.5, 0, 0))  # type: ignore[arg-type]
    return kept, server


def told_in(folder: Path) -> dict[str, Any]:
    told = head_of(folder / "policy-ps-0.snapshot")
    assert told is not None
    return told


def test_a_command_is_kept_where_nothing_was_pushed_since(tmp_path: Path) -> None:
    kept, server = serving(tmp_path)
    server.counted["commands"] = 1
    kept.commanded(1)
    kept.keep(0, done=False)
    assert told_in(tmp_path)["sums"] == []  # it is yet to be told
    kept.commanded(0)
    kept.keep(0, done=False)
    assert (told_in(tmp_path)["commands"], kept.counters()["snapshots"]) == (1, 1)
    kept.keep(0, done=False)
    assert kept.counters()["snapshots"] == 1


def test_the_end_is_kept_before_anybody_is_told_it_also_where_nobody_has_pushed(
    tmp_path: Path,
) -> None:
    kept, server = serving(tmp_path)
    server.told["done"] = 40  # since one has left for whom the others waited
    kept.keep(0, done=True)
    assert (told_in(tmp_path)["batches"], server.ended) == (10, True)


def test_what_workers_have_is_waited_for_while_all_else_goes_on(tmp_path: Path) -> None:
    kept, server = serving(tmp_path)
    server.is_home = False
    server.counted["summed"] = 3
    kept.commanded(0)  # so that it is due
    kept.keep(3, done=False)
    assert (kept.waits, kept.still(1000.0), server.stays) == (True, True, True)
    assert not kept.still(0.0)  # there is something else to do
    server.told["done"] = 40
    kept.keep(3, done=True)
    assert told_in(tmp_path)["sums"] == []
    assert not server.ended
    server.is_home = True
    assert not kept.still(1000.0)
    kept.keep(3, done=True)
    assert (kept.waits, server.stays, server.ended) == (False, False, True)
    told = told_in(tmp_path)
    assert (told["pushes"], told["batches"]) == (3, 10)


@pytest.mark.parametrize("with_rows", [False, True])
def test_what_workers_do_not_send_at_an_end_leaves_what_was_kept_before(
    with_rows: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(led_keeping, "_COMES", 0.0)
    kept, server = serving(tmp_path, rows() if with_rows else None)
    kept.commanded(0)
    kept.moment() if with_rows else kept.keep(0, done=False)
    server.is_home = False
    server.counted["summed"] = 3
    with pytest.raises(KeyboardInterrupt), kept.left():
        raise KeyboardInterrupt
    assert server.stays
    if with_rows:
        with pytest.raises(OSError, match="workers have parameters that they have not sent"):
            kept.moment()
    else:
        assert told_in(tmp_path)["pushes"] == 0
        assert kept.counters()["snapshots_failed"] == 1


def test_nobody_goes_on_from_what_a_mode_that_failed_has_become(tmp_path: Path) -> None:
    kept, server = serving(tmp_path)
    server.counted["pushes"] = 3
    server.told["failure"] = "it is broken"
    with pytest.raises(ValueError, match="it ends"), kept.left():
        raise ValueError("it ends")
    assert told_in(tmp_path)["sums"] == []
    kept.close()
    kept, server = serving(tmp_path, rows())
    server.told["failure"] = "it is broken"
    kept.moment()
    assert kept.put() == {}
    kept.was_put({})


def test_what_cannot_be_written_beside_rows_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept, _ = serving(tmp_path, rows())
    kept.moment()

    def full(file: Any, _: Snapshot) -> None:
        file.write(b"something")
        raise OSError(errno.ENOSPC, "no space")

    with monkeypatch.context() as patched:
        patched.setattr(led_keeping, "write", full)
        with pytest.raises(OSError, match="no space"):
            kept.put()
    assert [path.name for path in kept_in(tmp_path)] == ["policy-ps-0.snapshot"]
    kept.put()  # and then the rows cannot be
    second = kept.put()["mode"]
    names = {path.name for path in kept_in(tmp_path)}
    assert names == {"policy-ps-0.snapshot", second}


def test_of_a_process_before_this_one_nothing_is_left_that_is_of_another_moment(
    tmp_path: Path,
) -> None:
    (left := tmp_path / "policy-ps-0.npz").write_bytes(b"of another run")
    first, _ = serving(tmp_path)
    assert left.exists()
    first.close()
    serving(tmp_path)
    assert not left.exists()


def test_what_was_kept_and_cannot_be_read_is_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    first, _ = serving(tmp_path)
    first.close()
    (tmp_path / "policy-ps-0.snapshot").write_bytes(b"{")
    again = keeping(tmp_path)
    with caplog.at_level(logging.WARNING):
        assert again.offer() is None
    assert "nothing can be read of what a policy server before this one has kept" in caplog.text


def test_another_run_in_the_folder_finds_nothing_of_what_was_kept(tmp_path: Path) -> None:
    kept, _ = serving(tmp_path, rows())
    kept.moment()
    kept.put()
    kept.close()
    assert list(tmp_path.iterdir())
    cli._clear(tmp_path)
    assert not list(tmp_path.iterdir())


def test_what_rows_have_cost_is_of_all_processes_of_a_server() -> None:
    def member(id_: int, gone: float | None) -> dict[str, Any]:
        told = {"row_moved": 10.0 * id_, "row_least": 5.0, "mode_pushed": 64.0}
        return {
            "role": "policy-ps", "index": 0, "id": id_, "before": 0, "joined": id_,
            "gone": gone, "finished": False, "counters": told, "counted": 2.0,
        }  # fmt: skip

    (server,) = counted({"members": [member(1, 2.0), member(2, None)]}, "policy-ps").values()
    assert (server["row_moved"], server["row_least"], server["mode_pushed"]) == (30.0, 10.0, 64.0)


def test_who_goes_on_is_told_also_what_had_come_due_and_was_not_told_yet() -> None:
    commanded: Any = SimpleNamespace(tell=lambda *_, **__: None, goes_on=lambda *_: None)

    def commands(passed: float, told: int) -> Commands:
        led: Any = SimpleNamespace(passed=0.0, commands=[(2.0, 1), (1.0, 0), (1e6, 1)])
        made = Commands(led, commanded)
        made.goes_on(passed, told, 0, 0)
        return made

    here = commands(0.0, 0)
    here.tell(SimpleNamespace(), began=True)  # type: ignore[arg-type]
    here._began -= 1.5
    here.tell(SimpleNamespace(), began=True)  # type: ignore[arg-type]
    assert (here.told, 1.0 < here.reached < 2.0) == (1, True)
    here._began -= 10.0  # the second is due, and nobody has looked since
    assert here.passed > 2.0
    assert commands(here.reached, here.told).left == here.left == [(2.0, 1), (1e6, 1)]


def test_a_command_is_counted_before_it_is_told_and_kept_behind_that() -> None:
    heard: list[object] = []

    def command(argument: int) -> None:
        if argument > 1:
            raise ValueError("it knows no such command")
        heard.append(f"told {argument}")

    server: Any = SimpleNamespace(command=command)
    commanded = Commanded(None, lambda _: False, heard.append)  # type: ignore[arg-type]
    commanded.tell(server, 1, "somebody")
    with pytest.raises(ValueError, match="no such"):
        commanded.tell(server, 2, "somebody")
    assert heard == [1, "told 1", 0, 1, -1]


@pytest.mark.process
def test_what_the_mode_was_told_is_kept(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    process = started("--plan", str(plan_of(folder, 2, mode="switching:m=2,iota=4", **LONG)))
    try:
        assert kill(folder, process, random.Random(0))
        deadline = time.monotonic() + PATIENCE
        while True:
            with contextlib.suppress(OSError):  # it is not back yet
                lsh.cluster.command(folder, "gba")
                break
            assert time.monotonic() < deadline
            time.sleep(0.05)
        assert kill(folder, process, random.Random(1))  # behind a snapshot, which has it
        report = whole(folder, process)
    finally:
        process.kill()
    server = closed(report, 64)
    assert server["restarts"] == 2
    assert server["undone_commands"] == 0
    assert dict(mode_table.facts(report))["commands"] == "1, the last to be gba"
    assert server["mode_data_staleness"] > 0  # which Sync has none of
