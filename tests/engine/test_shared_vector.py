"""A vector that processes share: what Python sees of it, and that nothing is left of it.

The protocol itself, with processes killed at every step, is tested in tests/cpp/vector.
"""

from __future__ import annotations

import contextlib
import gc
import os
import pickle
import re
import runpy
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import leashed as lsh
from leashed import SharedVector, cli, staleness
from leashed.engine import shared

ROOT = Path(__file__).parents[2]
RULES = [
    lsh.SGD(0.1, weight_decay=0.01, clip_norm=3.0),
    lsh.Momentum(lsh.schedules.warmup(lsh.schedules.cosine(0.05, total=100), steps=10)),
    lsh.Adam(0.01),
    lsh.SWAP(lsh.Adagrad(0.1), period=7),
]


@pytest.fixture
def name(request: pytest.FixtureRequest) -> Iterator[str]:
    """A name of which nothing must be left."""
    unique = f"{os.getpid()}.{re.sub('[^a-zA-Z0-9]', '-', request.node.name)}"[:150]
    yield unique
    gc.collect()
    wait_until(lambda: not path_of(unique).exists())


def path_of(name: str) -> Path:
    return Path("/dev/shm") / f"leashed.{name}"


def wait_until(holds: Callable[[], bool], seconds: float = 30.0) -> None:
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.002)


