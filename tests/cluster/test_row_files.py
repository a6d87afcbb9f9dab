"""What an embedding server leaves to the one that is started in its place, and to the run's end."""

from __future__ import annotations

import errno
import os
import random
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from cluster.row_server import CLIENTS, DESCRIBED, RUN, Server, made

import leashed as lsh
from leashed import _core
from leashed.base import atomic
from leashed.cluster import keeping, row_files
from leashed.cluster.row_files import RowFiles, joined
from leashed.files import folders

KILLS = 8


def serving(
    folder: Path, index: int = 0, servers: int = 1, run: str = RUN, steps: int = 0
) -> tuple[Server, RowFiles]:
    """With snapshots at each look, going on from what is there."""
    server = Server(made(index, servers))
    for table in server.tables.values():
        table.native.reach_steps(steps)
    files = RowFiles(server.tables, folder, run, index, 0.0)
    files.restore()
    files.serve(server)
    return server, files


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keeping, "_WRITING", 1e9)


def test_a_server_goes_on_from_its_snapshot(tmp_path: Path) -> None:
    server, files = serving(tmp_path)
    assert files.counters()["restored"] == 0
    for step in range(40):
        server.push(step % CLIENTS)
        files.keep()
    server.push(0)  # which no snapshot has
    again, more = serving(tmp_path)
    assert more.counters()["restored"] == 40
    assert again.numbers == [8] * CLIENTS
    assert again.has_what_it_says()
    assert again.applied() == [(client, 7, 8, client % 3, 8, 128) for client in range(CLIENTS)]
    # What it goes on with are changes of what is there.
    again.push(1)
    more.keep()
    assert list((tmp_path / "embedding-ps-0").glob("*.changes*"))
    third, last = serving(tmp_path)
    assert last.counters()["restored"] == 41
    assert third.has_what_it_says()


def test_what_a_restart_loses_is_counted(tmp_path: Path) -> None:
    server, files = serving(tmp_path)
    for _ in range(7):
        server.push(0)
    files.keep()
    files._every = 1e9
    files._kept._every = files._kept._due = 1e9
    for _ in range(5):
        server.push(1)
    files.keep()  # the count alone
    again, more = serving(tmp_path)
    assert (more.counters()["restored"], more.counters()["lost"]) == (7, 5)
    assert again.numbers[:2] == [7, 0]


def test_its_end_writes_what_is_not_due_and_what_nobody_has_changed(tmp_path: Path) -> None:
    server, files = serving(tmp_path)
    files.end()
    assert joined(tmp_path, DESCRIBED, 1, RUN).tables["a"].lookup([5])[0, 0] == 0.0
    server.push(0)
    files.end()
    assert joined(tmp_path, DESCRIBED, 1, RUN).tables["a"].lookup([5])[0, 0] == 1.0
    before = {path: path.stat() for path in tmp_path.rglob("*")}
    files.end()
    files.keep()
    assert {path: path.stat() for path in tmp_path.rglob("*")} == before


def test_a_snapshot_of_another_run_or_of_other_tables_is_refused(tmp_path: Path) -> None:
    _, files = serving(tmp_path, 0, 2)
    files.end()
    with pytest.raises(ValueError, match=r"is of another run; remove it and its \.count, or"):
        serving(tmp_path, 0, 2, run="4567")
    with pytest.raises(ValueError, match="has other shards of table a; join the files of all"):
        serving(tmp_path, 0, 3)
    one = {"a": made(0, 2)["a"]}
    with pytest.raises(ValueError, match="its tables are a, b, and not a"):
        RowFiles(one, tmp_path, RUN, 0, 0.0).restore()


@pytest.mark.parametrize("version", [1, 2])
def test_a_snapshot_of_an_older_release_is_refused_and_its_rows_can_be_read(
    tmp_path: Path, version: int
) -> None:
    server, files = serving(tmp_path)
    server.push(0)
    files.keep()
    folder = tmp_path / "embedding-ps-0"
    manifest = folders.manifest_of(folder, "leashed.rows")
    applied = [list(each[:4]) for each in server.applied()]
    folders.put_manifest(
        folder, {**manifest, "version": version, "told": {**manifest["told"], "applied": applied}}
    )
    with pytest.raises(
        ValueError, match=r"-ps-0 is of an older release, .*; go on with that release"
    ):
        serving(tmp_path)
    assert joined(tmp_path, DESCRIBED, 1, RUN).tables["a"].lookup([5])[0, 0] == 1.0
    folders.put_manifest(folder, {**manifest, "version": 4})
    with pytest.raises(
        ValueError, match="version is 4, this release reads 1 to 3; upgrade leashed"
    ):
        serving(tmp_path)


