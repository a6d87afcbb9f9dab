"""``leashed bench staleness --damping``."""

from __future__ import annotations

import argparse
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from leashed.base import checks
from leashed.cli.progress import Line
from leashed.report.table import number, text
from leashed.studies.damping import BASELINE, Asked, Curve, curves
from leashed.studies.intervals import interval
from leashed.studies.recommender import NAME
from leashed.studies.stale import TIMES

if TYPE_CHECKING:
    from leashed.cli.arguments import Arguments

__all__ = ["add_arguments", "damping", "refuse"]

_HEADER = ["workers", "damping", "mean τ", "loss at first", "half-way", "at the end", "AUC"]
_FULL = 5
_NOTE = (
    f"Trained: {NAME}, by ASP with Adagrad. Damping, of τ counted from 1: linear 1/τ; printed and "
    f"normalised leave up to {BASELINE:,} alone and make it 1/τ² and ({BASELINE:,}/τ)² above. Loss of "
    "the clicks trained on, AUC of another day's: means ± half the 95% interval over the seeds."
)


def add_arguments(parser: Arguments) -> None:
    """The arguments of the command that are its own."""
    default = Asked()
    own = parser.add_argument_group("damping")
    own.add_argument("--damping", action="store_true", help="train with each damping: Figure 5")
    own.add_argument("--times", choices=TIMES, help=f"default: {default.times}")
    own.add_argument("--lr", type=float, help=f"default: {default.lr}")
    own.add_argument("--repeats", type=int, help=f"default: {default.repeats}")
    own.add_argument(
        "--full",
        action="store_true",
        help=f"{_FULL} times the updates of each worker, and the clicks, which takes long",
    )


def refuse(options: argparse.Namespace) -> None:
    """ValueError where an argument is given that goes with --damping alone."""
    for name in ("times", "lr", "repeats", "full"):
        given = getattr(options, name)
        if given is not None and given is not False:
            raise ValueError(f"--{name} goes with --damping; give that too, or leave it out")


def damping(options: argparse.Namespace) -> int:
    """The command. Arguments that both have are checked already."""
    if options.updates is not None:
        raise ValueError("--updates does not go with --damping; --full trains longer")
    default = Asked()
    asked = Asked(
        workers=options.workers,
        times=options.times or default.times,
        lr=default.lr if options.lr is None else checks.real("lr", options.lr, 0.0),
        repeats=default.repeats
        if options.repeats is None
        else checks.whole("repeats", options.repeats),
        seed=checks.whole("seed", options.seed, 0),
    )
    if options.full:
        asked = replace(asked, updates=_FULL * asked.updates, rows=_FULL * asked.rows)
    line, found = Line(sys.stderr), []
    for curve in curves(asked):
        found.append(curve)
        line.show(f"{curve.workers} workers, damping {curve.damping}")
    line.clear()
    rows = [_row(curve) for curve in found]
    print(text(_HEADER, rows))
    print(f"\n{_NOTE}")
    if options.report is not None:
        _write(options.report, found, rows)
    return 0


def _row(curve: Curve) -> list[str]:
    losses = curve.intervals()
    return [
        f"{curve.workers:,}",
        curve.damping,
        number(curve.mean_staleness, 4),
        number(losses[0].mean, 4),
        losses[len(losses) // 2].text(),
        losses[-1].text(),
        interval(list(curve.auc)).text(),
    ]


def _write(path: Path, found: list[Curve], rows: list[list[str]]) -> None:
    from leashed.report import html_page  # noqa: PLC0415
    from leashed.report.plots import damping as plots  # noqa: PLC0415 (matplotlib is optional)
    from leashed.report.summary import Table  # noqa: PLC0415

    html_page.study(
        path,
        "Damping among many workers",
        plots.over_time(found),
        "Loss over time (extreme-scale-asgd, Figure 5), with its 95% interval over the seeds.",
        Table(_HEADER, rows),
        _NOTE,
    )
