"""How a trainer that has its place in a run comes to take part in it (``trainer_session``)."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import NamedTuple

from leashed.cluster import collectives, fingerprint, passed_rows
from leashed.cluster.addressing import everywhere, is_local, reached
from leashed.cluster.checkpoints import Checkpoint, found
from leashed.cluster.remote_batches import SentSparse, SentStream, sent
from leashed.cluster.row_index import comes_once, index_of
from leashed.cluster.server_tending import EXCHANGE
from leashed.cluster.tended import Training
from leashed.cluster.trainer_place import TRANSPORTS, Address, TrainerPlace
from leashed.cluster.trainer_session import Output, Reached, Session, not_known
from leashed.files.resuming import AtCut, Resume
from leashed.stream import SparseStream, Stream
from leashed.sync import Position, Synchroniser
from leashed.training.led_mode import LedMode
from leashed.training.rows_read import RowsRead

__all__ = [
    "EXCHANGE",
    "TRANSPORTS",
    "Address",
    "Cluster",
    "Met",
    "Output",
    "Reached",
    "Session",
    "everywhere",
    "is_local",
    "reached",
]


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


@dataclass(frozen=True)
class Cluster(TrainerPlace):
    """A trainer's place in a run; made by ``leashed.cluster.join``.

    Attributes:
        index and the others: as of ``TrainerPlace``.
        job: a name that all of a run have, where several runs may have one key; empty: none.
        meet: in place of ``master``, called with the length of the parameters, the batches of the
            whole run (or None), the batch size, where the run goes on (or None), and what all of the
            run must have alike, the rows that it reads of embedding servers (or None), the checkpoint that
            it goes on from (or None), the stream that readers read (or None), and the mode that policy servers lead (or None).
        sync: how the parameters are kept in sync with those of the others, from ``leashed.sync``; None:
            not at all.
        rows_in: where the rows of streams are counted that readers send; None: nowhere.
    """

    job: str = ""
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
    sync: Synchroniser | None = None
    rows_in: Path | None = None

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
        training = Training(
            dimension=dimension,
            synchroniser=synchroniser,
            total=total,
            batch_size=batch_size,
            workers=workers,
            lockstep=lockstep,
            resumed=resumed,
            left=left,
            rows=rows,
            sent=sent,
            led=led,
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
                cluster, training, told, ended, None if trained is None else trained[0], gone
            )
        except BaseException:
            if ended is not None:
                ended(None)
            raise
