"""What words stand for, in Python and on the command line: ``NAME:key=value,…`` is what the function
or class of that name makes of these settings.

    words.made(RULES, "rule", "adam:beta1=0.8")(lr=0.01)
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Mapping
from typing import Any, TypeVar

__all__ = ["choose", "made", "plain", "settings"]

T = TypeVar("T")


def choose(known: Mapping[str, T], option: str, name: str) -> T:
    """What has that name; ValueError with those that there are where nothing has."""
    if name not in known:
        raise ValueError(f"{option} {name!r} is unknown; choose one of {', '.join(known)}")
    return known[name]


def made(
    known: Mapping[str, Callable[..., T]], option: str, text: str, without: Collection[str] = ()
) -> Callable[..., T]:
    """What ``text`` names, with its settings, for the arguments that are left to be called with.

    Args:
        known: what is called, by name.
        option: what errors begin with: the argument, as who gave it spells it.
        text: ``NAME:key=value,…``.
        without: arguments that are no settings.

    Raises:
        ValueError: there is none of that name, or it has no such setting; the message says what there
            is. So does what is called.
    """
    name, _, rest = text.partition(":")
    make = choose(known, option, name.strip())
    given = settings(option, rest)
    has = [key for key in inspect.signature(make).parameters if key not in without]
    if unknown := [key for key in given if key not in has]:
        raise ValueError(
            f"{option} {text}: {name} has no {unknown[0]!r}; it has "
            f"{', '.join(has) or 'no settings'}"
        )

    def call(*args: Any, **named: Any) -> T:
        try:
            return make(*args, **{**given, **named})
        except TypeError as error:
            raise ValueError(f"{option} {text}: {plain(error)}") from None

    return call


def plain(error: TypeError) -> str:
    """A call's error without the names of Python's functions."""
    message = str(error)
    return message.partition("() ")[2] or message


def settings(option: str, text: str) -> dict[str, bool | int | float]:
    """The settings that ``key=value,…`` stands for.

    Raises:
        ValueError: ``text`` is something else; the message begins with ``option``.
    """
    found: dict[str, bool | int | float] = {}
    for part in filter(None, text.split(",")):
        key, equals, value = part.partition("=")
        if not equals:
            raise ValueError(f"{option} takes key=value,..., not {part!r}")
        if (key := key.strip()) in found:
            raise ValueError(f"{option}: {key} is given twice in {text!r}; give it once")
        found[key] = _number(f"{option}: {key}", value.strip())
    return found


def _number(option: str, text: str) -> bool | int | float:
    if text in {"true", "false"}:
        return text == "true"
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    raise ValueError(f"{option} is {text!r}, neither a number nor true or false")
