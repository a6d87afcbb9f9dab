"""The role ``embedding-ps``: a server that holds rows of a model's tables (shadowsync, section 3.1).

Trainers look rows up and push their gradients; each row is updated by its table's rule, without a lock.
It writes snapshots, as ``row_files`` says, from which it goes on where it is started again, and all rows
when the run is over.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import TYPE_CHECKING

from leashed import _core
from leashed.base.machine import cores
from leashed.cluster import checkpoints, fingerprint, row_packing
from leashed.cluster.addressing import is_local
from leashed.cluster.cut_tending import ServerCuts
from leashed.cluster.lives import boot
from leashed.cluster.row_costs import RowTerms
from leashed.cluster.row_files import RowFiles
from leashed.cluster.server_tending import ROWS
from leashed.cluster.serving import Place, accepting, making, over
from leashed.cluster.table_terms import TableTerms
from leashed.models.graphs import Graph
from leashed.models.tables import Refusals
from leashed.training.problems.clicks import table_settings
from leashed.training.rows_read import RowsRead

if TYPE_CHECKING:
    from leashed.cluster.plan import Plan
    from leashed.training.problems.problem import Problem

__all__ = ["row_terms", "rows_read", "run", "serve"]

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
            rows_read(plan, problem),
            cluster.embedding_ps,
            table_settings(words),
            cluster.embedding_ps if is_local(cluster.master) else 1,
        ),
        index,
        Place.of(plan, "embedding-ps", index),
        patience=cluster.patience,
        loops=cluster.embedding_loops,
        told=fingerprint.of_model(problem.model),
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
    found = RowTerms.of(rows_read(plan, problem), None if room is None else room * _MIB)
    row_packing.check(found, plan.cluster.embedding_ps)
    return found


def rows_read(plan: Plan, problem: Problem) -> RowsRead:
    """The tables that a plan's training reads, and by what their rows are updated.

    Args:
        plan: whose model reads tables.
        problem: that of its training.
    """
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
    place: Place,
    *,
    patience: float,
    loops: int | None = None,
    told: Mapping[str, str] | None = None,
) -> None:
    """Hold the rows of server ``index`` until the run has ended.

    Args:
        terms: of which tables, and how many servers there are.
        index: which of them this is.
        place: where it has its run.
        patience: seconds after once to twice which rows are let go of that were looked up and are not
            pushed.
        loops: threads that serve. None: a fourth of this machine's processors, which its servers share.
        told: what else all of the run must have alike, as far as it is known.

    Raises:
        ValueError: the run is another, or a snapshot is damaged.
        OSError: the master cannot be reached (any more), or the folder not be written.
    """
    read = terms.read
    words = {
        **(told or {}),
        **fingerprint.of_rows(read.rule, read.staleness, read.seed),
        **fingerprint.of_tables(terms.to_json()["settings"]),
        **fingerprint.of_servers({"embedding-ps": terms.servers}),
    }
    with making() as made:
        accept = accepting(made, ROWS, place.transport)
        with place.joined("embedding-ps", index, accept, words) as (member, heard):
            run_name = member.welcome.run
            placed = terms.placed(member.welcome)
            tables = terms.parts(placed.placement, index)
            begins = None if place.resume is None else checkpoints.Checkpoint(place.resume)
            files = RowFiles(tables, place.folder, run_name, index, place.snapshot_every, begins)
            files.restore()
            tending = ServerCuts(member, place.cuts or place.folder, place.resume, files.cut)
            server = _core.RowServer(
                [table.native for table in tables.values()],
                placed.numbers(index, len(read.tables)),
                placed.placement,
                index,
                boot(),
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
