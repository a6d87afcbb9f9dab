"""``leashed report``."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from leashed.base import checks
from leashed.cli import study
from leashed.studies import runs

if TYPE_CHECKING:
    from leashed.cli.arguments import Commands


def add(commands: Commands) -> None:
    """Add the command."""
    parser = commands.add_parser(
        "report",
        help="write an HTML report with the paper's figures",
        description="Write one HTML file, readable without a network, with the figures and tables "
        "of the Leashed-SGD paper drawn from your runs, or with those of another study from its "
        "records.",
    )
    parser.add_argument(
        "files",
        nargs="+",
        type=Path,
        metavar="RUNS",
        help="what 'leashed bench … --output', 'leashed tune --output' or 'leashed train --output' "
        "has written, plain or packed by gzip, or the folder of a run of 'leashed cluster up'",
    )
    parser.add_argument(
        "-o", "--output", type=Path, default=Path("report.html"), help="default: %(default)s"
    )
    parser.add_argument(
        "--threads",
        type=int,
        metavar="M",
        help="threads of Figure 8, time by step size (default: the number with the most step "
        "sizes; among equals the paper's 16, or else the largest)",
    )
    parser.add_argument(
        "--figures", type=Path, metavar="FOLDER", help="write each figure there too, as PNG"
    )
    parser.set_defaults(command=_report)


def _report(options: argparse.Namespace) -> int:
    checks.drawable(options.output)
    if any(file.is_dir() for file in options.files):
        return _cluster(options)
    kinds = {study.has_records(file) for file in options.files}
    if len(kinds) > 1:
        raise ValueError(
            "records of studies and results of training have a page each; give one kind"
        )
    if kinds == {True}:
        return _studies(options)
    from leashed.report import page  # noqa: PLC0415 (matplotlib is optional)

    together = [run for file in options.files for run in runs.read(file)]
    missing = page.write(together, options.output, options.threads)
    if options.figures is not None:
        page.save_figures(together, options.figures, options.threads)
    for line in missing:
        print(f"not drawn: {line}", file=sys.stderr)
    print(f"{options.output}: {len(together)} runs")
    return 0


def _studies(options: argparse.Namespace) -> int:
    if options.threads is not None or options.figures is not None:
        raise ValueError("--threads and --figures go with results of training, not with records")
    number = study.write_page(options.files, options.output)
    print(f"{options.output}: {number} records")
    return 0


def _cluster(options: argparse.Namespace) -> int:
    from leashed.cluster import page  # noqa: PLC0415 (matplotlib is optional)

    if len(options.files) != 1 or options.threads is not None or options.figures is not None:
        raise ValueError("the folder of a run stands alone, without --threads and --figures")
    page.write(options.files[0], options.output)
    print(options.output)
    return 0
