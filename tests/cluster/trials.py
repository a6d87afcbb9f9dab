"""Runs of ``leashed cluster up`` to each of which one thing happens, and a table of how they end.

    python tests/cluster/trials.py [--runs 200] [--seed 0] [--at-once 2] [--only TEXT] [--output FILE]

Each has a master, three trainers and, for EASGD, two sync servers; what happens, to whom and when is in
``CASES``. Each case comes to every synchroniser, in the background and at a fixed rate, and without a
fault each runs first. ``judge`` says what must hold of every end. Those that need a small disk of their own
need root.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import resource
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from cluster import faults, written
from cluster.processes import pids

from leashed.cluster import outcome
from leashed.cluster import plan as plans
from leashed.cluster.measures import counted

STOPPED = 15.0  # seconds; longer than the master's grace
FULL = 4.0  # seconds
EPOCHS, LR = 60.0, 0.02
WITHIN = 240.0  # seconds in which a run ends, whatever happens to it
NEAR = 0.02  # of the accuracy without a fault
STATES = {"ended": 0, "incomplete": 75, "failed": 1}
NAMES = ("master", "sync-ps", "trainer")
# Of the ledger; of the start seconds after whom it hits is there. Beyond the last batch is what comes then.
MOMENTS = {"start": (0.0, 1.5), "middle": (0.25, 0.7), "end": (0.9, 1.03)}


@dataclass(frozen=True)
class Case:
    """What happens.

    Attributes:
        how: a signal, STOP for 15 s; ``full``: no file may grow any more, or the run's ``disk`` is full (at
            the start: too small for good; else for 4 s); ``descriptors``: 64 of them; ``port``: another
            program has it, for good.
        who: of a role one, or all (``trainers``); ``all``; ``up``, who has started them.
        moment: one of ``MOMENTS``.
    """

    how: str
    who: str = ""
    moment: str = "start"

    def __str__(self) -> str:
        return " ".join(word for word in (self.how, self.who, self.moment) if word)

    def status(self, *, hit: bool) -> int:
        """With which it is to end. Where it has come to nobody, the run was over before."""
        if self.how in ("TERM", "INT") and self.who in ("trainers", "master", "all", "up") and hit:
            return 130 if self.who == "up" else 75
        if self.how == "port":  # told before anything is started
            return 2
        for_good = self.moment == "start" and hit
        lost = (("full", "master"), ("full", "disk"))
        return 1 if for_good and (self.how, self.who) in lost else 0


def _cases() -> list[Case]:
    everywhere = [
        Case("KILL", "trainer", "start"),
        Case("KILL", "trainer", "middle"),
        Case("KILL", "trainer", "end"),
        Case("KILL", "trainers", "start"),
        Case("KILL", "trainers", "middle"),
        Case("KILL", "trainers", "end"),
        Case("KILL", "master", "start"),
        Case("KILL", "master", "middle"),
        Case("KILL", "master", "end"),
        Case("KILL", "all", "middle"),
        Case("KILL", "all", "end"),
        Case("STOP", "trainer", "middle"),
        Case("STOP", "trainers", "middle"),
        Case("STOP", "master", "middle"),
        Case("STOP", "master", "end"),
        Case("STOP", "all", "middle"),
        Case("TERM", "trainer", "start"),
        Case("TERM", "trainer", "middle"),
        Case("TERM", "trainer", "end"),
        Case("TERM", "trainers", "middle"),
        Case("TERM", "master", "middle"),
        Case("TERM", "all", "middle"),
        Case("INT", "trainer", "middle"),
        Case("INT", "up", "start"),
        Case("INT", "up", "end"),
        Case("full", "trainer"),
        Case("full", "master"),
        Case("full", "disk"),
        Case("full", "disk", "middle"),
        Case("descriptors", "all"),
        Case("port", "trainer"),
        Case("port", "master"),
    ]
    servers = [
        Case("KILL", "sync-ps", "start"),
        Case("KILL", "sync-ps", "middle"),
        Case("KILL", "sync-ps", "end"),
        Case("KILL", "sync-pss", "middle"),
        Case("STOP", "sync-ps", "middle"),
        Case("TERM", "sync-ps", "middle"),
        Case("full", "sync-ps"),
    ]
    return [Case("nothing"), *everywhere, *servers]


CASES = _cases()
_COUNTS = ("again", "twice", "lost", "with_replicas", "late")
SERVERS = "sync-ps"  # cases of these are EASGD's alone


@dataclass(frozen=True)
class Trial:
    """One run."""

    number: int
    kind: str
    when: Any
    case: Case

    @property
    def setting(self) -> str:
        return f"{self.kind} {'S' if isinstance(self.when, str) else 'FR'}"

    def __str__(self) -> str:
        return f"{self.setting}, {self.case}"


def trials(runs: int, rng: random.Random) -> list[Trial]:
    """So many of all that there are, in a random order; all of them, and more with other random numbers, where
    there are fewer.
    """
    every = [
        (kind, when, case)
        for case in CASES
        for kind, when in faults.SETTINGS
        if not case.who.startswith(SERVERS) or kind == "easgd"
    ]
    rng.shuffle(every)
    # A few of them are as different as they can be: no case a second time before all were there.
    turn: dict[Case, int] = {}
    order = []
    for each in every:
        turn[each[2]] = turn.get(each[2], 0) + 1
        order.append((turn[each[2]], len(order), each))
    chosen = [each for _, _, each in sorted(order, key=lambda one: one[:2])]
    chosen = (chosen * (1 + runs // len(chosen)))[:runs]
    return [Trial(number, *each) for number, each in enumerate(chosen)]


@dataclass
class Ended:
    """How one was."""

    trial: Trial
    status: int | None
    seconds: float
    report: dict[str, Any]
    said: str
    hit: list[str] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)

    @property
    def row(self) -> dict[str, Any]:
        """As it is in the table."""
        ledger = self.report.get("ledger", {})
        return {
            "run": self.trial.number,
            "setting": self.trial.setting,
            "case": str(self.trial.case),
            "hit": self.hit,
            "status": self.status,
            "state": self.report.get("state", "-"),
            "reason": self.report.get("reason"),
            **{name: ledger.get(name) for name in ("total", "complete", "restored", *_COUNTS)},
            "output": self.report.get("output"),
            "accuracy": self.report.get("test_accuracy"),
            "seconds": round(self.seconds, 1),
            "wrong": self.wrong,
        }


def processes(folder: Path) -> dict[str, int]:
    """Those of the run in that folder: process ids by name."""
    return {"master" if name == "master-0" else name: pid for name, pid in pids(folder).items()}


class Happens:
    """Does to a run what its case says."""

    def __init__(self, trial: Trial, folder: Path, rng: random.Random) -> None:
        self._case = trial.case
        self._folder = folder
        self._at = rng.uniform(*MOMENTS[self._case.moment])
        self._index = rng.randrange(3 if self._case.who == "trainer" else 2)
        self._there: float | None = None  # since when whom it hits is
        self._reported = self._trained = self._rate = 0.0
        self._limited: set[int] = set()
        self._undo: tuple[float, Callable[[], None]] | None = None
        self._done = self._case.how in ("nothing", "port")
        self.up = 0  # its process id
        self.hit: list[str] = []

    def __call__(self) -> None:
        """To be called again and again."""
        now = time.monotonic()
        if self._undo and now >= self._undo[0]:
            self._undo[1]()
            self._undo = None
        if self._case.how in _LIMITS and self._case.who != "disk":
            which, most = _LIMITS[self._case.how]
            self._limit(which, _OF_THE_MASTER if self._case.who == "master" else most)
        elif not self._done and self._moment(now):
            self._done = True
            if self._case.who == "disk":
                self._fill(now)
            else:
                self._signal(now)

    def _moment(self, now: float) -> bool:
        if not self._targets():  # (who has died is started again)
            return False
        if self._case.moment == "start":
            self._there = self._there or now
            return now >= self._there + self._at
        # The report comes once a second.
        trained = progress(self._folder)
        if trained > self._trained:
            if self._trained:
                self._rate = (trained - self._trained) / (now - self._reported)
            self._reported, self._trained = now, trained
        return self._trained > 0 and trained + self._rate * (now - self._reported) >= self._at

    def _targets(self) -> dict[str, int]:
        who = self._case.who
        found = processes(self._folder)
        if who == "up":
            return {"up": self.up} if found or self._trained else {}
        if who in ("all", "disk"):
            return found
        if who in ("trainers", "sync-pss"):
            return {name: pid for name, pid in found.items() if name.startswith(who[:-1])}
        name = who if who == "master" else f"{who}-{self._index}"
        return {n: pid for n, pid in found.items() if n == name}

    def _signal(self, now: float) -> None:
        number = _SIGNALS[self._case.how]
        targets = self._targets()
        self.hit = list(targets)
        _kill(targets.values(), number)
        if number == signal.SIGSTOP:
            pids = list(targets.values())
            self._undo = now + STOPPED, lambda: _kill(pids, signal.SIGCONT)

    def _limit(self, which: int, most: int) -> None:
        for name, pid in self._targets().items():
            if pid not in self._limited:
                with suppress(ProcessLookupError):
                    resource.prlimit(pid, which, (most, most))
                    self._limited.add(pid)
                    self.hit += [name] * (name not in self.hit)

    def _fill(self, now: float) -> None:
        filler = self._folder / "filler"
        with suppress(OSError), filler.open("wb", buffering=0) as file:
            while True:
                file.write(bytes(4096))
        self.hit = ["disk"]
        if self._case.moment != "start":
            self._undo = now + FULL, filler.unlink


_SIGNALS = {name: getattr(signal, f"SIG{name}") for name in ("KILL", "STOP", "TERM", "INT")}
# Bytes that no file may grow beyond; descriptors.
_LIMITS = {"full": (resource.RLIMIT_FSIZE, 30_000), "descriptors": (resource.RLIMIT_NOFILE, 64)}
_OF_THE_MASTER = 3000  # bytes: it writes a report and a journal, and no model


def _kill(pids: Iterable[int], number: int) -> None:
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, number)


def progress(folder: Path) -> float:
    """Which part of its batches a run has complete."""
    with suppress(OSError, ValueError):
        report = outcome.read_report(folder)
        if report is not None:
            return float(report["ledger"]["complete"] / report["ledger"]["total"])
    return 0.0


@contextmanager
def small_disk(folder: Path) -> Iterator[None]:
    """A tmpfs there, for what a run writes and little more."""
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=12m", "tmpfs", str(folder)]
    if (made := subprocess.run(mount, capture_output=True, text=True, check=False)).returncode:
        raise OSError(made.stderr.strip())
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


@contextmanager
def others_port(index: int, count: int, rng: random.Random) -> Iterator[int]:
    """The first of so many ports in a row that are free, but for that of ``index``, which is taken."""
    for _ in range(1000):
        first = rng.randrange(20_000, 32_000)
        with ExitStack() as held:
            try:
                sockets = [held.enter_context(socket.socket()) for _ in range(count)]
                for port, each in enumerate(sockets, first):
                    each.bind(("127.0.0.1", port))
            except OSError:
                continue
            sockets[index].listen()
            for each in sockets[:index] + sockets[index + 1 :]:
                each.close()
            yield first
            return
    raise OSError("no ports are free")


def play(trial: Trial, base: Path, seed: int = 0) -> Ended:
    """One run, to its end, in a folder of its own there."""
    name = f"{trial.number:03}"
    folder, rng = base / name, random.Random(f"{seed}.{trial.number}")
    case = trial.case
    servers = 2 if trial.kind == "easgd" else 0
    happens = Happens(trial, folder, rng)
    with ExitStack() as stack:
        where: dict[str, Any] = {}
        if case.how == "port":
            of = 0 if case.who == "master" else 1 + servers + rng.randrange(3)
            first = stack.enter_context(others_port(of, 1 + servers + 3, rng))
            where = {"master": f"127.0.0.1:{first}", "ports": first + 1}
            happens.hit = [f"port of {'master' if of == 0 else f'trainer-{of - 1 - servers}'}"]
        if case.who == "disk":
            stack.enter_context(small_disk(folder))
        plan = plans.Plan(
            plans.Cluster(
                trainers=3, sync_ps=servers, run=folder, beat=faults.BEAT, timeout=faults.TIMEOUT,
                grace=faults.GRACE, restarts=1000, keep=1.0, **where,
            ),
            plans.Sync(kind=trial.kind, when=trial.when),
            plans.Train(data=str(base / "digits"), epochs=EPOCHS, batch_size=32, lr=LR),
        )  # fmt: skip
        plans.write(base / f"{name}.toml", plan)
        log = base / f"{name}.log"
        begun = time.monotonic()
        with log.open("wb") as out:
            program = [sys.executable, "-m", "leashed", "cluster", "up", "--plan"]
            up = subprocess.Popen(
                [*program, str(base / f"{name}.toml")], stdin=subprocess.DEVNULL, stdout=out,
                stderr=out, start_new_session=True,
            )  # fmt: skip
        stack.callback(_end, up)
        happens.up = up.pid
        while up.poll() is None and time.monotonic() < begun + WITHIN:
            happens()
            time.sleep(0.02)
        # (One that Ctrl-C meets while Python itself ends is ended by it: 130 to a shell.)
        status = 130 if up.poll() == -signal.SIGINT else up.poll()
        ended = Ended(trial, status, time.monotonic() - begun, {}, log.read_text(), happens.hit)
        with suppress(OSError, ValueError):
            ended.report = outcome.read_report(folder) or {}
        if ended.status is None:
            ended.wrong.append(f"it has not ended within {WITHIN:g} s")
        elif left := processes(folder):
            ended.wrong.append(f"processes are left: {left}")
        else:
            judge(ended)
    return ended


def _end(up: subprocess.Popen[bytes]) -> None:
    """What it has started ends with it."""
    up.kill()
    up.wait()


def judge(ended: Ended) -> None:
    """Notes what is wrong with an end, but for the model."""
    report, status, case, wrong = ended.report, ended.status, ended.trial.case, ended.wrong
    if status != (expected := case.status(hit=bool(ended.hit))):
        wrong.append(f"status {status}, and not {expected}")
    if status and not re.search("leashed: (error: .|interrupted)", ended.said):
        wrong.append("it does not say why")
    if not report:
        if status not in (1, 2, 130):
            wrong.append("there is no report")
        return
    state = report["state"]
    if status != 130 and status != STATES.get(state):
        wrong.append(f"status {status}, and it is {state}")
    if state == "running":
        wrong.append("it has ended, and is running")
    if status == 0:
        _judge_success(report, wrong)
    if status in (0, 75):  # (a master that could write no more has not all counts in its report)
        _judge_counts(ended, wrong)


def _judge_success(report: dict[str, Any], wrong: list[str]) -> None:
    ledger = report["ledger"]
    if ledger["complete"] != ledger["total"] or ledger["outstanding"] or ledger["free"]:
        wrong.append(f"status 0, and its ledger is not complete: {ledger}")
    if "output" not in report:
        wrong.append("status 0, and there is no model")
        return
    name = re.match(r"trainer (\d+)", report["output"])
    mine = [
        m
        for m in report["members"]
        if name and m["role"] == "trainer" and m["index"] == int(name[1])
    ]
    summary = report["summaries"].get(f"trainer-{name[1]}", {}) if name else {}
    if (
        not mine
        or not mine[-1]["finished"]
        or summary.get("interrupted")
        or summary.get("left_early")
    ):
        wrong.append(f"its model is of {report['output']}, who was not there at the end")


def _judge_counts(ended: Ended, wrong: list[str]) -> None:
    """What was trained twice, or is not in the model, is told, as far as anybody can know."""
    report, ledger = ended.report, ended.report["ledger"]
    of_trainers = [m for m in report["members"] if m["role"] == "trainer"]
    trained = sum(each.get("batches_used", 0.0) for each in counted(report, "trainer").values())
    once = ledger["complete"] + ledger["lost"]
    if not 0 <= ledger["twice"] <= ledger["again"] or ledger["lost"] < 0:
        wrong.append(f"that cannot be: {ledger}")
    if trained > once + ledger["twice"]:
        wrong.append(f"{trained:g} batches were trained, and {once} and {ledger['twice']} are told")
    gone = [m for m in of_trainers if m["gone"] is not None and not m["finished"]]
    if not gone:
        if trained != once:
            wrong.append(f"no trainer died; {trained:g} batches were trained, {once} are told")
        if ledger["again"] or ledger["lost"] or ledger["with_replicas"]:
            wrong.append(f"no trainer died, and {ledger}")
    lost_with = sum(m["counters"].get("unsynced", 0.0) for m in gone)
    if ledger["with_replicas"] != lost_with:
        wrong.append(f"{lost_with:g} went with replicas, {ledger['with_replicas']} are told")


def judge_models(all_: Sequence[Ended]) -> dict[str, float]:
    """Notes which models of runs that ended well are not as good as without a fault; how good those are,
    by setting.
    """
    plain: dict[str, list[float]] = {}
    for each in all_:
        if each.trial.case.how == "nothing" and "test_accuracy" in each.report:
            plain.setdefault(each.trial.setting, []).append(each.report["test_accuracy"])
    means = {setting: statistics.fmean(found) for setting, found in plain.items()}
    for each in all_:
        mean, found = means.get(each.trial.setting), each.report.get("test_accuracy")
        if each.status == 0 and mean is not None and found is not None and abs(found - mean) > NEAR:
            each.wrong.append(f"an accuracy of {found:.4f}, without a fault {mean:.4f}")
    return means


def attempts(runs: int, seed: int, at_once: int, base: Path, only: str = "") -> list[Ended]:
    """The table of so many, of those whose words have ``only``."""
    written.digits(base / "digits")
    order = [each for each in trials(runs, random.Random(seed)) if only in str(each)]
    try:
        with small_disk(base / "disk"):
            pass
    except OSError as error:
        disks = [each for each in order if each.case.who == "disk"]
        print(f"left out are {len(disks)} runs of a small disk, which can be made by root: {error}")
        order = [each for each in order if each not in disks]
    lock = threading.Lock()

    def one(trial: Trial) -> Ended:
        ended = play(trial, base, seed)
        with lock:
            print(line(ended), flush=True)
        return ended

    with ThreadPoolExecutor(at_once) as pool:
        found = list(pool.map(one, order))
    judge_models(found)
    return found


def line(ended: Ended) -> str:
    """One of the table."""
    row = ended.row
    accuracy = "-" if row["accuracy"] is None else f"{row['accuracy']:.4f}"
    counts = " ".join(f"{n} {row[n]}" for n in _COUNTS if row[n])
    return (
        f"{row['run']:3} {row['setting']:8} {row['case']:22} {row['status']!s:>4} {row['state']:10} "
        f"{row['complete']}/{row['total']} {accuracy} {row['seconds']:5.1f} s  {', '.join(row['hit'])}  "
        f"{counts}{''.join(f'{chr(10)}    WRONG: {why}' for why in row['wrong'])}"
    )


def table(rows: Iterable[dict[str, Any]]) -> str:
    """Of the rows, by what happened, in Markdown."""
    statuses = (0, 75, 1, 130)
    lines = [
        "| what happened | runs | " + " | ".join(map(str, statuses)) + " | accuracy, status 0 "
        "| trained anew, at most | gone back, at most |",
        "| --- " * (len(statuses) + 5) + "|",
    ]
    by_case: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        by_case.setdefault(row["case"], []).append(row)
    for case, found in sorted(by_case.items()):
        count = [sum(row["status"] == status for row in found) for status in statuses]
        good = [row["accuracy"] for row in found if row["status"] == 0]
        span = f"{min(good):.4f} to {max(good):.4f}" if good else "–"
        most = [max(row[name] or 0 for row in found) for name in ("again", "lost")]
        cells = [case, len(found), *(each or "" for each in count), span, *most]
        lines.append("| " + " | ".join(map(str, cells)) + " |")
    return "\n".join(lines)


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--at-once", type=int, default=2)
    parser.add_argument(
        "--only", default="", help="those whose words have this: 'KILL all', 'ma FR'"
    )
    parser.add_argument("--output", type=Path, help="the rows, as JSON lines")
    options = parser.parse_args(argv)
    # What a shell begins in the background has Ctrl-C ignored, and so would all that this one starts.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    base = Path(tempfile.mkdtemp(prefix="leashed-trials-"))
    found = attempts(options.runs, options.seed, options.at_once, base, options.only)
    if options.output:
        options.output.write_text("".join(json.dumps(each.row) + "\n" for each in found))
    print(table(each.row for each in found))
    wrong = [each for each in found if each.wrong]
    statuses = sorted({str(each.status) for each in found})
    print(f"{len(found)} runs:", ", ".join(
        f"{sum(str(each.status) == status for each in found)} with status {status}" for status in statuses
    ))  # fmt: skip
    for each in wrong:
        print(line(each))
    if wrong:
        print(f"{len(wrong)} are wrong; see {base}")
    else:
        shutil.rmtree(base)
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
