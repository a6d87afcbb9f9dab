"""``leashed bench staleness``."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from leashed.base import checks
from leashed.cli import damping
from leashed.cli.arguments import listed
from leashed.cli.progress import Line
from leashed.report.table import MISSING, number, text
from leashed.studies.stale import PAPER, Counted, counts_of

if TYPE_CHECKING:
    from leashed.cli.arguments import Commands

_UPDATES = 260_000
_HEADER = ["workers", "times", "mean τ", "theory", "the paper", "variance", "theory", "the paper"]
_NOTE = (
    "τ as the paper counts it, from 1. Theory: E(τ) = n, whatever the rates; the variance n(n − 1) is "
    "that of exponential times of equal rates. The paper's are what it measured."
)


def add(benchmarks: Commands) -> None:
    """Add the command."""
    parser = benchmarks.add_parser(
        "staleness",
        help="staleness among thousands of workers: Figures 3 and 5 of extreme-scale-asgd",
        description="Count how stale the updates of thousands of asynchronous workers are, in virtual "
        "time, with gradients' times exponentially distributed, of rates drawn once for each worker, "
        "and nearly constant, beside theory and what the paper measured. With --damping a "
        "recommender is trained in place of it, with no, linear, printed and normalised damping of "
        "stale gradients.",
    )
    parser.add_argument(
        "--workers", type=listed(int), default=(1000, 3000), help="default: 1000,3000"
    )
    parser.add_argument("--updates", type=int, help=f"default: {_UPDATES}")
    parser.add_argument("--seed", type=int, default=0, help="default: %(default)s")
    parser.add_argument("--report", type=Path, metavar="HTML", help="write the figure there")
    damping.add_arguments(parser)
    parser.set_defaults(command=_staleness)


def _staleness(options: argparse.Namespace) -> int:
    checks.drawable(options.report)
    for workers in options.workers:
        checks.whole("workers", workers)
    if options.damping:
        return damping.damping(options)
    damping.refuse(options)
    updates = _UPDATES if options.updates is None else checks.whole("updates", options.updates)
    line, found = Line(sys.stderr), []
    for counted in counts_of(options.workers, updates, checks.whole("seed", options.seed, 0)):
        found.append(counted)
        line.show(f"{counted.workers} workers, {counted.times}")
    line.clear()
    rows = [_row(counted) for counted in found]
    print(text(_HEADER, rows))
    print(f"\n{_NOTE}")
    if options.report is not None:
        _write(options.report, found, rows)
    return 0


def _row(counted: Counted) -> list[str]:
    n = counted.workers
    mean, variance = (number(value) for value in PAPER[n]) if n in PAPER else (MISSING, MISSING)
    exponential = counted.times == "exponential"
    return [
        f"{n:,}",
        counted.times,
        number(counted.mean, 4),
        f"{n:,}",
        mean,
        number(counted.variance),
        number(float(n * (n - 1))) if exponential else MISSING,
        variance,
    ]


def _write(path: Path, found: list[Counted], rows: list[list[str]]) -> None:
    from leashed.report import html_page  # noqa: PLC0415
    from leashed.report.plots import stale  # noqa: PLC0415 (matplotlib is optional)
    from leashed.report.summary import Table  # noqa: PLC0415

    html_page.study(
        path,
        "Staleness among many workers",
        stale.distributions(found),
        "Updates by their staleness (extreme-scale-asgd, Figure 3), for each number of "
        "workers and each kind of times.",
        Table(_HEADER, rows),
        _NOTE,
    )
