"""What words stand for: the command line's arguments are such words, and a plan's file has them too.

``NAME:key=value,…`` makes a rule, a schedule, a staleness policy, a discipline, a mode or a
synchroniser of the function or class of that name. What was spelled otherwise is in ``OLD``, and in
``modern``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, MutableMapping, Sequence
from typing import Any, NamedTuple, Protocol, TypeVar

from leashed import _core, datasets, schedules, staleness
from leashed.base.choice import Choice
from leashed.base.warning import warn
from leashed.base.words import choose, made, plain, settings
from leashed.datasets import Split
from leashed.disciplines import DISCIPLINES, Discipline
from leashed.disciplines import WORDS as DISCIPLINE_WORDS
from leashed.modes import WORDS as MODE_WORDS
from leashed.modes import Mode
from leashed.rules import RULES, SGD, SWAP, Adagrad, Rule
from leashed.schedules import Schedule
from leashed.staleness import POLICIES, Policy
from leashed.training import defaults

__all__ = [
    "DISCIPLINE_WORDS",
    "MODE_WORDS",
    "OBSERVERS",
    "OLD",
    "SCHEDULES",
    "RuleWords",
    "data_of",
    "discipline_of",
    "listed",
    "made",
    "mode_of",
    "modern",
    "observers_of",
    "policy_of",
    "renew",
    "rule_of",
    "settings",
    "staleness_of",
    "with_settings",
    "word_of",
]

T = TypeVar("T")

SCHEDULES: Mapping[str, Callable[..., Schedule]] = {
    "step": schedules.step,
    "inverse": schedules.inverse,
    "cosine": schedules.cosine,
    "warmup": schedules.warmup,
    "scaled": schedules.scaled,
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


class Old(NamedTuple):
    """A setting that was an argument of its own: by which one it is told now, of what where that is
    not given (None: it has to be).
    """

    name: str
    default: str | None


OLD: Mapping[str, Old] = {
    "persistence": Old("discipline", "leashed"),
    "term": Old("mode", None),
}
"""By the argument's name, which is the setting's too."""

_RENAMED = {"hogwild-direct": "hogwild:copy=false"}


def modern(text: str) -> str:
    """``NAME:key=value,…`` of what may be spelled as it was: ``NAME:key=value:key=value``."""
    name, colon, rest = text.strip().partition(":")
    return _RENAMED.get(name, f"{name}{colon}{rest.replace(':', ',')}")


def listed(text: str) -> list[str]:
    """Several, between commas: ``gba:m=8,iota=2,asp`` are two, since no name has a ``=``."""
    found: list[str] = []
    for part in map(str.strip, text.split(",")):
        if found and "=" in part and ":" not in part.partition("=")[0]:
            found[-1] += f",{part}"
        else:
            found.append(part)
    return found


def renew(given: MutableMapping[str, Any], told: Callable[[str], object], before: str) -> None:
    """Spells what is given by name as it is spelled now; ``told`` is called with a line of each that
    was not. ``modes`` are several, each of which has the settings of ``mode``.

    Raises:
        ValueError: a setting is given in both ways, or without what it is a setting of.
    """

    def as_now(name: str, texts: list[str], was: str) -> None:
        known = DISCIPLINE_WORDS if name == "discipline" else MODE_WORDS
        for text in texts:
            _checked(made(known, f"{before}{name}", text)())  # its error comes alone
        given[name] = ",".join(texts)
        told(f"{was} is spelled {_option(before, name, given[name])} now")

    for name in ("discipline", "mode", "modes"):
        if isinstance(text := given.get(name), str):
            several = listed(text) if name == "modes" else [text.strip()]
            if (texts := [modern(one) for one in several]) != several:
                as_now(name, texts, _option(before, name, text))
    for setting, old in OLD.items():
        if (value := given.pop(setting, None)) is None:
            continue
        name = f"{old.name}s" if given.get(f"{old.name}s") else old.name
        if (text := given.get(name) or old.default) is None:
            raise ValueError(
                f"{before}{setting} goes with {before}{old.name}; give that too, or leave it out"
            )
        texts = listed(text) if name == "modes" else [str(text)]
        for one in texts:
            if setting in settings(before + name, one.partition(":")[2]):
                raise ValueError(
                    f"{_option(before, setting, value)} and {_option(before, name, one)} both give "
                    f"{setting}; give the second alone"
                )
        as_now(name, [_with(one, setting, value) for one in texts], _option(before, setting, value))


def _option(before: str, name: str, value: object) -> str:
    """As who has written it would write it again: on a command line, or in a file of TOML."""
    if before == "--":
        return f"{before}{name} {value}"
    return f'{before}{name} = "{value}"' if isinstance(value, str) else f"{before}{name} = {value}"


def _with(text: str, setting: str, value: object) -> str:
    told = str(value).lower() if isinstance(value, bool) else value
    return f"{text}{',' if ':' in text else ':'}{setting}={told}"


def with_settings(text: str, values: Mapping[str, object]) -> str:
    """``NAME:key=value,…`` and further settings."""
    for setting, value in values.items():
        text = _with(text, setting, value)
    return text


def _made(known: Mapping[str, Callable[..., T]], option: str, text: str) -> T:
    """What ``modern`` text names, with a warning where that is another."""
    found: T = made(known, option, now := modern(text))()
    if now != text.strip():
        _checked(found)
        warn(f"{option} {text} is spelled {option} {now} now")
    return found


def _checked(found: object) -> None:
    """Also by the core, which knows what values a mode's numbers may have."""
    if isinstance(found, Mode):
        name, settings = found.machine(1, 1, 0.0)
        numbers: Any = settings
        _core.PolicyMachine(name, numbers)


