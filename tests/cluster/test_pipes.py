"""Rows that come once, out of a pipe, which one reader reads and keeps until they are used."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cluster.processes import pids
from cluster.test_coordinator import Talk
from cluster.test_readers import report_of

import leashed as lsh
from leashed import _core, cli, stream
from leashed.cli import cluster as command
from leashed.cluster import plan as plans
from leashed.cluster.batch_wire import UsedError
from leashed.cluster.coordinator import Send
from leashed.cluster.ledger import Ledger
from leashed.cluster.messages import Account, Join, Lease, Report, Rows, There, Welcome
from leashed.cluster.once_read import OnceRead
from leashed.cluster.reader import batches_of, serve
from leashed.cluster.remote_batches import BatchTending, sent
from leashed.cluster.row_index import RowIndex, index_of, kept_in
from leashed.cluster.row_slices import slice_of
from leashed.cluster.state import Change, State

COLUMNS = {
    "clicked": stream.Label(),
    "price": stream.Number(scale=None),
    "city": stream.Id(),
    "seen": stream.Id(between=" "),
}
SCHEMA = {
    "columns": {
        "clicked": {"kind": "label"},
        "price": {"kind": "number", "scale": None},
        "city": {"kind": "id"},
        "seen": {"kind": "id", "between": " "},
    }
}
HEAD = b"clicked,price,city,seen\n"


def lines(rows: int, first: int = 0) -> bytes:
    return b"".join(
        f"{k % 3 % 2},{k % 7},{k % 50},{k % 5} {k % 11}\n".encode()
        for k in range(first, first + rows)
    )


@contextmanager
def written(pipe: Path, *pieces: bytes | float) -> Iterator[None]:
    """Somebody writes to it meanwhile; numbers are seconds in which nothing comes."""

    def write() -> None:
        with suppress(BrokenPipeError), pipe.open("wb", buffering=0) as file:
            for piece in pieces:
                if isinstance(piece, bytes):
                    file.write(piece)
                else:
                    time.sleep(piece)

    os.mkfifo(pipe)
    writer = threading.Thread(target=write, daemon=True)
    writer.start()
    yield
    number = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    while writer.is_alive():  # nobody else reads what is left
        with suppress(BlockingIOError):
            os.read(number, 1 << 16)
        writer.join(0.01)
    os.close(number)


def test_batches_are_granted_once_their_rows_are_there() -> None:
    ledger = Ledger(None, there=0)
    assert ledger.grant(1, 5, 1) is None
    assert ledger.free == 0
    ledger.read(70, 32, ended=False)
    held = ledger.grant(1, 5, 1)
    assert held is not None
    assert (held.first, held.count, ledger.free) == (0, 2, 0)
    ledger.use(1, held.ticket, 2)
    assert not ledger.done
    with pytest.raises(ValueError, match="1 batches are there, and 2 were before"):
        ledger.read(40, 32, ended=False)
    ledger.read(70, 32, ended=True)
    assert (ledger.total, ledger.free) == (3, 1)
    with pytest.raises(ValueError, match="4 batches are there, and 3 were before"):
        ledger.read(128, 32, ended=True)
    last = ledger.grant(2, 5, 1)
    assert last is not None
    assert ledger.use(2, last.ticket, 1)
    assert ledger.done


def test_rows_that_were_trained_on_are_told_to_the_row() -> None:
    ledger = Ledger(None, there=0)
    assert ledger.rows(0, 32) == 0
    ledger.read(100, 32, ended=False)
    assert ledger.rows(100, 32) == 0
    held = ledger.grant(1, 2, 1)
    assert held is not None
    ledger.use(1, held.ticket, 1)
    assert ledger.rows(100, 32) == 32
    ledger.read(100, 32, ended=True)
    ledger.use(1, held.ticket, 2)
    for _ in range(2):
        held = ledger.grant(1, 1, 2)
        assert held is not None
    ledger.use(1, held.ticket, 1)  # the last one, of four rows
    assert ledger.rows(100, 32) == 68


@pytest.mark.parametrize("to_end", [True, False])
def test_a_run_on_a_pipe_ends_in_the_words_of_one_on_a_file(to_end: bool) -> None:
    """Of a run that is to train on all of it; else, as where updates are counted, there is no end."""
    talk = Talk(total=None, once=True, to_end=to_end, trainers=2, readers=1)
    talk.say(9, Join("reader", 0, "h:1"))
    for index in range(2):
        talk.join(index + 1, index)
    talk.say(9, Report(there=There(40)))
    (lease,) = [m for m in talk.say(1, Report(want=1, batches=9)) if isinstance(m, Lease)]
    talk.say(1, Report(used=[(lease.ticket, lease.count)]))
    talk.say(1, Report(left=True, summary={}))
    talk.say(2, Report(left=True, summary={"interrupted": 1.0}))
    standing = talk.master.standing(talk.now)
    left = "; 7 of 10 batches that have come are left, and the pipe has not ended"
    assert standing["read"] == {"rows": 40, "ended": False, "used": 12}
    assert (standing["state"], standing["reason"]) == (
        ("incomplete", f"stopped before its end: trainer-1{left}")
        if to_end
        else ("ended", "all trainers have finished")
    )


def test_a_pipe_that_has_sent_no_row_is_told() -> None:
    talk = Talk(total=None, once=True, trainers=1, readers=1)
    talk.say(9, Join("reader", 0, "h:1"))
    talk.join(1)
    talk.say(9, Report(there=There()))
    talk.say(1, Report(left=True, summary={"handed_in": 0.0}))
    standing = talk.master.standing(talk.now)
    told = "no trainer has handed in parameters: no row has come out of the pipe"
    assert (standing["state"], standing["reason"]) == ("failed", told)


def test_how_many_rows_are_sent_may_be_known_late() -> None:
    how: dict[str, Any] = {
        "numbers": 1, "bags": [], "classes": True, "values": 1, "weights": False, "columns": 0,
        "distinct_columns": False, "at_once": 4, "room": 8, "stripe": 4, "readers": 1,
    }  # fmt: skip
    with pytest.raises(ValueError, match="rows must be known where there are several passes"):
        _core.SentRows(rows=0, passes=2, **how)
    sent = _core.SentRows(rows=0, passes=1, **how)
    sent.expect(0, 6)
    assert sent.wanted([True], 0) == (0, 4)
    sent.know(5)
    assert sent.wanted([True], 0) == (4, 1)
    sent.know(5)
    with pytest.raises(_core.Error, match="there are 5 rows, and not 6"):
        sent.know(6)
    with pytest.raises(_core.Error, match="there are 5 rows, and not 0"):
        sent.know(0)


def test_a_reader_with_a_pipe_tells_what_has_come_and_who_takes_its_place_ends_the_run() -> None:
    talk = Talk(total=None, once=True, trainers=1, readers=1)
    (welcome,) = talk.say(9, Join("reader", 0, "h:1"))
    assert isinstance(welcome, Welcome)
    talk.join(1)
    talk.say(9, Report(there=There(), asks=True))

    def leases(said: list[Any]) -> list[tuple[int, int]]:
        return [(each.first, each.count) for each in said if isinstance(each, Lease)]

    assert leases(talk.say(1, Report(want=1, batches=99))) == []
    talk.master.heard(9, Report(there=There(10), asks=True), talk.now)
    assert leases(talk.answers(1)) == [(0, 1)]  # of two that are there, half
    assert leases(talk.say(1, Report(want=2, batches=99, used=[(1, 1)]))) == [(1, 1)]
    (account,) = [
        m for m in talk.say(9, Report(there=There(10), asks=True)) if isinstance(m, Account)
    ]
    assert account == Account(2, [(1, 1)])
    talk.master.heard(9, Report(there=There(10, ended=True)), talk.now)
    assert Rows(10) in talk.answers(1)
    (late,) = [m for m in talk.say(2, Join("trainer", 0, "", before=None)) if hasattr(m, "reason")]
    assert "taken by a living process" in late.reason
    (again,) = talk.say(9, Join("reader", 0, "h:1"))  # asked twice: it is welcome
    assert isinstance(again, Welcome)
    assert again.rows == 10
    talk.master.closed(9, talk.now)
    talk.say(10, Join("reader", 0, "h:2"))
    assert talk.master.over is not None
    assert "the reader has ended, and rows that come once" in talk.master.over
    assert talk.master.standing(talk.now)["state"] == "failed"


def test_a_reader_keeps_what_a_master_that_is_started_again_does_not_know_to_be_used() -> None:
    talk = Talk(total=None, once=True, trainers=1, readers=1)
    written: list[Change] = []

    def say(connection: int, message: Any) -> list[Any]:
        if connection not in talk.master.board.lines:
            talk.master.opened(connection, talk.now)
        talk.master.heard(connection, message, talk.now)
        output = talk.master.take()
        written.extend(output.changes)
        return [a.message for a in output.actions if isinstance(a, Send)]

    say(9, Join("reader", 0, "h:1"))
    say(1, Join("trainer", 0, ""))
    say(9, Report(there=There(400)))
    (lease,) = [m for m in say(1, Report(want=1, batches=99)) if isinstance(m, Lease)]
    say(1, Report(used=[(lease.ticket, 30)]))
    (told,) = [m for m in say(9, Report(there=There(400), asks=True)) if isinstance(m, Account)]
    again = State.of(talk.master.terms)
    for each in written:
        again.apply(each)
    assert told.open[0] == (0, lease.count)
    assert told == again.ledger.account
    (told,) = [m for m in say(1, Report(asks=True)) if isinstance(m, Account)]
    assert told.open[0] == (
        30,
        lease.count - 30,
    )  # of a trainer's parameters it is what they are of
    say(1, Report(used=[(lease.ticket, lease.count)]))
    (told,) = [m for m in say(9, Report(there=There(400), asks=True)) if isinstance(m, Account)]
    assert (told.next, told.open) == (lease.count, [])


class Gone:
    """A reader's rows that are used."""

    rows = 1 << 20

    def __init__(self, index: RowIndex) -> None:
        self.index = index

    def read(self, first: int, count: int) -> list[Any]:
        raise UsedError(f"{count} rows from {first} on are used")

    def count(self, name: str, more: int) -> None:
        pass


