"""Where the processes of a run that others have started meet."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from warned import once

import leashed as lsh
from leashed.cluster import joining, opening
from leashed.cluster.supervisor import Supervisor


def join(rank: int, folder: Path, **given: Any) -> lsh.cluster.Cluster:
    return lsh.cluster.join(
        **{"rank": rank, "size": 2, "rendezvous": "127.0.0.1", "folder": folder, **given}
    )


def test_a_folder_with_a_run_is_refused(tmp_path: Path) -> None:
    (tmp_path / "run-0").mkdir()
    with pytest.raises(FileExistsError, match="has a run already"):
        join(0, tmp_path)


def test_ports_that_are_given(tmp_path: Path) -> None:
    """Sync servers have the first of them."""
    assert join(0, tmp_path / "0", size=1).port == 0
    opening.make_key(tmp_path / "key")
    given = {"ports": 7000, "servers": 2, "rendezvous": "10.0.0.1", "key": tmp_path / "key"}
    assert [join(rank, tmp_path / "1", **given).port for rank in range(2)] == [7002, 7003]
    also = join(1, tmp_path / "1", **given, embedding_servers=3)
    assert also.port == 7006  # behind the sync servers' and the embedding servers'
    for ports, rendezvous, told in (
        (65_533, "127.0.0.1", "ports must be at most 65532, so that the 4 ports"),
        (0, "127.0.0.1", "ports must be at least 1"),
        (28_470, "10.0.0.1", "28470 to 28473 are .*, and 28471 is that of rank 0's master"),
    ):
        given |= {"ports": ports, "rendezvous": rendezvous}
        with pytest.raises(ValueError, match=told):
            join(0, tmp_path / "2", **given)
    assert not (tmp_path / "2").exists()


@pytest.mark.process
def test_what_a_dead_rank_0_has_told_is_not_believed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(joining, "_WAIT", 0.2)
    note = tmp_path / "joined.json"
    told = "from leashed.cluster import joining; from pathlib import Path; import sys; "
    told += "joining._publish(Path(sys.argv[1]), Path('there'))"
    subprocess.run([sys.executable, "-c", told, str(note)], check=True)
    assert note.exists()
    with pytest.raises(TimeoutError, match="rank 0 has not joined"):
        joining._published(note)
    joining._publish(note, tmp_path)
    assert joining._published(note) == tmp_path


def test_children_that_the_system_reaps_have_ended(tmp_path: Path) -> None:
    before = signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    try:
        command = [sys.executable, "-c", ""]
        with Supervisor([("master", 0)], lambda *_: command, tmp_path) as supervisor:
            supervisor.wait(30)
            supervisor.step()
            assert not supervisor.running("master")
    finally:
        signal.signal(signal.SIGCHLD, before)


def test_a_master_that_fails_is_told_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(joining, "_command", lambda _: lambda *_: [sys.executable, "-c", "0/0"])
    cluster = join(0, tmp_path)
    told = r"status 1: ZeroDivisionError: division by zero \(see .*master\.log\)"
    with pytest.raises(ChildProcessError, match=told):
        cluster.session(10, None, total=1, batch_size=1, workers=1, lockstep=False)


@pytest.mark.process
def test_a_run_that_has_failed_is_told_of_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended = f"exit({joining.OVER})"
    monkeypatch.setattr(joining, "_command", lambda _: lambda *_: [sys.executable, "-c", ended])
    monkeypatch.setattr(joining, "_failed", lambda _: "no trainer is left")
    cluster = join(0, tmp_path)
    assert cluster.meet is not None
    end = cluster.meet(10, 1, 1, None, {}, None, None).ended
    with once("the run has failed: no trainer is left; its report is in"):
        end(None)


@pytest.mark.process
def test_a_sync_server_that_ends_is_told_of_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    programs = {"master": "import time; time.sleep(600)", "sync-ps": "exit('the port is taken')"}
    monkeypatch.setattr(
        joining, "_command", lambda _: lambda role, _: [sys.executable, "-c", programs[role]]
    )
    cluster = join(0, tmp_path, grace=0.1)
    assert cluster.meet is not None
    end = cluster.meet(10, 1, 1, None, {}, None, None).ended
    try:
        deadline = time.monotonic() + 60
        while not (told := capsys.readouterr().err):
            assert time.monotonic() < deadline
            time.sleep(0.02)
    finally:
        end(None)
    log = tmp_path / "run-0" / "sync-ps-0.log"
    why = (
        f"leashed: sync-ps-0 ended with status 1 after 0 restarts: the port is taken (see {log})\n"
    )
    assert told == why
