"""What a training reads of embedding servers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from leashed.models import TableSpec
from leashed.rules import Rule
from leashed.staleness import Policy

__all__ = ["RowsRead"]


@dataclass(frozen=True)
class RowsRead:
    """Rows of tables, and by what they are updated.

    Attributes:
        tables: that the model reads.
        features: of each feature of ids the number of its table.
        rule: by which rows are updated.
        staleness: likewise.
        seed: of what rows begin with.
    """

    tables: Sequence[TableSpec]
    features: Sequence[int]
    rule: Rule
    staleness: Policy
    seed: int
