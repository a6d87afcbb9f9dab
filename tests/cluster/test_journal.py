"""What a new master reads."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from leashed.cluster import journal
from leashed.cluster.journal import Journal, read
from leashed.cluster.state import (
    Began,
    Change,
    Completed,
    Ended,
    EpochMade,
    Granted,
    Joined,
    Late,
    LeftRing,
    Removed,
    Settled,
    State,
    Terms,
)

TERMS = Terms(total=20, batch_size=4, trainers=2)
BEGAN = Began("run", 1.7e9, TERMS)
CHANGES: list[Change] = [
    Joined(1, "trainer", 0, "[::1]:7000", 0.25),
    Joined(2, "trainer", 1, "b:1", 0.5),
    Joined(3, "sync-ps", 0, "c:1", 0.5),
    EpochMade(1, broken=False),
    Settled(1, 1),
    Granted(1, 1, 6, 1),
    Granted(2, 2, 6, 1),
    Completed(1, 1),
    Granted(3, 1, 6, 2),
    Removed(2, "its connection closed", 3.0, [(2, 3)]),
    EpochMade(2, broken=True),
    LeftRing(1, 4.0, [(3, 6)]),
    Joined(4, "trainer", 1, "b:2", 4.5),
    Late(2, 4),
    Removed(1, "finished", 5.0, [], {"loss": 0.25}),
    Ended("over", 6.0),
]


def state_after(changes: list[Change]) -> State:
    state = State.of(TERMS)
    for change in changes:
        state.apply(change)
    return state


def write(path: Path, changes: list[Change]) -> bytes:
    opened = Journal(path)
    assert opened.found is None
    opened.append([BEGAN])
    for change in changes:
        opened.append([change])
    opened.close()
    return path.read_bytes()


def test_what_was_written_is_read(tmp_path: Path) -> None:
    content = write(tmp_path / "j", CHANGES)
    assert content.count(b"\n") == 1 + len(CHANGES)
    assert read(tmp_path / "j") == (BEGAN, state_after(CHANGES), len(content))
    state = state_after(CHANGES)
    assert state.ledger.complete == 6 + 3 + 6
    assert state.ledger.again == 3
    assert state.ledger.late == 1
    assert state.summaries == {"trainer-0": {"loss": 0.25}}
    assert state.membership.epoch.number == 2
    assert state.over == "over"
    assert read(tmp_path / "none") is None


def test_a_torn_last_line_was_never_heard_of(tmp_path: Path) -> None:
    """Cut at every byte."""
    content = write(tmp_path / "j", CHANGES)
    path = tmp_path / "torn"
    for size in range(len(content)):
        path.write_bytes(content[:size])
        found = read(path)
        whole = content[:size].count(b"\n")
        if not whole:
            assert found is None
        else:
            assert found is not None
            assert found[1] == state_after(CHANGES[: whole - 1])


def test_a_new_master_writes_behind_what_is_whole(tmp_path: Path) -> None:
    path = tmp_path / "j"
    content = write(path, CHANGES[:4])
    path.write_bytes(content[:-5])
    again = Journal(path)
    assert again.found == (BEGAN, state_after(CHANGES[:3]))
    again.append(CHANGES[3:])
    again.close()
    found = read(path)
    assert found is not None
    assert found[1] == state_after(CHANGES)


@pytest.mark.parametrize(
    "damage",
    [
        lambda lines: [b"{}", *lines],
        lambda lines: [*lines[:3], b"\xff\xfe", *lines[3:]],
        lambda lines: [*lines[:3], b'{"type":"nonsense"}', *lines[3:]],
        lambda lines: [*lines[:3], lines[0], *lines[3:]],
        lambda lines: [*lines[:3], *lines[4:]],  # one is missing
        lambda lines: [*lines[:7], lines[6], *lines[7:]],  # one comes twice
        lambda lines: lines[1:],
    ],
)
def test_damage_is_told_with_its_line(tmp_path: Path, damage) -> None:
    path = tmp_path / "j"
    lines = write(path, CHANGES).splitlines()
    path.write_bytes(b"\n".join(damage(lines)) + b"\n")
    with pytest.raises(ValueError, match=r"j, line \d+, is damaged .*give another folder"):
        Journal(path)
    Journal(tmp_path / "other").close()


def test_one_master_at_a_time(tmp_path: Path) -> None:
    first = Journal(tmp_path / "j")
    with pytest.raises(BlockingIOError, match="another master has this journal; end it"):
        Journal(tmp_path / "j")
    first.close()
    Journal(tmp_path / "j").close()


def test_a_long_one_is_made_short(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "j"
    write(path, CHANGES[:12])
    opened = Journal(path)
    assert opened.found is not None
    opened.shorten(*opened.found)
    assert path.read_bytes().count(b"\n") == 13
    monkeypatch.setattr(journal, "_LONG", 10)
    opened.shorten(*opened.found)
    assert path.read_bytes().count(b"\n") == 2
    with pytest.raises(BlockingIOError):
        Journal(path)  # the new file is as locked as the old one
    opened.append(CHANGES[12:])
    opened.close()
    found = read(path)
    assert found is not None
    assert found[1] == state_after(CHANGES)
    assert [p.name for p in tmp_path.iterdir()] == ["j"]


def test_a_full_disk_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened = Journal(tmp_path / "j")

    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "write", full)
        with pytest.raises(OSError, match="No space left"):
            opened.append([BEGAN])
    opened.close()
