"""A role's side of the connection to the master: a thread that keeps it, whatever happens there."""

from __future__ import annotations

import contextlib
import ipaddress
import logging
import math
import select
import socket
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Literal

from msgspec import Struct

from leashed import _core
from leashed.base import checks
from leashed.base.closing import Closing
from leashed.cluster import sent_parts, wire
from leashed.cluster.ending import OverError, explain
from leashed.cluster.messages import (
    MOST_WORDS,
    Account,
    Apart,
    Beat,
    Bye,
    Epoch,
    FromMaster,
    Gone,
    Kept,
    Role,
    Saved,
    Servers,
    There,
    Welcome,
)
from leashed.cluster.opening import (
    Key,
    Refused,
    connect,
    format_address,
    is_loopback,
    parse_address,
)
from leashed.cluster.results import Result
from leashed.cluster.roles import ROLES
from leashed.cluster.standing import News, Standing
from leashed.cluster.supervisor import REPORT, read_report

__all__ = ["ADDRESS", "JOIN", "Event", "Lost", "Member", "MismatchError", "master_address"]

JOIN = 30.0  # seconds in which the master is expected to answer
ADDRESS = "master.address"  # the file in a run's folder that says where its master listens

_REFUSALS = 3  # in a row, and it is no accident
_CONNECTING = 2.0  # seconds for one attempt; a stopped master accepts and says nothing
_ANSWERING = 0.2  # seconds between two looks whether there is a master that answers
_SENDING = 1.0  # seconds for a message to go out
_BEAT, _TIMEOUT = 0.5, 5.0  # seconds, before the master has said which
_LATE = 1.25  # beats without a report, before the core beats, which waits for no GIL
_HELD = 600.0  # seconds in which it does: a step may hold the GIL for minutes, a deadlock for ever
_PAUSES = (0.05, 1.0)  # seconds between two attempts, the first and the longest
_CHUNK = 1 << 16
_ABSENT = (
    "; is the master started, and its run not over? (Its address is master in a plan's [cluster], of join "
    "rendezvous)"
)

_log = logging.getLogger(__name__)


class Lost(Struct, frozen=True):
    """The master has been away for longer than the grace given, and is still looked for; or it is
    another run's now, of which this process cannot be: then the state is "over".

    Attributes:
        reason: which, and why, in words.
    """

    reason: str


class MismatchError(ValueError):
    """The process is another thing than the run: another model, other data."""


Event = News | Lost
State = Literal["joined", "away", "lost", "over", "failed"]


def master_address(folder: Path, fixed: str | None = None) -> Callable[[], str]:
    """Looks up where the master of the run in that folder listens now; for ``Member(address=…)``.

    Args:
        folder: of the run, where it is on this machine.
        fixed: where the master listens, if that is known. Default: it is in a file of the folder.
    """

    def look() -> str:
        with contextlib.suppress(FileNotFoundError):
            written = (folder / REPORT).stat().st_mtime
            report = read_report(folder)
            if report is not None and report["state"] != "running":
                raise OverError(
                    f"the run in {folder} is over since {time.strftime('%F %T', time.localtime(written))}: "
                    f"{report['reason']}; for another give another folder"
                )
        return fixed or (folder / ADDRESS).read_text().strip()

    return look


