"""``leashed train``."""

from __future__ import annotations

import argparse
import dataclasses
import json
import math
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from leashed.base import checks
from leashed.base.table import pairs
from leashed.cli import clicks, days, files, sparse
from leashed.cli.arguments import add_discipline
from leashed.cli.problem import add_files, add_problem, problem_of
from leashed.cli.progress import Line, bar, completed, describe
from leashed.cli.rule_arguments import add_rule, rule_of, staleness_of
from leashed.datasets import ClickDataset
from leashed.disciplines import Leashed
from leashed.files import checkpoint, folders
from leashed.metrics import progressive
from leashed.models._parameters import INITIALISATIONS
from leashed.models.factorisation import FactorisationMachine
from leashed.models.graphs import Graph
from leashed.models.network import Model
from leashed.report.facts import facts
from leashed.stopping import Until
from leashed.stream import SparseStream, Stream
from leashed.training import defaults
from leashed.training.result import TrainResult
from leashed.training.spelled import MODE_WORDS, OBSERVERS, discipline_of, mode_of
from leashed.training.train import Progress, train

if TYPE_CHECKING:
    from leashed.cli.arguments import Commands

_EPOCHS = 10.0


def add(commands: Commands) -> None:
    """Add the command."""
    parser = commands.add_parser(
        "train",
        help="train a model",
        description="Train a model. Exit status: 0; 1 if it ended without the loss asked for, or "
        "crashed; 2 for a wrong argument; 130 after Ctrl-C, which stops all threads and keeps the state reached.",
    )
    add_problem(parser)
    add_discipline(parser)
    parser.add_argument(
        "--mode",
        metavar="NAME[:KEY=VALUE…]",
        help="in place of a discipline: workers of a parameter server, or peers; of "
        f"{', '.join(MODE_WORDS)}, such as gba:m=8:iota=4",
    )
    parser.add_argument(
        "--term",
        type=float,
        metavar="SECONDS",
        help="with --mode: until a batch that has not come back goes to another worker (default: never)",
    )
    parser.add_argument(
        "--threads",
        type=_threads,
        help='a number, or "auto": as many as are fastest here (default: all processors)',
    )
    parser.add_argument(
        "--batch-size",
        type=int,
        help=f"default: with --resume that of then; else {defaults.BATCH_SIZE}, or all rows of fewer; "
        "of models of clicks without a stop rule, and without --stream, so few that the epoch makes "
        f"{defaults.LEAST_UPDATES:,} updates",
    )
    parser.add_argument("--seed", type=int, default=0, help="default: %(default)s")
    parser.add_argument(
        "--init", choices=INITIALISATIONS, default="he", help="default: %(default)s"
    )
    parser.add_argument(
        "--evaluate-every",
        type=float,
        metavar="SECONDS",
        help="between evaluations of the loss (default: so that they take a tenth of a thread)",
    )
    add_rule(parser, clicks=True)
    days.add_days(add_files(parser))
    until = parser.add_argument_group(
        "stop rules",
        f"the first to hold ends the run (default: --epochs {_EPOCHS:g}; of models of clicks, and with "
        "--stream, one)",
    )
    until.add_argument("--loss-fraction", type=float, help="loss at most this times the initial")
    until.add_argument("--loss", type=float, help="loss at most this")
    until.add_argument("--updates", type=int, help="so many updates published")
    until.add_argument("--epochs", type=float, help="so many passes over the training set")
    until.add_argument("--seconds", type=float, help="so much time")
    until.add_argument("--divergence", type=float, help="loss at least this times the initial")
    parser.add_argument(
        "--json-lines",
        action="store_true",
        help="print each evaluation, and at last the result, as a line of JSON; "
        "the summary goes to standard error",
    )
    parser.add_argument(
        "--checkpoint",
        type=Path,
        metavar="FILE",
        help="write the state of the run at its end, also after Ctrl-C, to go on from; of models of "
        "clicks a folder",
    )
    parser.add_argument(
        "--checkpoint-every",
        type=float,
        metavar="SECONDS",
        help="write it meanwhile, too; no thread stops for it, but by a mode",
    )
    parser.add_argument(
        "--checkpoint-updates",
        type=int,
        metavar="N",
        help="write it with every N updates, for which all threads wait: of one moment, tables too",
    )
    parser.add_argument(
        "--incremental",
        action="store_true",
        help="of models with tables, write the rows that have changed since the checkpoint before",
    )
    parser.add_argument(
        "--resume",
        type=Path,
        metavar="FILE",
        help="go on from a checkpoint, with the same model, data, rule, seed, batch size and tables; "
        "--updates and --epochs count from the run's beginning",
    )
    parser.add_argument(
        "--record",
        type=Path,
        metavar="FILE",
        help="write which gradient was computed on which version, and when it was applied, for "
        "'leashed replay'",
    )
    parser.add_argument(
        "--progressive",
        action="store_true",
        help="count AUC, log loss and more of each batch before it is trained on; for models of one "
        "output with a log loss",
    )
    parser.add_argument(
        "--gauc",
        metavar="FEATURE",
        help="the same, and GAUC by the users that this feature of the clicks tells",
    )
    parser.add_argument(
        "--counting",
        action="append",
        default=[],
        metavar="NAME:KEY=VALUE,...",
        help=f"who looks on at the training's steps, told on the line of progress and in the result: "
        f"{', '.join(OBSERVERS)}; again for more",
    )
    parser.add_argument("--output", type=Path, help="write the result to this file, as JSON")
    parser.add_argument(
        "--report",
        type=Path,
        metavar="FILE",
        help="write an HTML page of the run: what it came to, over time, and its tables",
    )
    parser.add_argument(
        "--save",
        type=Path,
        help="write model and parameters, as safetensors; of models of clicks a folder, with the "
        "tables",
    )
    parser.set_defaults(command=_train)


