"""Runs that are broken off: what they had reached is there, and commands find it."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import leashed as lsh

PATIENCE = 120.0  # seconds after which something that should happen does not


def leashed(*words: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "leashed", *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=False)


@pytest.mark.process
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


def complete(folder: Path) -> int:
    return int(json.loads((folder / "run.json").read_text())["ledger"]["complete"])


def test_what_is_no_run_is_told(tmp_path: Path) -> None:
    told = leashed("cluster", "status", tmp_path)
    assert told.returncode == 2
    assert f"{tmp_path} has no run.json: give the folder of a run's master" in told.stderr
