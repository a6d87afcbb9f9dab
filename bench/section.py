"""A section of the benchmark, and the goals of all.

Each file of ``bench/sections`` is one; whoever measures, judges or writes the page gathers them here.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import bench.sections
from bench.charts import Bars
from bench.context import Bench
from bench.figures import Results

Parts = Sequence[str | Bars]
"""Paragraphs and charts, or one text."""


@dataclass(frozen=True)
class Goal:
    """One line of the goal table.

    Attributes:
        work: what is measured.
        target: the number to reach.
        measure: the number reached; None where it was not measured.
        least: whether the target is the least that will do; else it is the most.
        unit: of both numbers.
        profile: which of its section's tells where the time goes; "": the first.
    """

    work: str
    target: float
    measure: Callable[[Results], float | None]
    least: bool = True
    unit: str = ""
    profile: str = ""

    def met(self, value: float) -> bool:
        """Whether a number reaches the target."""
        return value >= self.target if self.least else value <= self.target


class Section:
    """What is measured together: a module of ``bench/sections``.

    It has ``PLACE``, on the page and in the order in which all are measured; ``TITLE``; ``measure``,
    which returns the figures; and ``words``, what is below the title, nothing where nothing was
    measured. What it may have: ``GOALS``, or ``goals`` of the results where they depend on the machine;
    and ``PROFILES``, by their headings, what is told where a goal is missed, else title and words.
    ``measure`` imports peers when it is called: where one is not installed, the section is not
    measured, and the page is made nevertheless.
    """

    def __init__(self, made: Any) -> None:
        self.place: int = made.PLACE
        self.title: str = made.TITLE
        self.measure: Callable[[Bench], Any] = made.measure
        self.words: Callable[[Results], Parts] = made.words
        given: Sequence[Goal] = getattr(made, "GOALS", ())
        self.goals: Callable[[Results], Sequence[Goal]] = getattr(made, "goals", lambda _: given)
        self.profiles: Mapping[str, Callable[[Results], Parts]] = getattr(
            made, "PROFILES", {self.title: self.words}
        )


def names() -> list[str]:
    """Of all, of which none is imported."""
    return [module.name for module in pkgutil.iter_modules(bench.sections.__path__)]


@cache
def section(name: str) -> Section:
    """The one of that name."""
    return Section(importlib.import_module(f"bench.sections.{name}"))


def sections() -> dict[str, Section]:
    """By name, in the order of their places."""
    return dict(sorted({n: section(n) for n in names()}.items(), key=lambda item: item[1].place))


def asked(results: Results) -> list[tuple[Section, Goal]]:
    """The goals for the machine of these results, each with its section."""
    return [(each, goal) for each in sections().values() for goal in each.goals(results)]