def test_what_cannot_be_written_costs_that_snapshot_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    server, files = serving(tmp_path)
    server.push(0)
    files.keep()
    server.push(1)
    with monkeypatch.context() as patch:
        patch.setattr(
            server.tables["b"].__class__, "save_changes", failing("No space left on device")
        )
        files.keep()
        files.keep()
        with pytest.raises(OSError, match="No space left on device"):
            files.end()
    assert files.counters()["snapshots_failed"] == 3
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    again, more = serving(tmp_path)
    assert more.counters()["restored"] == 1
    assert again.has_what_it_says()
    server.push(2)
    files.keep()
    again, more = serving(tmp_path)
    assert more.counters()["restored"] == 3
    assert again.has_what_it_says()


def failing(why: str) -> Callable[..., int]:
    def fail(*_: object, **__: object) -> int:
        raise ValueError(f"'x' cannot be written: {why}")

    return fail


def test_how_long_pushes_waited_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0

    def told(*_: object, **__: object) -> list[row_files.Applied]:
        nonlocal now
        now += 3.0
        return []

    monkeypatch.setattr(row_files.time, "monotonic", lambda: now)
    server, files = serving(tmp_path)
    now = 1.0
    monkeypatch.setattr(server, "applied", told)
    for client in range(2):
        server.push(client)
        files.keep()
    counted = files.counters()
    assert (counted["stalled"], counted["stall"], counted["snapshots"]) == (6.0, 3.0, 2)
    assert counted["rows"] == 3000 + 2 * 60 + (1 if CLIENTS == 5 else 0)
    assert counted["row_updates"] == 2 * (600 + 60)


def test_the_core_s_server_goes_on_from_a_snapshot(tmp_path: Path) -> None:
    first, files = serving(tmp_path, steps=3)  # which its tables had made before the run
    for step in range(12):
        first.push(step % CLIENTS)
    files.keep()
    of = made()
    files = RowFiles(of, tmp_path, RUN, 0, 0.0)
    assert files.restore() == 12
    placed = _core.RowPlacement([(False, 0), (True, 0)], [0] * 256)
    server = _core.RowServer([table.native for table in of.values()], [0, 1], placed, 0, 1)
    files.serve(server)
    assert server.applied() == first.applied()
    assert server.counters()["pushes"] == 12
    of["a"].update([5], np.full((1, 4), -2.0, np.float32))
    for _ in range(2):
        files._save()
    whole, pushes, _ = joined(tmp_path, DESCRIBED, 1, RUN)
    assert pushes == [12]
    assert whole["a"].lookup([5])[0].tolist() == [5.0] * 4
    assert whole["b"].statistics()["steps"] == 3 + 12


@pytest.mark.parametrize("servers", [1, 2, 3])
def test_the_parts_of_all_servers_are_the_whole_tables(tmp_path: Path, servers: int) -> None:
    for index in range(servers):
        server, files = serving(tmp_path, index, servers)
        server.push(0)
        files.keep()
        for client in range(CLIENTS):
            server.push(client)
        files.end()
    whole, pushes, counters = joined(tmp_path, DESCRIBED, servers, RUN)
    assert [each["pushes"] for each in counters] == pushes
    assert pushes == [6] * servers
    assert list(whole) == ["a", "b"]
    assert (whole["a"].rows, whole["b"].rows) == (3000, None)
    expected = np.where(np.arange(3000) % CLIENTS == 0, 2.0, 1.0)
    np.testing.assert_array_equal(whole["a"].lookup(range(3000))[:, 0], expected)
    np.testing.assert_array_equal(whole["b"].lookup(range(300))[:, 0], expected[:300])
    assert len(whole["b"].ids()) == 301  # that of 2⁶⁴ − 1 is always there
    assert isinstance(whole["a"].rule, lsh.SGD)


def test_a_server_that_has_saved_nothing_is_named(tmp_path: Path) -> None:
    for index in (0, 2):
        _, files = serving(tmp_path, index, 3)
        files.end()
    named = r"embedding server 1 has saved no rows in .*-ps-1"
    with pytest.raises(FileNotFoundError, match=f"{named}: .*another machine, copy that folder"):
        joined(tmp_path, DESCRIBED, 3, RUN)
    _, files = serving(tmp_path, 1, 3, run="4567")
    with pytest.raises(FileNotFoundError, match=f"{named}: it ended before its first snapshot"):
        joined(tmp_path, DESCRIBED, 3, RUN)
    files.end()
    with pytest.raises(ValueError, match=r"ps-1 is of run 4567, and not of 0123"):
        joined(tmp_path, DESCRIBED, 3, RUN)
    with pytest.raises(ValueError, match="is of the rows of a server, and of no model"):
        lsh.load(tmp_path / "embedding-ps-0")


