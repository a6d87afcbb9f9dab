"""What a process has counted, as cells of tables."""

from __future__ import annotations

import math

from leashed.base.table import MISSING, mebibytes, number
from leashed.cluster.measures import Counters

__all__ = ["count", "size", "whole"]


def count(counters: Counters, name: str) -> str:
    """How often; a dash where nobody has counted that."""
    return whole(counters.get(name, math.nan))


def whole(value: float) -> str:
    """A number without its decimals; a dash for NaN."""
    return f"{value:,.0f}" if math.isfinite(value) else number(value)


def size(counters: Counters, name: str) -> str:
    """Bytes as MiB; a dash where nobody has counted them."""
    return mebibytes(counters[name]) if name in counters else MISSING
