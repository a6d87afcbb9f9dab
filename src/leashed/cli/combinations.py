"""``leashed bench combinations``."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from leashed.base import checks
from leashed.cli import study
from leashed.cli.arguments import add_data, load_data
from leashed.studies.combinations import Combinations, merged, page, produced
from leashed.training.progress import tell

if TYPE_CHECKING:
    from leashed.cli.arguments import Commands

_MARKDOWN = ".md"


def add(benchmarks: Commands) -> None:
    """Add the command."""
    parser = benchmarks.add_parser(
        "combinations",
        help="train with every update rule, discipline and staleness policy",
        description="Train Table II's MLP with every update rule under every discipline with every "
        "staleness policy, until the loss is halved, and write the table as Markdown. "
        f"{study.STATUSES}",
    )
    add_data(parser)
    study.add_fields(parser, Combinations)
    parser.add_argument(
        "--page",
        type=Path,
        metavar="FILE",
        help="write the table there, as Markdown; so does an --output whose name ends in .md "
        "(default: standard output)",
    )
    parser.add_argument(
        "--merge",
        action="store_true",
        help="put the rules' tables into the page that is at --page, made by the same data, threads "
        "and batch size on the same kind of machine, in place of those that it has",
    )
    study.add_arguments(parser)
    parser.set_defaults(command=_combinations)


def _combinations(options: argparse.Namespace) -> int:
    if options.output is not None and options.output.suffix == _MARKDOWN:
        if options.page is not None or options.resume:
            raise ValueError(
                f"--output {options.output} is a page, as --page; give that, and to --output, which "
                "--resume goes on with, another file"
            )
        options.page, options.output = options.output, None
    checks.writable(options.page)
    if options.merge and (options.page is None or not options.page.exists()):
        raise ValueError("--merge needs --page, a page that is there")
    kept, data = study.kept_of(options), load_data(options)
    asked = Combinations(**study.given(options, Combinations))
    before = options.page.read_text(encoding="utf-8") if options.merge else None
    if before is not None:  # so that another run's page is refused now
        merged(before, page([], produced([{"conditions": asked.conditions(data)}])))

    def printed(records: Sequence[Any]) -> str:
        if before is not None and not (records := _whole(asked, records)):
            return ""
        text = asked.text(records) + "\n"
        if options.page is None:
            return text
        options.page.write_text(text if before is None else merged(before, text), encoding="utf-8")
        return str(options.page)

    return study.perform(asked, options, kept, data, printed=printed)


def _whole(asked: Combinations, records: Sequence[Any]) -> list[Any]:
    """The records of rules of which all runs are there."""
    there = [record["setting"] for record in records]
    torn = dict.fromkeys(one["rule"] for one in asked.settings() if one not in there)
    if torn:
        tell(f"{', '.join(torn)} is not whole and stays as it is in the page")
    return [record for record in records if record["setting"]["rule"] not in torn]
