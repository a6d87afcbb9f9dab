"""What a run makes of killed and stopped processes, and of a network that fails."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import errno
import itertools
import logging
import math
import os
import random
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cluster import faults, namespaces
from cluster.proxy import Proxy

import leashed as lsh
from leashed.cluster import master, server, serving, trainer_session
from leashed.cluster import plan as plans
from leashed.cluster.last_word import LastWord
from leashed.cluster.master import Master, Terms
from leashed.cluster.opening import Key, Listener
from leashed.cluster.results import Result
from leashed.cluster.serving import Place
from leashed.cluster.session import Cluster
from leashed.cluster.supervisor import AGAIN, WRONG, Supervisor, command, supervise

KEY = Key(b"k" * 32, given=False)
TIMEOUT, GRACE = 1.0, 5.0
RESULT = Result("trainer-0", np.ones(1, np.float32))
SLACK = 120.0  # seconds that a loaded machine takes for what takes none


@pytest.mark.long
@pytest.mark.process
def test_20_faults_in_a_row(tmp_path: Path) -> None:
    """``python tests/cluster/faults.py --faults 200`` for more."""
    assert faults.attempts(20, 0, None, tmp_path, mean=0.8) == 0


@pytest.mark.process
def test_a_trainer_is_killed_a_server_stopped_and_the_master_restarted(tmp_path: Path) -> None:
    """``python tests/cluster/faults.py --acceptance 60`` for a run of a minute."""
    played = faults.acceptance(tmp_path / "run", 7.0, stopped=2.0, longer=3)
    faults.check(played)
    assert [fault.name for fault in played.injector.injected] == [
        "trainer-1",
        "sync-ps-0",
        "master",
    ]


@pytest.mark.process
def test_a_master_killed_after_the_end_ends_again_as_it_did(tmp_path: Path) -> None:
    plan = faults.make_plan(tmp_path / "run", "easgd", "background", epochs=1.0, trainers=1)
    played = faults.play(plan, [])
    faults.check(played)
    for left in (True, False):
        if not left:
            (played.folder / "run.json").unlink()
        program = command(played.folder / "plan.toml")("master", 0)
        assert subprocess.run(program, check=False, timeout=120).returncode == 0
        report = faults.outcome.read_report(played.folder)
        assert report is not None
        for name in ("state", "reason", "ledger", "members", "summaries", "results", "seconds"):
            assert report[name] == played.report[name]
    other = dataclasses.replace(plan, train=dataclasses.replace(plan.train, epochs=2.0))
    plans.write(played.folder / "plan.toml", other)
    ended = subprocess.run(program, check=False, timeout=120, capture_output=True, text=True)
    assert ended.returncode == WRONG
    assert f"the run in {played.folder} has total=" in ended.stderr
    assert "or give another folder" in ended.stderr


@pytest.mark.process
def test_without_a_master_nobody_waits_for_longer_than_the_grace(tmp_path: Path) -> None:
    """Whoever started them is told by their status, and starts them again or not."""
    plan = faults.make_plan(tmp_path / "run", "easgd", "background", grace=1.0)
    begun: list[float] = []
    of = command(tmp_path / "run" / "plan.toml")
    with Supervisor(plan.cluster.processes(), of, tmp_path / "run", restarts=0) as supervisor:
        end = time.monotonic() + 90.0
        while supervisor.running("trainer") or supervisor.running("sync-ps"):
            assert time.monotonic() < end, "somebody waits"
            supervisor.step()
            report = faults.outcome.read_report(tmp_path / "run")
            if report is not None and report["ledger"]["complete"] > 0 and not begun:
                begun.append(time.monotonic())
                os.kill(supervisor.pids()["master"], signal.SIGKILL)
                end = begun[0] + plan.cluster.grace + faults.TIMEOUT + SLACK
            time.sleep(0.02)
        assert begun
        assert supervisor.statuses("trainer") == [AGAIN] * 3
        assert supervisor.statuses("sync-ps") == [AGAIN] * 2


class Away:
    """A member whose master comes back after so many attempts."""

    state = "away"

    def __init__(self, attempts: float) -> None:
        self.attempts = attempts
        self.sent: Result | None = None

    def send_result(self, data: Result) -> None:
        self.attempts -= 1
        if self.attempts > 0:
            raise ConnectionRefusedError("nobody listens")
        self.sent = data


def last_word(member: Any, **of: Any) -> LastWord:
    return LastWord("trainer-0", Cluster(0, 1, 0, "127.0.0.1:1", KEY, **of), member)


def test_a_master_that_is_away_at_the_end_is_waited_for() -> None:
    back = Away(3)
    last_word(back, grace=SLACK).send(RESULT)
    assert back.sent is RESULT
    away = Away(math.inf)
    with pytest.raises(ConnectionRefusedError):
        last_word(away, grace=0.1).send(RESULT)
    away.state = "over"
    last_word(away, grace=0.1).send(RESULT)


def test_handing_in_that_breaks_is_tried_again_however_long_it_had_taken(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    breaks, now = Away(2), [0.0]

    def send_result(data: Result) -> None:
        now[0] += 100 * GRACE
        Away.send_result(breaks, data)

    monkeypatch.setattr(breaks, "send_result", send_result)
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    last_word(breaks, grace=GRACE).send(RESULT)
    assert breaks.sent is RESULT


class Busy:
    """A member whose master says nothing for so many looks, and beats."""

    def __init__(self, looks: int, after: str) -> None:
        self.looks = looks
        self.after = after
        self.finished: dict[str, float] = {}

    def finish(self, summary: dict[str, float]) -> None:
        self.finished = summary

    def wait(self, _: float) -> bool:
        self.looks -= 1
        return self.looks < 0 and self.after == "over"

    @property
    def state(self) -> str:
        return "joined" if self.looks >= 0 else self.after


@pytest.mark.parametrize("after", ["over", "lost"])
def test_a_master_that_lives_has_the_time_that_it_takes_to_confirm_an_end(after: str) -> None:
    busy = Busy(1000, after)
    it = last_word(busy)
    it.hand_in(None, {"loss": 1.0})
    assert busy.finished == {"loss": 1.0}
    assert busy.looks < 0
    assert it.lost == (after == "lost")
    assert (it.cut_short is None) == (after == "over")


def test_nobody_hands_in_what_nobody_takes() -> None:
    it = last_word(Busy(0, "over"), results=False)
    it.hand_in(RESULT, {})
    assert not it.lost


# Trainers as threads of this process, so that a proxy can stand before each.


class Behind(Listener):
    """A listener that the others reach through a proxy."""

    made: list[tuple[str, Proxy]]

    def __init__(self, host: str, port: int, key: Key, role: str, accept: Any) -> None:
        super().__init__(host, port, key, role, accept)
        self.proxy = Proxy(self.address)
        self.made.append((role, self.proxy))
        self.address = self.proxy.address

    def close(self) -> None:
        super().close()
        self.proxy.close()


class Together:
    """A master, sync servers and trainers, with proxies before servers and trainers."""

    master: Master
    loop: asyncio.AbstractEventLoop

    def __init__(self, folder: Path, trainers: int, total: int | None, servers: int) -> None:
        self.folder = folder
        self.trainers = trainers
        self.terms = Terms(
            total=total, batch_size=8, trainers=trainers, sync_ps=servers,
            parameters=MODEL.dimension, beat=0.1, timeout=60.0, grace=GRACE,
        )  # fmt: skip
        self.proxies: list[tuple[str, Proxy]] = []
        self.results: dict[int, Any] = {}
        self.errors: list[BaseException] = []
        self.standings: list[dict[str, Any]] = []
        self.train: Callable[..., object] = lambda *_: None
        self._threads: list[threading.Thread] = []

    def start(self, work: Callable[[], Any]) -> threading.Thread:
        def guarded() -> None:
            try:
                work()
            except BaseException as error:  # noqa: BLE001 (the test's, told by end())
                self.errors.append(error)

        thread = threading.Thread(target=guarded, daemon=True)
        thread.start()
        self._threads.append(thread)
        return thread

    def of(self, role: str) -> list[Proxy]:
        return [proxy for name, proxy in self.proxies if name == role]

    def complete(self) -> int:
        return int(self.standings[-1]["ledger"]["complete"]) if self.standings else 0

    def until(self, condition: Callable[[], bool], seconds: float = 60.0) -> None:
        end = time.monotonic() + seconds
        while not condition():
            assert time.monotonic() < end, "it did not happen"
            assert not self.errors, self.errors
            time.sleep(0.01)

    def enough(self) -> None:
        """No more batches are handed out than were by now: the run ends when these are complete."""
        ledger = self.master._coordinator.state.ledger

        def end() -> None:
            ledger.total = ledger.next

        self.loop.call_soon_threadsafe(end)

    def end(self, seconds: float = 90.0) -> dict[str, Any]:
        """How the run stands when all have ended."""
        if self.terms.total is None:
            self.enough()
        end = time.monotonic() + seconds
        for thread in self._threads:
            thread.join(max(0.0, end - time.monotonic()))
            assert not self.errors, self.errors
        assert not any(thread.is_alive() for thread in self._threads), "it does not end"
        return self.standings[-1]


MODEL_DATA = lsh.datasets.synthetic_digits(n=400, test=50)
MODEL = lsh.models.mlp(784, [32], 10)


@pytest.fixture
def together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> Iterator[Callable[..., Together]]:
    """Runs, on threads."""
    # An error that pytest keeps with its record keeps what was there where it was raised.
    caplog.set_level(logging.WARNING, "leashed")
    made: list[tuple[str, Proxy]] = []
    kind = type("BehindHere", (Behind,), {"made": made})
    monkeypatch.setattr(trainer_session, "Listener", kind)
    monkeypatch.setattr(serving, "Listener", kind)
    monkeypatch.setattr(master, "_TELLS", 0.1)
    before = _descriptors()

    def run(
        sync: Any,
        trainers: int = 2,
        servers: int = 0,
        *,
        epochs: float | None = None,
        begin: Iterable[int] | None = None,
        **train: Any,
    ) -> Together:
        endless = lsh.until(updates=2**53)  # to the run's end, which the test makes
        until = endless if epochs is None else lsh.until(epochs=epochs)
        total = None if epochs is None else -(-int(epochs * len(MODEL_DATA.train)) // 8)
        run = Together(tmp_path / "run", trainers, total, servers)
        run.proxies = made
        run.start(lambda: _master(run))
        run.until((tmp_path / "run" / "master.address").exists)
        address = (tmp_path / "run" / "master.address").read_text().strip()
        for index in range(servers):
            run.start(
                lambda index=index: server.serve(  # type: ignore[misc]
                    MODEL.dimension,
                    servers,
                    index,
                    Place(address, KEY, "127.0.0.1", tmp_path / "run", GRACE, "tcp"),
                )
            )

        def one(index: int, until: lsh.Until) -> None:
            settings = {"threads": 1, "batch_size": 8, "rule": lsh.SGD(0.02), **train}
            run.results[index] = lsh.train(
                MODEL, MODEL_DATA, until=until, observe=lsh.Observe(every=1000.0), **settings,
                cluster=Cluster(
                    index, trainers, servers, address, KEY, timeout=TIMEOUT, grace=GRACE,
                    transport="tcp", sync=sync,
                ),
            )  # fmt: skip

        run.train = lambda index, until=until: run.start(lambda: one(index, until))
        for index in range(trainers) if begin is None else begin:
            run.train(index)
        return run

    yield run
    deadline = time.monotonic() + SLACK
    while left := _descriptors() - before:
        assert time.monotonic() < deadline, f"descriptors are left: {left}"
        time.sleep(0.05)


def _descriptors() -> set[str]:
    """What is open here, but for files that are."""
    found = set()
    for each in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError):
            target = str(each.readlink())
            if not target.startswith("/"):
                found.add(f"{each.name} {target}")
    return found


def _master(run: Together) -> None:
    async def serve() -> None:
        run.loop = asyncio.get_running_loop()
        run.master = Master(
            run.terms, host="127.0.0.1", port=0, key=KEY, folder=run.folder,
            watch=run.standings.append,
        )  # fmt: skip
        await run.master.serve()

    asyncio.run(serve())


def _check(run: Together, report: dict[str, Any]) -> None:
    ledger = report["ledger"]
    assert ledger["complete"] > 0
    assert ledger["outstanding"] == 0
    before = MODEL.evaluate(MODEL.init(0), MODEL_DATA.train)[0]
    for result in run.results.values():
        assert np.isfinite(result.parameters).all()
        assert MODEL.evaluate(result.parameters, MODEL_DATA.train)[0] < 0.8 * before


def test_all_through_proxies_that_do_nothing(together: Callable[..., Together]) -> None:
    run = together(lsh.sync.EASGD(), servers=2)
    run.until(lambda: run.complete() > 2000)
    report = run.end()
    _check(run, report)
    assert ("syncs", True) in [(k, v > 0) for k, v in report["summaries"]["trainer-0"].items()]


def test_a_full_disk_costs_a_server_its_snapshots_alone(
    together: Callable[..., Together], monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(server, "_save", full)
    run = together(lsh.sync.EASGD(), servers=1)

    def failed() -> float:
        told = run.standings[-1]["metrics"] if run.standings else {}
        return float(told.get("sync-ps-0", {}).get("snapshots_failed", 0.0))

    run.until(lambda: failed() >= 2)
    report = run.end()
    _check(run, report)


def test_in_lockstep_who_comes_first_waits_for_the_others(
    together: Callable[..., Together],
) -> None:
    run = together(
        lsh.sync.MA(), epochs=4.0, begin=[0], discipline=lsh.Synchronous(), threads=3
    )  # fmt: skip
    time.sleep(2.5)  # longer than one who has batches to give takes to give them
    run.train(1)
    report = run.end()
    assert report["ledger"]["complete"] == 200
    assert run.results[0].gradients > 0


def test_who_comes_when_all_is_done_replaces_no_result(together: Callable[..., Together]) -> None:
    run = together(lsh.sync.MA(), epochs=4.0, begin=[0])  # the other is waited for, for a while
    run.until(lambda: "trainer-0" in run.standings[-1]["summaries"] if run.standings else False)
    run.train(1)
    report = run.end()
    assert report["ledger"]["complete"] == 200
    assert report["results"] == ["trainer-0"]
    assert report["summaries"]["trainer-1"]["batches_used"] == 0


@contextlib.contextmanager
def _bad(proxies: list[Proxy], seed: int) -> Iterator[threading.Event]:
    """Lets the network fail, again and again, until the end: delays, resets, half-open connections,
    links down. The event comes when it has failed in each of these ways.
    """
    rng = random.Random(seed)
    over, enough = threading.Event(), threading.Event()
    ways = ["delay", "reset", "swallow", "hold"]

    def fail() -> None:
        for turn in itertools.count():
            if over.wait(rng.uniform(0.1, 0.6)):
                return
            if turn > len(ways):
                enough.set()
            proxy = rng.choice(proxies)
            what = ways[turn] if turn < len(ways) else rng.choice(ways)
            if what == "delay":
                proxy.delay = rng.uniform(0.0, 0.1)
            elif what == "reset":
                proxy.reset()
            else:
                proxy.mode = what  # type: ignore[assignment]
                over.wait(rng.choice([0.2, 1.5 * TIMEOUT]))
                proxy.mode = "pass"

    thread = threading.Thread(target=fail)
    thread.start()
    try:
        yield enough
    finally:
        over.set()
        thread.join()
        for proxy in proxies:
            proxy.mode, proxy.delay = "pass", 0.0


BACKGROUND, EVERY = lsh.sync.background(), lsh.sync.every(iterations=5)


@pytest.mark.parametrize("when", [BACKGROUND, EVERY], ids=["background", "every"])
def test_a_bad_network_before_sync_servers(when: Any, together: Callable[..., Together]) -> None:
    run = together(lsh.sync.EASGD(when=when), servers=2)
    run.until(lambda: run.complete() > 0)
    with _bad(run.of("sync-ps"), 1) as failed:
        run.until(failed.is_set)
        report = run.end()
    _check(run, report)
    assert all(m["why"] in (None, "finished") for m in report["members"])  # the master was reached


@pytest.mark.parametrize(
    ("kind", "when"),
    [(lsh.sync.BMUF, BACKGROUND), (lsh.sync.MA, EVERY)],
    ids=["BMUF-background", "MA-every"],
)
def test_a_bad_network_in_a_ring(kind: Any, when: Any, together: Callable[..., Together]) -> None:
    run = together(kind(when=when), trainers=3)
    run.until(lambda: run.complete() > 0)
    with _bad(run.of("trainer"), 2) as failed:
        run.until(failed.is_set)
        report = run.end()
    _check(run, report)
    assert report["epoch"] > 1
    assert all(m["why"] in (None, "finished") for m in report["members"])


def test_a_hung_server_holds_nobody_back_in_the_background(
    together: Callable[..., Together],
) -> None:
    run = together(lsh.sync.EASGD(), servers=2)
    run.until(lambda: run.complete() > 0)
    with _hung(run.of("sync-ps")[0]):
        for _ in range(3):  # much goes on within each time-out of the server's
            time.sleep(0.5 * TIMEOUT)
            before = run.complete()
            run.until(lambda: run.complete() > before + 100, SLACK)  # noqa: B023
    report = run.end()
    _check(run, report)


def test_a_hung_server_holds_a_worker_up_for_a_round_at_most(
    together: Callable[..., Together],
) -> None:
    run = together(lsh.sync.EASGD(when=EVERY), servers=2)
    run.until(lambda: run.complete() > 0)
    with _hung(run.of("sync-ps")[0]):
        complete = run.complete()
        run.until(lambda: run.complete() > complete + 1000, TIMEOUT + SLACK)
    # It was dropped after one deadline, and nobody could reach it again; the other server's
    # exchanges went on.
    report = run.end()
    _check(run, report)


def _syncs(run: Together) -> float:
    """Of the first trainer, so far."""
    return float(run.standings[-1]["metrics"]["trainer-0"].get("syncs", 0.0))


@contextlib.contextmanager
def _hung(proxy: Proxy) -> Iterator[None]:
    proxy.mode = "swallow"
    try:
        yield
    finally:
        proxy.mode = "pass"


@pytest.mark.parametrize("when", [BACKGROUND, EVERY], ids=["background", "every"])
@pytest.mark.parametrize("kind", [lsh.sync.EASGD, lsh.sync.MA, lsh.sync.BMUF])
def test_who_comes_late_begins_where_the_others_are(
    kind: Any, when: Any, together: Callable[..., Together]
) -> None:
    run = together(kind(when=when), trainers=1, servers=2 if kind.SERVERS else 0)
    run.until(lambda: run.complete() > 2000)
    # A background that stood still tells the others only now.
    syncs = _syncs(run)
    run.until(lambda: _syncs(run) > syncs + 20)
    run.train(1, lsh.until(updates=500))  # and leaves before the other
    run.until(lambda: 1 in run.results)
    _check(run, run.end())
    first, late = run.results[0], run.results[1]
    assert late.loss[0] < 0.5 * first.loss[0]


# Two machines: master and sync servers in one namespace, trainers in the other; of a ring the first
# trainer is beside the master.

WHY_NOT = namespaces.missing()
two_machines = pytest.mark.skipif(WHY_NOT is not None, reason=str(WHY_NOT))


@contextlib.contextmanager
def _apart(
    link: namespaces.Link, folder: Path, kind: str, when: Any, epochs: float, **train: Any
) -> Iterator[tuple[Supervisor, plans.Plan]]:
    plan = faults.make_plan(
        folder, kind, when, epochs=epochs, trainers=2, transport="tcp", master=f"{namespaces.HERE}:28500", key=folder / "key",
        **train,
    )  # fmt: skip
    start = command(folder / "plan.toml")

    def of(role: str, index: int) -> list[str]:
        beside = role != "trainer" or (kind == "ma" and index == 0)
        namespace = link.near if beside else link.far
        return link.inside(namespace, start(role, index))

    with Supervisor(plan.cluster.processes(), of, folder, restarts=1000) as supervisor:
        yield supervisor, plan


def _complete(folder: Path) -> int:
    report = faults.outcome.read_report(folder)
    return 0 if report is None else int(report["ledger"]["complete"])


@pytest.mark.process
@two_machines
@pytest.mark.parametrize(
    "down",
    [pytest.param(0.5, marks=pytest.mark.long), 4.0],
    ids=["shortly", "for longer than the timeout"],
)
@pytest.mark.parametrize("kind", ["easgd", pytest.param("ma", marks=pytest.mark.long)])
def test_the_link_is_down_for_a_while(kind: str, down: float, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    with (
        namespaces.link() as link,
        _apart(link, folder, kind, "background", epochs=200.0, grace=20.0) as (run, plan),
    ):
        begun = time.monotonic()
        changes = [(0.5, link.down), (down, link.up)]
        due: list[float] = []

        def look() -> None:
            assert time.monotonic() < begun + 120, "it does not end"
            if not due and _complete(folder) > 0:
                due.append(time.monotonic() + changes[0][0])
            if due and changes and time.monotonic() >= due[0]:
                changes.pop(0)[1]()
                if changes:
                    due[0] = time.monotonic() + changes[0][0]

        supervise(run, plan.cluster.timeout, look)
        assert not changes, "the run was over before the link was back"
    report = faults.outcome.read_report(folder)
    assert report is not None
    assert report["state"] == "ended"
    ledger = report["ledger"]
    assert ledger["complete"] == ledger["total"]
    assert ledger["outstanding"] == ledger["free"] == 0
    gone = [m for m in report["members"] if m["role"] == "trainer" and not m["finished"]]
    if down > faults.TIMEOUT:
        assert {m["index"] for m in gone} == ({1} if kind == "ma" else {0, 1})
        assert all(m["why"].startswith("silent") for m in gone)


@pytest.mark.process
@two_machines
@pytest.mark.parametrize("kind", ["easgd", "ma"])
def test_own_bytes_are_the_kernels(kind: str, tmp_path: Path) -> None:
    """Over a token bucket; but for what the control connections take, and headers."""
    folder = tmp_path / "run"
    with namespaces.link() as link:
        link.limit("200mbit")
        with _apart(link, folder, kind, "background", epochs=8.0) as (run, plan):
            begun = time.monotonic()

            def look() -> None:
                assert time.monotonic() < begun + 120, "it does not end"

            supervise(run, plan.cluster.timeout, look)
            to_servers, to_trainers = link.payload()
    report = faults.outcome.read_report(folder)
    assert report is not None
    over = ["trainer-1"] if kind == "ma" else ["trainer-0", "trainer-1"]
    answer = 4 * plan.train.problem().model.dimension  # bytes: as much as θ
    counted = [report["summaries"][name] for name in over]
    out, back = (sum(each[way] for each in counted) for way in ("bytes_out", "bytes_in"))
    # (The master finds their results in the folder.)
    assert out == pytest.approx(to_servers, rel=0.02)
    # A trainer that ends leaves the answer that is on its way unread.
    unread = to_trainers - back
    assert -0.02 * to_trainers < unread < len(over) * answer + 0.02 * to_trainers
    for each in counted:
        # The kernel has received what is left unread, too.
        unread = each["kernel_in"] - each["bytes_in"]
        assert abs(unread) < 0.001 * each["kernel_in"] or 0 < unread < 1.001 * answer
