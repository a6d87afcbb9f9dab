"""What a new master reads."""

from __future__ import annotations

import copy
import errno
import os
import random
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from leashed.cluster import journal
from leashed.cluster.journal import Journal, lines, read
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
    Snapshot,
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
    opened.write(lines([BEGAN]))
    for change in changes:
        opened.write(lines([change]))
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
    again.write(lines(CHANGES[3:]))
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
    write(path, CHANGES[:11])
    opened = Journal(path)
    assert not opened.long
    opened.close()
    monkeypatch.setattr(journal, "_LONG", 600)
    opened = Journal(path)
    assert opened.long
    whole = lines([BEGAN, Snapshot(state_after(CHANGES[:12]))])
    opened.write(lines(CHANGES[11:12]), whole)
    assert not opened.long
    assert path.read_bytes() == whole
    with pytest.raises(BlockingIOError):
        Journal(path)  # the new file is as locked as the old one
    opened.write(lines(CHANGES[12:]))
    opened.close()
    found = read(path)
    assert found is not None
    assert found[1] == state_after(CHANGES)
    assert [p.name for p in tmp_path.iterdir()] == ["j"]


def test_the_longer_a_snapshot_the_longer_until_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So that writing them is a fifth of all that is written."""
    monkeypatch.setattr(journal, "_LONG", 100)
    path = tmp_path / "j"
    write(path, CHANGES[:4])
    opened = Journal(path)
    whole = lines([BEGAN, Snapshot(state_after(CHANGES[:4]))])
    opened.write(b"", whole)
    while not opened.long:
        opened.write(lines(CHANGES[4:5]))
    opened.close()
    assert 0 < path.stat().st_size - 5 * len(whole) <= len(lines(CHANGES[4:5]))


class Killed(BaseException):
    """The process is no more."""


class Files:
    """What a process does to files, until it is killed at the so many-th of these; and, of what is
    not the journal itself, some that fail.
    """

    NAMES = ("open", "write", "fsync", "close", "rename", "unlink", "ftruncate")

    def __init__(self, patch: pytest.MonkeyPatch, rng: random.Random) -> None:
        self.left = rng.randrange(1, 60)
        self.rng = rng
        self.descriptors: dict[int, str] = {}
        self.real = {name: getattr(os, name) for name in self.NAMES}
        for name in self.NAMES:
            patch.setattr(os, name, partial(self.do, name))

    def do(self, name: str, first: Any, *more: Any, **named: Any) -> Any:
        of = self.descriptors.get(first, "") if isinstance(first, int) else str(first)
        self.left -= 1
        if self.left <= 0:
            if self.left == 0 and name == "write":
                self.real["write"](first, more[0][: self.rng.randrange(len(more[0]))])
            raise Killed
        if of.endswith(".new") and name != "close" and self.rng.random() < 0.05:
            raise OSError(errno.ENOSPC, "No space left on device")
        if name == "write":
            more = (more[0][: self.rng.randrange(1, len(more[0]) + 1)],)
        if name == "fsync":  # (the machine is not killed)
            return None
        result = self.real[name](first, *more, **named)
        if name == "open":
            self.descriptors[result] = of
        elif name == "close":
            self.descriptors.pop(first, None)
        elif name == "rename":  # it is the journal now
            self.descriptors = dict.fromkeys(self.descriptors, str(more[0]))
        return result

    def end(self) -> None:
        """What the system does."""
        for descriptor in self.descriptors:
            self.real["close"](descriptor)


def any_change(rng: random.Random, state: State) -> Change:
    """One that may follow."""
    members, ledger = state.membership.members, state.ledger
    trainers = [m.id for m in members.values() if m.role == "trainer" and not m.left]
    if not trainers or rng.random() < 0.05:
        index = max((m.index for m in members.values()), default=-1) + 1
        return Joined(state.membership.ids + 1, "trainer", index, f"h:{index}", 1.0)
    member = rng.choice(trainers)
    kind = rng.random()
    if ledger.held and kind < 0.4:
        held = rng.choice(list(ledger.held.values()))
        return Completed(held.ticket, held.member)
    if kind < 0.8:
        return Granted(ledger.tickets + 1, member, rng.randrange(1, 9), 1)
    if kind < 0.9:
        return EpochMade(state.membership.epoch.number + 1, broken=rng.random() < 0.5)
    return Removed(member, "gone", 2.0, [(ticket, 0) for ticket, _ in ledger.used(member)])


@pytest.mark.parametrize("seed", range(100))
def test_wherever_a_master_is_killed_the_next_knows_all_that_was_heard_of(
    seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between any two of the things that it does to files, or in one."""
    monkeypatch.setattr(journal, "_LONG", 400)
    monkeypatch.setattr(journal, "_TIMES", 1)
    rng = random.Random(seed)
    path = tmp_path / "j"
    began = Began("run", 1.7e9, Terms(total=None, batch_size=4, trainers=2))
    write_now = lines([began])
    heard: list[State] = []  # those that a new one may find
    for _ in range(6):
        with monkeypatch.context() as patch:
            files = Files(patch, rng)
            try:
                opened = Journal(path)
                if opened.found is None:
                    assert not heard
                    opened.write(write_now)
                    state = State.of(began.terms)
                else:
                    state = opened.found[1]
                    assert not heard or state in heard
                heard = [copy.deepcopy(state)]
                while True:
                    changes = []
                    for _ in range(rng.randrange(1, 4)):
                        changes.append(any_change(rng, state))
                        state.apply(changes[-1])
                        heard.append(copy.deepcopy(state))
                    whole = lines([began, Snapshot(state)]) if opened.long else None
                    opened.write(lines(changes), whole)
                    heard = heard[-1:]
            except Killed:
                files.end()
    assert read(path) is not None or not heard


def test_a_full_disk_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened = Journal(tmp_path / "j")

    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "write", full)
        with pytest.raises(OSError, match="No space left"):
            opened.write(lines([BEGAN]))
    opened.close()
