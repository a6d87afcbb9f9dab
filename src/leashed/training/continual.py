"""Training day after day: each day is predicted by the model of the day before, and then trained on.

In the folder of a run are its state, as a checkpoint has it, and the journal of its days. A day that
is trained on goes from the state of the day before to the next one; whether the state is of the
day before, or of some moment of the day under way, its number of updates tells, which is in the
journal for the moment at which the day began. So at every moment both files together say where to go
on.
"""

from __future__ import annotations

import errno
import math
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, fields, replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from leashed import _core
from leashed import staleness as policies
from leashed.base import checks
from leashed.base.warning import warn
from leashed.datasets import ClickDataset, Dataset
from leashed.datasets.columns import UNKNOWN, arrange
from leashed.disciplines import Discipline
from leashed.files import checkpoint, folders, resuming
from leashed.metrics import (
    Classified,
    ClickMetrics,
    Errors,
    HeadMetrics,
    NumberMetrics,
    Progressive,
    Values,
)
from leashed.models._columns import columns_of, kept
from leashed.models.graphs import Graph
from leashed.models.tables import Refusals, Table, in_run
from leashed.modes import Mode
from leashed.rules import Rule
from leashed.staleness import Policy
from leashed.stopping import Until
from leashed.stream import Stream
from leashed.training import defaults, request
from leashed.training.days import Day, Journal, LogFile, Scores, Today, first_of, log_files, to_json
from leashed.training.options import Checkpoint, Init, Observe, options
from leashed.training.outcome import Progress
from leashed.training.progress import watched
from leashed.training.result import TrainResult, refused_share
from leashed.training.sets import sets_of
from leashed.training.train import train

if TYPE_CHECKING:
    from leashed.training.trained import Trained

__all__ = ["Continual", "Day", "continual"]

OneDay: TypeAlias = (
    "Stream | ClickDataset | Dataset | Callable[[], Stream | ClickDataset | Dataset]"
)
_JOURNAL = "days.json"
_STATE = "state"
_UNFINISHED = re.compile(rf"\.(?:{re.escape(_JOURNAL)}|{re.escape(_STATE)}\.safetensors)\.\d+\.\d+")
_OF_DAYS = ("epochs", "patience", "metric")  # of stop rules
_SCORED = 65_536  # rows that are predicted at once


@dataclass(frozen=True, eq=False, repr=False)
class Continual:
    """What ``continual`` returns.

    Attributes:
        outcome: ``"done"``: all days are; ``"interrupted"``: Ctrl-C, what was reached is kept;
            ``"crashed"``: the loss was no number any more, or parameters were none, and the state is
            that of before.
        days: those that are done, now or by calls before.
        parameters: float32 [d].
        tables: those that the model reads, by name.
        statistics: float32 [s], as ``TrainResult.statistics``.
        architecture: the model without what it learned, which ``model`` has too.
        settings: what the last training was asked for, as ``TrainResult.config``; of days that were all
            done before, as the checkpoint has it.
    """

    outcome: str
    days: tuple[Day, ...]
    parameters: NDArray[np.float32]
    tables: dict[str, Table]
    statistics: NDArray[np.float32]
    architecture: Graph
    settings: dict[str, Any] = field(default_factory=dict)

    @property
    def model(self) -> Trained:
        """What was trained, as one object: it predicts, is judged, saved, exported and trained further."""
        from leashed.training.trained import Trained  # noqa: PLC0415 (seldom asked for)

        return Trained.of(self.architecture, self, self.settings)

    def __repr__(self) -> str:
        last = self.days[-1] if self.days else None
        told = f": the last {last.name}" if last else ""
        if last is not None and last.yesterday is not None:
            name, value = first_of(last.yesterday)
            told += f", {name} {value:.4f} by the model of the day before"
        return f"Continual({self.outcome}, {len(self.days)} days{told}; {self.model!r})"

    def config(self) -> dict[str, Any]:
        """Outcome and days as JSON's own types."""
        return {"outcome": self.outcome, "days": [to_json(day) for day in self.days]}


