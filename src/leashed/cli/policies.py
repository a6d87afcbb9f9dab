"""``leashed policies``."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from leashed.base import checks
from leashed.staleness import POLICIES
from leashed.training.spelled import policy_of

if TYPE_CHECKING:
    from leashed.cli.arguments import Commands


def add(commands: Commands) -> None:
    """Add the command."""
    parser = commands.add_parser(
        "policies",
        help="draw what staleness policies do",
        description="Draw the factor that a gradient is multiplied by, over its staleness: Figure 2 "
        "of extreme-scale-asgd, or the policies named.",
    )
    parser.add_argument(
        "policies",
        nargs="*",
        metavar="NAME[:...]",
        help=f"of {', '.join(POLICIES)}; such as normalized:mu=1000,k=2 (default: Figure 2's)",
    )
    parser.add_argument(
        "--up-to", type=int, default=3000, metavar="TAU", help="default: %(default)s"
    )
    parser.add_argument(
        "-o", "--output", type=Path, default=Path("policies.png"), help="default: %(default)s"
    )
    parser.set_defaults(command=_policies)


def _policies(options: argparse.Namespace) -> int:
    checks.drawable(options.output)
    from leashed.report.plots.policies import decay_factors  # noqa: PLC0415 (matplotlib is optional)

    named = [policy_of(text, "policy") for text in options.policies] or None
    decay_factors(named, options.up_to).savefig(options.output)
    print(options.output)
    return 0
