"""A trainer's part in a run: what goes on beside its training, on threads of Python.

The core trains and synchronises; here the master is heard and reported to. What goes on meanwhile has
a file each: leases (``lease_tending``), connections to sync servers (``server_tending``) and in the ring
(``ring_tending``), of which account of the run the parameters are (``account_tending``), and what keeps
them from being in step (``troubles``).
"""

from __future__ import annotations

import contextlib
import logging
import math
import os
import queue
import threading
import time
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from leashed import _core
from leashed.base.closing import Closing
from leashed.base.warning import warn
from leashed.cluster import collectives, fingerprint, packing, passed_rows, row_packing
from leashed.cluster.account_tending import AccountTending, account_of, kept_of
from leashed.cluster.addressing import everywhere, is_local, reached
from leashed.cluster.checkpoints import Checkpoint, found
from leashed.cluster.connecting import Connecting
from leashed.cluster.cut_tending import TrainerCuts
from leashed.cluster.lease_tending import LeaseTending
from leashed.cluster.member import JOIN, Lost, Member
from leashed.cluster.messages import FINISHED, Bye, Cut, End, Epoch, Lease, Rows, Servers, Welcome
from leashed.cluster.mode_trainer import mode_trainer
from leashed.cluster.native import check_servers, native
from leashed.cluster.opening import Key, Listener
from leashed.cluster.remote_batches import BatchTending, SentSparse, SentStream, sent
from leashed.cluster.remote_rows import remote_rows
from leashed.cluster.results import Result
from leashed.cluster.ring_tending import Callers, RingTending
from leashed.cluster.row_index import comes_once, index_of
from leashed.cluster.server_tending import EXCHANGE, POLICY, ROWS, ServerTending
from leashed.cluster.troubles import TRAINERS, Troubles
from leashed.files.resuming import AtCut, Resume
from leashed.models._running import Running
from leashed.models.tables import Table
from leashed.stream import SparseStream, Stream
from leashed.sync import Position, Synchroniser, When
from leashed.training.led_mode import LedMode
from leashed.training.rows_read import RowsRead

__all__ = [
    "EXCHANGE",
    "Cluster",
    "Met",
    "Output",
    "Reached",
    "Session",
    "everywhere",
    "is_local",
    "reached",
]

_TICK = 0.01  # seconds between two looks at what is to be done
_REPORT = 0.1  # seconds between two reports
_AGAIN = 0.2  # seconds before the result is sent again

_MOVED = ("bytes_out", "bytes_in", "transfers_out", "transfers_in", "kernel_out", "kernel_in")

TRANSPORTS = ("auto", "tcp", "shm")

Address: TypeAlias = "str | Callable[[], str]"

_log = logging.getLogger(__name__)


class Reached(NamedTuple):
    """What a training has come to.

    Attributes:
        run: the run's name.
        model: that was trained.
        parameters: float32 [d].
        running: the statistics that the model normalises by; None: there are none.
    """

    run: str
    model: Any
    parameters: NDArray[np.float32]
    running: Running | None


def not_known() -> str | None:
    """Nobody says why who leads the mode would not come any more."""
    return None


class Met(NamedTuple):
    """What was started for a training.

    Attributes:
        master: where its master is.
        ended: ends it; called with what the training has come to (or None), it tells the output of the run,
            where it makes one.
        cuts: the folder of the run's checkpoints; None: this trainer saves nothing.
        gone: why who leads the mode will not come any more; None: that is not known.
    """

    master: Address
    ended: Callable[[Reached | None], Output | None]
    cuts: Path | None
    gone: Callable[[], str | None] = not_known