def continual(
    model: Graph,
    days: Iterable[OneDay] | Mapping[str, OneDay],
    *,
    folder: str | os.PathLike[str],
    until: Until | None = None,
    validation: Any = None,
    rule: Rule | str | None = None,
    discipline: Discipline | str | None = None,
    mode: Mode | str | None = None,
    staleness: Policy | str | None = None,
    threads: int | None = None,
    batch_size: int | None = None,
    seed: int = 0,
    init: str | Init | None = None,
    observe: Observe | Callable[[str, Progress], object] | None = None,
    checkpoint: Checkpoint | None = None,
    finished: Callable[[Day], object] | None = None,
    click_share: tuple[float, float] | None = None,
    **old: Any,
) -> Continual:
    """Train a model of clicks, or of another target over tables, day after day (gba, section 5):
    the model of the day before predicts a day's rows, which tells how good it is on what comes
    next; then they are trained on, once.

        days = {path.name: lsh.stream.criteo(path) for path in sorted(logs.glob("*.tsv.gz"))}
        result = lsh.continual(model, days, folder="run", rule=lsh.Adagrad(0.05))
        for day in result.days: print(day.name, day.yesterday)

    The state lies in ``folder``: parameters, tables, the rule's state, statistics, and how far the
    days are. Whether a call is the first, follows one that was killed at any moment, or one whose
    days are all done while more have come: it goes on from there. With one thread, and
    ``checkpoint.updates`` or none within a day, to the bits of a run that was not interrupted
    (where neither ``admit_after`` nor ``evict`` is asked of tables).

    A kill costs the training of the day under way since the last checkpoint: at most
    so many updates as ``checkpoint`` says and, with several threads, those under way; by default the day.
    Nothing of it is lost for good: its rows are trained on again.

    All that can be refused is before a day is scored: arguments, the state in the folder, and of a
    list or mapping every day that is to come and is no function, of streams up to their first row.
    (What labels a day has is known when it has been scored, and refused before it is trained on.) A
    day without a row is passed over with a ``RuntimeWarning`` and is done, with 0 examples.

    Of a stream the journal has the bytes of its files, and when they were modified, as they were
    before it was read. Where they are others when the day ends, or in a later call, one
    ``RuntimeWarning`` names the day: rows that came meanwhile are not trained on.

    Args:
        model: of ``leashed.models``, of clicks, numbers or classes (``target=`` of ``models.dlrm``). Where
            its shape follows from the data, from the state in the folder or the first day; where
            that is a function, give ``model.shaped(data)``.
        days: streams or data sets, in order, or functions without arguments that make them when
            their turn has come, and are looked at then; each is read twice. Days are known by their
            keys, or where there are none by their number: give the same ones again, and others
            behind. Of days with keys those that are done may be left out.
        folder: of the run; made where it is not there.
        until: of each day, ``lsh.until(epochs=...)``, or with ``patience`` and ``metric``, counted anew: several
            passes over it, by patience judged on ``validation``, and the best state is what the next day begins
            with, that of the day before where no pass was better. A day that is gone on with goes on
            from its best state. Default: one pass.
        validation: a set in memory, for all days.
        rule, discipline, staleness, threads, init, old (and so ``progress=True``): as of
            ``leashed.train``; after a restart tables get the rows of the state. The number of updates
            goes on from day to day, and with it schedules and periods.
        mode: as of ``leashed.train``. A day that was begun goes on with the mode that it was
            begun with; each day begins with a server that holds nothing yet and, where workers have
            models of their own, with all of them at what the day before has come to.
        batch_size: examples per gradient; of a day in memory of fewer, all of them. Default: that of the
            run in ``folder``, which begins with 64; a day in memory of fewer rows is one batch
            (of one row it is refused by a model that normalises by batches).
        seed: of the initial parameters, the tables, and of the order of days in memory.
        observe: as of ``leashed.train``, without a record; ``progress`` is called with the day's name
            too. With ``metrics.progressive(gauc=...)`` and the name of a feature, for days in memory, GAUC
            is told of predictions too.
        checkpoint: ``lsh.Checkpoint(every=..., updates=..., incremental=...)``, without a path:
            checkpoints within a day. Default: one at the end of each day.
        finished: called with each day that is done by this call.
        click_share: of the rows of a day, by weight, those that have label 1 are to be more than the
            first of these shares and less than the second, from 0 to 1. A day whose are not is
            refused before it is trained on, and the state stays that of the day before: days of one
            class, as a join that failed makes them, by ``(0, 1)``, and what your logs never are by a
            closer bound. Default: every day is trained on, one of one class with a
            ``RuntimeWarning``.

    Returns:
        A ``Continual``, with a row for each day. After Ctrl-C what was reached has been saved.

    Raises:
        TypeError, ValueError: an argument is wrong, a day does not fit the model, or the folder holds
            another run: another model, rule, seed or batch size; or a day is under way there that is
            not among ``days``; or a day's labels are not as ``click_share`` says.
        OSError: a file cannot be read, or the state could not be written.
    """
    if isinstance(threads, str):
        raise TypeError(f"threads must be a whole number, for all days alike, got {threads!r}")
    names = ("init", "mode", "observe", "checkpoint")
    asked = options(init, mode, observe, checkpoint or Checkpoint(), None, old, names)
    init, kept = asked.init, asked.checkpoint
    if init.parameters is not None and not isinstance(init.parameters, str):
        raise TypeError("init must be by name, since each day begins where the one before ended")
    if kept is None or kept.path is not None:
        raise ValueError("checkpoint.path must be left out: it is in the run's folder")
    if asked.observe.record is not None:
        raise ValueError("observe.record is of one training, not of days; leave it out")
    model, days = _shaped(model, days, Path(folder))
    metrics, progress = asked.observe.metrics, asked.observe.progress
    initial = init.parameters or defaults.init(model)
    if rule is None:  # of all days, none of which has been counted
        rule = defaults.rule(of_clicks=defaults.is_of_clicks(model))
    run = _Run(
        model,
        Path(folder),
        request.tables_for(
            model,
            init.tables,
            rule,
            policies.none() if staleness is None else staleness,
            seed,
        ),
        metrics,
        lambda: model.init(seed, initial),
        _checked_share(click_share),
    )
    if finished is not None and not callable(finished):
        raise TypeError(f"finished must be callable, got {finished!r}")
    settings: dict[str, Any] = {
        "until": _checked_until(until),
        "validation": validation,
        "rule": rule,
        "discipline": discipline,
        "mode": asked.mode,
        "staleness": staleness,
        "threads": threads,
        "batch_size": batch_size,
        "seed": seed,
        "init": Init(initial, run.tables or None),
        "observe": asked.observe,
        "checkpoint": replace(kept, path=run.state),
    }
    refusals = Refusals(run.tables)
    to_come: Iterable[tuple[str, OneDay]] = _not_done(days, run)
    if isinstance(days, (Mapping, Sequence)):
        to_come = list(to_come)
        try:
            run.look(to_come, settings)
        except KeyboardInterrupt:
            return run.result("interrupted")
    for name, given in to_come:
        run.tell_changed()
        try:
            data = _made(name, given)
            if not isinstance(data, _Empty):
                run.check(name, data, settings)
                run.begin(name, data)
        except KeyboardInterrupt:
            return run.result("interrupted")
        if isinstance(data, _Empty):
            day = run.pass_over(name, data)
            if finished is not None:
                finished(day)
            continue
        heard = partial(progress, name) if callable(progress) else progress
        rows = 0 if isinstance(data, Stream) else len(data)
        with in_run(refusals), watched(heard, settings["until"], rows, name) as told:
            result = train(
                model,
                data,
                **{**settings, "observe": replace(asked.observe, progress=told)},
                resume=run.whence(name),
            )
        # Of a stream the loss is of batches before their updates: the last may have been one too much.
        crashed = result.outcome == "crashed" or not np.isfinite(result.parameters).all()
        if crashed or result.reason == "interrupted":
            return run.result("crashed" if crashed else "interrupted", result)
        day = run.finish(name, data, result)
        if finished is not None:
            finished(day)
    run.tell_changed()
    return run.result("done")


