"""Tables in forked children: a copy to use where nobody used the table at the fork, and else an error
that says so; never one that hangs, whatever the parent's threads are at. Each in a process of its
own, whose children have a deadline.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.process

HEAD = """
import os, signal, sys, threading, time, warnings
from pathlib import Path
import numpy as np
import leashed as lsh

warnings.simplefilter("ignore")  # forks of a process with threads
folder = Path(sys.argv[1])
ids = np.arange(1, 101)
ones = np.ones((100, 4), np.float32)

def made(**settings):
    return lsh.Table(dim=4, init=lsh.tables.zeros(), rule=lsh.SGD(1.0), **settings)

KINDS = ({"rows": 2_000_000}, {"max_bytes": 2**18, "evict": "age"})

def child_of(work, ends=sys.exit):
    '''What work returns in a child, whose end is Python's own, so that tables go.'''
    child = os.fork()
    if child == 0:
        signal.alarm(120)
        ends(work())
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])

def is_refused(call, *arguments):
    try:
        call(*arguments)
    except ValueError as error:
        assert "forked" in str(error) and "spawn" in str(error), error
        return True
    return False

def works(table):
    '''All that a table does, in new rows and in old ones.'''
    np.testing.assert_array_equal(table.lookup(ids), -ones)
    assert table.update(ids, ones).applied == 100
    np.testing.assert_array_equal(table.lookup(ids), -2 * ones)
    if table.rows is None:
        for first in range(10**9, 10**9 + 20_000, 100):
            assert table.update(np.arange(first, first + 100), ones).applied == 100
    path = folder / str(os.getpid())
    table.save_tracked(path)
    table.save_changes(f"{path}.changes")
    table.load(path, [f"{path}.changes"])
    return 0
"""


def run(program: str, folder: Path) -> str:
    ended = subprocess.run(
        [sys.executable, "-c", HEAD + program, str(folder)],
        check=False,
        capture_output=True,
        text=True,
        timeout=500,
    )
    assert (ended.stderr, ended.returncode) == ("", 0)
    return ended.stdout


def test_children_of_an_idle_process_have_tables_of_their_own(tmp_path: Path) -> None:
    run(
        """
def in_both(table):
    assert child_of(lambda: works(table)) == 0  # a second fork, before the table is used
    return works(table)

for kind in KINDS:
    table = made(**kind)
    helper = threading.Thread(target=table.update, args=(ids, ones))
    helper.start()
    helper.join()
    told = table.statistics()
    assert child_of(lambda: works(table)) == 0
    assert child_of(lambda: in_both(table)) == 0
    np.testing.assert_array_equal(table.lookup(ids), -ones)
    assert table.statistics() == told
    works(table)
""",
        tmp_path,
    )


def test_a_model_that_was_loaded_predicts_in_children(tmp_path: Path) -> None:
    run(
        """
data = lsh.datasets.synthetic_clicks(500, seed=1, test=500, cardinalities=1000)
model = lsh.models.dlrm(1000)
result = lsh.train(model, data, rule=lsh.Adagrad(0.02), threads=2, until=lsh.until(updates=20))
wanted = model.predict(result.parameters, data.test, result.tables)

def predicts():
    np.testing.assert_array_equal(model.predict(result.parameters, data.test, result.tables), wanted)
    lsh.train(model, data, threads=2, init=lsh.Init(tables=result.tables), until=lsh.until(updates=5))
    return 0

for _ in range(3):
    assert child_of(predicts) == 0
np.testing.assert_array_equal(model.predict(result.parameters, data.test, result.tables), wanted)
""",
        tmp_path,
    )


def test_a_table_that_a_training_has_is_refused_in_children(tmp_path: Path) -> None:
    """Forked by a callback, while its threads go on."""
    run(
        """
data = lsh.datasets.synthetic_clicks(500, seed=1, test=500, cardinalities=1000)
model = lsh.models.dlrm(1000)
tables = lsh.tables.of(model.tables)
ended = []

def looks():
    return 3 if all(is_refused(table.lookup, [1]) for table in tables.values()) else 1

def progress(_):
    ended.append(child_of(looks, os._exit))

lsh.train(
    model, data, init=lsh.Init(tables=tables), threads=2, until=lsh.until(updates=20), observe=progress
)
assert ended and set(ended) == {3}, ended
assert child_of(lambda: len(tables["c0"].lookup([1]))) == 1
""",
        tmp_path,
    )


def test_no_child_hangs_whatever_threads_do_with_a_table(tmp_path: Path) -> None:
    run(
        """
