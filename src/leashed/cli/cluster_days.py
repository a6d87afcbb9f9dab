"""``leashed cluster up --days``: a run of the cluster for each day, from the checkpoint with which that of
the day before has ended.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from leashed.cluster import outcome
from leashed.cluster.measures import counted
from leashed.cluster.plan import Plan
from leashed.files import checkpoint
from leashed.metrics import ClickMetrics, Values
from leashed.report import days as report
from leashed.stream import Stream
from leashed.training.days import Day, Journal, Today, log_files
from leashed.training.problems.files import expanded
from leashed.training.problems.problem import Problem

if TYPE_CHECKING:
    from leashed.cluster.row_index import RowIndex

__all__ = ["EVERY", "train"]

EVERY = 3600.0
"""Seconds between two checkpoints of a day's run, where it is not said."""

_JOURNAL = "days.json"


def train(plan: Plan, run: Callable[[Plan, Problem], int]) -> int:
    """All days that are not done, in the plan's folder, and a table of all; the status of who is to say.

    Args:
        plan: of all days.
        run: does a day's, by its plan and what it trains, from its own last checkpoint, if it has one;
            returns its status.

    Raises:
        OSError, TypeError, ValueError: before a day is begun: its file is missing or wrong, or days were
            trained by another plan.
    """
    if plan.train.output == "best":
        raise ValueError(
            "--output best goes by a test set, of which days have none; take first or average"
        )
    if plan.cluster.checkpoints is not None:
        raise ValueError(
            "cluster.checkpoints does not go with train.days, each of which keeps its own in its folder; leave "
            "it out"
        )
    for rule in ("loss_fraction", "loss", "updates", "seconds", "divergence"):
        if getattr(plan.train, rule) is not None:
            raise ValueError(
                f"train.{rule} does not go with train.days in a cluster, where each day's batches are all used, "
                "since the next begins with what they have led to; leave it out"
            )
    _check_resume(plan.cluster.resume)
    files = expanded(plan.train.days or ())
    folder = plan.cluster.run
    folder.mkdir(parents=True, exist_ok=True)
    journal = Journal(folder / _JOURNAL)
    done = [day.name for day in journal.done]
    if strange := [name for name in done if name not in files]:
        raise ValueError(
            f"{folder} has days that --days does not name: {', '.join(strange)}; name them too, or take "
            "another --run"
        )
    if done != list(files)[: len(done)]:
        raise ValueError(f"{folder} has its days in another order: {', '.join(done)}")
    before: Path | None = folder / done[-1] if done else None
    for name, path in list(files.items())[len(done) :]:
        today = folder / name
        of_day = _plan_of(plan, path, today, before)
        problem = of_day.problem()
        if problem.model.loss != "log_loss" or problem.model.outputs != 1:
            raise ValueError("--days of a cluster goes with --target click and one label")
        index = of_day.index(problem)
        began = journal.today
        if began is None or began.name != name:
            yesterday, clicks = _looked_at(problem, before)
            updates = journal.done[-1].updates if journal.done else 0
            began = Today(name, updates, yesterday, clicks, log_files([path]))
            journal.begin(began)
        told = outcome.read_report(today)
        if told is None or told["state"] != "ended" or _end_of(today) is None:
            if status := run(of_day, problem):
                return status
            told = outcome.read_report(today)
            if _end_of(today) is None:
                raise ChildProcessError(
                    f"{name} has ended without a checkpoint of its end, with which the next day would begin "
                    f"({today / 'master.log'} may say why); the same command goes on with it"
                )
        assert told is not None
        if "output" not in told:  # the command was ended before that was written
            known = told.get("restarts", {}), told.get("given_up", {})
            told = outcome.conclude(told, today, of_day, problem, *known)
        day = _day(began, problem, index, told)
        journal.finish(day)
        print(report.line(day), file=sys.stderr, flush=True)
        before = today
    print(report.table(journal.done))
    return 0


def _plan_of(plan: Plan, path: Path, folder: Path, before: Path | None) -> Plan:
    """A day's."""
    begins = plan.cluster.resume if before is None else _end_of(before)
    if before is not None and begins is None:
        raise ValueError(
            f"{before} has no checkpoint of its day's end: the day has ended without one, so remove that "
            "folder and its line in days.json to train it again"
        )
    cluster = replace(
        plan.cluster,
        run=folder,
        resume=begins,
        checkpoint_every=plan.cluster.checkpoint_every or EVERY,
    )
    return replace(plan, cluster=cluster, train=replace(plan.train, data=str(path.absolute())))


def _check_resume(begins: Path | None) -> None:
    """ValueError where the first day cannot begin with it."""
    from leashed.cluster.checkpoints import Checkpoint  # noqa: PLC0415 (it needs the extra)

    if begins is not None and not Checkpoint(begins).complete:
        raise ValueError(
            f"cluster.resume with train.days must be a checkpoint with which a run has ended, and {begins} is "
            "of one's midst: go on with that run first (leashed cluster resume)"
        )


def _end_of(folder: Path) -> Path | None:
    """The checkpoint that a day has ended with; None: there is none, or one of the day's middle."""
    from leashed.cluster.checkpoints import Checkpoint, newest  # noqa: PLC0415 (it needs the extra)

    try:
        found = Checkpoint(newest(folder))
    except FileNotFoundError:
        return None
    return found.folder if found.complete else None


def _looked_at(problem: Problem, before: Path | None) -> tuple[Values | None, float]:
    """How well the model of the day before predicts the rows, where there is one, and the share of clicks."""
    found: Any = None
    if before is not None:
        found = checkpoint.load(outcome.place(before, problem.model))
    scores = ClickMetrics()
    rows = clicks = 0
    data: Any = problem.train
    for part in data.parts() if isinstance(data, Stream) else (data,):
        if found is not None:
            logits = found.model.logits(
                found.parameters, part, found.tables, None, found.statistics
            )
            scores.add(logits, part.y, part.weights)
        rows += len(part)
        clicks += int((part.y == 1).sum())
    return None if found is None else scores.values(), clicks / rows


def _day(today: Today, problem: Problem, index: RowIndex | None, told: dict[str, Any]) -> Day:
    trainers, servers = counted(told, "trainer"), counted(told, "embedding-ps")
    examples = sum(int(each.get("examples", 0)) for each in trainers.values())
    seconds = float(told["seconds"])
    return Day(
        name=today.name,
        data=problem.train.name,
        examples=len(problem.train) if index is None else index.rows,
        bad=problem.train.skipped if index is None else index.counts.bad,
        updates=today.begun_at + int(told["ledger"]["complete"]),
        loss=float(told.get("train_loss", math.nan)),
        yesterday=today.yesterday,
        progressive=None,
        seconds=seconds,
        eps=examples / seconds if seconds else math.nan,
        rows=sum(int(each.get("rows", 0)) for each in servers.values()),
        click_share=today.click_share,
        files=today.files,
    )
