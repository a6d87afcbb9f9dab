"""Processes that are started, die, are started again, and never outlive who started them.

The programs are small: they stand for roles, and import what a role imports for its tie.
"""

from __future__ import annotations

import itertools
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from leashed.cluster import children
from leashed.cluster import supervisor as supervisors
from leashed.cluster.supervisor import Supervisor, command, name_of, supervise

PATIENCE = 60.0  # seconds after which something that should happen does not


def until(condition, step=lambda: None):
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, "it did not happen"
        step()
        time.sleep(0.02)


def programs(**sources):
    """Processes by role: the source of each, to which its index is ``argv[1]``."""

    def of(role, index):
        return [sys.executable, "-c", sources[role.replace("-", "_")], str(index)]

    return of


def gone(pid):
    """Whether a process has ended (a zombie has)."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return True
    return state in "ZX"


SLEEPS = "import time; time.sleep(600)"


def test_those_that_end_with_0_are_not_started_again(tmp_path):
    each = programs(master="print('done')", trainer="import sys; print('trainer', sys.argv[1])")
    processes = [("master", 0), ("trainer", 0), ("trainer", 1)]
    with Supervisor(processes, each, tmp_path, restarts=5) as supervisor:
        assert set(supervisor.pids()) == {"master", "trainer-0", "trainer-1"}
        supervise(supervisor, PATIENCE, lambda: None)
        until(lambda: not supervisor.running("trainer"), supervisor.step)
    assert supervisor.counts() == {"master": 0, "trainer-0": 0, "trainer-1": 0}
    assert supervisor.deaths == []
    assert (tmp_path / "master.log").read_text() == "done\n"
    assert (tmp_path / "trainer-1.log").read_text() == "trainer 1\n"


def test_one_that_fails_is_started_again_as_often_as_allowed(tmp_path):
    fails = "import sys; print('here', flush=True); sys.exit(4)"
    with Supervisor([("trainer", 0)], programs(trainer=fails), tmp_path, restarts=2) as supervisor:
        until(lambda: not supervisor.running("trainer"), supervisor.step)
    assert (tmp_path / "trainer-0.log").read_text() == "here\n" * 3
    assert [(d.status, d.restarted) for d in supervisor.deaths] == [
        (4, True),
        (4, True),
        (4, False),
    ]
    assert supervisor.statuses("trainer") == [4]
    assert supervisor.counts() == {"trainer-0": 2}
    why = f"ended with status 4 after 2 restarts: here (see {tmp_path / 'trainer-0.log'})"
    assert supervisor.given_up() == {"trainer-0": why}


def test_one_that_cannot_be_started_again_for_now_is_tried_again(tmp_path, monkeypatch):
    told, plain, tries = [], subprocess.Popen, []

    def popen(*given, **named):
        tries.append(time.monotonic())
        if 1 < len(tries) < 7:  # more often than one that ends so is started again
            raise BlockingIOError(11, "Resource temporarily unavailable")
        return plain(*given, **named)

    monkeypatch.setattr(supervisors.subprocess, "Popen", popen)
    monkeypatch.setattr(supervisors, "_FIRST_DELAY", 0.001)
    dies = programs(trainer="import sys; sys.exit(4)")
    with Supervisor([("trainer", 0)], dies, tmp_path, 6, told.append) as supervisor:
        until(lambda: not supervisor.running("trainer"), supervisor.step)
    assert [each.status for each in supervisor.deaths] == [4, *[75] * 5, 4]
    assert "cannot be started: [Errno 11]" in told[1]
    assert supervisor.counts() == {"trainer-0": 6}


def test_one_that_cannot_be_started_at_all_is_an_error(tmp_path):
    with (
        pytest.raises(FileNotFoundError),
        Supervisor([("trainer", 0)], lambda *_: ["/no/such/program"], tmp_path, restarts=5),
    ):
        pass


def test_children_are_watched_on_where_one_cannot_be_started_again(tmp_path, monkeypatch):
    plain, tries = subprocess.Popen, []

    def popen(*given, **named):
        tries.append(1)
        if len(tries) == 2:
            raise OSError(12, "Cannot allocate memory")
        return plain(*given, **named)

    monkeypatch.setattr(supervisors.subprocess, "Popen", popen)
    dies = programs(trainer="import sys; sys.exit(4)")
    here = children.Children(tmp_path, dies, [], [("trainer", 0)])
    try:
        until(lambda: len(tries) > 2)
        assert here.died
    finally:
        here.end(0.0)


FAILS = """
import sys
from pathlib import Path
mark = Path(MARK)
if mark.exists():
    print("leashed: error: trainer-0: no room")
    print("bye")
    print("2026-01-01 00:00:00.000 INFO trainer-0 begins")
