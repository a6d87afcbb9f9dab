"""The commands' arguments for update rule, schedule and staleness policy.

What ``NAME:key=value,…`` makes is told in :mod:`leashed.training.spelled`.
"""

from __future__ import annotations

import argparse

from leashed.rules import RULES
from leashed.staleness import POLICIES
from leashed.training import defaults
from leashed.training.spelled import SCHEDULES, policy_of, rule_of, staleness_of

__all__ = ["add_rule", "policy_of", "rule_of", "staleness_of"]


def add_rule(parser: argparse.ArgumentParser, *, clicks: bool = False) -> None:
    """The arguments that ``rule_of`` and ``staleness_of`` read; ``clicks``: there are models of clicks."""
    of_clicks = defaults.rule(of_clicks=True)
    name, lr = type(of_clicks).__name__.lower(), of_clicks.lr
    group = parser.add_argument_group(
        "update rule", "NAME:key=value,... takes the arguments of the Python class or function"
    )
    group.add_argument(
        "--rule",
        default=None if clicks else "sgd",
        metavar="NAME[:...]",
        help=f"one of {', '.join(RULES)}; such as adam:beta1=0.8,clip_norm=1 (default: sgd"
        + (f"; {name} of models of clicks)" if clicks else ")"),
    )
    group.add_argument(
        "--lr",
        type=float,
        help=f"step size; {_steps()}"
        + (f"; {lr} of models of clicks without --rule" if clicks else ""),
    )
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
        help="count staleness by sigmoid(LAMBDA |last update|) of each variable, and of each row",
    )


def _steps() -> str:
    return "default: " + ", ".join(f"{kind.LR:g} for {name}" for name, kind in RULES.items())
