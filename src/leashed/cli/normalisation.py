"""``leashed bench normalisation``."""

from __future__ import annotations

import argparse
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from leashed.base import checks
from leashed.cli.arguments import listed
from leashed.cli.progress import Line
from leashed.report.table import text
from leashed.studies.normalisation import Asked, Curve, curves
from leashed.studies.recommender import NAME
from leashed.studies.stale import TIMES

if TYPE_CHECKING:
    from leashed.cli.arguments import Commands

_HEADER = [
    "workers",
    "normalised",
    "AUC half-way",
    "at the end",
    "against staleness",
    "means near 0",
]
_FULL = 5
_STALENESS = "staleness"


def add(commands: Commands) -> None:
    """Add the command."""
    default = Asked()
    parser = commands.add_parser(
        "normalisation",
        help="data normalisation among many workers",
        description="Train with thousands of workers in virtual time, with stale gradients damped or "
        "not and with mini-batches normalised or not: Figure 6 of extreme-scale-asgd.",
    )
    parser.add_argument(
        "--workers", type=listed(int), default=default.workers, help="default: 1000,3000"
    )
    parser.add_argument(
        "--times", choices=TIMES, default=default.times, help="default: %(default)s"
    )
    parser.add_argument(
        "--batch-size", type=int, default=default.batch_size, help="default: %(default)s"
    )
    parser.add_argument(
        "--lr", type=float, default=default.lr, help="of Adagrad; default: %(default)s"
    )
    parser.add_argument("--repeats", type=int, default=default.repeats, help="default: %(default)s")
    parser.add_argument("--seed", type=int, default=default.seed, help="default: %(default)s")
    parser.add_argument(
        "--full",
        action="store_true",
        help=f"{_FULL} times the updates of each worker, and the clicks, which takes long",
    )
    parser.add_argument(
        "--report", type=Path, metavar="FILE", help="write an HTML page with the figure"
    )
    parser.set_defaults(command=_normalisation)


def _normalisation(options: argparse.Namespace) -> int:
    default = Asked()
    asked = Asked(
        workers=tuple(checks.whole("workers", n) for n in options.workers),
        times=options.times,
        lr=checks.real("lr", options.lr, 0.0),
        batch_size=checks.whole("batch-size", options.batch_size, 2, default.rows),
        repeats=checks.whole("repeats", options.repeats),
        seed=checks.whole("seed", options.seed, 0),
    )
    if options.full:
        asked = replace(asked, updates=_FULL * asked.updates, rows=_FULL * asked.rows)
    checks.drawable(options.report)
    line, found = Line(sys.stderr), []
    for curve in curves(asked):
        found.append(curve)
        line.show(f"{curve.workers} workers, {curve.arm}")
    line.clear()
    rows = [_row(curve, found) for curve in found]
    print(text(_HEADER, rows))
    print(f"\n{_note(asked)}")
    if options.report is not None:
        _write(options.report, found, rows, _note(asked))
    return 0


def _row(curve: Curve, found: list[Curve]) -> list[str]:
    known = curve.intervals()
    plain = next(one for one in found if (one.workers, one.arm) == (curve.workers, _STALENESS))
    return [
        f"{curve.workers:,}",
        curve.arm,
        known[len(known) // 2].text(),
        known[-1].text(),
        "–" if curve is plain else curve.against(plain).text(),
        f"{curve.near_zero:.1%}",
    ]


def _note(asked: Asked) -> str:
    return (
        f"Trained: {NAME}, by ASP with Adagrad at {asked.lr:g}, {asked.updates} gradients of each "
        f"worker in the mean, each of {asked.batch_size} clicks. Staleness: normalised to a thousand "
        "workers. Data, batch: DataNorm or BatchNorm before each ReLU, by the mini-batch's own means; "
        "for evaluation one running average of all workers' batches, in the order in which they fall "
        "due. AUC: of another day's clicks, means ± half the 95% interval over the seeds; against "
        "staleness normalisation alone, of the same seeds. Means near 0: counted as ±0.001."
    )


def _write(path: Path, found: list[Curve], rows: list[list[str]], note: str) -> None:
    from leashed.report import html_page  # noqa: PLC0415
    from leashed.report.plots import normalisation as plots  # noqa: PLC0415 (matplotlib is optional)
    from leashed.report.summary import Table  # noqa: PLC0415

    html_page.study(
        path,
        "Data normalisation among many workers",
        plots.over_time(found),
        "AUC over time (extreme-scale-asgd, Figure 6), with its 95% interval over the seeds.",
        Table(_HEADER, rows),
        note,
    )
