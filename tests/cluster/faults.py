"""Runs of a cluster in which processes are killed and stopped at random moments.

    python tests/cluster/faults.py [--faults 200] [--seed 0] [--only ma:background] [--acceptance 60]

Each run: a master, two sync servers and three trainers on loopback, started and restarted by the
``Supervisor``, and faults until it ends: kill -9, or SIGSTOP for a while and SIGCONT, of any of them.
Then (``check``) it has ended by itself and in time, every batch is complete, every trainer that
finished has handed in parameters, with which the loss has fallen where it had the time, the report
tells of whoever died and came back, nobody stood still for longer than is stated, and nothing is left.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import json
import math
import os
import random
import shutil
import signal
import socket
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import cycle
from pathlib import Path
from types import MappingProxyType
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from cluster import written
from cluster.processes import pids

from leashed.cluster import opening, outcome
from leashed.cluster import plan as plans
from leashed.cluster.journal import read as read_journal
from leashed.cluster.measures import counted
from leashed.cluster.supervisor import Supervisor, command, name_of, supervise

BEAT, TIMEOUT, GRACE = 0.1, 1.0, 3.0
WITHIN = 90.0  # seconds after the last fault, or the last batch behind it, in which a run ends
# Seconds without a batch, beside those of faults: a stopped one is found out and the ring made anew
# (some timeouts), a restarted master is come back to, a killed trainer has started again. On a
# machine of which others take the most.
STILL = 120.0
LATE = 120.0  # seconds in which the master has noticed who died
ENOUGH = 300  # batches, after which the loss has fallen whatever a trainer began with
MOST_DESCRIPTORS, MOST_THREADS = 48, 32
# Of Gloo, the group of the first of three members has up to 19. One that is changed over from is
# there until the next is; one whose round has broken, until its operation's time is over.
MOST_OF_GROUPS = 3 * 20
SETTINGS = [
    (kind, when) for when in ("background", {"iterations": 5}) for kind in ("easgd", "ma", "bmuf")
]
WHO = ["master", "sync-ps-0", "sync-ps-1", "trainer-0", "trainer-1", "trainer-2"]

_LIBC = ctypes.CDLL(None, use_errno=True)
_PIDFD_GETFD = 438  # of Linux, on every machine


@dataclass
class Fault:
    """One that was injected: when (since 1970), to whom, and for how long it stood still; None: it
    was killed. ``after``: who has come back before. ``cuts``: it goes on, and loses a connection.
    """

    name: str
    seconds: float | None
    after: str = ""
    time: float = 0.0
    pid: int = 0
    cuts: bool = False

    def __str__(self) -> str:
        if self.cuts:
            return f"{self.name} cut off"
        how = "killed" if self.seconds is None else f"stopped for {self.seconds:.2f} s"
        return f"{self.name} {how}"

    @property
    def over(self) -> float:
        return self.time + (self.seconds or 0.0)


def at_random(
    rng: random.Random, mean: float, who: Sequence[str] = WHO
) -> Iterator[tuple[float, Fault]]:
    """Faults without end, each with the seconds after the one before. Roles come equally often, and
    of a role each of its processes. Half of those that are stopped are taken for dead. Most runs have
    their first fault once they train (a negative time: so long after the first lease, as of ``trains``).
    """
    after = rng.uniform(0.0, 4.0) * (1 if rng.random() < 0.2 else -1)
    roles = sorted({name.rstrip("-0123456789") for name in who})
    while True:
        role = rng.choice(roles)
        name = rng.choice([name for name in who if name.startswith(role)])
        seconds = None
        if rng.random() < 0.5:
            longer = rng.random() < 0.5
            seconds = (
                rng.uniform(1.5, 2.5) * TIMEOUT if longer else rng.uniform(0.02, 0.7) * TIMEOUT
            )
        yield after, Fault(name, seconds)
        after = rng.expovariate(1 / mean)


def cut(pid: int) -> None:
    """Ends one of the connections of a process, as a network does that fails; none where it has none."""
    process = os.pidfd_open(pid)
    try:
        found = []
        for each in Path(f"/proc/{pid}/fd").iterdir():
            with contextlib.suppress(OSError):  # it is closed meanwhile
                if str(each.readlink()).startswith("socket:"):
                    found.append(int(each.name))
        for number in random.sample(found, len(found)):
            if (there := _LIBC.syscall(_PIDFD_GETFD, process, number, 0)) < 0:
                continue
            with socket.socket(fileno=there) as link, contextlib.suppress(OSError):
                link.getpeername()
                link.shutdown(socket.SHUT_RDWR)
                return
    finally:
        os.close(process)


@dataclass
class Injector:
    """Looks after a run: injects faults when they are due, and watches the report and processes."""

    supervisor: Supervisor
    folder: Path
    planned: Iterator[tuple[float, Fault]]
    injected: list[Fault] = field(default_factory=list)
    still: list[tuple[float, float]] = field(default_factory=list)  # from, to: without a batch
    descriptors: dict[str, int] = field(default_factory=dict)
    threads: dict[str, int] = field(default_factory=dict)
    trains: Callable[[Path, str], bool] | None = None

    def __post_init__(self) -> None:
        self._started = self._moved = self._grew = time.time()
        self._complete = 0
        self._back: set[str] = set()
        self._next = next(self.planned, None)
        self._due = self._started + abs(self._next[0]) if self._next else 0.0
        self._waits = self._next is not None and self._next[0] < 0
        self._looked = 0.0

    def __call__(self) -> None:
        """To be called again and again."""
        now = time.time()
        for fault in self.injected:
            if fault.seconds is not None and fault.pid and now >= fault.over:
                if self.supervisor.pids().get(fault.name) == fault.pid:
                    os.kill(fault.pid, signal.SIGCONT)
                fault.pid = 0
        begun = self.trains or trains
        if self._waits and self._next and begun(self.folder, self._next[1].name):
            self._waits, self._due = False, now + self._due - self._started
        if self._next and now >= self._due and not self._waits and self._may(self._next[1]):
            self._inject(self._next[1], now)
        if now >= self._looked + 0.25:
            self._looked = now
            self._look(now)
        last = max([self._grew, *(fault.over for fault in self.injected)])
        if now > last + WITHIN:
            raise TimeoutError(f"it has not ended {WITHIN:g} s after the last fault and batch")

    def _may(self, fault: Fault) -> bool:
        return not fault.after or fault.after in self._back

    def _inject(self, fault: Fault, now: float) -> None:
        stopped = any(f.name == fault.name and f.pid and f.seconds for f in self.injected)
        pid = self.supervisor.pids().get(fault.name)
        if pid is None or (stopped and fault.seconds is not None):
            self._due = now + 0.05  # it is dead, or stopped already
            return
        if fault.cuts:
            cut(pid)
        else:
            os.kill(pid, signal.SIGKILL if fault.seconds is None else signal.SIGSTOP)
        fault.time, fault.pid = now, pid
        self.injected.append(fault)
        self._next = next(self.planned, None)
        self._due = now + (self._next[0] if self._next else 0.0)

    def _look(self, now: float) -> None:
        for name, pid in self.supervisor.pids().items():
            for found, folder in ((self.descriptors, "fd"), (self.threads, "task")):
                try:
                    count = len(list(Path(f"/proc/{pid}/{folder}").iterdir()))
                except OSError:
                    continue
                found[name] = max(found.get(name, 0), count)
        try:
            report = outcome.read_report(self.folder) or {"ledger": {"complete": 0}, "members": []}
        except ValueError:
            return
        ledger = report["ledger"]
        # The members in their order: who was there before was gone in between.
        seen: set[str] = set()
        for name, gone in ((f"{m['role']}-{m['index']}", m["gone"]) for m in report["members"]):
            if name in seen and gone is None:
                self._back.add(name)
            seen.add(name)
        grew = ledger["complete"] != self._complete
        if grew:
            self._grew = now
        if grew or ledger["complete"] == ledger.get("total"):
            self.still.append((self._moved, now))
            self._complete, self._moved = ledger["complete"], now


def trains(folder: Path, name: str) -> bool:
    """Whether a lease is complete, and that process, if it is a trainer, has one that is not: by the master's
    journal, as its report is up to a second older, in which a fast machine trains thousands of batches.
    """
    if (found := read_journal(folder / "journal.jsonl")) is None or not found[1].ledger.complete:
        return False
    state = found[1]
    held = {lease.member for lease in state.ledger.held.values()}
    return not name.startswith("trainer") or any(
        name_of(each.role, each.index) == name and each.id in held
        for each in state.membership.members.values()
    )


@dataclass
class Played:
    """A run that has ended."""

    folder: Path
    plan: plans.Plan
    seconds: float
    report: dict[str, Any]
    began: float  # since 1970
    injector: Injector


def make_plan(
    folder: Path,
    kind: str,
    when: Any,
    *,
    epochs: float = 60.0,
    trainers: int = 3,
    train: Mapping[str, Any] = MappingProxyType({}),
    **cluster: Any,
) -> plans.Plan:
    """Of a run in that folder, which is made, with its key, and the data beside it; ``train``: what is
    trained otherwise than a network on digits.
    """
    folder.mkdir(parents=True)
    opening.make_key(folder / "key")
    sync = plans.Sync(kind=kind, when=when)
    servers = 2 * plans.servers_of(sync)
    limits = {
        "beat": BEAT, "timeout": TIMEOUT, "grace": GRACE, "restarts": 1000, "sync_ps": servers,
    }  # fmt: skip
    plan = plans.Plan(
        plans.Cluster(trainers=trainers, run=folder, **{**limits, **cluster}),
        sync,
        plans.Train(
            **{
                "data": None if train else str(written.digits(folder.parent / "digits")),
                "epochs": epochs,
                "batch_size": 32,
                "lr": 0.02,
                **train,
            }
        ),
    )
    plans.write(folder / "plan.toml", plan)
    return plan


def clicks(folder: Path, **given: Any) -> dict[str, Any]:
    """A model of clicks to train, on a file in that folder."""
    data, schema = written.clicks(folder)
    return {
        "model": "dlrm", "data": str(data), "schema": str(schema), "table_mib": 1.0, "dim": 4,
        "rule": "adagrad", "lr": 0.05, **given,
    }  # fmt: skip


def play(
    plan: plans.Plan,
    planned: Iterable[tuple[float, Fault]],
    begun: Callable[[Path, str], bool] | None = None,
) -> Played:
    """A run with these faults, to its end. Raises TimeoutError where it does not come. ``begun``: as ``trains``,
    in its place.
    """
    folder = plan.cluster.run
    start = time.monotonic()
    of = command(folder / "plan.toml")
    supervisor = Supervisor(plan.cluster.processes(), of, folder, plan.cluster.restarts)
    with supervisor:
        injector = Injector(supervisor, folder, iter(planned), trains=begun)
        supervise(supervisor, plan.cluster.timeout, injector)
    seconds = time.monotonic() - start
    report = outcome.read_report(folder)
    found = read_journal(folder / "journal.jsonl")
    assert report is not None
    assert found is not None
    return Played(folder, plan, seconds, report, found[0].at, injector)


def check(played: Played) -> None:
    """That the end is as it should be. AssertionError says what is not."""
    report, plan = played.report, played.plan
    assert report["state"] == "ended", report["state"]
    check_ledger(report)
    _check_results(played)
    check_members(played)
    check_standstill(played)
    injector = played.injector
    descriptors = MOST_DESCRIPTORS + MOST_OF_GROUPS * (plan.cluster.backend == "gloo")
    for what, found, most in (
        ("descriptors", injector.descriptors, descriptors),
        ("threads", injector.threads, MOST_THREADS),
    ):
        assert max(found.values()) <= most, f"{what}: {found}"
    left = pids(plan.cluster.run)
    assert not left, f"processes are left: {left}"


def check_ledger(report: dict[str, Any]) -> None:
    ledger = report["ledger"]
    assert ledger["complete"] == ledger["total"], ledger
    assert ledger["outstanding"] == ledger["free"] == 0, ledger
    assert ledger["late"] <= ledger["granted"], ledger
    trained = sum(each.get("batches_used", 0.0) for each in counted(report, "trainer").values())
    # What trainers have told, over all their lives, is all, and more by what was trained twice, at
    # most; it may be less by what those had told who died while there was no master.
    killed = any(not m["finished"] for m in report["members"] if m["role"] == "trainer")
    if not killed:
        assert trained == ledger["total"], (trained, ledger)
        assert ledger["again"] == 0, ledger
    # (Where all trainers were dead at once, which have the parameters, the run went back.)
    assert trained <= ledger["total"] + ledger["again"] + ledger["lost"], (trained, ledger)


def _check_results(played: Played) -> None:
    report, plan = played.report, played.plan
    model, _, test = plan.train.problem()
    before = model.evaluate(model.init(plan.train.seed), test)[0]
    found = outcome.replicas(played.folder, report["run"], model.dimension)
    finished = [m["index"] for m in report["members"] if m["role"] == "trainer" and m["finished"]]
    for index in finished:
        counted = report["summaries"][f"trainer-{index}"]
        if index not in found:
            assert counted["batches_used"] == 0, f"trainer {index} gave nothing"
    assert found, "no trainer has handed in anything"
    after = {index: model.evaluate(each.parameters, test)[0] for index, each in found.items()}
    for index, loss in after.items():
        assert math.isfinite(loss), f"trainer {index}: loss {loss}"
        # (Who came back shortly before the end, with nobody to take parameters from, has few.)
        trained = report["summaries"][f"trainer-{index}"]["batches_used"]
        assert loss < 0.7 * before or trained < ENOUGH, (
            f"trainer {index}: loss {before:.3f} → {loss:.3f} after {trained} batches"
        )
    best = min(after.values())
    assert best < 0.7 * before, f"loss {before:.3f} → {best:.3f}"


def check_members(played: Played) -> None:
    """Whoever was killed is told as gone, nobody else is, unless the machine had no time for it."""
    report, faults, plan = played.report, played.injector.injected, played.plan
    whys = [m["why"] or "" for m in report["members"]]
    for fault in faults:
        if fault.name == "master":
            continue
        at = fault.time - played.began
        for m in report["members"]:
            there = m["joined"] < at - 0.5 and (m["gone"] is None or m["gone"] > at)
            if f"{m['role']}-{m['index']}" != fault.name or not there:
                continue
            if fault.seconds is None and not m["finished"]:
                # A master that is away as well hears of it when it is back and the grace is over.
                late = LATE + sum(
                    (f.seconds or 0.0) + GRACE + 5.0 for f in faults if f.name == "master"
                )
                # (The run may end before that.)
                gone = report["seconds"] if m["gone"] is None else m["gone"]
                assert gone <= at + late, f"{fault} at {at:.1f}: {m}"
    for m in report["members"]:
        if m["finished"] or m["gone"] is None or m["why"].startswith("silent"):
            continue
        name = f"{m['role']}-{m['index']}"
        causes = [
            f
            for f in faults
            if f.name in (name, "master") and f.time - played.began <= m["gone"] + 0.5
        ]
        starved = any(why.startswith("silent") for why in whys)
        assert causes or starved, (
            f"{m} is gone, and nothing was done to it: {list(map(str, faults))}"
        )
    for name in (name_of(role, index) for role, index in plan.cluster.processes()[1:]):
        comings = sum(f"{m['role']}-{m['index']}" == name for m in report["members"])
        goings = sum(
            f"{m['role']}-{m['index']}" == name and not m["finished"] and m["gone"] is not None
            for m in report["members"]
        )
        # Each coming but the first follows a going.
        assert comings <= 1 + goings, (name, report["members"])


def check_standstill(played: Played) -> None:
    for begin, end in played.injector.still:
        within = [f for f in played.injector.injected if begin - 10 <= f.time <= end]
        allowed = STILL + sum((f.seconds or 5.0) for f in within)
        assert end - begin <= allowed, f"no batch for {end - begin:.1f} s; {list(map(str, within))}"


@contextmanager
def nothing_left() -> Iterator[None]:
    """That this process has as many descriptors afterwards as before, and no children."""
    before = len(list(Path("/proc/self/fd").iterdir()))
    yield
    assert len(list(Path("/proc/self/fd").iterdir())) == before
    try:
        pid, _ = os.waitpid(-1, os.WNOHANG)
    except ChildProcessError:
        return
    raise AssertionError(f"a child is left: {pid}")


def acceptance(folder: Path, seconds: float, stopped: float = 10.0, longer: int = 1) -> Played:
    """A trainer is killed, a sync server is stopped for 10 s (or so), and the master is killed, all in one
    run of about so many seconds, or one so many times longer with the same faults.
    """
    plan = make_plan(folder, "easgd", "background", epochs=12 * seconds * longer)
    part = seconds / 10
    return play(
        plan,
        [
            (-part, Fault("trainer-1", None)),
            (part, Fault("sync-ps-0", stopped)),
            (part, Fault("master", None)),
        ],
    )


def attempts(faults: int, seed: int, only: str | None, base: Path, mean: float) -> int:
    """Runs until so many faults were injected; how many runs failed."""
    settings = [
        (kind, when)
        for kind, when in SETTINGS
        if only is None or only == f"{kind}:{'background' if isinstance(when, str) else 'every'}"
    ]
    done, failed = 0, 0
    for run, (kind, when) in enumerate(cycle(settings)):
        if done >= faults:
            break
        rng = random.Random(f"{seed}.{run}")
        folder = base / f"{run}-{kind}-{'s' if isinstance(when, str) else 'fr'}"
        plan = make_plan(folder, kind, when)
        few = [
            fault
            for _, fault in zip(range(min(12, faults - done)), at_random(rng, mean), strict=False)
        ]
        told: list[Fault] = []

        def noted(planned: list[tuple[float, Fault]], told: list[Fault] = told) -> Iterator[Any]:
            for after, fault in planned:
                told.append(fault)
                yield after, fault

        error: BaseException | None = None
        begun = time.monotonic()
        ledger: dict[str, Any] = {}
        gone, still = 0, 0.0
        try:
            with nothing_left():
                played = play(plan, noted(few))
            ledger = played.report["ledger"]
            gone = sum(
                not m["finished"] and m["role"] == "trainer" for m in played.report["members"]
            )
            still = max((end - begin for begin, end in played.injector.still), default=0.0)
            check(played)
        except (AssertionError, OSError, ValueError) as caught:
            error = caught
        injected = [fault for fault in told if fault.time]
        done += len(injected)
        print(
            f"{run:3} {folder.name:14} {time.monotonic() - begun:6.1f} s  faults {done:3}  "
            f"again {ledger.get('again', '-')} late {ledger.get('late', '-')} "
            f"gone {gone} still {still:.1f} s  "
            f"{'; '.join(map(str, injected))}",
            flush=True,
        )
        if error is None:
            shutil.rmtree(folder)
        else:
            failed += 1
            print(f"    FAILED: {type(error).__name__}: {error}\n    see {folder}", flush=True)
    return failed


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--faults", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--mean", type=float, default=1.0, help="seconds between two faults")
    parser.add_argument("--only", help="KIND:background or KIND:every")
    parser.add_argument("--acceptance", type=float, metavar="SECONDS", help="one run of so long")
    options = parser.parse_args(argv)
    base = Path(tempfile.mkdtemp(prefix="leashed-faults-"))
    if options.acceptance is not None:
        played = acceptance(base / "run", options.acceptance)
        print(json.dumps({"seconds": played.seconds, **played.report["ledger"]}))
        check(played)
        failed = 0
    else:
        failed = attempts(options.faults, options.seed, options.only, base, options.mean)
    if not failed:
        shutil.rmtree(base)
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