else:
    print("1 / 0", end="\\n\\n")
mark.touch()
print("2026-01-01 00:00:00.000 INFO trainer-0 begins")
sys.exit(75)
"""


@pytest.mark.process
def test_the_first_death_is_told_at_once_with_its_cause(tmp_path):
    """And each that is unlike the one before, and the last."""
    source = FAILS.replace("MARK", repr(str(tmp_path / "mark")))
    told = []
    trainer = programs(trainer=source)
    with Supervisor([("trainer", 0)], trainer, tmp_path, 3, told.append) as supervisor:
        until(lambda: supervisor.deaths, supervisor.step)
        log = tmp_path / "trainer-0.log"
        first = f"leashed: trainer-0 ended with status 75, and is started again: 1 / 0 (see {log})"
        assert told == [first]
        until(lambda: not supervisor.running("trainer"), supervisor.step)
    assert told[1:] == [
        f"leashed: trainer-0 ended with status 75, and is started again: no room (see {log})",
        f"leashed: trainer-0 ended with status 75 after 3 restarts: no room (see {log})",
    ]


@pytest.mark.process
def test_the_restarts_of_one_that_has_run_for_long_are_forgiven(tmp_path, monkeypatch):
    monkeypatch.setattr("leashed.cluster.supervisor._FORGIVEN", 0.0)
    monkeypatch.setattr("leashed.cluster.supervisor._LONGEST_DELAY", 0.01)
    times = f"import os, sys; sys.exit(len(os.listdir({str(tmp_path / 'died')!r})) < 4)"
    mark = f"import tempfile; tempfile.mkstemp(dir={str(tmp_path / 'died')!r}); "
    (tmp_path / "died").mkdir()
    each = programs(master=f"import sys; print(sys.argv); {mark}{times}")
    with Supervisor([("master", 0)], each, tmp_path, restarts=1) as supervisor:
        until(lambda: not supervisor.running("master"), supervisor.step)
    assert supervisor.statuses("master") == [0]
    assert supervisor.counts() == {"master": 3}


def test_one_that_fails_alike_as_soon_as_it_is_started_is_given_up(tmp_path, monkeypatch):
    """With its own words as the error; one that is killed is not."""
    monkeypatch.setattr("leashed.cluster.supervisor._SETTLED", PATIENCE)
    monkeypatch.setattr("leashed.cluster.supervisor._LONGEST_DELAY", 0.1)
    killed = "import os; os.kill(os.getpid(), 9)"
    each = programs(master="import sys; sys.exit('the port is taken')", sync_ps=killed)
    processes = [("master", 0), ("sync-ps", 0)]
    with Supervisor(processes, each, tmp_path, restarts=5, tell=lambda _: None) as supervisor:
        why = (
            r"the master ended with status 1 after 3 restarts: the port is taken \(see .*master.log"
        )
        with pytest.raises(ChildProcessError, match=why):
            supervise(supervisor, PATIENCE, lambda: None)
        until(lambda: not supervisor.running("sync-ps"), supervisor.step)
    assert supervisor.counts() == {"master": 3, "sync-ps-0": 5}


@pytest.mark.process
@pytest.mark.parametrize(("status", "died"), [(2, 1), (3, 0), (130, 0)])
def test_what_a_further_start_does_not_mend_is_not_started_again(status, died, tmp_path):
    each = programs(trainer=f"import sys; sys.exit({status})")
    with Supervisor([("trainer", 0)], each, tmp_path, restarts=5) as supervisor:
        until(lambda: not supervisor.running("trainer"), supervisor.step)
    assert [(d.status, d.restarted) for d in supervisor.deaths] == [(status, False)] * died
    assert supervisor.statuses("trainer") == [status]


@pytest.mark.process
@pytest.mark.parametrize("status", [3, 75])
def test_the_master_of_a_run_that_is_over_is_not_started_again(status, tmp_path):
    each = programs(master=f"import sys; sys.exit({status})", trainer="import sys; sys.exit(3)")
    with Supervisor([("master", 0), ("trainer", 0)], each, tmp_path, restarts=1) as supervisor:
        if status == 75:
            with pytest.raises(ChildProcessError, match="the master ended with status 75 after 1"):
                supervise(supervisor, PATIENCE, lambda: None)
        else:
            supervise(supervisor, PATIENCE, lambda: None)
    assert supervisor.counts()["master"] == (status == 75)
    assert supervisor.statuses("master") == [status]


@pytest.mark.process
def test_one_that_is_killed_is_started_again(tmp_path):
    with Supervisor([("sync-ps", 0)], programs(sync_ps=SLEEPS), tmp_path, restarts=9) as supervisor:
        killed = set()
        while len(killed) < 3:
            until(lambda: "sync-ps-0" in supervisor.pids(), supervisor.step)
            pid = supervisor.pids()["sync-ps-0"]
            assert pid not in killed
            os.kill(pid, signal.SIGKILL)
            killed.add(pid)
            until(lambda pid=pid: supervisor.pids().get("sync-ps-0") != pid, supervisor.step)
        assert [death.status for death in supervisor.deaths] == [-signal.SIGKILL] * 3
        until(lambda: "sync-ps-0" in supervisor.pids(), supervisor.step)
        last = supervisor.pids()["sync-ps-0"]
    assert gone(last)


@pytest.mark.process
def test_restarts_wait_longer_and_longer(tmp_path):
    program = programs(trainer="import sys; sys.exit(1)")
    with Supervisor([("trainer", 0)], program, tmp_path, restarts=3) as supervisor:
        until(lambda: not supervisor.running("trainer"), supervisor.step)
    times = [death.time for death in supervisor.deaths]
    waits = [later - earlier for earlier, later in itertools.pairwise(times)]
    for wait, least in zip(waits, (0.2, 0.4, 0.8), strict=True):
        assert wait > least  # never sooner, however fast the machine


def test_what_a_process_started_ends_with_it(tmp_path):
    source = (
        "import subprocess, sys, time\n"
        "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'])\n"
        "print(child.pid, flush=True)\n"
        "sys.exit(7)\n"
    )
    with Supervisor([("trainer", 0)], programs(trainer=source), tmp_path) as supervisor:
        until(lambda: not supervisor.running("trainer"), supervisor.step)
    pid = int((tmp_path / "trainer-0.log").read_text())
    until(lambda: gone(pid))


def test_those_that_ignore_sigterm_or_are_stopped_end_too(tmp_path):
    stubborn = (
        "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('up', flush=True)\n"
    )
    stubborn += SLEEPS
    programs_ = programs(trainer=stubborn, sync_ps=SLEEPS)
    with Supervisor([("trainer", 0), ("sync-ps", 0)], programs_, tmp_path) as supervisor:
        until(lambda: (tmp_path / "trainer-0.log").read_text() == "up\n")
        pids = supervisor.pids()
        os.kill(pids["sync-ps-0"], signal.SIGSTOP)
        supervisor.stop(patience=10.0)
        assert supervisor.statuses("trainer") == [-signal.SIGKILL]
        assert supervisor.statuses("sync-ps") == [-signal.SIGTERM]
    assert all(gone(pid) for pid in pids.values())


def test_a_master_that_keeps_dying_fails_the_run(tmp_path):
    each = programs(master="import os; os.kill(os.getpid(), 9)", trainer=SLEEPS)
    processes = [("master", 0), ("trainer", 0)]
    with (
        Supervisor(processes, each, tmp_path, restarts=1) as supervisor,
        pytest.raises(
            ChildProcessError, match=r"the master ended by SIGKILL after 1 .*master\.log"
        ),
    ):
        supervise(supervisor, 1.0, lambda: None)
    assert not supervisor.pids()


def test_a_run_without_trainers_fails(tmp_path):
    each = programs(master=SLEEPS, trainer="import sys; sys.exit(int(sys.argv[1]) + 4)")
    processes = [("master", 0), ("trainer", 0), ("trainer", 1)]
    with (
        Supervisor(processes, each, tmp_path) as supervisor,
        pytest.raises(ChildProcessError, match=r"the trainers ended with status [45]"),
    ):
        supervise(supervisor, 1.0, lambda: None)


def test_a_run_whose_policy_server_does_not_come_fails(tmp_path):
    each = programs(master=SLEEPS, trainer=SLEEPS, policy_ps="import sys; sys.exit(2)")
    processes = [("master", 0), ("policy-ps", 0), ("trainer", 0)]
    with (
        Supervisor(processes, each, tmp_path) as supervisor,
        pytest.raises(ChildProcessError, match="the policy server ended with status 2"),
    ):
        supervise(supervisor, 0.1, lambda: None)


def test_a_run_one_of_whose_policy_servers_does_not_come_fails(tmp_path):
    dies = "import sys, time\nif sys.argv[1] == '1': sys.exit(2)\ntime.sleep(600)"
    each = programs(master="import time; time.sleep(20)", trainer=SLEEPS, policy_ps=dies)
    processes = [("master", 0), ("policy-ps", 0), ("policy-ps", 1), ("trainer", 0)]
    with (
        Supervisor(processes, each, tmp_path) as supervisor,
        pytest.raises(ChildProcessError, match=r"^policy server 1 ended with status 2"),
    ):
        supervise(supervisor, 0.1, lambda: None)


def test_of_a_policy_server_that_died_for_good_the_master_is_to_say_so(tmp_path):
    waits = "import time; time.sleep(1)"  # as long as for one that is started again
    each = programs(master=waits, trainer=SLEEPS, policy_ps="import sys; sys.exit(2)")
    processes = [("master", 0), ("policy-ps", 0), ("trainer", 0)]
    with Supervisor(processes, each, tmp_path) as supervisor:
        supervise(supervisor, 0.1, lambda: None, PATIENCE)
        assert supervisor.statuses("master") == [0]


def test_the_others_have_a_moment_to_end_after_the_master(tmp_path):
    wait = "import pathlib, time\nwhile not pathlib.Path('{}').exists(): time.sleep(0.02)\n"
    mark, end = tmp_path / "mark", tmp_path / "end"
    each = programs(master=wait.format(mark), trainer=wait.format(end) + "print('whole')")
    looks = []

    def look():
        looks.append(1)
        mark.touch()

    with Supervisor([("master", 0), ("trainer", 0)], each, tmp_path) as supervisor:
        supervise(supervisor, 0.1, look)
        end.touch()
        supervisor.wait(PATIENCE)
    assert looks
    assert (tmp_path / "trainer-0.log").read_text() == "whole\n"
    assert supervisor.statuses("trainer") == [0]


WRITES = """
import pathlib, signal, time
folder = pathlib.Path('{folder}')
folder.mkdir()
while not pathlib.Path('{mark}').exists(): time.sleep(0.02)
signal.signal(signal.SIGTERM, signal.SIG_IGN)
for _ in range({times}):
    with pathlib.Path('{path}').open('a') as file: file.write('row')
    time.sleep(0.1)
{then}
print('saved')
"""


@pytest.mark.parametrize("how", ["the master has ended", "told to end"])
@pytest.mark.parametrize(
    ("saves", "file"),
    [
        (True, "rows-0/rows"),
        (True, ".policy-ps-0.npz.1.1"),
        (True, "policy-ps-0.snapshot-new"),
        (True, "policy-ps-0.snapshot.7-12ab"),
        (False, "rows-0/rows"),
    ],
)
def test_who_writes_what_it_had_has_the_time_that_it_takes(tmp_path, how, saves, file):
    """Twenty times as long as others have; but not where nothing more is written."""
    mark = tmp_path / "mark"
    given = {"folder": tmp_path / "rows-0", "mark": mark, "path": tmp_path / file}
    given |= {"times": 20, "then": ""} if saves else {"times": 1, "then": "time.sleep(600)"}
    each = programs(trainer=WRITES.format(**given), master="")
    with Supervisor([("trainer", 0), ("master", 0)], each, tmp_path) as supervisor:
        until((tmp_path / "rows-0").exists, supervisor.step)
        mark.touch()
        until((tmp_path / file).exists)
        if how == "the master has ended":
            supervise(supervisor, 0.5, lambda: None)
        supervisor.stop(0.5)
        assert supervisor.statuses("trainer") == [0 if saves else -signal.SIGKILL]


SUPERVISES = """
import sys, time
from pathlib import Path
from leashed.cluster.supervisor import Supervisor
child = "from leashed.cluster.supervisor import tie; tie(); print('tied', flush=True); import time; time.sleep(600)"
folder = Path(sys.argv[1])
each = lambda role, index: [sys.executable, "-c", child]
with Supervisor([("trainer", k) for k in range(3)], each, folder) as supervisor:
    while any((folder / f"{name}.log").read_text() != "tied\\n" for name in supervisor.pids()):
        time.sleep(0.02)
    print(*supervisor.pids().values(), flush=True)
    time.sleep(600)
