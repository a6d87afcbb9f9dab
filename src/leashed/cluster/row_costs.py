"""What a row costs an embedding server: to be found, copied out and updated, by the number of its floats.

Profiled once in a run, by its master, and told to all, as what exchanges with sync servers cost; so all
derive from it the same servers of each table (``row_packing``).
"""

from __future__ import annotations

import json
import logging
from typing import Any

import numpy as np
from msgspec import Struct

from leashed.cluster import sizing
from leashed.cluster.packing import BY_ROW_BYTES, FRAGMENT, Costs
from leashed.models.tables import Table, bytes_per_row, rule_of
from leashed.training.rows_read import RowsRead

__all__ = ["RowTerms", "profile"]

_ROWS = 2**15  # of a table that is measured: rows that come often are in caches at a server, too
_DIMS = (4, 64)
_FEW, _MANY = 16, 512  # rows of a batch
_BATCHES = 16

_log = logging.getLogger(__name__)


class RowTerms(Struct, frozen=True, forbid_unknown_fields=True):
    """What a master knows of the tables of its run's embedding servers.

    Attributes:
        tables: of each its name, floats of a row, and rows; None: it grows.
        features: of each feature of ids the number of its table.
        rule: by which rows are updated, as JSON.
        row_bytes: of each table the memory that a row takes.
        room: bytes that a server has for tables that do not grow; None: as many as they need.
    """

    tables: list[tuple[str, int, int | None]]
    features: list[int]
    rule: str
    row_bytes: list[int]
    room: float | None = None

    @classmethod
    def of(cls, read: RowsRead, room: float | None = None) -> RowTerms:
        """Of what a training reads, and so much memory of a server."""
        rule: Any = read.rule.config()
        tables = [(one.name, one.dim, one.rows) for one in read.tables]
        row_bytes = [bytes_per_row(one.dim, read.rule, read.staleness) for one in read.tables]
        told = json.dumps(rule, sort_keys=True)
        return cls(tables, list(read.features), told, row_bytes, room)


def profile(rule: str) -> Costs:
    """Measure, on this machine, what a row costs an embedding server that updates it by a rule: processor
    seconds, over a connection of its own on loopback, beside what a batch costs whatever its rows. That
    takes a fraction of a second.

    Args:
        rule: as of ``RowTerms``.

    Returns:
        The costs of a row of one float, and of as many as a fragment has; ``BY_ROW_BYTES`` where they cannot be
        measured: the assignment is then by bytes.
    """
    made = rule_of(json.loads(rule))
    try:
        few, many = (_of_row(Table(dim=dim, rows=_ROWS, rule=made)) for dim in _DIMS)
    except (OSError, RuntimeError, ValueError) as error:  # the core's are ValueErrors
        _log.warning("rows cannot be profiled (%s); tables are assigned by bytes", str(error))
        return BY_ROW_BYTES
    each = (many - few) / (_DIMS[1] - _DIMS[0])
    one = few - each * (_DIMS[0] - 1)
    # (Some systems tell a thread's processor time in steps of milliseconds.)
    if min(each, one) <= 0.0:
        return BY_ROW_BYTES
    return Costs(one, one + each * (FRAGMENT - 1))


def _of_row(table: Table) -> float:
    rng = np.random.default_rng(0)

    def of_batch(rows: int) -> dict[str, float]:
        ids = rng.permutation(_ROWS)[: _BATCHES * rows].astype(np.uint64)
        return sizing.profiled([table], ids.reshape(_BATCHES, 1, rows))

    return sizing.line(of_batch(_FEW), of_batch(_MANY), "serving").row
