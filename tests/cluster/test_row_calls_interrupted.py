"""Calls of rows at embedding servers that something comes between: signals, other threads, and the end."""

from __future__ import annotations

import gc
import signal
import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from cluster.served import Servers
from cluster.test_row_calls import DIM, pair, updated, waiting
from warned import once

import leashed as lsh
from leashed.cluster import served_tables
from leashed.cluster.served_tables import ServedTables

ONE = np.ones((1, DIM), np.float32)


class Interrupted:
    """A thread's calls, behind the first of which of a name an interrupt comes."""

    def __init__(self, calls: Any, name: str) -> None:
        self._calls, self._name = calls, name

    def __getattr__(self, name: str) -> Any:
        call = getattr(self._calls, name)
        if name != self._name:
            return call
        self._name = ""

        def interrupted(*given: Any) -> None:
            call(*given)
            raise KeyboardInterrupt

        return interrupted


def interrupt_behind(served: ServedTables, name: str) -> None:
    lane: Any = served["a"]._lane()
    lane.calls = Interrupted(lane.calls, name)


@pytest.mark.parametrize("of", ["ask", "values", "update"])
def test_an_interrupt_behind_a_call_of_the_core_leaves_nothing_that_is_wrong(of: str) -> None:
    specs = pair(100)[:1]
    servers = Servers(specs, 1, rule=lsh.SGD(1.0))
    with servers.open(look_ahead=1) as served:
        table = served["a"]
        begun = table.lookup(np.arange(10))
        table.prefetch([1])
        interrupt_behind(served, of)
        calls: dict[str, Callable[[], Any]] = {
            "ask": lambda: table.lookup([2], versions=True),
            "values": lambda: table.lookup([1], versions=True),
            "update": lambda: table.update([2], ONE),
        }
        with pytest.raises(KeyboardInterrupt):
            calls[of]()
        pushed = of == "update"
        for k in (3, 4, 1):  # one of which lets go of what was asked for first
            table.update([k], ONE)
        _, versions = table.lookup([1], versions=True)
        table.update([1], ONE, versions)
        table.update([1], ONE, versions)  # which is over
        expected = begun - np.array([0, 3, int(pushed), 1, 1, 0, 0, 0, 0, 0], np.float32)[:, None]
        np.testing.assert_allclose(table.lookup(np.arange(10)), expected, atol=1e-6)
        table.settle()
        assert served.counters["settled"] == 5 + pushed


@pytest.mark.parametrize("versions", [False, True])
def test_a_signals_handler_is_told_that_it_has_interrupted_a_call(versions: bool) -> None:
    servers = Servers(pair(100), 1)
    with servers.open() as served:
        session = waiting(served)
        wrong: list[str] = []

        def handle(*_: object) -> None:
            for call in (lambda: served["a"].lookup([1]), served.close):
                try:
                    call()
                except RuntimeError as error:
                    wrong.append(str(error))
            served["b"]._require_open()
            session.paused = False

        def interrupt() -> None:
            while not served.counters["lookups" if versions else "reads"]:
                time.sleep(0.002)
            signal.raise_signal(signal.SIGUSR1)

        before = signal.signal(signal.SIGUSR1, handle)
        try:
            thread = threading.Thread(target=interrupt)
            thread.start()
            served["a"].lookup([1, 2], versions=versions)  # type: ignore[call-overload]
            thread.join()
        finally:
            signal.signal(signal.SIGUSR1, before)
        assert len(wrong) == 2
        assert wrong[0].startswith("table a is in a call of this thread, which a signal's handler")
        assert wrong[1].startswith("tables cannot be closed within a call of one")
        assert updated(served["a"], [1]).applied == 1  # goes on


def test_who_closes_what_it_is_closing_has_nothing_to_wait_for() -> None:
    servers = Servers(pair(100), 1)
    served = servers.open()
    session: Any = served._session
    finish = session.finish

    def closing_again(*given: Any) -> Any:
        served.close()  # as of a signal's handler
        return finish(*given)

    session.finish = closing_again
    served.close()
    assert served.counters["pushes"] == 0


def test_versions_of_another_thread_or_table_are_of_no_look_up_of_this_one() -> None:
    specs = pair(100)
    servers = Servers(specs, 1)
    with servers.open(threads=2) as served:
        a, b = served["a"], served["b"]
        found: list[Any] = []
        thread = threading.Thread(target=lambda: found.append(a.lookup([4], versions=True)[1]))
        thread.start()
        thread.join()
        a.lookup([4], versions=True)
        _, of_b = b.lookup([4], versions=True)
        looked_up = served.counters["lookups"]
        for given, more in ((found[0], 1), (of_b, 2)):
            a.update([4], ONE, given)
            assert served.counters["lookups"] == looked_up + more
        _, mine = a.lookup([4], versions=True)
        a.update([4], ONE, mine)
        assert served.counters["lookups"] == looked_up + 3