"""


@pytest.mark.process
def test_nothing_is_left_when_the_supervisor_is_killed(tmp_path):
    supervisor = subprocess.Popen(
        [sys.executable, "-c", SUPERVISES, str(tmp_path)], stdout=subprocess.PIPE, text=True
    )
    with supervisor:
        pids = [int(word) for word in supervisor.stdout.readline().split()]
        assert len(pids) == 3
        os.kill(pids[1], signal.SIGSTOP)  # who is stopped must not stay behind either
        supervisor.kill()
    until(lambda: all(gone(pid) for pid in pids))


def test_one_whose_parent_is_gone_before_it_is_tied_ends():
    source = "from leashed.cluster.supervisor import tie; tie(); print('alive')"
    ended = subprocess.run(
        [sys.executable, "-c", source],
        env={**os.environ, "LEASHED_PARENT": "1"},  # not the parent it has
        capture_output=True,
        check=False,
    )
    assert ended.returncode == -signal.SIGKILL
    assert ended.stdout == b""


def test_who_is_started_by_hand_is_not_tied():
    source = "from leashed.cluster.supervisor import tie; tie(); print('alive')"
    env = {name: value for name, value in os.environ.items() if name != "LEASHED_PARENT"}
    ended = subprocess.run([sys.executable, "-c", source], env=env, capture_output=True, check=True)
    assert ended.stdout == b"alive\n"


def test_a_program_that_cannot_be_started_stops_the_others(tmp_path):
    def each(role, _):
        return [sys.executable, "-c", SLEEPS] if role == "master" else ["/no/such/program"]

    supervisor = Supervisor([("master", 0), ("trainer", 0)], each, tmp_path)
    with pytest.raises(FileNotFoundError), supervisor:
        pass
    assert not supervisor.pids()
    assert supervisor.statuses("master") == [-signal.SIGTERM]


def test_names_and_commands():
    assert [name_of("master", 0), name_of("sync-ps", 1)] == ["master", "sync-ps-1"]
    line = command(Path("/run/plan.toml"))("trainer", 3)
    assert line[1:] == [
        "-m",
        "leashed.cluster.role",
        "trainer",
        "--plan",
        "/run/plan.toml",
        "--index",
        "3",
    ]
