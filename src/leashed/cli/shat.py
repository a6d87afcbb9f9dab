"""``leashed bench shat``."""

from __future__ import annotations

import argparse
import dataclasses
import html
import math
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from leashed.base import checks
from leashed.cli.arguments import add_data, listed, load_data
from leashed.cli.progress import Line
from leashed.report.summary import Table
from leashed.report.table import MISSING, number, text
from leashed.studies.intervals import interval
from leashed.studies.sharded import NETS, SHARDINGS, Throughput, imbalance, throughputs
from leashed.studies.shat import (
    CLUSTERS,
    HETEROGENEOUS,
    METHODS,
    PAPER,
    Asked,
    Trained,
    settings,
    train_all,
)

if TYPE_CHECKING:
    from leashed.cli.arguments import Commands

_FULL = Asked(epochs=50.0, repeats=11, evaluations=25)
_NOTE = (
    "LeNet stands in for ResNet-50 and VGG-16, at a smaller η. Accuracy of the test set: of the global model; of "
    "ENSEMBLE that of the mean of its models' probabilities; of SHAT, log₂ with the binary logarithm "
    "in eq. 4. AR-SGD is a synchronous mean. 95% intervals over seeds; (k crashed): runs that met "
    "NaN, which no mean counts. Differences are of the same seeds. At n = 2 the natural logarithm "
    "gives α = 0 (s/log n ≥ 1.44): SHAT is ENSEMBLE there, beside a server that takes gradients and "
    "whose model nobody takes."
)


def add(benchmarks: Commands) -> None:
    """Add the command."""
    parser = benchmarks.add_parser(
        "shat",
        help="how workers mix with the server's model: SHAT's Table 2 and Figures 4 to 6",
        description="Train LeNet in virtual time with 2 to 16 workers whose models are their own, or "
        "the server's, or a mixture (SHAT), with equal workers and with a slow one, for several "
        "seeds, on as many threads as there are cores.",
    )
    add_data(parser)
    default = Asked()
    parser.add_argument(
        "--full",
        action="store_true",
        help=f"{_FULL.epochs:g} epochs and {_FULL.repeats} repeats, in place of {default.epochs:g} "
        f"and {default.repeats}: hours",
    )
    parser.add_argument(
        "--workers", type=listed(int), default=default.workers, help="default: 2,4,8,16"
    )
    parser.add_argument("--epochs", type=float, help="of each run")
    parser.add_argument("--repeats", type=int, help="seeds of each setting")
    parser.add_argument(
        "--lr",
        type=float,
        default=default.lr,
        help="η is so much times n; the paper's is 0.01 (default: %(default)s)",
    )
    parser.add_argument(
        "--momentum", type=float, default=default.momentum, help="default: %(default)s"
    )
    parser.add_argument(
        "--batch-size", type=int, default=default.batch_size, help="default: %(default)s"
    )
    parser.add_argument("--seed", type=int, default=0, help="default: %(default)s")
    parser.add_argument(
        "--report", type=Path, metavar="HTML", help="write tables and figures there"
    )
    parser.set_defaults(command=_shat)


def _asked(options: argparse.Namespace) -> Asked:
    asked = _FULL if options.full else Asked()
    for n in options.workers:
        checks.whole("workers", n, 2)
    return dataclasses.replace(
        asked,
        workers=tuple(dict.fromkeys(options.workers)),
        epochs=checks.real("epochs", _or(options.epochs, asked.epochs), 0.0),
        repeats=checks.whole("repeats", _or(options.repeats, asked.repeats)),
        lr=checks.real("lr", options.lr, 0.0),
        momentum=checks.real("momentum", options.momentum, 0.0, allow=True),
        batch_size=checks.whole("batch_size", options.batch_size),
        seed=checks.whole("seed", options.seed, 0),
    )


def _or(given: float | None, default: float) -> float:
    return default if given is None else given


def _shat(options: argparse.Namespace) -> int:
    checks.drawable(options.report)
    asked, data = _asked(options), load_data(options)
    total, line, runs = len(settings(asked)), Line(sys.stderr), []
    for run in train_all(asked, data):
        runs.append(run)
        line.show(f"{len(runs)} of {total} runs: {run.method}, {run.cluster}, n = {run.workers}")
    line.clear()
    found = []
    for one in throughputs((1, *asked.workers), asked.repeats, asked.seed):
        found.append(one)
        line.show(f"throughput: {one.net}, {one.sharding} sharding, n = {one.workers}")
    line.clear()
    tables = {
        "Table 2: accuracy": _accuracies(asked, runs),
        "Above ASP": _above(asked, runs),
        "Eq. 1: the weight of the global model": _weights(asked, runs),
        "Figure 5: a slow worker": _slow(asked, runs),
        "Figure 6: speedup by sharding": _speedups(found),
    }
    for title, table in tables.items():
        print(f"{title}\n\n{text(table.header, table.rows)}\n")
    print(_NOTE)
    if options.report is not None:
        _write(options.report, runs, found, tables)
    return 0


Value = Callable[[Trained], float]


def _of(runs: Sequence[Trained], method: str, workers: int, cluster: str = "HO") -> list[Trained]:
    return [
        run for run in runs if (run.method, run.workers, run.cluster) == (method, workers, cluster)
    ]


