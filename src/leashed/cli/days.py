"""``leashed train --days``."""

from __future__ import annotations

import argparse
import json
import sys
from typing import TYPE_CHECKING

from leashed.base import checks
from leashed.cli import clicks
from leashed.cli.arguments import listed
from leashed.cli.files import expanded, stream_of
from leashed.cli.progress import Line, describe
from leashed.cli.rule_arguments import rule_of, staleness_of
from leashed.disciplines import Discipline
from leashed.files import checkpoint, folders
from leashed.metrics import progressive
from leashed.modes import Mode
from leashed.report import days as report
from leashed.training.continual import Continual, continual
from leashed.training.days import Day, to_json
from leashed.training.options import Checkpoint, Init, Observe
from leashed.training.outcome import Progress

if TYPE_CHECKING:
    from leashed.cli.arguments import Arguments

__all__ = ["add_days", "train"]

_STATUS = {"done": 0, "crashed": 1, "interrupted": 130}
# What a training on days takes from elsewhere, or has no use for.
_ELSEWHERE = {
    "data": "--days names the files",
    "rows": "it is of generated rows",
    "resume": "--checkpoint goes on by itself",
    "record": "it is of data in memory",
    "test": "each day is tested on",
    "loss_fraction": "each day is trained on once",
    "loss": "each day is trained on once",
    "updates": "each day is trained on once",
    "epochs": "each day is trained on once",
    "seconds": "each day is trained on once",
    "divergence": "each day is trained on once",
}


def add_days(parser: Arguments) -> None:
    """The argument ``--days``."""
    parser.add_argument(
        "--days",
        nargs="+",
        metavar="FILES",
        help="in place of --data: train on one file after the other, those of a pattern by name, each "
        "once, after the model of the file before has predicted it. --checkpoint FOLDER has the state: "
        "the same command goes on, also after a kill, and with files that have come since",
    )
    parser.add_argument(
        "--click-share",
        type=listed(float),
        metavar="LOW,HIGH",
        help="with --days: refuse a file, before it is trained on, unless of its rows, by weight, more "
        "than LOW and less than HIGH have label 1; 0,1 refuses what is of one class, as a failed join "
        "makes it (default: a warning of such)",
    )


def train(options: argparse.Namespace, discipline: Discipline, mode: Mode | None) -> int:
    """The command with ``--days``."""
    _check_options(options)
    files = expanded(options.days)
    rule, staleness = rule_of(options, of_clicks=True), staleness_of(options)
    model = clicks.build(options.model, options)
    run = options.checkpoint.resolve()
    for name, kind in (("save", "folder"), ("output", "file"), ("report", "file")):
        path = getattr(options, name)
        if path is not None and run in path.resolve().parents:
            raise ValueError(
                f"--{name} {path} is where --checkpoint {options.checkpoint} keeps the run; name "
                f"another {kind}"
            )
    if options.save is not None:
        folders.prepare(options.save)
    line = Line(sys.stderr)

    def progress(name: str, now: Progress) -> None:
        line.show(f"{name}  {describe(now)}")

    def finished(day: Day) -> None:
        line.clear()
        print(report.line(day), file=sys.stderr, flush=True)
        if options.json_lines:
            print(json.dumps(to_json(day)), flush=True)

    result = continual(
        model,
        {name: stream_of(path, options) for name, path in files.items()},
        folder=options.checkpoint,
        rule=rule,
        discipline=discipline if mode is None else None,
        mode=mode,
        staleness=staleness,
        threads=options.threads,
        batch_size=options.batch_size,
        seed=options.seed,
        init=Init(options.init, clicks.make_tables(model, options, rule, staleness)),
        checkpoint=Checkpoint(
            every=options.checkpoint_every,
            updates=options.checkpoint_updates,
            incremental=options.incremental,
        ),
        observe=Observe(
            progress,
            every=options.evaluate_every,
            metrics=progressive(options.gauc) if options.progressive or options.gauc else None,
        ),
        finished=finished,
        click_share=options.click_share,
    )
    line.clear()
    print(report.table(result.days), file=sys.stderr if options.json_lines else sys.stdout)
    _write(options, model.name, result)
    if options.save is not None:
        checkpoint.save(
            options.save, model, result.parameters, result.tables or None, result.statistics
        )
    return _STATUS[result.outcome]


def _check_options(options: argparse.Namespace) -> None:
    if options.model not in clicks.MODELS:
        raise ValueError(f"--days goes with --model {', '.join(clicks.MODELS)}")
    for name, why in _ELSEWHERE.items():
        if getattr(options, name) is not None:
            raise ValueError(f"--{name.replace('_', '-')} does not go with --days: {why}")
    if options.stream:
        raise ValueError("--stream goes with --data; files of --days always are")
    if options.checkpoint is None:
        raise ValueError("--days takes --checkpoint FOLDER, where the state lies between days")
    if options.threads == "auto":
        raise ValueError("--threads auto does not go with --days: give a number")
    checks.writable(options.output)
    checks.drawable(options.report)


def _write(options: argparse.Namespace, model: str, result: Continual) -> None:
    if options.output is not None:
        options.output.write_text(json.dumps(result.config()) + "\n", encoding="utf-8")
    if options.report is not None:
        from leashed.report import days_page  # noqa: PLC0415 (matplotlib is optional)

        days_page.write(result.days, options.report, model)
