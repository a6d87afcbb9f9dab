"""``leashed bench combinations``."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from leashed._core import __version__
from leashed.base import checks
from leashed.base.machine import cores, cpu_model
from leashed.cli.arguments import add_data, listed, load_data
from leashed.cli.progress import Line
from leashed.studies.combinations import (
    DISCIPLINES,
    POLICIES,
    RULES,
    combinations,
    meaningless,
    merged,
    page,
)

if TYPE_CHECKING:
    from leashed.cli.arguments import Commands


def add(benchmarks: Commands) -> None:
    """Add the command."""
    parser = benchmarks.add_parser(
        "combinations",
        help="train with every update rule, discipline and staleness policy",
        description="Train Table II's MLP with every update rule under every discipline with every "
        "staleness policy, until the loss is halved, and write the table as Markdown.",
    )
    add_data(parser)
    parser.add_argument("--rules", type=listed(str), help=f"of {', '.join(RULES)} (default: all)")
    parser.add_argument("--threads", type=int, default=4, help="default: %(default)s")
    parser.add_argument("--batch-size", type=int, default=64, help="default: %(default)s")
    parser.add_argument(
        "--seconds", type=float, default=20.0, help="most per run; default: %(default)s"
    )
    parser.add_argument("-o", "--output", type=Path, help="default: standard output")
    parser.add_argument(
        "--merge",
        action="store_true",
        help="put the rules' tables into the page that is at --output, made by the same data, threads "
        "and batch size on the same kind of machine, in place of those that it has",
    )
    parser.set_defaults(command=_combinations)


def _combinations(options: argparse.Namespace) -> int:
    checks.writable(options.output)
    if options.merge and (options.output is None or not options.output.exists()):
        raise ValueError("--merge needs --output, a page that is there")
    rules = tuple(RULES) if options.rules is None else options.rules
    for name in rules:
        if name not in RULES:
            raise ValueError(f"--rules: {name!r} is unknown; choose of {', '.join(RULES)}")
    data = load_data(options)
    data_option = "" if options.data is None else " --data <folder of MNIST>"
    produced = (
        f"Table II's MLP on {data.train.name}, {len(data.train):,} examples, batches of "
        f"{options.batch_size}, {options.threads} threads (`SEQ`: 1), on {cpu_model()} "
        f"({cores()} cores), leashed {__version__}. Written by `leashed bench combinations"
        f"{data_option} --threads {options.threads} --batch-size {options.batch_size}`, not typed."
    )
    before = options.output.read_text(encoding="utf-8") if options.merge else None
    if before is not None:
        merged(before, page([], produced))  # so that another run's page is refused now
    line = Line(sys.stderr)
    total = len(set(rules) - set(meaningless())) * len(DISCIPLINES) * len(POLICIES)
    outcomes = []
    for outcome in combinations(data, options.threads, options.batch_size, options.seconds, rules):
        outcomes.append(outcome)
        line.show(f"{len(outcomes)}/{total} {outcome.rule} {outcome.discipline} {outcome.policy}")
    line.clear()
    text = page(outcomes, produced)
    if before is not None:
        text = merged(before, text)
    if options.output is None:
        print(text, end="")
    else:
        options.output.write_text(text, encoding="utf-8")
        print(options.output)
    return 130 if outcomes and outcomes[-1].outcome == "interrupted" else 0
