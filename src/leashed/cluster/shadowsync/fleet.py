"""Trainers side by side in this process, in sync with each other as those of a cluster are.

Each is a call of ``leashed.train`` on a thread of its own, with the threads and the connections that
it would have in a process of its own; no master is needed, since none comes or goes: of a run with a
number of batches each trainer has its part beforehand.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from leashed import _core
from leashed.base.closing import Closing
from leashed.cluster.native import native
from leashed.cluster.shadowsync.servers import Servers, pair
from leashed.sync import Position, Synced, Synchroniser
from leashed.training import defaults
from leashed.training.result import TrainResult
from leashed.training.train import train

if TYPE_CHECKING:
    from typing_extensions import Self

__all__ = ["Trained", "train_together"]

_TICK = 0.002  # seconds between two looks at what is to be done
_AGAIN = 1.0  # seconds after which a ring that has broken is formed again
_GATHERED = 60.0  # seconds in which all trainers are expected to be ready


@dataclass(frozen=True)
class Trained:
    """What came out of a run.

    Attributes:
        results: of each trainer.
        counters: of each trainer's synchronisation: ``syncs``, ``failed``, ``seconds``,
            ``bytes_out``, ``bytes_in``. Empty without one.
        dropped_for_sync: gradients of all trainers that lost their attempt to a synchronisation.
    """

    results: Sequence[TrainResult]
    counters: Sequence[dict[str, float]]
    dropped_for_sync: int

    @property
    def eps(self) -> float:
        """Examples per second of all trainers."""
        return sum(result.mean_eps for result in self.results)

    @property
    def gradients(self) -> int:
        """Of all trainers: iterations."""
        return sum(result.gradients for result in self.results)

    @property
    def syncs(self) -> float:
        """Of all trainers."""
        return sum(counted["syncs"] for counted in self.counters)

    @property
    def sync_gap(self) -> float | None:
        """Eq. 2 of shadowsync, its first form: iterations over syncs. None without any."""
        return self.gradients / self.syncs if self.syncs else None


@dataclass
class _Seat(Closing):
    """A trainer's place, as ``train`` takes it for a cluster."""

    index: int
    native: _core.TrainerSync | None
    leases: _core.Leases | None
    gathered: threading.Barrier
    batches: int  # that are its own
    counted: dict[str, float] = field(default_factory=dict)  # once the training has ended
    used: int = 0  # of the batches, as last asked

    @property
    def rows(self) -> None:
        """Its model reads no tables."""

    @property
    def output(self) -> None:
        """That it makes."""

    @property
    def cut_short(self) -> None:
        """Nothing ends it but its own stop rule."""

    @property
    def lost(self) -> bool:
        """There is no master."""
        return False

    def follow(self) -> Callable[[], Position]:
        """Its own batches, which are not counted before the end."""
        return Position

    def leaves(self) -> bool:
        """Whether it has used all its batches, and so is to leave the ring, or has."""
        assert self.leases is not None
        for _, used in self.leases.used():
            self.used = used
        return self.used == self.batches

    @property
    def goes_on(self) -> bool:
        """No trainer is started again."""
        return False

    @property
    def wants(self) -> bool:
        """There are no checkpoints of the run."""
        return False

    def save(self, put: object) -> None:
        """Nobody wants it."""

    def session(
        self,
        dimension: int,  # noqa: ARG002
        synchroniser: Synchroniser | None,  # noqa: ARG002
        *,
        total: int | None,  # noqa: ARG002
        batch_size: int,  # noqa: ARG002
        workers: int,  # noqa: ARG002
        lockstep: bool,  # noqa: ARG002
        resumed: Position | None = None,  # noqa: ARG002
        left: Position | None = None,  # noqa: ARG002
        trained: tuple[Any, Any, int] | None = None,  # noqa: ARG002
        rows: Any = None,  # noqa: ARG002
    ) -> Self:
        """Begins when all trainers do."""
        self.gathered.wait(_GATHERED)
        return self

    def finish(
        self,
        parameters: NDArray[np.float32],  # noqa: ARG002
        counted: Mapping[str, float],
        statistics: Any = None,  # noqa: ARG002
    ) -> dict[str, float]:
        """The training has ended."""
        self.counted = {**self.metrics(), **counted}
        return self.counted

    def metrics(self) -> dict[str, float]:
        """What was counted so far, by name."""
        return {} if self.native is None else dict(self.native.counters())

    def close(self) -> None:
        """Nothing goes on that would have to be ended."""