def python(code: str, *arguments: str, **options: Any) -> subprocess.Popen[str]:
    """A process of its own, which says "ready" when it is."""
    process = subprocess.Popen(
        [sys.executable, "-c", f"import leashed as lsh, numpy as np, sys\n{code}", *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        **options,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    return process


def end(process: subprocess.Popen[str]) -> None:
    process.kill()
    process.communicate()


TRAIN = """
vector = lsh.SharedVector.attach(sys.argv[1])
print("ready", flush=True)
while True:
    with vector.read() as theta:
        assert (theta == theta[0]).all()
    vector.push(np.ones(len(vector), np.float32))
"""


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: type(rule).__name__)
def test_every_participant_applies_the_rule_of_the_vector(rule: lsh.Rule, name: str) -> None:
    rng = np.random.default_rng(0)
    theta = rng.standard_normal(37).astype(np.float32)
    expected = lsh._core.RuleState(rule.choice(), theta)
    with SharedVector.create(name, theta, rule=rule) as a, SharedVector.attach(name) as b:
        assert a.config == b.config
        assert a.config["rule"] == rule.config()
        for step in range(40):
            gradient = rng.standard_normal(37).astype(np.float32)
            expected.update(gradient)
            update = (a, b)[step % 2].push(gradient)
            assert update.published
        state, t = b.state()
        assert t == a.t == b.t == 40
        assert len(state) == 1 + rule.state_vectors
        for k, vector in enumerate(state):
            np.testing.assert_array_equal(vector, expected.vector(k))


def test_hogwild_changes_the_vector_in_place(name: str) -> None:
    zeros = np.zeros(100, np.float32)
    rule = lsh.SGD(1.0)
    with SharedVector.create(name, zeros, rule=rule, discipline=lsh.Hogwild()) as vector:
        with vector.read() as theta:
            assert not theta.flags.writeable
            with SharedVector.attach(name) as other:
                assert other.push(-np.ones(100)).staleness == 0
            np.testing.assert_array_equal(theta, 1.0)
        assert vector.push(-np.ones(100)).staleness == 1
        assert vector.t == 2
        state, t = vector.state()
        np.testing.assert_array_equal(state, 2.0)
        assert t == 2
        del theta


def test_staleness_counts_from_the_last_read_and_damps(name: str) -> None:
    policy = staleness.from_function(lambda tau: 1.0 / (1.0 + tau), 8)
    with (
        SharedVector.create(name, np.zeros(3), rule=lsh.SGD(1.0), staleness=policy) as a,
        SharedVector.attach(name) as b,
    ):
        with b.read():
            a.push(np.zeros(3))
        assert b.push(np.full(3, -1.0)).staleness == 1
        np.testing.assert_array_equal(a.state()[0][0], 0.5)
        assert b.push(np.zeros(3), t_read=0).staleness == 2


def test_a_view_stays_as_it_was(name: str) -> None:
    vector = SharedVector.create(name, np.zeros(10), rule=lsh.SGD(1.0), participants=1)
    view = vector.read()
    with view as theta:
        pass
    assert view.t == 0
    for _ in range(20):
        vector.push(-np.ones(10))
    np.testing.assert_array_equal(theta, 0.0)
    with pytest.raises(ValueError, match="read-only"):
        theta[0] = 1.0
    assert vector.live == 2
    with vector.read() as second, pytest.raises(ValueError, match="too many views are alive"):
        vector.read().__enter__()
    vector.close()
    np.testing.assert_array_equal(theta, 0.0)  # the memory goes with the last view
    assert path_of(name).exists()
    np.testing.assert_array_equal(second, 20.0)
    del theta, second
    gc.collect()
    assert not path_of(name).exists()
    assert repr(vector).endswith("closed)")
    with pytest.raises(ValueError, match="closed; attach again"):
        vector.push(np.zeros(10))


def run(code: str, *arguments: str) -> str:
    """In a process of its own, which a defect could end."""
    done = subprocess.run(
        [sys.executable, "-X", "faulthandler", "-c", code, *arguments],
        check=False,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_closed_vector_refuses_to_be_read(name: str) -> None:
    code = """
import leashed as lsh, numpy as np, sys
vector = lsh.SharedVector.create(sys.argv[1], np.zeros(10))
view = vector.read()
vector.close()
for use in (view.__enter__, vector.state, lambda: vector.push(np.zeros(10)), lambda: vector.t,
            vector.reap):
    try:
        use()
    except ValueError as error:
        print(error)
vector.close()
"""
    assert run(code, name) == "this SharedVector is closed; attach again\n" * 5


@pytest.mark.parametrize("discipline", ["Leashed", "Hogwild"])
def test_one_may_close_it_while_others_use_it(discipline: str, name: str) -> None:
    code = """
import leashed as lsh, numpy as np, sys, threading, time
sys.setswitchinterval(1e-5)
name, discipline = sys.argv[1:]
d = 20_000  # long enough for the GIL to be given up
keeper = lsh.SharedVector.create(name, np.zeros(d), rule=lsh.SGD(1.0),
                                 discipline=getattr(lsh, discipline)())
errors = set()

def use(vector, what):
    kept = None
    try:
        while True:
            if what == "read":
                with vector.read() as theta:
                    assert (theta == theta[0]).all() or discipline == "Hogwild"
                    kept = theta
            elif what == "push":
                vector.push(np.ones(d, np.float32))
            elif what == "state":
                vector.state()
            else:
                vector.t, vector.live, vector.pids, len(vector), vector.reap()
    except ValueError as error:
        errors.add(str(error))
    if kept is not None:
        kept.sum()  # outlives the closing

for _ in range(40):
    vector = lsh.SharedVector.attach(name)
    threads = [threading.Thread(target=use, args=(vector, what))
               for what in ("read", "push", "state", "properties")]
    for thread in threads:
        thread.start()
    time.sleep(0.005)
    vector.close()
    for thread in threads:
        thread.join()
    del threads, vector
assert errors == {"this SharedVector is closed; attach again"}, errors
import gc, os
gc.collect()
assert keeper.pids == [os.getpid()], keeper.pids
assert keeper.live == 1
"""
    run(code, name, discipline)


def test_the_usual_loop_needs_two_views_at_most(name: str) -> None:
    """`theta` refers to the last view while the next is entered."""
    with SharedVector.create(name, np.zeros(10), participants=1) as vector:
        for _ in range(50):
            with vector.read() as theta:
                gradient = theta + 1
            vector.push(gradient)
        del theta
        assert vector.live == 1


def test_threads_that_attach_run_side_by_side(name: str) -> None:
    with SharedVector.create(name, np.zeros(1000), rule=lsh.SGD(1.0), participants=4) as vector:

        def train() -> None:
            with SharedVector.attach(name) as own:
                for _ in range(100):
                    own.push(-np.ones(1000))

        threads = [threading.Thread(target=train) for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert vector.t == 300
        np.testing.assert_array_equal(vector.state()[0][0], 300.0)
        assert vector.live == 1


def test_a_pickled_vector_attaches_where_it_arrives(name: str) -> None:
    with SharedVector.create(name, np.zeros(3)) as vector:
        other = pickle.loads(pickle.dumps(vector))
        assert len(vector.pids) == 2
        other.close()
        assert vector.pids == [os.getpid()]


@pytest.mark.process
def test_one_that_is_killed_neither_blocks_nor_corrupts(name: str) -> None:
    with SharedVector.create(name, np.zeros(5000), rule=lsh.SGD(1.0), participants=4) as vector:
        processes = [python(TRAIN, name) for _ in range(3)]
        end(processes[0])
        processes.append(python(TRAIN, name))  # takes the dead one's place
        for process in processes[1:]:
            then = vector.t
            wait_until(lambda then=then: vector.t > then + 20)  # type: ignore[misc]
            end(process)
        state, t = vector.state()
        np.testing.assert_array_equal(state, -t)
        vector.reap()
        assert vector.live == 1
        assert vector.pids == [os.getpid()]


@pytest.mark.process
def test_nothing_is_left_when_all_are_killed(name: str) -> None:
    creator = python(
        "v = lsh.SharedVector.create(sys.argv[1], np.zeros(10))\nprint('ready', flush=True)\n"
        "sys.stdin.read()",
        name,
    )
    others = [python(TRAIN, name) for _ in range(2)]
    for process in (creator, *others):
        assert path_of(name).exists()
        end(process)
    wait_until(lambda: not path_of(name).exists())


def test_a_process_that_ends_without_closing_leaves(name: str) -> None:
    code = "v = lsh.SharedVector.create(sys.argv[1], np.zeros(10)); print('ready', flush=True)"
    process = python(code, name)
    assert process.communicate() == ("", None)
    assert process.returncode == 0
    assert not path_of(name).exists()


@pytest.mark.process
def test_ctrl_c_of_the_creator_leaves_the_vector_to_the_others(name: str) -> None:
    creator = python(
        "v = lsh.SharedVector.create(sys.argv[1], np.zeros(10))\nprint('ready', flush=True)\n"
        "try:\n  sys.stdin.read()\nexcept KeyboardInterrupt:\n  pass",
        name,
    )
    with SharedVector.attach(name) as vector:
        creator.send_signal(signal.SIGINT)
        creator.communicate()
        vector.push(np.ones(10))
        assert vector.pids == [os.getpid()]
    assert not path_of(name).exists()


def without_janitor(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared, "_start_janitor", lambda _: None)


ORPHAN = """
from leashed import shared
shared._start_janitor = lambda _: None
v = lsh.SharedVector.create(sys.argv[1], np.zeros(10))
print("ready", flush=True)
sys.stdin.read()
"""


@pytest.mark.process
def test_what_a_killed_janitor_left_is_removed_by_the_next(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    end(python(ORPHAN, name))
    assert path_of(name).exists()
    with pytest.raises(ValueError, match=r"create it first \(all its participants were killed\)"):
        SharedVector.attach(name)
    assert not path_of(name).exists()

    end(python(ORPHAN, name))
    with SharedVector.create(name, np.zeros(3)) as vector:
        assert len(vector) == 3
        assert cli.main(["shm", "clean"]) == 0
        assert f"in use  {name}" in capsys.readouterr().out
        assert path_of(name).exists()

    end(python(ORPHAN, name))
    assert cli.main(["shm", "clean"]) == 0
    assert f"removed {name}" in capsys.readouterr().out


def test_a_janitor_leaves_a_name_that_is_another_vectors(name: str) -> None:
    janitor = Path(shared.__file__).with_name("_janitor.py")
    with SharedVector.create(name, np.zeros(3)):
        command = [sys.executable, "-I", "-S", str(janitor), str(path_of(name)), "1"]
        subprocess.run(command, check=True)
        time.sleep(0.05)
        assert path_of(name).exists()


def test_a_forked_child_attaches_itself(name: str) -> None:
    code = """
import os, sys
v = lsh.SharedVector.create(sys.argv[1], np.zeros(10), rule=lsh.SGD(1.0))
with v.read() as theta: pass
if os.fork() == 0:
    try:
        v.push(np.ones(10))
    except ValueError as error:
        assert "forked" in str(error), error
    try:
        with v.read(): pass
    except ValueError as error:
        assert "forked" in str(error), error
    del theta
    v.close()
    with lsh.SharedVector.attach(sys.argv[1]) as own:
        own.push(-np.ones(10))
    os._exit(0)
_, status = os.wait()
assert status == 0, status
assert (theta == 0).all()
v.push(-np.ones(10))
assert (v.state()[0] == 2).all()
assert v.pids == [os.getpid()]
print("ready", flush=True)
"""
    process = python(code, name)
    process.communicate()
    assert process.returncode == 0


EXECS = """
import os, sys
import leashed as lsh
name, times = sys.argv[1], int(sys.argv[2])
vector = lsh.SharedVector.attach(name)
theta = vector.read().__enter__()
if times:
    os.execv(sys.executable, [sys.executable, __file__, name, str(times - 1)])
assert len(vector.pids) == 2, vector.pids
print("ready", flush=True)
sys.stdin.readline()
os.execvp("sleep", ["sleep", "60"])
"""


@pytest.mark.process
def test_one_that_execs_gives_up_its_place(name: str, tmp_path: Path) -> None:
    """Also to itself, where it starts anew."""
    program = tmp_path / "execs.py"
    program.write_text(EXECS)
    with SharedVector.create(name, np.zeros(3), participants=2) as vector:
        process = subprocess.Popen(
            [sys.executable, program, name, "3"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        assert vector.pids == [os.getpid(), process.pid]
        process.stdin.write("\n")
        process.stdin.flush()
        wait_until(lambda: Path(f"/proc/{process.pid}/comm").read_text() == "sleep\n")
        assert vector.pids == [os.getpid()]
        with SharedVector.attach(name) as other:  # though the process goes on
            assert other.pids == [os.getpid()] * 2
        assert process.poll() is None
        end(process)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"name": 3}, TypeError, "name must be a str"),
        ({"name": "a/b"}, ValueError, "name must be 1 to 200 letters"),
        ({"name": ""}, ValueError, "name must be"),
        ({"theta": []}, ValueError, "theta must not be empty"),
        ({"theta": [np.nan]}, ValueError, r"theta\[0\]"),
        ({"rule": 0.1}, TypeError, "rule must be"),
        ({"discipline": lsh.Locked()}, TypeError, "a lock .* would wait for ever"),
        ({"discipline": lsh.Synchronous()}, TypeError, "must be Leashed.. or Hogwild"),
        ({"staleness": 1}, TypeError, "staleness must come from"),
        ({"participants": 0}, ValueError, "participants must be at least 1"),
        ({"participants": 10**6}, ValueError, "participants must be at most 4096"),
        ({"theta": np.zeros(10**6), "participants": 4096}, ValueError, "fewer participants"),
    ],
)
def test_wrong_arguments_are_told_before_anything_is_made(
    arguments: dict[str, Any], error: type[Exception], message: str, name: str
) -> None:
    free = os.statvfs("/dev/shm")
    if "fewer" in message and free.f_blocks * free.f_frsize > 60e9:
        pytest.skip("there is room for everything here")
    given = {"name": name, "theta": np.zeros(3), **arguments}
    with pytest.raises(error, match=message):
        SharedVector.create(**given)
    assert not path_of(name).exists()


def test_names_that_are_missing_or_taken(name: str) -> None:
    with pytest.raises(ValueError, match=rf"no shared memory .*{name}; create it first"):
        SharedVector.attach(name)
    with SharedVector.create(name, np.zeros(3), participants=2) as vector:
        with pytest.raises(ValueError, match="exists already and is in use; attach"):
            SharedVector.create(name, np.zeros(3))
        other = SharedVector.attach(name)
        with pytest.raises(ValueError, match="all 2 participants have their seats"):
            SharedVector.attach(name)
        other.close()
        SharedVector.attach(name).close()
        assert vector.pids == [os.getpid()]


def test_wrong_gradients_change_nothing(name: str) -> None:
    with SharedVector.create(name, np.zeros(3)) as vector:
        for gradient, error in [
            (np.zeros(4), ValueError),
            (np.zeros((3, 1)), ValueError),
            ([0.0, np.nan, 0.0], ValueError),
            (["a", "b", "c"], TypeError),
            (np.zeros(3, complex), TypeError),
        ]:
            with pytest.raises(error, match="gradient"):
                vector.push(gradient)
        with pytest.raises(ValueError, match="t_read must be at most 0"):
            vector.push(np.zeros(3), t_read=1)
        assert vector.t == 0


def test_something_else_under_the_name_is_refused(name: str) -> None:
    path = path_of(name)
    with path.open("w+b") as file:
        import fcntl  # noqa: PLC0415 (of Unix)

        fcntl.flock(file, fcntl.LOCK_SH)  # in use by another program
        for content, message in [(b"", "truncated"), (b"x" * 4096, "no leashed vector")]:
            path.write_bytes(content)
            with pytest.raises(ValueError, match=message):
                SharedVector.attach(name)
            with pytest.raises(ValueError, match="exists already"):
                SharedVector.create(name, np.zeros(3))
    with contextlib.suppress(FileNotFoundError):
        path.unlink()


def test_a_damaged_description_is_refused(name: str) -> None:
    with SharedVector.create(name, np.zeros(3), participants=2) as vector:
        whole = path_of(name).read_bytes()
        for text, damage in (
            (b'{"version"', b"\xff\xfe"),
            (b'{"version"', b'{"virsion"'),
            (b'{"version"', b"[1, 2, 3]"),
            (b'"config"', b'"canfig"'),
            (b'"dimension"', b'"dimansion"'),
        ):
            at = whole.index(text)
            with path_of(name).open("r+b") as file:
                file.seek(at)
                file.write(damage)
                file.flush()
                with pytest.raises(ValueError, match=rf"{name} is damaged"):
                    SharedVector.attach(name)
                file.seek(at)
                file.write(whole[at : at + len(damage)])
        SharedVector.attach(name).close()
        assert vector.pids == [os.getpid()]


def test_the_description_of_another_release_is_told_as_that(name: str) -> None:
    with SharedVector.create(name, np.zeros(3), participants=2):
        whole = path_of(name).read_bytes()
        with path_of(name).open("r+b") as file:
            # Which has other names for what lies in it.
            for text, other in (
                (b'"version": 1', b'"version": 2'),
                (b'"dimension"', b'"dimansion"'),
            ):
                file.seek(whole.index(text))
                file.write(other)
            file.flush()
            with pytest.raises(ValueError, match="has description version 2, this release shares"):
                SharedVector.attach(name)


@pytest.mark.process
def test_the_example_runs() -> None:
    with subprocess.Popen(
        [sys.executable, ROOT / "examples" / "four_processes.py", "4", "0.5"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as example:
        told, errors = example.communicate()
    found = re.search(r"4 processes, (\d+) updates: loss .* → ([\d.]+)", told)
    assert found, told
    assert int(found[1]) > 0
    assert (example.returncode, errors) == (0, "")
    assert not path_of(f"example.{example.pid}").exists()


@pytest.mark.parametrize("size", [1e3, 1e30])
def test_the_example_computes_with_sure_predictions(size: float) -> None:
    """Its classes can be told apart, so theta grows for as long as it trains."""
    four_processes = runpy.run_path(str(ROOT / "examples" / "four_processes.py"))
    x, y = four_processes["examples"](0, 100)
    theta = np.full(x.shape[1], size, np.float32)
    loss, gradient = four_processes["loss_and_gradient"](theta, x, y)  # warnings are errors
    assert np.isfinite(loss)
    assert np.isfinite(gradient).all()
    score = x.astype(np.float64) @ theta
    np.testing.assert_allclose(gradient, x.T @ ((score > 0) - y) / len(y), rtol=1e-4, atol=1e-6)


@pytest.mark.process
def test_kill_minus_9_at_random_moments() -> None:
    """``python tests/shared_kills.py 200`` for more."""
    done = subprocess.run(
        [sys.executable, ROOT / "tests" / "shared_kills.py", "20"],
        check=False,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
