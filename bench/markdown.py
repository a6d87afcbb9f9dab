"""Tables in Markdown, and numbers in them."""

from __future__ import annotations

from collections.abc import Sequence

from leashed.base.table import MISSING, number

__all__ = ["count", "number", "paragraphs", "table", "thousands"]


def paragraphs(*parts: str) -> str:
    """The parts that are not empty, with an empty line between them."""
    return "\n\n".join(part for part in parts if part)


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table: the first column to the left, the others to the right."""
    rule = ["---", *("---:" for _ in head[1:])]
    return "\n".join(f"| {' | '.join(line)} |" for line in [head, rule, *rows])


def thousands(value: float | None) -> str:
    """A large number, in whole thousands."""
    return MISSING if value is None else f"{value / 1e3:,.0f}k"


def count(things: int, name: str) -> str:
    """``1 thread``, ``2 threads``."""
    return f"{things} {name}{'' if things == 1 else 's'}"
