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
from leashed.base.table import columns, pairs
from leashed.cli import days
from leashed.cli.arguments import add_counting, add_fields, given
from leashed.datasets import ClickDataset
from leashed.files import checkpoint, folders
from leashed.metrics import progressive
from leashed.models.factorisation import FactorisationMachine
from leashed.models.graphs import Graph
from leashed.models.network import Model
from leashed.report.facts import facts
from leashed.stream import SparseStream, Stream
from leashed.training import defaults
from leashed.training.job import GROUPS, LOOK, RESEARCH, UNTIL, Job
from leashed.training.options import Checkpoint, Init, Observe
from leashed.training.outcome import Progress
from leashed.training.problems import clicks, files, sparse
from leashed.training.problems.problem import problem_of, strange_to
from leashed.training.progress import Line, describe, of_run
from leashed.training.result import TrainResult
from leashed.training.train import train

if TYPE_CHECKING:
    from leashed.cli.arguments import Arguments, Commands

_EPOCHS = 10.0


KEPT = "what is kept"
_RESEARCH = [
    item.name for item in dataclasses.fields(Job) if item.metadata.get("group") == RESEARCH
]


def add(commands: Commands, model: str | None) -> None:
    """Add the command.

    Args:
        commands: to these.
        model: that is named with it, whose options the help tells; None: the default.
    """
    kinds = "; ".join(
        f"--model {kind[0]} --help those of {', '.join(kind)}"
        for kind in (tuple(clicks.MODELS), sparse.MODELS)
        if model not in kind
    )
    parser = commands.add_parser(
        "train",
        help="train a model",
        usage="leashed train [--model NAME] [--data PATH] [OPTION ...]",
        description=f"Train a model, without a stop rule for {_EPOCHS:g} epochs; of models of clicks, and "
        "with --stream, for one, or two where ids of clicks come often. Exit status: 0; 1 if it ended without the loss asked for, or "
        "crashed; 2 for a wrong argument; 130 after Ctrl-C, which stops all threads and keeps the state reached.",
        epilog=f"Other models have further options, which this does not tell: {kinds}.",
    )
    default = (
        f"default: --epochs {_EPOCHS:g}; of models of clicks, and with --stream, one, or two where ids "
        "come often"
    )
    groups = {**GROUPS, UNTIL: f"{GROUPS[UNTIL]} ({default})"}
    hidden = strange_to(model)
    made = add_fields(parser, Job, leave=_RESEARCH, hidden=hidden, groups=groups)
    days.add_days(parser if "days" in hidden else made[files.FILES], shown="days" not in hidden)
    _add_looks(made[LOOK], of_clicks=model in clicks.MODELS)
    _add_kept(parser.add_argument_group(KEPT))
    research = add_fields(parser, Job, _RESEARCH, groups=groups)[RESEARCH]
    add_counting(research)
    research.add_argument(
        "--record",
        type=Path,
        metavar="FILE",
        help="write which gradient was computed on which version, and when it was applied, for "
        "'leashed replay'",
    )
    parser.set_defaults(command=_train)


def _add_looks(group: Arguments, *, of_clicks: bool) -> None:
    group.add_argument(
        "--progress",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="a line on standard error, rewritten on a terminal, elsewhere one every five seconds "
        "(default: yes)",
    )
    group.add_argument(
        "--json-lines",
        action="store_true",
        help="print each evaluation, and at last the result, as a line of JSON; "
        "the summary goes to standard error",
    )
    group.add_argument(
        "--progressive",
        action="store_true",
        help="count AUC, log loss and more of each batch before it is trained on; for models of one "
        "output with a log loss",
    )
    group.add_argument(
        "--gauc",
        metavar="FEATURE",
        help="the same, and GAUC by the users that this feature of the clicks tells"
        if of_clicks
        else argparse.SUPPRESS,
    )


