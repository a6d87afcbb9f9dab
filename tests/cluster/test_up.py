"""``leashed cluster up`` with real roles: they train, are killed, and the ledger adds up."""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from cluster import written
from cluster.processes import pids

import leashed as lsh
from leashed import cli
from leashed.cluster import plan as plans
from leashed.cluster import run_table
from leashed.cluster.measures import counted, lives

PATIENCE = 120.0


def outlives(
    arguments: Sequence[str], folder: Path, name: str, begun: Callable[[Path], bool]
) -> None:
    """``leashed`` with these, whose run in the folder ends well though a process of it is killed once it
    has begun.
    """
    process = subprocess.Popen(
        [sys.executable, "-m", "leashed", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    deadline = time.monotonic() + PATIENCE
    with process:
        while not begun(folder) or name not in (now := pids(folder)):
            assert time.monotonic() < deadline
            assert process.poll() is None, process.communicate()
            time.sleep(0.02)
        os.kill(now[name], signal.SIGKILL)
        _, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0, err


def check(folder: Path) -> dict:
    """What every run's end has; its report."""
    report = json.loads((folder / "run.json").read_text())
    assert report["state"] == "ended"
    ledger = report["ledger"]
    assert ledger["complete"] == ledger["total"]
    assert ledger["outstanding"] == ledger["free"] == 0
    model, parameters = lsh.load(folder / "output.safetensors")
    assert len(parameters) == model.dimension
    assert pids(folder) == {}
    return report


@pytest.mark.process
@pytest.mark.parametrize("sync", ["easgd", "ma", "none"])
def test_two_trainers_train_every_batch_once(sync, tmp_path, capsys):
    folder = tmp_path / "run"
    data = written.digits(tmp_path / "digits")
    arguments = ["--data", str(data), "--sync", sync, "--epochs", "2", "--output", "average"]
    assert cli.main(["cluster", "up", *arguments, "--run", str(folder)]) == 0
    report = check(folder)
    assert report["ledger"]["total"] == 313  # ⌈2 · 10,000 / 64⌉
    assert report["ledger"]["again"] == 0
    assert sum(report["restarts"].values()) == 0
    assert ("sync-ps-0" in report["restarts"]) == (sync == "easgd")
    for name in ("master", "trainer-0", "trainer-1"):
        log = (folder / f"{name}.log").read_text()
        assert f"INFO {name} begins" in log
        assert f"INFO {name} has ended" in log
    assert sum(each["batches_used"] for each in report["summaries"].values()) == 313
    assert [each["lives"] for each in _rows(report)] == ["1", "1", "2"]
    # Through shared memory, of whose bytes the kernel knows nothing.
    assert all(each["kernel_out"] is None for each in report["traffic"].values())
    assert ("packing" in report) == (sync == "easgd")
    out = capsys.readouterr().out
    assert "average of 2 trainers" in out
    page = tmp_path / "page.html"
    assert cli.main(["report", str(folder), "-o", str(page)]) == 0
    assert page.stat().st_size > 10_000


@pytest.mark.process
@pytest.mark.parametrize(
    ("model", "told", "given"),
    [
        ("logistic_regression", "test accuracy", ["--output", "best", "--sync", "ma"]),
        ("linear_regression", "test loss", ["--output", "best", "--threads", "auto"]),
        ("fm", "test accuracy", ["--factors", "2", "--sync", "easgd:alpha=0.3"]),
    ],
)
def test_sparse_rows_are_trained_on(model, told, given, tmp_path, capsys, monkeypatch):
    """Relative paths are those of where the command is given."""
    monkeypatch.chdir(tmp_path)
    for name, seed in (("rows.svm", 0), ("test.svm", 1)):
        written.rows(tmp_path / name, seed)
    arguments = ["--data", "rows.svm", "--test", "test.svm", "--model", model, "--l2", "1e-5"]
    arguments += ["--lr", "0.1", "--batch-size", "15", "--epochs", "8", *given]
    assert cli.main(["cluster", "up", *arguments, "--run", "run"]) == 0
    report = check(tmp_path / "run")
    assert report["ledger"]["total"] == 8 * 27  # passes of ⌈400 / 15⌉ batches
    plan = plans.read(tmp_path / "run" / "plan.toml")
    assert (plan.train.data, plan.train.l2) == (str(tmp_path / "rows.svm"), 1e-5)
    found, parameters = lsh.load(tmp_path / "run" / "output.safetensors")
    problem = plan.train.problem()
    assert found == problem.model
    assert found.evaluate(parameters, problem.test)[0] == report["test_loss"]
    begun = found.evaluate(found.init(0), problem.test)[0]
    assert report["test_loss"] < (0.9 if model == "linear_regression" else 1.0) * begun
    assert told in capsys.readouterr().out
    assert ("test_accuracy" in report) == (model != "linear_regression")
    assert report.get("test_accuracy", 1.0) > 0.6


@pytest.mark.process(2)
@pytest.mark.parametrize(
    ("rules", "total", "complete"),
    [
        (["--updates", "5"], None, range(10, 11)),  # each trainer's own
        (["--epochs", "1000", "--loss-fraction", "0.8"], 27_000, range(2, 27_000)),
        (["--loss", "0.6", "--evaluate-every", "0.01"], None, range(2, 1_000_000)),
        (["--divergence", "2", "--lr", "1000"], None, range(2, 1_000_000)),
    ],
)
def test_stop_rules_of_each_trainer(rules, total, complete, tmp_path):
    written.rows(tmp_path / "rows.svm", 0)
    data = ["--data", str(tmp_path / "rows.svm"), "--test", str(tmp_path / "rows.svm")]
    given = [*data, "--model", "logistic_regression", "--batch-size", "15", "--lr", "0.1", *rules]
    assert cli.main(["cluster", "up", *given, "--run", str(tmp_path / "run")]) == 0
    report = json.loads((tmp_path / "run" / "run.json").read_text())
    assert report["state"] == "ended"
    assert report["ledger"]["total"] == total
    assert report["ledger"]["complete"] in complete


def up(folder: Path, tmp_path: Path, *given: str) -> subprocess.Popen[str]:
    """A run of two trainers."""
    return subprocess.Popen(
        [sys.executable, "-m", "leashed", "cluster", "up", "--trainers", "2", *given,
         "--data", str(written.digits(tmp_path / "digits")), "--run", str(folder)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )  # fmt: skip


def free_ports(count: int) -> int:
    """The first of so many in a row that nobody has, below those that the system gives out."""
    while True:
        first = random.randrange(10_000, 30_000)
        with contextlib.ExitStack() as held, contextlib.suppress(OSError):
            for port in range(first, first + count):
                held.enter_context(socket.create_server(("127.0.0.1", port)))
            return first


@pytest.mark.process
def test_what_is_killed_comes_back_and_the_ledger_adds_up(tmp_path):
    """At the ports that it had, where these were given."""
    folder = tmp_path / "run"
    ports = free_ports(3)
    process = up(folder, tmp_path, "--epochs", "100", "--ports", str(ports))
    deadline = time.monotonic() + PATIENCE
    with process:
        for name in ("trainer-1", "master-0", "sync-ps-0"):
            before = _complete(folder)
            while name not in (now := pids(folder)) or _complete(folder) <= before:
                assert time.monotonic() < deadline
                assert process.poll() is None, process.communicate()
                time.sleep(0.05)
            os.kill(now[name], signal.SIGKILL)
        out, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0, err
    report = check(folder)
    restarts = {"master": 1, "sync-ps-0": 1, "trainer-0": 0, "trainer-1": 1}
    assert report["restarts"] == restarts
    assert "trainer-1 1" in out
    names = ("sync-ps-0", "trainer-0", "trainer-1")
    expected = {name: f"127.0.0.1:{ports + k}" for k, name in enumerate(names)}
    members = [(f"{each['role']}-{each['index']}", each) for each in report["members"]]
    assert {(name, each["address"]) for name, each in members} == set(expected.items())
    gone = [each for each in report["members"] if each["role"] == "trainer" and each["index"] == 1]
    assert len(gone) == 2
    assert not gone[0]["finished"]
    assert gone[1]["finished"]
    # What the killed one had told last is what the ledger has of it, through the master's own death.
    trained = sum(each["batches_used"] for each in counted(report, "trainer").values())
    assert trained == report["ledger"]["complete"]
    one, two, all_ = _rows(report)
    assert [each["lives"] for each in (one, two, all_)] == ["1", "2", "3"]
    assert all_["iterations"] == f"{trained:,.0f}"
    # By its lives' own seconds: between the rates of the lives.
    rates = [life.counters["examples"] / life.seconds for life in lives(report, "trainer")[1]]
    told = float(two["EPS"].replace(",", ""))
    assert min(rates) - 1.0 <= told <= max(rates) + 1.0
    # The master that came next, and the server, share the fragments as those before them did.
    journal = (folder / "journal.jsonl").read_text().splitlines()
    assert json.loads(journal[0])["costs"]["whole"] == report["packing"]["whole"]


def begun(
    folder: Path, tmp_path: Path, *given: str
) -> tuple[subprocess.Popen[str], dict[str, int]]:
    """A run in which each trainer has trained batches, and its processes."""
    process = up(folder, tmp_path, *given)
    deadline = time.monotonic() + PATIENCE
    while not all(_trained(folder, f"trainer-{k}") for k in range(2)):
        assert time.monotonic() < deadline
        assert process.poll() is None, process.communicate()
        time.sleep(0.05)
    return process, pids(folder)


def _trained(folder: Path, name: str) -> float:
    try:
        told = json.loads((folder / "run.json").read_text())["metrics"]
    except FileNotFoundError:
        return 0.0
    return float(told.get(name, {}).get("batches_used", 0.0))


@pytest.mark.process
def test_a_trainer_that_is_given_up_is_named(tmp_path, capsys):
    """Though the others have done all of it."""
    folder = tmp_path / "run"
    data = json.dumps(str(written.digits(tmp_path / "digits")))
    plan = tmp_path / "some.toml"
    plan.write_text(
        f'[cluster]\nrun = "run"\nrestarts = 0\ngrace = 3\n[train]\ndata = {data}\nepochs = 20\n'
    )

    def kill():
        while "trainer-1" not in (now := pids(folder)) or not _complete(folder):
            time.sleep(0.05)
        os.kill(now["trainer-1"], signal.SIGKILL)

    with ThreadPoolExecutor(1) as pool:
        killing = pool.submit(kill)
        assert cli.main(["cluster", "up", "--plan", str(plan)]) == 0
        killing.result()
    report = check(folder)
    assert report["reason"].endswith("given up: trainer-1")
    told = capsys.readouterr()
    assert "given up" in told.out
    assert "trainer-1 ended by SIGKILL after 0 restarts" in told.out
    assert "trainer-1 ended by SIGKILL after 0 restarts" in told.err


@pytest.mark.process
def test_the_model_is_of_who_was_there_at_the_end(tmp_path):
    folder = tmp_path / "run"
    process, now = begun(folder, tmp_path, "--epochs", "60", "--sync", "ma")
    with process:
        os.kill(now["trainer-0"], signal.SIGTERM)
        _, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0, err
    report = check(folder)
    summaries = report["summaries"]
    assert [summaries[f"trainer-{k}"]["left_early"] for k in range(2)] == [1.0, 0.0]
    assert report["output"] == "trainer 1 (not of trainer 0: not in step, or gone, at the end)"


@pytest.mark.process
def test_a_run_whose_processes_are_told_to_end_is_incomplete(tmp_path):
    folder = tmp_path / "run"
    process, now = begun(folder, tmp_path, "--epochs", "1e4")
    with process:
        for pid in now.values():
            with contextlib.suppress(ProcessLookupError):  # the others end with the master
                os.kill(pid, signal.SIGTERM)
        _, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == 75, err
    assert "leashed: error: the run is incomplete: " in err
    report = json.loads((folder / "run.json").read_text())
    assert report["state"] == "incomplete"
    assert report["ledger"]["complete"] < report["ledger"]["total"]
    assert pids(folder) == {}


def _rows(report: dict) -> list[dict[str, str]]:
    """Of the trainers' table."""
    found = run_table.trainers(report)
    return [dict(zip(found.header, row, strict=True)) for row in found.rows]


def _complete(folder: Path) -> int:
    try:
        return int(json.loads((folder / "run.json").read_text())["ledger"]["complete"])
    except FileNotFoundError:
        return 0