def tries(table):
    '''3: refused, always; else it works.'''
    if is_refused(table.lookup, ids):
        for call in (table.statistics, table.ids, table.save_changes, table.native.tracks):
            if call != table.ids or table.rows is None:
                assert is_refused(call, *([folder / "none"] if call == table.save_changes else []))
        return 3
    table.statistics()
    for first in range(10**9, 10**9 + 2000, 100):
        table.update(np.arange(first, first + 100) % (table.rows or 2**62), ones)
    table.save_tracked(folder / str(os.getpid()))
    return 0

def updates(table, stop, number):
    first = 10**7 * number
    while not stop.is_set():
        some = np.arange(first, first + 2000) % (table.rows or 2**62)
        table.update(some, np.ones((2000, 4), np.float32))
        table.lookup(some[:100])
        first += 2000

def saves(table, stop, number):
    while not stop.is_set():
        table.save_tracked(folder / f"rows{number}")
        table.save_changes(folder / f"changes{number}")
        table.statistics()

for kind in KINDS:
    table = made(**(kind | ({"rows": 20_000} if "rows" in kind else {})))
    for work in (updates, saves):
        table.update(ids, ones)
        stop = threading.Event()
        threads = [threading.Thread(target=work, args=(table, stop, k)) for k in range(3)]
        for thread in threads:
            thread.start()
        found = [child_of(lambda: tries(table)) for _ in range(15)]
        stop.set()
        for thread in threads:
            thread.join()
        assert set(found) <= {0, 3}, found
    assert table.update(ids, ones).applied == 100
    assert child_of(lambda: tries(table)) == 0
""",
        tmp_path,
    )


def test_a_handler_forks_within_a_call(tmp_path: Path) -> None:
    """The child has the table within the handler, and goes on with the call behind it."""
    run(
        """
parent = os.getpid()
many = np.arange(10_000_000) % 1000
for kind in KINDS:
    table = made(**kind)
    table.update(ids, ones)
    ended = []

    def reads():
        np.testing.assert_array_equal(table.lookup(ids), -ones)
        return 0

    def forks(*_):
        ended.append(child_of(reads))
        child = os.fork()
        if child == 0:
            signal.alarm(120)
        else:
            ended.append(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))

    signal.signal(signal.SIGVTALRM, forks)
    signal.signal(signal.SIGALRM, lambda *_: None)
    gradients = np.ones((len(many), 4), np.float32)
    # Of what this process computes, and so within the update; of which a child has none.
    signal.setitimer(signal.ITIMER_VIRTUAL, 0.02)
    table.update(many, gradients)
    np.testing.assert_array_equal(table.lookup(ids), -10_001 * ones)
    if os.getpid() != parent:
        os._exit(0)
    assert ended == [0, 0], ended
""",
        tmp_path,
    )


def test_a_handler_forks_within_a_prediction_or_an_evaluation_on_one_thread(tmp_path: Path) -> None:
    run(
        """
data = lsh.datasets.synthetic_clicks(500, seed=1, test=100_000, cardinalities=1000)
model = lsh.models.dlrm(1000)
result = lsh.train(model, data, rule=lsh.Adagrad(0.02), threads=1, until=lsh.until(updates=5))
tables = result.tables
parent = os.getpid()

def forks(*_):
    child = os.fork()
    if child == 0:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(120)
        tables["c0"].lookup([1])
    else:
        ended.append(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))

def predict():
    return model.predict(result.parameters, data.test, tables)

def evaluate():
    return model.evaluate(result.parameters, data.test, tables, threads=1)

for work, seconds in ((w, s) for w in (predict, evaluate) for s in (0.02, 0.04, 0.06)):
    wanted = work()
    ended = []
    signal.signal(signal.SIGALRM, forks)
    signal.setitimer(signal.ITIMER_REAL, seconds)  # of which a child has none
    np.testing.assert_array_equal(work(), wanted)
    if os.getpid() != parent:
        tables["c0"].lookup([1])
        assert tables["c0"].update([1], np.ones((1, tables["c0"].dim), np.float32)).applied == 1
        os._exit(0)
    signal.setitimer(signal.ITIMER_REAL, 0)
    assert set(ended) <= {0}, ended
""",
        tmp_path,
    )
