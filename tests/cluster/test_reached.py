"""Runs that are broken off: what they had reached is there, and commands find it."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from cluster import faults
from cluster.handing import handed_in

import leashed as lsh
from leashed.cluster.supervisor import Supervisor, command, name_of

PATIENCE = 120.0  # seconds after which something that should happen does not


def leashed(*words: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "leashed", *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=False)


@pytest.mark.process(1)
@pytest.mark.parametrize(
    ("sync", "number"), [("easgd", signal.SIGKILL), ("ma", signal.SIGKILL), ("ma", signal.SIGINT)]
)
def test_a_run_that_is_broken_off(sync: str, number: int, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    up = [
        sys.executable, "-m", "leashed", "cluster", "up", "--sync", sync, "--epochs", "100000",
        "--lr", "0.05", "--batch-size", "32", "--run", str(folder),
    ]  # fmt: skip
    process = subprocess.Popen(up, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        wanted = [folder / ("sync-ps-0.snapshot" if sync == "easgd" else "trainer-0.kept")]
        wanted += [folder / "run.json"]
        deadline = time.monotonic() + PATIENCE
        while not all(each.exists() for each in wanted) or complete(folder) < 400:
            assert time.monotonic() < deadline, "it does not begin"
            assert process.poll() is None
            time.sleep(0.05)
        going_on = leashed("cluster", "status", folder)
        assert (going_on.returncode, going_on.stdout[:8]) == (0, "running:")
        too_early = leashed("cluster", "report", folder)
        assert too_early.returncode == 2
        assert "goes on; see how with: leashed cluster status" in too_early.stderr
        process.send_signal(number)
        status = process.wait(PATIENCE)
    finally:
        process.kill()
        process.wait()
    if number == signal.SIGINT:
        assert status == 130
        assert (folder / "output.safetensors").exists()
    # (Who was killed has nobody left after some moments, and the lock is free.)
    while (told := leashed("cluster", "status", folder)).stdout.startswith("running"):
        assert time.monotonic() < deadline
    assert told.returncode == 75
    assert told.stdout.startswith("interrupted" if number == signal.SIGKILL else "incomplete")
    reported = leashed("cluster", "report", folder)
    assert reported.returncode == 75, reported.stderr
    assert "its model is in" in reported.stdout
    if number == signal.SIGKILL:
        words = "w^PS, of the sync servers' last snapshots" if sync == "easgd" else "had kept when"
        assert words in reported.stdout
    model, parameters = lsh.load(folder / "output.safetensors")
    test = lsh.datasets.synthetic_digits().test
    assert model.evaluate(parameters, test)[1] > 0.7


@pytest.mark.process(1)
@pytest.mark.parametrize("sync", ["easgd", "ma"])
def test_who_left_early_does_not_decide_what_a_run_had_reached(sync: str, tmp_path: Path) -> None:
    """One is told to end soon, the others are broken off much later."""
    folder = tmp_path / "run"
    plan = faults.make_plan(
        folder, sync, "background", epochs=1e5, trainers=2, keep=0.3, timeout=1.5
    )
    names = plan.cluster.processes()
    with Supervisor(names, command(folder / "plan.toml"), folder, restarts=5) as supervisor:
        wait(lambda: (folder / "run.json").exists() and complete(folder) > 20, supervisor)
        os.kill(supervisor.pids()["trainer-1"], signal.SIGTERM)
        wait(lambda: "trainer-1" in handed_in(folder), supervisor)
        wait((folder / "trainer-0.kept").exists, supervisor)
        left = time.monotonic()
        wait(lambda: time.monotonic() > left + 4.0, supervisor)
        os.kill(supervisor.pids()["master"], signal.SIGINT)
        wait(
            lambda: json.loads((folder / "run.json").read_text())["state"] != "running", supervisor
        )
    reported = leashed("cluster", "report", folder)
    words = "w^PS, of the sync servers' last snapshots" if sync == "easgd" else "had kept when"
    said = ": no trainer but trainer 1, gone before the end, has handed in its parameters"
    assert words in reported.stdout
    assert said in reported.stdout
    for each in folder.glob("*.snapshot"):
        each.unlink()
    (folder / "trainer-0.kept").unlink()
    # What it had kept is no later than what it has handed in, and may be told as of the same moment.
    at = handed_in(folder)["trainer-1"].stat().st_mtime_ns
    os.utime(folder / "trainer-1.kept", ns=(at, at))
    output = re.search("output  *(.*)", leashed("cluster", "report", folder).stdout)
    assert output is not None
    assert output[1].strip() == "trainer 1"


@pytest.mark.process(1)
@pytest.mark.parametrize("sync", ["easgd", "ma"])
def test_a_run_on_a_machine_that_is_shut_down_goes_on_after_it(sync: str, tmp_path: Path) -> None:
    """All are told to end at once, by whoever starts them by hand, and started again."""
    folder = tmp_path / "run"
    servers = int(sync == "easgd")
    plan = faults.make_plan(
        folder, sync, "background", epochs=60.0, trainers=2, sync_ps=servers, keep=0.3
    )
    names = plan.cluster.processes()

    def start() -> dict[str, subprocess.Popen[bytes]]:
        of = command(folder / "plan.toml")
        return {
            name_of(*each): subprocess.Popen(of(*each), stdout=subprocess.DEVNULL) for each in names
        }

    end = time.monotonic() + PATIENCE
    kept = [folder / f"trainer-{k}.kept" for k in range(2)]
    for last in (False, True):
        processes = start()
        try:
            while not last and not (all(each.exists() for each in kept) and complete(folder) > 100):
                assert time.monotonic() < end
                time.sleep(0.05)
            for process in () if last else processes.values():
                process.send_signal(signal.SIGTERM)
            statuses = {name: each.wait(PATIENCE) for name, each in processes.items()}
        finally:
            for process in processes.values():
                process.kill()
                process.wait()
        report = json.loads((folder / "run.json").read_text())
        assert report["state"] == ("ended" if last else "running")
        told = dict.fromkeys(statuses, 0 if last else 130)
        assert statuses == {
            name: 0 if name.startswith("trainer") else n for name, n in told.items()
        }
        assert report["results"] == ["trainer-0", "trainer-1"]
    assert report["ledger"]["complete"] == report["ledger"]["total"]
    reported = leashed("cluster", "report", folder)
    output = re.search("output  *(.*)", reported.stdout)
    assert output is not None
    assert output[1].strip() == "trainer 0"
    model, parameters = lsh.load(folder / "output.safetensors")
    assert model.evaluate(parameters, lsh.datasets.synthetic_digits().test)[1] > 0.85


def wait(until: Callable[[], bool], supervisor: Supervisor) -> None:
    end = time.monotonic() + PATIENCE
    while not until():
        assert time.monotonic() < end
        supervisor.step()
        time.sleep(0.05)


def complete(folder: Path) -> int:
    return int(json.loads((folder / "run.json").read_text())["ledger"]["complete"])


def test_what_is_no_run_is_told(tmp_path: Path) -> None:
    told = leashed("cluster", "status", tmp_path)
    assert told.returncode == 2
    assert f"{tmp_path} has no run.json: give the folder of a run's master" in told.stderr
