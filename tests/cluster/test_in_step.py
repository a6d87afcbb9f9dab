"""A trainer that is not in step with the others says so at once, and so does the report."""

from __future__ import annotations

import contextlib
import gc
import math
import queue
import time
import warnings
import weakref
from collections.abc import Callable
from types import SimpleNamespace
from typing import cast

import numpy as np
import pytest
from cluster import inside
from cluster.test_coordinator import Talk
from warned import once

import leashed as lsh
from leashed.cluster import account_tending, last_word, server_tending, session, troubles
from leashed.cluster.connecting import Connecting
from leashed.cluster.member import Lost
from leashed.cluster.messages import Bye, End, Report
from leashed.cluster.results import Result

D = 100


def said(engine: lsh.Engine, words: str, told: list[warnings.WarningMessage]) -> None:
    """Trains until it is."""
    for _ in engine.batches():
        engine.push(np.zeros(D, np.float32), t=engine.t)
        if any(words in str(each.message) for each in told):
            return


def test_who_trains_alone_is_told_why(tmp_path):
    with (
        inside.run(tmp_path, D, sync_ps=1, trainers=2, grace=0.2) as run,
        once(
            "trainer-0 trains, and is not in step with all others: 1 of 2 trainers have come; do the others have this run's address",
            "and is not in step with all others: sync server 0 is not reached: it has not joined",
            "was never synchronised with the other trainers",
            here=False,
        ) as told,
    ):
        cluster = run.cluster(servers=1, timeout=0.5)
        engine = lsh.Engine(np.zeros(D, np.float32), sync=lsh.sync.EASGD(), cluster=cluster)
        said(engine, "1 of 2 trainers have come", told)
        said(engine, "sync server 0 is not reached", told)
        engine.close()
        run.stop()
        report = run.report()
    (trainer,) = (member for member in report["members"] if member["role"] == "trainer")
    assert trainer["counters"]["syncs"] == 0
    assert trainer["counters"]["unsynced"] == trainer["counters"]["batches_used"] > 0


def test_with_too_few_trainers_a_run_fails():
    talk = Talk(min_trainers=2)
    talk.join(1)
    talk.wait(9.5, 1)
    assert talk.master.over is None
    talk.wait(1.5, 1)
    assert talk.master.over is not None
    assert "1 of 2 trainers are here for 10 s, and min_trainers is 2" in talk.master.over
    assert talk.master.state.how == "failed"


def test_or_where_they_become_too_few():
    talk = Talk(min_trainers=2)
    for index in range(2):
        talk.join(index + 1, index)
    talk.wait(30, 1, 2)
    talk.master.closed(2, talk.now)
    talk.wait(59, 1)
    assert talk.master.over is None
    talk.wait(3, 1)
    assert talk.master.state.how == "failed"


@pytest.mark.parametrize("required", [False, True])
def test_trainers_that_are_never_synchronised(required):
    talk = Talk(require_sync=required)
    for index in range(2):
        talk.join(index + 1, index)
    talk.train(1)
    last = {"batches_used": 10.0, "syncs": 0.0}
    assert Bye("finished") in talk.say(1, Report(left=True, summary=last))
    talk.say(2, Report(summary={"batches_used": 0.0, "syncs": 0.0}))
    over = talk.master.over
    assert over is not None
    assert "trainer-0" in over
    assert "never synchronised" in over
    assert "trainer-1" not in over
    assert talk.master.state.how == ("failed" if required else "ended")


def test_a_trainer_that_is_not_synchronised_for_long_ends_the_run():
    talk = Talk(require_sync=True, total=None)
    for index in range(2):
        talk.join(index + 1, index)
    for second in range(70):
        if talk.master.over is None:
            for connection, syncs in ((1, float(second)), (2, 3.0)):
                trouble = "sync server 0 is not reached" if connection == 2 else ""
                late = 0.0 if connection == 1 else float(second)
                counters = {"batches_used": float(second), "syncs": syncs, "sync_overdue": late}
                talk.say(connection, Report(metrics=counters, trouble=trouble))
            talk.wait(1, 1, 2)
    over = talk.master.over
    assert over is not None
    assert over.startswith("trainer-1 trains for 60 s without being synchronised")
    assert "sync server 0 is not reached" in over
    assert talk.master.state.how == "failed"


def test_rounds_that_are_rightly_far_apart_end_no_run():
    talk = Talk(require_sync=True, total=None)
    talk.join(1)
    for second in range(200):
        counters = {"batches_used": float(second), "syncs": 1.0, "sync_overdue": 0.0}
        talk.say(1, Report(metrics=counters))
        talk.wait(1, 1)
    assert talk.master.over is None