class _Run:
    """The folder of a run, and the model as it is there."""

    def __init__(
        self,
        model: Graph,
        folder: Path,
        tables: dict[str, Table],
        metrics: Progressive | None,
        initial: Callable[[], NDArray[np.float32]],  # parameters before the first update
        click_share: tuple[float, float] | None,
    ) -> None:
        _check_model(model, click_share)
        request.check_dense_part(model)
        if metrics is not None and not isinstance(metrics, Progressive):
            raise TypeError(f"metrics must be leashed.metrics.progressive(...), got {metrics!r}")
        self._click_share = click_share
        self._changed: list[str] = []  # days that are done, whose files are others since
        self._checked: set[str] = set()
        self._checked_state = False
        self._columns = UNKNOWN
        self._users = None if metrics is None else metrics.gauc
        if self._users is not None and not isinstance(self._users, str):
            raise TypeError("gauc must name a feature of the days; an array is of one data set")
        self._kept = 0 if metrics is None or self._users is None else metrics.kept
        _check_folder(folder)
        self._folder, self._initial = folder, initial
        self.model = model
        self.tables = tables
        self.journal = Journal(folder / _JOURNAL)
        self.state = folder / (_STATE if tables else f"{_STATE}.safetensors")
        # Where the day before has ended; None: it is to be read.
        self._parameters: NDArray[np.float32] | None = None
        self._statistics = np.empty(0, np.float32)
        self._settings: dict[str, Any] = {}

    def look(self, days: Iterable[tuple[str, OneDay]], settings: dict[str, Any]) -> None:
        """Raise what would be raised when the turn of one of them has come; of those that are made
        then nothing is known.
        """
        turn = True
        for name, given in days:
            if callable(given):
                turn = False
                continue
            data = _made(name, given)
            if not isinstance(data, _Empty):
                self.check(name, data, settings, turn=turn)
                turn = False

    def check(
        self,
        name: str,
        data: Stream | ClickDataset | Dataset,
        settings: dict[str, Any],
        *,
        turn: bool = True,
    ) -> None:
        """Raise, once for each day, what training on it would; of the state too where it is its turn,
        but once, since the state is this run's own then.
        """
        if name in self._checked:
            return
        with _of_day(name):
            train_set, _ = sets_of(self.model, data, None, self._columns)
            now = columns_of(self.model, train_set)
            self._columns = self._columns.agreed(now, "data", "of the days before")
        if turn and not self._checked_state:
            request.of(self.model, data, **settings, resume=self.whence(name))
            self._checked_state = True
        else:
            with _of_day(name):
                request.of(self.model, data, **settings)
        self._checked.add(name)

    def begin(self, name: str, data: Stream | ClickDataset | Dataset) -> None:
        """Where the day is not under way: score it, and write down that it is."""
        begun_at, at = self._updates_of(name)
        self._make_folder()
        today, files = self.journal.today, _files_of(data)
        # Whether data in memory are what they were cannot be told.
        others = not files or today is None or today.files != files
        if today is None or today.name != name or (at == begun_at and others):
            today = Today(name, begun_at, *self._look_at(data), files)
            self._judge(today, "it was not trained on")
            self.journal.begin(today)
        elif at == begun_at:
            self._judge(today, "it was not trained on")
        elif self._click_share is not None and not math.isnan(today.click_share):
            self._judge(today, "it is not trained on to its end")

    def note_done(self, name: str, given: OneDay) -> None:
        """A day that is done has been given again."""
        (day,) = (day for day in self.journal.done if day.name == name)
        if isinstance(given, Stream):
            now = _files_of(given)
        else:
            now = tuple(LogFile.at(Path(f.path)) for f in day.files if Path(f.path).is_file())
        if not day.changed and _others(day.files, now):
            self._changed.append(name)

    def tell_changed(self) -> None:
        """Warn of what ``note_done`` has found, once of each day."""
        changed, self._changed = self._changed, []
        if changed:
            self.journal.tell_changed(changed)
            _warn_of_changed(changed)

    def _judge(self, today: Today, ends: str) -> None:
        """ValueError where a day's labels are out of bounds; where there are none, warn of one class."""
        share = today.click_share
        if self._click_share is not None:
            low, high = self._click_share
            if not low < share < high:
                raise ValueError(
                    f"day {today.name}: a share of {share:.4g} of its rows has label 1, click_share takes "
                    f"more than {low:g} and less than {high:g}, so {ends}; look at how its "
                    "labels were joined, leave the day out, or give other bounds"
                )
        elif share in (0.0, 1.0):
            warn(
                f"all rows of day {today.name} have label {share:.0f}, and a model that is trained on "
                "them predicts little else; look at how its labels were joined, and give "
                "click_share=(0, 1) (--click-share 0,1) to have such days refused"
            )

    def whence(self, name: str) -> resuming.From | None:
        """What a day goes on from, whose turn it is; None: from the beginning of all. Whether its
        files are others the journal tells, when it is done.
        """
        begun_at, at = self._updates_of(name)
        if not self._is_there():
            return None
        return (resuming.AnyFiles if at > begun_at else resuming.OtherData)(self.state)

    def _updates_of(self, name: str) -> tuple[int, int]:
        """The updates before a day whose turn it is, and those there are. ValueError where it is
        another's, or the journal and the state are not of one run.
        """
        today, at = self.journal.today, self._updates()
        # Of a day that has made no update nothing is in the state: another may take its place.
        if today is not None and today.name != name and at != today.begun_at:
            raise ValueError(
                f"day {today.name} is under way in {self.journal.path}, and comes before {name}; "
                "give it too"
            )
        if today is not None and at < today.begun_at:
            raise ValueError(
                f"{self.state} has {at:,} updates, but day {today.name} began at "
                f"{today.begun_at:,}; use a whole copy of the folder"
            )
        if today is None and self.journal.done and at != self.journal.done[-1].updates:
            raise ValueError(
                f"{self.state} has {at:,} updates, but {self.journal.path} says "
                f"{self.journal.done[-1].updates:,}; use a whole copy of the folder"
            )
        return (at if today is None else today.begun_at), at

    def pass_over(self, name: str, data: _Empty) -> Day:
        """A day without a row is done."""
        begun_at, at = self._updates_of(name)
        if at > begun_at:
            raise ValueError(
                f"day {name} is under way in {self.journal.path}, and has no row any more; give it "
                "as it was"
            )
        warn(f"day {name} has no row, and is passed over")
        done = self.journal.done
        day = Day(
            name=name,
            data=data.name,
            examples=0,
            bad=data.bad,
            updates=begun_at,
            loss=math.nan,
            yesterday=None,
            progressive=None,
            seconds=0.0,
            eps=math.nan,
            rows=done[-1].rows if done else _rows_in(self.tables),
            files=data.files,
        )
        self._make_folder()
        self.journal.finish(day)
        return day

    def _make_folder(self) -> None:
        """Also without what a process has left that was killed while it wrote."""
        self._folder.mkdir(exist_ok=True)
        for path in self._folder.iterdir():
            if _UNFINISHED.fullmatch(path.name):
                path.unlink(missing_ok=True)

    def finish(self, name: str, data: Stream | ClickDataset | Dataset, result: TrainResult) -> Day:
        """The day that this training ended."""
        updates = result.total_updates if result.best is None else result.best.updates
        # The training itself goes on where a checkpoint cannot be written.
        if self._updates() != updates:
            raise OSError(
                errno.EIO,
                f"day {name} was trained on, but its end could not be written; call again to go on "
                "from the last checkpoint",
                str(self.state),
            )
        today = self.journal.today
        assert today is not None
        reading = result.config.get("reading", {})
        changed = _others(today.files, _files_of(data))
        day = Day(
            name=name,
            data=data.name,
            examples=len(data) if not isinstance(data, Stream) else reading["rows"],
            bad=reading.get("bad", 0) if isinstance(data, Stream) else getattr(data, "skipped", 0),
            updates=updates,
            loss=result.final_loss,
            yesterday=today.yesterday,
            progressive=result.metrics.total[-1]
            if result.metrics is not None and result.metrics.total
            else None,
            seconds=result.elapsed,
            # Nothing was left to train on where only the journal had not got it.
            eps=result.mean_eps if result.examples else math.nan,
            rows=_rows_in(result.tables),
            click_share=today.click_share,
            files=today.files,
            changed=changed,
            refused=refused_share(result.rows),
            observed=result.observed,
            best=result.best,
        )
        self.journal.finish(day)
        self._reached(result)
        if changed:
            _warn_of_changed([name])
        return day

    def result(self, outcome: str, reached: TrainResult | None = None) -> Continual:
        """What has come of it; by a training that did not end its day what it reached, or where it
        crashed the state of before.
        """
        if reached is not None:
            self._reached(reached)
        if (outcome == "crashed" or self._parameters is None) and self._is_there():
            self._load()
        if self._parameters is None and (self.journal.done or outcome == "interrupted"):
            if self.journal.done and self.journal.done[-1].updates:
                raise ValueError(f"{self.state} is not there; use a whole copy of the folder")
            self._parameters = self._initial()
        if self._parameters is None:
            raise ValueError("days must be one at least")
        return Continual(
            outcome,
            tuple(self.journal.done),
            self._parameters,
            self.tables,
            self._statistics,
            self.model,
            self._settings,
        )

    def _is_there(self) -> bool:
        return folders.is_one(self.state) or self.state.is_file()

    def _updates(self) -> int:
        return resuming.updates_in(self.state) if self._is_there() else 0

    def _reached(self, result: TrainResult) -> None:
        self._parameters, self._statistics = result.parameters, result.statistics
        self._settings = result.config

    def _load(self) -> None:
        found = checkpoint.load(self.state, self.model, self.tables or None)
        self._parameters, self._settings = found.parameters, found.run
        self._statistics = np.empty(0, np.float32) if found.statistics is None else found.statistics

    def _look_at(self, data: Stream | ClickDataset | Dataset) -> tuple[Scores | None, float]:
        """How well the day before predicts it, if there was one, and batches told what to normalise
        by; and its share of clicks.
        """
        predicts = self._is_there()
        if predicts and self._parameters is None:
            self._load()
        predicts = predicts and self._statistics.size >= self.model.statistics
        if self.model.heads:
            return self._of_heads(data) if predicts else None, math.nan
        if self.model.target != "click":
            return self._judged(data) if predicts else None, math.nan
        counted = ClickMetrics(self._kept)
        clicks = rows = 0.0
        for part in _parts(data):
            weights = np.ones(len(part)) if part.weights is None else part.weights
            clicks += float(weights.sum(where=part.y == 1, dtype=np.float64))
            rows += float(weights.sum(dtype=np.float64))
            if predicts:
                self._count(counted, part)
        return counted.values() if predicts else None, clicks / rows if rows else math.nan

    def _count(self, counted: ClickMetrics | HeadMetrics, part: ClickDataset | Dataset) -> None:
        """Rows as the day before predicts them."""
        assert self._parameters is not None
        logits = self.model.logits(
            self._parameters, part, self.tables or None, None, self._statistics
        )
        users = None
        if self._users is not None:
            assert isinstance(part, ClickDataset)
            assert isinstance(self._users, str)
            users = part.users_by(self._users)
        counted.add(logits, part.y, part.weights, users)

    def _of_heads(self, data: Stream | ClickDataset | Dataset) -> Values:
        """How well the day before predicts several labels."""
        assert self._parameters is not None
        known = kept(self._parameters)
        counted = HeadMetrics(known.heads or data.heads, self._kept)
        for part in _parts(arrange(known.read(self.model.id_features), data)):
            self._count(counted, part)
        return counted.values()

    def _judged(self, data: Stream | ClickDataset | Dataset) -> Errors | Classified:
        """How well the day before predicts numbers, or classes."""
        assert self._parameters is not None
        errors, rows, right, loss, weight = NumberMetrics(), 0, 0.0, 0.0, 0.0
        for part in _parts(data):
            tables, by = self.tables or None, self._statistics
            if self.model.classes == 0:
                said = self.model.predict(self._parameters, part, tables, by)
                errors.add(said, part.y, part.weights)
                continue
            found = self.model.evaluate(self._parameters, part, tables, None, by)
            rows += len(part)
            right += found.accuracy * len(part)
            loss += found.loss * len(part)
            weight += len(part) if part.weights is None else float(part.weights.sum())
        if self.model.classes == 0:
            return errors.values()
        return Classified(rows, right / rows, loss / weight if weight else math.nan)


