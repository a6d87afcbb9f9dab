"""Starts the processes of a run on one machine, starts again those that die, and ends them all.

What has been started ends with who has started it, even if that is killed by SIGKILL and can clean
up nothing: each child asks the kernel for a SIGKILL at its parent's death (``tie``). A pipe that
children watch would do for most ends, but not for a child that is stopped, hangs in native code or
has not come to watching yet; the kernel needs nobody's cooperation. What it costs: the tie is to the
parent's thread, so whoever starts processes must do so from a thread that stays.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

__all__ = [
    "AGAIN",
    "FAILED",
    "INTERRUPTED",
    "OVER",
    "REPORT",
    "WRONG",
    "Death",
    "Supervisor",
    "command",
    "name_of",
    "read_report",
    "say",
    "supervise",
    "tie",
]

FAILED, WRONG, OVER, AGAIN, INTERRUPTED = 1, 2, 3, 75, 130
"""Exit statuses beside 0, done. Of a role: an error; what no further start can mend; the run is over, and
not as it was to be; what a further start may mend; told to end. Of a run: it has failed (1); it is
incomplete (75).
"""
REPORT = "run.json"
"""What the master writes in the run's folder."""

_PARENT = "LEASHED_PARENT"  # the environment's variable with its process id
_PR_SET_PDEATHSIG = 1
_SAID = (0, OVER, INTERRUPTED)  # a process that ends so is none that died
_LOOK = 0.05  # seconds between two looks at the children
_FIRST_DELAY, _LONGEST_DELAY = 0.1, 5.0  # seconds before a restart
_SETTLED = 5.0  # seconds after which a process counts as one that runs
_FORGIVEN = 600.0  # and after which its restarts before that count no more
_ALIKE = 4  # ends in a row, sooner and all alike, after which no further start is tried
_SAYS = "leashed: error: "  # what a role's line begins with that tells why it fails
_NEWS = re.compile(r"\d{4}-\d\d-\d\d \S+ INFO ")  # what a line begins with that tells no cause
_LONGEST_WORDS = 1 << 14  # bytes at a log's end in which the cause of an end is looked for
_PATIENCE = 5.0  # seconds between SIGTERM and SIGKILL
_LONGEST_SAVE = 600.0  # seconds


def read_report(folder: Path) -> dict[str, Any] | None:
    """What the master has reported last; None before its first report.

    Raises:
        OSError: the file cannot be read.
        ValueError: it is damaged.
    """
    try:
        report: dict[str, Any] = json.loads((folder / REPORT).read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except ValueError as error:
        raise ValueError(f"{folder / REPORT}: {error}") from None
    return report


def name_of(role: str, index: int) -> str:
    """What a process is called in logs and reports."""
    return role if role == "master" else f"{role}-{index}"


def command(plan: Path) -> Callable[[str, int], Sequence[str]]:
    """What starts a role, by its name and index, with the plan in that file."""

    def of(role: str, index: int) -> Sequence[str]:
        program = [sys.executable, "-m", "leashed.cluster.role", role]
        return [*program, "--plan", str(plan), "--index", str(index)]

    return of


def say(line: str) -> None:
    """Write it to standard error."""
    print(line, file=sys.stderr, flush=True)


def tie() -> bool:
    """Let this process end with the one that has started it, where that was a ``Supervisor``; whether."""
    parent = os.environ.pop(_PARENT, None)
    if parent is None:
        return False
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0):
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_PDEATHSIG)")
    if os.getppid() != int(parent):  # it died before
        os.kill(os.getpid(), signal.SIGKILL)
    return True