class Beside:
    """Connections to such a reader."""

    timeout = 5.0

    def __init__(self, rows: Gone) -> None:
        self.closing, self.asked, self._rows = threading.Event(), 0, rows

    def connect(self, *_: Any) -> socket.socket:
        mine, its = socket.socketpair()
        self.asked += 1
        threading.Thread(target=serve, args=(self._rows, its, "t"), daemon=True).start()
        return mine


def test_who_waits_for_rows_that_others_have_used_is_told(tmp_path: Path) -> None:
    """As a trainer that was taken for dead: it waited as long as for a reader that is away."""
    os.mkfifo(tmp_path / "pipe")
    rows = stream.csv(tmp_path / "pipe", COLUMNS)
    index = index_of(rows, None, tmp_path)
    given: Any = sent(rows, index, 1)
    given.asked_by(32, 1)
    native = given.open().native
    connecting: Any = Beside(Gone(index))
    tending = BatchTending(given, connecting, 1, patience=300.0)
    try:
        tending.told({0: "h:1"})
        tending.expect(0, 2)
        end = time.monotonic() + 30
        while connecting.asked < 3:  # nobody waits: the master may take the lease back by and by
            assert time.monotonic() < end
            time.sleep(0.01)
        assert not native.stopped
        with pytest.raises(_core.Error, match="are used; this trainer was taken for dead"):
            native.take(0, 32)
    finally:
        connecting.closing.set()
        tending.close()


