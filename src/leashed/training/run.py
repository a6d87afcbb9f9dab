"""What was asked for is carried out by threads."""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from leashed import _core
from leashed import staleness as policies
from leashed.base.warning import warn
from leashed.datasets import Dataset, SparseDataset
from leashed.datasets.moments import Moments
from leashed.disciplines import Discipline, Synchronous
from leashed.files import resuming
from leashed.models._columns import keep
from leashed.models._running import running
from leashed.models.network import Model
from leashed.rules import Rule
from leashed.training import recordings
from leashed.training.best import Keeper
from leashed.training.doubts import warn_of_end, warn_of_sequences, warn_of_unknown
from leashed.training.outcome import counted, result_of, told_by
from leashed.training.request import ThreadRequest, threads_of
from leashed.training.result import TrainResult
from leashed.training.rows_read import RowsRead
from leashed.training.sets import batches_of, head_of, source_of, training_of, warn_of_bad
from leashed.training.threads import candidates, fastest

if TYPE_CHECKING:
    from leashed.sync import Session

__all__ = ["mean_loss", "run", "train_passes"]

PROBE_SECONDS = 0.08
PROBE_ROWS = 8192


def run(asked: ThreadRequest) -> TrainResult:
    """Trains until it ends."""
    model, streamed, told = asked.model, asked.streamed, asked.told
    resumption, refusals = asked.begun.training, asked.refusals()
    if resumption is None:
        warn_of_sequences(model, asked.train_set)
    if streamed is None:
        warn_of_unknown(asked.train_set, asked.columns.heads)
    else:
        first = 0 if resumption is None else resumption.batches * asked.batch_size
        if streamed.sent is not None:
            streamed.sent.asked_by(asked.batch_size, asked.workers)
        streamed.open(asked.until.epochs, asked.workers, first)
    examples = head_of(asked.train_set)
    validating = None if asked.test_set is None else head_of(asked.test_set)
    with ExitStack() as stack:
        if streamed is not None:
            stack.callback(streamed.end)
        workers, interrupted = asked.workers, False
        try:
            workers = _found(asked) if asked.auto else workers
            asked.wait()
        except KeyboardInterrupt:
            if asked.cluster is not None:
                raise
            interrupted, validating = True, None  # what it would be standardised by is not known
            if streamed is not None and (lost := streamed.lost()):
                warn(f"{lost} rows of {streamed.name} were read, and none was trained on")
        if asked.auto:
            told["threads"] = workers
        source = asked.source(workers, None if asked.left else asked.begun.statistics)
        checkpointer = _checkpointer(asked, stack)
        rules = asked.rules
        session: Session | None = None
        if asked.cluster is not None:
            total = asked.batches if asked.mode is not None else rules.pop("batches", None)
            session = _session(asked, stack, total, workers, source)
            if asked.left is not None and not session.goes_on:
                resumption = None
                told.pop("resumed_at", None)
            elif asked.left is not None:
                source = asked.source(workers, asked.begun.statistics)
            if isinstance(checkpointer, resuming.Checkpointer):
                checkpointer.position = session.follow()
        keeper = None
        if asked.until.patience is not None and not interrupted:
            keeper = Keeper(
                asked.until,
                model,
                told,
                asked.tables,
                checkpointer,
                stack,
                _moments(asked),
                asked.columns.heads,
            )
            checkpointer = None
        kept = asked.checkpoint
        if asked.begun.folder is not None:
            incremental = kept is not None and kept.incremental
            asked.begun.folder.load(asked.tables, incremental=incremental)
        training = asked.training(
            source,
            examples,
            workers,
            validating,
            record=_recording(asked, resumption),
            metrics=asked.counting,
            observers=asked.observers,
        )
        every = None if kept is None else kept.every
        cutting = None if session is None else _Cutting(asked, session, checkpointer)
        watch = _core.Watch(
            until=rules,
            milestones=asked.until.milestones,
            evaluate_every=asked.observe.every or 0.0,
            progress=_interrupt if interrupted else stack.enter_context(asked.report(refusals)),
            checkpoint=cutting or checkpointer,
            wanted=None if session is None or asked.mode is not None else lambda: session.wants,
            checkpoint_every=math.inf if every is None else every,
            checkpoint_updates=(kept and kept.updates) or 0,
            saving=cutting.look if cutting else getattr(checkpointer, "look", None),
            judge=None if keeper is None else keeper.judge,
            keep=None if keeper is None else keeper.keep,
        )
        if asked.mode is not None:
            led = getattr(session, "mode", None)
            commands = asked.mode.commands() if led is None else []  # which are its server's
            outcome = _core.train_mode(training, watch, commands, resumption, led)
        else:
            outcome = _core.train(
                training,
                watch,
                resumption,
                leases=None if session is None else session.leases,
                synchronisation=None if session is None else session.native,
                rows=None if session is None else session.rows,
            )
        if isinstance(checkpointer, resuming.Checkpointer) and outcome["outcome"] != "crashed":
            checkpointer.last_update = outcome["updates"]
        if session is not None:
            told["cluster"] = session.finish(
                keep(outcome["parameters"], asked.columns), counted(outcome), running(source)
            )
            if session.cut_short is not None:
                told["cluster_ended"] = session.cut_short
                told["cluster_lost"] = session.lost
        refusals.look()
        statistics, moments = running(source), None
        if keeper is not None and keeper.best is not None:
            statistics, moments = keeper.restore(outcome), keeper.moments
        if asked.tables:
            told["tables"] = told_by(asked.tables)
    output = None if session is None else session.output
    if output is not None and output.folder.exists():  # else it was temporary
        told["cluster_output"] = str(output.folder)
    told["sparse_updates"] = outcome["in_place"]
    if streamed is not None:
        told["reading"] = streamed.counts.config()
        if asked.says_bad:
            warn_of_bad(streamed.name, streamed.counts)
    if failure := outcome["recording_failure"]:
        warn(f"the record in {asked.observe.record} ends before the run: {failure}")
    scored = asked.counting is not None
    result = result_of(
        outcome,
        asked.mean_batch,
        told,
        asked.tables if output is None else output.tables,
        statistics,
        scored,
        streamed,
        model,
        None if keeper is None else keeper.best,
        moments,
    )
    if output is not None and asked.mode is not None:
        # (Others may have trained on since this one ended: beside tables of the end are parameters of the end.)
        result = replace(result, parameters=output.parameters, rows=output.rows)
    return warn_of_end(result, model, asked.train_set, examples[2])


