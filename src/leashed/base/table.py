"""Plain-text tables and the numbers in them."""

from __future__ import annotations

import math
import shutil
import sys
import textwrap
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from typing_extensions import Self

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


def columns() -> int | None:
    """Of the terminal that is printed on; None: it is none, and lines may have any length."""
    if sys.stdout is None or not sys.stdout.isatty():
        return None
    return shutil.get_terminal_size().columns


def fitting(widths: Sequence[float], most: float) -> list[list[int]]:
    """The columns of a table, in parts of at most that width together where that can be; each part
    begins with the first column, which names the rows.
    """
    parts: list[list[int]] = [[0]]
    for column in range(1, len(widths)):
        if len(parts[-1]) > 1 and sum(widths[k] for k in parts[-1]) + widths[column] > most:
            parts.append([0])
        parts[-1].append(column)
    return parts


def text(header: Sequence[str], rows: Sequence[Sequence[str]], most: int | None = None) -> str:
    """A table in columns: the first to the left, the others to the right, a rule under the header.

    Args:
        header: a name for each column.
        rows: a cell for each.
        most: characters of a line; a wider table goes on below, in parts that each begin with the
            first column. Default: any number.

    Raises:
        ValueError: a row has another length than the header.
    """
    lines = [list(header), *(list(row) for row in rows)]
    if any(len(line) != len(header) for line in lines):
        raise ValueError("every row must have as many columns as the header")
    widths = [max(len(line[k]) for line in lines) for k in range(len(header))]

    def part(of: Sequence[int]) -> str:
        def joined(line: Sequence[str]) -> str:
            cells = [line[0].ljust(widths[0]), *(line[k].rjust(widths[k]) for k in of[1:])]
            return "  ".join(cells).rstrip()

        rule = "  ".join("─" * widths[k] for k in of)
        return "\n".join([joined(lines[0]), rule, *map(joined, lines[1:])])

    parts = fitting([width + 2 for width in widths], math.inf if most is None else most + 2)
    return "\n\n".join(map(part, parts))


def pairs(rows: Sequence[tuple[str, str]], most: int | None = None) -> str:
    """Names and what they are, both to the left; what is longer than a line goes on below itself."""
    width = max(len(name) for name, _ in rows)
    if most is None:
        return "\n".join(f"{name.ljust(width)}  {value}" for name, value in rows)
    below = " " * (width + 2)
    return "\n".join(
        textwrap.fill(value, most, initial_indent=f"{name.ljust(width)}  ", subsequent_indent=below)
        or name
        for name, value in rows
    )


class _Table(NamedTuple):
    header: list[str]
    rows: list[list[str]]


class Table(_Table):
    """A header and rows of as many columns; where it is printed on a terminal it fits that. No two
    columns have one name: what comes of a long study is shown all the same, the second as "AUC (2)".
    """

    __slots__ = ()

    def __new__(cls, header: list[str], rows: list[list[str]]) -> Self:
        before = [header[:place].count(name) for place, name in enumerate(header)]
        named = [
            f"{name} ({count + 1})" if name and count else name
            for name, count in zip(header, before, strict=True)
        ]
        return super().__new__(cls, named, rows)

    def __str__(self) -> str:
        return text(self.header, self.rows, columns())