@pytest.mark.parametrize(
    ("there", "why"),
    [
        (There(0, ended=True), "has no row"),
        (There(3, failed="a.csv: line 4 is bad"), "reader-0: a.csv: line 4 is bad"),
    ],
)
def test_a_pipe_that_cannot_be_trained_on_ends_the_run(there: There, why: str) -> None:
    talk = Talk(total=None, once=True, trainers=1, readers=1)
    talk.say(9, Join("reader", 0, "h:1"))
    talk.say(9, Report(there=there))
    assert talk.master.over is not None
    assert why in talk.master.over
    assert talk.master.standing(talk.now)["state"] == "failed"


def test_nobody_else_tells_of_rows_that_come_once() -> None:
    talk = Talk(total=None, once=True, trainers=1, readers=1)
    talk.join(1)
    talk.say(1, Report(there=There(10)))
    assert talk.master.malformed == 1
    plain = Talk(readers=1)
    plain.say(9, Join("reader", 0, "h:1"))
    plain.say(9, Report(there=There(10)))
    assert plain.master.malformed == 1


class Told:
    """What a reader tells its master, and hears."""

    def __init__(self) -> None:
        self.there = There()
        self.account: Account | None = None

    def read(self, there: There) -> None:
        self.there = there

    def ask(self) -> None:
        pass


