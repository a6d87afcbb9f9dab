"""``leashed cluster``, with programs in the roles' places that train nothing."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from cluster import fakes

import leashed as lsh
from leashed import cli
from leashed.cli import cluster
from leashed.cluster import plan as plans

PATIENCE = 60.0


@pytest.fixture(autouse=True)
def small(monkeypatch):
    """Synthetic digits, few of them, and fakes for roles."""
    monkeypatch.setattr(
        "leashed.datasets.synthetic_digits",
        lambda digits=lsh.datasets.synthetic_digits: digits(n=256, seed=0),
    )
    monkeypatch.setattr("leashed.cli.cluster.command", fakes.command)


def up(*arguments):
    return cli.main(["cluster", "up", *arguments])


@pytest.mark.process
def test_a_run_ends_with_its_table(tmp_path, capsys):
    folder = tmp_path / "run"
    assert up("--run", str(folder), "--batch-size", "50") == 0
    out = capsys.readouterr().out
    for word in ("trainer", "all", "EPS", "sync gap", "ledger", "complete 100", "test accuracy"):
        assert word in out
    assert {path.name for path in folder.glob("*.log")} == {
        "master.log",
        "sync-ps-0.log",
        "trainer-0.log",
        "trainer-1.log",
    }
    assert "trainer-1 is here" in (folder / "trainer-1.log").read_text()
    assert not (folder / "key").exists()  # it has opened its last connection
    report = json.loads((folder / "run.json").read_text())
    assert report["restarts"] == {"master": 0, "sync-ps-0": 0, "trainer-0": 0, "trainer-1": 0}
    assert report["output"] == "trainer 0"
    assert report["elp"] == 50 * 2
    model, parameters = lsh.load(folder / "output.safetensors")
    assert np.array_equal(parameters, model.init(0))
    data = lsh.datasets.synthetic_digits()
    assert report["train_loss"] == model.evaluate(parameters, data.train)[0]
    assert report["test_accuracy"] == model.evaluate(parameters, data.test)[1]


@pytest.mark.process
def test_what_dies_is_started_again_and_told(tmp_path, capsys):
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / "fail-trainer-1").touch()
    (folder / "fail-master").touch()
    assert up("--run", str(folder)) == 0
    assert "trainer-1 1" in capsys.readouterr().out
    restarts = json.loads((folder / "run.json").read_text())["restarts"]
    assert restarts == {"master": 1, "sync-ps-0": 0, "trainer-0": 0, "trainer-1": 1}


@pytest.mark.process
def test_the_temporary_folder_goes_unless_it_is_kept(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    assert up() == 0
    assert list(tmp_path.iterdir()) == []
    assert up("--keep") == 0
    (kept,) = tmp_path.iterdir()
    assert f"kept: {kept}" in capsys.readouterr().err
    assert (kept / "output.safetensors").exists()


@pytest.mark.process
@pytest.mark.parametrize(("output", "told"), [("average", "average of 2"), ("best", "best of 2")])
def test_other_outputs(tmp_path, capsys, output, told):
    folder = tmp_path / "run"
    assert up("--run", str(folder), "--output", output) == 0
    assert told in capsys.readouterr().out
    model, parameters = lsh.load(folder / "output.safetensors")
    replicas = [model.init(0), model.init(1)]
    if output == "average":
        np.testing.assert_allclose(parameters, np.mean(replicas, axis=0), rtol=1e-6)
    else:
        test = lsh.datasets.synthetic_digits().test
        best = max(replicas, key=lambda each: model.evaluate(each, test)[1])
        assert np.array_equal(parameters, best)


@pytest.mark.process
def test_a_plan_says_everything(tmp_path, capsys):
    (tmp_path / "plan.toml").write_text(
        '[cluster]\ntrainers = 1\nrun = "here"\n[sync]\nkind = "ma"\n[train]\nepochs = 1\n'
    )
    plan = str(tmp_path / "plan.toml")
    assert up("--plan", plan) == 0
    assert {path.stem for path in (tmp_path / "here").glob("*.log")} == {"master", "trainer-0"}
    capsys.readouterr()
    assert up("--plan", plan) == 2
    assert "has a run already" in capsys.readouterr().err
    assert up("--plan", plan, "--epochs", "3", "--sync-ps", "2") == 2
    assert "--plan has all that is run: leave out --sync-ps, --epochs" in capsys.readouterr().err


def test_arguments_become_a_plan():
    options = cli._parser().parse_args(
        [
            "cluster", "up", "--trainers", "4", "--sync-ps", "2", "--sync",
            "easgd:alpha=0.5,symmetric=true", "--when", "every:iterations=5", "--threads", "3",
            "--rule", "adam:beta1=0.8", "--lr", "0.01", "--discipline", "leashed:persistence=2",
            "--seconds", "9",
            "--data", "folder", "--output", "best", "--transport", "tcp", "--compression", "int8",
            "--ports", "7000", "--prometheus", "0.0.0.0:9100",
        ]
    )  # fmt: skip
    plan = cluster._plan(options)
    assert (plan.cluster.ports, plan.cluster.metrics_address) == (7000, ("0.0.0.0", 9100))
    assert plan.sync == plans.Sync("easgd:alpha=0.5,symmetric=true", "every:iterations=5", "int8")
    assert plan.sync == plans.Sync("easgd:alpha=0.5,symmetric=true", {"iterations": 5}, "int8")
    assert (plan.cluster.trainers, plan.cluster.sync_ps, plan.cluster.transport) == (4, 2, "tcp")
    assert plan.train == plans.Train(
        data=str(Path("folder").absolute()),
        discipline="leashed:persistence=2",
        rule="adam:beta1=0.8",
        lr=0.01,
        threads=3,
        seconds=9.0,
        output="best",
    )
    options = cli._parser().parse_args(["cluster", "up", "--sync", "ma:alpha=0.5,difference=true"])
    assert cluster._plan(options).sync.synchroniser() == lsh.sync.MA(alpha=0.5, difference=True)
    options = cli._parser().parse_args(["cluster", "up", "--prometheus", "9100"])
    assert cluster._plan(options).cluster.metrics_address == ("127.0.0.1", 9100)


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["up", "--trainers", "0"], "--trainers must be at least 1"),
        (["command", "/no/such/run", "gba"], "/no/such/run has no run: give the folder"),
        (["command", "/no/such/run", "asp"], "invalid choice"),
        (["up", "--embedding-loops", "0"], "--embedding-loops must be at least 1"),
        (["up", "--checkpoint-every", "0"], "--checkpoint-every must be greater than 0"),
        (["up", "--ports", "65534"], "--ports must be at most 65533"),
        (["up", "--prometheus", "x"], "--prometheus must be 'host:port'"),
        (["up", "--when", "often"], "--when must be"),
        (["up", "--when", "every:hours=5"], "--when must be"),
        (["up", "--when", "every:iterations=x"], "--when: iterations is 'x', neither"),
        (["up", "--sync", "easgd:alpha"], "--sync takes key=value"),
        (["up", "--sync", "gba"], "--sync 'gba' is unknown; choose one of easgd"),
        (["up", "--sync-ps", "0"], "--sync-ps must be at least 1 with easgd"),
        (["up", "--mode", "gba", "--sync-ps", "1"], "--sync-ps must be 0 with --mode, got 1"),
        (["up", "--sync", "none", "--sync-ps", "1"], "--sync-ps must be 0 with --sync none, to "),
        (["up", "--stream", "--model", "fm"], "cluster is not for streams, since"),
        (
            ["up", "--model", "dlrm"],
            "--embedding-servers must be at least 1 with --model dlrm",
        ),
        (
            ["up", "--model", "dlrm", "--embedding-servers", "1", "--test", "rows.tsv"],
            "in a cluster with --readers: else they",
        ),
        (["up", "--rows", "5"], "--rows goes with --model dlrm"),
        (["up", "--model", "fm"], "--model fm takes --data FILE of sparse rows"),
        (["up", "--rule", "sdg"], "--rule 'sdg' is unknown"),
        (["up", "--batch-size", "100000"], "--batch-size must be at most the 256 examples"),
        (["up", "--model", "fm", "--data", "/dev/null"], "give --format"),
        (["up", "--data", "/no/such/folder"], "/no/such/folder"),
        (["up", "--plan", "/no/such/plan"], "/no/such/plan: No such file"),
        (["role", "trainer", "--plan", "/no/such/plan"], "/no/such/plan: No such file"),
        (["role", "parameter-ps", "--plan", "x"], "invalid choice"),
        ([], "required"),
    ],
)
def test_what_is_wrong_is_told_in_one_line(arguments, complaint, capsys, tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    try:
        status = cli.main(["cluster", *arguments])
    except SystemExit as end:
        status = end.code
    captured = capsys.readouterr()
    assert status == 2
    assert captured.err.startswith("leashed: error: ")
    assert captured.err.count("\n") == 1
    assert complaint in captured.err
    assert list(tmp_path.iterdir()) == []


def test_a_run_that_fails_has_status_1(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(
        "leashed.cli.cluster.command", lambda _: lambda *_: [sys.executable, "-c", "1/0"]
    )
    (tmp_path / "plan.toml").write_text("[cluster]\nrestarts = 0\n")
    assert up("--plan", str(tmp_path / "plan.toml")) == 1
    err = capsys.readouterr().err
    assert "ended with status 1 after 0 restarts: ZeroDivisionError: division by zero (see " in err
    assert "ZeroDivisionError" in (tmp_path / "run" / "master.log").read_text()


@pytest.mark.process
def test_a_run_that_nobody_is_left_for_has_status_1_and_says_so(tmp_path, capsys, monkeypatch):
    why = "no trainer is left; 0 of 2 have finished"
    failed = fakes.report(state="failed", reason=why)
    folder = tmp_path / "run"
    monkeypatch.setattr("leashed.cli.cluster.outcome.read_report", lambda _: failed)
    assert up("--run", str(folder)) == 1
    captured = capsys.readouterr()
    assert f"leashed: error: the run failed: {why}" in captured.err
    assert f"failed ({why})" in captured.out
    assert json.loads((folder / "run.json").read_text())["state"] == "failed"


def test_status_names_who_is_not_there(tmp_path, capsys, monkeypatch):
    report = {**fakes.report(), "terms": {"trainers": 9, "sync_ps": 0}}
    trainers = [member for member in report["members"] if member["role"] == "trainer"]
    there = {each["index"] for each in trainers if each["gone"] is None or each["finished"]}
    monkeypatch.setattr("leashed.cli.cluster.outcome.read_report", lambda _: report)
    monkeypatch.setattr("leashed.cli.cluster._state", lambda *_: "running")
    assert cli.main(["cluster", "status", str(tmp_path)]) == 0
    told = capsys.readouterr().out
    for index in range(9):
        assert (f"trainer-{index}: not there" in told) == (index not in there)


def test_a_run_that_fails_keeps_its_temporary_folder(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    silent = [sys.executable, "-c", ""]  # a master that ends and has reported nothing
    monkeypatch.setattr("leashed.cli.cluster.command", lambda _: lambda *_: silent)
    assert up() == 1
    (kept,) = tmp_path.iterdir()
    err = capsys.readouterr().err
    assert f"its logs are in {kept}" in err
    assert "the master has reported nothing" in err


def test_nothing_is_started_where_a_port_is_in_use(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    key = tmp_path / "key"
    key.write_bytes(b"k" * 32)
    key.chmod(0o600)
    plan = tmp_path / "plan.toml"
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        plan.write_text(f'[cluster]\nmaster = "127.0.0.1:{port}"\nkey = "{key}"')
        for words, remedy in (
            (["--ports", str(port - 1)], "give another: --ports of leashed cluster up"),
            (["--prometheus", str(port)], "give another: --prometheus of leashed cluster up"),
            (["--plan", str(plan)], "give another: master in a plan's"),
        ):
            assert up(*words) == 2
            err = capsys.readouterr().err
            assert f"127.0.0.1:{port}: Address already in use" in err
            assert remedy in err
            assert "started again" not in err
    assert {path.name for path in tmp_path.iterdir()} == {"key", "plan.toml"}


def test_a_folder_in_which_nothing_was_started_goes(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    rows = tmp_path / "rows.tsv"
    rows.write_text("1\t2\n")
    files = ["--data", str(rows), "--test", str(rows)]
    assert up("--model", "dlrm", "--embedding-servers", "1", "--readers", "1", *files) == 2
    err = capsys.readouterr().err
    assert "line 1: 2 fields" in err
    assert "logs" not in err
    assert list(tmp_path.iterdir()) == [rows]


def test_a_folder_goes_where_nothing_was_started_since_ctrl_c_came(tmp_path, capsys, monkeypatch):
    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr("leashed.cluster.handed_data.hand_on", interrupted)
    assert up() == 130
    assert "logs" not in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("error", "why"),
    [
        (MemoryError(), "there is not enough memory"),
        (RecursionError("the model is deep"), "the model is deep"),
        (OSError(28, "No space left on device"), "[Errno 28] No space left on device"),
    ],
)
def test_a_run_goes_on_without_data_that_cannot_be_handed_on(
    tmp_path, capsys, monkeypatch, error, why
):
    def fails(*_):
        raise error

    monkeypatch.setattr("leashed.cluster.handed_data.hand_on", fails)
    started = tmp_path / "started"
    program = [sys.executable, "-c", f"open({str(started)!r}, 'w')"]
    monkeypatch.setattr("leashed.cli.cluster.command", lambda _: lambda *_: program)
    assert up("--run", str(tmp_path / "run")) == 1  # its master has reported nothing
    assert started.exists()
    told = f"leashed: each process reads the data for itself: {why}\n"
    assert told in capsys.readouterr().err


def test_an_index_beyond_the_plan_is_told(tmp_path, capsys):
    (tmp_path / "plan.toml").write_text("")
    plan = str(tmp_path / "plan.toml")
    assert cli.main(["cluster", "role", "trainer", "--plan", plan, "--index", "2"]) == 2
    assert "index must be less than 2" in capsys.readouterr().err


UP = f"""
import sys
sys.path.insert(0, {str(Path(fakes.__file__).parents[1])!r})
from cluster import fakes
import leashed.cli.cluster as cluster
cluster.command = fakes.command
sys.exit(__import__("leashed.cli").cli.main(["cluster", "up", *sys.argv[1:]]))
"""


def waiting(folder):
    """A run that goes on until it is ended, and its processes' ids."""
    folder.mkdir()
    (folder / "wait").touch()
    process = subprocess.Popen(
        [sys.executable, "-c", UP, "--run", str(folder)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    deadline = time.monotonic() + PATIENCE
    names = ("master", "sync-ps-0", "trainer-0", "trainer-1")
    while not (folder / "run.json").exists() or not all(
        (folder / f"{name}.log").is_file() and (folder / f"{name}.log").read_text()
        for name in names
    ):
        assert time.monotonic() < deadline, process.communicate(timeout=1)
        assert process.poll() is None, process.communicate()
        time.sleep(0.05)
    return process, [int((folder / f"{name}.pid").read_text()) for name in names]


def ended(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in "ZX"
    except FileNotFoundError:
        return True


@pytest.mark.process
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_ctrl_c_ends_all_processes_and_tells_what_there_is(tmp_path, number):
    """No key stands on a command line or in the environment meanwhile."""
    process, pids = waiting(tmp_path / "run")
    key = (tmp_path / "run" / "key").read_bytes()
    told = b"".join(
        Path(f"/proc/{pid}/{what}").read_bytes()
        for pid in (process.pid, *pids)
        for what in ("cmdline", "environ")
    )
    process.send_signal(number)
    out, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == 130, err
    assert "Traceback" not in err
    assert "ledger" in out
    assert all(ended(pid) for pid in pids)
    assert not (tmp_path / "run" / "key").exists()
    assert len(key) >= 32
    assert key not in told
    assert key.hex().encode() not in told


@pytest.mark.process
def test_nothing_is_left_when_up_is_killed(tmp_path):
    process, pids = waiting(tmp_path / "run")
    os.kill(pids[2], signal.SIGSTOP)
    process.kill()
    process.communicate(timeout=PATIENCE)
    deadline = time.monotonic() + PATIENCE
    while not all(ended(pid) for pid in pids):
        assert time.monotonic() < deadline
        time.sleep(0.05)