def _parts(data: Any) -> Iterable[Any]:
    """A day's rows, so many at once."""
    return data.parts(_SCORED) if isinstance(data, Stream) else (data,)


def _check_model(model: object, click_share: object) -> None:
    if not isinstance(model, Graph):
        raise TypeError(f"model must be a graph of leashed.models, got {type(model).__name__}")
    of_clicks = model.loss == "log_loss" and model.outputs == 1
    if not of_clicks and model.classes and model.loss != "softmax":
        raise ValueError(
            f"model must have one output and the loss log_loss, or be of numbers or of classes with the "
            f"loss softmax, got {model.name} of {model.outputs} outputs with the loss {model.loss}"
        )
    if click_share is not None and not of_clicks:
        raise ValueError(f"click_share goes with clicks, which {model.name} does not predict")


def _shaped(
    model: Graph, days: Iterable[OneDay] | Mapping[str, OneDay], folder: Path
) -> tuple[Graph, Iterable[OneDay] | Mapping[str, OneDay]]:
    """A model whose shape follows from data, for those of the run in the folder or else of the first
    day, where that is no function; and the days.
    """
    if not isinstance(model, Graph) or model.made_by is None:
        return model, days
    with suppress(OSError, ValueError):  # of which the run tells
        saved = checkpoint.read_model(folder).model
        if isinstance(saved, Graph):
            rows = dict(zip(saved.id_features, saved.embeddings, strict=True))
            bounds = [rows[f].table.rows for f in sorted(rows)]
            target = saved.target if saved.heads else saved.classes
            assert isinstance(target, (int, tuple))
            made = model.made_by(saved.features, bounds, target, saved.histories)
            loss = made.loss if saved.heads else model.loss
            return replace(made, name=model.name, loss=loss, l2=model.l2), days
    if isinstance(days, (Stream, ClickDataset, Dataset, str)) or not isinstance(days, Iterable):
        return model, days  # which is refused
    rest = iter(days.values() if isinstance(days, Mapping) else days)
    first = next(rest, None)
    if not isinstance(days, (Mapping, Sequence)):
        days = () if first is None else chain([first], rest)
    return model if callable(first) else model.shaped(first), days