def test_nor_does_a_last_evaluation_of_who_was_late():
    talk = Talk(require_sync=True, total=None)
    talk.join(1)
    talk.say(1, Report(metrics={"syncs": 1.0, "sync_overdue": 59.0}))
    talk.say(1, Report(metrics={"syncs": 1.0, "sync_overdue": 60.0}, left=True))
    talk.wait(1, 1)
    assert talk.master.over is None


@pytest.mark.parametrize(
    ("when", "batches", "unsynced", "seconds", "late"),
    [
        (lsh.sync.background(), 1000, 1000, 19.0, False),
        (lsh.sync.background(), 1000, 1000, 20.0, True),
        (lsh.sync.background(), 1000, 7, 900.0, False),  # of 4 workers
        (lsh.sync.every(seconds=120), 1000, 1000, 259.0, False),
        (lsh.sync.every(seconds=120), 1000, 1000, 260.0, True),
        (lsh.sync.every(seconds=0.1), 1000, 0, 900.0, False),
        (lsh.sync.every(iterations=100), 8000, 799, 900.0, False),
        (lsh.sync.every(iterations=100), 8000, 800, 900.0, True),
        (lsh.sync.every(iterations=100), 8000, 800, 19.0, False),
        (lsh.sync.every(iterations={0: 100, 2000: 5}), 7999, 799, 900.0, False),
        (lsh.sync.every(iterations={0: 100, 2000: 5}), 8000, 40, 900.0, True),
    ],
)
def test_a_trainer_is_late_when_two_rounds_were_due(when, batches, unsynced, seconds, late):
    found = account_tending.overdue(when, 4, 10.0, batches, unsynced, seconds)
    assert found == (seconds if late else 0.0)


@pytest.mark.parametrize(("within", "late"), [(None, False), (np.full((3, 4), 2000.0), True)])
def test_behind_a_resume_a_round_is_due_by_the_gap_of_then(monkeypatch, within, late):
    """Workers go on with iteration 2,000, from which the gap is 5, and not 100."""
    now = [1000.0]
    monkeypatch.setattr(account_tending.time, "monotonic", lambda: now[0])
    tending = account_tending.AccountTending(
        None, None, None, total=None, sums=False, parts=1, workers=4, timeout=10.0, within=within,
        when=lsh.sync.every(iterations={0: 100, 2000: 5}),
    )  # fmt: skip
    now[0] += 60.0
    assert tending.overdue(40) == (60.0 if late else 0.0)


def train_on(engine: lsh.Engine, seconds: float) -> None:
    """For so long, or until the run is over."""
    end = time.monotonic() + seconds
    for _ in engine.batches():
        engine.push(np.zeros(D, np.float32), t=engine.t)
        if time.monotonic() >= end:
            return


def test_a_slow_pace_is_no_failure_where_synchronisation_is_required(tmp_path):
    when = lsh.sync.every(seconds=2.0)
    with inside.run(tmp_path, D, 1, require_sync=True, patience=0.5) as run:
        engine = lsh.Engine(
            np.zeros(D, np.float32), sync=lsh.sync.EASGD(when=when), cluster=run.cluster()
        )
        train_on(engine, 3.0)
        engine.close()
        report = run.report()
    assert report["state"] == "ended"
    assert report["summaries"]["trainer-0"]["syncs"] >= 1


def test_but_a_server_that_does_not_come_is(tmp_path):
    with inside.run(tmp_path, D, sync_ps=1, require_sync=True, patience=1.0) as run:
        cluster = run.cluster(servers=1, timeout=0.2)
        engine = lsh.Engine(np.zeros(D, np.float32), sync=lsh.sync.EASGD(), cluster=cluster)
        with warnings.catch_warnings(record=True):
            warnings.simplefilter("always")
            train_on(engine, inside.PATIENCE)
            engine.close()
        report = run.report()
    assert report["state"] == "failed"
    assert report["reason"].startswith("trainer-0 trains for ")
    assert "sync server 0 is not reached" in report["reason"]


def test_an_engine_tells_why_its_run_ended(tmp_path):
    with inside.run(tmp_path, D) as run:
        engine = lsh.Engine(np.zeros(D, np.float32), sync=lsh.sync.MA(), cluster=run.cluster())
        assert engine.cut_short is None
        run.stop()
        with once("the run ended before its training did"):
            engine.close()
        assert "the test is over" in engine.cut_short


