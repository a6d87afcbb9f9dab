"""Which embedding server has which rows of a model's tables.

A table is whole on one server, the dearest first on the server with the least so far (``packing.pack``),
where a row costs what was profiled (``row_costs``), and a batch asks for as many of a table as it has
entries of it, or as there are; of those that cost the same the largest first. One that is more than
a server's share, or grows, and so may become that, is spread over all of them by its ids' shards. All
processes of a run derive the same from the model, the number of servers, and what its master tells.
"""

from __future__ import annotations

import collections
import math
from collections.abc import Sequence
from typing import NamedTuple

from leashed import _core
from leashed.base import checks
from leashed.cluster import packing
from leashed.cluster.messages import Welcome
from leashed.cluster.row_costs import BY_BYTES
from leashed.models import TableSpec
from leashed.models.tables import SHARDS
from leashed.training.rows_read import RowsRead

__all__ = ["MOST_SERVERS", "SHARDS", "Placed", "placed", "told"]

MOST_SERVERS = 4096

_SPREAD = -1
_AS_MUCH = 1e-6  # far less than by what one float more costs


class Placed(NamedTuple):
    """Where rows are.

    Attributes:
        placement: of all tables.
        loads: of each server what its rows of a batch cost, in the unit of the costs.
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


def placed(
    tables: Sequence[TableSpec],
    features: Sequence[int],
    servers: int,
    costs: packing.Costs = BY_BYTES,
    batch_size: int = 1,
) -> Placed:
    """Where the rows of a model's tables are.

    Args:
        tables: that the model reads.
        features: of each of its features the number of its table.
        servers: how many there are.
        costs: of a row, by the number of its floats.
        batch_size: examples of a batch.

    Raises:
        TypeError, ValueError: ``servers`` is no whole number from 1, or there is no table.
    """
    servers = checks.whole("servers", servers, 1, MOST_SERVERS)
    if not tables:
        raise ValueError("a model without tables has no rows that embedding servers could hold")
    read = collections.Counter(features)
    batch = [
        costs.of(one.dim) * min(batch_size * max(1, read[t]), one.rows or math.inf)
        for t, one in enumerate(tables)
    ]
    sizes = [None if one.rows is None else one.rows * one.dim for one in tables]
    share = sum(batch) / servers
    largest = sum(size for size in sizes if size is not None) / servers
    spread = [
        servers > 1 and (size is None or cost > share or size > largest)
        for cost, size in zip(batch, sizes, strict=True)
    ]
    loads = [sum(c for c, s in zip(batch, spread, strict=True) if s) / servers] * servers
    owner = [_SPREAD if each else 0 for each in spread]
    if whole := [t for t, each in enumerate(spread) if not each]:
        found = packing.pack([_with_size(batch[t], sizes[t]) for t in whole], servers)
        for server, mine in enumerate(found.servers):
            for k in mine:
                owner[whole[k]] = server
                loads[server] += batch[whole[k]]
    told = [(one.rows is None, server) for one, server in zip(tables, owner, strict=True)]
    shards = [shard % servers for shard in range(SHARDS)]
    bound = max(share, max((batch[t] for t in whole), default=0.0))
    return Placed(_core.RowPlacement(told, shards), tuple(loads), bound)


def told(read: RowsRead, servers: int, welcome: Welcome) -> Placed:
    """Where the rows are of what a training reads, by what the run's master tells: the same for all.

    Raises:
        ValueError: the model has no tables.
    """
    found = welcome.placed.get("embedding-ps")
    if found is None:
        return placed(read.tables, read.features, servers)
    return placed(read.tables, read.features, servers, found.costs, found.batch_size)


def _with_size(cost: float, size: int | None) -> float:
    """A cost by which the larger of two tables that cost the same comes first: so the large ones of
    many that are alike are shared out as well.
    """
    return cost * (1.0 + _AS_MUCH * math.log1p(size or 0))
