"""Rows at embedding servers that are looked up and updated by calls, beside a table of this process."""

from __future__ import annotations

import gc
import operator
import os
import signal
import threading
import time
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from cluster.served import Servers

import leashed as lsh
from leashed.cluster.served_tables import ServedTables
from leashed.models import TableSpec, tables
from leashed.models.row_table import RowUpdate

DIM = 6
RULES: dict[str, Callable[[], Any]] = {
    "sgd": lambda: lsh.SGD(0.1),
    "adagrad": lambda: lsh.Adagrad(0.05),
    "rowwise adagrad": lambda: tables.RowwiseAdagrad(0.05),
    "adam": lambda: lsh.Adam(0.01),
    "rmsprop": lambda: lsh.RMSprop(0.01),
    "ftrl": lambda: lsh.FTRL(0.1),
    "adagrad by schedule": lambda: lsh.Adagrad(lsh.schedules.step(0.05, every=3)),
    "swap": lambda: lsh.SWAP(lsh.Adagrad(0.05), period=4),
}
SIZES: dict[str, tuple[int | None, dict[str, Any]]] = {
    "fixed": (500, {}),
    "growing": (None, {"max_bytes": 1 << 20}),
    "growing, admitted after 2": (None, {"max_bytes": 1 << 20, "admit_after": 2}),
}


def pair(rows: int | None) -> list[TableSpec]:
    return [TableSpec("a", DIM, rows), TableSpec("b", DIM - 2, rows)]


def batches(n: int, seed: int = 5) -> list[Any]:
    """Ids that repeat, some of them within a batch."""
    random = np.random.default_rng(seed)
    return [random.zipf(1.3, 40) % 500 for _ in range(n)]


def slope(values: Any, target: float = 0.3) -> Any:
    """The gradient of a loss."""
    return (values - target) * np.arange(1, values.shape[-1] + 1, dtype=np.float32)


def loop(of: Any, ids: Any, step: str) -> None:
    """One step of a loop of somebody's own."""
    if step == "versions":
        values, versions = of.lookup(ids, versions=True)
        of.update(ids, slope(values), versions)
    else:
        of.update(ids, slope(of.lookup(ids)))


def updated(of: Any, ids: Any) -> RowUpdate:
    """What becomes of an update: of which the call may tell already, or who waits for it."""
    told = of.update(ids, np.ones((len(ids), DIM)))
    return RowUpdate(*map(operator.add, told, of.settle()))


def same(servers: Servers, local: dict[str, lsh.Table]) -> None:
    for name, table in local.items():
        ids = table.ids()
        np.testing.assert_array_equal(np.array(servers.values(name, ids)), table.lookup(ids))
        there = [set(each[name].ids()) for each in servers.tables if name in each]
        assert set.union(*there) == set(ids)


@pytest.mark.parametrize("count", [1, 2])
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("rule", RULES)
def test_one_loop_has_the_bits_of_tables_of_its_process(rule: str, size: str, count: int) -> None:
    rows, settings = SIZES[size]
    made = {"rule": RULES[rule](), "seed": 3, **settings}
    specs = pair(rows)
    servers = Servers(specs, count, **made)
    local = tables.of(specs, **made)
    with servers.open() as served:
        # (The second has other numbers of steps than the first.)
        for k, ids in enumerate(batches(12)):
            for name in ("a", "b") if k % 3 else ("a",):
                for of in (served[name], local[name]):
                    loop(of, ids, "versions" if k % 2 else "now")
        np.testing.assert_array_equal(
            served["a"].lookup(np.arange(500)), local["a"].lookup(np.arange(500))
        )
        served.settle()
        same(servers, local)
        told = served.counters
    assert told["pushes"] == 12 + 8
    assert told["settled"] == count * told["pushes"]
    assert told["lost"] == told["unsettled"] == told["not_finite"] == told["cuts"] == 0
    for name in local:
        steps = {each[name].statistics()["steps"] for each in servers.tables}
        assert steps == {local[name].statistics()["steps"]}


def test_whole_tables_are_asked_of_the_servers_that_have_them() -> None:
    specs = pair(100)
    servers = Servers(specs, 2, whole=True)
    with servers.open() as served:
        served["a"].update([1, 1, 2], np.ones((3, DIM)))
        served.settle()
        assert served.counters["settled"] == 1
    counted = [native.counters() for native in servers.natives]
    assert [each["clients"] for each in counted] == [1, 0]
    assert [each["apart"] for each in counted] == [1, 0]


def test_what_became_of_rows_is_told_by_later_calls() -> None:
    servers = Servers(pair(None), 2, max_bytes=1 << 20, admit_after=2)
    with servers.open() as served:
        table = served["a"]
        told = updated(table, [7, 8, 9])
        assert (told.unadmitted, told.applied) == (3, 0)
        assert updated(table, [7, 8, 9]).applied == 3