def test_who_waits_for_data_is_not_out_of_step():
    talk = Talk(require_sync=True, total=None)
    talk.join(1)
    talk.join(2, 1)
    for batches in (5.0, 5.0, 6.0):
        talk.say(1, Report(metrics={"batches_used": batches, "syncs": 2.0}))
        talk.wait(59, 1, 2)
    assert talk.master.over is None


def test_min_trainers_holds_when_one_was_told_to_end():
    talk = Talk(min_trainers=2, trainers=3)
    for index in range(3):
        talk.join(index + 1, index)
    talk.say(1, Report(summary={"interrupted": 1.0}))
    talk.wait(61, 2, 3)
    assert talk.master.over is None
    talk.master.closed(3, talk.now)
    talk.wait(61, 2)
    assert talk.master.state.how == "failed"


def test_what_is_required_is_looked_at_where_a_trainer_is_lost():
    talk = Talk(require_sync=True)
    for index in range(2):
        talk.join(index + 1, index)
    talk.train(1)
    talk.master.closed(2, talk.now)
    talk.say(1, Report(summary={"batches_used": 10.0, "syncs": 0.0}))
    talk.wait(11)
    over = talk.master.over
    assert over is not None
    assert over.startswith(
        "trainer-0 never synchronised, and require_sync is set; no trainer is left"
    )
    assert talk.master.state.how == "failed"


def test_trainers_that_gave_up_leave_a_run_incomplete():
    talk = Talk()
    for index in range(2):
        talk.join(index + 1, index)
    for index in range(2):
        talk.say(index + 1, Report(summary={"batches_used": 3.0, "cut_short": 1.0}))
    assert talk.master.state.how == "incomplete"


