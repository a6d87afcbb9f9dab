"""Parts of checkpoints that the master does not see come to it before there is a checkpoint, and no others."""

from __future__ import annotations

import contextlib
import os
import select
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from cluster import inside

from leashed.cluster import checkpoints, receiving, sent_files, sent_parts
from leashed.cluster.opening import Peer
from leashed.files.folders import MANIFEST

FILES = {
    "embedding-ps-1/1.table0": b"x" * 3_000_000,
    "embedding-ps-1/1.empty": b"",
    f"embedding-ps-1/{MANIFEST}": b"{}",
}


def written(run: Path, files: dict[str, bytes] = FILES, number: int = 3) -> Path:
    """A cut's folder."""
    folder = checkpoints.place(run, number)
    for name, data in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)
    return run


@contextlib.contextmanager
def master(run: Path) -> Iterator[sent_parts.Parts]:
    parts = sent_parts.Parts(run, inside.PATIENCE)
    try:
        yield parts
    finally:
        parts.close()


def send(
    to: sent_parts.Parts,
    run: Path,
    *own: str,
    who: str = "embedding-ps-1",
    number: int = 3,
    under_way: int = 3,
    whole: int = 0,
) -> None:
    ours, theirs = socket.socketpair()
    with ours:
        ours.settimeout(inside.PATIENCE)
        peer = Peer(who.rpartition("-")[0], who, sent_parts.PURPOSE, "127.0.0.1:1")
        to.take(theirs, peer, under_way, whole)
        sent_parts.send(ours, run, number, own or ["embedding-ps-1"], lambda: None, lambda: False)


def found(run: Path) -> dict[str, bytes]:
    folder = checkpoints.place(run, 3)
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


def test_what_the_master_does_not_see_is_sent(tmp_path: Path) -> None:
    there, here = written(tmp_path / "there"), tmp_path / "here"
    here.mkdir()
    with master(here) as parts:
        send(parts, there)
    assert found(here) == FILES


def test_what_it_sees_is_not_sent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = written(tmp_path)
    monkeypatch.setattr(sent_files, "_copy", lambda *_: pytest.fail("it comes again"))
    with master(run) as parts:
        send(parts, run)


