"""What a sync server leaves to the one that is started in its place, and what keeping it costs."""

from __future__ import annotations

import errno
import os
import signal
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from cluster import faults, inside

from leashed import _core
from leashed.cluster import keeping, server
from leashed.cluster.supervisor import INTERRUPTED, Supervisor, command


@dataclass
class Fake:
    """A server that was changed so often."""

    changes: int = 0
    copied: int = 0
    more: int = 0  # while it is copied

    def counters(self) -> dict[str, int]:
        return {"changes": self.changes}

    def snapshot(self) -> tuple[object, list[bool], int]:
        self.copied += 1
        held = self.changes
        self.changes += self.more
        return np.full(4, held, np.float32), [True], held


@dataclass
class Clock:
    """Stands still, but for what writing takes."""

    now: float = 0.0
    writing: float = 0.0
    full: bool = False
    written: int = 0

    def monotonic(self) -> float:
        return self.now

    def fsync(self, _: int) -> None:
        self.written += 1
        self.now += self.writing
        if self.full:
            raise OSError(errno.ENOSPC, "No space left on device")


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(keeping.time, "monotonic", clock.monotonic)
    monkeypatch.setattr(os, "fsync", clock.fsync)
    return clock


def kept(fake: Fake, folder: Path, restored: int = 0, first: float = 0.0) -> keeping.Keeping:
    return keeping.Keeping(
        lambda: fake.changes,
        lambda: server._save(fake, folder / "sync-ps-0.snapshot", "0123"),  # type: ignore[arg-type]
        keeping.Counts(folder / "sync-ps-0.count", "0123", restored),
        restored,
        1.0,
        first,
    )


def restored(folder: Path) -> int:
    native = _core.SyncServer([(0, 4)])
    return server._restore(native, folder / "sync-ps-0.snapshot", "0123", 4, 1)


def test_a_server_goes_on_from_no_snapshot_of_another_run(tmp_path: Path) -> None:
    path = tmp_path / "sync-ps-0.snapshot"
    native = _core.SyncServer([(0, 4)])
    assert server._restore(native, path, "0123", 4, 1) == 0
    server._save(native, path, "0123")
    assert server._restore(_core.SyncServer([(0, 4)]), path, "0123", 4, 1) == 0
    with pytest.raises(ValueError, match="is of another run; remove it and its"):
        server._restore(_core.SyncServer([(0, 4)]), path, "4567", 4, 1)


def test_the_first_snapshot_waits_until_it_takes_a_tenth_of_the_time(
    tmp_path: Path, clock: Clock
) -> None:
    fake = Fake(changes=5)
    keeps = kept(fake, tmp_path, first=0.4)
    for clock.now in (1.0, 3.9):
        keeps.keep(fake.changes)
    assert fake.copied == 0
    clock.now = 4.0
    keeps.keep(fake.changes)
    assert fake.copied == 1


def test_nothing_is_written_where_nothing_has_changed(tmp_path: Path, clock: Clock) -> None:
    fake = Fake(changes=5)
    keeps = kept(fake, tmp_path)
    for clock.now in (0.5, 1.0, 1.5, 2.0, 3.0, 9.0):
        keeps.keep(fake.changes)
    assert (fake.copied, clock.written) == (1, 2)  # the snapshot, and the count before it
    before = {path: path.stat() for path in tmp_path.iterdir()}
    keeps.keep(fake.changes)
    assert {path: path.stat() for path in tmp_path.iterdir()} == before
    fake.changes += 1
    keeps.keep(fake.changes)
    assert restored(tmp_path) == 6
    again = Fake(changes=6)  # what goes on from it has nothing to write either
    clock.now += 1.0
    keeps = kept(again, tmp_path, restored=6)
    clock.now += 1.0
    keeps.keep(again.changes)
    assert again.copied == 0
    assert keeps.counters() == {"lost": 0, "snapshots_failed": 0}


def test_at_its_end_a_server_writes_what_is_not_due_yet(tmp_path: Path, clock: Clock) -> None:
    fake = Fake(changes=5)
    keeps = kept(fake, tmp_path)
    clock.now = 1.0
    keeps.keep(fake.changes)
    fake.changes = 9
    clock.now = 1.1
    keeps.keep(fake.changes)
    assert restored(tmp_path) == 5
    fake.more = 2
    keeps.end()
    assert restored(tmp_path) == 9
    assert (tmp_path / "sync-ps-0.count").read_text() == "0123 11 0\n"
    again = Fake()
    kept(again, tmp_path).end()
    assert again.copied == 0


