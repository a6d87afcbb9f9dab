"""The role ``embedding-ps``: a server that holds rows of a model's tables (shadowsync, section 3.1).

Trainers look rows up and push their gradients; each row is updated by its table's rule, without a lock.
It writes snapshots, as ``row_files`` says, from which it goes on where it is started again, and all rows
when the run is over.
"""

from __future__ import annotations

import contextlib
import queue
import secrets
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from pathlib import Path
from typing import TYPE_CHECKING

from leashed import _core
from leashed.base.machine import cores
from leashed.cluster import checkpoints, fingerprint, row_packing
from leashed.cluster.addressing import is_local, reached
from leashed.cluster.cut_tending import ServerCuts
from leashed.cluster.member import Member, master_address
from leashed.cluster.opening import Key, Listener
from leashed.cluster.row_costs import RowTerms
from leashed.cluster.row_files import RowFiles
from leashed.cluster.server_tending import ROWS
from leashed.cluster.serving import Made, accepting, cancelling, over
from leashed.cluster.table_terms import TableTerms
from leashed.models.graphs import Graph
from leashed.models.tables import Refusals
from leashed.training.problems.clicks import table_settings
from leashed.training.rows_read import RowsRead

if TYPE_CHECKING:
    from leashed.cluster.plan import Plan
    from leashed.training.problems.problem import Problem

__all__ = ["row_terms", "run", "serve"]

_JOIN = 30.0  # seconds in which the master is expected to answer
_LIFE = 62  # bits
_MIB = 2**20
_FEEDS = 4  # processors of a machine, of which one serves rows


def run(plan: Plan, index: int) -> None:
    """The role as a plan describes it, until the run has ended.

    Raises:
        OSError: the data cannot be read, the master not be reached, or the run's folder not be written.
        ValueError: the run is another, or a snapshot is damaged.
    """
    cluster, words = plan.cluster, plan.train
    problem = plan.problem()
    serve(
        TableTerms(
            _read(plan, problem),
            cluster.embedding_ps,
            table_settings(words),
            cluster.embedding_ps if is_local(cluster.master) else 1,
        ),
        index,
        master=master_address(cluster.run, cluster.known_master),
        key=cluster.read_key(),
        host=cluster.host,
        port=cluster.port("embedding-ps", index),
        folder=cluster.run,
        grace=cluster.grace,
        patience=cluster.patience,
        transport=cluster.transport,
        job=cluster.name,
        snapshot_every=cluster.snapshot_every,
        loops=cluster.embedding_loops,
        told=fingerprint.of_model(problem.model),
        resume=cluster.resume,
        cuts=cluster.cuts,
    )


def row_terms(plan: Plan, problem: Problem) -> RowTerms:
    """What a run's master is to know of the tables of a training.

    Args:
        plan: with embedding servers.
        problem: that of its training.

    Raises:
        ValueError: the servers have no room for the tables.
    """
    room = plan.cluster.embedding_mib
    found = RowTerms.of(_read(plan, problem), None if room is None else room * _MIB)
    row_packing.check(found, plan.cluster.embedding_ps)
    return found


def _read(plan: Plan, problem: Problem) -> RowsRead:
    model, how = problem.model, plan.train.how(problem, plan.index(problem))
    assert isinstance(model, Graph)
    return RowsRead(
        model.tables,
        model.native.features_of_tables,
        how["rule"],
        how["staleness"],
        plan.train.seed,
    )


def serve(
    terms: TableTerms,
    index: int,
    *,
    master: str | Callable[[], str],
    key: Key,
    host: str,
    folder: Path,
    grace: float,
    patience: float,
    transport: str,
    port: int = 0,
    advertise: str | None = None,
    job: str = "",
    snapshot_every: float = 1.0,
    loops: int | None = None,
    told: Mapping[str, str] | None = None,
    resume: Path | None = None,
    cuts: Path | None = None,
) -> None:
    """Hold the rows of server ``index`` until the run has ended.

    Args:
        terms: of which tables, and how many servers there are.
        index: which of them this is.
        master: the master's address, or what tells it.
        key: what connections are opened with.
        host: where to listen.
        folder: of snapshots, and of what is saved at the end.
        grace: seconds for which a master that is away is waited for.
        patience: seconds after once to twice which rows are let go of that were looked up and are not
            pushed.
        transport: as of ``Cluster``.
        port: likewise.
        advertise: likewise.
        job: likewise.
        snapshot_every: seconds between two snapshots, where writing one takes less than a tenth of
            that.
        loops: threads that serve. None: a fourth of this machine's processors, which its servers share.
        told: what else all of the run must have alike, as far as it is known.
        resume: the checkpoint's folder that the run goes on from. Default: it begins.
        cuts: of the run's checkpoints. Default: ``folder``.

    Raises:
        ValueError: the run is another, or a snapshot is damaged.
        OSError: the master cannot be reached (any more), or the folder not be written.
    """
    read = terms.read
    made: Made = Future()
    heard: queue.SimpleQueue[object] = queue.SimpleQueue()
    with (
        contextlib.closing(
            Listener(host, port, key, "embedding-ps", accepting(made, ROWS, transport))
        ) as listener,
        cancelling(made),
    ):
        member = Member(
            master,
            key,
            role="embedding-ps",
            index=index,
            listening=reached(listener, advertise),
            heard=heard.put,
            deadline=_JOIN,
            grace=grace,
            fingerprint={
                **(told or {}),
                **fingerprint.of_rows(read.rule, read.staleness, read.seed),
                **fingerprint.of_tables(terms.to_json()["settings"]),
                **fingerprint.of_servers({"embedding-ps": terms.servers}),
                **fingerprint.of_job(job),
            },
        )
        with contextlib.closing(member):
            run_name = member.welcome.run
            placed = terms.placed(member.welcome)
            tables = terms.parts(placed, index)
            begins = None if resume is None else checkpoints.Checkpoint(resume)
            files = RowFiles(tables, folder, run_name, index, snapshot_every, begins)
            files.restore()
            tending = ServerCuts(member, cuts or folder, resume, files.cut)
            server = _core.RowServer(
                [table.native for table in tables.values()],
                placed.numbers(index, len(read.tables)),
                placed.placement,
                index,
                secrets.randbits(_LIFE) | 1,
                loops or max(1, cores() // (_FEEDS * terms.here)),
            )
            files.serve(server)
            made.set_result((run_name, server))
            due = time.monotonic() + patience
            refusals = Refusals(tables, since_made=True)
            try:
                while not over(heard, member, run_name, tending):
                    files.keep()
                    refusals.look()
                    member.report({**server.counters(), **files.counters()})
                    if time.monotonic() >= due:  # what nobody has pushed since, nobody will
                        server.expire()
                        due = time.monotonic() + patience
            finally:
                files.end()