def _rows_in(tables: Mapping[str, Table]) -> int:
    return sum(table.statistics()["rows"] for table in tables.values())


def _check_folder(folder: Path) -> None:
    """OSError where it could not be a run's: FileExistsError where something else lies in it."""
    checks.writable_folder(folder, "is a file; name a folder")
    if folder.exists() and not (folder / _JOURNAL).exists():
        others = [p.name for p in folder.iterdir() if not _UNFINISHED.fullmatch(p.name)]
        if others:
            raise FileExistsError(
                errno.EEXIST,
                f"has {others[0]} in it and no {_JOURNAL}; name a new one",
                str(folder),
            )


def _checked_until(until: Until | None) -> Until:
    """Of each day. TypeError, ValueError where it is none."""
    if until is None:
        return Until(epochs=1)
    if not isinstance(until, Until):
        raise TypeError(f"until must be leashed.until(...), got {until!r}")
    for item in fields(Until):
        if item.name not in _OF_DAYS and getattr(until, item.name) is not None:
            raise ValueError(
                f"until.{item.name} is not for days, which are counted in passes; give epochs, patience "
                "and metric"
            )
    return until


def _checked_share(given: tuple[float, float] | None) -> tuple[float, float] | None:
    if given is None:
        return None
    if not isinstance(given, (tuple, list)) or len(given) != 2:
        raise TypeError(f"click_share must be two shares, such as (0, 1), got {given!r}")
    low, high = (checks.real("click_share", share) for share in given)
    if not 0 <= low < high <= 1:
        raise ValueError(f"click_share must rise, from 0 to 1 at most, got ({low:g}, {high:g})")
    return low, high


