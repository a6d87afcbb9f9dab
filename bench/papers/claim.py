"""A paper's claim, its trial, and how it ends."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any

from leashed.base.table import Table
from leashed.studies.study import Study

__all__ = ["WORDS", "Claim", "End", "Told"]

WORDS = 80
"""The most that a claim, a trial and what came out may have, each."""


class End(Enum):
    """How a claim ends."""

    COMES_OUT = "comes out"
    COMES_OUT_UNDER = "comes out under"
    REFUTED = "refuted"
    DRAWING = "a drawing"
    PRIVATE_DATA = "private data"


_QUALIFIED = {End.COMES_OUT_UNDER: "under what", End.REFUTED: "by what"}


@dataclass(frozen=True)
class Told:
    """What came out of a trial.

    Args:
        end: of the claim.
        of: under what it comes out, or by what it is refuted; nothing for the other ends.
        words: what came out, at most ``WORDS`` of them, with the numbers put in from the records.
        table: the numbers, every setting that was tried among them.
        picture: saves our figure in a folder and returns its path, or None where there is nothing
            to draw; :func:`bench.papers.picture.saved` does it.
        theirs: what the paper's figure shows, in a sentence or two.

    Raises:
        ValueError: the end wants ``of`` and has none, or has one and wants none; or ``words`` are
            too many.
    """

    end: End
    of: str = ""
    words: str = ""
    table: Table | None = None
    picture: Callable[[Path], Path | None] | None = None
    theirs: str = ""

    def __post_init__(self) -> None:
        asked = _QUALIFIED.get(self.end)
        if bool(asked) != bool(self.of):
            told = f"of={self.of!r} goes with no such end" if self.of else f"of must say {asked}"
            raise ValueError(f"{told}: {self.end.value}")
        limited("words", self.words)

    @classmethod
    def judged(cls, out: bool, by: str, **how: Any) -> Told:
        """That it comes out, or by what it is refuted."""
        return cls(End.COMES_OUT, **how) if out else cls(End.REFUTED, by, **how)

    def __str__(self) -> str:
        words = f"{self.end.value} {self.of}" if self.end is End.COMES_OUT_UNDER else self.end.value
        return f"{words} by {self.of}" if self.end is End.REFUTED else words


@dataclass(frozen=True)
class Claim:
    """A claim of a paper, and the trial that it is given: declared before that runs.

    Args:
        at: where the paper has it, such as ``"Figure 5"``; its heading, which no other has.
        claim: what the paper says, at most ``WORDS`` words.
        trial: arms, seeds, measure, the model taken, which settings are ours and what counts as
            coming out, at most ``WORDS`` words.
        tell: of the records, in the order of their file, what came out, or None where they have no
            run of its trial; of no records where there is no file to be.
        command: what makes the results, such as ``"leashed bench shat"``.
        results: the name of their file in ``bench/experiments/<machine>``, without
            ``.jsonl.gz``; None: the claim needs none, being settled by arithmetic or counting.
        parse: a record from its line. Default: a study's, as a dict.

    Raises:
        ValueError: a text has too many words.
    """

    at: str
    claim: str
    trial: str
    tell: Callable[[Sequence[Any]], Told | None]
    command: str = ""
    results: str | None = None
    parse: Callable[[str], Any] = Study.parsed

    def __post_init__(self) -> None:
        limited("claim", self.claim)
        limited("trial", self.trial)


def limited(name: str, text: str) -> None:
    """ValueError where a text has more than ``WORDS`` words."""
    if (count := len(text.split())) > WORDS:
        raise ValueError(f"{name} has {count} words, of at most {WORDS}: {text}")
