"""Which embedding server has which rows of a model's tables.

A table is whole on one server, the dearest first on the server with the least so far (``packing.pack``),
where a row costs what was profiled (``row_costs``), and a batch asks for as many of a table as it has
entries of it, or as there are; of those that cost the same the largest first. One that is more than
a server's share, or than its memory has room for, or grows, and so may become that, is spread over all
of them by its ids' shards. All
processes of a run derive the same from the model, the number of servers, and what its master tells.
"""

from __future__ import annotations

import collections
import contextlib
import math
from collections.abc import Sequence
from typing import NamedTuple

from leashed import _core
from leashed.base import checks
from leashed.base.table import mebibytes
from leashed.cluster import packing
from leashed.cluster.messages import Welcome
from leashed.cluster.row_costs import RowTerms
from leashed.models import TableSpec
from leashed.models import tables as of_models
from leashed.models.tables import SHARDS
from leashed.training.rows_read import RowsRead

__all__ = ["MOST_SERVERS", "SHARDS", "SPREAD", "Placed", "check", "placed", "told"]

MOST_SERVERS = 4096

SPREAD = -1
"""In place of the server of a table that several have parts of."""
_NONE = 1e-9  # bytes
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

    def owners(self, tables: int, servers: int) -> list[int]:
        """Of each of so many tables the one of so many servers that has all of it, or ``SPREAD``."""
        found = []
        for t in range(tables):
            having = [s for s in range(servers) if any(self.placement.shards(t, s))]
            found.append(having[0] if len(having) == 1 else SPREAD)
        return found


def placed(
    tables: Sequence[TableSpec],
    features: Sequence[int],
    servers: int,
    costs: packing.Costs = packing.BY_ROW_BYTES,
    batch_size: int = 1,
    *,
    row_bytes: Sequence[int] | None = None,
    room: float | None = None,
) -> Placed:
    """Where the rows of a model's tables are.

    Args:
        tables: that the model reads.
        features: of each of its features the number of its table.
        servers: how many there are.
        costs: of a row, by the number of its floats.
        batch_size: examples of a batch.
        row_bytes: of each table the memory that a row takes; with ``room``.
        room: bytes that a server has for tables that do not grow. Default: as many as they need.

    Raises:
        TypeError, ValueError: ``servers`` is no whole number from 1, there is no table, or all servers
            together have no room for them.
    """
    servers = checks.whole("servers", servers, 1, MOST_SERVERS)
    if not tables:
        raise ValueError("a model without tables has no rows that embedding servers could hold")
    read = collections.Counter(features)
    batch = [
        costs.of(one.dim) * min(batch_size * max(1, read[t]), one.rows or math.inf)
        for t, one in enumerate(tables)
    ]
    floats = [one.rows * one.dim for one in tables if one.rows is not None]
    sizes = [0.0] * len(tables)
    if room is not None and row_bytes is not None:
        sizes = [float((one.rows or 0) * n) for one, n in zip(tables, row_bytes, strict=True)]
        _check_room(math.fsum(sizes), servers, room)
    share, largest = math.fsum(batch) / servers, sum(floats) / servers
    spread = {
        t
        for t, one in enumerate(tables)
        if servers > 1 and (one.rows is None or batch[t] > share or one.rows * one.dim > largest)
    }
    held = _assigned(tables, batch, sizes, spread, servers, math.inf if room is None else room)
    owner, loads = [SPREAD] * len(tables), [0.0] * servers
    for server, mine in enumerate(held):
        for t in mine:
            owner[t] = server
        loads[server] = math.fsum(batch[t] for t in mine)
    apart = math.fsum(c for c, server in zip(batch, owner, strict=True) if server == SPREAD)
    loads = [
        load + apart * len(range(server, SHARDS, servers)) / SHARDS
        for server, load in enumerate(loads)
    ]
    told = [(one.rows is None, server) for one, server in zip(tables, owner, strict=True)]
    shards = [shard % servers for shard in range(SHARDS)]
    whole = [c for c, server in zip(batch, owner, strict=True) if server != SPREAD]
    bound = max(share, *whole) if whole else share
    return Placed(_core.RowPlacement(told, shards), tuple(loads), bound)


def told(read: RowsRead, servers: int, welcome: Welcome) -> Placed:
    """Where the rows are of what a training reads, by what the run's master tells: the same for all.

    Raises:
        ValueError: the model has no tables.
    """
    found = welcome.placed.get("embedding-ps")
    if found is None:
        return placed(read.tables, read.features, servers)
    return placed(
        read.tables,
        read.features,
        servers,
        found.costs,
        found.batch_size,
        row_bytes=[of_models.bytes_per_row(t.dim, read.rule, read.staleness) for t in read.tables],
        room=found.room,
    )


def check(terms: RowTerms, servers: int) -> None:
    """That so many servers have room for a run's tables.

    Raises:
        ValueError: they have not.
    """
    if terms.room is not None:
        rows = [
            (one[2] or 0) * each for one, each in zip(terms.tables, terms.row_bytes, strict=True)
        ]
        _check_room(math.fsum(rows), servers, terms.room)


def _most(servers: int) -> float:
    """The largest part of a spread table that one of so many servers has: shards are whole."""
    return math.ceil(SHARDS / servers) / SHARDS


def _check_room(needed: float, servers: int, room: float) -> None:
    if needed * _most(servers) > room:
        raise ValueError(
            f"tables of {mebibytes(needed)} have no room on {servers:,} embedding servers of "
            f"{mebibytes(room)} each; give more servers, or each more memory (--embedding-mib, embedding_mib in a plan)"
        )


def _assigned(
    tables: Sequence[TableSpec],
    batch: Sequence[float],
    sizes: Sequence[float],
    spread: set[int],
    servers: int,
    room: float,
) -> tuple[tuple[int, ...], ...]:
    """Of each server the tables that it has whole. Where these do not fit, the largest of them is spread,
    too.
    """
    spread = set(spread)
    while whole := [t for t in range(len(tables)) if t not in spread]:
        left = room - math.fsum(sizes[t] for t in spread) * _most(servers)
        costs = [_with_size(batch[t], (tables[t].rows or 0) * tables[t].dim) for t in whole]
        with contextlib.suppress(packing.NoRoomError):
            found = packing.pack(
                costs,
                servers,
                sizes=[sizes[t] for t in whole],
                room=None if left == math.inf else [max(left, _NONE)] * servers,
            )
            return tuple(tuple(whole[k] for k in mine) for mine in found.servers)
        spread.add(max(whole, key=sizes.__getitem__))
    return ((),) * servers


def _with_size(cost: float, size: int) -> float:
    """A cost by which the larger of two tables that cost the same comes first: so the large ones of
    many that are alike are shared out as well.
    """
    return cost * (1.0 + _AS_MUCH * math.log1p(size))
