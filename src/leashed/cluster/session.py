"""A trainer's part in a run: what goes on beside its training, on threads of Python.

The core trains and synchronises; here connections are made and handed to it, leases fetched, and
what it has counted is reported.
"""

from __future__ import annotations

import contextlib
import logging
import math
import queue
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from leashed import _core
from leashed.base.closing import Closing
from leashed.base.warning import warn
from leashed.cluster import collectives, fingerprint, packing
from leashed.cluster.meeting import Collective, Meeting, all_gather
from leashed.cluster.member import Lost, Member
from leashed.cluster.messages import (
    FINISHED,
    MOST_SPANS,
    Account,
    Bye,
    End,
    Epoch,
    Kept,
    Lease,
    Servers,
    Welcome,
)
from leashed.cluster.native import check_servers, native
from leashed.cluster.opening import Key, Listener, Peer, connect, format_address, parse_address
from leashed.sync import Position, Synchroniser, When

__all__ = [
    "EXCHANGE",
    "Cluster",
    "Session",
    "everywhere",
    "is_local",
    "overdue",
    "reached",
    "within",
]

EXCHANGE = "exchange"
RING = "ring/"

_TICK = 0.01  # seconds between two looks at what is to be done
_REPORT = 0.1  # seconds between two reports
_AHEAD = 0.5  # seconds of training that leases are held for
_AGAIN = 0.2  # seconds before a connection is tried again
_EDGE = 0.3  # seconds in which a new ring is expected where one has ended
_JOIN = 30.0  # seconds in which the master is expected to answer
_CLOSING = 3  # times the deadline: a library meets, connects, and makes its own of that
_PROBING = 5.0  # seconds, at most, in which a sync server has to answer before it is relied on
_HEARING = 0.05  # seconds, at least, before a round from when what is heard is in it
_CONNECTING = 16  # threads that make connections, at most
_UNANSWERED = 1.0  # seconds in which one who has batches to give gives them

_MOVED = ("bytes_out", "bytes_in", "transfers_out", "transfers_in", "kernel_out", "kernel_in")

TRANSPORTS = ("auto", "tcp", "shm")

Address: TypeAlias = "str | Callable[[], str]"

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Cluster:
    """A trainer's place in a run; made by ``leashed.cluster.join``.

    Attributes:
        index: number of this trainer, from 0.
        trainers: how many there are.
        servers: how many sync servers.
        master: the master's address, "host:port", or what tells it.
        key: what every connection is opened with.
        host: where this trainer listens for the others.
        port: on which port there; 0: any that is free.
        transport: between processes of one machine ``"shm"`` (shared memory), ``"tcp"``, or
            ``"auto"``: shared memory where it can be had.
        backend: what ``MA``, ``BMUF`` and the like sum with; a name of
            ``leashed.cluster.collectives``.
        timeout: seconds for a round of synchronisation, and for a connection.
        grace: seconds for which a master that is away is waited for.
        job: a name that all of a run have, where several runs may have one key; empty: none.
        results: whether the master is handed the final parameters, for the model that comes out.
        advertise: the host at which the others reach this trainer. Default: ``host``, or where that
            is 0.0.0.0 or ::, the one that this machine has towards the master.
        meet: in place of ``master``, called with the length of the parameters, the batches of the
            whole run (or None), the batch size, where the run goes on (or None), and what all of the
            run must have alike: tells where
            the master of this run is, and how what was started for it is ended.
        sync: how the parameters are kept in sync with those of the others, from ``leashed.sync``; None:
            not at all.
    """

    index: int
    trainers: int
    servers: int
    master: Address
    key: Key
    host: str = "127.0.0.1"
    port: int = 0
    transport: str = "auto"
    backend: str = collectives.OWN
    timeout: float = 10.0
    grace: float = 10.0
    job: str = ""
    results: bool = True
    advertise: str | None = None
    meet: (
        Callable[
            [int, int | None, int, Position | None, dict[str, str]],
            tuple[Address, Callable[[], None]],
        ]
        | None
    ) = field(default=None, repr=False)
    sync: Synchroniser | None = None

    def session(
        self,
        dimension: int,
        synchroniser: Synchroniser | None,
        *,
        total: int | None,
        batch_size: int,
        workers: int,
        lockstep: bool,
        resumed: Position | None = None,
        left: Position | None = None,
        trained: fingerprint.Trained | None = None,
    ) -> Session:
        """Takes part, from here to the session's end. ``left``: where a process before this one has
        left what this one would begin with (``Session.goes_on``). ``trained``: what is, where that
        is known.

        Raises:
            ImportError: what ``backend`` names is not installed.
            ValueError: ``backend`` does not go with the synchroniser; the run has another model,
                other data, another synchroniser or version, as the message tells; another batch size
                or number of batches or of sync servers, goes on from a checkpoint where this trainer
                does not, or does not where it does, or has no sync server where one is needed.
            OSError: the master cannot be reached in time.
        """
        collectives.check(self.backend, self.trainers, synchroniser)
        told = {
            **fingerprint.of_trainer(dimension, synchroniser, self.backend, trained),
            **fingerprint.of_batches(total, batch_size),
            **fingerprint.of_job(self.job),
        }
        cluster, ended = self, None
        if self.meet is not None:
            master, ended = self.meet(dimension, total, batch_size, resumed, told)
            cluster = replace(self, master=master, meet=None)
        try:
            return Session(
                cluster,
                dimension,
                synchroniser,
                total,
                batch_size,
                workers,
                lockstep,
                resumed,
                left,
                told,
                ended,
            )
        except BaseException:
            if ended is not None:
                ended()
            raise


