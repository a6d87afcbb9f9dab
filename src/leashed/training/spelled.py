"""What words stand for: the command line's arguments are such words, and a plan's file has them too.

``NAME:key=value,…`` makes a rule, a schedule or a staleness policy of the function or class of that
name.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from typing import Any, Protocol, TypeVar

from leashed import _core, datasets, modes, schedules, staleness
from leashed.base.choice import Choice
from leashed.datasets import Split
from leashed.disciplines import DISCIPLINES, Discipline, Hogwild, Leashed
from leashed.modes import Mode
from leashed.rules import RULES, SWAP, Rule
from leashed.schedules import Schedule
from leashed.staleness import POLICIES, Policy
from leashed.training import defaults

__all__ = [
    "DISCIPLINE_WORDS",
    "MODE_WORDS",
    "OBSERVERS",
    "SCHEDULES",
    "RuleWords",
    "data_of",
    "discipline_of",
    "mode_of",
    "observers_of",
    "policy_of",
    "rule_of",
    "settings",
    "staleness_of",
]

T = TypeVar("T")

SCHEDULES: Mapping[str, Callable[..., Schedule]] = {
    "step": schedules.step,
    "cosine": schedules.cosine,
    "warmup": schedules.warmup,
    "scaled": schedules.scaled,
}


DISCIPLINE_WORDS: Mapping[str, Discipline] = {
    **DISCIPLINES,
    "hogwild-direct": Hogwild(copy=False),
}


MODE_WORDS: Mapping[str, type[Mode]] = {
    kind.NAME: kind
    for name in modes.__all__
    if issubclass(kind := getattr(modes, name), Mode) and kind is not Mode
}


OBSERVERS: Mapping[str, Sequence[str]] = _core.observers()


class RuleWords(Protocol):
    """The words of an update rule and its staleness policy, as ``leashed train --help`` has them."""

    @property
    def rule(self) -> str | None:
        """Name and settings; None: the default."""

    @property
    def lr(self) -> float | None:
        """Step size; None: the rule's default."""

    @property
    def schedule(self) -> Sequence[str]:
        """Of the step size, each changing the one before."""

    @property
    def swap(self) -> str | None:
        """SWAP's settings, or None."""

    @property
    def staleness(self) -> str:
        """Policy's name and settings."""

    @property
    def stage_aware(self) -> float | None:
        """λ, or None."""


def data_of(folder: str | None) -> Split:
    """The data set in a folder with the four IDX files of MNIST; None: the synthetic digits.

    Raises:
        OSError, ValueError: the folder or a file in it is missing or wrong.
    """
    return datasets.synthetic_digits() if folder is None else datasets.mnist(folder)


def discipline_of(name: str, persistence: float | None, before: str = "--") -> Discipline:
    """The discipline of that name.

    Args:
        name: of ``DISCIPLINE_WORDS``.
        persistence: T_p, for ``leashed`` alone; None: the discipline's default.
        before: what errors put before their names.

    Raises:
        TypeError, ValueError: there is none; the message says which argument is wrong.
    """
    found = _choose(DISCIPLINE_WORDS, before + "discipline", name)
    if persistence is None:
        return found
    if name != "leashed":
        raise ValueError(f"{before}persistence goes with leashed, not with {name}")
    return Leashed(persistence)


def mode_of(text: str, option: str = "--mode") -> Mode:
    """The mode of training that ``NAME:key=value:…`` describes: ``gba:m=8:iota=2``.

    Raises:
        ValueError: it describes none; the message says what is wrong.
    """
    name, *parts = text.strip().split(":")
    kind = _choose(MODE_WORDS, option, name)
    known = [item.name for item in fields(kind)]
    given: dict[str, Any] = {}
    for part in parts:
        key, _, value = part.partition("=")
        if key not in known:
            raise ValueError(
                f"{option}: {name} has no {key!r}; it has {', '.join(known) or 'no settings'}"
            )
        try:
            given[key] = float(value) if "." in value or "e" in value else int(value)
        except ValueError:
            raise ValueError(f"{option}: {key} of {name} must be a number, got {value!r}") from None
    try:
        return kind(**given)
    except TypeError as error:
        raise ValueError(f"{option} {name}: {_plain(error)}") from None