@pytest.mark.process
def test_a_server_that_is_told_to_end_has_lost_nothing(tmp_path: Path) -> None:
    """Snapshots are written once in 1,000 s, and it is the only one."""
    folder = tmp_path / "run"
    plan = faults.make_plan(
        folder, "easgd", "background", epochs=1e5, trainers=1, sync_ps=1, snapshot_every=1000.0
    )
    of = command(folder / "plan.toml")
    with Supervisor(plan.cluster.processes(), of, folder) as supervisor:
        count, end = folder / "sync-ps-0.count", time.monotonic() + inside.PATIENCE
        while not count.exists() or int(count.read_text().split()[1]) < 1000:
            assert time.monotonic() < end
            time.sleep(0.05)
        assert not (folder / "sync-ps-0.snapshot").exists()
        os.kill(supervisor.pids()["sync-ps-0"], signal.SIGTERM)
        while not supervisor.statuses("sync-ps"):
            assert time.monotonic() < end
            supervisor.step()
            time.sleep(0.05)
        assert supervisor.statuses("sync-ps") == [INTERRUPTED]
    run, changes, lost = count.read_text().split()
    found = server._read(folder / "sync-ps-0.snapshot")
    assert found is not None
    assert (found[0], lost) == (run, "0")
    # (But for what was under way.)
    assert 1000 <= int(found[1][0]) <= int(changes) < int(found[1][0]) + 1000


def test_writing_takes_a_tenth_of_the_time_at_most(tmp_path: Path, clock: Clock) -> None:
    fake, clock.writing = Fake(), 3.0
    keeps = kept(fake, tmp_path)
    spent = 0.0
    while clock.now < 300.0:
        clock.now += 0.25
        fake.changes += 1
        before = clock.now
        keeps.keep(fake.changes)
        spent += clock.now - before
    assert 0.09 * clock.now < spent <= 0.1 * clock.now


def test_what_cannot_be_written_costs_that_snapshot_alone(
    tmp_path: Path, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    fake = Fake(changes=7)
    keeps = kept(fake, tmp_path)
    clock.now = 1.0
    keeps.keep(fake.changes)
    fake.changes, clock.full = 30, True
    for clock.now in (2.0, 2.5, 3.0, 4.0):
        keeps.keep(fake.changes)
    assert keeps.counters() == {"lost": 0, "snapshots_failed": 3}
    assert [r.levelname for r in caplog.records] == ["WARNING"]
    assert "No space left on device" in caplog.text
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "sync-ps-0.count",
        "sync-ps-0.snapshot",
    ]
    assert restored(tmp_path) == 7
    assert kept(Fake(), tmp_path, restored=7).counters()["lost"] == 23
    clock.full = False
    clock.now = 5.0
    keeps.keep(fake.changes)
    assert keeps.counters()["snapshots_failed"] == 3
    assert restored(tmp_path) == 30


def test_a_count_that_cannot_be_written_stays_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    keeps = kept(Fake(), tmp_path)
    keeps.keep(10)

    def none_left(path: Path, *_: object) -> object:
        raise OSError(errno.EMFILE, "Too many open files", str(path))

    with monkeypatch.context() as patch:
        patch.setattr(Path, "open", none_left)
        keeps.keep(20)
    assert "Too many open files" in caplog.text
    assert (tmp_path / "sync-ps-0.count").read_text() == "0123 10 0\n"
    keeps.keep(20)
    assert (tmp_path / "sync-ps-0.count").read_text() == "0123 20 0\n"


def test_what_restarts_of_a_server_lose_is_counted(tmp_path: Path) -> None:
    path = tmp_path / "sync-ps-0.count"
    counts = keeping.Counts(path, "0123", 0)
    assert counts.lost == 0
    counts.keep(100)
    counts = keeping.Counts(path, "0123", 70)  # the snapshot had so many
    assert counts.lost == 30
    counts = keeping.Counts(path, "0123", 70)  # and again, before it has reported
    assert counts.lost == 30
    counts.keep(80)
    assert keeping.Counts(path, "0123", 75).lost == 35


def test_what_another_run_has_lost_counts_for_nothing(tmp_path: Path) -> None:
    path = tmp_path / "sync-ps-0.count"
    keeping.Counts(path, "0123", 0).keep(100)
    assert keeping.Counts(path, "4567", 0).lost == 0
    assert keeping.Counts(path, "0123", 0).lost == 100


@pytest.mark.parametrize("torn", [b"", b"0123 1", b"100 3\n", b"0123 x 3\n", b"\xff\0\0"])
def test_a_count_that_is_damaged_is_told_of_and_begun_anew(
    torn: bytes, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "sync-ps-0.count"
    path.write_bytes(torn)
    counts = keeping.Counts(path, "0123", 5)
    assert counts.lost == 0
    assert [r.levelname for r in caplog.records] == ["WARNING"]
    assert f"{path} is damaged: what restarts have lost so far is not known" in caplog.text
    counts.keep(9)
    assert keeping.Counts(path, "0123", 5).lost == 4
