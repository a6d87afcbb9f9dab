"""Master and members as they run: threads here, a process where one is to be killed."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import gc
import json
import os
import queue
import re
import shutil
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cluster.handing import handed_in

from leashed.cluster import checkpoints, journal, messages, packing, wire
from leashed.cluster.ending import OverError
from leashed.cluster.journal import Journal
from leashed.cluster.master import Master, run
from leashed.cluster.member import Event, Lost, Member, master_address
from leashed.cluster.messages import Bye, End, Epoch, Gone, Lease, Servers, Welcome
from leashed.cluster.opening import Key, Listener, Peer, Refused, connect
from leashed.cluster.results import Result
from leashed.cluster.state import Terms

KEY = Key(b"k" * 32, given=False)


def terms(**changed: Any) -> Terms:
    """Quick ones, but for what a loaded machine might exceed."""
    quick = {"beat": 0.05, "timeout": 20.0, "grace": 60.0, "gather": 0.02}
    return Terms(**{"total": 20, "batch_size": 8, "trainers": 1, **quick, **changed})


def result(*values: float) -> Result:
    """What trainer 0 might have come to."""
    return Result("trainer-0", np.float32(values))


class Running:
    """A master on a thread."""

    def __init__(self, folder: Path, given: Terms, port: int = 0, **more: Any) -> None:
        self.folder = folder
        self.standings: list[dict[str, Any]] = []
        self.result: dict[str, Any] = {}
        self.error: OSError | None = None
        started: queue.SimpleQueue[Master | Exception] = queue.SimpleQueue()

        async def serve() -> None:
            try:
                master = Master(
                    given, host="127.0.0.1", port=port, key=KEY, folder=folder,
                    watch=self.standings.append, **more,
                )  # fmt: skip
            except (OSError, ValueError) as error:
                started.put(error)
                return
            self.loop = asyncio.get_running_loop()
            started.put(master)
            try:
                self.result = await master.serve()
            except OSError as error:
                self.error = error

        self.thread = threading.Thread(target=lambda: asyncio.run(serve()))
        self.thread.start()
        got = started.get(timeout=20)
        if isinstance(got, Exception):
            self.thread.join()
            raise got
        self.master = got
        self.address = got.address

    def end(self) -> dict[str, Any]:
        """Wait for the run's end."""
        self.thread.join(30)
        assert not self.thread.is_alive()
        return self.result

    def stop(self) -> None:
        if self.thread.is_alive():
            with contextlib.suppress(RuntimeError):
                self.loop.call_soon_threadsafe(self.master.stop, "the test is over")
        self.thread.join(30)


class Trainer:
    """A member that trains by counting."""

    def __init__(self, address: str | Callable[[], str], index: int = 0, **given: Any) -> None:
        self.events: queue.SimpleQueue[Event] = queue.SimpleQueue()
        self.before: list[Event] = []
        self.member = Member(
            address, KEY, role=given.pop("role", "trainer"), index=index, heard=self.events.put,
            listening=f"127.0.0.1:{7000 + index}", **given,
        )  # fmt: skip

    def until(self, kind: Any) -> Any:
        """The next event of a kind, and the others left for later."""
        for at, event in enumerate(self.before):
            if isinstance(event, kind):
                return self.before.pop(at)
        while not isinstance(event := self.events.get(timeout=60), kind):
            self.before.append(event)
        return event

    def train(self, size: int = 3) -> set[int]:
        """All that it gets, to the end."""
        batches: set[int] = set()
        self.member.want(size)
        while not isinstance(got := self.until((Lease, End)), End):
            batches |= set(range(got.first, got.first + got.count))
            self.member.report({"examples": len(batches) * 8.0}, [(got.ticket, got.count)])
            self.member.want(size)
        return batches

    def finish(self) -> None:
        self.member.leave()
        self.member.finish({"loss": 0.5})
        assert self.member.wait(20)
        assert self.member.state == "over"
        self.member.close()


@pytest.fixture
def started(tmp_path: Path) -> Iterator[Callable[..., Running]]:
    masters: list[Running] = []

    def start(given: Terms | None = None, **more: Any) -> Running:
        masters.append(Running(tmp_path / "run", given or terms(), **more))
        return masters[-1]

    yield start
    for master in masters:
        master.stop()


@pytest.fixture(autouse=True)
def nothing_is_left() -> Iterator[None]:
    gc.collect()  # what tests before left in cycles would go in this one
    before = len(list(Path("/proc/self/fd").iterdir()))
    yield
    left = [t.name for t in threading.enumerate() if t.name.startswith("leashed-")]
    assert not left
    assert len(list(Path("/proc/self/fd").iterdir())) == before


@pytest.fixture
def joined() -> Iterator[Callable[..., Trainer]]:
    trainers: list[Trainer] = []

    def join(*arguments: Any, **given: Any) -> Trainer:
        trainers.append(Trainer(*arguments, **given))
        return trainers[-1]

    yield join
    for trainer in trainers:
        trainer.member.close()


Start = Callable[..., Running]
Join = Callable[..., Trainer]