@pytest.mark.process
def test_what_a_killed_server_leaves_is_of_one_moment(tmp_path: Path) -> None:
    """Killed at any moment, in the middle of snapshots too, and each goes on from what was left."""
    seed = random.randrange(2**32)
    rng, newest, torn = random.Random(seed), 0, 0
    folder = tmp_path / "embedding-ps-0"
    for kill in range(KILLS):
        with subprocess.Popen(
            [sys.executable, "-m", "cluster.row_server", str(tmp_path)],
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        ) as child:
            assert child.stdout is not None
            child.stdout.readline()
            time.sleep(rng.uniform(0.0, 0.5))
            child.kill()
        names = {path.name for path in folder.iterdir()}
        torn += any("partial" in name for name in names) or len(names) > 3
        server, files = serving(tmp_path)
        restored = int(files.counters()["restored"])
        assert sum(server.numbers) == restored, (seed, kill)
        assert server.has_what_it_says(), (seed, kill)
        assert restored >= newest, (seed, kill)
        newest = restored
    assert newest > 0
    assert files.counters()["lost"] >= 0
    print(f"{newest} pushes, {torn} of {KILLS} killed in the middle of files")


def test_a_damaged_snapshot_is_named(tmp_path: Path) -> None:
    server, files = serving(tmp_path)
    server.push(0)
    files.keep()
    folder = tmp_path / "embedding-ps-0"
    file = next(iter(folder.glob("*.table0")))
    whole = file.read_bytes()
    file.write_bytes(whole[:-1])
    with pytest.raises(ValueError, match=r"table0: it is not what the manifest beside it says"):
        serving(tmp_path)
    for at in (0, len(whole) // 2, len(whole) - 20):
        file.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
        with pytest.raises(ValueError, match=r"table0' (is damaged|is no file)"):
            serving(tmp_path)
    file.unlink()
    with pytest.raises(FileNotFoundError, match="the manifest beside it names it"):
        serving(tmp_path)
    file.write_bytes(whole)
    manifest = folder / "manifest.json"
    manifest.write_text(manifest.read_text().replace('"pushes": 1', '"pushes": 2'))
    with pytest.raises(ValueError, match="its checksum is not that of its content"):
        serving(tmp_path)
    manifest.unlink()  # as where it was killed before its first was written
    again, more = serving(tmp_path)
    assert again.numbers == [0] * CLIENTS
    assert more.counters()["lost"] == 1
    again.push(2)
    more.keep()
    assert serving(tmp_path)[0].numbers == [0, 0, 1, 0, 0]


def test_changes_that_the_disk_has_not_taken_are_written_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server, files = serving(tmp_path)
    server.push(0)
    files.keep()
    server.push(1)
    with monkeypatch.context() as patch:
        patch.setattr(atomic, "flush", failing_flush)
        files.keep()
    assert files.counters()["snapshots_failed"] == 1
    server.push(2)
    files.keep()
    again, more = serving(tmp_path)
    assert more.counters()["restored"] == 3
    assert again.has_what_it_says()


def failing_flush(path: Path) -> None:
    raise OSError(errno.EIO, "Input/output error", str(path))


def test_all_rows_are_written_while_others_push_and_what_these_change_follows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody waits for more than what has changed meanwhile."""
    server, files = serving(tmp_path)
    for client in range(CLIENTS):
        server.push(client)
    quiet = server.quiet
    folder = tmp_path / "embedding-ps-0"

    def pushed(f: Callable[[], None]) -> None:
        assert (folder / "1.table0").exists()
        server.push(1)
        quiet(f)
        assert (folder / "1.changes0").stat().st_size < (folder / "1.table0").stat().st_size / 2

    monkeypatch.setattr(server, "quiet", pushed)
    files.keep()
    again, more = serving(tmp_path)
    assert more.counters()["restored"] == CLIENTS + 1
    assert again.has_what_it_says()


def test_rows_that_nobody_has_updated_are_not_written(tmp_path: Path) -> None:
    server, files = serving(tmp_path)
    server.push(0)
    files.keep()
    folder = tmp_path / "embedding-ps-0"
    native = server.tables["a"].native
    native.save(str(tmp_path / "all"), "")
    assert (folder / "1.table0").stat().st_size < (tmp_path / "all").stat().st_size / 4
    rows = server.tables["a"].lookup(range(3000))
    again, _ = serving(tmp_path)
    assert again.has_what_it_says()
    np.testing.assert_array_equal(again.tables["a"].lookup(range(3000)), rows)
    whole = joined(tmp_path, DESCRIBED, 1, RUN).tables["a"]
    np.testing.assert_array_equal(whole.lookup(range(3000)), rows)