@dataclass(frozen=True)
class Death:
    """A process that ended otherwise than with status 0.

    Attributes:
        name: the process, such as ``trainer-0``.
        time: when, in seconds since 1970.
        status: its exit status; of one killed by a signal minus that signal.
        restarted: whether it is started again.
        cause: the line of its log that tells why, or else the last one that is no news; empty: none.
    """

    name: str
    time: float
    status: int
    restarted: bool
    cause: str

    @property
    def how(self) -> str:
        """Such as "with status 75", or "by SIGKILL"."""
        if self.status >= 0:
            return f"with status {self.status}"
        return f"by {signal.Signals(-self.status).name}"


@dataclass
class _Child:
    role: str
    name: str
    command: Sequence[str]
    process: subprocess.Popen[bytes] | None = None
    started: float = 0.0
    due: float = 0.0  # when to start it, while there is no process
    restarts: int = 0
    logged: int = 0  # bytes in its log when it was started
    last: tuple[int, str] = (0, "")  # how it ended last: status, and why it said it did
    since: int = 0  # restarts that were forgiven
    quick: int = 0  # deaths in a row that came soon after the start
    alike: int = 0  # and how many of these, the latest, came the same way
    status: int | None = None  # once it has ended for good


@dataclass
class Supervisor:
    """Processes, each in a session of its own, with a log each.

    As a context manager it starts them and, at the end, ends those that still run.

    Args:
        processes: role and index of each, in the order of their start.
        command: what starts one.
        folder: where ``NAME.log`` takes what a process writes.
        restarts: how often one process is started again, at most, where it dies within ten minutes of
            its start; of one that has run for longer the count begins anew. One that ends with status 0,
            ``WRONG``, ``OVER`` or ``INTERRUPTED`` never is, nor one that has ended four times in a
            row within 5 s of its start, each time with the same status and for the same cause.
        tell: called with a line for each death but those like the one before that are followed by a
            further start, and the master's last, which is for who runs it to tell. Default: ``say``.
        inherited: descriptors that the processes have too, by the environment's variable that tells them.
    """

    processes: Iterable[tuple[str, int]]
    command: Callable[[str, int], Sequence[str]]
    folder: Path
    restarts: int = 0
    tell: Callable[[str], object] = say
    inherited: Mapping[str, int] = field(default_factory=dict)
    deaths: list[Death] = field(default_factory=list, init=False)

    def __post_init__(self) -> None:
        self._children = [
            _Child(role, name_of(role, index), self.command(role, index))
            for role, index in self.processes
        ]

    def __enter__(self) -> Supervisor:  # noqa: PYI034 (Self is of Python 3.11)
        try:
            self.step()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def step(self) -> None:
        """Start what is due, and see who has ended. To be called again and again.

        Raises:
            OSError: one cannot be started at all. One that cannot be started again, as where the
                system has no room for a process, has died once more.
        """
        for child in self._children:
            if child.process is None and child.status is None and time.monotonic() >= child.due:
                self._start_again(child) if child.restarts else self._start(child)
            elif child.process is not None and _over(child.process):
                self._bury(child, _reap(child.process))

    def running(self, role: str) -> bool:
        """Whether a process of this role runs or is to be started again."""
        return any(child.role == role and child.status is None for child in self._children)

    def count(self, role: str) -> int:
        """How many processes of this role there are to be."""
        return sum(child.role == role for child in self._children)

    def ended(self, role: str) -> dict[str, int]:
        """With what the processes of this role have ended for good, by name."""
        return {
            child.name: child.status
            for child in self._children
            if child.role == role and child.status is not None
        }

    def statuses(self, role: str) -> list[int]:
        """The same without their names."""
        return list(self.ended(role).values())

    def pids(self) -> dict[str, int]:
        """Of the processes that run, by name."""
        return {
            child.name: child.process.pid for child in self._children if child.process is not None
        }

    def counts(self) -> dict[str, int]:
        """How often each was started again, by name."""
        return {child.name: child.restarts for child in self._children}

    def given_up(self) -> dict[str, str]:
        """Who has died and is not started again, by name: how and why."""
        restarts = self.counts()
        return {
            death.name: f"ended {death.how} after {restarts[death.name]} restarts{self.why(death.name)}"
            for death in self.deaths
            if not death.restarted
        }

    def why(self, name: str) -> str:
        """Why a process has died last, and where more of it stands, to be put behind how it did."""
        cause = next((death.cause for death in reversed(self.deaths) if death.name == name), "")
        log = self.folder / f"{name}.log"
        return f": {cause} (see {log})" if cause else f": see {log}"

    def stop(self, patience: float = _PATIENCE) -> None:
        """End all that still run: by SIGTERM, and by SIGKILL what has not ended ``patience`` seconds
        later, as of ``wait``. Returns when none is left.
        """
        try:
            self._signal(signal.SIGTERM)
            self._signal(signal.SIGCONT)  # one that is stopped hears nothing else
            self.wait(patience)
        finally:
            self._signal(signal.SIGKILL)
            for child in self._children:
                if child.process is not None:
                    child.status, child.process = _reap(child.process), None

    def wait(self, seconds: float) -> None:
        """Give all that still run so much time to end by themselves, from when a file in a folder of the
        run's was last written to, as rows are at their servers' end, or parameters or a snapshot that are left
        there: at most ten minutes. Nothing is
        started any more.
        """
        written, now = self._written(), time.monotonic()
        deadline, last = now + seconds, now + max(seconds, _LONGEST_SAVE)
        while self._alive() and time.monotonic() < min(deadline, last):
            time.sleep(_LOOK)
            if (more := self._written()) != written:
                written, deadline = more, time.monotonic() + seconds

    def _written(self) -> dict[str, int]:
        """Bytes of files in folders of the run's, and of parameters and snapshots that are left beside these."""
        found = {}
        for pattern in ("*/*", "*.npz*", "*.snapshot*"):
            for path in self.folder.glob(pattern):
                with contextlib.suppress(OSError):  # it goes, or its folder
                    found[str(path)] = path.stat().st_size
        return found

    def _start(self, child: _Child) -> None:
        child.started = time.monotonic()
        inherited = {name: str(file) for name, file in self.inherited.items()}
        with self._log(child).open("ab") as log:
            child.logged = log.tell()
            child.process = subprocess.Popen(  # noqa: S603 (what it starts is the caller's)
                child.command,
                env={**os.environ, **inherited, _PARENT: str(os.getpid())},
                pass_fds=tuple(self.inherited.values()),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def _start_again(self, child: _Child) -> None:
        try:
            self._start(child)
        except OSError as error:
            child.alike = 0  # this passes, and is no fault of the process
            self._bury(child, AGAIN, f"it cannot be started: {error}")

    def _bury(self, child: _Child, status: int, why: str = "") -> None:
        """Note how a process has ended, and when it is due again. ``why``: default: as its log says."""
        child.process = None
        if status in _SAID:
            child.status = status
            return
        now = time.monotonic()
        cause = why or _cause(self._log(child), child.logged, child.name)
        last, child.last = child.last, (status, cause if status > 0 else "")
        child.quick = 0 if now - child.started >= _SETTLED else child.quick + 1
        child.alike = min(child.quick, child.alike + 1 if child.last == last else 1)
        hopeless = status == WRONG or (status > 0 and child.alike >= _ALIKE)
        if now - child.started >= _FORGIVEN:
            child.since = child.restarts
        again = child.restarts - child.since < self.restarts and not hopeless
        death = Death(child.name, time.time(), status, again, cause)
        self.deaths.append(death)
        if child.last != last if again else child.role != "master":
            then = ", and is started again" if again else f" after {child.restarts} restarts"
            self.tell(f"leashed: {child.name} ended {death.how}{then}{self.why(child.name)}")
        if not again:
            child.status = status
            return
        child.due = now + min(_FIRST_DELAY * 2.0**child.quick, _LONGEST_DELAY)
        child.restarts += 1

    def _log(self, child: _Child) -> Path:
        return self.folder / f"{child.name}.log"

    def _alive(self) -> bool:
        return any(
            child.process is not None and not _over(child.process) for child in self._children
        )

    def _signal(self, number: int) -> None:
        for child in self._children:
            if child.process is not None and not _reaped(child.process):
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(child.process.pid, number)


def supervise(
    supervisor: Supervisor, timeout: float, look: Callable[[], object], grace: float = 0.0
) -> None:
    """Let processes run until the master has ended, and the others after it.

    Args:
        supervisor: entered.
        timeout: seconds that the others have for it.
        look: called every now and then.
        grace: seconds more that the master waits for who leads and is started again, of which it does not know
            that it died for good.

    Raises:
        ChildProcessError: the master, all trainers, or who leads them died once more than they are started
            again; the message says where their logs are.
    """
    lost_at: float | None = None  # since when those are without whom nothing is trained
    while supervisor.running("master"):
        supervisor.step()
        look()
        if (lost := _lost(supervisor)) is not None:
            lost_at = lost_at or time.monotonic()
            # (Who leads has so long to come back, before the master says that the run is over.)
            most = timeout if lost == _TRAINERS else 2.0 * timeout + grace
            if time.monotonic() > lost_at + most:  # and the master has no more to say
                raise ChildProcessError(_why(*lost, supervisor))
        time.sleep(_LOOK)
    if any(death.name == "master" and not death.restarted for death in supervisor.deaths):
        raise ChildProcessError(_why("the master", "master", supervisor))
    supervisor.wait(timeout)


_TRAINERS = ("the trainers", "trainer")


def _lost(supervisor: Supervisor) -> tuple[str, str] | None:
    """Without whom nothing is trained: trainers that have all died for good, or one of who lead them; in words,
    and the role or the name.
    """
    statuses = supervisor.statuses("trainer")
    if statuses and not supervisor.running("trainer") and not set(statuses) & set(_SAID):
        return _TRAINERS
    several = supervisor.count("policy-ps") > 1
    for name, status in supervisor.ended("policy-ps").items():
        if status not in _SAID:
            index = name.rpartition("-")[2]
            return f"policy server {index}" if several else "the policy server", name
    return None


def _why(who: str, whose: str, supervisor: Supervisor) -> str:
    """``whose``: a process's name, or a role."""
    last = next(
        death
        for death in reversed(supervisor.deaths)
        if whose in (death.name, death.name.rpartition("-")[0])
    )
    restarts = supervisor.counts()[last.name]
    return f"{who} ended {last.how} after {restarts} restarts{supervisor.why(last.name)}"


def _cause(log: Path, logged: int, name: str) -> str:
    """Why a process says that it has ended, in what it has written to its log beyond ``logged`` bytes."""
    try:
        with log.open("rb") as file:
            file.seek(max(logged, file.seek(0, os.SEEK_END) - _LONGEST_WORDS))
            lines = file.read().decode(errors="replace").splitlines()
    except OSError:
        return ""
    lines = [line.strip() for line in lines if line.strip() and not _NEWS.match(line)]
    said = [line for line in lines if line.startswith(_SAYS)] or lines or [""]
    return said[-1].removeprefix(_SAYS).removeprefix(f"{name}: ")


def _over(process: subprocess.Popen[bytes]) -> bool:
    """Whether it has ended; it is not reaped, so that its number stays its own."""
    try:
        return os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
    except ChildProcessError:  # reaped by others: this program ignores SIGCHLD, or waits for all
        return True


def _reaped(process: subprocess.Popen[bytes]) -> bool:
    """Whether others have reaped it, so that its number may be another's."""
    try:
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return True
    return False


def _reap(process: subprocess.Popen[bytes]) -> int:
    """The status of a process that has ended or is about to; what it has started ends with it. Where
    others have reaped it, nobody knows its status: 0.
    """
    with contextlib.suppress(ChildProcessError):
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
    return process.wait()