def rule_of(words: RuleWords, before: str = "--", *, of_clicks: bool = False) -> Rule:
    """The rule that words describe.

    Args:
        words: an ``argparse.Namespace`` will do.
        before: what errors put before their names.
        of_clicks: where they name none, that of models of clicks.

    Raises:
        TypeError, ValueError: they describe none; the message says which argument is wrong.
    """
    default = defaults.rule(of_clicks=of_clicks)
    named = type(default).__name__.lower() if words.rule is None else words.rule
    kind = _choose(RULES, before + "rule", named.partition(":")[0])
    step = default.lr if words.rule is None else kind.LR
    lr: float | Schedule = step if words.lr is None else words.lr
    for text in words.schedule:
        schedule = _made(SCHEDULES, before + "schedule", text)
        try:
            lr = schedule(lr)
        except TypeError as error:
            raise ValueError(f"{before}schedule {text}: {error}") from None
    rule = _made(RULES, before + "rule", named)(lr)
    if words.swap is None:
        return rule
    swap: Callable[..., Rule] = SWAP
    try:
        return swap(rule, **settings(before + "swap", words.swap))
    except TypeError as error:
        raise ValueError(f"{before}swap {words.swap}: {_plain(error)}") from None


def staleness_of(words: RuleWords, before: str = "--") -> Policy:
    """The staleness policy that words describe; arguments as for :func:`rule_of`.

    Raises:
        TypeError, ValueError: they describe none; the message says which argument is wrong.
    """
    policy = policy_of(words.staleness, before + "staleness")
    if words.stage_aware is None:
        return policy
    return staleness.stage_aware(policy, words.stage_aware)


def policy_of(text: str, option: str = "--staleness") -> Policy:
    """The staleness policy that ``NAME:key=value,…`` describes.

    Raises:
        ValueError: it describes none; the message says what is wrong.
    """
    return _made(POLICIES, option, text)()


def observers_of(given: object, option: str = "counting") -> list[Choice]:
    """Those that look on at a training's steps, each described by ``NAME:key=value,…``, for the core.

    Raises:
        TypeError, ValueError: it describes none; the message says what is wrong.
    """
    if isinstance(given, str) or not isinstance(given, Sequence):
        raise TypeError(f"{option} must be a list of such as 'gradient_norms', got {given!r}")
    found: list[Choice] = []
    for text in given:
        if not isinstance(text, str):
            raise TypeError(f"{option} must be a list of str, got {text!r}")
        name, _, rest = text.partition(":")
        numbers = {key: float(value) for key, value in settings(option, rest).items()}
        known = _choose(OBSERVERS, option, name)
        if sorted(numbers) != sorted(known):
            wanted = f"takes {', '.join(known)}" if known else "takes no settings"
            raise ValueError(f"{option} {text}: {name} {wanted}")
        if any(name == other for other, _ in found):
            raise ValueError(f"{option} has {name} twice; leave one of the two out")
        found.append((name, {**numbers}))
    return found


def _choose(known: Mapping[str, T], option: str, name: str) -> T:
    if name not in known:
        raise ValueError(f"{option} {name!r} is unknown; choose one of {', '.join(known)}")
    return known[name]


def _made(known: Mapping[str, Callable[..., T]], option: str, text: str) -> Callable[..., T]:
    """What ``text`` names, with its settings, for the arguments that are left to be called with."""
    name, _, rest = text.partition(":")
    make = _choose(known, option, name)
    given = settings(option, rest)

    def call(*args: Any) -> T:
        try:
            return make(*args, **given)
        except TypeError as error:
            raise ValueError(f"{option} {text}: {_plain(error)}") from None

    return call


def _plain(error: TypeError) -> str:
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
        found[key.strip()] = _number(option, value.strip())
    return found


def _number(option: str, text: str) -> bool | int | float:
    if text in {"true", "false"}:
        return text == "true"
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    raise ValueError(f"{option}: {text!r} is neither a number nor true or false")