class Output(NamedTuple):
    """What comes out of a run with embedding servers.

    Attributes:
        folder: that ``leashed.load`` reads.
        tables: by name, whole; empty where they are not wanted.
    """

    folder: Path
    tables: dict[str, Table]


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
            run must have alike, the rows that it reads of embedding servers (or None), the checkpoint that
            it goes on from (or None), the stream that readers read (or None), and the mode that policy servers lead (or None).
        embedding_servers: how many hold the rows of the model's tables.
        look_ahead: of how many batches rows are asked for while one before them is computed.
        pooling: where rows that the model reads pooled are: ``"auto"``, ``"servers"`` or ``"rows"``.
        readers: how many send the rows that are trained on.
        policy_servers: how many lead the mode by which is trained.
        patience: seconds for which an embedding server is waited for, a reader, and a policy server.
        sync: how the parameters are kept in sync with those of the others, from ``leashed.sync``; None:
            not at all.
        rows_in: where the rows of streams are counted that readers send; None: nowhere.
        folder: the run's, for the final parameters; None: the master is sent them.
        cuts: that of the run's checkpoints; None: this trainer saves nothing.
        begins: the checkpoint's folder that the run goes on from; None: it begins.
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
            [
                int,
                int | None,
                int,
                Position | None,
                dict[str, str],
                RowsRead | None,
                Checkpoint | None,
                SentSparse | SentStream | None,
                LedMode | None,
            ],
            Met,
        ]
        | None
    ) = field(default=None, repr=False)
    embedding_servers: int = 0
    look_ahead: int = 1
    pooling: str = "auto"
    readers: int = 0
    policy_servers: int = 0
    patience: float = 300.0
    sync: Synchroniser | None = None
    rows_in: Path | None = None
    folder: Path | None = None
    cuts: Path | None = None
    begins: Path | None = None

    def resuming(self, given: Resume | None) -> tuple[Cluster, Resume | None]:
        """Where ``given`` is a checkpoint of a whole run, or the folder of such a run, of which that is the
        newest: this place in a run that goes on from it, and what this trainer does.

        Raises:
            OSError, ValueError: it has none, or it cannot be read.
        """
        if not isinstance(given, (str, os.PathLike)) or (begins := found(given)) is None:
            return self, given
        return replace(self, begins=begins.folder), AtCut(begins.file(self.index))

    def sending(self, model: object, stream: Stream | SparseStream) -> SentSparse | SentStream:
        """A stream as readers send it to a training of that model; its rows are counted.

        Raises:
            OSError: a file cannot be read.
            ValueError: readers do not read such a stream, or a line is bad; the message says which.
        """
        if stream.order["shuffle"]:
            raise ValueError(
                f"{stream.name} is given with shuffle, and readers send rows in the order of the files; "
                "leave shuffle out, or write the files in another order"
            )
        assert self.rows_in is not None
        if isinstance(stream, Stream) and stream.repeatable and not stream.files:
            if self.readers != 1:
                raise ValueError(
                    f"readers must be 1 for {stream.name}, whose rows are objects of rank 0's process, which "
                    f"sends them to all; got {self.readers}"
                )
            return sent(stream, passed_rows.index_of(stream), 1)
        if comes_once(stream) and self.readers != 1:
            raise ValueError(
                f"readers must be 1 for {stream.name}, a pipe, which can be read once; got {self.readers}"
            )
        return sent(stream, index_of(stream, model, self.rows_in), self.readers)

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
        rows: RowsRead | None = None,
        sent: SentSparse | SentStream | None = None,
        led: LedMode | None = None,
    ) -> Session:
        """Takes part, from here to the session's end. ``left``: where a process before this one has
        left what this one would begin with (``Session.goes_on``). ``trained``: what is, where that
        is known. ``rows``: of tables that embedding servers hold; None: it reads none.
        ``sent``: what readers read; None: there are none. ``led``: the mode that is trained by; None: none.

        Raises:
            ImportError: what ``backend`` names is not installed.
            ValueError: ``backend`` does not go with the synchroniser; there are embedding servers, and
                no rows; the run has another model,
                other data, another synchroniser or version, as the message tells; another batch size
                or number of batches or of sync servers, goes on from a checkpoint where this trainer
                does not, from another one, or does not where it does, or has no sync server where one is
                needed.
            OSError: the master cannot be reached in time.
        """
        collectives.check(self.backend, self.trainers, synchroniser)
        if self.embedding_servers and rows is None:
            raise ValueError(
                "cluster has embedding servers, which are for leashed.train of a model that reads tables; "
                "join without embedding_servers"
            )
        if self.policy_servers and led is None:
            raise ValueError(
                "cluster has a policy server, which is for leashed.train with a mode; join without "
                "policy_servers"
            )
        told = {
            **fingerprint.of_trainer(dimension, synchroniser, self.backend, trained),
            **fingerprint.of_batches(total, batch_size),
            **fingerprint.of_begin(resumed is not None or self.begins is not None),
            **fingerprint.of_servers(
                {
                    "sync-ps": self.servers,
                    "embedding-ps": self.embedding_servers,
                    "policy-ps": self.policy_servers,
                }
            ),
            **fingerprint.of_job(self.job),
        }
        if rows is not None:
            told |= fingerprint.of_rows(rows.rule, rows.staleness, rows.seed)
        if led is not None:
            told |= fingerprint.of_mode(led)
        begins = None if self.begins is None else Checkpoint(self.begins)
        if begins is not None:
            told |= fingerprint.of_checkpoint(begins.told["run"], begins.number)
        cluster, ended, gone = self, None, not_known
        if self.meet is not None:
            if begins is not None:
                begins.require(told, same_data=True)
            met = self.meet(dimension, total, batch_size, resumed, told, rows, begins, sent, led)
            ended, gone = met.ended, met.gone
            cluster = replace(self, master=met.master, cuts=met.cuts, meet=None)
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
                rows,
                None if trained is None else trained[0],
                sent,
                led,
                gone,
            )
        except BaseException:
            if ended is not None:
                ended(None)
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
        ended: Callable[[Reached | None], Output | None] | None = None,
        rows: RowsRead | None = None,
        model: Any = None,
        sent: SentSparse | SentStream | None = None,
        led: LedMode | None = None,
        gone: Callable[[], str | None] = not_known,
    ) -> None:
        if synchroniser is not None:
            check_servers(synchroniser, cluster.servers)
        self._ended = ended
        self._gone = gone
        self._model = model
        self._reached: Reached | None = None
        self.output: Output | None = None  # once it is closed
        self.native: _core.TrainerSync | None = None
        self.rows: _core.RemoteRows | None = None
        self.mode: _core.ModeTrainer | None = None
        self._batches: BatchTending | None = None
        self._cluster = cluster
        self._name = f"trainer-{cluster.index}"
        self._batch_size = batch_size
        self._sums = synchroniser is not None and synchroniser.SERVERS == 0
        parts = 1
        if self._sums and synchroniser is not None:
            parts = min(synchroniser.parts, len(packing.fragments(dimension)))
        self._more_come = sent is not None and sent.index.once
        self._events: queue.SimpleQueue[object] = queue.SimpleQueue()
        self._closing = threading.Event()
        self._reported = 0.0
        self._joined: tuple[str, int] | None = None  # of which run, as whom
        self._told_end = False
        self._left = False
        self._cut_short: str | None = None
        self._lost = False
        self._failure: BaseException | None = None
        self._callers = Callers(self._closing)
        self._listener = Listener(
            cluster.host, cluster.port, cluster.key, "trainer", self._callers.accept
        )
        try:
            self._member = Member(
                cluster.master,
                cluster.key,
                role="trainer",
                index=cluster.index,
                listening=reached(self._listener, cluster.advertise),
                heard=self._events.put,
                deadline=None if ended is None else _joins_in(cluster, sent),
                grace=cluster.grace,
                fingerprint=told,
                summing=self._sums,
                kept=None if left is None else kept_of(left.run, account_of(left)),
            )
            try:
                welcome = self._member.welcome
                placed = welcome.placed.get("sync-ps")
                if rows is not None:
                    self.rows = remote_rows(
                        rows,
                        row_packing.told(rows, cluster.embedding_servers, welcome).placement,
                        cluster.index,
                        welcome.id,
                        workers,
                        cluster.embedding_servers,
                        cluster.timeout,
                        cluster.patience,
                        cluster.look_ahead,
                        cluster.pooling,
                    )
                if led is not None:
                    self.mode = mode_trainer(
                        led, welcome.run, cluster.index, welcome.id, workers, cluster.patience
                    )
                self.goes_on = left is not None and left.run == welcome.run
                connecting = Connecting(
                    self._name, welcome.run, cluster.key, cluster.timeout, self._closing
                )
                self._servers = ServerTending(
                    "sync-ps", EXCHANGE, connecting, cluster.servers, cluster.transport
                )
                self._row_servers = ServerTending(
                    "embedding-ps",
                    ROWS,
                    connecting,
                    cluster.embedding_servers,
                    cluster.transport,
                )
                self._policy_servers = ServerTending(
                    "policy-ps", POLICY, connecting, cluster.policy_servers, cluster.transport
                )
                if sent is not None:
                    self._batches = BatchTending(
                        sent, connecting, cluster.readers, cluster.patience
                    )
                self._ring = RingTending(
                    connecting, self._callers, self._member, cluster.backend, cluster.transport
                )
                # (Of the moment of its parameters: who goes on from what was kept takes others'.)
                states, within = (None, None) if left is not None else self._begun(dimension)
                self._leases = LeaseTending(self._member, total, workers, lockstep)
                self._account = AccountTending(
                    self._member,
                    left if self.goes_on else None,
                    resumed,
                    total=total,
                    sums=self._sums,
                    parts=parts,
                    when=When("background") if synchroniser is None else synchroniser.when,
                    workers=workers,
                    timeout=cluster.timeout,
                    within=within,
                )
                self._cuts = TrainerCuts(
                    self._member,
                    self._name,
                    cluster.cuts,
                    cluster.begins,
                    workers,
                    self._leases.leases,
                    self._counted,
                )
                self._troubles = Troubles(self._name, cluster.timeout, self._member.troubled)
                if synchroniser is not None:
                    self.native = native(
                        synchroniser,
                        dimension,
                        cluster.servers,
                        workers,
                        cluster.timeout,
                        placed.costs if placed else packing.BY_LENGTH,
                        goes_on=cluster.begins is not None and welcome.begins,
                        states=states,
                        within=within,
                    )
                self._thread = threading.Thread(
                    target=self._run, name="leashed-session", daemon=True
                )
                self._thread.start()
            except BaseException:
                self._closing.set()
                if self._batches is not None:
                    self._batches.close()  # whose threads may be in the core
                self._member.close()
                raise
        except BaseException:
            self._listener.close()
            raise

    def _begun(
        self, dimension: int
    ) -> tuple[NDArray[np.float32] | None, NDArray[np.float64] | None]:
        """Of the checkpoint that the run goes on from, if it does, what trainers that sum had together, and
        where this one's workers were between two rounds.
        """
        if self._cluster.begins is None:
            return None, None
        begins = Checkpoint(self._cluster.begins)
        return begins.states(dimension) if self._sums else None, begins.within(self._cluster.index)

    # The thread of the session.

    def _run(self) -> None:
        try:
            while not self._closing.wait(_TICK):
                self._turn()
        except Exception as error:  # noqa: BLE001 (finish raises it)
            _log.exception("the session has failed")
            traceback.clear_frames(error.__traceback__)  # which would keep connections open
            self._failure = error
            self.leases.end(0)
            if self.mode is not None:
                self.mode.end()

    def _turn(self) -> None:
        self._hear()
        native = self.native
        if native is not None:
            self._account.follow(native, self._ring.epoch, self._leases.batches)
            if self._leases.batches and not self._left:
                self._troubles.look(self._amiss(native))
            if native.workers_ended and not self._left:
                self._leave()  # before an evaluation that may take long
        if self.rows is not None:  # also for evaluations behind the end
            self._row_servers.tend(self.rows)
        if self.mode is not None:
            self._follow(self.mode)
        elif not self._left:
            self._leases.fetch(pauses=self._cuts.under_way or self._more_come)
            self._cuts.tend(native, self.rows)
            if native is not None:
                self._tend(native)
        if time.monotonic() >= self._reported + _REPORT:
            self.report()

    def _follow(self, mode: _core.ModeTrainer) -> None:
        """Sees to the connections to who leads the mode, once all have come, or have had the time to."""
        if not self._policy_servers.came and self._cut_short is None and (why := self._gone()):
            self._end_short(why)
        if self._member.epoch is not None:
            self._policy_servers.tend(mode)
        if not self._left:
            self._troubles.look(self._policy_servers.amiss())

    def _tend(self, native: _core.TrainerSync) -> None:
        """Sees to the connections to others."""
        self._servers.tend(native)
        if not self._ring.tend(native):
            return
        if self._told_end:  # nothing is left to be trained, so none to be in a ring with
            self._leave()
        else:
            self._ring.ended(native)

    def _amiss(self, native: _core.TrainerSync) -> dict[str, str]:
        """What keeps this trainer from being in step with the others, in words, by name."""
        epoch, trainers = self._member.epoch, self._cluster.trainers
        found = self._servers.amiss()
        if self.rows is not None:
            found |= self._row_servers.amiss()
        if self._sums:
            found |= self._ring.amiss(native)
        if epoch is not None and epoch.number == 1 and len(epoch.members) < trainers:
            found[TRAINERS] = (
                f"{len(epoch.members)} of {trainers} trainers have come; do the others have this "
                "run's address and key?"
            )
        return found

    @property
    def leases(self) -> _core.Leases:
        """The batches that this trainer is to train."""
        return self._leases.leases

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
                    if event.rows is not None:
                        self._know(event.rows)
                elif isinstance(event, Rows):
                    self._know(event.rows)
                elif isinstance(event, Lease):
                    self._cuts.over(self.native)
                    if self._batches is not None:
                        self._batches.expect(event.first, event.count)
                    self._leases.given(event)
                elif isinstance(event, Cut):
                    self._cuts.told(event, self.native)
                elif isinstance(event, Servers):
                    self._servers.told(event.addresses["sync-ps"])
                    self._row_servers.told(event.addresses["embedding-ps"])
                    self._policy_servers.told(event.addresses["policy-ps"])
                    if self._batches is not None:
                        self._batches.told(event.addresses["reader"])
                elif isinstance(event, Epoch):
                    if self.native is not None and self.native.slots == 0:
                        self._ring.change_over(event)
                elif isinstance(event, End):
                    self._told_end = True
                    self._no_more()
                elif isinstance(event, Bye):
                    if self._told_end or event.reason == FINISHED:
                        self._no_more()
                    else:
                        self._end_short(event.reason)
                elif isinstance(event, Lost):
                    self._end_short(event.reason)

    def _know(self, rows: int) -> None:
        """There are so many, of those that come once."""
        assert self._batches is not None
        self._batches.know(rows)
        self._leases.know(-(-rows // self._batch_size))
        self._more_come = False

    def _begin_anew(self) -> None:
        """The master had given this trainer's place up: its batches are others' now."""
        _log.warning(
            "%s joined anew, as the master had taken it for dead (%s): what it had not told of is trained "
            "by others too, as 'again' and 'twice' in the ledger say. Where it stands still for so long "
            "again and again, give a longer timeout",
            self._name,
            self._member.refused,
        )
        self._leases.begin_anew()
        if self._batches is not None:
            self._batches.forget()

    def _end_short(self, reason: str) -> None:
        self._cut_short = reason
        if self.mode is not None:
            self.mode.end()
        self._no_more()

    def _no_more(self) -> None:
        """There are no more batches, nor rows of those that nobody sends any more."""
        self._leases.end()
        if self._batches is not None:
            self._batches.end()

    def report(self) -> None:
        """Tells the master how far this trainer is."""
        self._reported = time.monotonic()
        self._member.report(self.metrics(), self._leases.used())

    def _counted(self) -> None:
        self._leases.count()
        self.report()

    @property
    def wants(self) -> bool:
        """Whether what is trained is to be saved now: workers rest, and the run is at a cut."""
        return self._cuts.wants

    def save(self, put: Callable[[Path, Position], None]) -> None:
        """Saves it: ``put`` writes what is trained to a file, with how far the run is."""
        self._cuts.save(put, self.native)

    def metrics(self) -> dict[str, float]:
        """What was counted so far, by name."""
        batches = self._leases.batches
        found: dict[str, float] = {
            "examples": batches * self._batch_size,
            "batches_used": batches,
        }
        if self.rows is not None:
            found |= {f"row_{name}": float(n) for name, n in self.rows.counters().items()}
            pooled = enumerate(self.rows.pooled or ())
            found |= {f"row_pooled_{feature}": float(at) for feature, at in pooled}
        if self._batches is not None:
            found |= self._batches.counters()
        if self.mode is not None:
            of_mode = self.mode.counters()
            found |= {name: of_mode[name] for name in ("examples", *_MOVED) if name in of_mode}
            # (Leases may be of other numbers of examples.)
            found["batches_used"] = of_mode["examples"] / self._batch_size
            found |= {f"mode_{name}": of_mode[name] for name in ("cut", "hung", "left_out")}
        if self.native is not None:
            counted = self.native.counters()
            found |= {
                "syncs": counted["syncs"],
                "sync_failed": counted["failed"],
                "sync_partial": counted["partial"],
                "sync_lag": counted["lag"],
                "sync_not_finite": counted["not_finite"],
                "sync_seconds": counted["seconds"],
                "unsynced": self._account.unsynced(batches),
                "sync_overdue": self._account.overdue(batches),
            }
            if self._cluster.backend == collectives.OWN:  # nobody counts those of another
                found |= {name: counted[name] for name in _MOVED if name in counted}
        return found

    def follow(self) -> Callable[[], Position]:
        """What tells how far the run is, as of about a second ago; the master is asked from now on."""
        self._member.ask()
        return self._position

    def _position(self) -> Position:
        return self._account.position(self.native, self._told_end)

    # The end.

    def finish(
        self,
        parameters: NDArray[np.float32],
        counted: Mapping[str, float],
        statistics: Running | None = None,
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
            statistics: running ones, which follow the parameters; None: there are none.

        Returns:
            All that was counted, by name.
        """
        if self.mode is not None and self.mode.ended:
            self._await_end()
        self._stop()
        if not self._left:
            self._leave()
        if self._failure is not None:
            raise self._failure
        self._hear()
        summary = {
            **self.metrics(),
            **counted,
            "left_early": float(not (self._told_end or self._leases.all_given)),
        }
        if statistics is not None:
            summary["statistics_batches"] = float(statistics.batches)
            summary["statistics_near_zero"] = float(statistics.near_zero)
        summary = {name: value for name, value in summary.items() if math.isfinite(value)}
        # (Who came when all was done has nothing of its own, and maybe gave its result before.)
        trained = summary["batches_used"] or summary.get("updates")
        finite = bool(np.isfinite(parameters).all())
        summary["crashed"] = float(not finite or summary.get("crashed", 0.0) > 0)
        result = None
        if trained and finite:
            behind = () if statistics is None else (statistics.values,)
            result = Result(self._name, parameters, *behind)
        if finite and self._model is not None:
            self._reached = Reached(self._member.welcome.run, self._model, parameters, statistics)
        summary["handed_in"] = float(result is not None)
        summary["cut_short"] = float(self._cut_short is not None)
        if self._member.state == "lost" and not self._lost:
            self._lost = True
            self._cut_short = self._cut_short or "the master is away"
        if not self._lost:
            self._hand_in(result, summary)
            self._hear()  # whether it has been confirmed, or the run was over
        # (Who goes on from a checkpoint of which all batches are used has its parameters, and none of its own.)
        alone = summary["batches_used"] and summary.get("syncs") == 0
        if alone and self._cluster.trainers > 1:
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

    def _await_end(self) -> None:
        """Who leads the mode has ended it, and the master is to hear of that before it does of this end."""
        end = time.monotonic() + self._cluster.grace
        while not (self._told_end or self._cut_short or self._failure) and time.monotonic() < end:
            time.sleep(_TICK)

    def _hand_in(self, result: Result | None, summary: dict[str, float]) -> None:
        if result is not None and self._cluster.results:
            self._put(result)
            try:
                if not self._send_result(result):
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
        self._leases.count()
        self.report()
        self._member.leave(self._leases.apart())
        self._listener.close()

    def _put(self, result: Result) -> None:
        """Writes it, for the master to find; which is sent it where it does not."""
        if self._cluster.folder is None:
            return
        try:
            result.put(self._cluster.folder)
        except OSError as error:
            _log.warning("the result goes to the master alone, as it cannot be written: %s", error)

    def _send_result(self, result: Result) -> bool:
        """Whether the master has it; not where the run is over."""
        end, told = math.inf, ""  # as of the first attempt that fails, however long it took
        while self._member.state != "over":  # then nobody takes it any more
            try:
                self._member.send_result(result)
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

    def _stop(self) -> None:
        self._closing.set()
        self._callers.wake()
        self._thread.join()

    def close(self) -> None:
        """Ends all that goes on; without ``finish`` the others take this trainer for dead."""
        self._stop()
        if self._batches is not None:
            self._batches.close()
        self._ring.close()
        self.rows = None
        self.native = None  # which closes its connections, once nobody is making another
        self._listener.close()
        self._member.close()
        self._callers.close()
        if self._ended is not None:
            self.output = self._ended(self._reached)


def _joins_in(cluster: Cluster, sent: object) -> float:
    """Seconds in which the master is there, which rank 0 starts once it has read all that the run goes on
    from, and has counted the rows that readers send.
    """
    reads = sent is not None or cluster.begins is not None
    return max(JOIN, cluster.patience) if reads else JOIN