def test_what_an_earlier_attempt_has_left_is_replaced(tmp_path: Path) -> None:
    """It has the same name and size, and is of another time."""
    there = written(tmp_path / "there")
    here = written(tmp_path / "here", {"embedding-ps-1/1.table0": b"y" * 3_000_000})
    with master(here) as parts:
        send(parts, there)
    assert found(here) == FILES


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Bytes of each file that is sent."""
    sizes: list[int] = []
    copy = sent_files._copy

    def counted(link: Any, file: Any, size: int, comes: Any) -> None:
        sizes.append(size)
        copy(link, file, size, comes)

    monkeypatch.setattr(sent_files, "_copy", counted)
    return sizes


def next_cut(there: Path, files: dict[str, bytes]) -> None:
    """Cut 3 has these files beside those of cut 2, which are the same."""
    before = checkpoints.place(there, 2)
    written(there, files)
    for path in before.rglob("*"):
        name = path.relative_to(before)
        if path.is_file() and str(name) not in files:
            os.link(path, checkpoints.place(there, 3) / name)


def test_what_the_checkpoint_before_has_is_not_sent_again(tmp_path: Path, sent: list[int]) -> None:
    there, here = written(tmp_path / "there", number=2), tmp_path / "here"
    here.mkdir()
    changed = {"embedding-ps-1/2.changes0": b"z" * 1000, f"embedding-ps-1/{MANIFEST}": b"{2}"}
    with master(here) as parts:
        send(parts, there, number=2, under_way=2)
        assert sorted(sent) == [0, 2, 3_000_000]
        sent.clear()
        next_cut(there, changed)
        send(parts, there, whole=2)
        assert sorted(sent) == [3, 1000]
        checkpoints.tidy(here, 3, [])
    assert found(here) == FILES | changed


def test_of_the_checkpoint_before_a_file_of_another_time_is_another(
    tmp_path: Path, sent: list[int]
) -> None:
    there, here = written(tmp_path / "there", number=2), tmp_path / "here"
    here.mkdir()
    changed = {"embedding-ps-1/1.table0": b"y" * 3_000_000}
    with master(here) as parts:
        send(parts, there, number=2, under_way=2)
        next_cut(there, changed)
        sent.clear()
        send(parts, there, whole=2)
    assert sent == [3_000_000]
    assert found(here) == FILES | changed


def test_where_the_connection_has_ended_what_had_come_is_not_sent_again(
    tmp_path: Path, sent: list[int]
) -> None:
    there, here = written(tmp_path / "there"), tmp_path / "here"
    here.mkdir()
    with master(here) as parts:
        send(parts, there)
        (checkpoints.place(here, 3) / "embedding-ps-1" / MANIFEST).unlink()
        sent.clear()
        send(parts, there)
    assert sent == [2]
    assert found(here) == FILES


@pytest.mark.parametrize("told", [[], [["embedding-ps-1/a", -1]], [["embedding-ps-1/a", "1"]], 3])
def test_of_a_file_whose_time_is_not_told_nothing_is_taken(tmp_path: Path, told: Any) -> None:
    ours, theirs = socket.socketpair()
    with ours, master(tmp_path) as parts:
        ours.settimeout(inside.PATIENCE)
        peer = Peer("embedding-ps", "embedding-ps-1", sent_parts.PURPOSE, "")
        parts.take(theirs, peer, 3, 0)
        sent_files._put(ours, {"cut": 3, "modified": told, "files": [["embedding-ps-1/a", 1]]})
        assert "the master does not have its files" in sent_files._get(ours)


def test_a_disk_that_is_full_is_told_to_who_sends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    there, here = written(tmp_path / "there"), tmp_path / "here"
    here.mkdir()
    monkeypatch.setattr(sent_files, "_free", lambda _: 2_999_999)
    with (
        master(here) as parts,
        pytest.raises(OSError, match=r"does not have its files: .*No space left"),
    ):
        send(parts, there)


def test_what_was_given_up_makes_room(tmp_path: Path) -> None:
    """No member sees it, where each machine has a folder of its own."""
    there, here = written(tmp_path / "there"), tmp_path / "here"
    for number in (1, 2):
        written(here, number=number)
    with master(here) as parts:
        send(parts, there, whole=1)
    assert sorted(path.name for path in (here / checkpoints.FOLDER).iterdir()) == ["1", "3"]


def test_what_others_still_send_has_its_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    there, here = written(tmp_path / "there"), tmp_path / "here"
    written(there, {"trainer-0.safetensors": b"x" * 2_000_000})
    here.mkdir()
    monkeypatch.setattr(sent_files, "_free", lambda _: 4_000_000)
    ours, theirs = socket.socketpair()
    with master(here) as parts, ours:
        ours.settimeout(inside.PATIENCE)
        parts.take(theirs, Peer("trainer", "trainer-0", sent_parts.PURPOSE, ""), 3, 0)
        name, size = "trainer-0.safetensors", 2_000_000
        told = {"cut": 3, "modified": [[name, 1]], "files": [[name, size]]}
        sent_files._put(ours, told)
        assert sent_files._get(ours) == [name]
        with pytest.raises(OSError, match="No space left"):
            send(parts, there)
        ours.sendall(b"x" * size)
        assert sent_files._get(ours) == ""
        send(parts, there)


def test_a_disk_that_is_slow_is_waited_for_as_long_as_the_master_lives(tmp_path: Path) -> None:
    name = "trainer-0.safetensors"
    content = bytes(range(256)) * 20_000
    (tmp_path / name).write_bytes(content)
    ours, theirs = socket.socketpair()
    waits: list[int] = []

    def lives() -> bool:
        waits.append(1)
        return stalls.is_alive()

    def answered() -> None:
        select.select([ours], [], [], inside.PATIENCE)

    found: list[bytes] = []

    def take() -> None:
        _, files = sent_files.head(theirs)
        sent_files._put(theirs, [name for name, _ in files])
        found.append(receiving.exactly(theirs, 100_000))
        while len(waits) < 2:
            time.sleep(0.01)
        found.append(receiving.exactly(theirs, len(content) - 100_000))
        sent_files._put(theirs, "")

    stalls = threading.Thread(target=take, daemon=True)
    stalls.start()
    with ours, theirs:
        ours.settimeout(0.1)
        theirs.settimeout(inside.PATIENCE)
        sent_files.send(ours, {name: tmp_path / name}, {}, answered, lives)
        stalls.join()
    assert b"".join(found) == content
    assert len(waits) >= 2


def test_a_master_that_is_gone_is_not_waited_for(tmp_path: Path) -> None:
    (tmp_path / "trainer-0.states").write_bytes(bytes(5_000_000))
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.settimeout(0.1)
        sent_files._put(theirs, ["trainer-0.states"])
        with pytest.raises(TimeoutError):
            sent_files.send(ours, {"trainer-0.states": tmp_path / "trainer-0.states"}, {})


def test_who_sends_of_a_cut_that_is_given_up_is_cut_off(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    ours, theirs = socket.socketpair()
    with ours, master(tmp_path) as parts:
        ours.settimeout(inside.PATIENCE)
        parts.take(theirs, Peer("trainer", "trainer-0", sent_parts.PURPOSE, ""), 3, 0)
        name = "trainer-0.states"
        told = {"cut": 3, "modified": [[name, 1]], "files": [[name, 1 << 30]]}
        sent_files._put(ours, told)
        sent_files._get(ours)
        parts.over()
        while ours.recv(1 << 16):
            pass
        assert not caplog.records


def test_of_a_cut_that_is_over_nothing_is_taken(tmp_path: Path) -> None:
    there, here = written(tmp_path / "there"), tmp_path / "here"
    with master(here) as parts:
        with pytest.raises(OSError, match="that cut is over"):
            send(parts, there, under_way=4)
        with pytest.raises(OSError):  # noqa: PT011 (as the connection happens to end)
            send(parts, there, under_way=0)
    assert not here.exists()


def test_nobody_writes_what_is_not_his_own(tmp_path: Path) -> None:
    there, here = written(tmp_path / "there"), tmp_path / "here"
    with master(here) as parts:
        for who in ("embedding-ps-11", "trainer-1"):
            with pytest.raises(OSError, match="they are not its own"):
                send(parts, there, who=who)
        for who in ("reader-0", "embedding-ps-", "master-0"):
            with pytest.raises(OSError):  # noqa: PT011
                send(parts, there, who=who)
    assert not here.exists()


@pytest.mark.parametrize(
    "files",
    [
        [["embedding-ps-1/../../key", 1]],
        [["/etc/key", 1]],
        [["embedding-ps-1//a", 1]],
        [["embedding-ps-1/a", -1]],
        [["embedding-ps-1/a", True]],
        [["embedding-ps-1/\0", 1]],
        [["", 1]],
        [[1, 1]],
        [1],
        3,
    ],
)
def test_what_leads_elsewhere_or_is_no_list_is_refused(files: Any) -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        sent_files._put(ours, {"files": files})
        with pytest.raises(ValueError, match="something else comes than files"):
            sent_files.head(theirs)


def test_who_sends_is_cut_off_at_the_runs_end(tmp_path: Path) -> None:
    ours, theirs = socket.socketpair()
    with ours:
        ours.settimeout(inside.PATIENCE)
        with master(tmp_path) as parts:
            parts.take(theirs, Peer("trainer", "trainer-0", sent_parts.PURPOSE, ""), 3, 0)
        while ours.recv(1 << 16):
            pass
