"""``leashed bench staleness``."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from leashed.cli import study
from leashed.studies.damping import Asked
from leashed.studies.stale import Counting

if TYPE_CHECKING:
    from leashed.cli.arguments import Arguments, Commands

_SHARED = ("workers", "seed", "short")


def add(benchmarks: Commands) -> None:
    """Add the command."""
    parser = benchmarks.add_parser(
        "staleness",
        help="staleness among thousands of workers: Figures 3 and 5 of extreme-scale-asgd",
        description="Count how stale the updates of thousands of asynchronous workers are, in virtual "
        "time, with gradients' times exponentially distributed, of rates drawn once for each worker, "
        "and nearly constant, beside theory and what the paper measured. With --damping a "
        "recommender is trained in place of it, with no, linear, printed and normalised damping of "
        f"stale gradients. {study.STATUSES}",
    )
    study.add_fields(parser, Counting)
    add_arguments(parser)
    study.add_arguments(parser)
    parser.set_defaults(command=_staleness)


def add_arguments(parser: Arguments) -> None:
    """The arguments of ``--damping``."""
    own = parser.add_argument_group("damping")
    own.add_argument("--damping", action="store_true", help="train with each damping: Figure 5")
    study.add_fields(own, Asked, leave=_SHARED)


def refuse(options: argparse.Namespace) -> None:
    """ValueError where an argument is given that goes with --damping alone."""
    for name in ("model", "times", "lr", "repeats"):
        if getattr(options, name) is not None:
            raise ValueError(f"--{name} goes with --damping; give that too, or leave it out")


def damping(options: argparse.Namespace) -> int:
    """The command with ``--damping``."""
    if options.updates is not None:
        raise ValueError("--updates does not go with --damping, whose workers make 12 each")
    return _perform(options, Asked)


def _staleness(options: argparse.Namespace) -> int:
    if options.damping:
        return damping(options)
    refuse(options)
    return _perform(options, Counting)


def _perform(options: argparse.Namespace, kind: type[Asked | Counting]) -> int:
    kept = study.kept_of(options)
    return study.perform(kind(**study.given(options, kind)), options, kept)
