"""Where the processes of a run that others have started meet."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from warned import once

import leashed as lsh
from leashed.cluster import joined_folder, joined_output, joining, opening
from leashed.cluster.supervisor import Supervisor, read_report


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


def test_sync_servers_that_would_stand_idle_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="servers must be 0 with policy_servers, got 2"):
        join(0, tmp_path / "0", servers=2, policy_servers=1)
    cluster = join(0, tmp_path / "0", size=1, servers=2)
    for sync, which in ((None, "without sync"), (lsh.sync.MA(), "by MA")):
        with pytest.raises(ValueError, match=f"servers must be 0 for a training {which}, .* got 2"):
            lsh.Engine(np.zeros(4, np.float32), sync=sync, cluster=cluster, batches=3)
    assert not list(tmp_path.glob("*/run-*"))


@pytest.mark.process
@pytest.mark.parametrize("sync", [None, lsh.sync.MA(), lsh.sync.EASGD()], ids=str)
def test_there_is_a_sync_server_where_one_is_needed(
    tmp_path: Path, sync: lsh.sync.Synchroniser | None
) -> None:
    cluster = join(0, tmp_path, size=1)
    with lsh.Engine(np.zeros(4, np.float32), sync=sync, cluster=cluster, batches=3) as engine:
        for _ in engine.batches():
            with engine.read() as theta:
                engine.push(np.ones_like(theta))
    report = read_report(tmp_path / "run-0")
    assert report is not None
    servers = [each for each in report["members"] if each["role"] == "sync-ps"]
    assert len(servers) == isinstance(sync, lsh.sync.EASGD)


@pytest.mark.process
def test_what_a_dead_rank_0_has_told_is_not_believed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(joined_folder, "_WAIT", 0.2)
    note = tmp_path / "joined.json"
    told = "from leashed.cluster import joined_folder; from pathlib import Path; import sys; "
    told += "joined_folder.publish(Path(sys.argv[1]), Path('there'))"
    subprocess.run([sys.executable, "-c", told, str(note)], check=True)
    assert note.exists()
    with pytest.raises(TimeoutError, match="rank 0 has not joined"):
        joined_folder.published(note)
    joined_folder.publish(note, tmp_path)
    assert joined_folder.published(note) == tmp_path


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


def test_a_key_in_the_folder_is_kept(tmp_path: Path) -> None:
    """It was removed, and then named as one that is not there."""
    key = tmp_path / "key"
    opening.make_key(key)
    held = key.read_bytes()
    for given in (key, None):
        assert lsh.cluster.join(rank=0, size=1, folder=tmp_path, key=given).key.secret == held
    assert key.read_bytes() == held


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
    monkeypatch.setattr(joined_output, "why_failed", lambda _: "no trainer is left")
    cluster = join(0, tmp_path)
    assert cluster.meet is not None
    end = cluster.meet(10, 1, 1, None, {}, None, None, None, None, 0).ended
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
    end = cluster.meet(10, 1, 1, None, {}, None, None, None, None, 1).ended
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