def wait_until(condition: Callable[[], Any]) -> None:
    end = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.005)


def test_a_run_from_beginning_to_end(started: Start, joined: Join) -> None:
    running = started(terms(trainers=2, parameters=4))
    server = joined(running.address, 0, role="sync-ps")
    trainers = [joined(running.address, index) for index in range(2)]
    assert [trainer.until(Welcome).id for trainer in trainers] == [2, 3]
    for trainer in trainers:
        assert trainer.until(Servers).addresses == {
            "sync-ps": {0: "127.0.0.1:7000"},
            "embedding-ps": {},
            "policy-ps": {},
            "reader": {},
        }
        epoch = trainer.until(Epoch)
        assert [(seat.index, seat.address, seat.fresh) for seat in epoch.members] == [
            (0, "127.0.0.1:7000", False),
            (1, "127.0.0.1:7001", True),
        ]
        trainer.member.settled(epoch.number)
    results: list[set[int]] = []
    threads = [threading.Thread(target=lambda t=t: results.append(t.train())) for t in trainers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert sorted([*results[0], *results[1]]) == list(range(20))
    theta = np.float32([1, 2, 3, 4])
    for trainer in trainers:
        trainer.member.send_result(Result(trainer.member.name, theta))
        trainer.finish()
    standing = running.end()
    assert server.until(Bye).reason == "all trainers have finished"
    assert server.member.wait(20)

    assert json.loads((running.folder / "run.json").read_text()) == standing
    assert standing["state"] == "ended"
    ledger = standing["ledger"]
    assert [ledger[name] for name in ("total", "complete", "outstanding", "free")] == [20, 20, 0, 0]
    assert ledger["again"] == ledger["late"] == 0
    assert standing["summaries"] == {"trainer-0": {"loss": 0.5}, "trainer-1": {"loss": 0.5}}
    assert sum(m.get("examples", 0) for m in standing["metrics"].values()) == 160
    assert standing["results"] == ["trainer-0", "trainer-1"]
    np.testing.assert_array_equal(np.fromfile(handed_in(running.folder)["trainer-1"], "<f4"), theta)
    assert [m["why"] for m in standing["members"]] == [None, "finished", "finished"]
    assert running.standings[0]["state"] == "running"
    with pytest.raises(ValueError, match=r"is over .all trainers have finished.; give another"):
        started(terms(trainers=2, parameters=4))


def test_a_member_that_dies_leaves_its_batches_to_others(started: Start, joined: Join) -> None:
    running = started(terms(trainers=2))
    first, second = joined(running.address, 0), joined(running.address, 1)
    first.member.want(20)
    lease = first.until(Lease)
    assert (lease.first, lease.count, lease.batch_size) == (0, 5, 8)  # a fourth of what is free
    first.member.report({}, [(lease.ticket, 3)])
    wait_until(lambda: running.standings[-1]["ledger"]["complete"] == 3)
    first.member.close()
    assert second.train() == {*range(3, 20)}
    second.finish()
    # The first never finished, so it might still come.
    running.stop()
    standing = running.result
    assert standing["ledger"]["complete"] == 20
    assert standing["ledger"]["again"] == 2
    assert standing["members"][0]["why"] == "its connection closed"


def test_an_epoch_that_breaks_is_followed_by_another(started: Start, joined: Join) -> None:
    running = started(terms(trainers=2))
    trainers = [joined(running.address, index) for index in range(2)]
    for trainer in trainers:
        assert trainer.until(Epoch).number == 1
    trainers[0].member.settled(1)
    trainers[1].member.broken(1)
    for trainer in trainers:
        epoch = trainer.until(Epoch)
        assert [seat.fresh for seat in epoch.members] == [False, True]
    trainers[0].member.leave()
    assert [seat.index for seat in trainers[1].until(Epoch).members] == [1]
    assert running.standings[-1]["epochs_broken"] <= 1


MASTER = """
import sys
from pathlib import Path
from leashed.cluster.master import run
from leashed.cluster.opening import read_key
from leashed.cluster.state import State, Terms
import msgspec
terms = msgspec.json.decode(sys.argv[3], type=Terms)
key = read_key(sys.argv[2], given=False)
print(run(terms, host="127.0.0.1", port=0, key=key, folder=Path(sys.argv[1]))["reason"])
"""


@pytest.fixture
def process(tmp_path: Path) -> Iterator[Callable[[Terms], subprocess.Popen[str]]]:
    """Starts masters as processes, in the folder "run"."""
    import msgspec  # noqa: PLC0415

    (tmp_path / "key").touch(0o600)
    (tmp_path / "key").write_bytes(KEY.secret)
    masters: list[subprocess.Popen[str]] = []
    folder = tmp_path / "run"

    def start(given: Terms) -> subprocess.Popen[str]:
        (folder / "master.address").unlink(missing_ok=True)
        masters.append(
            subprocess.Popen(
                [
                    sys.executable,
                    "-c",
                    MASTER,
                    folder,
                    tmp_path / "key",
                    msgspec.json.encode(given),
                ],
                stdout=subprocess.PIPE,
                text=True,
            )
        )
        wait_until((folder / "master.address").exists)
        return masters[-1]

    yield start
    for master in masters:
        master.kill()
        master.communicate()


Process = Callable[[Terms], "subprocess.Popen[str]"]


@pytest.mark.process
def test_a_killed_master_is_replaced_and_training_goes_on(
    process: Process, joined: Join, tmp_path: Path
) -> None:
    address = master_address(tmp_path / "run")
    master = process(terms())
    trainer = joined(address)
    was = trainer.until(Welcome)
    trainer.member.want(5)
    lease = trainer.until(Lease)
    trainer.member.settled(trainer.until(Epoch).number)
    master.kill()
    master.wait()
    wait_until(lambda: trainer.member.state == "away")
    trainer.member.report({}, [(lease.ticket, 5)])  # meanwhile
    trainer.member.want(5)

    process(terms())
    assert trainer.until(Lease).first == 5
    assert trainer.member.state == "joined"
    assert (trainer.member.welcome.run, trainer.member.id) == (was.run, was.id)
    trainer.member.report({}, [(2, 5)])
    assert sorted(trainer.train(10)) == list(range(10, 20))
    trainer.finish()
    wait_until(lambda: json.loads((tmp_path / "run/run.json").read_text())["state"] == "ended")
    standing = json.loads((tmp_path / "run/run.json").read_text())
    assert standing["ledger"]["complete"] == 20
    assert standing["ledger"]["again"] == 0
    assert len(standing["members"]) == 1


@pytest.mark.process
def test_a_master_that_stays_away_is_told_and_still_looked_for(
    process: Process, joined: Join, tmp_path: Path
) -> None:
    master = process(terms())
    trainer = joined(master_address(tmp_path / "run"), grace=0.3)
    master.kill()
    master.wait()
    assert "refused" in trainer.until(Lost).reason
    assert trainer.member.state == "lost"
    with pytest.raises(OSError, match="refused"):
        trainer.member.send_result(result(1))
    process(terms())
    wait_until(lambda: trainer.member.state == "joined")
    assert sorted(trainer.train()) == list(range(20))
    trainer.finish()


@pytest.mark.process
def test_a_stopped_master_kills_nobody_when_it_wakes(
    process: Process, joined: Join, tmp_path: Path
) -> None:
    """Not even those that had given it up."""
    master = process(terms(timeout=5.0))
    trainer = joined(master_address(tmp_path / "run"))
    was = trainer.until(Welcome)
    master.send_signal(signal.SIGSTOP)
    wait_until(lambda: trainer.member.state == "away")
    master.send_signal(signal.SIGCONT)
    wait_until(lambda: trainer.member.state == "joined")
    trainer.member.want(20)
    assert trainer.until(Lease).count == 10  # half of what is free
    assert trainer.member.welcome.id == was.id


@pytest.mark.process
def test_ctrl_c_tells_the_members_and_ends(process: Process, joined: Join, tmp_path: Path) -> None:
    master = process(terms())
    trainer = joined(master_address(tmp_path / "run"))
    master.send_signal(signal.SIGINT)
    why = "stopped by SIGINT; 20 of 20 batches are left"
    assert master.communicate(timeout=20)[0] == f"{why}\n"
    assert master.returncode == 0
    assert trainer.until(Bye).reason == why
    assert trainer.member.wait(20)


@pytest.mark.process
def test_after_sigterm_the_run_goes_on_with_the_next_master(
    process: Process, joined: Join, tmp_path: Path
) -> None:
    """A machine that is started anew tells its processes to end before."""
    master = process(terms())
    trainer = joined(master_address(tmp_path / "run"))
    was = trainer.until(Welcome)
    trainer.member.want(4)
    lease = trainer.until(Lease)
    master.terminate()
    assert master.communicate(timeout=20)[0] == "None\n"
    assert master.returncode == 0
    assert json.loads((tmp_path / "run" / "run.json").read_text())["state"] == "running"
    assert "removed" not in (tmp_path / "run" / "journal.jsonl").read_text()
    wait_until(lambda: trainer.member.state == "away")
    process(terms())
    wait_until(lambda: trainer.member.state == "joined")
    assert (trainer.member.welcome.run, trainer.member.id) == (was.run, was.id)
    trainer.member.report({}, [(lease.ticket, lease.count)])
    assert sorted(trainer.train(lease.count)) == list(range(lease.count, 20))
    trainer.finish()
    wait_until(lambda: json.loads((tmp_path / "run/run.json").read_text())["state"] == "ended")
    standing = json.loads((tmp_path / "run/run.json").read_text())
    assert standing["ledger"]["complete"] == 20
    assert standing["ledger"]["again"] == 0
    assert len(standing["members"]) == 1


TRAINER = """
import sys, time
from leashed.cluster.member import Member
from leashed.cluster.opening import Key
def heard(event):
    print(type(event).__name__, getattr(event, "id", ""), flush=True)
member = Member(sys.argv[1], Key(b"k" * 32, given=False), role="trainer", index=0, heard=heard)
member.want(3)
member.wait(60)
"""


@pytest.mark.process
def test_a_stopped_trainer_is_dead_and_joins_anew_when_it_wakes(
    started: Start, joined: Join
) -> None:
    running = started(terms(trainers=2, timeout=5.0))
    other = joined(running.address, 1)
    with subprocess.Popen(
        [sys.executable, "-c", TRAINER, running.address], stdout=subprocess.PIPE, text=True
    ) as trainer:
        assert trainer.stdout is not None
        wait_until(lambda: len(running.standings[-1]["members"]) == 2)
        assert len(other.until(Epoch).members) == 2
        trainer.send_signal(signal.SIGSTOP)
        assert [seat.index for seat in other.until(Epoch).members] == [1]
        other.member.want(20)
        assert other.until(Lease).first == 0  # which the stopped one had
        trainer.send_signal(signal.SIGCONT)
        epoch = other.until(Epoch)
        # The other one is training what it was given.
        assert [(seat.id, seat.fresh) for seat in epoch.members] == [(3, True), (1, False)]
        trainer.kill()
        heard = trainer.stdout.read().split("\n")
    assert [line for line in heard if line.startswith("Welcome")] == ["Welcome 2", "Welcome 3"]
    assert other.until(Epoch).number == 4


def test_a_living_members_place_cannot_be_taken(started: Start, joined: Join) -> None:
    running = started()
    first = joined(running.address)
    with pytest.raises(TimeoutError, match=r"trainer-0 did not join within 3 s: .* is taken by"):
        joined(running.address, deadline=3.0)
    threading.Timer(0.2, first.member.close).start()
    assert joined(running.address).member.id == 2


def test_who_cannot_join_is_told_why(joined: Join, tmp_path: Path, started: Start) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(
            TimeoutError, match=rf"within 3 s: {address}: .*refused; is the master started"
        ):
            joined(address, deadline=3.0)
    with pytest.raises(TimeoutError, match=r"/master\.address: No such file .*; is the master"):
        joined(master_address(tmp_path), deadline=0.2)
    with pytest.raises(TimeoutError, match=r"no\.such\.host:7000: .*; is the master started"):
        joined("no.such.host:7000", deadline=0.2)
    with pytest.raises(Refused, match="holds another key"):
        Member(
            started().address, Key(b"o" * 32, given=False), role="trainer", index=0,
            heard=lambda _: None,
        )  # fmt: skip


def test_masters_that_are_none(joined: Join) -> None:
    """One whose run is over, one that says nothing, and one that talks nonsense."""
    for said, error, message in [
        (
            wire.encode(Bye("all have finished")),
            OverError,
            "too late, the run is over: all have finished",
        ),
        (b"", TimeoutError, "the master does not answer"),
        (b"\xff" * 4, TimeoutError, "a message of 4294967295 bytes"),
    ]:
        connections: list[socket.socket] = []

        def accept(
            connection: socket.socket,
            _: Peer,
            said: bytes = said,
            connections: list[socket.socket] = connections,
        ) -> None:
            connection.sendall(said)
            connections.append(connection)

        with (
            Listener("127.0.0.1", 0, KEY, "master", accept) as listener,
            pytest.raises(error, match=message),
        ):
            joined(listener.address, deadline=3.0)
        for connection in connections:
            connection.close()


def test_who_is_unlike_the_run_that_comes_next_ends(joined: Join) -> None:
    """It does not ask again and again."""
    said = [
        wire.encode(Welcome("one", 1, 0.05, 20.0)),
        wire.encode(Gone("this is run another, not one")) + wire.encode(Gone("model", unlike=True)),
    ]
    connections: list[socket.socket] = []

    def accept(connection: socket.socket, _: Peer) -> None:
        connection.sendall(said[min(len(connections), 1)])
        connections.append(connection)

    with Listener("127.0.0.1", 0, KEY, "master", accept) as listener:
        trainer = joined(listener.address)
        wait_until(lambda: connections)
        connections[0].close()
        why = "another run has the place of its master: trainer-0 cannot join: model"
        assert trainer.until(Lost).reason == why
        assert trainer.member.wait(60)
        assert trainer.member.state == "over"
        trainer.member.finish({})  # nobody hears it
    assert len(connections) == 2
    connections[1].close()


def test_who_is_never_welcomed_asks_ever_less_often(joined: Join) -> None:
    connections: list[float] = []

    def accept(connection: socket.socket, _: Peer) -> None:
        connection.close()
        connections.append(time.monotonic())

    with (
        Listener("127.0.0.1", 0, KEY, "master", accept) as listener,
        pytest.raises(TimeoutError, match="trainer-0 did not join within 3 s"),
    ):
        joined(listener.address, deadline=3.0)
    assert 1 < len(connections) <= 10  # after 0.05 s, 0.1 s, … 1 s


def test_who_comes_or_comes_back_when_the_run_is_over_is_told(joined: Join, tmp_path: Path) -> None:
    """Though its master is gone, and its last words were not heard."""
    connections: list[socket.socket] = []

    def accept(connection: socket.socket, _: Peer) -> None:
        connection.sendall(wire.encode(Welcome("one", 1, 0.05, 20.0)))
        connections.append(connection)

    report = {"state": "running", "reason": None}
    (tmp_path / "run.json").write_text(json.dumps(report))
    why = r"the run in .* is over since \d{4}-[\d: -]+: all have finished; for another give another"
    with Listener("127.0.0.1", 0, KEY, "master", accept) as listener:
        address = master_address(tmp_path, listener.address)
        trainer = joined(address)
        wait_until(lambda: connections)
        report |= {"state": "ended", "reason": "all have finished"}
        (tmp_path / "run.json").write_text(json.dumps(report))
        connections[0].close()
        assert re.match(why, trainer.until(Bye).reason)
        assert trainer.member.wait(60)
        with pytest.raises(OverError, match=why):
            joined(address)
    assert len(connections) == 1


def test_a_member_that_listens_everywhere_tells_where_it_is_reached(started: Start) -> None:
    running = started()
    with Member(
        running.address, KEY, role="sync-ps", index=0, heard=lambda _: None,
        listening="0.0.0.0:7000",
    ):  # fmt: skip
        wait_until(lambda: running.standings[-1]["members"])
    assert running.standings[-1]["members"][0]["address"] == "127.0.0.1:7000"


def test_a_restarted_server_is_told_to_the_trainers(started: Start, joined: Join) -> None:
    running = started()
    trainer = joined(running.address)
    server = joined(running.address, 3, role="sync-ps")
    assert trainer.until(Servers).addresses == {
        "sync-ps": {3: "127.0.0.1:7003"},
        "embedding-ps": {},
        "policy-ps": {},
        "reader": {},
    }
    server.member.close()
    nobody: dict = {"sync-ps": {}, "embedding-ps": {}, "policy-ps": {}, "reader": {}}
    assert trainer.until(Servers).addresses == nobody
    joined(running.address, 3, role="sync-ps")
    assert trainer.until(Servers).addresses == {
        "sync-ps": {3: "127.0.0.1:7003"},
        "embedding-ps": {},
        "policy-ps": {},
        "reader": {},
    }
    assert trainer.member.servers is not None
    assert trainer.member.servers.number == 3


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        (
            {"role": "scorer"},
            ValueError,
            "role must be one of sync-ps, embedding-ps, policy-ps, reader, trainer, got 'scorer'",
        ),
        ({"index": -1}, ValueError, "index must be at least 0"),
        ({"address": "nowhere"}, ValueError, "address must be 'host:port'"),
        ({"listening": "7000"}, ValueError, "listening must be 'host:port'"),
        ({"deadline": 0}, ValueError, "deadline must be greater than 0"),
        ({"grace": -1}, ValueError, "grace must be greater than 0"),
    ],
)
def test_a_members_wrong_arguments(
    arguments: dict[str, Any], error: type[Exception], message: str
) -> None:
    given: dict[str, Any] = {"address": "127.0.0.1:1", "role": "trainer", "index": 0, **arguments}
    with pytest.raises(error, match=message):
        Member(given.pop("address"), KEY, heard=lambda _: None, **given)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"total": 0}, "total must be at least 1"),
        ({"batch_size": 0}, "batch_size must be at least 1"),
        ({"trainers": 0}, "trainers must be at least 1"),
        ({"parameters": 0}, "parameters must be at least 1"),
        ({"beat": 0}, "beat must be greater than 0"),
        ({"timeout": 0.1}, "timeout must be at least three beats"),
        ({"gather": -1}, "gather must be at least 0"),
    ],
)
def test_wrong_terms(arguments: dict[str, Any], message: str, started: Start) -> None:
    with pytest.raises(ValueError, match=message):
        started(terms(**arguments))


