"""How a role ends: its status, the line on standard error, and what its log has of it."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from cluster import written

from leashed.cluster import opening, role, server, session

Plan = Callable[..., Path]


@pytest.fixture(autouse=True)
def sigterm() -> Iterator[None]:
    """A role takes it as Ctrl-C."""
    before = signal.getsignal(signal.SIGTERM)
    yield
    signal.signal(signal.SIGTERM, before)


@pytest.fixture
def plan(tmp_path: Path) -> Plan:
    """Writes one, in a folder with a key."""
    opening.make_key(tmp_path / "key")

    def write(*lines: str) -> Path:
        data = json.dumps(str(written.digits(tmp_path / "digits")))
        own = ["[cluster]", 'key = "key"', 'master = "127.0.0.1:1"', "[train]", f"data = {data}"]
        (tmp_path / "plan.toml").write_text("\n".join([*own, *lines]), encoding="utf-8")
        return tmp_path / "plan.toml"

    return write


@pytest.mark.parametrize("name", ["master", "sync-ps", "trainer"])
def test_a_key_that_is_missing_is_told_with_what_makes_one(
    name: str, plan: Plan, capsys: pytest.CaptureFixture[str]
) -> None:
    file = plan()
    key = file.parent / "key"
    key.unlink()
    assert role.status(name, file, 0) == 2
    told = capsys.readouterr().err
    assert f"{key}: there is no key; make one" in told
    assert f"(umask 077; head -c 32 /dev/urandom > {key})\n" in told


@pytest.mark.parametrize("name", ["master", "sync-ps", "trainer"])
def test_a_batch_larger_than_the_data_is_refused(
    name: str, plan: Plan, capsys: pytest.CaptureFixture[str]
) -> None:
    assert role.status(name, plan("batch_size = 10001"), 0) == 2
    told = "train.batch_size must be at most the 10000 examples of the data, got 10001\n"
    assert capsys.readouterr().err.endswith(told)


@pytest.mark.parametrize("name", ["sync-ps", "trainer"])
def test_who_finds_no_master_says_where_and_has_no_traceback(
    name: str, plan: Plan, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (server, session):
        monkeypatch.setattr(module, "_JOIN", 0.2)
    file = plan()
    assert role.status(name, file, 0) == 75
    why = f"{name}-0 did not join within 0.2 s: 127.0.0.1:1: Connection refused; is the master started"
    assert f"leashed: error: {name}-0: {why}" in capsys.readouterr().err
    log = (file.parent / "run" / f"{name}-0.log").read_text()
    assert "looks for the master: 127.0.0.1:1: Connection refused" in log
    assert f"ERROR {name}-0 has ended: {why}" in log
    assert "Traceback" not in log


@pytest.mark.parametrize("name", ["sync-ps", "trainer"])
def test_who_comes_after_the_end_is_not_to_be_started_again(
    name: str, plan: Plan, capsys: pytest.CaptureFixture[str]
) -> None:
    file = plan()
    run = file.parent / "run"
    run.mkdir()
    report = {"state": "incomplete", "reason": "stopped by SIGTERM"}
    (run / "run.json").write_text(json.dumps(report))
    assert role.status(name, file, 0) == 3
    told = capsys.readouterr().err
    assert f"leashed: error: {name}-0: the run in {run} is over since 2" in told
    assert told.endswith(": stopped by SIGTERM; for another give another folder\n")
    log = (run / f"{name}-0.log").read_text()
    assert f"ERROR {name}-0 has ended: the run in {run} is over since" in log
    assert "Traceback" not in log
