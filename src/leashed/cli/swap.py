"""``leashed bench swap``."""

from __future__ import annotations

import argparse
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from leashed.base import checks
from leashed.cli.progress import Line
from leashed.report.table import number, text
from leashed.studies.recommender import NAME
from leashed.studies.swap import LEAST_PERIOD, Asked, Curve, curves

if TYPE_CHECKING:
    from leashed.cli.arguments import Commands

_FULL = 5


def add(commands: Commands) -> None:
    """Add the command."""
    default = Asked()
    parser = commands.add_parser(
        "swap",
        help="days of training with SWAP and without",
        description="Train day after day on clicks whose model drifts, with Adagrad, with "
        "Adagrad-SWAP and with squares that decay at each step, and test on the day that follows: "
        "Figures 7 and 4 of extreme-scale-asgd.",
    )
    parser.add_argument("--days", type=int, default=default.days, help="default: %(default)s")
    parser.add_argument("--drift", type=float, default=default.drift, help="default: %(default)s")
    parser.add_argument(
        "--periods",
        type=int,
        default=default.periods,
        help="of SWAP, in a day (default: %(default)s)",
    )
    parser.add_argument(
        "--lr", type=float, default=default.lr, help="of Adagrad; default: %(default)s"
    )
    parser.add_argument(
        "--decayed-lr",
        type=float,
        default=default.decayed_lr,
        help="where each step decays; default: %(default)s",
    )
    parser.add_argument("--repeats", type=int, default=default.repeats, help="default: %(default)s")
    parser.add_argument("--seed", type=int, default=default.seed, help="default: %(default)s")
    parser.add_argument(
        "--full", action="store_true", help=f"{_FULL} times the clicks of a day, which takes long"
    )
    parser.add_argument(
        "--report", type=Path, metavar="FILE", help="write an HTML page with the figures"
    )
    parser.set_defaults(command=_swap)


def _swap(options: argparse.Namespace) -> int:
    asked = Asked(
        days=checks.whole("days", options.days),
        drift=checks.real("drift", options.drift, 0.0, allow=True),
        periods=checks.whole("periods", options.periods),
        lr=checks.real("lr", options.lr, 0.0),
        decayed_lr=checks.real("decayed-lr", options.decayed_lr, 0.0),
        repeats=checks.whole("repeats", options.repeats),
        seed=checks.whole("seed", options.seed, 0),
    )
    if options.full:
        asked = replace(asked, rows=_FULL * asked.rows)
    if asked.period < LEAST_PERIOD:
        raise ValueError(
            f"--periods must be at most {asked.steps // LEAST_PERIOD} in a day of {asked.steps} steps: "
            f"the decay at each step to compare with takes periods of {LEAST_PERIOD}, got {asked.periods}"
        )
    checks.drawable(options.report)
    line, found = Line(sys.stderr), []
    for curve in curves(asked):
        found.append(curve)
        line.show(curve.optimizer)
    line.clear()
    header, rows = _table(found)
    print(text(header, rows))
    print(f"\n{_note(asked, found)}")
    if options.report is not None:
        _write(options.report, found, header, rows, _note(asked, found))
    return 0


def _table(found: list[Curve]) -> tuple[list[str], list[list[str]]]:
    days = range(found[0].auc.shape[1])
    header = ["optimizer", *(f"day {day + 1}" for day in days), "accumulator", "at the end"]
    rows = [
        [
            one.optimizer,
            *(day.text() for day in one.by_day()),
            number(float(one.accumulator[:, 0].mean())),
            number(float(one.accumulator[:, -1].mean())),
        ]
        for one in found
    ]
    return header, rows


def _note(asked: Asked, found: list[Curve]) -> str:
    ahead = ", ".join(f"{one.optimizer} {one.against(found[0]).text()}" for one in found[1:])
    return (
        f"Trained: {NAME}, {asked.rows:,} clicks a day in batches of {asked.batch_size}, of which "
        f"{asked.drift:.0%} of the hidden model is drawn anew each day. SWAP: T = {asked.period:,} "
        f"steps, λ₀ = {asked.decay:g}; the decay at each step has the paper's T (1 − λ) = 14. AUC: of "
        "the day after the one named, means ± half the 95% interval over the seeds. On the last day, "
        f"against Adagrad on the same clicks: {ahead}. Accumulator: mean over the dense parameters, "
        "after a quarter of the first day."
    )


def _write(
    path: Path, found: list[Curve], header: list[str], rows: list[list[str]], note: str
) -> None:
    from leashed.report import html_page  # noqa: PLC0415
    from leashed.report.plots import swap as plots  # noqa: PLC0415 (matplotlib is optional)
    from leashed.report.summary import Table  # noqa: PLC0415

    html_page.study(
        path,
        "SWAP over days",
        plots.days(found),
        "AUC of the next day and the accumulator over time (extreme-scale-asgd, Figures 7 and 4).",
        Table(header, rows),
        note,
    )