def test_a_master_that_cannot_listen_leaves_no_run(started: Start, tmp_path: Path) -> None:
    """Which would have its terms for good."""
    with Listener("127.0.0.1", 0, KEY, "master", lambda *_: None) as taken:
        with pytest.raises(OSError, match=r"cannot listen at .* in use"):
            started(port=taken.port)
        assert list((tmp_path / "run").iterdir()) == []
    started(terms(batch_size=9))


def test_one_folder_has_one_master(started: Start) -> None:
    started()
    with pytest.raises(BlockingIOError, match="another master has this journal"):
        started()


HOLDER = """
import ctypes, queue, sys
from leashed.cluster.member import Member
from leashed.cluster.messages import Bye
from leashed.cluster.opening import Key
heard = queue.SimpleQueue()
with Member(
    sys.argv[1], Key(b"k" * 32, given=False), role="trainer", index=0, heard=heard.put, deadline=60
) as member:
    for _ in range(3):
        ctypes.PyDLL(None).usleep(5_000_000)  # and it holds the GIL
        member.report({"examples": 1.0})
    member.finish({"examples": 2.0})
    while not isinstance(heard.get(timeout=60), Bye):
        pass
"""


@pytest.mark.process
@pytest.mark.long
def test_a_member_whose_process_holds_the_gil_for_longer_than_the_timeout_is_alive(
    started: Start,
) -> None:
    running = started(terms(timeout=1.5))
    holder = [sys.executable, "-c", HOLDER, running.address]
    subprocess.run(holder, check=True, timeout=300)
    assert [(m["id"], m["why"]) for m in running.end()["members"]] == [(1, "finished")]