def discipline_of(text: str, before: str = "--") -> Discipline:
    """The discipline that ``NAME:key=value,…`` describes: ``leashed:persistence=1``.

    Args:
        text: a name of ``DISCIPLINE_WORDS``, and settings.
        before: what errors put before their names.

    Raises:
        TypeError, ValueError: there is none; the message says which argument is wrong.
    """
    return _made(DISCIPLINE_WORDS, before + "discipline", text)


def word_of(discipline: Discipline) -> str:
    """What ``discipline_of`` makes it of."""
    name, plain = next(
        (name, made) for name, made in DISCIPLINES.items() if type(made) is type(discipline)
    )
    others = {key: value for key, value in vars(discipline).items() if value != vars(plain)[key]}
    return with_settings(name, others)


def mode_of(text: str, option: str = "--mode") -> Mode:
    """The mode of training that ``NAME:key=value,…`` describes: ``gba:m=8,iota=2,term=30``.

    Raises:
        ValueError: it describes none; the message says what is wrong.
    """
    return _made(MODE_WORDS, option, text)


def rule_of(words: RuleWords, before: str = "--", default: SGD | Adagrad | None = None) -> Rule:
    """The rule that words describe.

    Args:
        words: an ``argparse.Namespace`` will do.
        before: what errors put before their names.
        default: where they name none; None: that of models that are not of clicks.

    Raises:
        TypeError, ValueError: they describe none; the message says which argument is wrong.
    """
    default = defaults.rule(of_clicks=False) if default is None else default
    named = type(default).__name__.lower() if words.rule is None else words.rule
    name, _, rest = named.partition(":")
    kind = choose(RULES, before + "rule", name)
    own = settings(before + "rule", rest).get("lr")
    if None not in (own, words.lr):
        raise ValueError(
            f"{before}lr {words.lr:g} and {before}rule {named} both give lr; give one of the two"
        )
    step = default.lr if words.rule is None else kind.LR
    lr: float | Schedule = next(given for given in (words.lr, own, step) if given is not None)
    for text in words.schedule:
        schedule = made(SCHEDULES, before + "schedule", text, ("lr", "schedule"))
        try:
            lr = schedule(lr)
        except TypeError as error:
            raise ValueError(f"{before}schedule {text}: {error}") from None
    rule = made(RULES, before + "rule", named)(lr=lr)
    if words.swap is None:
        return rule
    swap: Callable[..., Rule] = SWAP
    try:
        return swap(rule, **settings(before + "swap", words.swap))
    except TypeError as error:
        raise ValueError(f"{before}swap {words.swap}: {plain(error)}") from None


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
    return made(POLICIES, option, text)()


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
        known = choose(OBSERVERS, option, name)
        if sorted(numbers) != sorted(known):
            wanted = f"takes {', '.join(known)}" if known else "takes no settings"
            raise ValueError(f"{option} {text}: {name} {wanted}")
        if any(name == other for other, _ in found):
            raise ValueError(f"{option} has {name} twice; leave one of the two out")
        found.append((name, {**numbers}))
    return found
