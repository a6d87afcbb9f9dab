"""A live run's mode is told what to be, over a connection that proves the run's key."""

from __future__ import annotations

import concurrent.futures
import json
import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from cluster import inside
from cluster.inside import PATIENCE
from cluster.led import led
from cluster.test_led_modes import DATA, MODEL, begun, given, up

import leashed as lsh
from leashed import cli
from leashed.cluster import mode_table
from leashed.cluster.measures import counted


def keyed(folder: Path, secret: bytes = b"k" * 32) -> Path:
    """A file with the key of the runs of tests, or another."""
    descriptor = os.open(folder, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(secret)
    return folder


def until(found: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not found():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def served(folder: Path) -> bool:
    """Whether the first policy server of the run in a folder is there, as its report has it."""
    path = folder / "run.json"
    if not path.exists():
        return False
    members = json.loads(path.read_text())["members"]
    return any((member["role"], member["index"]) == ("policy-ps", 0) for member in members)


def test_a_live_run_is_told_to_be_gba(tmp_path, capsys):
    how = given(mode=lsh.modes.Switching(m=4), until=lsh.until(epochs=4))
    key = keyed(tmp_path / "key")
    with led(tmp_path, MODEL, DATA, trainers=2, **how) as run:
        until(lambda: served(tmp_path))
        assert lsh.cluster.command(tmp_path, "gba") == 0  # nobody has trained yet
        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            each = [
                pool.submit(lsh.train, MODEL, DATA, **how, cluster=run.cluster(k)) for k in range(2)
            ]
            results = [one.result() for one in each]
        report = run.report()
    assert run.error is None
    batches = report["ledger"]["total"]
    assert report["ledger"]["complete"] == batches
    (server,) = counted(report, "policy-ps").values()
    assert server["mode_applied"] + server["mode_stale"] == batches * 32
    assert server["mode_commands"] == 1
    assert server["mode_told"] == 1
    assert server["mode_updates"] <= batches // 4 + 1  # of four gradients each, and not of two
    assert ("commands", "1, the last to be gba") in mode_table.facts(report)
    assert results[0].mode.applied == server["mode_applied"]
    with pytest.raises(ValueError, match="is over: all trainers have finished"):
        lsh.cluster.command(tmp_path, "sync", key=key)
    assert cli.main(["cluster", "command", str(tmp_path), "sync"]) == 2
    assert "is over" in capsys.readouterr().err


def test_a_mode_that_knows_no_commands_is_told_nothing(tmp_path):
    how = given(mode="asp")
    keyed(tmp_path / "key")
    with led(tmp_path, MODEL, DATA, **how) as run:
        until(lambda: served(tmp_path))
        with pytest.raises(ValueError, match="this mode knows no commands; gba, switching"):
            lsh.cluster.command(tmp_path, "gba")
        lsh.train(MODEL, DATA, **how, cluster=run.cluster())
        report = run.report()
    assert run.error is None
    (server,) = counted(report, "policy-ps").values()
    assert server["mode_commands"] == 0
    assert "commands" not in dict(mode_table.facts(report))


def test_who_has_another_key_tells_nothing(tmp_path):
    other = keyed(tmp_path / "other", b"o" * 32)
    with led(tmp_path, MODEL, DATA, **given(mode="gba")) as run:
        until(lambda: served(tmp_path))
        with pytest.raises(ConnectionError, match="it holds another key"):
            lsh.cluster.command(tmp_path, "sync", key=other)
        with pytest.raises(
            FileNotFoundError, match="give the key of the run's plan, as key= or --key"
        ):
            lsh.cluster.command(tmp_path, "sync")
        other.chmod(0o644)
        with pytest.raises(PermissionError, match="others can read or write"):
            lsh.cluster.command(tmp_path, "sync", key=other)
        run.close()


def test_the_key_of_joined_trainers_is_above_their_runs(tmp_path, monkeypatch):
    folder = tmp_path / "run-0"
    with led(folder, MODEL, DATA, **given(mode="gba")) as run:
        until(lambda: served(folder))
        keyed(tmp_path / "key")
        assert lsh.cluster.command(folder, "gba") == 0
        monkeypatch.chdir(folder)
        assert lsh.cluster.command(".", "gba") == 0
        run.close()


def test_a_process_of_another_run_with_the_same_key_tells_nothing(tmp_path):
    key = keyed(tmp_path / "key")
    with led(tmp_path, MODEL, DATA, **given(mode="gba")) as run:
        until(lambda: served(tmp_path))
        elsewhere = tmp_path / "elsewhere"
        elsewhere.mkdir()
        report = json.loads((tmp_path / "run.json").read_text())
        (elsewhere / "run.json").write_text(json.dumps({**report, "run": "another"}))
        with pytest.raises(ValueError, match="not of that of command@another"):
            lsh.cluster.command(elsewhere, "sync", key=key)
        run.close()


@pytest.mark.parametrize(
    ("folder", "to", "error", "match"),
    [
        ("nothing", "gba", FileNotFoundError, "nothing has no run"),
        (".", "asp", ValueError, "to must be sync or gba, got 'asp'"),
        (".", "gba", ValueError, "has no policy server: only a run by a mode"),
    ],
)
def test_what_cannot_be_told_is_refused_by_name(folder, to, error, match, tmp_path):
    with inside.run(tmp_path, 3):
        until((tmp_path / "run.json").exists)
        with pytest.raises(error, match=match):
            lsh.cluster.command(tmp_path / folder, to)


@pytest.mark.parametrize("timeout", [-1.0, float("nan"), 1e300])
def test_the_timeout_is_a_time(timeout, tmp_path):
    with pytest.raises(ValueError, match="timeout must be"):
        lsh.cluster.command(tmp_path, "gba", timeout=timeout)


def test_a_server_that_is_not_there_yet_is_told_of(tmp_path):
    with inside.run(tmp_path, 3, policy_ps=1, total=1):
        until((tmp_path / "run.json").exists)
        with pytest.raises(
            ConnectionError, match="policy server 0 is not there: it has not joined"
        ):
            lsh.cluster.command(tmp_path, "gba")


@pytest.mark.process
def test_the_command(tmp_path, capsys):
    """Back and forth, while three trainers train; every example is in an update."""
    folder = tmp_path / "run"
    process = up(folder, "--mode", "switching:m=3,iota=1000")
    try:
        for k, to in enumerate(["gba", "sync", "gba", "sync"]):
            begun(folder, 50 * (k + 1), process)
            assert cli.main(["cluster", "command", str(folder), to]) == 0
            assert f"policy server 0 was told to be {to}, at update" in capsys.readouterr().out
        told, _ = process.communicate(timeout=120)
    finally:
        process.kill()
    assert process.returncode == 0, told
    assert "4, the last to be sync" in told
    report = json.loads((folder / "run.json").read_text())
    (server,) = counted(report, "policy-ps").values()
    assert report["ledger"]["complete"] == report["ledger"]["total"]
    assert server["mode_applied"] == report["ledger"]["total"] * 64
    log = (folder / "policy-ps-0.log").read_text()
    assert log.count("the mode was told to be gba, by command from 127.0.0.1") == 2
