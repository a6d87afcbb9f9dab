"""The commands' arguments for update rule, schedule and staleness policy.

``NAME:key=value,…`` makes each of them from the function or class of that name.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from leashed import schedules, staleness
from leashed.rules import RULES, SWAP, Rule
from leashed.schedules import Schedule
from leashed.staleness import POLICIES, Policy

__all__ = ["add_rule", "policy_of", "rule_of", "staleness_of"]

T = TypeVar("T")

SCHEDULES: dict[str, Callable[..., Schedule]] = {
    "step": schedules.step,
    "cosine": schedules.cosine,
    "warmup": schedules.warmup,
    "scaled": schedules.scaled,
}


def add_rule(parser: argparse.ArgumentParser) -> None:
    """The arguments that ``rule_of`` and ``staleness_of`` read."""
    group = parser.add_argument_group(
        "update rule", "NAME:key=value,... takes the arguments of the Python class or function"
    )
    group.add_argument(
        "--rule",
        default="sgd",
        metavar="NAME[:...]",
        help=f"one of {', '.join(RULES)}; such as adam:beta1=0.8,clip_norm=1 (default: sgd)",
    )
    group.add_argument("--lr", type=float, help="step size; " + _steps())
    group.add_argument(
        "--schedule",
        action="append",
        default=[],
        metavar="NAME:...",
        help=f"of the step size, one of {', '.join(SCHEDULES)}; such as cosine:total=1000. "
        "A second one, warmup or scaled, changes the first",
    )
    group.add_argument(
        "--swap",
        metavar="period=T[,decay=L,as_printed=true]",
        help="decay the accumulated squares of "
        f"{', '.join(name for name, kind in RULES.items() if kind.SQUARES)} every T updates",
    )
    group.add_argument(
        "--staleness",
        default="none",
        metavar="NAME[:...]",
        help="what a gradient is multiplied by for its staleness: one of "
        f"{', '.join(POLICIES)}; such as power:k=2 (default: none)",
    )
    group.add_argument(
        "--stage-aware",
        type=float,
        metavar="LAMBDA",
        help="count staleness by sigmoid(LAMBDA |last update|) of each variable",
    )


def rule_of(options: argparse.Namespace) -> Rule:
    """The rule that the arguments describe.

    Raises:
        TypeError, ValueError: they describe none; the message says which argument is wrong.
    """
    default = _choose(RULES, "--rule", options.rule.partition(":")[0]).LR
    lr: float | Schedule = default if options.lr is None else options.lr
    for text in options.schedule:
        schedule = _made(SCHEDULES, "--schedule", text)
        try:
            lr = schedule(lr)
        except TypeError as error:
            raise ValueError(f"--schedule {text}: {error}") from None
    rule = _made(RULES, "--rule", options.rule)(lr)
    if options.swap is None:
        return rule
    swap: Callable[..., Rule] = SWAP
    try:
        return swap(rule, **_settings("--swap", options.swap))
    except TypeError as error:
        raise ValueError(f"--swap {options.swap}: {_plain(error)}") from None


def staleness_of(options: argparse.Namespace) -> Policy:
    """The staleness policy that the arguments describe.

    Raises:
        TypeError, ValueError: they describe none; the message says which argument is wrong.
    """
    policy = policy_of(options.staleness)
    if options.stage_aware is None:
        return policy
    return staleness.stage_aware(policy, options.stage_aware)


def policy_of(text: str, option: str = "--staleness") -> Policy:
    """The staleness policy that ``NAME:key=value,…`` describes.

    Raises:
        ValueError: it describes none; the message says what is wrong.
    """
    return _made(POLICIES, option, text)()


def _steps() -> str:
    return "default: " + ", ".join(f"{kind.LR:g} for {name}" for name, kind in RULES.items())


def _choose(known: Mapping[str, T], option: str, name: str) -> T:
    if name not in known:
        raise ValueError(f"{option} {name!r} is unknown; choose one of {', '.join(known)}")
    return known[name]


def _made(known: Mapping[str, Callable[..., T]], option: str, text: str) -> Callable[..., T]:
    """What ``text`` names, with its settings, for the arguments that are left to be called with."""
    name, _, settings = text.partition(":")
    make = _choose(known, option, name)
    given = _settings(option, settings)

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


def _settings(option: str, text: str) -> dict[str, bool | int | float]:
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
