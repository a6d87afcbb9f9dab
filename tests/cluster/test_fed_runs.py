"""Runs whose rows readers send: checkpoints of them at one cut, and days."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
from cluster.processes import pids
from cluster.test_checkpoints import ALONE, alike, killed, made, running
from cluster.test_readers import report_of, up
from cluster.test_up import PATIENCE
from cluster.test_up_days import DAYS, _trains, told, written

import leashed as lsh
from leashed import cli
from leashed.cluster.checkpoints import Checkpoint, newest
from leashed.datasets.moments import Moments

FED = ("--readers", "2", "--epochs", "40")


@pytest.mark.process
def test_a_run_with_readers_goes_on_to_the_bits_of_one_that_was_not_killed(tmp_path):
    """With two readers, then three, then one and elsewhere."""
    asked = up(tmp_path, *ALONE, *FED)
    assert cli.main(asked) == 0
    whole = lsh.load(tmp_path / "run" / "output")
    folder = tmp_path / "killed"
    words = [*asked[2 : asked.index("--run")], *asked[asked.index("--run") + 2 :]]
    used = Checkpoint(killed(folder, *words)).account.used
    assert 0 < used < 3750
    three = tmp_path / "three"
    shutil.copytree(folder, three)
    assert cli.main(["cluster", "resume", str(three), "--readers", "3"]) == 0
    report = report_of(tmp_path, "three")
    assert report["ledger"]["resumed"] == used
    alike(whole, lsh.load(three / "output"))
    one = ["--readers", "1", "--embedding-servers", "2", "--run", str(tmp_path / "one")]
    assert cli.main(["cluster", "resume", str(folder), *one]) == 0
    report_of(tmp_path, "one")
    alike(whole, lsh.load(tmp_path / "one" / "output"))


@pytest.mark.process
def test_a_reader_that_dies_gives_no_cut_up(tmp_path, capsys):
    """It has nothing to save; and a run that began with readers goes on with some."""
    asked = up(tmp_path, "--trainers", "2", "--readers", "2", "--epochs", "3000")
    folder = tmp_path / "killed"
    words = [*asked[2 : asked.index("--run")], *asked[asked.index("--run") + 2 :]]
    with running(folder, *words) as process:
        made(folder, process)
        os.kill(pids(folder)["reader-0"], signal.SIGKILL)
        found = made(folder, process, 3)
    assert found["given_up"] == 0
    assert Checkpoint(newest(folder)).trainers == [0, 1]
    assert cli.main(["cluster", "resume", str(folder), "--readers", "0"]) == 2
    assert "--readers may be another number, but neither none" in capsys.readouterr().err


@pytest.mark.process
def test_days_with_readers_are_those_of_one_process(tmp_path):
    words = written(tmp_path, 300, 3)
    one, run = tmp_path / "one", tmp_path / "run"
    assert cli.main(["train", *words, "--checkpoint", str(one), "--threads", "1"]) == 0
    count = ["--trainers", "1", "--embedding-servers", "2", "--readers", "2", "--look-ahead", "0"]
    assert cli.main(["cluster", "up", *words, *count, "--sync", "none", "--run", str(run)]) == 0
    same = ("name", "examples", "updates", "click_share", "files", "bad")
    for ours, theirs in zip(told(run), told(one), strict=True):
        assert [ours[name] for name in same] == [theirs[name] for name in same]
    assert told(run)[0]["yesterday"] is None
    assert all(day["yesterday"]["rows"] == 300 for day in told(run)[1:])
    ours, theirs = lsh.load(run / DAYS[2] / "output"), lsh.load(one)
    for mine, other in zip(ours.columns.moments.scales, theirs.columns.moments.scales, strict=True):
        np.testing.assert_allclose(mine, other, rtol=1e-6)  # of the rows of all days
    for name, table in theirs.tables.items():
        np.testing.assert_array_equal(np.sort(ours.tables[name].ids()), np.sort(table.ids()))


@pytest.mark.process
def test_a_day_with_fewer_rows_than_a_batch_is_trained_on(tmp_path):
    words = written(tmp_path, 300, 2)
    path = tmp_path / "logs" / DAYS[1]
    path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:7]))
    run = tmp_path / "run"
    count = ["--trainers", "1", "--embedding-servers", "1", "--readers", "1", "--sync", "none"]
    assert cli.main(["cluster", "up", *words, *count, "--run", str(run)]) == 0
    assert [day["examples"] for day in told(run)] == [300, 7]
    assert [day["updates"] for day in told(run)] == [10, 11]


@pytest.mark.process
@pytest.mark.long
def test_a_reader_is_killed_in_a_day_and_the_command_too(tmp_path):
    run = tmp_path / "run"
    words = [*written(tmp_path, 2000, 2), "--epochs", "20", "--checkpoint-every", "1"]
    count = ["--trainers", "2", "--embedding-servers", "1", "--readers", "2"]
    asked = [sys.executable, "-m", "leashed", "cluster", "up", *words, *count, "--run", str(run)]
    process = subprocess.Popen(asked, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + PATIENCE
    for day in DAYS[:2]:
        while not _trains(run / day) or "reader-0" not in pids(run / day):
            assert time.monotonic() < deadline
            assert process.poll() is None, process.communicate()
            time.sleep(0.02)
        if day == DAYS[0]:
            os.kill(pids(run / day)["reader-0"], signal.SIGKILL)
    process.kill()
    process.communicate()
    while pids(run / DAYS[1]):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    again = subprocess.run(asked, capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert again.returncode == 0, again.stderr
    assert [day["name"] for day in told(run)] == DAYS[:2]
    for day in DAYS[:2]:
        report = json.loads((run / day / "run.json").read_text())
        assert report["state"] == "ended"
        assert report["ledger"]["complete"] == report["ledger"]["total"] == 1250
        assert report["restarts"]["reader-0"] == (day == DAYS[0])


def test_moments_of_two_counts_are_those_of_all_rows():
    drawn = np.random.default_rng(0).normal(3, 2, (100, 3)).astype(np.float32)
    which = [True, False, True]
    begun = Moments.none(which)
    every = Moments.none([True] * 3).merged(drawn[60:])
    assert begun.beside(every) == begun.now(every.native)
    both = begun.merged(drawn[:60]).beside(every)
    whole = begun.merged(drawn)
    assert both.rows == whole.rows == 100
    assert both.which == which
    for mine, other in zip(both.scales, whole.scales, strict=True):
        np.testing.assert_allclose(mine, other, rtol=1e-9)
    assert whole.beside(begun) == whole