def _files_of(data: Stream | ClickDataset | Dataset) -> tuple[LogFile, ...]:
    return log_files(data.files) if isinstance(data, Stream) else ()


def _others(then: Sequence[LogFile], now: Sequence[LogFile]) -> bool:
    """Whether there is a file now that was not there; one that is gone is nothing."""
    known = {file.key for file in then}
    return bool(then) and any(file.key not in known for file in now)


def _warn_of_changed(days: Sequence[str]) -> None:
    more = f" and {len(days) - 1} more" if len(days) > 1 else ""
    warn(
        f"the files of day {days[0]}{more} have been written to since they were read, and rows that have "
        "come are not trained on; give these as a day of their own, or train anew in another folder, and "
        "give a day when its files are whole"
    )


def _not_done(
    days: Iterable[OneDay] | Mapping[str, OneDay], run: _Run
) -> Iterator[tuple[str, OneDay]]:
    """Those to come, by name, beginning with the one under way."""
    if isinstance(days, (Stream, ClickDataset, Dataset, str)) or not isinstance(days, Iterable):
        raise TypeError(
            f"days must be several streams or data sets, in a list or by name, got "
            f"{type(days).__name__}; one of them goes to leashed.train"
        )
    named = days.items() if isinstance(days, Mapping) else ((str(i), d) for i, d in enumerate(days))
    done = {day.name for day in run.journal.done}
    for name, day in named:
        if not isinstance(name, str):
            raise TypeError(f"days must be named by str, got {name!r}")
        if name in done:
            run.note_done(name, day)
        else:
            yield name, day