def test_staleness_counts_from_the_look_up() -> None:
    specs = pair(100)[:1]
    servers = Servers(specs, 1, rule=lsh.SGD(1.0), staleness=lsh.staleness.inverse())
    with servers.open(threads=1) as mine, servers.open() as others:
        _, versions = mine["a"].lookup([4], versions=True)
        for _ in range(3):
            others["a"].update([4], np.zeros((1, DIM)))
        others.settle()
        before = mine["a"].lookup([4])
        mine["a"].update([4], np.ones((1, DIM)), versions)
        np.testing.assert_allclose(mine["a"].lookup([4]), before - 0.25, rtol=1e-6)
        # A look-up of now is not stale.
        before = mine["a"].lookup([4])
        mine["a"].update([4], np.ones((1, DIM)))
        np.testing.assert_allclose(mine["a"].lookup([4]), before - 1, rtol=1e-6)


def test_rows_that_were_asked_for_ahead_are_without_what_came_between() -> None:
    servers = Servers(pair(100)[:1], 2, rule=lsh.SGD(1.0))
    with servers.open(look_ahead=2) as served:
        table = served["a"]
        first = table.lookup([1, 2])
        table.prefetch([1, 2])
        table.prefetch([3, 4])
        with pytest.raises(ValueError, match="look_ahead is 2, and 2 prefetched look-ups wait"):
            table.prefetch([5])
        table.update([1, 2], np.ones((2, DIM)))
        values, versions = table.lookup([1, 2], versions=True)
        np.testing.assert_array_equal(values, first)
        table.update([1, 2], np.ones((2, DIM)), versions)
        np.testing.assert_array_equal(table.lookup([1, 2]), (first - 1) - 1)
        before = served.counters["lookups"]
        table.lookup([3, 4], versions=True)
        assert served.counters["lookups"] == before


def test_a_client_keeps_no_more_look_ups_than_it_may() -> None:
    servers = Servers(pair(None)[:1], 1, max_bytes=1 << 20, evict="age")
    with servers.open() as served:
        table = served["a"]
        several = [table.lookup([k], versions=True)[1] for k in range(30)]
        told = [table.update([29], np.ones((1, DIM)), several[29])]
        looked_up = served.counters["lookups"]
        # Of the others nothing is kept: rows are looked up once more.
        told += [table.update([k], np.ones((1, DIM)), several[k]) for k in range(29)]
        assert served.counters["lookups"] == looked_up + 29
        told.append(table.settle())
        assert sum(each.applied for each in told) == 30
    assert servers.natives[0].counters()["expired"] == 0


def test_an_update_of_other_ids_than_were_looked_up_is_one_of_its_own() -> None:
    servers, rule = Servers(pair(50)[:1], 2, rule=lsh.Adam(0.1)), lsh.Adam(0.1)
    local = tables.of(pair(50)[:1], rule=rule, seed=3)["a"]
    with servers.open(look_ahead=1) as served:
        table = served["a"]
        steps: list[tuple[Any, Any]] = [
            ([1, 2, 3], [3, 2, 1]),  # in another order
            ([1, 2, 3], [1, 1, 3, 2, 2]),  # several times
            ([1, 2, 3], [1, 2]),  # fewer
            ([1, 2], [1, 2, 3]),  # more
            ([], [4]),
            ([4], []),
        ]
        for looked_up, updated in steps:
            gradients = slope(np.ones((len(updated), DIM), np.float32))
            _, versions = table.lookup(looked_up, versions=True)
            told = np.full(len(updated), versions[0] if len(versions) else 0, np.uint32)
            table.update(updated, gradients, told)
            local.update(updated, gradients)
            np.testing.assert_array_equal(table.lookup(np.arange(50)), local.lookup(np.arange(50)))
        # Of two look-ups at once.
        _, one = table.lookup([5, 6], versions=True)
        _, two = table.lookup([6, 7], versions=True)
        gradients = slope(np.ones((4, DIM), np.float32))
        table.update([5, 6, 6, 7], gradients, np.concatenate([one, two]))
        local.update([5, 6, 6, 7], gradients)
        np.testing.assert_array_equal(table.lookup(np.arange(50)), local.lookup(np.arange(50)))


