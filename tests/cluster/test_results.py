"""What trainers hand in: files that a manifest names, wherever they were written."""

from __future__ import annotations

import contextlib
import json
import socket
import struct
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cluster import inside
from cluster.handing import hand_in, handed_in
from warned import once

import leashed as lsh
from leashed.base import atomic
from leashed.cluster import receiving, results, wire
from leashed.cluster.last_word import LastWord
from leashed.cluster.member import Lost
from leashed.cluster.opening import Peer
from leashed.cluster.results import Result, Results
from leashed.cluster.session import Cluster
from leashed.cluster.state import Terms

RUN = "0123"
VALUES = np.arange(5, dtype=np.float32)


def taking(run: Path, **terms: Any) -> Results:
    return Results(run, RUN, Terms(total=None, batch_size=1, trainers=1, **terms))


def hand(to: Results, given: Result, name: str = "trainer-0") -> tuple[bool, int]:
    """Whether it is taken, and how many words the master has said."""
    ours, theirs = socket.socketpair()
    words: list[bytes] = []

    def answered() -> None:
        words.append(ours.recv(1, socket.MSG_PEEK))

    with contextlib.closing(ours):
        ours.settimeout(inside.PATIENCE)
        to.take(theirs, Peer("trainer", name, "result", "127.0.0.1:1"))
        try:
            taken = given.send(ours, answered)
        except ConnectionError:
            taken = False
    return taken, len(words)


