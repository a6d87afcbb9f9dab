"""Where the processes of a run that others have started meet."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

import leashed as lsh
from leashed.cluster import joining
from leashed.cluster.supervisor import Supervisor


def join(rank: int, folder: Path) -> lsh.cluster.Cluster:
    return lsh.cluster.join(rank=rank, size=2, rendezvous="127.0.0.1", folder=folder)


def test_a_folder_with_a_run_is_refused(tmp_path: Path) -> None:
    (tmp_path / "run-0").mkdir()
    with pytest.raises(FileExistsError, match="has a run already"):
        join(0, tmp_path)


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
    with pytest.raises(ChildProcessError, match=r"master\.log"):
        cluster.session(10, None, total=1, batch_size=1, workers=1, lockstep=False)
