"""How a trainer that has its place in a run comes to take part in it (``trainer_session``)."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import NamedTuple

from leashed.base import checks
from leashed.cluster import collectives, fingerprint, parameter_shards, passed_rows, served_tables
from leashed.cluster.addressing import everywhere, is_local, reached
from leashed.cluster.checkpoints import Checkpoint, found
from leashed.cluster.led_checkpoint import going_on
from leashed.cluster.lives import SLOTS
from leashed.cluster.remote_batches import SentSparse, SentStream, sent
from leashed.cluster.row_index import comes_once, index_of
from leashed.cluster.served_tables import ServedTables
from leashed.cluster.server_tending import EXCHANGE
from leashed.cluster.tended import Training
from leashed.cluster.trainer_place import TRANSPORTS, Address, TrainerPlace
from leashed.cluster.trainer_session import Output, Reached, Session, not_known
from leashed.files.resuming import AtCut, Resume
from leashed.models import TableSpec
from leashed.rules import Rule
from leashed.staleness import Policy
from leashed.stream import SparseStream, Stream
from leashed.sync import Position, Synchroniser
from leashed.training.led_mode import LedMode
from leashed.training.recordings import AnyModel
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
            it goes on from (or None), the stream that readers read (or None), the mode that policy servers lead
            (or None), and how many sync servers there are.
        servers_as_needed: whether a training that has no use for sync servers has none.
        sync: how the parameters are kept in sync with those of the others, from ``leashed.sync``; None:
            not at all.
        rows_in: where the rows of streams are counted that readers send; None: nowhere.
        evict_or_wait: whether servers' tables evict rows, or wait before they admit them.
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
                int,
            ],
            Met,
        ]
        | None
    ) = field(default=None, repr=False)
    servers_as_needed: bool = False
    sync: Synchroniser | None = None
    rows_in: Path | None = None
    evict_or_wait: bool = False

    def spans(self, model: AnyModel) -> list[list[tuple[int, int]]]:
        """What each of several policy servers has of the parameters of ``model``.

        Raises:
            ValueError: it has fewer parts than there are servers.
        """
        return parameter_shards.spans(model, self.policy_servers, self.shards)

    def owners(self, tables: Sequence[TableSpec], features: Sequence[int]) -> list[int]:
        """Of each table which of several policy servers has its rows, as ``parameter_shards.owners``."""
        return parameter_shards.owners(tables, features, self.policy_servers)

    def resuming(self, given: Resume | None) -> tuple[Cluster, Resume | None]:
        """Where ``given`` is a checkpoint of a whole run, or the folder of such a run, of which that is the
        newest: this place in a run that goes on from it, and what this trainer does.

        Raises:
            OSError, ValueError: it has none, or it cannot be read.
        """
        if not isinstance(given, (str, os.PathLike)) or (begins := found(given)) is None:
            return self, given
        if self.policy_servers > 1:
            raise ValueError(
                f"cannot go on from {given} with {self.policy_servers} policy servers, of which there is no cut "
                "yet; join with policy_servers=1"
            )
        if self.policy_servers:  # of which one has all of it
            return replace(self, begins=begins.folder), None
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

    def tables(
        self,
        described: Sequence[TableSpec],
        *,
        rule: Rule | str | None = None,
        staleness: Policy | str | None = None,
        seed: int = 0,
        threads: int = 1,
    ) -> ServedTables:
        """Tables whose rows the run's embedding servers hold, for a loop of one's own: each is looked up
        and updated by calls, and by ``leashed.torch.Embedding(table=...)``.

            cluster = lsh.cluster.join(embedding_servers=2, folder="run")
            users = lsh.models.TableSpec("users", 16, 100_000)
            with cluster.tables([users], rule=lsh.Adagrad(0.05)):
                table = lsh.cluster.table("users")
                values = table.lookup(ids)  # float32 [..., 16]
                table.update(ids, gradients)

        All processes call this as often, with the same tables, rule, staleness and seed; servers begin with
        the first of them, and end when all have closed theirs. What else is said of tables ``join`` has
        (``tables=``, ``look_ahead=``). At the end servers save all rows, and rank 0 writes them, as the tables
        of a model without gradients (``ServedTables.model``), to the folder ``run-0/output`` in ``folder``.
        A loop's other parameters are its own affair.

        Args:
            described: names, dimensions and rows of tables; one without a number of rows grows.
            rule: by which rows are updated, as of ``leashed.Table``. Default: ``Adagrad(0.01)``.
            staleness: likewise. Default: ``none()``.
            seed: of what rows begin with, from 0.
            threads: of this process that may use each table at once.

        Raises:
            TypeError, ValueError: an argument is wrong, or the run has no embedding servers, or is of other
                tables; the message names it.
            OSError: the master cannot be reached in time.
        """
        if not self.embedding_servers:
            raise ValueError(
                "cluster has no embedding servers, which hold the rows of tables; "
                "join(embedding_servers=1), or more"
            )
        for name, given in (("sync", self.sync), ("readers", self.readers)):
            if given:
                raise ValueError(
                    f"{name} is for leashed.train, and nothing of tables that are looked up by calls; join "
                    "without it"
                )
        read, model = served_tables.asked(described, rule, staleness, seed)
        threads = checks.whole("threads", threads, maximum=SLOTS // len(read.tables))
        session = self.session(
            model.dimension,
            None,
            total=None,
            batch_size=1,
            workers=threads,
            lockstep=False,
            rows=read,
            model=model,
        )
        return ServedTables(session, read, model, threads, self.ahead)

    def _servers_for(self, synchroniser: Synchroniser | None) -> int:
        """How many sync servers a training has that is kept in sync by that; ValueError where they would
        stand idle.
        """
        if not self.servers or (synchroniser is not None and synchroniser.SERVERS):
            return self.servers
        if self.servers_as_needed:
            return 0
        which = "without sync" if synchroniser is None else f"by {type(synchroniser).__name__}"
        raise ValueError(
            f"servers must be 0 for a training {which}, to which no sync server is of use, got {self.servers}: "
            "leave it out"
        )

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
        model: AnyModel | None = None,
    ) -> Session:
        """Takes part, from here to the session's end. ``left``: where a process before this one has
        left what this one would begin with (``Session.goes_on``). ``trained``: what is, where that
        is known. ``rows``: of tables that embedding servers hold; None: it reads none.
        ``sent``: what readers read; None: there are none. ``led``: the mode that is trained by; None: none.
        ``model``: whose tables and parameters come out, where nothing is known of what is ``trained``.

        Raises:
            ImportError: what ``backend`` names is not installed.
            ValueError: ``backend`` does not go with the synchroniser; there are sync servers, and nobody has a
                use for them; there are embedding servers, and no rows; the run has another model,
                other data, another synchroniser or version, as the message tells; another batch size
                or number of batches or of sync servers, goes on from a checkpoint where this trainer
                does not, from another one, or does not where it does, or has no sync server where one is
                needed.
            OSError: the master cannot be reached in time.
        """
        collectives.check(self.backend, self.trainers, synchroniser)
        servers = self._servers_for(synchroniser)
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
        begins = None if self.begins is None else Checkpoint(self.begins)
        if led is not None and begins is not None:
            led = going_on(led, begins)
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
                    "sync-ps": servers,
                    "embedding-ps": self.embedding_servers,
                    "policy-ps": self.policy_servers,
                }
            ),
            **fingerprint.of_job(self.job),
            **self.words,
        }
        if rows is not None:
            told |= fingerprint.of_rows(rows.rule, rows.staleness, rows.seed)
        if rows is not None and rows.apart:
            told |= fingerprint.of_specs(rows.tables)
        if led is not None:
            told |= fingerprint.of_mode(led)
        if begins is not None:
            told |= fingerprint.of_checkpoint(begins.told["run"], begins.number)
        cluster, ended, gone = replace(self, servers=servers), None, not_known
        if self.meet is not None:
            if begins is not None:
                begins.require(told, same_data=True)
            if led is not None and begins is not None:
                account = begins.begun
                resumed = Position(account.next, account.open, begins.told["run"])
            met = self.meet(
                dimension, total, batch_size, resumed, told, rows, begins, sent, led, servers
            )
            ended, gone = met.ended, met.gone
            cluster = replace(cluster, master=met.master, cuts=met.cuts, meet=None)
        try:
            return Session(
                cluster, training, told, ended, model if trained is None else trained[0], gone
            )
        except BaseException:
            if ended is not None:
                ended(None)
            raise