@pytest.mark.process
def test_a_run_goes_on_by_the_same_terms_only(process: Process, started: Start) -> None:
    master = process(terms())
    master.kill()
    master.wait()
    with pytest.raises(ValueError, match=r"has batch_size=8, not 9; start its master as before"):
        started(terms(batch_size=9))
    started()


def test_what_is_no_message_closes_that_connection_only(started: Start, joined: Join) -> None:
    running = started()
    trainer = joined(running.address)
    for data in (
        b"\xff\xff\xff\xff",
        wire.encode(Bye("not a member's to say")),
        (2).to_bytes(4, "little") + b"{]",
        wire.encode(Lease(1, 2, 3, 4, 5)),
    ):
        with connect(
            running.address, KEY, role="trainer", name="trainer-9", purpose="control", deadline=9
        ) as connection:
            connection.settimeout(20)
            connection.sendall(data)
            heard = b""
            while more := connection.recv(4096):
                heard += more
            assert b'"gone"' in heard
    with pytest.raises(Refused), connect(
        running.address, Key(b"o" * 32, given=False), role="trainer", name="n", purpose="control",
        deadline=9,
    ):  # fmt: skip
        pass
    wait_until(lambda: running.standings[-1]["malformed"] == 4)
    wait_until(lambda: running.standings[-1]["refused"] == 1)
    assert trainer.member.state == "joined"


