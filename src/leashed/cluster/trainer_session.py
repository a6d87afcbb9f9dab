"""A trainer's part in a run: what goes on beside its training, on threads of Python.

The core trains and synchronises; here the master is heard and reported to. What goes on meanwhile is made
in ``tended``, and has a file each: leases (``lease_tending``), connections to servers (``server_tending``)
and in the ring (``ring_tending``), of which account of the run the parameters are (``account_tending``),
cuts (``cut_tending``), and what keeps them from being in step (``troubles``). Its end is ``last_word``.
"""

from __future__ import annotations

import contextlib
import logging
import queue
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from leashed import _core
from leashed.base.closing import Closing
from leashed.cluster.account_tending import account_of, kept_of
from leashed.cluster.addressing import reached
from leashed.cluster.last_word import LastWord
from leashed.cluster.member import JOIN, Lost, Member
from leashed.cluster.messages import FINISHED, Bye, Cut, End, Epoch, Lease, Rows, Servers, Welcome
from leashed.cluster.native import check_servers
from leashed.cluster.opening import Listener
from leashed.cluster.ring_tending import Callers
from leashed.cluster.tended import Tended, Training
from leashed.cluster.trainer_place import TrainerPlace
from leashed.models._running import Running
from leashed.models.tables import Table
from leashed.sync import Position

__all__ = ["Output", "Reached", "Session", "not_known"]

_TICK = 0.02  # seconds between two looks at what is to be done, where nothing is heard
_REPORT = 0.1  # seconds between two reports

_log = logging.getLogger(__name__)


class Reached(NamedTuple):
    """What a training has come to.

    Attributes:
        run: the run's name.
        model: that was trained.
        parameters: float32 [d].
        running: the statistics that the model normalises by; None: there are none.
        lost: whether the master has not heard of it.
    """

    run: str
    model: Any
    parameters: NDArray[np.float32]
    running: Running | None
    lost: bool = False


def not_known() -> str | None:
    """Nobody says why who leads the mode would not come any more."""
    return None


class Output(NamedTuple):
    """What comes out of a run whose tables servers have had.

    Attributes:
        folder: that ``leashed.load`` reads.
        tables: by name, whole; empty where they are not wanted.
        parameters: float32 [d]; those beside the tables there.
        rows: what servers have counted of their rows, as ``TrainResult.rows``.
    """

    folder: Path
    tables: dict[str, Table]
    parameters: NDArray[np.float32]
    rows: dict[str, int]


