"""What rows are to give, in one word: a click, a number, or one of several classes."""

from __future__ import annotations

from typing import Literal, TypeAlias

from leashed.base import checks

__all__ = ["TargetWord", "check_target", "classes_of", "of_text"]

TargetWord: TypeAlias = "Literal['click', 'number', 'classes'] | int"
"""``"classes"``: as many as the data have."""

_WORDS = ("click", "number", "classes")
_MOST = 2**31 - 1
REMEDY = 'target="number" is for numbers, target="classes" for whole numbers from 0'


def check_target(target: object) -> TargetWord:
    """``target``; TypeError or ValueError where it is no such word."""
    if isinstance(target, str):
        if target not in _WORDS:
            raise ValueError(
                'target must be "click", "number", "classes" or how many classes there are, got '
                f"{target!r}"
            )
        return target  # type: ignore[return-value]
    return checks.whole("target", target, 2, _MOST)


def classes_of(target: TargetWord) -> int | None:
    """How many classes labels have: of numbers 0; None: as many as the data have."""
    if isinstance(target, int):
        return target
    return {"click": 2, "number": 0, "classes": None}[target]


def of_text(text: str, option: str = "--target") -> TargetWord:
    """What a command line calls it: a word, or ``classes=5``."""
    word, equals, count = text.partition("=")
    if not equals:
        if word in _WORDS:
            return check_target(word)
    elif word == "classes" and count.isdecimal() and 2 <= int(count) <= _MOST:
        return int(count)
    raise ValueError(f"{option} must be click, number, classes or classes=N, got {text!r}")