class _Empty(NamedTuple):
    """Data of a day without a row: what it is called, lines that are no rows, and its files."""

    name: str
    bad: int
    files: tuple[LogFile, ...] = ()


def _made(name: str, given: OneDay) -> Stream | ClickDataset | Dataset | _Empty:
    """A day whose turn it is, of a stream its first row read."""
    try:
        made: Any = given() if callable(given) else given
    except _core.NoRows:
        return _Empty(name, 0)
    if not isinstance(made, (Stream, ClickDataset, Dataset)):
        table = hasattr(made, "__arrow_c_stream__")
        raise TypeError(
            f"days must be streams or data sets, or make such; day {name} is {type(made).__name__}"
            + ("; give leashed.stream.table(day, columns)" if table else "")
        )
    if isinstance(made, Stream) and not made.repeatable:
        raise ValueError(
            f"day {name}, {made.name}, can be read once, but a day is read twice, to score it and to "
            "train on it; give files"
        )
    if isinstance(made, Stream):
        files = _files_of(made)
        parts = made.parts(1)
        try:
            next(parts)
        except _core.NoRows:
            return _Empty(made.name, parts.counts.bad, files)
    return made


@contextmanager
def _of_day(name: str) -> Iterator[None]:
    """Errors tell which day they are of."""
    try:
        yield
    except TypeError as error:
        raise TypeError(f"day {name}: {error}") from error
    except ValueError as error:
        raise ValueError(f"day {name}: {error}") from error