def _threads(text: str) -> int | str:
    return text if text == "auto" else int(text)


def _until(options: argparse.Namespace) -> Until | None:
    """None: as models of clicks have it."""
    rules = {item.name: getattr(options, item.name) for item in dataclasses.fields(Until)}
    if all(value is None for value in rules.values()):
        if options.model in clicks.MODELS:
            return None
        rules["epochs"] = 1.0 if options.stream else _EPOCHS
    return Until(**rules)


def _train(options: argparse.Namespace) -> int:
    discipline = discipline_of(options.discipline, options.persistence)
    mode = None if options.mode is None else mode_of(options.mode)
    if mode is not None and discipline != Leashed():
        raise ValueError(
            "--discipline and --persistence do not go with --mode; give one of the two"
        )
    if options.term is not None and mode is None:
        raise ValueError("--term goes with --mode; give that too, or leave it out")
    _check_outputs(options)
    if options.days is not None:
        sparse.refuse(options, test=True)
        return days.train(options, discipline, mode)
    if options.click_share is not None:
        raise ValueError("--click-share goes with --days; give that too, or leave it out")
    of_clicks = options.model in clicks.MODELS
    until = _until(options)
    rule, staleness = rule_of(options, of_clicks=of_clicks), staleness_of(options)
    checks.writable(options.output)
    checks.drawable(options.report)
    for path in (options.save, options.checkpoint):
        if not of_clicks:
            checks.writable(path)
        elif path is not None:
            folders.prepare(path)
    model, rows, test = problem_of(options)
    given = (
        clicks.make_tables(model, options, rule, staleness) if isinstance(model, Graph) else None
    )
    end = defaults.end(model, until)
    assert end is not None
    line = Line(sys.stderr)

    def progress(now: Progress) -> None:
        if isinstance(rows, (Stream, SparseStream)):
            line.show(describe(now))
        else:
            share = completed(end, now, len(rows))
            line.show(f"{bar(share)} {100.0 * share:3.0f}%  {describe(now)}")
        if options.json_lines:
            print(_evaluation(now), flush=True)

    result = train(
        model,
        rows,
        validation=test,
        until=until,
        discipline=discipline if mode is None else None,
        mode=mode,
        term=options.term,
        rule=rule,
        staleness=staleness,
        threads=options.threads,
        batch_size=options.batch_size,
        seed=options.seed,
        init=options.init,
        evaluate_every=options.evaluate_every,
        progress=progress,
        checkpoint=options.checkpoint,
        checkpoint_every=options.checkpoint_every,
        checkpoint_updates=options.checkpoint_updates,
        incremental=options.incremental,
        resume=options.resume,
        tables=given,
        record=options.record,
        metrics=progressive(options.gauc) if options.progressive or options.gauc else None,
        counting=options.counting,
    )
    line.clear()
    if isinstance(test, ClickDataset) and test.hidden is not None:
        result.config["hidden_auc"] = test.hidden_auc
    if options.json_lines:
        print(result.to_json(), flush=True)
    print(pairs(facts(result)), file=sys.stderr if options.json_lines else sys.stdout)
    if options.save is not None:
        _save(options.save, model, result)
    if options.output is not None:
        options.output.write_text(result.to_json() + "\n", encoding="utf-8")
    if options.report is not None:
        _report(options.report, result)
    if result.reason == "interrupted":
        return 130
    return 1 if result.outcome in {"unfinished", "diverged", "crashed"} else 0


def _check_outputs(options: argparse.Namespace) -> None:
    taken: dict[Path, str] = {}
    for name, given in (
        ("data", [options.data]),
        ("test", [options.test]),
        ("days", options.days or []),
    ):
        taken |= dict.fromkeys(files.read_for(given), f"--{name} reads")
    for name in ("checkpoint", "save", "record", "output", "report"):
        path = getattr(options, name)
        if path is None:
            continue
        use = taken.setdefault(path.resolve(), f"--{name} writes")
        if use != f"--{name} writes":
            raise ValueError(f"--{name} {path} is what {use}; name another")


def _report(path: Path, result: TrainResult) -> None:
    from leashed.report import training  # noqa: PLC0415 (matplotlib is optional)

    training.write(result, path)


def _save(path: Path, model: Model | FactorisationMachine | Graph, result: TrainResult) -> None:
    if result.outcome == "crashed":
        print(f"leashed: {path} not written: the parameters are not finite", file=sys.stderr)
    else:
        checkpoint.save(
            path, model, result.parameters, result.tables or None, statistics=result.statistics
        )


def _evaluation(now: Progress) -> str:
    return json.dumps(_without_nan(dataclasses.asdict(now)))


def _without_nan(values: dict[str, Any]) -> dict[str, Any]:
    return {
        name: _without_nan(value)
        if isinstance(value, dict)
        else None
        if isinstance(value, float) and not math.isfinite(value)
        else value
        for name, value in values.items()
    }