BAD: list[tuple[Callable[[Any], Any], type[Exception], str]] = [
    (lambda t: t.lookup([0.5]), TypeError, "ids must be whole numbers, got dtype float64"),
    (lambda t: t.lookup([1, -1]), IndexError, r"ids\[1\] is -1, outside 0 to 99 of a"),
    (lambda t: t.lookup([[3], [100]]), IndexError, r"ids\[1, 0\] is 100, outside 0 to 99 of a"),
    (lambda t: t.prefetch([100]), IndexError, r"ids\[0\] is 100"),
    (lambda t: t.prefetch([1]), ValueError, "look_ahead is 0, and 0 prefetched look-ups wait"),
    (lambda t: t.update([100], np.ones((1, DIM))), IndexError, r"ids\[0\] is 100"),
    (lambda t: t.update([1], np.ones((1, 3))), ValueError, r"shape \(1, 6\), as ids have and dim"),
    (lambda t: t.update([1], np.ones(DIM)), ValueError, r"must have shape \(1, 6\)"),
    (
        lambda t: t.update([1, 2], [[0.0] * DIM, [0.0, np.nan, 0.0, 0.0, 0.0, 0.0]]),
        ValueError, r"gradients\[1, 1\] is nan; every value must be finite",
    ),
    (
        lambda t: t.update([1, 1], np.full((2, DIM), 3e38)),
        ValueError, "gradients of an id add up to what is not finite",
    ),
    (
        lambda t: t.update([1, 2], np.ones((2, DIM)), np.zeros(1, np.uint32)),
        ValueError, r"versions must be uint32 of shape \(2,\)",
    ),
]  # fmt: skip


@pytest.mark.parametrize("number", range(len(BAD)))
def test_bad_input_is_named_and_changes_nothing(number: int) -> None:
    call, kind, told = BAD[number]
    servers = Servers(pair(100)[:1], 2)
    with servers.open() as served:
        before = served["a"].lookup(np.arange(100))
        with pytest.raises(kind, match=told):
            call(served["a"])
        np.testing.assert_array_equal(served["a"].lookup(np.arange(100)), before)
        assert served.counters["pushes"] == 0
        assert updated(served["a"], [1]).applied == 1  # goes on


def test_a_table_that_there_is_not_is_told_with_those_that_there_are() -> None:
    assert callable(lsh.cluster.table)
    with pytest.raises(RuntimeError, match="no tables of embedding servers are open"):
        lsh.cluster.table("a")
    servers = Servers(pair(100), 1)
    with servers.open() as served:
        assert lsh.cluster.table("b") is served["b"]
        with pytest.raises(KeyError, match="there is no table 'c'; there are a, b"):
            lsh.cluster.table("c")
        with servers.open() as more:
            with pytest.raises(RuntimeError, match="tables of 2 runs are open; say of which"):
                lsh.cluster.table("a")
            assert lsh.cluster.table("a", more) is more["a"]
    with pytest.raises(RuntimeError, match="table a is closed; call within the with"):
        served["a"].lookup([1])
    with pytest.raises(RuntimeError, match="table b is closed"):
        served["b"].lookup([1])
    served.close()


def test_as_many_threads_use_a_table_as_may() -> None:
    servers = Servers(pair(100), 2, loops=2)
    with servers.open(threads=2) as served:
        table = served["a"]
        together = threading.Barrier(2)
        wrong: list[BaseException] = []

        def train(thread: int) -> None:
            try:
                together.wait()
                for ids in batches(30, thread):
                    loop(table, ids % 100, "versions")
                table.settle()
                together.wait()
            except BaseException as error:  # noqa: BLE001 (asserted below)
                wrong.append(error)
                together.abort()

        for _ in range(3):  # others take the places of those that have ended
            pool = [threading.Thread(target=train, args=(k,)) for k in range(2)]
            for each in pool:
                each.start()
            for each in pool:
                each.join()
            del each, pool
            gc.collect()
        assert wrong == []
        assert served.counters["settled"] == 3 * 2 * 30 * 2
        table.lookup([1])
        with_another = threading.Event()

        def hold() -> None:
            table.lookup([2])
            with_another.wait()

        def one_more() -> None:
            try:
                table.lookup([3])
            except RuntimeError as error:
                wrong.append(error)

        holding = threading.Thread(target=hold)
        holding.start()
        while served.counters["reads"] < 2:
            time.sleep(0.002)
        third = threading.Thread(target=one_more)
        third.start()
        third.join()
        with_another.set()
        holding.join()
    assert [str(error) for error in wrong] == [
        "table a is used by 2 threads already; give threads=3, or more, to Cluster.tables()"
    ]


def test_a_forked_child_is_told_that_the_table_is_its_parents() -> None:
    servers = Servers(pair(100), 1)
    with servers.open() as served:
        served["a"].lookup([1])
        reading, writing = os.pipe()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a fork of a process with threads
            child = os.fork()
        if child == 0:
            told = b"nothing"
            try:
                served["a"].lookup([1])
            except RuntimeError as error:
                told = str(error).encode()
            os.write(writing, told)
            served.close()  # changes nothing of the parent's
            os._exit(0)
        os.close(writing)
        with os.fdopen(reading, "rb") as stream:
            told = stream.read().decode()
        os.waitpid(child, 0)
        assert "is of the process that has joined the run, and this is a child" in told
        assert updated(served["a"], [1]).applied == 1


