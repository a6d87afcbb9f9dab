"""``leashed tune``."""

from __future__ import annotations

import argparse
import math
import sys
from typing import TYPE_CHECKING

from leashed.base.table import duration
from leashed.cli import study
from leashed.cli.arguments import add_fields, given, listed
from leashed.studies.study import Record
from leashed.studies.tune import BATCH_SIZES, NOT_TUNED, Search, trial_of
from leashed.training.job import GROUPS
from leashed.training.problems.problem import problem_of
from leashed.training.progress import tell

if TYPE_CHECKING:
    from leashed.cli.arguments import Commands


def add(commands: Commands) -> None:
    """Add the command."""
    parser = commands.add_parser(
        "tune",
        help="find what reaches a loss soonest on this machine",
        description="Try step sizes, batch sizes, disciplines and numbers of threads within a "
        "budget of time, print every trial, the choice with the least time to ε, and the command that "
        "trains so; what is trained, and how, has the words of 'leashed train'. Where none gets there "
        "the exit status is 1. "
        f"{study.STATUSES}",
    )
    add_fields(parser, Search, leave=("batch_size",), hidden=tuple(NOT_TUNED), groups=GROUPS)
    parser.add_argument(
        "--batch-size",
        dest="batch_sizes",
        type=listed(int),
        default=BATCH_SIZES,
        help=f"those to try, separated by commas (default: {','.join(map(str, BATCH_SIZES))})",
    )
    study.add_arguments(parser)
    parser.set_defaults(command=_tune)


def _tune(options: argparse.Namespace) -> int:
    kept = study.kept_of(options)
    asked = Search(batch_sizes=options.batch_sizes, **given(options, Search))
    problem = problem_of(asked)

    def ended(record: Record, _: str) -> None:
        trial = trial_of(record)
        reached = duration(trial.seconds) if math.isfinite(trial.seconds) else "not reached"
        told = f"{reached:>12}  {trial.candidate}, seed {trial.seed} ({trial.outcome})"
        print(told, file=sys.stderr if options.json_lines else sys.stdout, flush=True)

    status = study.perform(asked, options, kept, problem, ended=ended)
    if status:
        return status
    try:
        asked.tuning(kept.records)
    except RuntimeError as error:  # no trial reached ε
        tell(f"leashed: {error}")
        return 1
    return 0
