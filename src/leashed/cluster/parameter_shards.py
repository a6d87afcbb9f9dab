"""Which parameters each of several policy servers has, and which rows of tables."""

from __future__ import annotations

from collections.abc import Sequence

from leashed.cluster import row_packing
from leashed.models import TableSpec
from leashed.simulation.sharding import Sharding
from leashed.training.recordings import AnyModel

__all__ = ["owners", "spans"]


def spans(model: AnyModel, servers: int, kind: str) -> list[list[tuple[int, int]]]:
    """Of each its parameters, as [begin, end) of the vector; nothing where one has all.

    Args:
        model: what is trained.
        servers: how many there are.
        kind: how they are spread, as ``leashed.simulation.Sharding`` has it.

    Raises:
        ValueError: the model has fewer parts than there are servers.
    """
    if servers <= 1:
        return []
    found = Sharding(kind, servers).spans(model)
    if none := sum(not shard for shard in found):
        raise ValueError(
            f"policy_servers must be {servers - none} at most with shards {kind}, got {servers}: {model.name} "
            "has parts for no more"
        )
    return found


def owners(tables: Sequence[TableSpec], features: Sequence[int], servers: int) -> list[int]:
    """Of each table the server that has all of its rows, or -1: they are spread, as embedding servers'
    are (``row_packing.placed``); nothing where one server has all.

    Args:
        tables: that the model reads.
        features: of each of its features the number of its table.
        servers: how many there are.

    Raises:
        ValueError: one would have no part of any table.
    """
    if servers <= 1 or not tables:
        return []
    found = row_packing.placed(tables, features, servers)
    if none := sum(not found.numbers(server, len(tables)) for server in range(servers)):
        raise ValueError(
            f"policy_servers must be {servers - none} at most for a model that reads tables, got {servers}: "
            "these have parts for no more"
        )
    return found.owners(len(tables), servers)
