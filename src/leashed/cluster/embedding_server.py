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
from collections.abc import Mapping
from concurrent.futures import Future
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from leashed import _core
from leashed.cluster import fingerprint, row_packing
from leashed.cluster.addressing import is_local, reached
from leashed.cluster.member import Member, master_address
from leashed.cluster.opening import Listener
from leashed.cluster.row_files import RowFiles
from leashed.cluster.server_tending import ROWS
from leashed.cluster.serving import Made, accepting, cancelling, over
from leashed.models.graphs import Graph
from leashed.models.tables import SHARE, Table
from leashed.training.problems.clicks import make_tables

if TYPE_CHECKING:
    from leashed.cluster.plan import Plan

__all__ = ["features_of", "run"]

_JOIN = 30.0  # seconds in which the master is expected to answer
_LIFE = 62  # bits


def run(plan: Plan, index: int) -> None:
    """The role as a plan describes it, until the run has ended.

    Raises:
        OSError: the data cannot be read, the master not be reached, or the run's folder not be written.
        ValueError: the run is another, or a snapshot is damaged.
    """
    cluster, words = plan.cluster, plan.train
    problem = words.problem()
    model = problem.model
    assert isinstance(model, Graph)
    servers = cluster.embedding_ps
    placed = row_packing.placed(model.tables, features_of(model), servers)
    how = words.how(problem)
    tables = _tables(plan, model, placed, index, how)
    numbers = placed.numbers(index, len(model.tables))
    made: Made = Future()
    heard: queue.SimpleQueue[object] = queue.SimpleQueue()
    with (
        contextlib.closing(
            Listener(
                cluster.host,
                cluster.port("embedding-ps", index),
                cluster.read_key(),
                "embedding-ps",
                accepting(made, ROWS, cluster.transport),
            )
        ) as listener,
        cancelling(made),
    ):
        member = Member(
            master_address(cluster.run, cluster.known_master),
            cluster.read_key(),
            role="embedding-ps",
            index=index,
            listening=reached(listener, None),
            heard=heard.put,
            deadline=_JOIN,
            grace=cluster.grace,
            fingerprint={
                **fingerprint.of_model(model),
                **fingerprint.of_rows(how["rule"], how["staleness"], words.seed),
                **fingerprint.of_servers({"embedding-ps": servers}),
                **fingerprint.of_job(cluster.name),
            },
        )
        with contextlib.closing(member):
            run_name = member.welcome.run
            files = RowFiles(tables, cluster.run, run_name, index, cluster.snapshot_every)
            files.restore()
            server = _core.RowServer(
                [table.native for table in tables.values()],
                numbers,
                placed.placement,
                index,
                secrets.randbits(_LIFE) | 1,
            )
            files.serve(server)
            made.set_result((run_name, server))
            due = time.monotonic() + cluster.patience
            try:
                while not over(heard, member, run_name):
                    files.keep()
                    member.report({**server.counters(), **files.counters()})
                    if time.monotonic() >= due:  # what nobody has pushed since, nobody will
                        server.expire()
                        due = time.monotonic() + cluster.patience
            finally:
                files.end()


def features_of(model: Graph) -> list[int]:
    """Of each feature of ids the number of its table."""
    return list(model.native.features_of_tables)


def _tables(
    plan: Plan, model: Graph, placed: row_packing.Placed, index: int, how: Mapping[str, Any]
) -> dict[str, Table]:
    """The server's parts of the model's tables: of memory for those that grow, its part."""
    words, servers = plan.train, plan.cluster.embedding_ps
    here = servers if is_local(plan.cluster.master) else 1
    if words.table_mib is not None:
        words = replace(words, table_mib=words.table_mib / servers)
    else:
        words = replace(words, table_share=(words.table_share or SHARE) / here)
    shards = {one.name: placed.placement.shards(t, index) for t, one in enumerate(model.tables)}
    made = make_tables(model, words, how["rule"], how["staleness"], shards)
    assert made is not None
    return made
