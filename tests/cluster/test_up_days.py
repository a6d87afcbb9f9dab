"""``leashed cluster up --days``: five days of clicks, each from where the day before has ended."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from cluster.processes import pids
from cluster.test_up import PATIENCE

import leashed as lsh
from leashed import cli
from leashed.cluster import plan as plans
from leashed.cluster.checkpoints import newest
from leashed.datasets import synthetic_click_lines

DAYS = [f"day-{k}.tsv" for k in range(1, 6)]


def written(folder: Path, rows: int, days: int = 5) -> list[str]:
    """Days of clicks; the arguments that train on them."""
    (folder / "logs").mkdir(exist_ok=True)
    for day, name in enumerate(DAYS[:days]):
        lines = synthetic_click_lines(rows, 0, day=day, drift=0.1, cardinalities=200)
        (folder / "logs" / name).write_bytes(b"".join(lines))
    model = [
        "--model",
        "dlrm",
        "--dim",
        "4",
        "--bottom",
        "16,4",
        "--hidden",
        "16",
        "--table-mib",
        "2",
    ]
    how = ["--rule", "adagrad", "--lr", "0.05", "--batch-size", "32"]
    return [*model, *how, "--days", str(folder / "logs" / "day-*.tsv")]


def told(run: Path) -> list[dict]:
    """What is written of days that are done."""
    return json.loads((run / "days.json").read_text())["done"]


@pytest.mark.process
def test_days_are_those_of_one_process(tmp_path, capsys):
    words = written(tmp_path, 300, 3)
    one, run = tmp_path / "one", tmp_path / "run"
    assert cli.main(["train", *words, "--checkpoint", str(one), "--threads", "1"]) == 0
    up = ["--trainers", "1", "--embedding-servers", "2", "--look-ahead", "0", "--sync", "none"]
    assert cli.main(["cluster", "up", *words, *up, "--run", str(run)]) == 0
    assert "day-3.tsv" in capsys.readouterr().out
    same = ("name", "examples", "updates", "click_share", "files", "bad")
    for ours, theirs in zip(told(run), told(one), strict=True):
        assert [ours[name] for name in same] == [theirs[name] for name in same]
    assert told(run)[0]["yesterday"] is None
    assert all(day["yesterday"]["rows"] == 300 for day in told(run)[1:])
    ours, theirs = lsh.load(run / DAYS[2] / "output"), lsh.load(one)
    row = lsh.stream.criteo(tmp_path / "logs" / DAYS[0]).read(1)  # standardised by the same
    assert ours.predict(row).shape == theirs.predict(row).shape
    for name, table in theirs.tables.items():
        np.testing.assert_array_equal(np.sort(ours.tables[name].ids()), np.sort(table.ids()))


@pytest.mark.process
def test_days_that_are_done_are_not_trained_again_and_more_may_come(tmp_path, capsys):
    words = written(tmp_path, 300, 2)
    up = ["cluster", "up", *words, "--embedding-servers", "1", "--run", str(tmp_path / "run")]
    assert cli.main(up) == 0
    report = tmp_path / "run" / DAYS[1] / "run.json"
    before = report.read_bytes()
    written(tmp_path, 300, 3)
    assert cli.main(up) == 0
    assert report.read_bytes() == before
    assert [day["name"] for day in told(tmp_path / "run")] == DAYS[:3]
    assert [day["updates"] for day in told(tmp_path / "run")] == [10, 20, 30]
    capsys.readouterr()
    (tmp_path / "logs" / DAYS[0]).unlink()
    assert cli.main(up) == 2
    assert "days that --days does not name: day-1.tsv" in capsys.readouterr().err


@pytest.mark.process(1)
@pytest.mark.parametrize("readers", [0, 1])
def test_each_role_is_killed_and_the_command_too(readers, tmp_path):
    run = tmp_path / "run"
    words = [*written(tmp_path, 2000), "--epochs", "20", "--checkpoint-every", "0.3"]
    servers = ["--trainers", "2", "--embedding-servers", "2", "--readers", str(readers)]
    up = [sys.executable, "-m", "leashed", "cluster", "up", *words, *servers, "--run", str(run)]
    third = "reader-0" if readers else "sync-ps-0"
    deaths = dict(zip(DAYS, ["trainer-1", "embedding-ps-0", third, "master-0", None], strict=True))
    process = subprocess.Popen(up, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + PATIENCE
    for day, name in deaths.items():
        while True:
            found = pids(run / day) if _trains(run / day) else {}
            if found and (name is None or name in found):
                break
            assert time.monotonic() < deadline
            assert process.poll() is None, process.communicate()
            time.sleep(0.02)
        if name is not None:
            os.kill(found[name], signal.SIGKILL)
    process.kill()
    process.communicate()
    while pids(run / DAYS[-1]):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    again = subprocess.run(up, capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert again.returncode == 0, again.stderr
    assert [day["name"] for day in told(run)] == DAYS
    for day, name in deaths.items():
        report = json.loads((run / day / "run.json").read_text())
        assert report["state"] == "ended"
        assert report["ledger"]["complete"] == report["ledger"]["total"] == 1250
        if name is not None:
            known = name.removesuffix("-0") if name == "master-0" else name
            assert report["restarts"][known] == 1
    scores = [day["yesterday"]["auc"] for day in told(run)[1:]]
    assert np.mean(scores) > 0.54  # of twenty passes, that is, by heart
    assert lsh.load(run / DAYS[-1] / "output").tables


def _trains(day: Path) -> bool:
    """Whether there is a checkpoint of it, with batches that are left."""
    return any((day / "checkpoints").glob("*/manifest.json"))


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (["--days", "there-is-none-*.tsv", "--run", "r"], "there-is-none"),
        (["--days", "a.tsv"], "--days takes --run FOLDER"),
        (["--days", "a.tsv", "--run", "r", "--output", "best"], "--output best goes by a test set"),
        (["--days", "a.tsv", "--run", "r", "--data", "b.tsv"], "--data does not go with --days"),
    ],
)
def test_wrong_words_are_refused(wrong, said, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.tsv").write_text("")
    up = ["cluster", "up", "--model", "dlrm", "--embedding-servers", "1", *wrong]
    assert cli.main(up) == 2
    assert said in capsys.readouterr().err


def test_other_models_have_no_days(tmp_path, capsys):
    up = ["cluster", "up", "--days", str(tmp_path / "a"), "--run", str(tmp_path / "r")]
    assert cli.main(up) == 2
    assert "--days" in capsys.readouterr().err


@pytest.mark.process
@pytest.mark.long
def test_a_day_with_fewer_rows_than_a_batch_is_one_batch(tmp_path):
    """As in one process; and the first day may begin with what another run has ended with."""
    words = written(tmp_path, 300, 3)
    few = tmp_path / "logs" / DAYS[1]
    few.write_bytes(b"".join(few.read_bytes().splitlines(keepends=True)[:20]))
    one, run = tmp_path / "one", tmp_path / "run"
    assert cli.main(["train", *words, "--checkpoint", str(one), "--threads", "1"]) == 0
    up = ["--trainers", "1", "--embedding-servers", "1", "--look-ahead", "0", "--sync", "none"]
    assert cli.main(["cluster", "up", *words, *up, "--run", str(run)]) == 0
    same = ("name", "examples", "updates", "click_share", "files", "bad")
    for ours, theirs in zip(told(run), told(one), strict=True):
        assert [ours[name] for name in same] == [theirs[name] for name in same]
    assert [day["examples"] for day in told(run)] == [300, 20, 300]
    plan = plans.read(run / DAYS[2] / "plan.toml")
    begins = newest(run / DAYS[2])
    again = replace(plan.cluster, run=tmp_path / "more", resume=begins)
    plans.write(tmp_path / "more.toml", replace(plan, cluster=again))
    assert cli.main(["cluster", "up", "--plan", str(tmp_path / "more.toml")]) == 0
    first = plans.read(tmp_path / "more" / DAYS[0] / "plan.toml")
    assert first.cluster.resume == begins
    assert told(tmp_path / "more")[0]["updates"] == told(run)[0]["updates"]
