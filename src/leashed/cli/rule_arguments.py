"""The commands' arguments for update rule, schedule and staleness policy.

What ``NAME:key=value,…`` makes is told in :mod:`leashed.training.spelled`.
"""

from __future__ import annotations

import argparse

from leashed.rules import RULES
from leashed.staleness import POLICIES
from leashed.training.spelled import SCHEDULES, policy_of, rule_of, staleness_of

__all__ = ["add_rule", "policy_of", "rule_of", "staleness_of"]


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
        help="count staleness by sigmoid(LAMBDA |last update|) of each variable, and of each row",
    )


def _steps() -> str:
    return "default: " + ", ".join(f"{kind.LR:g} for {name}" for name, kind in RULES.items())
