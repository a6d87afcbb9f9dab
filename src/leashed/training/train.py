"""Training a model on every core."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from numpy.typing import ArrayLike

from leashed.disciplines import Discipline
from leashed.files import resuming
from leashed.modes import Mode
from leashed.rules import Rule
from leashed.staleness import Policy
from leashed.stopping import Until
from leashed.training import request
from leashed.training.options import Checkpoint, Init, Observe
from leashed.training.outcome import Progress, progress_of, result_of, told_by  # noqa: F401
from leashed.training.recordings import AnyModel
from leashed.training.request import (  # noqa: F401
    check_dense_part,
    check_discipline,
    tables_for,
)
from leashed.training.result import TrainResult
from leashed.training.run import mean_loss, run, train_passes  # noqa: F401
from leashed.training.sets import (  # noqa: F401
    AnyData,
    batches_of,
    head_of,
    sets_of,
    source_of,
)

if TYPE_CHECKING:
    from leashed.sync import Cluster

# (What is imported and not used here lay here before.)
__all__ = ["Progress", "train"]


def train(
    model: AnyModel,
    data: AnyData,
    *,
    until: Until | None = None,
    discipline: Discipline | None = None,
    mode: Mode | None = None,
    rule: Rule | None = None,
    staleness: Policy | None = None,
    threads: int | str | None = None,
    batch_size: int | None = None,
    seed: int = 0,
    init: str | ArrayLike | Init = "he",
    validation: Any = None,
    observe: Observe | Callable[[Progress], object] | None = None,
    checkpoint: str | os.PathLike[str] | resuming.Kept | Checkpoint | None = None,
    resume: resuming.Resume | None = None,
    cluster: Cluster | None = None,
    **more: Any,
) -> TrainResult:
    """Train ``model`` on ``data`` with native threads that never take the GIL.

        data = lsh.datasets.synthetic_digits()
        result = lsh.train(lsh.models.mlp(784, [128], 10), data, until=lsh.until(epochs=5))
        print(result.final_loss, result.validation_accuracy[-1])

        result = lsh.train(lsh.models.dlrm(), frame, label="clicked")    # a DataFrame, or "logs/*.parquet"

    Every batch is a function of ``seed`` and its number alone, so one thread gives the same bits
    under every discipline. Ctrl-C stops all threads and returns the state reached, with
    ``reason == "interrupted"``. What each argument means beside each of the others is in
    docs/training.md, what does not go together in docs/combinations.md.

    Args:
        model: from :mod:`leashed.models`; ``models.external`` takes a gradient of your own. One
            that reads tables takes a ``ClickDataset`` or a ``ClickSplit``.
        data: the training set. A ``Split`` brings its test set as ``validation``; a pair of arrays
            goes through ``Dataset.from_arrays``, of a matrix in CSR form and an array through
            ``SparseDataset.from_csr``; for ``models.external`` x and y may be any numbers. A
            ``leashed.stream.Stream`` or ``SparseStream`` is read while it is trained on. A DataFrame, or
            what else has ``__arrow_c_stream__``, or the path of Parquet or CSV files goes through
            ``stream.table``, with ``label=`` or ``columns=``: into memory, files for models of clicks as
            a stream.
        until: ``leashed.until(...)``: when to stop. Default of models of clicks, graphs over tables
            with one output and the loss ``log_loss``: after one epoch. Other models are to be told.
        discipline: how threads share the parameters, of ``leashed.disciplines``. Default:
            ``Leashed()``.
        mode: of ``leashed.modes``, in place of a discipline: the threads are the workers of a parameter
            server, or peers, and the mode says who waits for whom and what becomes of a gradient
            (docs/modes.md). ``result.mode`` has what it decided.
        rule: the update rule, from ``leashed.rules``. Default: ``SGD(lr=0.05)``, of models of clicks
            ``Adagrad(lr=0.02)``.
        staleness: what a gradient is multiplied by for its staleness, from ``leashed.staleness``.
            Default: ``none()``. With ``Sequential`` and ``Synchronous`` staleness is always 0.
        threads: worker threads. Default: the processors this process may use (1 with
            ``Sequential``). ``"auto"``: as many as train fastest here, which is tried first, on copies;
            the run has the same bits as with the number, which ``result.config["threads"]`` tells.
        batch_size: examples per gradient, at most all there are; of a stream fewer than 2³¹. Default:
            that of the run to ``resume``; else 64, or all examples of data in memory where they are
            fewer, but of a model of clicks that is not told ``until`` either, of data in memory, so
            few that the epoch has 2,000 batches (at least 1; 64 where it has ``BatchNorm`` or
            ``DataNorm``). ``result.config["batch_size"]`` tells.
        seed: of the initial parameters and of the batches, from 0.
        init: ``"he"``, ``"glorot"``, ``"normal"`` (see ``Model.init``) or parameters, float32 [d]; of a
            model that reads tables ``lsh.Init(parameters, tables=...)``, with the tables that are
            trained where they are. Default: He's, and new tables with ``rule``, ``staleness`` and
            ``seed``.
        validation: a data set, or a pair of arrays as of ``data``, evaluated for accuracy, without
            weights, beside the training set, and where the model gives one logit for two labels for
            AUC and normalised entropy.
        observe: a function that is called with a ``Progress`` after every evaluation, or
            ``lsh.Observe(progress, every=..., metrics=..., record=...)``: how often in seconds,
            progressive validation, and a record for ``leashed.replay``.
        checkpoint: a file, or of a model that reads tables a folder, that takes the state at the end of
            the run; ``lsh.Checkpoint(path, every=..., updates=..., incremental=...)`` while it goes on.
            Written beside the old one, flushed, renamed; a RuntimeWarning where that fails, or
            parameters are not finite.
        resume: such a file or folder to go on from, with the same model, data, rule, staleness policy,
            seed and batch size, and the same mode, if any. One thread gives the same bits as without
            the interruption. ``init`` is not used, but for tables. Stop rules count updates and epochs
            from the run's beginning, seconds from now, and so do the result's ``updates``; everything
            else in it is from now.
        cluster: the run in which this process is one of several trainers, from
            ``leashed.cluster.join(sync=...)``, which says how parameters are kept in sync
            (docs/cluster.md). Its master hands out the batches of ``until.epochs``, each to one trainer;
            the other stop rules are this trainer's own.
        **more: ``label``, the column of a table that is to be predicted, or ``columns``, what each of its
            columns becomes, as of ``stream.table``. And arguments of before that are a part of these by
            now, with a DeprecationWarning: ``tables``, ``term``, ``progress``, ``evaluate_every``,
            ``metrics``, ``record``, ``checkpoint_every``, ``checkpoint_updates``, ``incremental``, ``sync``.

    Returns:
        A ``TrainResult``; in a cluster, of this trainer. One ``RuntimeWarning`` with the remedy tells
        where it crashed, or where the loss of a new model began above ten times that of chance
        (with the losses ``"softmax"``, ``"log_loss"`` and ``"hinge"``); another one where a model
        reads as a sequence a feature that has a name and one id a row.

    Raises:
        TypeError, ValueError: an argument is wrong, the file to resume from is damaged, of a newer
            version or of another run, or what is to go together has other columns; the message names
            it. No thread has started.
        OSError: a checkpoint cannot be read, or could not be written; or a record cannot; or the
            cluster's master cannot be reached.
    """
    return run(
        request.of(
            model,
            data,
            until=until,
            discipline=discipline,
            mode=mode,
            rule=rule,
            staleness=staleness,
            threads=threads,
            batch_size=batch_size,
            seed=seed,
            init=init,
            validation=validation,
            observe=observe,
            checkpoint=checkpoint,
            resume=resume,
            cluster=cluster,
            old=more,
        )
    )
