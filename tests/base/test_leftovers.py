"""Temporary folders go with who used them, or, where that was killed, with the next who makes one."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from leashed import cli
from leashed.base import leftovers

USES = """
import sys, time
from leashed.base import leftovers
folder = leftovers.make()
(folder / "key").touch(0o600)
(folder / "run-0").mkdir()
(folder / "run-0" / "there").symlink_to(sys.argv[1])
(folder / "elsewhere").symlink_to(sys.argv[1])
print(folder, flush=True)
time.sleep(600)
"""
JOINS = """
import time
import leashed
leashed.cluster.join(rank=0, size=1, servers=0)
print("joined", flush=True)
{then}
"""


@pytest.fixture(autouse=True)
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder for temporary files, of this process and those that it starts."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(folder))
    monkeypatch.setenv("TMPDIR", str(folder))
    return folder


def started(source: str, *arguments: object) -> tuple[subprocess.Popen[str], str]:
    """A program, and the first line that it writes."""
    process = subprocess.Popen(
        [sys.executable, "-c", source, *map(str, arguments)], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    return process, process.stdout.readline().strip()


@pytest.mark.process
def test_a_killed_process_leaves_its_folder_to_the_next(
    own: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "precious").mkdir()
    (tmp_path / "precious" / "file").touch()
    (own / "leashed-nobodys").mkdir()
    (own / "leashed-file").touch()
    process, said = started(USES, tmp_path / "precious")
    folder = Path(said)
    try:
        (own / "leashed-link").symlink_to(folder)
        assert folder.parent == own
        assert folder.stat().st_mode & 0o777 == 0o700
        assert cli.main(["cluster", "clean"]) == 0
        assert capsys.readouterr().out == "nothing to remove\n"  # it is in use
    finally:
        process.kill()
        process.communicate()
    others = os.geteuid() + 1
    with monkeypatch.context() as patch:
        patch.setattr("os.geteuid", lambda: others)
        assert leftovers.remove_stale() == []
    assert (folder / "key").exists()
    assert cli.main(["cluster", "clean"]) == 0
    assert capsys.readouterr().out == f"removed {folder}\n"
    left = {"leashed-nobodys", "leashed-file", "leashed-link"}
    assert {path.name for path in own.iterdir()} == left
    assert (tmp_path / "precious" / "file").exists()


def test_what_is_left_to_be_seen_stays(own: Path) -> None:
    empty, logs = leftovers.make(), leftovers.make()
    (logs / "log").touch()
    assert leftovers.remove_stale() == []
    leftovers.leave(empty)
    leftovers.leave(logs)
    assert leftovers.remove_stale() == []
    assert list(own.iterdir()) == [logs]
    assert list(logs.iterdir()) == [logs / "log"]


@pytest.mark.process
def test_a_rank_0_that_is_killed_leaves_nothing_to_the_next(own: Path) -> None:
    for then in ("time.sleep(600)", "time.sleep(600)", ""):
        process, said = started(JOINS.format(then=then))
        assert said == "joined"
        if then:
            # Where trainers meet, and the key: its own, and not those of the one before.
            assert len(list(own.iterdir())) == 2
            assert len(list(own.glob("*/key"))) == 1
            process.kill()
        process.communicate()
    assert list(own.iterdir()) == []


def test_who_comes_while_a_folder_is_removed_has_it_to_himself(own: Path) -> None:
    """Wherever the two meet."""
    over = threading.Event()
    removed: list[Path] = []

    def remove() -> None:
        while not over.is_set():
            removed.extend(leftovers.remove_stale())

    remover = threading.Thread(target=remove)
    remover.start()
    folder = own / "leashed-meeting"
    try:
        while len(removed) < 50:
            with contextlib.suppress(FileExistsError):
                folder.mkdir()
            if leftovers.hold(folder):
                note = folder / "note"
                note.touch()
                assert leftovers.remove_stale() == []
                assert note.exists()
                os.close(leftovers._held.pop(folder))  # as by its death
    finally:
        over.set()
        remover.join()