def until(found: Callable[[], bool], rows: OnceRead, told: Any, seconds: float = 30.0) -> None:
    end = time.monotonic() + seconds
    while not found():
        assert time.monotonic() < end
        rows.tend(told)
        time.sleep(0.01)


def once(folder: Path, kept: int = 1 << 28, batches: int = 4) -> OnceRead:
    rows, run = stream.csv(folder / "pipe", COLUMNS), folder / "run"
    return OnceRead(index_of(rows, None, run), rows, 32, run, batches, kept=kept)


def test_rows_are_kept_until_they_are_used(tmp_path: Path) -> None:
    whole = tmp_path / "whole.csv"
    whole.write_bytes(HEAD + lines(3000))
    expected = stream.csv(whole, COLUMNS).open().read(None)
    told = Told()
    with (
        written(tmp_path / "pipe", HEAD + lines(1000), 0.3, lines(2000, 1000)),
        closing(once(tmp_path)) as rows,
    ):
        rows.tend(told)  # type: ignore[arg-type]
        assert rows.rows == 0  # its master knows of nothing yet
        told.account = Account()
        until(lambda: told.there.ended, rows, told)
        assert told.there == There(3000, ended=True)
        (found,) = [rows.read(0, 10)]
        np.testing.assert_array_equal(np.concatenate([each[0] for each in found]), expected[0][:10])
        found = rows.read(900, 1500)
        y = np.concatenate([each[3] for each in found])
        np.testing.assert_array_equal(y, expected[3][900:2400])
        first = slice_of(expected, 900, 900 + len(found[0][3]))
        for mine, its in zip(found[0][2][0], first[2][0], strict=True):
            np.testing.assert_array_equal(mine, its)
        told.account = Account(60, [(50, 3)])  # of batches of 32
        rows.tend(told)  # type: ignore[arg-type]
        assert len(rows.read(1600, 32)[0][3]) > 0
        with pytest.raises(LookupError, match="are used, and not kept any more"):
            rows.read(0, 32)
        assert 1400 <= rows.counters()["rows_kept"] < 3000
    assert (
        index_of(stream.csv(tmp_path / "pipe", COLUMNS), None, tmp_path / "run").counts.rows == 3000
    )