class Member(Closing):
    """Takes part in a run: joins, keeps up heartbeats, comes back to a restarted master.

    Everything that the master says comes to ``heard``, once and in order. Where the master is lost
    the member goes on, and says what it has to say when there is one again. A process that was
    stopped for so long that it counts as dead joins anew when it wakes: then comes a ``Welcome`` with
    another id, the leases that it held are others' now, and in the ring it is fresh.

    No method waits for the network but those that say so.

    Args:
        address: the master's, "host:port", or a function that looks it up before each attempt; if
            that raises ``ChildProcessError`` before this process has joined, there will be no master,
            and if it raises ``OverError`` the run is over.
        key: what all processes of the run hold.
        role: what this process is.
        index: which one of its role.
        listening: where others reach this process, "host:port". Where the host is 0.0.0.0 or ::, the
            one is told that this machine has towards the master; where that is loopback, this is the
            master's machine, and the host is the master's as ``address`` has it. Empty: nobody needs
            to.
        heard: called with each event, on the member's thread; it must not block. (``put`` of a
            ``queue.SimpleQueue`` will do.)
        deadline: seconds for joining. Default: 30.
        grace: seconds without a master after which ``Lost`` comes.
        fingerprint: what this process has that all of a run must have alike, in words by name.
        summing: this trainer sums with the others: the run's parameters are in such ones alone.
        kept: what it begins with, of a process before it.
        returns: it leads the run, and where it dies it is started again, and goes on from what it has kept.

    Raises:
        TimeoutError: not joined in time; the message says what stood in the way.
        OverError: the run is over.
        ChildProcessError: ``address`` raised it.
        Refused: the master does not hold this key.
        MismatchError: this process is another thing than the run: another model, other data.
        TypeError, ValueError: an argument is wrong.
    """

    def __init__(
        self,
        address: str | Callable[[], str],
        key: Key,
        *,
        role: Role,
        index: int,
        heard: Callable[[Event], None],
        listening: str = "",
        deadline: float | None = None,
        grace: float = 10.0,
        fingerprint: Mapping[str, str] | None = None,
        summing: bool = False,
        kept: Kept | None = None,
        returns: bool = False,
    ) -> None:
        if role not in ROLES:
            raise ValueError(f"role must be one of {', '.join(ROLES)}, got {role!r}")
        index = checks.whole("index", index, 0, (1 << 16) - 1)
        if listening:
            parse_address(listening, "listening")
        if not callable(address):
            parse_address(address)
        deadline = checks.real("deadline", JOIN if deadline is None else deadline, 0.0)
        self._grace = checks.real("grace", grace, 0.0)
        self._address = address
        self._key = key
        self._heard = heard
        self._listening = listening
        self._towards = ""
        self._lock = threading.Lock()
        self._standing = Standing(
            role, index, listening, fingerprint, summing=summing, kept=kept, returns=returns
        )
        self._state: State = "away"
        self._changed = threading.Condition(self._lock)
        self._error: BaseException | None = None
        self._heard_at = -math.inf
        self._welcome: Welcome | None = None
        self._closed = threading.Event()
        self._wake, self._woken = socket.socketpair()
        self._wake.setblocking(False)
        self._woken.setblocking(False)
        self._thread = threading.Thread(
            target=self._run, args=(deadline,), name="leashed-member", daemon=True
        )
        try:
            self._thread.start()
            with self._changed:
                self._changed.wait_for(lambda: self._welcome or self._state == "failed")
        except BaseException:  # nobody has this member, so nobody else can end it
            self.close()
            raise
        if self._welcome is None:
            self.close()
            assert self._error is not None
            raise self._error

    @property
    def name(self) -> str:
        """Such as "trainer-3"."""
        return f"{self._standing.role}-{self._standing.index}"

    @property
    def welcome(self) -> Welcome:
        """The latest; with the id, and what the run is."""
        assert self._welcome is not None
        return self._welcome

    @property
    def id(self) -> int:
        """This member's id."""
        return self.welcome.id

    @property
    def state(self) -> State:
        """How it stands: "joined"; "away": the master is, for less than the grace given; "lost":
        for longer; "over": the run is, or no longer there, or this member has finished; "failed":
        ``heard`` has raised.
        """
        return self._state

    @property
    def refused(self) -> str:
        """Why this one was no member, as the master said last."""
        return self._standing.refused

    @property
    def heard_at(self) -> float:
        """When the master was heard of last, on the monotonic clock; it speaks in every beat."""
        return self._heard_at

    @property
    def epoch(self) -> Epoch | None:
        """The newest; None before the first."""
        return self._standing.epoch

    @property
    def servers(self) -> Servers | None:
        """The newest; None before the first."""
        return self._standing.servers

    @property
    def account(self) -> Account | None:
        """How far the run is; None before that was told, which ``ask`` asks for."""
        return self._standing.account

    @property
    def ended(self) -> bool:
        """There are no more batches."""
        return self._standing.ended

    def ask(self) -> None:
        """Ask to be told in every beat how far the run is."""
        with self._said():
            self._standing.asks = True
        self._alarm()

    def troubled(self, trouble: str) -> None:
        """Tell what keeps this one from being in step with the others; empty: nothing."""
        with self._said():
            before, self._standing.trouble = self._standing.trouble, trouble[:MOST_WORDS]
        if before != trouble[:MOST_WORDS]:
            self._alarm()

    def cut(self, number: int, stage: int, saved: Iterable[Saved] = (), failed: str = "") -> None:
        """Tell how far this one is in the cut of that number: the stage that it has reached, its files
        once it has saved, or why it cannot.
        """
        with self._said():
            self._standing.cut_reached(number, stage, saved, failed[:MOST_WORDS])
        self._alarm()

    def keeps(self, kept: Kept | None) -> None:
        """Should this one have to join anew: of which account its parameters are then."""
        with self._said():
            self._standing.kept = kept

    def read(self, there: There) -> None:
        """Tell what has been read of rows that come once."""
        with self._said():
            self._standing.there = there
        self._alarm()

    def want(self, batches: int) -> None:
        """Ask for a lease of at most so many batches. One ``Lease`` answers it, or ``End``; asking
        again before that changes how many are wanted.
        """
        batches = checks.whole("batches", batches, maximum=(1 << 32) - 1)
        with self._said():
            self._standing.want(batches)
        self._alarm()

    def report(self, metrics: Mapping[str, float], used: Iterable[tuple[int, int]] = ()) -> None:
        """Tell the counters, and the batches used of leases: (ticket, how many from the first). It
        goes out with the next heartbeat.
        """
        with self._said():
            self._standing.tell(metrics, used)

    def settled(self, epoch: int) -> None:
        """Tell that this trainer has trained in an epoch, with θ of its own or as it got it there.
        Until then it is fresh in every epoch: nobody takes θ from it.
        """
        with self._said():
            self._standing.settled(checks.whole("epoch", epoch))
        self._alarm()

    def broken(self, epoch: int) -> None:
        """Tell that a round of an epoch has failed."""
        with self._said():
            self._standing.broken(checks.whole("epoch", epoch))
        self._alarm()

    def leave(self, apart: Iterable[Apart] = ()) -> None:
        """Take no more part in epochs, and give back what is not used of the leases: what was
        reported, and ``apart``, batches behind others that will not be: (ticket, first from the
        lease's first, how many), ascending in each lease.
        """
        with self._said():
            self._standing.left = True
            self._standing.apart = list(apart)
        self._alarm()

    def finish(self, summary: Mapping[str, float]) -> None:
        """Leave, with a last word. When the master has it, ``Bye`` comes and the state is "over"."""
        with self._said():
            self._standing.left = True
            self._standing.summary = {k: float(v) for k, v in summary.items()}
        self._alarm()

    def send_result(self, result: Result, *, deadline: float = 60.0) -> None:
        """Hand in the final parameters, on a connection of its own; returns when the master has named
        them, and they are on its disk, however long that takes.

        Raises:
            TimeoutError: nothing of them has gone for ``deadline`` seconds; or all has, and the
                master, which is away, has not said in as many that it has them.
            OSError: the master is away, or has refused them.
        """
        checks.real("deadline", deadline, 0.0)
        with self._connect("result", min(deadline, _CONNECTING)) as connection:
            connection.settimeout(deadline)
            try:
                taken = result.send(connection, lambda: self._answered(connection))
            except TimeoutError:
                raise TimeoutError(f"nothing of the result has moved for {deadline:g} s") from None
            except ConnectionError:
                taken = False
        if not taken:
            raise ConnectionError(
                "the master has refused the result, or cut off; where it lives, its log says why"
            )

    def send_part(
        self, run: Path, number: int, own: Sequence[str], *, deadline: float = 60.0
    ) -> None:
        """Has the master have this member's part of a checkpoint, which it is sent, on a connection of its
        own, as far as it does not see it; returns when all is on its disk, however long that takes.

        Args:
            run: the folder of the run's checkpoints here.
            number: of the cut.
            own: files of its folder, and folders.
            deadline: seconds for which nothing may move where the master is away.

        Raises:
            OSError: the master is away, or does not take it; the message says why.
        """
        with self._connect(sent_parts.PURPOSE, min(deadline, _CONNECTING)) as connection:
            connection.settimeout(deadline)
            sent_parts.send(
                connection,
                run,
                number,
                own,
                lambda: self._answered(connection),
                lambda: self._state == "joined",
            )

    def _answered(self, connection: socket.socket) -> None:
        """Returns when there is something to read, however long the master writes; TimeoutError where it
        is away for as long as the connection's timeout says.
        """
        poll, joined = select.poll(), time.monotonic()
        poll.register(connection, select.POLLIN)
        while not poll.poll(_ANSWERING * 1000):
            now = time.monotonic()
            if self._state == "joined":
                joined = now
            elif now - joined > (connection.gettimeout() or 0.0):
                raise TimeoutError("the master is away")

    def wait(self, timeout: float) -> bool:
        """Wait until the state is "over" or "failed"; whether it is, after at most ``timeout`` s."""
        with self._changed:
            return self._changed.wait_for(lambda: self._state in ("over", "failed"), timeout)

    def close(self) -> None:
        """End the connection. Without ``finish`` before, the master counts this member as dead.
        May be called again.
        """
        self._closed.set()
        self._alarm()
        if threading.current_thread() is not self._thread:
            if self._thread.ident is None:  # it could not be started
                self._woken.close()
            else:
                self._thread.join()
            with self._lock:
                self._wake.close()

    @contextlib.contextmanager
    def _said(self) -> Iterator[None]:
        """The standing may be changed."""
        with self._lock:
            if self._error:
                raise RuntimeError(f"{self.name} has failed: {self._error}") from self._error
            yield

    def _alarm(self) -> None:
        """Have the thread look again."""
        with self._lock, contextlib.suppress(BlockingIOError, OSError):
            self._wake.send(b"x")

    def _connect(self, purpose: str, deadline: float) -> socket.socket:
        self._towards = self._address() if callable(self._address) else self._address
        return connect(
            self._towards,
            self._key,
            role=self._standing.role,
            name=self.name,
            purpose=purpose,
            expected="master",
            deadline=deadline,
        )

    # What follows runs on the member's thread.

    def _run(self, deadline: float) -> None:
        try:
            self._keep(deadline)
        except Exception as error:  # noqa: BLE001 (told to who asks next)
            self._error = error.__cause__ if isinstance(error, _HeardError) else error
            self._turn("failed")
            if self._welcome:
                _log.exception("%s has failed", self.name)
        finally:
            self._woken.close()

    def _keep(self, deadline: float) -> None:
        """Connect, talk, and again, until it is over."""
        since = time.monotonic()  # when there was a master last
        pause, longest = _PAUSES
        refusals = 0
        trouble = absent = ""
        while not self._done():
            left = math.inf if self._welcome else max(since + deadline - time.monotonic(), 1e-3)
            try:
                with self._connect("control", min(left, _CONNECTING)) as connection:
                    refusals, absent = 0, ""
                    beats = _core.Pulse(connection.fileno(), wire.encode(Beat()), _HELD)
                    with contextlib.closing(beats):
                        trouble = self._talk(connection, beats, left)
            except Refused as error:
                trouble, absent = str(error), ""
                refusals += 1
                if refusals == _REFUSALS and self._welcome is None:
                    raise
            except (OSError, ValueError) as error:
                refusals = 0
                permanent = isinstance(error, ChildProcessError | MismatchError | OverError)
                if permanent and self._welcome is None:
                    raise
                if isinstance(error, MismatchError | OverError):
                    unlike = Lost(f"another run has the place of its master: {error}")
                    self._tell(Bye(str(error)) if isinstance(error, OverError) else unlike)
                    self._turn("over")
                    return
                if not (isinstance(error, TimeoutError) and trouble and left < _CONNECTING):
                    if not trouble:
                        _log.info("%s looks for the master: %s", self.name, explain(error))
                    trouble = explain(error)  # and not that the last attempt had little time
                    # Nobody is where the master should be.
                    absent = "" if isinstance(error, ConnectionResetError) else _ABSENT
            now = time.monotonic()
            if self._state == "joined":
                self._turn("away")
                since, pause = now, _PAUSES[0]
            if self._welcome is None and now - since >= deadline:
                raise TimeoutError(
                    f"{self.name} did not join within {deadline:g} s: {trouble}{absent}"
                )
            if self._welcome and self._state == "away" and now - since >= self._grace:
                self._turn("lost")
                self._tell(Lost(f"the master is away for more than {self._grace:g} s: {trouble}"))
            if not self._done():
                self._closed.wait(pause)
                pause = min(2 * pause, longest)
        if self._welcome is None and self._standing.over is not None:
            raise OverError(f"{self.name} comes too late, the run is over: {self._standing.over}")

    def _done(self) -> bool:
        return self._closed.is_set() or self._state == "over"

    def _talk(self, connection: socket.socket, beats: _core.Pulse, limit: float) -> str:
        """Say and hear what there is, for as long as there is a master; why there is none any more.

        Args:
            connection: to the master.
            beats: what sends there.
            limit: seconds for being welcomed.
        """
        self._standing.address = _reachable(self._listening, connection, self._towards)
        connection.settimeout(_SENDING)
        reader = wire.from_master()
        poll = select.poll()
        for end in (connection, self._woken):
            poll.register(end, select.POLLIN)
        start = heard = due = time.monotonic()
        welcomed = False
        while not self._done():
            known = self._welcome
            beat, timeout = (known.beat, known.timeout) if known else (_BEAT, _TIMEOUT)
            now = time.monotonic()
            if now >= due:
                due = now + beat
                with self._lock:
                    word = self._standing.report() if welcomed else self._standing.hello()
                if not beats.send(wire.encode(word), _SENDING, _LATE * beat):
                    return "the master takes in nothing"
            ready = poll.poll(max(0.0, due - time.monotonic()) * 1000)
            if any(descriptor == self._woken.fileno() for descriptor, _ in ready):
                self._woken.recv(_CHUNK)
                due = now if welcomed else due
            if any(descriptor == connection.fileno() for descriptor, _ in ready):
                data = connection.recv(_CHUNK)
                if not data:
                    return self._standing.refused or "the master has closed the connection"
                heard = self._heard_at = time.monotonic()
                for message in reader.feed(data):
                    if isinstance(message, Welcome | Gone):
                        welcomed = isinstance(message, Welcome)
                        due = now if welcomed else due
                    self._hear(message)
            # (Again, since this thread may have been held up in between.)
            elif time.monotonic() - heard > timeout and not poll.poll(0):
                return f"the master is silent for {timeout:g} s"
            if not welcomed and time.monotonic() - start > limit and not poll.poll(0):
                return self._standing.refused or "the master does not answer"
        return "closed"

    def _hear(self, message: FromMaster) -> None:
        with self._changed:
            if isinstance(message, Gone) and message.unlike:
                raise MismatchError(f"{self.name} cannot join: {message.reason}")
            news = self._standing.hear(message)
            if isinstance(message, Welcome):
                self._welcome = message
        if isinstance(message, Welcome):
            self._turn("joined")
        elif isinstance(message, Bye):
            self._turn("over")
        if news is not None:
            self._tell(news)

    def _tell(self, event: Event) -> None:
        try:
            self._heard(event)
        except Exception as error:
            raise _HeardError from error

    def _turn(self, state: State) -> None:
        with self._changed:
            self._state = state
            self._changed.notify_all()


class _HeardError(Exception):
    """``heard`` has raised."""


def _reachable(listening: str, connection: socket.socket, master: str) -> str:
    """The address of this process for others, given where it listens, and the master."""
    if listening:
        host, port = parse_address(listening)
        with contextlib.suppress(ValueError):
            if ipaddress.ip_address(host).is_unspecified:
                own = str(connection.getsockname()[0])
                # Others would find themselves there, and the master's host is this one.
                return format_address(parse_address(master)[0] if is_loopback(own) else own, port)
    return listening
