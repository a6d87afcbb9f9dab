"""``leashed bench contention``."""

from __future__ import annotations

import argparse
import math
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from leashed import models, simulation
from leashed.base import checks
from leashed.cli.appending import tell
from leashed.cli.arguments import add_data, listed, load_data
from leashed.cli.progress import Line
from leashed.report.table import duration, number, spread, text
from leashed.simulation.virtual_time import Costs
from leashed.studies.contention import Contention, Point, study
from leashed.studies.plan import MODELS, build_model

if TYPE_CHECKING:
    from leashed.cli.arguments import Commands

_HEADER = ["m", "T_p", "time", "n", "n*", "n*_γ", "τˢ", "γ", "failed attempts"]
_NOTE = (
    "n: threads in the retry loop, as a mean over a run; n* and n*_γ: its fixed points without and "
    "with the γ that was counted (leashed-sgd, eqs. 4 and 7), which also estimates the mean of τˢ. "
    "Intervals: the least and the largest of the repeats. In virtual time gradients take "
    "exponentially distributed times; that threads slow each other down is not played. On real threads "
    "it is a small model's own T_c and T_u, which n* is computed of."
)


def add(benchmarks: Commands) -> None:
    """Add the command."""
    parser = benchmarks.add_parser(
        "contention",
        help="threads in the retry loop: section IV of the Leashed-SGD paper, counted",
        description="Count the threads in the retry loop of Leashed-SGD for 1 to 256 threads in "
        "virtual time, and on real threads where there is a core for each, beside the paper's n*, "
        "n*_γ and E[τˢ]. T_c and T_u are measured here with one thread, or given.",
    )
    add_data(parser)
    default = Contention(Costs(1, 1, 1))
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
    parser.add_argument(
        "--threads",
        type=listed(int),
        default=default.threads,
        help=f"default: {','.join(map(str, default.threads))}",
    )
    parser.add_argument(
        "--persistence", type=listed(_bound), default=default.persistence, help="default: inf,1,0"
    )
    parser.add_argument("--repeats", type=int, default=default.repeats, help="default: %(default)s")
    parser.add_argument("--seed", type=int, default=default.seed, help="default: %(default)s")
    parser.add_argument(
        "--virtual", action="store_true", help="not on real threads, where they would be"
    )
    parser.add_argument("--report", type=Path, metavar="HTML", help="write n over time there")
    parser.set_defaults(command=_contention)


def _bound(word: str) -> float:
    return math.inf if word == "inf" else int(word)


def _contention(options: argparse.Namespace) -> int:
    checks.drawable(options.report)
    data = load_data(options).train
    measured = build_model(options.model, data)
    if options.costs is None:
        costs = simulation.measure(measured, data, batch_size=options.batch_size)
    elif len(options.costs) != 2:
        raise ValueError("costs must be two numbers of seconds, T_c and T_u")
    else:
        if not min(options.costs) > 0:
            raise ValueError(f"costs must be above 0, got {', '.join(map(str, options.costs))}")
        costs = Costs(options.costs[0], options.costs[1], copy=0.0)
    tell(
        f"T_c {duration(costs.compute)}, T_u {duration(costs.update)}, T_c/T_u "
        f"{number(costs.compute / costs.update)}"
    )
    asked = Contention(
        costs,
        threads=options.threads,
        persistence=options.persistence,
        repeats=checks.whole("repeats", options.repeats),
        seed=checks.whole("seed", options.seed, 0),
        real=not options.virtual,
    )
    small = models.softmax_regression(data.features, data.classes)
    line, points = Line(sys.stderr), []
    for point in study(asked, small, data):
        points.append(point)
        line.show(f"m = {point.threads}, T_p = {_shown(point.persistence)}")
    line.clear()
    rows = [_row(point) for point in points]
    print(text(_HEADER, rows))
    print(f"\n{_NOTE}")
    if options.report is not None:
        _write(options.report, points, rows)
    return 0


def _shown(persistence: float) -> str:
    return "∞" if math.isinf(persistence) else f"{persistence:g}"


def _row(point: Point) -> list[str]:
    return [
        str(point.threads),
        _shown(point.persistence),
        "real" if point.real else "virtual",
        spread(list(point.n)),
        number(point.fixed_point),
        number(point.fixed_point_persistence),
        spread(list(point.staleness)),
        spread(list(point.gamma)),
        spread(list(point.tries)),
    ]


def _write(path: Path, points: list[Point], rows: list[list[str]]) -> None:
    from leashed.report import html_page  # noqa: PLC0415
    from leashed.report.plots import contention  # noqa: PLC0415 (matplotlib is optional)
    from leashed.report.summary import Table  # noqa: PLC0415

    html_page.study(
        path,
        "Threads in the retry loop",
        contention.over_time(points),
        "n over time, as a mean over the repeats (solid), and by eqs. 5 and 6 of "
        "leashed-sgd (dashed), after all threads have begun to compute.",
        Table(_HEADER, rows),
        _NOTE,
    )