def manifest(run: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((run / "results" / "manifest.json").read_text())
    return found


def test_a_file_that_lies_in_the_masters_folder_is_named_and_not_sent(tmp_path: Path) -> None:
    master, given = taking(tmp_path), Result("trainer-0", VALUES)
    given.put(tmp_path)
    before = (tmp_path / "results" / given.file).stat().st_ino
    assert hand(master, given) == (True, 1)
    assert (tmp_path / "results" / given.file).stat().st_ino == before
    told = manifest(tmp_path)
    assert told["run"] == RUN
    assert told["results"] == {"trainer-0": given.told}
    assert master.names == ["trainer-0"]
    np.testing.assert_array_equal(np.fromfile(handed_in(tmp_path)["trainer-0"], "<f4"), VALUES)


def test_a_file_of_another_machine_is_sent_in_pieces_however_long(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No message has all of it, neither of the wire's nor of the results' own."""
    asked: list[int] = []

    def exactly(connection: socket.socket, size: int) -> bytes:
        asked.append(size)
        return receiving.exactly(connection, size)

    monkeypatch.setattr(results, "_PIECE", 64)
    monkeypatch.setattr(wire, "LONGEST", 64)
    monkeypatch.setattr(results, "exactly", exactly)
    many = np.random.default_rng(0).normal(size=1001).astype(np.float32)
    master = taking(tmp_path / "here", parameters=1001, statistics=5)
    given = Result("trainer-3", many, VALUES)
    given.put(tmp_path / "there")
    assert hand(master, given, "trainer-3") == (True, 2)
    assert max(asked) == 64
    assert sum(asked) == 40 + 4 * 1006
    here = handed_in(tmp_path / "here")["trainer-3"]
    assert here.read_bytes() == (tmp_path / "there" / "results" / given.file).read_bytes()
    np.testing.assert_array_equal(np.fromfile(here, "<f4"), [*many, *VALUES])


def test_a_file_that_is_damaged_is_sent_again(tmp_path: Path) -> None:
    master, given = taking(tmp_path), Result("trainer-0", VALUES)
    given.put(tmp_path)
    (tmp_path / "results" / given.file).write_bytes(b"\0" * 20)
    assert hand(master, given) == (True, 2)
    np.testing.assert_array_equal(np.fromfile(handed_in(tmp_path)["trainer-0"], "<f4"), VALUES)


def test_the_last_of_a_trainer_takes_the_place_of_those_before(tmp_path: Path) -> None:
    master = taking(tmp_path)
    for name, values in (("trainer-1", VALUES), ("trainer-10", VALUES), ("trainer-1", VALUES + 1)):
        assert hand(master, Result(name, values), name)[0]
    found = handed_in(tmp_path)
    assert sorted(found) == ["trainer-1", "trainer-10"]
    assert len(list((tmp_path / "results").glob("*.f32"))) == 2
    np.testing.assert_array_equal(np.fromfile(found["trainer-1"], "<f4"), VALUES + 1)
    assert taking(tmp_path).names == ["trainer-1", "trainer-10"]  # of the next master


def test_where_the_manifest_cannot_be_written_what_was_there_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    master = taking(tmp_path)
    assert hand(master, Result("trainer-0", VALUES))[0]
    plain = atomic.write

    def full(path: Path, content: Any) -> None:
        if path.name == "manifest.json":
            raise OSError(28, "No space left on device")
        plain(path, content)

    monkeypatch.setattr(atomic, "write", full)
    assert hand(master, Result("trainer-0", VALUES + 1)) == (False, 2)
    assert "the result of trainer-0 is refused" in caplog.text
    assert master.names == ["trainer-0"]
    np.testing.assert_array_equal(np.fromfile(handed_in(tmp_path)["trainer-0"], "<f4"), VALUES)


def test_what_is_there_of_another_run_is_none(tmp_path: Path) -> None:
    hand_in(tmp_path, "trainer-0", VALUES, run="before")
    assert taking(tmp_path).names == []
    assert results.named(tmp_path, RUN) == {}
    assert list(results.named(tmp_path, "before")) == ["trainer-0"]
    assert results.named(tmp_path / "none", RUN) == {}


def test_a_file_that_is_not_what_the_manifest_says_is_told(tmp_path: Path) -> None:
    hand_in(tmp_path, "trainer-0", VALUES)
    path = handed_in(tmp_path)["trainer-0"]
    path.write_bytes(struct.pack("<5f", *(VALUES + 1)))
    with pytest.raises(ValueError, match="is not what the manifest beside it says"):
        results.named(tmp_path, RUN)
    path.unlink()
    with pytest.raises(FileNotFoundError, match="the manifest beside it names it"):
        results.named(tmp_path, RUN)
    with pytest.raises(ValueError, match="what trainers have come to, each by itself; load the"):
        lsh.load(tmp_path / "results")


def test_more_than_may_come_in_at_a_time_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(results, "_AT_A_TIME", 1)
    master = taking(tmp_path)
    waits, theirs = socket.socketpair()
    with contextlib.closing(waits):
        master.take(theirs, Peer("trainer", "trainer-1", "result", ""))
        assert not hand(master, Result("trainer-0", VALUES))[0]
        assert "more than 1 come in at a time" in caplog.text
        master.close()
        waits.settimeout(inside.PATIENCE)
        assert waits.recv(1) == b""
    assert not hand(master, Result("trainer-0", VALUES))[0]


def test_what_a_killed_process_has_not_written_to_its_end_goes(tmp_path: Path) -> None:
    (tmp_path / "results").mkdir()
    left = tmp_path / "results" / ".trainer-0-0123456789abcdef.f32.7.8"
    others = tmp_path / "results" / ".notes"
    for each in (left, others):
        each.touch()
    taking(tmp_path)
    assert (left.exists(), others.exists()) == (False, True)


def test_a_result_has_values() -> None:
    with pytest.raises(ValueError, match="arrays have no values"):
        Result("trainer-0", np.zeros(0, np.float32))


@pytest.mark.parametrize("shared", [True, False])
def test_a_trainer_writes_its_own_where_its_folder_is(tmp_path: Path, shared: bool) -> None:
    here, there = tmp_path / "here", tmp_path / ("here" if shared else "there")
    with inside.run(here, 5, total=3) as run:
        engine = lsh.Engine(VALUES, cluster=run.cluster(0, folder=there), batches=3)
        for t in engine.batches():
            engine.push(np.zeros(5, np.float32), t=t)
        engine.close()
        np.testing.assert_array_equal(run.result(0), VALUES)
        assert run.report()["results"] == ["trainer-0"]
    for folder in {here, there}:
        assert len(list((folder / "results").glob("trainer-0-*.f32"))) == 1


def test_a_trainer_that_cannot_write_sends_it_all_the_same(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").touch()
    place = Cluster(0, 1, 0, "127.0.0.1:1", inside.KEY, folder=tmp_path / "file")
    LastWord("trainer-0", place, None).put(Result("trainer-0", VALUES))  # type: ignore[arg-type]
    assert "the result goes to the master alone, as it cannot be written" in caplog.text


@pytest.mark.parametrize("end", [None, 1e9])
def test_exactly_so_many_bytes_are_received(end: float | None) -> None:
    ours, theirs = socket.socketpair()
    with contextlib.closing(ours), contextlib.closing(theirs):
        late = threading.Timer(0.05, ours.sendall, [b"cde"])
        ours.sendall(b"ab")
        late.start()
        assert receiving.exactly(theirs, 4, end) == b"abcd"
        late.join()
        ours.close()
        assert receiving.exactly(theirs, 1, end) == b"e"
        with pytest.raises(receiving.EndedError, match="closed the connection in the middle"):
            receiving.exactly(theirs, 1, end)


def test_who_is_late_is_not_waited_for() -> None:
    ours, theirs = socket.socketpair()
    with contextlib.closing(ours), contextlib.closing(theirs):
        ours.sendall(b"a")
        with pytest.raises(TimeoutError, match="1 bytes have not come in time"):
            receiving.exactly(theirs, 1, 0.0)


def test_who_loses_the_master_at_the_end_tells_why_it_is_lost(tmp_path: Path) -> None:
    """And not that it has not confirmed what it was told."""
    with inside.run(tmp_path, 3, total=1) as run:
        place = run.cluster()
        given = {"total": 1, "batch_size": 1, "workers": 1, "lockstep": False}
        with contextlib.closing(place.session(3, None, **given)) as session:
            say = session._last.say

            def loses(*said: Any) -> dict[str, float]:
                counted = say(*said)
                session._last._lose("the master has not confirmed that this one ended")
                session._events.put(Lost("the master is away for more than 3 s: nobody listens"))
                return counted

            session._last.say = loses  # type: ignore[method-assign]
            with once("the run ended before its training did"):
                session.finish(np.zeros(3, np.float32), {})
            assert session.lost
            assert session.cut_short == "the master is away for more than 3 s: nobody listens"
