"""``leashed tune``."""

from __future__ import annotations

import argparse
import math
import sys
from typing import TYPE_CHECKING

from leashed.cli.arguments import add_data, listed, load_data
from leashed.models._parameters import INITIALISATIONS
from leashed.report.table import duration
from leashed.studies.scaling import MODELS, build_model
from leashed.studies.tune import BATCH_SIZES, Trial, tune

if TYPE_CHECKING:
    from leashed.cli.arguments import Commands


def add(commands: Commands) -> None:
    """Add the command."""
    parser = commands.add_parser(
        "tune",
        help="find what reaches a loss soonest on this machine",
        description="Try step sizes, batch sizes, disciplines and numbers of threads within a "
        "budget of time, print every trial, and the choice with the least time to ε.",
    )
    add_data(parser)
    parser.add_argument("--model", choices=MODELS, default="mlp", help="default: %(default)s")
    parser.add_argument(
        "--loss-fraction",
        type=float,
        default=0.1,
        help="ε, the share of the initial loss to reach; default: %(default)s",
    )
    parser.add_argument("--seconds", type=float, default=60.0, help="budget; default: %(default)s")
    parser.add_argument("--threads", type=int, help="the most to try; default: all processors")
    parser.add_argument(
        "--batch-size",
        type=listed(int),
        default=BATCH_SIZES,
        help=f"those to try, separated by commas; default: {','.join(map(str, BATCH_SIZES))}",
    )
    parser.add_argument("--seed", type=int, default=0, help="default: %(default)s")
    parser.add_argument(
        "--init", choices=INITIALISATIONS, default="he", help="default: %(default)s"
    )
    parser.set_defaults(command=_tune)


def _tune(options: argparse.Namespace) -> int:
    data = load_data(options)
    model = build_model(options.model, data.train)

    def tried(trial: Trial) -> None:
        reached = duration(trial.seconds) if math.isfinite(trial.seconds) else "not reached"
        print(f"{reached:>12}  {trial.candidate}, seed {trial.seed} ({trial.outcome})", flush=True)

    try:
        found = tune(
            model,
            data,
            loss_fraction=options.loss_fraction,
            seconds=options.seconds,
            threads=options.threads,
            batch_sizes=options.batch_size,
            seed=options.seed,
            init=options.init,
            progress=tried,
        )
    except RuntimeError as error:  # no trial reached ε
        print(f"leashed: {error}", file=sys.stderr)
        return 1
    print(f"\n{duration(found.seconds):>12}  {found.best} (median)")
    return 0