def waiting(served: ServedTables) -> Any:
    """Its session, which makes no connection from now on."""
    session: Any = served._session
    session.paused = True
    return session


def test_a_server_that_does_not_answer_is_named() -> None:
    servers = Servers(pair(100), 2)
    served = servers.open(patience=0.3)
    waiting(served)
    with pytest.raises(
        TimeoutError, match=r"table a: embedding server 0 \(it has not been reached\)"
    ):
        served["a"].lookup([1, 2])
    with pytest.raises(TimeoutError, match="allow it more patience"):
        served["a"].lookup([1, 2], versions=True)
    waiting(served).paused = False
    np.testing.assert_array_equal(served["a"].lookup([1]), np.array(servers.values("a", [1])))
    served.close()


def test_an_interrupt_ends_who_waits_and_the_loop_may_go_on() -> None:
    servers = Servers(pair(100), 2)
    with servers.open() as served:
        session = waiting(served)
        for versions in (False, True):

            def interrupt(counter: str = "lookups" if versions else "reads") -> None:
                while not served.counters[counter]:  # it waits once that is counted
                    time.sleep(0.002)
                signal.raise_signal(signal.SIGINT)

            thread = threading.Thread(target=interrupt)
            thread.start()
            with pytest.raises(KeyboardInterrupt):
                served["a"].lookup([1, 2], versions=versions)  # type: ignore[call-overload]
            thread.join()
        session.paused = False
        values, told = served["a"].lookup([1, 2], versions=True)
        served["a"].update([1, 2], slope(values), told)
        served["a"].settle()
        assert served.counters["settled"] == 2


def pushed_to_nobody(patience: float) -> ServedTables:
    """Tables of which an update is under way, whose servers are gone."""
    servers = Servers(pair(100), 2)
    served = servers.open(patience=patience)
    values, told = served["a"].lookup([1, 2], versions=True)
    waiting(served)
    servers.natives.clear()
    gc.collect()
    served["a"].update([1, 2], slope(values), told)
    return served


def test_who_closes_waits_for_what_is_under_way_and_counts_what_is_not_told() -> None:
    served = pushed_to_nobody(0.3)
    with pytest.raises(TimeoutError, match=r"table a: embedding server 0 \(.*; embedding server 1"):
        served.close()
    assert served.counters["unsettled"] == 2
    assert served.counters["settled"] == 0
    served.close()
    with pytest.raises(RuntimeError, match="table a is closed"):
        served["a"].settle()


def test_an_interrupt_ends_who_waits_to_close() -> None:
    served = pushed_to_nobody(1000.0)
    cuts = served.counters["cuts"]

    def interrupt() -> None:
        while served._is_open or served.counters["cuts"] < max(cuts, 2):
            time.sleep(0.002)
        signal.raise_signal(signal.SIGINT)

    thread = threading.Thread(target=interrupt)
    thread.start()
    with pytest.raises(KeyboardInterrupt):
        served.close()
    thread.join()
    assert served.counters["unsettled"] == 2


def test_other_threads_go_on_while_one_waits() -> None:
    """No call keeps the GIL."""
    servers = Servers(pair(100), 1)
    with servers.open() as served:
        session = waiting(served)
        done = threading.Event()

        def look() -> None:
            served["a"].lookup([1])
            done.set()

        thread = threading.Thread(target=look)
        thread.start()
        counted = sum(1 for _ in range(10**6))
        assert not done.is_set()
        session.paused = False
        thread.join()
        assert (counted, done.is_set()) == (10**6, True)


def test_a_run_that_is_over_is_told_of() -> None:
    servers = Servers(pair(100), 1)
    served = servers.open()
    served["a"].lookup([1])
    session: Any = served._session
    session.cut_short = "the master is away"
    session.rows.forsake()
    for call in (
        lambda: served["a"].lookup([1]),
        lambda: served["a"].lookup([1], versions=True),
        lambda: served["a"].update([1], np.ones((1, DIM))),
    ):
        with pytest.raises(ConnectionError, match="rows of table a are gone: the master is away"):
            call()
    served._close(finished=False)


def test_nothing_of_it_is_copied() -> None:
    import copy  # noqa: PLC0415
    import pickle  # noqa: PLC0415

    with Servers(pair(100), 1).open() as served:
        for f in (copy.deepcopy, pickle.dumps):
            with pytest.raises(TypeError, match="cannot be copied or pickled"):
                f(served["a"])