class Watched:
    """A trainer of two sync servers, of which it sees what a test says, once in a tenth of a second."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, filter_: str) -> None:
        self.now = 0.0
        monkeypatch.setattr(troubles, "time", SimpleNamespace(monotonic=lambda: self.now))
        self.told: list[str] = []
        self._filter = filter_
        self._troubles = troubles.Troubles("trainer-0", 5.0, self.told.append)
        self._servers = server_tending.ServerTending(
            "sync-ps", server_tending.EXCHANGE, connecting([]), 2, "tcp"
        )
        self._servers.told({1: "10.0.0.2:1"})

    def goes(
        self, seconds: float, there: dict[int, str], missing: list[int], why: str = ""
    ) -> list[str]:
        """What it warns of meanwhile."""
        self._servers.told(there)
        missed = [(0, server) for server in missing]
        failing = connecting([why] * len(missed))
        self._servers._connecting = failing
        self._servers.tend(SimpleNamespace(slots=1, missing=lambda _: missed))
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter(self._filter)
            for _ in range(round(10 * seconds)):
                self.now += 0.1
                self._troubles.look(self._servers.amiss())
        return [str(each.message).partition(" all others")[2] for each in said]


def connecting(outcomes: list[str]) -> Connecting:
    """Connections of which each comes, or fails, as told; on the thread that asks."""
    said = iter(outcomes)

    def connect(*_: object) -> contextlib.AbstractContextManager[SimpleNamespace]:
        if (why := next(said)) != "":
            raise OSError(why)
        made = SimpleNamespace(settimeout=lambda _: None, recv=lambda _: b"\1", detach=lambda: 3)
        return contextlib.nullcontext(made)

    def start(work: Callable[[], None]) -> bool:
        work()
        return True

    made = SimpleNamespace(
        connect=connect, start=start, timeout=5.0, closing=SimpleNamespace(wait=lambda _: None)
    )
    return cast("Connecting", made)


@pytest.mark.parametrize("filter_", ["always", "default"])
def test_each_outage_is_told(filter_, monkeypatch, caplog):
    caplog.set_level("INFO", logger="leashed")
    watched = Watched(monkeypatch, filter_)
    for time_ in ("", " (time 2)", " (time 3)"):
        gone = watched.goes(12.0, {}, [1])
        assert gone == [f"{time_}: sync server 1 is not reached: it has left the run"]
        assert watched.told[-1].endswith("it has left the run")
        # It joins, and is connected to a moment later: no other trouble, and then none.
        assert watched.goes(0.1, {1: "10.0.0.2:1"}, [1], "no answer") == []
        assert watched.goes(3.0, {1: "10.0.0.2:1"}, []) == []
        assert watched.told[-1] == ""
        assert caplog.messages[-1] == "trainer-0 is in step with the others again"
        caplog.clear()


def test_another_reason_is_told_once_it_lasts(monkeypatch):
    watched = Watched(monkeypatch, "always")
    here = {1: "10.0.0.2:1"}
    assert watched.goes(12.0, {}, [1]) == [": sync server 1 is not reached: it has left the run"]
    assert watched.goes(4.0, here, [1], "refused") == []
    assert watched.goes(4.0, here, [1], "no route") == []
    assert watched.goes(9.0, here, [1], "another key") == [
        ": sync server 1 at 10.0.0.2:1 is not reached: another key"
    ]


def test_what_stands_in_the_way_of_a_connection_is_logged_when_it_changes(caplog):
    caplog.set_level("INFO", logger="leashed")
    outcomes = ["refused", "refused", "no route", "no route", "", "no route"]
    servers = server_tending.ServerTending(
        "sync-ps", server_tending.EXCHANGE, connecting(outcomes), 2, "tcp"
    )
    servers.told({1: "10.0.0.2:1"})
    for _ in range(6):
        servers.tend(SimpleNamespace(slots=1, missing=lambda _: [(0, 1)], adopt=lambda *_: True))
    assert [each.rpartition(" at 10.0.0.2:1: ")[2] for each in caplog.messages] == [
        "refused", "no route", "no route",
    ]  # fmt: skip


def test_whoever_keeps_what_was_logged_keeps_no_connections(monkeypatch, caplog):
    caplog.set_level("INFO", logger="leashed")
    watched = Watched(monkeypatch, "error")

    class Native(SimpleNamespace):
        """Its connections end with it."""

    def turn() -> weakref.ref[Native]:
        native = Native(slots=1, missing=lambda _: [(0, 1)])
        watched._servers._connecting = connecting(["refused"])
        watched._servers.tend(native)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            for watched.now in (1.0, 10.0):
                watched._troubles.look(watched._servers.amiss())
        return weakref.ref(native)

    gc.disable()  # what nobody holds is gone without
    try:
        assert turn()() is None
    finally:
        gc.enable()
    assert [each.levelname for each in caplog.records] == ["INFO", "WARNING"]


def test_what_stands_in_the_way_of_a_result_is_logged_when_it_changes(monkeypatch, caplog):
    caplog.set_level("INFO", logger="leashed")
    attempts = iter(["refused", "refused", "cut off", ""])

    def send(_: Result) -> None:
        if (why := next(attempts)) != "":
            raise OSError(why)

    monkeypatch.setattr(last_word, "_AGAIN", 0.0)
    member = SimpleNamespace(state="away", send_result=send)
    of = last_word.LastWord("trainer-0", SimpleNamespace(grace=60.0), member)
    assert of.send(Result("trainer-0", np.ones(1, np.float32)))
    assert caplog.messages == [
        "the result is not out yet: refused", "the result is not out yet: cut off",
    ]  # fmt: skip


@pytest.mark.parametrize("last", [Bye("told to end"), Lost("the master is away")])
def test_rows_of_servers_that_have_ended_with_the_run_are_waited_for_no_more(last):
    """Also where all batches are used by then: its pushes, or its last evaluation, were for ``patience``."""
    forsaken: list[bool] = []
    of = session.Session.__new__(session.Session)
    vars(of).update(
        _events=queue.SimpleQueue(), _told_end=False, _over=False, _left=True, _reported=math.inf,
        _last=SimpleNamespace(cut_short=None), _tended=SimpleNamespace(
            native=None, mode=None, batches=None, leases=SimpleNamespace(end=lambda: None),
            rows=SimpleNamespace(forsake=lambda: forsaken.append(True)), row_servers=SimpleNamespace(
                tend=lambda _: None, amiss=lambda: {"embedding-ps 0": "it has left the run"}
            ),
        ),
    )  # fmt: skip
    of._events.put(End("all batches are complete"))
    of._hear()
    of._turn()
    assert not forsaken
    of._events.put(last)
    of._hear()
    of._turn()
    assert forsaken == [True]


def test_who_joins_anew_says_why(caplog):
    of = session.Session.__new__(session.Session)
    vars(of).update(
        _name="trainer-0", _member=SimpleNamespace(refused="silent for 5 s"),
        _tended=SimpleNamespace(leases=SimpleNamespace(begin_anew=lambda: None), batches=None),
    )  # fmt: skip
    of._begin_anew()
    assert [each.partition(":")[0] for each in caplog.messages] == [
        "trainer-0 joined anew, as the master had taken it for dead (silent for 5 s)"
    ]