def test_names_of_look_ups_begin_again() -> None:
    servers = Servers(pair(100)[:1], 1)
    with servers.open() as served:
        table = served["a"]
        table._lane()._next = 2**32 - 2
        told = []
        for _ in range(4):
            _, versions = table.lookup([1, 1], versions=True)
            told.append(int(versions[0]))
            table.update([1, 1], np.ones((2, DIM)), versions)
        assert told == [2**32 - 2, 2**32 - 1, 0, 1]
        assert served.counters["lookups"] == 4


def test_a_thread_has_nothing_of_one_that_has_ended() -> None:
    servers = Servers(pair(100)[:1], 1)
    with servers.open(look_ahead=1) as served:
        table = served["a"]
        wrong: list[BaseException] = []

        def ask() -> None:
            try:
                table.prefetch([1])
            except BaseException as error:  # noqa: BLE001 (asserted below)
                wrong.append(error)

        for _ in range(2):
            thread = threading.Thread(target=ask)
            thread.start()
            thread.join()
            del thread
            gc.collect()
        assert wrong == []


BAD = [
    ([5, 6], np.array([[0.0] * DIM, [0.0, np.inf, 0.0, 0.0, 0.0, 0.0]]), r"gradients\[1, 1\] is inf"),
    ([5, 5], np.full((2, DIM), -3e38), "gradients of an id add up to what is not finite"),
]  # fmt: skip


@pytest.mark.parametrize("number", range(len(BAD)))
def test_no_id_gets_a_row_by_gradients_that_are_not_finite(number: int) -> None:
    ids, gradients, told = BAD[number]
    servers = Servers(pair(None)[:1], 2, max_bytes=1 << 20)
    with servers.open(look_ahead=1) as served:
        with pytest.raises(ValueError, match=told):
            served["a"].update(ids, gradients)
        served["a"].lookup([1])  # behind all that was asked
        assert served.counters["lookups"] == 0
        for each in servers.tables:  # (rows of 0 and −1 there always are)
            np.testing.assert_array_equal(each["a"].ids(), [-1, 0])
        # Large ones of several ids, or of one that make up for each other, are fine.
        served["a"].update([5, 6, 6], np.array([3e38, 3e38, -3e38])[:, None] * np.ones(DIM))


def test_a_run_that_is_over_takes_no_update_and_says_so() -> None:
    servers = Servers(pair(100), 1)
    served = servers.open()
    _, versions = served["a"].lookup([1], versions=True)
    served["b"].update([1], np.ones((1, DIM - 2)))
    served._session.rows.forsake()  # type: ignore[union-attr]
    with pytest.raises(ConnectionError, match="rows of table a are gone: the run is over"):
        served["a"].update([1], ONE, versions)
    assert served.counters["pushes"] == 1
    served._close(finished=False)


def test_what_nobody_answers_any_more_is_told_of_by_the_end() -> None:
    servers = Servers(pair(100), 1)
    served = servers.open(look_ahead=1)
    waiting(served)
    served["b"].prefetch([1])
    served._session.rows.forsake()  # type: ignore[union-attr]
    with pytest.raises(ConnectionError, match="rows of table b are gone: the run is over"):
        served.close()
    assert "closed" in repr(served)


def test_a_full_table_is_told_of_once() -> None:
    servers = Servers(pair(None)[:1], 1, max_bytes=1 << 14)
    with servers.open() as served:
        table = served["a"]

        def fill() -> int:
            many = np.arange(3000)
            told = table.update(many, np.ones((3000, DIM)))  # which may have come by then
            return told.refused + table.settle().refused

        with once("is full at its embedding servers: ids are refused a row"):
            assert fill() > 0
            assert fill() > 0


def test_who_ends_without_closing_is_told_so() -> None:
    servers = Servers(pair(100), 1)
    served = servers.open()
    served["a"].update([1], ONE)
    with once("of embedding servers were not closed before the end", here=False):
        served_tables._close_all()
    with pytest.raises(RuntimeError, match="table a is closed"):
        served["a"].lookup([1])
    served_tables._close_all()


@pytest.mark.parametrize("closes", [False, True])
def test_an_update_that_comes_too_late_is_told_of_once(closes: bool) -> None:
    servers = Servers(pair(100), 1)
    with servers.open() as served:
        for _ in range(2):
            _, versions = served["a"].lookup([1], versions=True)
            for _ in range(2):  # terms
                servers.natives[0].expire()
            served["a"].update([1], ONE, versions)
        with once(
            "parts of updates out, whose rows were looked up longer before than they keep them"
        ):
            served.close() if closes else served.settle()
        served.close() if closes else served.settle()
        assert served.counters["expired"] == 2