def _found(asked: ThreadRequest) -> int:
    """As many threads as train fastest here."""

    def eps(workers: int) -> float:
        """Of a short run on a part of the data."""
        part = head_of(asked.train_set, max(asked.batch_size, PROBE_ROWS))
        if part[0] is None:
            return 0.0
        trial = asked.training(
            asked.source(workers),
            part,
            workers,
            tables=[table.small().native for table in asked.tables.values()],
        )
        probe = _core.train(trial, _core.Watch(until={"seconds": PROBE_SECONDS}))
        if probe["reason"] == "interrupted":
            raise KeyboardInterrupt
        return float(probe["gradients"] / probe["elapsed"])

    return fastest(candidates(asked.workers), eps)


def _interrupt(*_: Any) -> None:
    raise KeyboardInterrupt


def _checkpointer(
    asked: ThreadRequest, stack: ExitStack
) -> resuming.Kept | resuming.Checkpointer | None:
    kept = asked.checkpoint
    if kept is None or kept.path is None:
        return None
    if isinstance(kept.path, resuming.Kept):
        kept.path.batch_size, kept.path.numbers = asked.full_size, asked.numbers
        return kept.path
    # By a mode all wait anyway, and rows fit to what its server holds.
    fits = bool(asked.tables) or asked.streamed is not None
    paused = kept.updates is not None or (asked.mode is not None and fits)
    paused |= asked.until.patience is not None
    return stack.enter_context(
        resuming.Checkpointer(
            kept.path,
            asked.model,
            asked.told,
            asked.tables,
            paused=paused,
            incremental=kept.incremental,
            begun=asked.begun.training,
            moments=_moments(asked),
        )
    )


def _moments(asked: ThreadRequest) -> Callable[[int], Moments | None] | None:
    """What numbers of a stream come to when so many batches have been used; by a mode, whose batches
    may be of other numbers of rows, at the moment, while all wait.
    """
    if (streamed := asked.streamed) is None:
        return None
    if asked.mode is not None:
        return lambda _: streamed.moments()
    return lambda batches: streamed.moments(batches * asked.batch_size)