def test_reading_waits_where_much_is_kept(tmp_path: Path) -> None:
    told = Told()
    told.account = Account()
    with (
        written(tmp_path / "pipe", HEAD + lines(200_000)),
        closing(once(tmp_path, kept=1000)) as rows,
    ):
        until(lambda: told.there.rows > 4 * 32, rows, told)
        time.sleep(0.5)
        rows.tend(told)  # type: ignore[arg-type]
        waits = told.there.rows
        assert waits < 200_000
        time.sleep(0.3)
        rows.tend(told)  # type: ignore[arg-type]
        assert told.there.rows == waits

        def use() -> bool:
            told.account = Account(told.there.rows // 32)
            return told.there.ended

        until(use, rows, told)
        assert told.there.rows == 200_000


def test_no_more_is_kept_than_bytes_say_or_trainers_may_have(tmp_path: Path) -> None:
    told = Told()
    told.account = Account()
    with (
        written(tmp_path / "pipe", HEAD + lines(200_000)),
        closing(once(tmp_path, kept=1, batches=batches_of(2, 3))) as rows,
    ):
        until(lambda: told.there.rows > 24 * 32, rows, told)
        time.sleep(0.3)
        rows.tend(told)  # type: ignore[arg-type]
        assert told.there.rows <= 24 * 32 + 2 * (1 << 14)  # with what is read at once
    index = kept_in(tmp_path / "run")
    assert told.there.rows <= index.counts.rows < 200_000  # all that has been taken from the pipe


def test_a_bad_line_is_told_by_its_number(tmp_path: Path) -> None:
    told = Told()
    told.account = Account()
    with (
        written(tmp_path / "pipe", HEAD + lines(100) + b"no\n" + lines(10)),
        closing(once(tmp_path)) as rows,
    ):
        until(lambda: bool(told.there.failed), rows, told)
        assert "line 102" in told.there.failed


def test_one_that_nobody_writes_to_can_be_closed(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    told = Told()
    told.account = Account()
    with closing(once(tmp_path)) as rows:
        rows.tend(told)  # type: ignore[arg-type]
        time.sleep(0.2)
        assert told.there == There()


def asked(folder: Path, data: Path, *more: str, run: str = "run") -> list[str]:
    (folder / "schema.json").write_text(json.dumps(SCHEMA))
    (folder / "t.csv").write_bytes(HEAD + lines(300))
    given = ["--data", str(data), "--test", str(folder / "t.csv"), "--dim", "4"]
    given += ["--schema", str(folder / "schema.json"), "--batch-size", "32", "--lr", "0.02"]
    given += ["--table-mib", "1", "--run", str(folder / run), "--embedding-servers", "1"]
    return ["cluster", "up", "--model", "dlrm", "--readers", "1", *given, *more]


def planned(folder: Path, *more: str) -> plans.Plan:
    os.mkfifo(folder / "pipe")
    options = cli._parser().parse_args(asked(folder, folder / "pipe", *more))
    return command._plan(options)


@pytest.mark.parametrize(
    ("more", "told"),
    [
        (["--readers", "2"], "cluster.readers is 2"),
        (["--epochs", "2"], "train.epochs is 2"),
        (["--checkpoint-every", "1"], "cluster.checkpoint_every is 1"),
    ],
)
def test_what_reads_a_pipe_again_is_refused(tmp_path: Path, more: list[str], told: str) -> None:
    plan = planned(tmp_path, *more)
    with pytest.raises(
        ValueError, match=f"{told}.* is a pipe, which one reader reads, once: leave"
    ):
        plan.index(plan.problem())


def test_numbers_that_are_standardised_by_all_rows_are_refused(tmp_path: Path) -> None:
    plan = planned(tmp_path)
    columns = {**SCHEMA["columns"], "price": {"kind": "number"}}
    (tmp_path / "schema.json").write_text(json.dumps({"columns": columns}))
    with pytest.raises(ValueError, match='give price "scale": null in the schema'):
        plan.index(plan.problem())


def test_a_pipe_goes_with_one_reader_of_join(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    cluster = lsh.cluster.join(readers=2, folder=tmp_path / "f", rank=0, size=1)
    with pytest.raises(ValueError, match=r"readers must be 1 for .*pipe, a pipe"):
        lsh.train(
            lsh.models.mlp(1, [4], 2),
            stream.csv(tmp_path / "pipe", {"clicked": stream.Label(), "price": stream.Number()}),
            until=lsh.until(epochs=1), threads=1, cluster=cluster,
        )  # fmt: skip


def parameters(folder: Path) -> bytes:
    (file,) = (folder / "output").glob("*.safetensors")
    return file.read_bytes()


def test_rows_to_test_come_through_another_pipe(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They were read to know the columns, and then waited for."""
    found: list[Any] = []
    monkeypatch.setattr(command, "_train", lambda plan, *_, **__: found.append(plan) or 0)
    words = asked(tmp_path, tmp_path / "pipe")
    words[words.index("--test") + 1] = str(tmp_path / "other")
    with (
        written(tmp_path / "pipe", HEAD + lines(100)),
        written(tmp_path / "other", HEAD + lines(30)),
    ):
        assert cli.main(words) == 0
    (plan,) = found
    assert Path(plan.train.test).read_bytes() == HEAD + lines(30)
    assert plan.train.data == str(tmp_path / "pipe")


@pytest.mark.process
def test_a_pipe_trains_to_the_bits_of_a_file(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_bytes(HEAD + lines(2005))
    alone = ["--trainers", "1", "--sync", "none", "--look-ahead", "0"]
    assert cli.main(asked(tmp_path, tmp_path / "a.csv", *alone, run="file")) == 0
    with written(tmp_path / "pipe", HEAD + lines(900), 1.0, lines(1105, 900)):
        assert cli.main(asked(tmp_path, tmp_path / "pipe", *alone)) == 0
    report = report_of(tmp_path)
    assert report["ledger"]["total"] == 63
    assert report["reading"]["rows"] == 2005
    found, expected = (lsh.load(tmp_path / name / "output") for name in ("run", "file"))
    np.testing.assert_array_equal(found.parameters, expected.parameters)


@pytest.mark.process(1)
@pytest.mark.parametrize("who", ["trainer", "master", "reader"])
def test_one_is_killed_while_rows_come(tmp_path: Path, who: str) -> None:
    pieces = [HEAD + lines(3000), 8.0, lines(3000, 3000)]
    with written(tmp_path / "pipe", *pieces):
        words = asked(tmp_path, tmp_path / "pipe", "--trainers", "2", "--sync", "easgd")
        run = subprocess.Popen(
            [sys.executable, "-m", "leashed", *words], stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, text=True,
        )  # fmt: skip
        kill(tmp_path / "run", who)
        said, _ = run.communicate(timeout=120)
    if who == "reader":
        assert run.returncode == 1
        assert "cannot be read again; write them into a file" in said
        return
    assert run.returncode == 0, said
    report = report_of(tmp_path)
    assert report["ledger"]["total"] == 188
    assert report["reading"]["rows"] == 6000


def kill(folder: Path, who: str) -> None:
    """One of that role, once batches are used."""
    end = time.monotonic() + 60
    while time.monotonic() < end:
        time.sleep(0.02)
        try:
            report = json.loads((folder / "run.json").read_text())
        except (OSError, ValueError):
            continue
        if report["ledger"]["complete"] > 10:
            break
    there = (pid for name, pid in pids(folder).items() if name.startswith(who))
    os.kill(next(there), signal.SIGKILL)


@pytest.mark.process
def test_ctrl_c_ends_a_run_whose_pipe_is_silent(tmp_path: Path) -> None:
    with written(tmp_path / "pipe", HEAD + lines(10), 6.0):
        words = asked(tmp_path, tmp_path / "pipe", "--trainers", "1", "--sync", "none")
        run = subprocess.Popen(
            [sys.executable, "-m", "leashed", *words], stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, text=True,
        )  # fmt: skip
        end = time.monotonic() + 60
        while not (tmp_path / "run" / "run.json").exists() and time.monotonic() < end:
            time.sleep(0.05)
        run.send_signal(signal.SIGINT)
        said, _ = run.communicate(timeout=60)
    assert run.returncode == 130, said
    assert "leashed: interrupted" in said


@pytest.mark.process
def test_what_a_shell_pipes_is_trained_on(tmp_path: Path) -> None:
    """Which is open in the command alone."""
    words = asked(tmp_path, Path("-"), "--trainers", "1", "--sync", "none")
    run = subprocess.run(
        [sys.executable, "-m", "leashed", *words], input=HEAD + lines(500), check=False,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=120,
    )  # fmt: skip
    assert run.returncode == 0, run.stdout.decode()
    report = report_of(tmp_path)
    assert report["data"] == "standard input"
    assert (report["reading"]["rows"], report["reading"]["used"]) == (500, 500)


@pytest.mark.process
def test_rows_that_are_read_and_not_trained_on_are_told(tmp_path: Path) -> None:
    words = asked(
        tmp_path, tmp_path / "pipe", "--trainers", "1", "--sync", "none", "--updates", "20"
    )
    with written(tmp_path / "pipe", HEAD + lines(3000), 3.0):
        run = subprocess.run(
            [sys.executable, "-m", "leashed", *words], check=False, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=120,
        )  # fmt: skip
    assert run.returncode == 0, run.stdout
    assert "3,000; 2,360 of them not trained on, and the pipe has them no more" in run.stdout


@pytest.mark.process
def test_a_process_that_joins_trains_on_a_pipe(tmp_path: Path) -> None:
    columns = {"clicked": stream.Label(), "price": stream.Number(), "city": stream.Number()}
    model = lsh.models.mlp(2, [4], 2)

    def trained(data: Path) -> Any:
        cluster = lsh.cluster.join(readers=1, folder=tmp_path / f"of-{data.name}", rank=0, size=1)
        return lsh.train(
            model, stream.csv(data, columns, bad="skip"), until=lsh.until(epochs=1), threads=1,
            rule=lsh.SGD(0.05), batch_size=32, cluster=cluster,
        )  # fmt: skip

    (tmp_path / "a.csv").write_bytes(HEAD + lines(500) + b"no\n")
    with written(tmp_path / "pipe", HEAD + lines(200), 0.5, lines(300, 200) + b"no\n"):
        found = trained(tmp_path / "pipe")
    of_file = trained(tmp_path / "a.csv")
    assert found.total_updates == 16
    np.testing.assert_array_equal(found.parameters, of_file.parameters)
    mine, other = (each.config["reading"] for each in (found, of_file))
    assert (mine["rows"], mine["bad"]) == (other["rows"], other["bad"]) == (500, 1)