def _shown(runs: Sequence[Trained], value: Value, digits: int = 4) -> str:
    """Mean ± half the interval, of the runs that have a value."""
    values = [found for run in runs if not math.isnan(found := value(run))]
    crashed = sum(math.isnan(run.accuracy) for run in runs)
    note = f" ({crashed} crashed)" if crashed else ""
    return (interval(values).text(digits) if values else MISSING) + note


def _accuracies(asked: Asked, runs: Sequence[Trained]) -> Table:
    return Table(
        ["n", *METHODS, "ENSEMBLE's own"],
        [
            [str(n)]
            + [_shown(_of(runs, method, n), lambda run: run.accuracy) for method in METHODS]
            + [_shown(_of(runs, "ENSEMBLE", n), lambda run: run.own_accuracy)]
            for n in asked.workers
        ],
    )


def _above(asked: Asked, runs: Sequence[Trained]) -> Table:
    """Differences of the same seed, beside the paper's."""
    others = [method for method in METHODS if method != "ASP"]
    rows = []
    for n in asked.workers:
        asp = [run.accuracy for run in _of(runs, "ASP", n)]
        row = [str(n)]
        for method in others:
            pairs = zip(_of(runs, method, n), asp, strict=True)
            apart = [run.accuracy - base for run, base in pairs]
            known = [one for one in apart if not math.isnan(one)]
            row.append(interval(known).text() if known else MISSING)
        printed = PAPER.get(n, ())
        row += [f"{shat - asp:+.4f}" for _, asp, _, shat in printed] or [MISSING] * 2
        rows.append(row)
    return Table(["n", *others, "the paper's SHAT: ResNet-50", "VGG-16"], rows)


def _sound(runs: Sequence[Trained]) -> list[Trained]:
    """Without those that met NaN."""
    return [run for run in runs if not math.isnan(run.accuracy)]


def _mean(values: Iterable[float], digits: int = 3) -> str:
    found = list(values)
    return number(sum(found) / len(found), digits) if found else MISSING


def _weights(asked: Asked, runs: Sequence[Trained]) -> Table:
    rows = []
    for n in asked.workers:
        for method in METHODS:
            chosen = _sound(_of(runs, method, n))
            rows.append(
                [
                    method,
                    str(n),
                    _mean(run.alpha for run in chosen),
                    _mean(run.rho for run in chosen),
                    _shown(chosen, lambda run: run.distance, 1),
                    _shown(chosen, lambda run: run.own_accuracy),
                ]
            )
    header = [
        "method",
        "n",
        "mean α",
        "ρ = α/η",
        "Σ ‖w − w̃‖²",
        "accuracy of the workers' own models",
    ]
    return Table(header, rows)


def _slow(asked: Asked, runs: Sequence[Trained]) -> Table:
    n = asked.slowed
    return Table(
        ["method", "cluster", "accuracy", "mean α", "virtual time"],
        [
            [
                method,
                cluster,
                _shown(chosen, lambda run: run.accuracy),
                _mean(run.alpha for run in _sound(chosen)),
                _mean((run.elapsed for run in _sound(chosen)), 4),
            ]
            for method in HETEROGENEOUS
            for cluster in CLUSTERS
            if (chosen := _of(runs, method, n, cluster))
        ],
    )


def _speedups(found: Sequence[Throughput]) -> Table:
    workers = list(dict.fromkeys(one.workers for one in found))
    rows = []
    for net, (_, update) in NETS.items():
        unit = next(one for one in found if one.net == net).rates.mean()
        for name in SHARDINGS:
            rates = [one.rates for one in found if (one.net, one.sharding) == (net, name)]
            rows.append(
                [net, number(update), name, number(imbalance(net, name))]
                + [interval([float(rate / unit) for rate in same]).text(2) for same in rates]
            )
    header = ["net", "a push", "sharding", "largest shard over the mean"]
    return Table([*header, *(f"n = {n}" for n in workers)], rows)


def _write(
    path: Path,
    runs: Sequence[Trained],
    found: Sequence[Throughput],
    tables: dict[str, Table],
) -> None:
    from leashed.report import html_page  # noqa: PLC0415
    from leashed.report.plots import shat  # noqa: PLC0415 (matplotlib is optional)
    from leashed.training.plots.style import style  # noqa: PLC0415

    compared = [run for run in runs if run.method in HETEROGENEOUS]
    n = max((run.workers for run in runs if run.cluster != "HO"), default=0)
    with style():
        body = [
            "<h1>SHAT: how workers mix with the server's model</h1>",
            html_page.figure(
                "Figure 4",
                shat.over_epochs(compared),
                "Figure 4: test accuracy of the global model over passes over the data, equal "
                "workers. Lines: means over seeds; bands: the least and the largest.",
            ),
            html_page.figure(
                "Figure 5",
                shat.over_time([run for run in compared if run.workers == n]),
                f"Figure 5: test accuracy over virtual time with {n} workers, of which the first "
                "takes 2 (HE0), 10 (HE1) and 100 (HE2) times as long.",
            ),
            html_page.figure(
                "Figure 6",
                shat.speedups(found),
                "Figure 6: updates per second over those of one worker with one server. A gradient "
                "takes a second; what a push takes one server is in the table, and each of four "
                "takes its share of it.",
            ),
        ]
    for title, table in tables.items():
        body += [f"<h2>{html.escape(title)}</h2>", html_page.table(table)]
    body.append(f"<p>{html.escape(_NOTE)}</p>")
    path.write_text(html_page.document("SHAT", body), encoding="utf-8")