def _add_kept(group: Arguments) -> None:
    group.add_argument(
        "--save",
        type=Path,
        metavar="FILE",
        help="write model and parameters, as safetensors; of models of clicks a folder, with the "
        "tables",
    )
    group.add_argument(
        "--report",
        type=Path,
        metavar="FILE",
        help="write an HTML page of the run: what it came to, over time, and its tables",
    )
    group.add_argument(
        "--output", type=Path, metavar="FILE", help="write the result to this file, as JSON"
    )
    group.add_argument(
        "--checkpoint",
        type=Path,
        metavar="FILE",
        help="write the state of the run at its end, also after Ctrl-C, to go on from; of models of "
        "clicks a folder",
    )
    group.add_argument(
        "--checkpoint-every",
        type=float,
        metavar="SECONDS",
        help="write it meanwhile, too; no thread stops for it, but by a mode",
    )
    group.add_argument(
        "--checkpoint-updates",
        type=int,
        metavar="N",
        help="write it with every N updates, for which all threads wait: of one moment, tables too",
    )
    group.add_argument(
        "--incremental",
        action="store_true",
        help="of models with tables, write the rows that have changed since the checkpoint before",
    )
    group.add_argument(
        "--resume",
        type=Path,
        metavar="FILE",
        help="go on from a checkpoint, with the same model, data, rule, seed, batch size and tables; "
        "--updates and --epochs count from the run's beginning",
    )


def _train(options: argparse.Namespace) -> int:
    job = Job(**given(options, Job))
    _check_outputs(options)
    if job.days is not None:
        sparse.refuse(job, test=True)
        return days.train(job, options)
    if options.click_share is not None:
        raise ValueError("--click-share goes with --days; give that too, or leave it out")
    until = job.until(None if job.of_clicks else 1.0 if job.stream else _EPOCHS)
    choices = job.choices()
    checks.writable(options.output)
    checks.drawable(options.report)
    for path in (options.save, options.checkpoint):
        if not job.of_clicks:
            checks.writable(path)
        elif path is not None:
            folders.check(path)
    model, rows, test = problem_of(job)
    examples = 0 if isinstance(rows, (Stream, SparseStream)) else len(rows)
    looks = until is None or (job.rule is None and job.lr is None)
    seen = defaults.seen(model, rows, examples) if looks else defaults.Seen(examples)
    choices["rule"] = job.rule_on(seen.often)
    if job.batch_size is None and options.resume is None:
        choices["batch_size"] = defaults.batch_size(model, until, seen.rows)
    tables = clicks.make_tables(model, job, choices["rule"], choices["staleness"])
    end = defaults.end(model, until, seen.often)
    assert end is not None  # so that train has no reason to look at the rows once more
    line = Line(sys.stderr)

    def progress(now: Progress) -> None:
        if options.progress:
            line.show(of_run(end, now, examples, describe))
        if options.json_lines:
            print(_evaluation(now), flush=True)

    result = train(
        model,
        rows,
        validation=test,
        until=end,
        **{**choices, "init": Init(job.init, tables)},
        observe=Observe(
            progress,
            **job.evaluations(),
            metrics=progressive(options.gauc) if options.progressive or options.gauc else None,
            record=options.record,
            counting=options.counting,
        ),
        checkpoint=_kept(options),
        resume=options.resume,
    )
    line.clear()
    if isinstance(test, ClickDataset) and test.hidden is not None:
        result.config["hidden_auc"] = test.hidden_auc
    if options.json_lines:
        print(result.to_json(), flush=True)
    print(pairs(facts(result), columns()), file=sys.stderr if options.json_lines else sys.stdout)
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
    for name, read in (
        ("data", [options.data]),
        ("test", [options.test]),
        ("days", options.days or []),
    ):
        taken |= dict.fromkeys(files.read_for(read), f"--{name} reads")
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


def _kept(options: argparse.Namespace) -> Checkpoint | None:
    how = {name: getattr(options, f"checkpoint_{name}") for name in ("every", "updates")}
    how["incremental"] = options.incremental
    if options.checkpoint is not None:
        return Checkpoint(options.checkpoint, **how)
    for name, value in how.items():
        if value is not None and value is not False:
            option = "--incremental" if name == "incremental" else f"--checkpoint-{name}"
            raise ValueError(f"{option} goes with --checkpoint, which names what is written")
    return None


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
