"""What rows are to give, in one word: a click, a number, or one of several classes; or several labels, by
their names.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, TypeAlias

from leashed.base import checks

__all__ = ["Asked", "Labels", "TargetWord", "check_heads", "check_target", "classes_of", "of_text"]

TargetWord: TypeAlias = "Literal['click', 'number', 'classes'] | int | tuple[str, ...]"
"""``"classes"``: as many as the data have."""
Asked: TypeAlias = "TargetWord | Sequence[str]"
Labels: TypeAlias = "str | Sequence[str]"
"""The name of a column, or of several that are heads of one model."""

_WORDS = ("click", "number", "classes")
_MOST = 2**31 - 1
REMEDY = 'target="number" is for numbers, target="classes" for whole numbers from 0'


def check_target(target: object) -> TargetWord:
    """``target``; TypeError or ValueError where it is no such word."""
    if isinstance(target, str):
        if target not in _WORDS:
            raise ValueError(
                'target must be "click", "number", "classes", how many classes there are, or the names of '
                f"several labels, got {target!r}"
            )
        return target  # type: ignore[return-value]
    if isinstance(target, (tuple, list)):
        return check_heads("target", target)
    return checks.whole("target", target, 2, _MOST)


def check_heads(argument: str, names: object, count: int | None = None) -> tuple[str, ...]:
    """The names of several labels, two at least, as a tuple. TypeError or ValueError where they are not one
    str for each of so many, none twice.
    """
    if not isinstance(names, (tuple, list)) or not all(isinstance(name, str) for name in names):
        raise TypeError(f"{argument} must be the names of labels, each a str, got {names!r}")
    if "" in names:
        raise ValueError(f"{argument} has an empty name, got {list(names)}; name each label")
    if twice := [name for name in names if names.count(name) > 1]:
        raise ValueError(f"{argument} has {twice[0]!r} twice; name each label once")
    if len(names) < 2:
        raise ValueError(
            f"{argument} must name two labels at least, got {list(names)}; of one label give the name"
        )
    if count not in (None, len(names)):
        raise ValueError(
            f"{argument} must name each of the {count} columns of y, got {len(names)}: "
            f"{', '.join(names)}"
        )
    return tuple(names)


def classes_of(target: TargetWord) -> int | None:
    """How many classes labels have: of numbers, and of several labels, 0; None: as many as the data have."""
    if isinstance(target, int):
        return target
    return 0 if isinstance(target, tuple) else {"click": 2, "number": 0, "classes": None}[target]


def of_text(text: str, option: str = "--target") -> TargetWord:
    """What a command line calls it: a word, or ``classes=5``."""
    word, equals, count = text.partition("=")
    if not equals:
        if word in _WORDS:
            return check_target(word)
    elif word == "classes" and count.isdecimal() and 2 <= int(count) <= _MOST:
        return int(count)
    raise ValueError(f"{option} must be click, number, classes or classes=N, got {text!r}")
