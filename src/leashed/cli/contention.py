"""``leashed bench contention``."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from leashed import simulation
from leashed.base.table import duration, number
from leashed.cli import study
from leashed.cli.arguments import add_data, listed, load_data
from leashed.simulation.virtual_time import Costs
from leashed.studies.contention import Contention
from leashed.studies.plan import MODELS, build_model
from leashed.training.progress import tell

if TYPE_CHECKING:
    from leashed.cli.arguments import Commands
    from leashed.datasets import Dataset
    from leashed.studies.study import Kept


def add(benchmarks: Commands) -> None:
    """Add the command."""
    parser = benchmarks.add_parser(
        "contention",
        help="threads in the retry loop: section IV of the Leashed-SGD paper, counted",
        description="Count the threads in the retry loop of Leashed-SGD for 1 to 256 threads in "
        "virtual time, and on real threads where there is a core for each, beside the paper's n*, "
        "n*_γ and E[τˢ]. T_c and T_u are measured here with one thread, or given, or those of the "
        f"--output that is gone on with. {study.STATUSES}",
    )
    add_data(parser)
    parser.add_argument(
        "--model",
        choices=MODELS,
        default="mlp",
        help="whose T_c and T_u are measured; in virtual time a small model's gradients are "
        "computed in its place, since n depends on T_c over T_u alone (default: %(default)s)",
    )
    parser.add_argument(
        "--costs",
        type=listed(float),
        metavar="T_C,T_U",
        help="seconds of a gradient and of an update, in place of measuring them",
    )
    parser.add_argument("--batch-size", type=int, default=512, help="default: %(default)s")
    study.add_fields(parser, Contention)
    parser.add_argument(
        "--virtual", action="store_true", help="not on real threads, where they would be"
    )
    study.add_arguments(parser)
    parser.set_defaults(command=_contention)


def _contention(options: argparse.Namespace) -> int:
    kept, data = study.kept_of(options), load_data(options).train
    costs = _costs(options, kept, data)
    tell(
        f"T_c {duration(costs.compute)}, T_u {duration(costs.update)}, T_c/T_u "
        f"{number(costs.compute / costs.update)}"
    )
    asked = Contention(costs, real=not options.virtual, **study.given(options, Contention))
    return study.perform(asked, options, kept, data)


def _costs(options: argparse.Namespace, kept: Kept, data: Dataset) -> Costs:
    """Those given, of the records that are there, or measured."""
    if options.costs is None:
        if kept.records and "costs" in (made := kept.records[0]["conditions"]):
            tell(f"{kept.path}: T_c and T_u are those of its records, whatever --model is")
            return Costs(**made["costs"])
        model = build_model(options.model, data)
        return simulation.measure(model, data, batch_size=options.batch_size)
    if len(options.costs) != 2:
        raise ValueError("costs must be two numbers of seconds, T_c and T_u")
    if not min(options.costs) > 0:
        raise ValueError(f"costs must be above 0, got {', '.join(map(str, options.costs))}")
    return Costs(options.costs[0], options.costs[1], copy=0.0)