class Session(Closing):
    """One training of one trainer."""

    def __init__(
        self,
        cluster: Cluster,
        dimension: int,
        synchroniser: Synchroniser | None,
        total: int | None,
        batch_size: int,
        workers: int,
        lockstep: bool,
        resumed: Position | None,
        left: Position | None,
        told: Mapping[str, str],
        ended: Callable[[], None] | None = None,
    ) -> None:
        if synchroniser is not None:
            check_servers(synchroniser, cluster.servers)
        self._ended = ended
        self.leases = _core.Leases()
        self.native: _core.TrainerSync | None = None
        self._cluster = cluster
        self._name = f"trainer-{cluster.index}"
        self._batch_size = batch_size
        self._workers = workers
        self._lockstep = lockstep
        self._resumed = resumed
        # Of rounds until the whole vector has been in one.
        self._parts = 1
        if synchroniser is not None and synchroniser.SERVERS == 0:
            self._parts = min(synchroniser.parts, len(packing.fragments(dimension)))
        self._progress = _Progress(_account(left), parts=self._parts)
        self._events: queue.SimpleQueue[object] = queue.SimpleQueue()
        self._closing = threading.Event()
        self._given: dict[int, int] = {}  # batches of leases that are not complete, by ticket
        self._used: dict[int, int] = {}  # and how many of them are used
        self._batches = 0
        self._asked: float | None = None
        self._rate = 0.0
        self._seen = (time.monotonic(), 0)
        self._reported = 0.0
        self._servers: dict[int, str] = {}
        self._connecting: set[tuple[int, int]] = set()
        self._ring = threading.Condition()
        self._arrived: dict[tuple[int, str], socket.socket] = {}
        self._epoch: Epoch | None = None
        self._ended_at: float | None = None
        self._broken = 0
        self._settled = 0
        self._taken = 0
        self._missing: set[int] = set()
        self._why: dict[int, str] = {}  # it is not reached, by sync server; -1: the ring
        self._troubles: dict[str, _Trouble] = {}  # by what is amiss
        self._outages: Counter[str] = Counter()  # that were told, likewise
        self._known: set[int] = set()  # sync servers that were there
        self._trouble = ""
        self._sums = synchroniser is not None and synchroniser.SERVERS == 0
        self._when = When("background") if synchroniser is None else synchroniser.when
        self._in_step = time.monotonic()  # when nothing was trained since the newest round, last
        self._alone = False  # in the ring that this trainer is in, or was in last
        self._joined: tuple[str, int] | None = None  # of which run, as whom
        self._forming: Epoch | None = None  # whose ring is to be made
        self._places = threading.BoundedSemaphore(_CONNECTING)
        self._meeting = threading.Lock()  # while somebody else's collectives are made
        self._told_end = False
        self._all_given = False  # though not all are used
        self._left = False
        self._cut_short: str | None = None
        self._lost = False
        self._total = total
        self._failure: BaseException | None = None
        self._listener = Listener(cluster.host, cluster.port, cluster.key, "trainer", self._accept)
        try:
            self._member = Member(
                cluster.master,
                cluster.key,
                role="trainer",
                index=cluster.index,
                listening=reached(self._listener, cluster.advertise),
                heard=self._events.put,
                deadline=_JOIN,
                grace=cluster.grace,
                fingerprint=told,
                summing=self._sums,
                kept=None if left is None else _kept(left.run, _account(left)),
            )
            try:
                welcome = self._member.welcome
                self._check(welcome)
                self.goes_on = left is not None and left.run == welcome.run
                if not self.goes_on:
                    self._progress = _Progress(None, parts=self._parts)
                if synchroniser is not None:
                    self.native = native(
                        synchroniser,
                        dimension,
                        cluster.servers,
                        workers,
                        cluster.timeout,
                        welcome.costs or packing.BY_LENGTH,
                    )
                self._thread = threading.Thread(
                    target=self._run, name="leashed-session", daemon=True
                )
                self._thread.start()
            except BaseException:
                self._closing.set()
                self._member.close()
                raise
        except BaseException:
            self._listener.close()
            raise

    def _check(self, welcome: Welcome) -> None:
        if welcome.batch_size != self._batch_size:
            raise ValueError(
                f"batch_size is {self._batch_size}, but the run's is {welcome.batch_size}; all "
                "trainers must have the same"
            )
        if (welcome.resumed is None) != (self._resumed is None):
            here, there = ("begins anew", "goes on from a checkpoint")[
                :: 1 if self._resumed is None else -1
            ]
            raise ValueError(
                f"this trainer {here}, but the run {there}; give resume to all trainers or to none"
            )
        if welcome.total != self._total:
            raise ValueError(
                f"this trainer has {_number(self._total)} batches, but the run "
                f"{_number(welcome.total)}; all trainers must have the same"
            )
        if welcome.sync_ps != self._cluster.servers:
            raise ValueError(
                f"servers is {self._cluster.servers}, but the run has {welcome.sync_ps} sync servers; "
                "give the run's number"
            )

    # The thread of the session.

    def _run(self) -> None:
        try:
            while not self._closing.wait(_TICK):
                self._hear()
                self._follow()
                self._look_for_trouble()
                if self.native is not None and self.native.workers_ended and not self._left:
                    self._leave()  # before an evaluation that may take long
                if not self._left:
                    self._fetch()
                    self._reach_servers()
                    self._tend_ring()
                if time.monotonic() >= self._reported + _REPORT:
                    self.report()
        except Exception as error:  # noqa: BLE001 (finish raises it)
            _log.exception("the session has failed")
            self._failure = error
            self.leases.end(0)

    def _hear(self) -> None:
        with contextlib.suppress(queue.Empty):
            while True:
                event = self._events.get_nowait()
                if isinstance(event, Welcome):
                    if self._joined is not None and event.run != self._joined[0]:
                        self._lost = True
                        self._end_short(f"its master's place is taken by that of run {event.run}")
                        continue
                    if self._joined is not None and event.id != self._joined[1]:
                        self._begin_anew()
                    self._joined = event.run, event.id
                elif isinstance(event, Lease):
                    self._asked = None
                    self._given[event.ticket] = event.count
                    self.leases.give(event.ticket, event.first, event.count)
                elif isinstance(event, Servers):
                    self._servers = dict(event.addresses["sync-ps"])
                    self._known.update(self._servers)
                elif isinstance(event, Epoch):
                    self._change_over(event)
                elif isinstance(event, End):
                    self._told_end = True
                    self._end()
                elif isinstance(event, Bye):
                    if self._told_end or event.reason == FINISHED:
                        self._end()
                    else:
                        self._end_short(event.reason)
                elif isinstance(event, Lost):
                    self._end_short(event.reason)

    def _begin_anew(self) -> None:
        """The master had given this trainer's place up: its batches are others' now."""
        _log.warning("%s joined anew: %s", self._name, self._member.refused)
        self.leases.revoke()
        self._given.clear()
        self._used.clear()
        self._asked = None

    def _end_short(self, reason: str) -> None:
        self._cut_short = reason
        self._end()

    def _end(self) -> None:
        self.leases.end(self._total or 2**62)

    def _fetch(self) -> None:
        """Asks for batches before they run out."""
        now = time.monotonic()
        self._count()
        since, before = self._seen
        if now >= since + _AHEAD:
            self._rate = (self._batches - before) / (now - since)
            self._seen = (now, self._batches)
        ahead = max(2 * self._workers, round(self._rate * _AHEAD))
        if self._lockstep:
            ahead = -(-ahead // self._workers) * self._workers
            # What is left does not fill a step, and nobody gives more, who could have: the last
            # step is filled with batches from beyond.
            asked = self._asked
            if self._given and asked and self._member.heard_at >= asked + _UNANSWERED:
                self._all_given = True
                self._end()
        if self._asked is None and self.leases.left() * 2 < ahead:
            self._asked = now
            self._member.want(ahead)

    def report(self) -> None:
        """Tells the master how far this trainer is."""
        self._reported = time.monotonic()
        self._member.report(self.metrics(), list(self._used.items()))
        for ticket in [t for t, used in self._used.items() if used == self._given.get(t)]:
            del self._used[ticket], self._given[ticket]

    def metrics(self) -> dict[str, float]:
        """What was counted so far, by name."""
        found: dict[str, float] = {
            "examples": self._batches * self._batch_size,
            "batches_used": self._batches,
        }
        if self.native is not None:
            counted = self.native.counters()
            found |= {
                "syncs": counted["syncs"],
                "sync_failed": counted["failed"],
                "sync_partial": counted["partial"],
                "sync_lag": counted["lag"],
                "sync_not_finite": counted["not_finite"],
                "sync_seconds": counted["seconds"],
                "unsynced": self._batches - self._progress.batches,
                "sync_overdue": self._overdue(),
            }
            if self._cluster.backend == collectives.OWN:  # nobody counts those of another
                found |= {name: counted[name] for name in _MOVED if name in counted}
        return found

    def _overdue(self) -> float:
        since = time.monotonic() - self._in_step
        unsynced = self._batches - self._progress.batches
        timeout = self._cluster.timeout
        return overdue(self._when, self._workers, timeout, self._batches, unsynced, since)

    def follow(self) -> Callable[[], Position]:
        """What tells how far the run is, as of about a second ago; the master is asked from now on."""
        self._member.ask()
        return self._position

    def _position(self) -> Position:
        # Heard before it is seen who is there: who comes later has nothing in it.
        run, account = self._member.welcome.run, self._member.account
        together, native = self._together(), self.native
        whole = not together or native is None or (native.left and native.broken < native.ended)
        if self._told_end and self._total is not None and whole:
            return Position(self._total, run=run)
        if together:
            account = self._progress.account
        if account is None:
            return self._resumed or Position(run=run)
        return Position(account.next, account.open, run)

    def _together(self) -> bool:
        """Whether what other trainers use comes to the parameters here by rounds alone; of who has
        left, whether it did.
        """
        epoch = self._member.epoch
        if self.native is not None and epoch is not None:
            ids = [seat.id for seat in epoch.members]
            if self._member.id in ids:  # and the round is over in which the others have left
                self._alone = len(ids) == 1 and self.native.settled >= epoch.number
        return self._sums and not self._alone

    def _follow(self) -> None:
        """Finds out of which account of the run the parameters here are, where trainers sum."""
        if self.native is None:
            return
        counted, epoch = self.native.counters(), self._epoch
        self._together()  # to be known when it has left
        if self._sums and epoch is not None and self.native.settled >= epoch.number > self._taken:
            self._taken = epoch.number
            self._progress.begins_anew()
            if any(seat.id == self._member.id and seat.fresh for seat in epoch.members):
                # They are somebody else's.
                self._progress = _Progress(None, self._batches, self._parts)
                self._member.keeps(None)
        if self._progress(self._batches, self._member.account, counted) and self._sums:
            self._member.keeps(_kept(self._member.welcome.run, self._progress.account))
        if self._batches == self._progress.batches:
            self._in_step = time.monotonic()

    def _look_for_trouble(self) -> None:
        """Says at once what keeps this trainer from being in step with the others, each time, and when
        that is over.
        """
        if self.native is None or self._left or not self._batches:
            return
        now = time.monotonic()
        self._troubles = {
            name: self._troubles.get(name, _Trouble(now)).becomes(why, now)
            for name, why in self._amiss().items()
        }
        timeout = self._cluster.timeout
        lasting = {
            name: each
            for name, each in self._troubles.items()
            if name == "trainers" or now - each.since >= timeout
        }
        for name, each in lasting.items():
            # (What gives way to another reason, as where it ends, is no news yet.)
            if each.told and (each.told == each.why or now - each.changed < timeout):
                continue
            self._outages[name] += not each.told
            each.told = each.why
            # Python says the same text but once.
            again = f" (time {self._outages[name]})" if self._outages[name] > 1 else ""
            try:
                warn(f"{self._name} trains, and is not in step with all others{again}: {each.why}")
            except RuntimeWarning as text:
                # It is made an error, which is not to be one of this thread, that ends it.
                _log.warning("%s", text)
        if not lasting and self._trouble:
            _log.info("%s is in step with the others again", self._name)
        if (trouble := "; ".join(each.why for each in lasting.values())) != self._trouble:
            self._trouble = trouble
            self._member.troubled(trouble)

    def _amiss(self) -> dict[str, str]:
        """What is, in words, by name."""
        epoch, found = self._member.epoch, {}
        for server in sorted(self._missing):
            where = self._servers.get(server)
            name = f"sync server {server}" + (f" at {where}" if where else "")
            why = "it has left the run" if server in self._known else "it has not joined the run"
            if where:
                why = self._why.get(server, "it does not answer")
            found[f"server {server}"] = f"{name} is not reached: {why}"
        ring = 0 if epoch is None or not self._sums else len(epoch.members)
        if epoch is not None and ring > 1 and self.native and self.native.settled < epoch.number:
            why = self._why.get(-1, "a round has not come to its end")
            found["ring"] = f"the ring of {ring} trainers is not made: {why}"
        if epoch is not None and epoch.number == 1 and len(epoch.members) < self._cluster.trainers:
            found["trainers"] = (
                f"{len(epoch.members)} of {self._cluster.trainers} trainers have come; do the others "
                "have this run's address and key?"
            )
        return found

    # Sync servers.

    def _reach_servers(self) -> None:
        if self.native is None or self.native.slots == 0:
            return
        missing = self.native.missing(self._cluster.servers)
        self._missing = {server for _, server in missing}
        for slot, server in missing:
            if (slot, server) in self._connecting or server not in self._servers:
                continue
            self._connecting.add((slot, server))
            address = self._servers[server]
            if not self._start(partial(self._reach_server, slot, server, address)):
                self._connecting.discard((slot, server))
                return  # and is tried again

    def _reach_server(self, slot: int, server: int, address: str) -> None:
        native = self.native
        if native is None:
            return
        try:
            link = self._connect(address, EXCHANGE, "sync-ps")
            checked = not is_local(address)
            patience = min(self._cluster.timeout, _PROBING)
            transport = self._cluster.transport
            if not native.adopt(slot, server, link.detach(), checked, transport, patience):
                raise TimeoutError(f"it does not answer within {patience:g} s")
            self._why.pop(server, None)
        except (OSError, ValueError) as error:
            if self._why.get(server) != str(error):
                _log.info("sync server %d at %s: %s", server, address, error)
            self._why[server] = str(error)
            self._closing.wait(_AGAIN)
        finally:
            self._connecting.discard((slot, server))

    def _connect(self, address: str, purpose: str, expected: str) -> socket.socket:
        return connect(
            address,
            self._cluster.key,
            role="trainer",
            name=within(self._member.welcome.run, self._name),
            purpose=purpose,
            deadline=self._cluster.timeout,
            expected=expected,
        )

    # The ring of trainers.

    def _accept(self, link: socket.socket, peer: Peer) -> None:
        number = peer.purpose.removeprefix(RING)
        if not peer.purpose.startswith(RING) or not number.isdigit() or self._closing.is_set():
            link.close()
            return
        with self._ring:
            if before := self._arrived.pop((int(number), peer.name), None):
                before.close()
            self._arrived[int(number), peer.name] = link
            self._ring.notify_all()

    def _change_over(self, epoch: Epoch) -> None:
        if self.native is None or self.native.slots > 0:
            return
        with self._ring:
            self._epoch = epoch
            self._ended_at = None
            for key in [key for key in self._arrived if key[0] < epoch.number]:
                self._arrived.pop(key).close()
            self._ring.notify_all()
        seated = any(seat.id == self._member.id for seat in epoch.members)
        self._forming = epoch if seated else None

    def _form(self, epoch: Epoch) -> None:
        """Makes the connections of a ring, and hands them to the core."""
        native = self.native
        if native is None:
            return
        seats = epoch.members
        rank = [seat.id for seat in seats].index(self._member.id)
        fresh = [seat.fresh for seat in seats]
        if len(seats) == 1:
            native.form(epoch.number, 0, fresh, -1, -1, False)
            return
        behind, ahead = seats[rank - 1], seats[(rank + 1) % len(seats)]
        forward: socket.socket | None = None
        try:
            forward = self._connect(ahead.address, f"{RING}{epoch.number}", "trainer")
            run = self._member.welcome.run
            backward = self._await(epoch, within(run, f"trainer-{behind.index}"))
        except Exception as error:  # noqa: BLE001 (whatever it is, the others are to know)
            if forward is not None:
                forward.close()
            if self._epoch is epoch and not self._closing.is_set():
                self._why[-1] = str(error)
                _log.info("ring %d: %s", epoch.number, error)
                self._member.broken(epoch.number)
            return
        try:
            if (backend := collectives.BACKENDS[self._cluster.backend]) is None:
                checked = not (is_local(ahead.address) and is_local(behind.address))
                links = backward.detach(), forward.detach()
                native.form(epoch.number, rank, fresh, *links, checked, self._cluster.transport)
            else:
                with backward, forward, self._meeting:
                    collective = self._meet(epoch, rank, backend, backward, forward)
                    native.form_over(epoch.number, rank, fresh, collective)
        except Exception as error:  # noqa: BLE001
            if self._epoch is epoch and not self._closing.is_set():
                self._why[-1] = str(error)
                _log.info("ring %d: %s", epoch.number, error)
                self._member.broken(epoch.number)

    def _meet(
        self,
        epoch: Epoch,
        rank: int,
        backend: collectives.Backend,
        behind: socket.socket,
        ahead: socket.socket,
    ) -> Collective:
        """Makes somebody else's collectives, with all members of a ring."""
        seats, timeout = epoch.members, self._cluster.timeout
        if self._epoch is not epoch or self._closing.is_set():
            raise ConnectionError("it is wanted no more")
        gather = partial(all_gather, behind, ahead, rank=rank, members=len(seats), timeout=timeout)
        host, _ = parse_address(seats[rank].address)
        return backend.meet(Meeting(rank, len(seats), epoch.number, host, timeout, gather))

    def _start(self, work: Callable[[], None]) -> bool:
        """Has a thread do it; False: not now, as too many are at work, or none can be started."""
        if not self._places.acquire(blocking=False):
            return False

        def do() -> None:
            try:
                work()
            finally:
                self._places.release()

        try:
            # No daemon: one that comes back from the core when the interpreter is gone would abort
            # the process. What it waits for has a deadline.
            threading.Thread(target=do, name="leashed-connecting", daemon=False).start()
        except RuntimeError as error:
            self._places.release()
            _log.warning("no thread to connect with: %s", error)
            return False
        return True

    def _await(self, epoch: Epoch, name: str) -> socket.socket:
        key = (epoch.number, name)
        with self._ring:
            self._ring.wait_for(
                lambda: key in self._arrived or self._epoch is not epoch or self._closing.is_set(),
                self._cluster.timeout,
            )
            if key not in self._arrived:
                raise TimeoutError(f"{name} has not called")
            return self._arrived.pop(key)

    def _tend_ring(self) -> None:
        """Tells the master what has become of the ring."""
        epoch = self._epoch
        if self.native is None or epoch is None:
            return
        if (form := self._forming) is not None and self._start(partial(self._form, form)):
            self._forming = None
        if self.native.settled >= epoch.number and self._settled < epoch.number:
            self._settled = epoch.number
            self._member.settled(epoch.number)
        if self.native.ended < epoch.number:
            return
        if self._told_end:  # nothing is left to be trained, so none to be in a ring with
            self._leave()
            return
        # Who left together goes on in the ring that the master makes then.
        if self.native.broken < epoch.number or self._broken >= epoch.number:
            return
        now = time.monotonic()
        self._ended_at = self._ended_at or now
        if now >= self._ended_at + _EDGE:
            self._broken = epoch.number
            self._member.broken(epoch.number)

    # The end.

    def finish(
        self, parameters: NDArray[np.float32], counted: Mapping[str, float]
    ) -> dict[str, float]:
        """The training has ended: hands the parameters in, unless they are not finite. A master that
        is away is waited for, as long as ``Cluster.grace`` says. Where the run ended before its
        batches and this training, or the master stays away, there is a RuntimeWarning that says why,
        and so does ``cut_short``; ``lost`` says whether nobody has heard of this training's end.
        Another says where most synchronisations were without some parameters.

        Args:
            parameters: float32 [d].
            counted: what is told of this trainer beside what was counted here, by name; numbers that
                are not finite are left out.

        Returns:
            All that was counted, by name.
        """
        self._stop()
        if not self._left:
            self._leave()
        if self._failure is not None:
            raise self._failure
        self._hear()
        summary = {
            **self.metrics(),
            **counted,
            "left_early": float(not (self._told_end or self._all_given)),
        }
        summary = {name: value for name, value in summary.items() if math.isfinite(value)}
        # (Who came when all was done has nothing of its own, and maybe gave its result before.)
        trained = summary["batches_used"] or summary.get("updates")
        finite = bool(np.isfinite(parameters).all())
        summary["crashed"] = float(not finite or summary.get("crashed", 0.0) > 0)
        result = parameters if trained and finite else None
        summary["handed_in"] = float(result is not None)
        summary["cut_short"] = float(self._cut_short is not None)
        if self._member.state == "lost" and not self._lost:
            self._lost = True
            self._cut_short = self._cut_short or "the master is away"
        if not self._lost:
            self._hand_in(result, summary)
            self._hear()  # whether it has been confirmed, or the run was over
        if trained and self._cluster.trainers > 1 and summary.get("syncs") == 0:
            warn(
                f"{self._name} was never synchronised with the other trainers: these parameters are of "
                "its own batches alone; the report of the run says so too"
            )
        if self._cut_short is not None:
            warn(
                f"the run ended before its training did ({self._cut_short}); these are the parameters "
                "that this trainer has reached"
            )
        partial, rounds = summary.get("sync_partial", 0.0), summary.get("syncs", 0.0)
        if 2 * partial > rounds:
            warn(
                f"{partial:,.0f} of {rounds:,.0f} synchronisations came to their end, after timeout="
                f"{self._cluster.timeout:g} s, without some of the parameters, of which some wait for "
                f"{summary['sync_lag']:,.0f} by now; a longer timeout, compression, or parts of them "
                "in turn (parts=) are for slow links"
            )
        return summary

    def _hand_in(self, result: NDArray[np.float32] | None, summary: dict[str, float]) -> None:
        if result is not None and self._cluster.results:
            try:
                if not self._send_result(np.ascontiguousarray(result, "<f4").tobytes()):
                    summary["handed_in"] = 0.0
                    why = "the run was over before its parameters were handed in"
                    self._cut_short = self._cut_short or why
            except OSError as error:
                self._lost = True
                self._cut_short = self._cut_short or f"its result cannot be handed in: {error}"
                return
        self._member.finish(summary)
        while not self._member.wait(_REPORT):
            if self._member.state == "lost":
                self._lost = True
                why = "the master has not confirmed that this one ended"
                self._cut_short = self._cut_short or why
                return

    @property
    def lost(self) -> bool:
        """Whether the master has not heard of this training's end."""
        return self._lost

    @property
    def cut_short(self) -> str | None:
        """Why the run ended before its batches and this trainer's training did; None: it did not."""
        return self._cut_short

    def _leave(self) -> None:
        """Takes no more part with the others, which have its batches that are not used: who still
        tries to reach this one is refused at once.
        """
        self._left = True
        self._count()
        self.report()
        apart = self.leases.apart()
        self._batches += sum(count for _, _, count in apart)
        self._member.leave(apart)
        self._listener.close()

    def _send_result(self, data: bytes) -> bool:
        """Whether the master has it; not where the run is over."""
        end, told = math.inf, ""  # as of the first attempt that fails, however long it took
        while self._member.state != "over":  # then nobody takes it any more
            try:
                self._member.send_result(data)
            except OSError as error:
                end = min(end, time.monotonic() + self._cluster.grace)
                if time.monotonic() >= end:
                    raise
                if told != (told := str(error)):
                    _log.info("the result is not out yet: %s", error)
                time.sleep(_AGAIN)
            else:
                return True
        return False

    def _count(self) -> None:
        for ticket, used in self.leases.used():
            self._batches += used - self._used.get(ticket, 0)
            self._used[ticket] = used

    def _stop(self) -> None:
        self._closing.set()
        with self._ring:
            self._ring.notify_all()
        self._thread.join()

    def close(self) -> None:
        """Ends all that goes on; without ``finish`` the others take this trainer for dead."""
        self._stop()
        # A library that connects cannot be called off, and is not to do so when all has ended.
        if self._meeting.acquire(timeout=_CLOSING * self._cluster.timeout):
            self._meeting.release()
        self.native = None  # which closes its connections, once nobody is making another
        self._listener.close()
        self._member.close()
        with self._ring:
            while self._arrived:
                self._arrived.popitem()[1].close()
        if self._ended is not None:
            self._ended()


@dataclass
class _Trouble:
    """What keeps a trainer from being in step.

    Attributes:
        since: when that began.
        why: in words, by now.
        changed: since when it has been so.
        told: of which words; empty: it was not.
    """

    since: float
    why: str = ""
    changed: float = 0.0
    told: str = ""

    def becomes(self, why: str, now: float) -> _Trouble:
        """It goes on, for this reason."""
        if why != self.why:
            self.why, self.changed = why, now
        return self


class _Progress:
    """Of which account of the run parameters are that are summed with others: one that was heard
    before the newest round began, since of what others have used since then nothing is in them. In
    parts: before the newest so many did.

    Attributes:
        account: that; None: of none yet.
        batches: that this trainer had used when the newest round was seen.
    """

    def __init__(self, account: Account | None, batches: int = 0, parts: int = 1) -> None:
        self.account = account
        self.batches = batches
        self._parts = parts
        # How many rounds there were before those that were seen next, and when none of these had begun.
        self._rounds: list[tuple[float, float]] = []
        self._heard: list[tuple[float, Account]] = []  # newest last
        self._syncs: float | None = None
        self._seconds = 0.0

    def __call__(self, batches: int, account: Account | None, counted: Mapping[str, float]) -> bool:
        """To be told often; whether there was a round."""
        now, syncs, seconds = time.monotonic(), counted["syncs"], counted["seconds"]
        if account is not None and (not self._heard or self._heard[-1][1] is not account):
            self._heard.append((now, account))
        if self._syncs is None:
            self._syncs, self._seconds = syncs, seconds
        if syncs == self._syncs:
            return False
        self.batches = batches
        self._rounds.append((self._syncs, now - (seconds - self._seconds) - _HEARING))
        while len(self._rounds) > 1 and self._rounds[1][0] <= syncs - self._parts:
            del self._rounds[0]
        first, began = self._rounds[0]
        before = [each for at, each in self._heard if at <= began]
        if before and first <= syncs - self._parts:
            self.account = before[-1]
            del self._heard[: len(before) - 1]
        self._syncs, self._seconds = syncs, seconds
        return True

    def begins_anew(self) -> None:
        """The next round is of the first part."""
        self._rounds.clear()


def overdue(
    when: When, workers: int, timeout: float, batches: int, unsynced: int, seconds: float
) -> float:
    """For how many seconds a trainer has trained without a round; 0 where by then two, which may take
    ``timeout`` each, were not due.

    Args:
        when: rounds take place.
        workers: worker threads.
        timeout: seconds for a round.
        batches: trained so far.
        unsynced: those since the newest round.
        seconds: since the first of these, or more.
    """
    gaps = [gap for start, gap in when.gaps.items() if start <= batches // workers]
    gap = gaps[-1] if gaps else 0
    steps, pause = (1, gap) if when.kind == "seconds" else (max(1, gap), 0)
    due = unsynced >= 2 * steps * workers and seconds >= 2 * (pause + timeout)
    return seconds if due else 0.0


def _account(left: Position | None) -> Account | None:
    return None if left is None else Account(left.batches, [(a, b) for a, b in left.open])


def _kept(run: str, account: Account | None) -> Kept | None:
    """What is told of it; None where it cannot be, and so counts as nothing."""
    if account is None or not run or len(account.open) > MOST_SPANS:
        return None
    return Kept(run, account.next, account.open)


def _number(total: int | None) -> str:
    return "no end of" if total is None else str(total)


def within(run: str, name: str) -> str:
    """What a process calls itself to others of its run: other runs may have the same key."""
    return f"{name}@{run}"


def is_local(address: str) -> bool:
    """Whether what goes there does not leave this machine."""
    host, _ = parse_address(address)
    return host == "localhost" or host.startswith("127.") or host == "::1"


def everywhere(host: str) -> str:
    """Where to listen so that other machines get here, by the address family of the run's host; only
    with a key that the user has given.
    """
    return "::" if ":" in host else "0.0.0.0"  # noqa: S104


def reached(listener: Listener, advertise: str | None) -> str:
    """Where the others reach what listens here, "host:port"."""
    return listener.address if advertise is None else format_address(advertise, listener.port)
