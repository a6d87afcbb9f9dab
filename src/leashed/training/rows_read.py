"""What a training reads of embedding servers, or of a policy server."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from leashed.models import TableSpec
from leashed.rules import Rule
from leashed.staleness import Policy

__all__ = ["POOLINGS", "RowsRead"]

POOLINGS = ("auto", "rows", "servers")
"""Where rows that a model reads pooled are: of each feature where it is fewer bytes, read as rows and
pooled by trainers, or pooled by embedding servers.
"""


@dataclass(frozen=True)
class RowsRead:
    """Rows of tables, and by what they are updated.

    Attributes:
        tables: that the model reads.
        features: of each feature of ids the number of its table.
        poolings: of each of them ``"sum"``, ``"mean"`` or ``"max"``, where the model reads nothing but
            its rows so pooled; None: it reads the rows. Empty: it reads those of all.
        rule: by which rows are updated.
        staleness: likewise.
        seed: of what rows begin with.
        apart: whether each table is looked up and updated by itself, by calls of a loop of somebody's
            own, of whose steps each is one of one table alone; there is a feature for each.
    """

    tables: Sequence[TableSpec]
    features: Sequence[int]
    rule: Rule
    staleness: Policy
    seed: int
    poolings: Sequence[str | None] = ()
    apart: bool = False
