"""Plain-text tables and the numbers in them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

MISSING = "–"


def found(value: float) -> str:
    """What an observer has found: counts as whole numbers, others with three significant digits."""
    return f"{value:,.0f}" if float(value).is_integer() else number(value)


def number(value: float, digits: int = 3) -> str:
    """A number with so many significant digits, thousands separated; a dash for NaN."""
    if math.isnan(value):
        return MISSING
    if math.isinf(value):
        return "∞" if value > 0 else "-∞"
    if value == 0.0:
        return "0"
    scientific = f"{value:.{digits - 1}e}"
    magnitude = int(scientific.partition("e")[2])
    if magnitude < -5:
        return scientific
    return f"{value:,.{max(0, digits - 1 - magnitude)}f}"


def duration(seconds: float) -> str:
    """A duration with its unit: s, ms or µs."""
    if math.isnan(seconds):
        return MISSING
    for unit, size in (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6)):
        if seconds >= size or unit == "µs":
            return f"{number(seconds / size)} {unit}"
    raise AssertionError


def mebibytes(size: float) -> str:
    """Bytes as MiB."""
    return f"{number(size / 2**20)} MiB"


def percent(fraction: float) -> str:
    """A fraction as a percentage without superfluous digits."""
    return f"{100.0 * fraction:g}%"


def change(saving: float) -> str:
    """A saving as the change that it is, in percent; a dash for NaN."""
    return MISSING if math.isnan(saving) else f"{round(-100.0 * saving, 1) + 0.0:+.1f}%"


def spread(values: Sequence[float]) -> str:
    """Median (least–most); a dash if there is no value, one number if there is one."""
    ordered = sorted(values)
    if not ordered:
        return MISSING
    middle = len(ordered) // 2
    median = (ordered[middle] + ordered[-1 - middle]) / 2.0
    if len(ordered) == 1:
        return number(median)
    return f"{number(median)} ({number(ordered[0])}–{number(ordered[-1])})"


def text(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table in columns: the first to the left, the others to the right, a rule under the header.

    Raises:
        ValueError: a row has another length than the header.
    """
    lines = [list(header), *(list(row) for row in rows)]
    if any(len(line) != len(header) for line in lines):
        raise ValueError("every row must have as many columns as the header")
    widths = [max(len(line[k]) for line in lines) for k in range(len(header))]

    def joined(line: Sequence[str]) -> str:
        cells = [line[0].ljust(widths[0])]
        cells += [cell.rjust(width) for cell, width in zip(line[1:], widths[1:], strict=True)]
        return "  ".join(cells).rstrip()

    rule = "  ".join("─" * width for width in widths)
    return "\n".join([joined(lines[0]), rule, *(joined(line) for line in lines[1:])])


def pairs(rows: Sequence[tuple[str, str]]) -> str:
    """Names and what they are, both to the left."""
    width = max(len(name) for name, _ in rows)
    return "\n".join(f"{name.ljust(width)}  {value}" for name, value in rows)


class Table(NamedTuple):
    """A header and rows of as many columns."""

    header: list[str]
    rows: list[list[str]]

    def __str__(self) -> str:
        return text(self.header, self.rows)
