"""Which embedding server has which rows of a model's tables.

A table is whole on one server, the dearest first on the server with the least so far (``packing.pack``),
where a row costs its bytes both ways, once for each feature that reads the table; of those that cost the
same the largest first. One that is more than
a server's share, or grows, and so may become that, is spread over all of them by its ids' shards. All
processes of a run derive the same from the model and the number of servers.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from leashed import _core
from leashed.base import checks
from leashed.cluster import packing
from leashed.models import TableSpec
from leashed.models.tables import SHARDS

__all__ = ["MOST_SERVERS", "SHARDS", "Placed", "placed"]

MOST_SERVERS = 4096

_SPREAD = -1
_AS_MUCH = 1e-6  # far less than by what one float more costs


class Placed(NamedTuple):
    """Where rows are.

    Attributes:
        placement: of all tables.
        loads: of each server the bytes that a row of each feature costs there, in both directions.
        bound: that the most loaded server has at least, however tables are placed.
    """

    placement: _core.RowPlacement
    loads: tuple[float, ...]
    bound: float

    @property
    def imbalance(self) -> float:
        """The largest load over ``bound``: 1 at best."""
        return max(self.loads) / self.bound

    def numbers(self, server: int, tables: int) -> list[int]:
        """Of so many tables those of which a server has rows."""
        return [t for t in range(tables) if any(self.placement.shards(t, server))]


def placed(tables: Sequence[TableSpec], features: Sequence[int], servers: int) -> Placed:
    """Where the rows of a model's tables are.

    Args:
        tables: that the model reads.
        features: of each of its features the number of its table.
        servers: how many there are.

    Raises:
        TypeError, ValueError: ``servers`` is no whole number from 1, or there is no table.
    """
    servers = checks.whole("servers", servers, 1, MOST_SERVERS)
    if not tables:
        raise ValueError("a model without tables has no rows that embedding servers could hold")
    costs = [
        (8.0 + 8.0 * one.dim) * max(1, list(features).count(t)) for t, one in enumerate(tables)
    ]
    sizes = [None if one.rows is None else one.rows * one.dim for one in tables]
    share = sum(costs) / servers
    largest = sum(size for size in sizes if size is not None) / servers
    spread = [
        servers > 1 and (size is None or cost > share or size > largest)
        for cost, size in zip(costs, sizes, strict=True)
    ]
    loads = [sum(c for c, s in zip(costs, spread, strict=True) if s) / servers] * servers
    owner = [_SPREAD if each else 0 for each in spread]
    if whole := [t for t, each in enumerate(spread) if not each]:
        found = packing.pack([_with_size(costs[t], sizes[t]) for t in whole], servers)
        for server, mine in enumerate(found.servers):
            for k in mine:
                owner[whole[k]] = server
                loads[server] += costs[whole[k]]
    told = [(one.rows is None, server) for one, server in zip(tables, owner, strict=True)]
    shards = [shard % servers for shard in range(SHARDS)]
    bound = max(share, max((costs[t] for t in whole), default=0.0))
    return Placed(_core.RowPlacement(told, shards), tuple(loads), bound)


def _with_size(cost: float, size: int | None) -> float:
    """A cost by which the larger of two tables that cost the same comes first: so the large ones of
    many that are alike are shared out as well.
    """
    return cost * (1.0 + _AS_MUCH * math.log1p(size or 0))