def test_a_lie_about_a_lease_closes_the_connection(started: Start, joined: Join) -> None:
    running = started()
    trainer = joined(running.address)
    trainer.member.want(3)
    lease = trainer.until(Lease)
    trainer.member.report({}, [(lease.ticket, 4)])
    trainer.until(Welcome)
    assert trainer.until(Welcome).id == 2
    wait_until(lambda: len(running.standings[-1]["members"]) == 2)
    why = running.standings[-1]["members"][0]["why"]
    assert why == "lease 1 has 3 batches, 4 are said to be used"


def test_checkpoints_of_another_run_are_not_taken_for_this_ones(tmp_path: Path) -> None:
    """In a folder that several runs are given: who resumes this one would go on with another's."""
    folder = checkpoints.place(tmp_path / "shared", 5)
    folder.mkdir(parents=True)
    (folder / "trainer-0.safetensors").write_bytes(b"x")
    saved = {"trainer-0": checkpoints.saved_of(folder, "trainer-0.safetensors")}
    checkpoints.write(folder, {"run": "before", "number": 5}, saved)
    for begun in (None, checkpoints.place(tmp_path / "shared", 4)):
        with pytest.raises(ValueError, match=r"5 is a checkpoint of another run.* another folder"):
            Running(tmp_path / "run", terms(), cuts=tmp_path / "shared", begun=begun)
    spelled = tmp_path / "run" / ".." / "shared"
    for given in ({"begun": folder, "cuts": spelled}, {}):
        Running(tmp_path / "run", terms(), **given).stop()
        shutil.rmtree(tmp_path / "run")
    checkpoints.tidy(spelled, 6, [folder])
    assert folder.is_dir()


