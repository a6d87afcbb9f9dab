"""Embedding servers of trainers in virtual time."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from leashed import _core
from leashed.base import checks
from leashed.simulation.sharding import reads

if TYPE_CHECKING:
    from leashed.models.external import External
    from leashed.models.graphs import Graph

__all__ = ["EmbeddingServers"]

_MOST = 4096


@dataclass(frozen=True)
class EmbeddingServers:
    """Servers that hold the rows of trainers' tables, as ``leashed cluster up`` has them.

    A worker asks all of them for the distinct rows of its batch, and pushes their gradients; frames
    have the bytes of the wire, queue for the server's link each way and for its processor, and rows
    are copied, and updated, when their turn there comes. A table is whole on one server, by what its
    rows cost; where there are fewer tables than servers, or one grows, rows are spread by their ids. Servers
    make no pools: all features are read as rows, as with ``--pooling rows``.

    Args:
        count: how many.
        bandwidth: bytes a second of each one's link, each way; ``math.inf``: without bounds.
        latency: seconds of a message.
        batch, row: seconds of a server's processor for a batch, and for each of the rows that it has
            there: half for the look-up, half for the push. ``leashed cluster size`` measures both.
        look_ahead: 1: rows of a worker's next batch are asked for when it begins one; 0: when it
            needs them.

    Raises:
        TypeError, ValueError: an argument is wrong; the message names it.
    """

    count: int
    bandwidth: float = math.inf
    latency: float = 0.0
    batch: float = 0.0
    row: float = 0.0
    look_ahead: int = 1

    def __post_init__(self) -> None:
        checks.whole("count", self.count, maximum=_MOST)
        checks.real("bandwidth", self.bandwidth, 0.0, infinite=True)
        for name in ("latency", "batch", "row"):
            checks.seconds(name, getattr(self, name))
        checks.whole("look_ahead", self.look_ahead, 0, 1)

    def plan(self, model: Graph | External) -> _core.RowServersPlan:
        """As the core is told, for the tables of ``model``."""
        costs = reads(model)
        servers = [0] * len(costs)
        spread = len(costs) < self.count or any(table.rows is None for table in model.tables)
        if not spread:
            ends = list(range(1, len(costs) + 1))
            found = _core.sharding("packed", self.count, ends, costs)[0]
            for server, spans in enumerate(found):
                for begin, end in spans:
                    servers[begin:end] = [server] * (end - begin)
        return _core.RowServersPlan(
            count=self.count,
            bandwidth=self.bandwidth,
            latency=self.latency,
            batch=self.batch,
            row=self.row,
            look_ahead=self.look_ahead,
            servers_of_tables=[] if spread else servers,
        )
