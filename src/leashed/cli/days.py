"""``leashed train --days``."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from leashed.base import checks
from leashed.cli.arguments import listed
from leashed.datasets.fields import Schema
from leashed.files import checkpoint, folders
from leashed.metrics import progressive
from leashed.report import days as report
from leashed.training.continual import Continual, continual
from leashed.training.days import Day, to_json
from leashed.training.job import Job
from leashed.training.options import Checkpoint, Init, Observe
from leashed.training.outcome import Progress
from leashed.training.problems import clicks
from leashed.training.problems.files import expanded, stream_of
from leashed.training.progress import Line, describe

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
    "metric": "it is what --patience goes by",
    "test": "each day is tested on",
    **dict.fromkeys(
        ("loss_fraction", "loss", "updates", "seconds", "divergence"),
        "a day ends after so many --epochs, by default 1, or by --patience",
    ),
}
_WITH_PATIENCE = ("metric", "test")  # which go with days then


def add_days(parser: Arguments, *, shown: bool) -> None:
    """What goes with ``--days``; in the help where that is ``shown``."""
    parser.add_argument(
        "--click-share",
        type=listed(float),
        metavar="LOW,HIGH",
        help="with --days: refuse a file, before it is trained on, unless of its rows, by weight, more "
        "than LOW and less than HIGH have label 1; 0,1 refuses what is of one class, as a failed join "
        "makes it (default: a warning of such)"
        if shown
        else argparse.SUPPRESS,
    )


def train(job: Job, options: argparse.Namespace) -> int:
    """The command with ``--days``."""
    assert job.days is not None
    _check_options(job, options)
    files = expanded(job.days)
    choices = job.choices()
    known = _known(options.checkpoint)
    model = clicks.build(job.model, job, known)
    tables = clicks.make_tables(model, job, choices["rule"], choices["staleness"])
    run = options.checkpoint.resolve()
    for name, kind in (("save", "folder"), ("output", "file"), ("report", "file")):
        path = getattr(options, name)
        if path is not None and run in path.resolve().parents:
            raise ValueError(
                f"--{name} {path} is where --checkpoint {options.checkpoint} keeps the run; name "
                f"another {kind}"
            )
    if options.save is not None:
        folders.check(options.save)
    line = Line(sys.stderr)

    def progress(name: str, now: Progress) -> None:
        if options.progress:
            line.show(f"{name}  {describe(now)}")

    def finished(day: Day) -> None:
        line.clear()
        print(report.line(day), file=sys.stderr, flush=True)
        if options.json_lines:
            print(json.dumps(to_json(day)), flush=True)

    result = continual(
        model,
        {name: stream_of(path, job, known, shuffle=job.shuffle) for name, path in files.items()},
        folder=options.checkpoint,
        until=job.until(1.0),
        validation=None if job.test is None else stream_of(job.test, job, known).read(),
        **{**choices, "init": Init(job.init, tables)},
        checkpoint=Checkpoint(
            every=options.checkpoint_every,
            updates=options.checkpoint_updates,
            incremental=options.incremental,
        ),
        observe=Observe(
            progress,
            **job.evaluations(),
            metrics=progressive(options.gauc) if options.progressive or options.gauc else None,
            counting=options.counting,
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


def _known(run: Path) -> Schema | None:
    """What columns have become in the days before, so that they do so in those to come."""
    try:
        return checkpoint.read_model(run).columns.schema
    except (OSError, ValueError):  # which whoever goes on tells of
        return None


def _check_options(job: Job, options: argparse.Namespace) -> None:
    if not job.of_clicks:
        raise ValueError(f"--days goes with --model {', '.join(clicks.MODELS)}")
    judged = _WITH_PATIENCE if job.patience is not None else ()
    if judged and job.test is None:
        raise ValueError("--days with --patience takes --test FILE, on which passes are judged")
    for name, why in _ELSEWHERE.items():
        if name not in judged and getattr(options, name) is not None:
            raise ValueError(f"--{name.replace('_', '-')} does not go with --days: {why}")
    if job.stream:
        raise ValueError("--stream goes with --data; files of --days always are")
    if options.checkpoint is None:
        raise ValueError("--days takes --checkpoint FOLDER, where the state lies between days")
    if job.threads == "auto":
        raise ValueError("--threads auto does not go with --days: give a number")
    checks.writable(options.output)
    checks.drawable(options.report)


def _write(options: argparse.Namespace, model: str, result: Continual) -> None:
    if options.output is not None:
        options.output.write_text(json.dumps(result.config()) + "\n", encoding="utf-8")
    if options.report is not None:
        from leashed.report import days_page  # noqa: PLC0415 (matplotlib is optional)

        days_page.write(result.days, options.report, model)