def test_results_that_are_not_what_they_say_are_refused(
    started: Start, joined: Join, caplog: pytest.LogCaptureFixture
) -> None:
    running = started(terms(parameters=2))
    trainer = joined(running.address)
    with pytest.raises(ConnectionError, match="refused the result, or cut off"):
        trainer.member.send_result(result(1, 2, 3))
    assert "3 parameters, and not 2" in caplog.text
    for said, message in [
        (struct.pack("<Q32s8s", 8, b"9", b"12345678"), "its digest is another"),
        (struct.pack("<Q32s4s", 8, b"9", b"1234"), "it has closed the connection"),
        (struct.pack("<Q32s", 1 << 62, b"9"), "parameters, and not 2"),
        (b"\2", "it has closed the connection"),
    ]:
        caplog.clear()
        with connect(
            running.address, KEY, role="trainer", name="trainer-0", purpose="result", deadline=9
        ) as connection:
            connection.sendall(said)
            connection.shutdown(socket.SHUT_WR)
            connection.settimeout(20)
            assert connection.recv(9) in (b"", b"\0")  # no, or that the bytes are wanted
            assert connection.recv(9) == b""
        assert message in caplog.text
    for name, purpose in (("../evil", "result"), ("sync-ps-0", "result"), ("trainer-0", "x")):
        with connect(
            running.address, KEY, role="trainer", name=name, purpose=purpose, deadline=9
        ) as connection:
            assert connection.recv(1) == b""
    assert list(running.folder.glob("**/*trainer*")) == []
    trainer.member.send_result(result(1, 2))
    assert handed_in(running.folder)["trainer-0"].read_bytes() == struct.pack("<2f", 1, 2)