class _Rings:
    """The trainers' rings, each when the one before has ended."""

    def __init__(self, seats: Sequence[_Seat]) -> None:
        self._members = list(seats)
        self._epoch = 0
        self._ended: float | None = None
        self._form(fresh=True)

    def _form(self, fresh: bool) -> None:
        self._epoch += 1
        self._ended = None
        count = len(self._members)
        if count == 1:
            self._native(0).form(self._epoch, 0, [fresh], -1, -1, False)
            return
        links = [pair() for _ in range(count)]  # from i to i + 1
        for rank in range(count):
            self._native(rank).form(
                self._epoch,
                rank,
                [fresh] * count,
                links[rank - 1][1].detach(),
                links[rank][0].detach(),
                False,
            )

    def _native(self, rank: int) -> _core.TrainerSync:
        found = self._members[rank].native
        assert found is not None
        return found

    def tend(self) -> None:
        """Forms the next ring of those who go on where one has ended."""
        if all(self._native(rank).ended < self._epoch for rank in range(len(self._members))):
            return
        now = time.monotonic()
        self._ended = self._ended or now
        staying = [seat for seat in self._members if not seat.leaves()]
        if staying and (len(staying) < len(self._members) or now >= self._ended + _AGAIN):
            self._members = staying
            self._form(fresh=False)


def train_together(
    model: Any,
    data: Any,
    *,
    trainers: int,
    threads: int,
    sync: Synchroniser | None,
    servers: Servers | None = None,
    batches: int | None = None,
    timeout: float = 60.0,
    seed: int = 0,
    watch: Callable[[], object] | None = None,
    **settings: Any,
) -> Trained:
    """Train with so many trainers.

    Args:
        model: what they train.
        data: as for ``leashed.train``.
        trainers: how many.
        threads: worker threads of each.
        sync: how they are kept in sync; None: not at all.
        servers: the sync servers, where ``sync`` needs some.
        batches: of the whole run, of which each trainer has as many as the others, or one less.
            Default: batches are every trainer's own, until ``until`` ends the run.
        timeout: seconds for a round of synchronisation.
        seed: of the first replica; without ``batches`` the others draw their batches by the seeds
            after it.
        watch: called on this thread while they train; it may wait.
        settings: other arguments of ``leashed.train``.

    Raises:
        TypeError, ValueError: an argument is wrong; the message names it.
        OSError: connections cannot be made.
    """
    if sync is not None and not sync.SERVERS and batches is None:
        raise ValueError("trainers that synchronise with each other need batches, their end")
    gathered = threading.Barrier(trainers)
    count = 0 if servers is None else servers.count
    seats = [
        _Seat(
            index,
            None if sync is None else native(sync, model.dimension, count, threads, timeout),
            None if batches is None else _core.Leases(),
            gathered,
            0
            if batches is None
            else (index + 1) * batches // trainers - index * batches // trainers,
        )
        for index in range(trainers)
    ]
    init = settings.pop("init", None) or defaults.init(model)
    if isinstance(init, str):
        init = model.init(seed, init)
    _lease(seats)
    _connect(seats, servers)
    rings = _Rings(seats) if sync is not None and not sync.SERVERS else None
    results: dict[int, TrainResult] = {}
    failures: list[BaseException] = []

    def run(seat: _Seat) -> None:
        try:
            results[seat.index] = train(
                model,
                data,
                cluster=seat if sync is None else Synced(seat, sync),
                threads=threads,
                seed=seed if batches is not None else seed + seat.index,
                init=init,
                **settings,
            )
        except BaseException as error:  # noqa: BLE001  it is raised again below
            failures.append(error)
            gathered.abort()

    running = [
        threading.Thread(target=run, args=(seat,), name=f"trainer-{seat.index}") for seat in seats
    ]
    for thread in running:
        thread.start()
    try:
        if watch is not None:
            watch()
    finally:
        while any(thread.is_alive() for thread in running):
            if rings is not None:
                rings.tend()
            else:
                _connect([seat for seat in seats if not seat.counted], servers)
            time.sleep(_TICK)
    if failures:
        raise next(
            (each for each in failures if not isinstance(each, threading.BrokenBarrierError)),
            failures[0],
        )
    return Trained(
        [results[index] for index in range(trainers)],
        [dict(seat.native.counters()) for seat in seats if seat.native is not None],
        sum(int(seat.counted["dropped_for_sync"]) for seat in seats),
    )


def _lease(seats: Sequence[_Seat]) -> None:
    """Hands every trainer its part of the batches, all at once."""
    total = sum(seat.batches for seat in seats)
    first = 0
    for seat in seats:
        if seat.leases is not None:
            if seat.batches:
                seat.leases.give(seat.index, first, seat.batches)
            seat.leases.end(total)
        first += seat.batches


def _connect(seats: Sequence[_Seat], servers: Servers | None) -> None:
    """Makes the connections with sync servers that are missing."""
    if servers is None:
        return
    for seat in seats:
        if seat.native is None:
            continue
        for slot, server in seat.native.missing(servers.count):
            with contextlib.ExitStack() as stack:
                link = stack.enter_context(servers.connect(server))
                seat.native.adopt(slot, server, link.detach(), False)
