"""``leashed bench switching``."""

from __future__ import annotations

import argparse
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from leashed.base import checks
from leashed.cli.progress import Line
from leashed.report.switching import Found, parts
from leashed.studies.gba_bound import bounds
from leashed.studies.switching import Career, Day, Setting, careers, hours, plans, rates

if TYPE_CHECKING:
    from leashed.cli.arguments import Commands

_FULL = {"rows": 400_000, "repeats": 11}


def add(benchmarks: Commands) -> None:
    """Add the command."""
    parser = benchmarks.add_parser(
        "switching",
        help="modes on a shared cluster, and switches between them: section 5 of the GBA paper",
        description="Compare modes of training in virtual time on a cluster that others use too: "
        "throughput over a day (Figure 1), throughput, accuracy, drops and staleness in three states "
        "of the cluster (Tables 2 and 3), accuracy after a switch from Sync and to it (Figure 6), "
        "and γ, ζ and p₀ of GBA's bound (eqs. 3 and 4).",
    )
    default = Setting()
    parser.add_argument("--workers", type=int, default=default.workers, help="default: %(default)s")
    parser.add_argument(
        "--batch-size", type=int, default=default.batch_size, help="default: %(default)s"
    )
    parser.add_argument(
        "--rows", type=int, help=f"clicks of a day (default: {default.rows}, full: {_FULL['rows']})"
    )
    parser.add_argument(
        "--repeats",
        type=int,
        help=f"seeds of each (default: {default.repeats}, full: {_FULL['repeats']})",
    )
    parser.add_argument(
        "--lr", type=float, default=default.lr, help="of Adam (default: %(default)s)"
    )
    parser.add_argument(
        "--async-lr",
        type=float,
        default=default.async_lr,
        help="of Adagrad, in Async (default: %(default)s)",
    )
    parser.add_argument(
        "--rows-lr",
        type=float,
        default=default.rows_lr,
        help="of Adagrad, for the rows of tables (default: %(default)s)",
    )
    parser.add_argument("--seed", type=int, default=default.seed, help="default: %(default)s")
    parser.add_argument("--full", action="store_true", help="more clicks and seeds")
    parser.add_argument(
        "--report", type=Path, metavar="HTML", help="write figures and tables there"
    )
    parser.set_defaults(command=_switching)


def _setting(options: argparse.Namespace) -> Setting:
    setting = replace(Setting(), **(_FULL if options.full else {}))
    given = {
        name: checks.whole(name, value, 2 if name == "workers" else 1)
        for name in ("workers", "batch_size", "rows", "repeats")
        if (value := getattr(options, name)) is not None
    }
    setting = replace(
        setting,
        **given,
        lr=checks.real("lr", options.lr, 0.0),
        async_lr=checks.real("async_lr", options.async_lr, 0.0),
        rows_lr=checks.real("rows_lr", options.rows_lr, 0.0),
        seed=checks.whole("seed", options.seed, 0),
    )
    least = 10 * setting.workers * setting.batch_size
    if setting.rows < least:
        raise ValueError(
            f"rows must be at least {least}, ten global batches of {setting.workers} workers and "
            f"{setting.batch_size} clicks, got {setting.rows}"
        )
    return setting


def _switching(options: argparse.Namespace) -> int:
    checks.drawable(options.report)
    setting = _setting(options)
    line = Line(sys.stderr)
    line.show("throughput over a day")
    daily = list(hours(setting))
    line.show("throughput in three states")
    in_states = list(rates(setting))
    asked = plans(setting)
    days: dict[Career, list[Day]] = {}
    for number, (career, one) in enumerate(zip(asked, careers(setting, asked), strict=True)):
        days[career] = one
        line.show(f"career {number + 1} of {len(asked)}")
    line.show("γ, ζ and p₀")
    measured = list(bounds(setting))
    line.clear()
    found = Found(setting, daily, in_states, days, measured)
    for part in parts(found):
        print(f"{part.title}\n\n{part.found}\n\n{part.note}\n")
    if options.report is not None:
        from leashed.report.switching_page import write  # noqa: PLC0415 (matplotlib is optional)

        write(options.report, found)
    return 0