class Slow:
    """A connection that takes a tenth of what it is given; the other side answers behind its deadline."""

    def __init__(self, ours: socket.socket, theirs: socket.socket) -> None:
        self.recv, self.fileno, self.gettimeout = ours.recv, ours.fileno, ours.gettimeout
        self._ours = ours
        self._answer = threading.Timer(0.6, theirs.send, [b"\0\1"])  # send it; it is taken
        self.taken = b""

    def settimeout(self, seconds: float) -> None:
        self._ours.settimeout(seconds)
        if not self.taken:
            self._answer.start()

    def sendall(self, _: bytes) -> None:
        raise TimeoutError

    def send(self, data: memoryview | bytes) -> int:
        some = bytes(data[: max(1, len(data) // 10)])
        self.taken += some
        return len(some)

    def __enter__(self) -> Slow:  # noqa: PYI034 (Self is of Python 3.11)
        return self

    def __exit__(self, *_: object) -> None:
        self._answer.join()


def test_a_result_may_take_as_long_as_it_moves_and_the_master_lives(
    started: Start, joined: Join, monkeypatch: pytest.MonkeyPatch
) -> None:
    running = started()
    member = joined(running.address).member
    ours, theirs = socket.socketpair()
    with ours, theirs:
        slow = Slow(ours, theirs)
        monkeypatch.setattr(member, "_connect", lambda *_: slow)
        member.send_result(result(1, 2), deadline=0.1)
        assert slow.taken[:8] == (8).to_bytes(8, "little")
        assert slow.taken[40:] == struct.pack("<2f", 1, 2)
        running.stop()
        member.wait(20)
        with pytest.raises(TimeoutError, match=r"nothing of the result has moved for 0\.1 s"):
            member.send_result(result(1, 2), deadline=0.1)


class Disk:
    """Takes nothing until it is let."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.free = threading.Event()
        self.free.set()
        self.asked = 0
        self.error: OSError | None = None
        monkeypatch.setattr(os, "fsync", self.fsync)

    def fsync(self, _: int) -> None:
        self.asked += 1
        assert self.free.wait(60)
        if self.error:
            raise self.error


def test_while_the_disk_hangs_the_master_beats_and_tells_nothing(
    started: Start, joined: Join, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    disk = Disk(monkeypatch)
    running = started(terms(total=200, trainers=4, timeout=5.0))
    trainers = [joined(running.address, index) for index in range(4)]
    for trainer in trainers:
        trainer.until(Epoch)
    disk.free.clear()
    for trainer in trainers:
        trainer.member.want(5)
    wait_until(lambda: running.master._writing)
    running.master._since -= 100.0
    wait_until(lambda: "has not taken what goes into" in caplog.text)
    for trainer in trainers:
        heard = trainer.member.heard_at
        wait_until(lambda t=trainer, heard=heard: t.member.heard_at > heard + 0.5)
        assert trainer.member.state == "joined"
        assert trainer.events.empty()
    asked = disk.asked
    disk.free.set()
    for trainer in trainers:
        assert trainer.until(Lease).count == 5
    assert disk.asked <= asked + 1  # the others' went together
    assert [record.levelname for record in caplog.records].count("WARNING") == 1


def test_a_disk_that_fails_ends_the_master_which_has_told_nothing(
    started: Start, joined: Join, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = Disk(monkeypatch)
    running = started()
    trainer = joined(running.address)
    trainer.until(Epoch)
    disk.error = OSError(errno.ENOSPC, "No space left on device")
    trainer.member.want(5)
    wait_until(lambda: trainer.member.state == "away")
    running.thread.join(30)
    assert isinstance(running.error, OSError)
    assert not any(isinstance(event, Lease) for event in trainer.before)
    assert trainer.events.empty()


def test_a_disk_that_is_full_for_the_report_too_ends_the_master(
    started: Start, joined: Join, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It waited for its members' connections, which nobody closed."""
    disk = Disk(monkeypatch)
    running = started()
    trainer = joined(running.address)
    trainer.until(Epoch)
    full = OSError(errno.ENOSPC, "No space left on device")

    def no_room(*_: object) -> None:
        raise full

    disk.error = full
    monkeypatch.setattr("leashed.cluster.master._replace", no_room)
    running.thread.join(30)
    assert not running.thread.is_alive()
    assert running.error is full


def test_a_long_run_has_a_short_journal(
    started: Start, joined: Join, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journal, "_LONG", 2000)
    monkeypatch.setattr(journal, "_TIMES", 1)
    running = started(terms(total=1000, trainers=4))
    path = running.folder / "journal.jsonl"
    with path.open("rb") as first:
        trainers = [joined(running.address, index) for index in range(4)]
        threads = [threading.Thread(target=lambda t=t: t.train(1)) for t in trainers]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        assert not os.path.samestat(os.fstat(first.fileno()), path.stat())
    assert path.stat().st_size < 20_000
    with pytest.raises(BlockingIOError):
        Journal(path)
    for trainer in trainers:
        trainer.finish()
    assert running.end()["ledger"]["complete"] == 1000
    found = journal.read(path)
    assert found is not None
    state = running.master._coordinator.state
    assert found[1].ledger == state.ledger
    assert found[1].membership.past == state.membership.past


def test_a_snapshot_has_what_was_decided_at_once_and_once(
    started: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journal, "_LONG", 0)
    monkeypatch.setattr(journal, "_TIMES", 0)
    running = started(terms(trainers=9))
    path = running.folder / "journal.jsonl"

    def join() -> None:
        master = running.master
        for index in range(9):
            master._coordinator.opened(100 + index, master._now())
            master._coordinator.heard(
                100 + index, messages.Join("trainer", index, ""), master._now()
            )
            master._carry_out()

    running.loop.call_soon_threadsafe(join)
    running.stop()
    found = journal.read(path)
    assert found is not None
    assert len(found[1].membership.members) == 9


def test_shares_of_servers_are_found_once_in_a_run(
    started: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    found: list[int] = []
    plain = packing.packed
    monkeypatch.setattr(packing, "packed", lambda *given: (found.append(1), plain(*given))[1])
    running = started(terms(sync_ps=2, parameters=100))
    wait_until(lambda: len(running.standings) > 2)
    assert all(len(each["packing"]["servers"]) == 2 for each in running.standings)
    assert found == [1]
    running.stop()


def test_a_journal_is_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    reads: list[str] = []
    real = Path.read_bytes
    monkeypatch.setattr(Path, "read_bytes", lambda path: (reads.append(path.name), real(path))[1])
    monkeypatch.setattr(Master, "serve", _ended_at_once)
    given = {"host": "127.0.0.1", "port": 0, "key": KEY, "folder": tmp_path / "run"}
    assert run(terms(), **given) == {}
    assert run(terms(), **given) == {}
    assert [name for name in reads if name == "journal.jsonl"] == ["journal.jsonl"] * 2


async def _ended_at_once(master: Master) -> dict[str, Any]:
    master._listener.close()
    master._journal.close()
    return {}


def test_who_is_told_to_end_with_the_master_hands_in_before(started: Start, joined: Join) -> None:
    running = started(terms(trainers=2))
    first, other = (joined(running.address, index) for index in range(2))
    assert other.until(Epoch).number == 1
    running.loop.call_soon_threadsafe(running.master.leave)
    first.member.leave()
    first.member.send_result(result(1))
    first.member.finish({"interrupted": 1.0})
    assert first.member.wait(20)
    assert other.until(Epoch).number == 2  # it is master still
    report = running.end()
    assert (report["state"], report["results"]) == ("running", ["trainer-0"])
    found = journal.read(running.folder / "journal.jsonl")
    assert found is not None
    assert found[1].summaries == {"trainer-0": {"interrupted": 1.0}}


def test_a_master_that_is_not_told_to_leave_stays(
    started: Start, joined: Join, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("leashed.cluster.master._LEAVING", 0.0)
    running = started()
    trainer = joined(running.address)
    trainer.until(Epoch)  # which has been written
    told = len(running.standings)
    wait_until(lambda: len(running.standings) > told + 1 or not running.thread.is_alive())
    trainer.train()
    trainer.finish()
    assert running.end()["state"] == "ended"


@pytest.mark.parametrize("twice", [True, False])
def test_they_are_waited_for_until_it_is_told_again_or_has_waited_for_its_grace(
    twice: bool, started: Start, joined: Join
) -> None:
    running = started(terms(grace=1e6 if twice else 1.0))
    joined(running.address).member.leave()  # and hands in nothing
    wait_until(lambda: running.master._coordinator.handing_in)
    running.loop.call_soon_threadsafe(running.master.leave)
    wait_until(lambda: running.master._coordinator.leaving)
    if twice:
        running.loop.call_soon_threadsafe(running.master.leave)
    assert running.end()["state"] == "running"


def test_a_callback_that_fails_is_told_to_the_next_caller(
    started: Start, caplog: pytest.LogCaptureFixture
) -> None:
    running = started()

    def heard(event: Event) -> None:
        if isinstance(event, Lease):
            raise ZeroDivisionError("in the callback")

    with Member(running.address, KEY, role="trainer", index=0, heard=heard) as member:
        member.want(3)
        assert member.wait(20)
        assert member.state == "failed"
        with pytest.raises(RuntimeError, match="trainer-0 has failed: in the callback"):
            member.want(3)
    assert "trainer-0 has failed" in caplog.text


class Clock:
    """Half a second is gone at each look; of all else as ``time``."""

    now = 0.0

    def monotonic(self) -> float:
        self.now += 0.5
        return self.now

    def __getattr__(self, name: str) -> Any:
        return getattr(time, name)


def test_telling_how_the_run_stands_takes_a_tenth_of_the_time(
    started: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where thousands of processes came and went."""
    clock = Clock()
    told: list[float] = []

    def tell(self: Master) -> dict[str, Any]:
        told.append(clock.now)
        clock.now += 3.0
        if len(told) == 4:
            self.stop("that is enough")
        return {}

    monkeypatch.setattr("leashed.cluster.master.time", clock)
    monkeypatch.setattr(Master, "_tell", tell)
    started().end()
    assert len(told) == 5  # and once at the end
    assert all(later - one >= 30.0 for one, later in pairwise(told[:4]))