class Session(Closing):
    """One training of one trainer."""

    def __init__(
        self,
        cluster: TrainerPlace,
        training: Training,
        told: Mapping[str, str],
        ended: Callable[[Reached | None], Output | None] | None = None,
        model: Any = None,
        gone: Callable[[], str | None] = not_known,
    ) -> None:
        if training.synchroniser is not None:
            check_servers(training.synchroniser, cluster.servers)
        sent, left = training.sent, training.left
        self._ended = ended
        self._gone = gone
        self._model = model
        self._reached: Reached | None = None
        self.output: Output | None = None  # once it is closed
        self._cluster = cluster
        self._name = f"trainer-{cluster.index}"
        self._batch_size = training.batch_size
        self._more_come = sent is not None and sent.index.once
        self._events: queue.SimpleQueue[object] = queue.SimpleQueue()
        self._closing = threading.Event()
        self._reported = 0.0
        self._joined: tuple[str, int] | None = None  # of which run, as whom
        self._told_end = False
        self._over = False  # the run: nobody starts a server again
        self._left = False
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
                summing=training.sums,
                kept=None if left is None else kept_of(left.run, account_of(left)),
            )
            apart = training.rows is not None and training.rows.apart
            self._last = LastWord(self._name, cluster, self._member, holds=apart)
            try:
                self._tended = Tended(
                    cluster,
                    self._member,
                    self._callers,
                    self._closing,
                    self._counted,
                    training,
                )
                self._thread = threading.Thread(
                    target=self._run, name="leashed-session", daemon=True
                )
                try:
                    self._thread.start()
                except BaseException:
                    self._tended.no_more_rows()
                    raise
            except BaseException:
                self._closing.set()
                self._member.close()
                raise
        except BaseException:
            self._listener.close()
            raise

    # The thread of the session.

    def _run(self) -> None:
        try:
            self._hear(_TICK)
            while not self._closing.is_set():
                self._turn()
                self._hear(_TICK)
        except Exception as error:  # noqa: BLE001 (finish raises it)
            _log.exception("the session has failed")
            traceback.clear_frames(error.__traceback__)  # which would keep connections open
            self._failure = error
            self.leases.end(0)
            if self.mode is not None:
                self.mode.end()
            if self.rows is not None:
                self.rows.forsake()

    def _turn(self) -> None:
        native = self.native
        if native is not None:
            self._tended.account.follow(
                native, self._tended.ring.epoch, self._tended.leases.batches
            )
            if self._tended.leases.batches and not self._left:
                self._tended.troubles.look(self._tended.amiss(native))
            if native.workers_ended and not self._left:
                self._leave()  # before an evaluation that may take long
        if self.rows is not None:  # also for evaluations behind the end
            self._tended.row_servers.tend(self.rows)
            if self._over and self._tended.row_servers.amiss():
                self.rows.forsake()
        if self.mode is not None:
            self._follow(self.mode)
        elif not self._left:
            self._tended.leases.fetch(pauses=self._tended.cuts.under_way or self._more_come)
            self._tended.cuts.tend(native, self.rows)
            if native is not None:
                self._tend(native)
        if time.monotonic() >= self._reported + _REPORT:
            self.report()

    def _follow(self, mode: _core.ModeTrainer) -> None:
        """Sees to the connections to who leads the mode, once all have come, or have had the time to."""
        if (
            not self._tended.policy_servers.came
            and self.cut_short is None
            and (why := self._gone())
        ):
            self._end_short(why)
        if (epoch := self._member.epoch) is not None:
            self._tended.policy_servers.tend(mode)
            if self._tended.sums is not None:
                self._tended.sums.tend(epoch)
        if not self._left:
            self._tended.troubles.look(self._tended.policy_servers.amiss())

    def _tend(self, native: _core.TrainerSync) -> None:
        """Sees to the connections to others."""
        self._tended.servers.tend(native)
        if not self._tended.ring.tend(native):
            return
        if self._told_end:  # nothing is left to be trained, so none to be in a ring with
            self._leave()
        else:
            self._tended.ring.ended(native)

    @property
    def native(self) -> _core.TrainerSync | None:
        """What moves parameters between this trainer and others; None: nothing does."""
        return self._tended.native

    @property
    def rows(self) -> _core.RemoteRows | None:
        """What asks embedding servers for rows; None: nothing does."""
        return self._tended.rows

    @property
    def mode(self) -> _core.ModeTrainer | None:
        """What trains as who leads the mode says; None: nobody does."""
        return self._tended.mode

    @property
    def goes_on(self) -> bool:
        """Whether what a process before this one has left is of this run."""
        return self._tended.goes_on

    @property
    def leases(self) -> _core.Leases:
        """The batches that this trainer is to train."""
        return self._tended.leases.leases

    def _hear(self, seconds: float = 0.0) -> None:
        """Heeds what has come; waits so long for the first."""
        for event in self._news(seconds):
            if isinstance(event, Welcome):
                if self._joined is not None and event.run != self._joined[0]:
                    self._last.lost = True
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
                self._tended.cuts.over(self.native)
                if self._tended.batches is not None:
                    self._tended.batches.expect(event.first, event.count)
                self._tended.leases.given(event)
            elif isinstance(event, Cut):
                self._tended.cuts.told(event, self.native)
            elif isinstance(event, Servers):
                self._tended.servers.told(event.addresses["sync-ps"])
                self._tended.row_servers.told(event.addresses["embedding-ps"])
                self._tended.policy_servers.told(event.addresses["policy-ps"])
                if self._tended.batches is not None:
                    self._tended.batches.told(event.addresses["reader"])
            elif isinstance(event, Epoch):
                if self.native is not None and self.native.slots == 0:
                    self._tended.ring.change_over(event)
            elif isinstance(event, End):
                self._told_end = True
                self._no_more()
            elif isinstance(event, Bye):
                self._over = True
                if self._told_end or event.reason == FINISHED:
                    self._no_more()
                else:
                    self._end_short(event.reason)
            elif isinstance(event, Lost):
                self._end_short(event.reason)

    def _news(self, seconds: float) -> Iterator[object]:
        with contextlib.suppress(queue.Empty):
            yield self._events.get(timeout=seconds)
            while True:
                yield self._events.get_nowait()

    def _know(self, rows: int) -> None:
        """There are so many, of those that come once."""
        assert self._tended.batches is not None
        self._tended.batches.know(rows)
        self._tended.leases.know(-(-rows // self._batch_size))
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
        self._tended.leases.begin_anew()
        if self._tended.batches is not None:
            self._tended.batches.forget()

    def _end_short(self, reason: str) -> None:
        self._over = True
        self._last.cut_short = reason
        if self.mode is not None:
            self.mode.end()
        self._no_more()

    def _no_more(self) -> None:
        """There are no more batches, nor rows of those that nobody sends any more."""
        self._tended.leases.end()
        if self._tended.batches is not None:
            self._tended.batches.end()

    def report(self) -> None:
        """Tells the master how far this trainer is."""
        self._reported = time.monotonic()
        self._member.report(self.metrics(), self._tended.leases.used())

    def _counted(self) -> None:
        self._tended.leases.count()
        self.report()

    @property
    def wants(self) -> bool:
        """Whether what is trained is to be saved now: workers rest, and the run is at a cut."""
        return self._tended.cuts.wants

    def save(self, put: Callable[[Path, Position], None]) -> None:
        """Saves it: ``put`` writes what is trained to a file, with how far the run is."""
        self._tended.cuts.save(put, self.native)

    def metrics(self) -> dict[str, float]:
        """What was counted so far, by name."""
        return self._tended.metrics()

    def follow(self) -> Callable[[], Position]:
        """What tells how far the run is, as of about a second ago; the master is asked from now on."""
        self._member.ask()
        return self._position

    def _position(self) -> Position:
        return self._tended.account.position(self.native, self._told_end)

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
        if self._model is not None and np.isfinite(parameters).all():
            self._reached = Reached(self._member.welcome.run, self._model, parameters, statistics)
        early = float(not (self._told_end or self._tended.leases.all_given))
        summary = self._last.say(
            {**self.metrics(), **counted, "left_early": early}, parameters, statistics
        )
        self._hear()  # whether it has been confirmed, the run was over, or why the master is lost
        self._last.remark(summary)
        return summary

    def _await_end(self) -> None:
        """Who leads the mode has ended it, and the master is to hear of that before it does of this end."""
        end = time.monotonic() + self._cluster.grace
        while not (self._told_end or self.cut_short or self._failure) and time.monotonic() < end:
            time.sleep(_TICK)

    @property
    def lost(self) -> bool:
        """Whether the master has not heard of this training's end."""
        return self._last.lost

    @property
    def cut_short(self) -> str | None:
        """Why the run ended before its batches and this trainer's training did; None: it did not."""
        return self._last.cut_short

    def _leave(self) -> None:
        """Takes no more part with the others, which have its batches that are not used: who still
        tries to reach this one is refused at once.
        """
        self._left = True
        self._tended.leases.count()
        self.report()
        self._member.leave(self._tended.leases.apart())
        self._listener.close()

    def _stop(self) -> None:
        self._closing.set()
        self._events.put(None)  # which wakes the thread
        self._callers.wake()
        self._thread.join()

    def close(self) -> None:
        """Ends all that goes on; without ``finish`` the others take this trainer for dead."""
        self._stop()
        self._tended.close()
        self._listener.close()
        self._member.close()
        self._callers.close()
        if self._ended is not None:
            reached = self._reached
            told = None if reached is None else reached._replace(lost=self.lost)
            self.output = self._ended(told)


def _joins_in(cluster: TrainerPlace, sent: object) -> float:
    """Seconds in which the master is there, which rank 0 starts once it has read all that the run goes on
    from, and has counted the rows that readers send.
    """
    reads = sent is not None or cluster.begins is not None
    return max(JOIN, cluster.patience) if reads else JOIN
