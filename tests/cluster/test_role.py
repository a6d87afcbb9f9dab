"""How a role ends: its status, the line on standard error, and what its log has of it."""

from __future__ import annotations

import errno
import json
import re
import signal
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest
from cluster import written

from leashed.cluster import ending, led_bringing, master, member, opening, role

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


def test_a_master_that_waits_for_what_servers_leave_takes_sigterm_as_ctrl_c(
    plan: Plan, monkeypatch: pytest.MonkeyPatch
) -> None:
    def run(*_: object, **__: object) -> dict[str, str]:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)  # as a loop leaves it that has had it
        return {"state": "ended"}

    found: list[object] = []
    monkeypatch.setattr(master, "run", run)
    monkeypatch.setattr(
        led_bringing, "bring", lambda *_: found.append(signal.getsignal(signal.SIGTERM))
    )
    assert role.status("master", plan('mode = "sync"'), 0) == 0
    assert found == [signal.default_int_handler]


@pytest.mark.parametrize("name", ["sync-ps", "trainer"])
def test_who_finds_no_master_says_where_and_has_no_traceback(
    name: str, plan: Plan, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(member, "JOIN", 0.2)
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


def without(error: Exception, cause: Exception) -> Callable[[], int]:
    def work() -> int:
        raise error from cause

    return work


@pytest.mark.parametrize(
    "error",
    [
        OSError(errno.ENFILE, "Too many open files in system"),
        ImportError("libfine.so: cannot open shared object file: Too many open files"),
        ValueError("cannot load trainer-0.kept"),
    ],
)
def test_a_want_of_descriptors_may_pass(
    error: Exception, capsys: pytest.CaptureFixture[str]
) -> None:
    """Also where a module or a file was not read for it."""
    short = OSError(errno.EMFILE, "Too many open files", "trainer-0.kept")
    missing = FileNotFoundError(errno.ENOENT, "No such file or directory")
    assert ending.status_of("trainer-0", without(error, short)) == 75
    if not isinstance(error, OSError):
        assert ending.status_of("trainer-0", without(type(error)("wrong"), missing)) == 2
    assert "leashed: error: trainer-0: " in capsys.readouterr().err


@pytest.mark.parametrize("name", ["sync-ps", "trainer"])
def test_a_master_without_descriptors_may_have_some_again(
    name: str, plan: Plan, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """And one that has another key has it for good."""
    monkeypatch.setattr(member, "JOIN", 1.0)
    file = plan()
    same = opening.read_key(file.parent / "key")
    for key, status in ((opening.Key(b"o" * 32, given=True), 2), (same, 75)):
        with opening.Listener("127.0.0.1", 0, key, "master", lambda *_: None) as listener:
            if key is same:
                full = partial(listener._refuse, why="no descriptors left", passes=True)
                monkeypatch.setattr(listener, "_hear", full)
            text = re.sub('master = ".*"', f'master = "{listener.address}"', file.read_text())
            file.write_text(text)
            assert role.status(name, file, 0) == status
    first, second = capsys.readouterr().err.splitlines()
    assert "holds another key" in first
    assert f"{name}-0 did not join within 1 s" in second
    assert second.endswith("has no descriptors left, too many others to listen to, or waited too "
                           "long; its log says which")  # fmt: skip


@pytest.mark.parametrize(
    ("state", "status", "words"),
    [
        ("ended", 0, ""),
        ("running", 130, ""),
        ("incomplete", 3, "the run is incomplete: stopped by SIGINT; 9 of 10 batches are left"),
        ("failed", 3, "the run has failed: stopped by SIGINT; 9 of 10 batches are left"),
    ],
)
def test_a_master_says_how_its_run_is_over(
    state: str, status: int, words: str, plan: Plan, capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    standing = {"state": state, "reason": "stopped by SIGINT; 9 of 10 batches are left"}
    monkeypatch.setattr(role, "_master", lambda *_, **__: standing)
    file = plan()
    assert role.status("master", file, 0) == status
    assert capsys.readouterr().err == (f"leashed: error: master: {words}\n" if words else "")
    log = (file.parent / "run" / "master.log").read_text()
    assert f"master has ended{': ' * bool(words)}{words}\n" in log
    assert "Traceback" not in log