def _session(
    asked: ThreadRequest,
    stack: ExitStack,
    total: float | None,
    workers: int,
    source: _core.GradientSource,
) -> Session:
    assert asked.cluster is not None
    rows = None
    sent: dict[str, Any] = {}
    if asked.streamed is not None:
        sent["sent"] = asked.streamed.sent
    if asked.mode is not None:
        sent["led"] = asked.led(source)
    tables = getattr(asked.model, "tables", ())
    if getattr(asked.cluster, "embedding_servers", 0) or (asked.mode is not None and tables):
        rows = RowsRead(
            tables,
            source.features_of_tables,
            asked.rule,
            asked.staleness,
            asked.seed,
            getattr(asked.model, "poolings", ()),
        )
    return stack.enter_context(
        asked.cluster.session(
            asked.model.dimension,
            asked.sync,
            total=None if total is None else int(total),
            batch_size=asked.batch_size,
            workers=workers,
            lockstep=isinstance(asked.discipline, Synchronous),
            resumed=None if asked.left else asked.begun.position,
            left=asked.left,
            trained=(asked.model, getattr(asked.train_set, "dataset", asked.train_set), asked.seed),
            rows=rows,
            **sent,
        )
    )


class _Cutting:
    """Takes states, also for a checkpoint of the whole run: those that were copied while one was wanted."""

    def __init__(
        self,
        asked: ThreadRequest,
        session: Session,
        checkpointer: resuming.Kept | resuming.Checkpointer | None,
    ) -> None:
        self._asked, self._session, self._checkpointer = asked, session, checkpointer
        self._wanted = False

    def look(self) -> None:
        """To be called before a state is copied."""
        self._wanted = self._session.wants
        if isinstance(self._checkpointer, resuming.Checkpointer):
            self._checkpointer.look()

    def __call__(self, reached: _core.Resumption) -> None:
        if self._wanted:
            asked = self._asked
            self._session.save(partial(resuming.put, asked.model, reached, asked.told))
        if self._checkpointer is not None:
            self._checkpointer(reached)


def _recording(
    asked: ThreadRequest, resumption: _core.Resumption | None
) -> tuple[str, str, NDArray[np.float32]] | None:
    if asked.observe.record is None or asked.cluster is not None:
        return None  # or a policy server writes it
    return recordings.recording(
        asked.observe.record,
        asked.model,
        asked.train_set,
        asked.choices,
        asked.told,
        asked.theta,
        resumption,
        tables=asked.tables,
        mode=asked.mode is not None,
    )


def train_passes(
    model: Model,
    data: Dataset | SparseDataset,
    theta: NDArray[np.float32],
    run: resuming.Kept,
    *,
    epochs: int,
    passes: int,
    discipline: Discipline,
    rule: Rule,
    threads: int,
    batch_size: int,
    seed: int,
) -> dict[str, Any]:
    """Train as ``train`` does until so many epochs from the run's beginning, without evaluations
    and a report: for many short calls in a row, each going on where ``run`` is, or from ``theta``.
    Each epoch has each row once: where ``batch_size`` does not divide their number, its batches are
    smaller, on sparse rows the last one, else all of them, to sizes that differ by a row at most.

    Returns what the core does, with ``pass_losses``, float64 [passes]: the mean losses of the passes
    over the data that this call makes, as their gradients found them. That of a dense model includes
    its penalty.

    Raises:
        TypeError, ValueError: the number of threads is wrong. The rest is not checked.
    """
    threads = threads_of(threads, discipline)
    batches = batches_of(data, batch_size, epochs)
    training = training_of(
        source_of(model, data),
        theta,
        head_of(data),
        discipline=discipline.choice(),
        rule=rule.choice(),
        staleness=policies.none().choice(),
        workers=threads,
        batch_size=batch_size,
        seed=seed,
    )
    watch = _core.Watch(until={"batches": float(batches)}, checkpoint=run)
    outcome: dict[str, Any] = _core.train(training, watch, run.reached, passes)
    return outcome


def mean_loss(
    model: Model, data: Dataset | SparseDataset, theta: NDArray[np.float32], threads: int
) -> float:
    """Over a data set that fits the model, on at most so many threads."""
    x, y, weights = head_of(data)
    if isinstance(data, SparseDataset):
        return model.sparse.evaluate(theta, x, y, weights, threads)[0]
    return model.native.evaluate(theta, x, y, weights, threads)[0]
