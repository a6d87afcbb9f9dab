"""What a trainer tends beside its training, made of its place in the run, and what is counted of it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from leashed import _core
from leashed.cluster import collectives, packing, row_packing
from leashed.cluster.account_tending import AccountTending
from leashed.cluster.checkpoints import Checkpoint
from leashed.cluster.connecting import Connecting
from leashed.cluster.cut_tending import TrainerCuts
from leashed.cluster.lease_tending import LeaseTending
from leashed.cluster.member import Member
from leashed.cluster.mode_trainer import mode_trainer
from leashed.cluster.native import native
from leashed.cluster.remote_batches import BatchTending, SentSparse, SentStream
from leashed.cluster.remote_rows import remote_rows
from leashed.cluster.ring_tending import Callers, RingTending
from leashed.cluster.server_tending import EXCHANGE, POLICY, ROWS, ServerTending
from leashed.cluster.sum_tending import SumTending
from leashed.cluster.trainer_place import TrainerPlace
from leashed.cluster.troubles import TRAINERS, Troubles
from leashed.sync import Position, Synchroniser, When
from leashed.training.led_mode import LedMode
from leashed.training.rows_read import RowsRead

__all__ = ["Tended", "Training"]

_MOVED = ("bytes_out", "bytes_in", "transfers_out", "transfers_in", "kernel_out", "kernel_in")


@dataclass(frozen=True, eq=False)
class Training:
    """What a trainer's part in a run has to know of its training.

    Attributes:
        dimension: how many parameters there are.
        synchroniser: how they are kept in sync with those of others; None: not at all.
        total: batches of the whole run; None: that is not known.
        batch_size: their examples.
        workers: the trainer's threads; by a mode as many for each more as it looks ahead.
        lockstep: as of ``LeaseTending``.
        resumed: where the run goes on from a checkpoint; None: it does not.
        left: where a process before this one has left what this one begins with; None: there was none.
        rows: of tables that embedding servers hold, or who leads the mode; None: it reads none.
        sent: what readers read; None: there are none.
        led: the mode that is trained by; None: none.
    """

    dimension: int
    synchroniser: Synchroniser | None
    total: int | None
    batch_size: int
    workers: int
    lockstep: bool
    resumed: Position | None
    left: Position | None
    rows: RowsRead | None
    sent: SentSparse | SentStream | None
    led: LedMode | None

    @property
    def sums(self) -> bool:
        """Whether trainers sum among themselves, without sync servers."""
        return self.synchroniser is not None and self.synchroniser.SERVERS == 0


class Tended:
    """A trainer's.

    Args:
        place: the trainer's in the run.
        member: its side of the connection to the master.
        callers: who connects to it.
        closing: set where all of it is to end.
        counted: called before something is saved: what is used is to be told.
        training: what it is to know of that.

    Attributes:
        goes_on: whether what a process before this one has left is of this run.
        native: what moves parameters; None: nothing does.
        rows: what asks embedding servers for rows; None: nothing does.
        mode: what trains as who leads the mode says; None: nobody does.
        servers, row_servers, policy_servers: connections to these.
        sums: connections between workers that sum gradients; None: they do not.
        batches: that readers send; None: they send none.
        ring: connections to other trainers.
        leases: of batches.
        account: which one of the run its parameters are of.
        cuts: of which checkpoints are.
        troubles: what keeps it from being in step with the others.
    """

    def __init__(
        self,
        place: TrainerPlace,
        member: Member,
        callers: Callers,
        closing: threading.Event,
        counted: Callable[[], None],
        training: Training,
    ) -> None:
        self._place = place
        self._member = member
        self._sums = training.sums
        self._batch_size = training.batch_size
        synchroniser, dimension, workers = (
            training.synchroniser,
            training.dimension,
            training.workers,
        )
        rows, led, left = training.rows, training.led, training.left
        name = member.name
        parts = 1
        if training.sums and synchroniser is not None:
            parts = min(synchroniser.parts, len(packing.fragments(dimension)))
        self.native: _core.TrainerSync | None = None
        self.rows: _core.RemoteRows | None = None
        self.mode: _core.ModeTrainer | None = None
        self.sums: SumTending | None = None
        self.batches: BatchTending | None = None
        welcome = member.welcome
        try:
            placed = welcome.placed.get("sync-ps")
            if rows is not None and led is None:
                self.rows = remote_rows(
                    rows,
                    row_packing.told(rows, place.embedding_servers, welcome).placement,
                    place.index,
                    welcome.id,
                    workers,
                    place.embedding_servers,
                    place.timeout,
                    place.patience,
                    place.ahead,
                    place.pooling,
                )
            if led is not None:
                self.mode = mode_trainer(
                    led,
                    welcome.run,
                    place.index,
                    welcome.id,
                    workers,
                    workers // (1 + place.ahead),
                    place.patience,
                )
            self.goes_on = left is not None and left.run == welcome.run
            connecting = Connecting(name, welcome.run, place.key, place.timeout, closing)
            self.servers = ServerTending(
                "sync-ps", EXCHANGE, connecting, place.servers, place.transport
            )
            self.row_servers = ServerTending(
                "embedding-ps",
                ROWS,
                connecting,
                place.embedding_servers,
                place.transport,
                _core.RemoteRows.expect,
            )
            self.policy_servers = ServerTending(
                "policy-ps", POLICY, connecting, place.policy_servers, place.transport
            )
            if led is not None and led.reduces and self.mode is not None:
                self.sums = SumTending(connecting, self.mode, place.index, place.transport)
                callers.sums = self.sums.accept
            if training.sent is not None:
                self.batches = BatchTending(
                    training.sent, connecting, place.readers, place.patience
                )
            self.ring = RingTending(connecting, callers, member, place.backend, place.transport)
            # (Of the moment of its parameters: who goes on from what was kept takes others'.)
            states, within = (None, None) if left is not None else self._begun(dimension)
            self.leases = LeaseTending(member, training.total, workers, training.lockstep)
            self.account = AccountTending(
                member,
                left if self.goes_on else None,
                training.resumed,
                total=training.total,
                sums=training.sums,
                parts=parts,
                when=When("background") if synchroniser is None else synchroniser.when,
                workers=workers,
                timeout=place.timeout,
                within=within,
            )
            self.cuts = TrainerCuts(
                member,
                name,
                place.cuts,
                place.begins,
                workers,
                self.leases.leases,
                counted,
            )
            self.troubles = Troubles(name, place.timeout, member.troubled)
            if synchroniser is not None:
                self.native = native(
                    synchroniser,
                    dimension,
                    place.servers,
                    workers,
                    place.timeout,
                    placed.costs if placed else packing.BY_LENGTH,
                    goes_on=place.begins is not None and welcome.begins,
                    states=states,
                    within=within,
                )
        except BaseException:
            closing.set()
            self.no_more_rows()
            raise

    def close(self) -> None:
        """Nothing is tended any more: connections are closed, once nobody is making another."""
        self.no_more_rows()
        self.ring.close()
        self.rows = None
        self.native = None

    def no_more_rows(self) -> None:
        """Nothing comes from readers any more, whose threads may be in the core."""
        if self.batches is not None:
            self.batches.close()

    def amiss(self, native: _core.TrainerSync) -> dict[str, str]:
        """What keeps this trainer from being in step with the others, in words, by name."""
        epoch, trainers = self._member.epoch, self._place.trainers
        found = self.servers.amiss()
        if self.rows is not None:
            found |= self.row_servers.amiss()
        if self._sums:
            found |= self.ring.amiss(native)
        if epoch is not None and epoch.number == 1 and len(epoch.members) < trainers:
            found[TRAINERS] = (
                f"{len(epoch.members)} of {trainers} trainers have come; do the others have this "
                "run's address and key?"
            )
        return found

    def metrics(self) -> dict[str, float]:
        """What was counted so far, by name."""
        batches = self.leases.batches
        found: dict[str, float] = {
            "examples": batches * self._batch_size,
            "batches_used": batches,
        }
        if self.rows is not None:
            found |= {f"row_{name}": float(n) for name, n in self.rows.counters().items()}
            pooled = enumerate(self.rows.pooled or ())
            found |= {f"row_pooled_{feature}": float(at) for feature, at in pooled}
        if self.batches is not None:
            found |= self.batches.counters()
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
                "unsynced": self.account.unsynced(batches),
                "sync_overdue": self.account.overdue(batches),
            }
            if collectives.BACKENDS[self._place.backend] is None:  # nobody counts another's
                found |= {name: counted[name] for name in _MOVED if name in counted}
        return found

    def _begun(
        self, dimension: int
    ) -> tuple[NDArray[np.float32] | None, NDArray[np.float64] | None]:
        """Of the checkpoint that the run goes on from, if it does, what trainers that sum had together, and
        where this one's workers were between two rounds.
        """
        if self._place.begins is None:
            return None, None
        begins = Checkpoint(self._place.begins)
        if begins.led:  # of which no trainer has anything
            return None, None
        return begins.states(dimension) if self._sums else None, begins.within(self._place.index)
