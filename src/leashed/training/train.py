"""Training a model on every core under one discipline."""

from __future__ import annotations

import functools
import inspect
import math
import os
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, ParamSpec, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from leashed import _core
from leashed import staleness as policies
from leashed import stream as streams
from leashed.base import checks
from leashed.base.choice import Setting
from leashed.base.machine import cores, cpu_model
from leashed.base.warning import warn
from leashed.datasets import ClickDataset, ClickSplit, Dataset, SparseDataset, Split
from leashed.datasets.columns import Columns
from leashed.datasets.sparse import is_csr
from leashed.disciplines import Discipline, Leashed, Sequential, Synchronous
from leashed.files import resuming
from leashed.metrics import Progressive, Scored, Values, users_of
from leashed.models._columns import check_columns, columns_of
from leashed.models._fits import check_fits, check_labels
from leashed.models._reads import check_stream
from leashed.models._running import Running, check_batch, running, tracked
from leashed.models.external import External, Samples
from leashed.models.factorisation import FactorisationMachine
from leashed.models.graphs import Graph
from leashed.models.network import Model
from leashed.models.tables import Table, refusals_of
from leashed.models.tables import check as check_tables
from leashed.models.tables import of as new_tables
from leashed.modes import Mode, ModeCounts, check_batches
from leashed.rules import Rule, check_rule
from leashed.staleness import Policy
from leashed.stopping import Until, batches_in
from leashed.sync import Cluster, Session, Synchroniser
from leashed.sync import check as check_synchroniser
from leashed.training import abilities, defaults, recordings
from leashed.training.days import log_files
from leashed.training.doubts import warn_of_end, warn_of_sequences
from leashed.training.histogram import Histogram, TimeDistribution
from leashed.training.recordings import AnyModel
from leashed.training.result import QUALITY, TrainResult
from leashed.training.spelled import observers_of
from leashed.training.threads import candidates, fastest

__all__ = ["Progress", "train"]

MAX_THREADS = 1024
MAX_SEED = 2**63 - 1
PROBE_SECONDS = 0.08
PROBE_ROWS = 8192

P = ParamSpec("P")


@dataclass(frozen=True)
class Progress:
    """The state of a run at one evaluation by the monitor.

    Attributes:
        seconds: since the threads started.
        updates: updates published.
        loss: mean loss over the training set; of a stream as ``TrainResult.loss`` has it.
        accuracy: on the training set.
        validation_accuracy: on the validation set; NaN without one.
        eps: examples per second since the start.
        mean_staleness: of the updates so far.
        initial_loss: the loss before training.
        auc: of the training set; NaN unless the model gives one logit for two labels.
        normalised_entropy: likewise.
        validation_auc: of the validation set; NaN likewise.
        validation_normalised_entropy: likewise.
        window: of the rows counted by ``train(metrics=)`` since the evaluation before; None where
            there is none.
        total: of all rows counted so far; likewise.
        observed: what those have found by then that ``train(counting=)`` names, by name.
    """

    seconds: float
    updates: int
    loss: float
    accuracy: float
    validation_accuracy: float
    eps: float
    mean_staleness: float
    initial_loss: float
    auc: float = math.nan
    normalised_entropy: float = math.nan
    validation_auc: float = math.nan
    validation_normalised_entropy: float = math.nan
    window: Values | None = None
    total: Values | None = None
    observed: dict[str, float] = field(default_factory=dict)


AnyStream: TypeAlias = "streams.Stream | streams.SparseStream"
_Head: TypeAlias = "tuple[Any, NDArray[Any], NDArray[np.float32] | None]"
_Data: TypeAlias = "Dataset | SparseDataset | Samples | _Clicks | Streamed"


def _whole(
    training: Callable[P, Generator[None, None, TrainResult]],
) -> Callable[P, TrainResult]:
    """Both steps of a training: what can be refused, which ends in a ``yield``, and the run."""

    @functools.wraps(training)
    def both(*given: P.args, **named: P.kwargs) -> TrainResult:
        steps = training(*given, **named)
        while True:
            try:
                next(steps)
            except StopIteration as end:
                result: TrainResult = end.value
                return result

    signature = inspect.signature(training).replace(return_annotation="TrainResult")
    both.__signature__ = signature  # type: ignore[attr-defined]
    return both


def check_training(*given: Any, **named: Any) -> None:
    """Raise what ``train`` would of these arguments before it starts a thread, and start none."""
    next(inspect.unwrap(train)(*given, **named))


@_whole
def train(
    model: AnyModel,
    data: Dataset
    | SparseDataset
    | ClickDataset
    | Samples
    | Split
    | ClickSplit
    | streams.Stream
    | streams.SparseStream
    | tuple[Any, ArrayLike],
    *,
    until: Until | None = None,
    discipline: Discipline | None = None,
    mode: Mode | None = None,
    rule: Rule | None = None,
    staleness: Policy | None = None,
    threads: int | str | None = None,
    batch_size: int | None = None,
    seed: int = 0,
    init: str | ArrayLike = "he",
    validation: Dataset
    | SparseDataset
    | ClickDataset
    | Samples
    | tuple[ArrayLike, ArrayLike]
    | None = None,
    tables: Mapping[str, Table] | None = None,
    evaluate_every: float | None = None,
    progress: Callable[[Progress], object] | None = None,
    checkpoint: str | os.PathLike[str] | resuming.Kept | None = None,
    checkpoint_every: float | None = None,
    checkpoint_updates: int | None = None,
    incremental: bool = False,
    resume: str | os.PathLike[str] | resuming.Kept | resuming.From | None = None,
    sync: Synchroniser | None = None,
    cluster: Cluster | None = None,
    record: str | os.PathLike[str] | None = None,
    metrics: Progressive | None = None,
    counting: Sequence[str] = (),
    term: float | None = None,
) -> Generator[None, None, TrainResult]:
    """Train ``model`` on ``data`` with native threads that never take the GIL.

    Every batch is a function of ``seed`` and its number alone, so one thread gives the same bits
    under every discipline. Ctrl-C stops all threads and returns the state reached, with
    ``reason == "interrupted"``.

    Args:
        model: from :mod:`leashed.models`; ``models.external`` takes a gradient of your own. One
            that reads tables takes a ``ClickDataset``, or a ``ClickSplit``.
        data: the training set; a ``Split`` brings its test set as ``validation``; a pair of arrays
            goes through ``Dataset.from_arrays``, of a matrix in CSR form and an array through
            ``SparseDataset.from_csr``. For ``models.external`` x and y may be any numbers.

            On sparse data ``Sequential``, ``Locked`` and ``Hogwild`` touch only the columns that
            the rows of a batch have, where the rule is ``SGD`` or ``Adagrad`` without weight decay
            (give the model ``l2``; with Adagrad not that either), clipping or SWAP, and there is no
            staleness policy. ``Hogwild()`` then gives every thread a copy that it merges with the
            shared vector now and then, the columns that occur most often the most often;
            ``Hogwild(copy=False)`` writes straight to the shared vector, as the original does. The
            penalty l2 reaches a column a little later than the update it belongs to. Everything
            else, such as ``Leashed``, whose vectors are published whole, passes over all
            parameters for every batch: choose a large ``batch_size``.
            ``result.config["sparse_updates"]`` tells which it was.

            A ``leashed.stream.Stream`` is read while it is trained on: batch k has its rows k·B to
            (k+1)·B − 1, the last batch what is left (``Synchronous`` makes whole steps, and leaves
            what is no whole one). ``until.epochs`` is a whole number of passes; without it files are
            read again and again until another rule holds, and what can be read once ends the run.
            Nothing can be evaluated over what is gone: ``loss`` is the mean over the rows of the pass
            so far, each as its batch was found before it was trained on, in the end over all of them
            (of several passes over the last one's; while that is under way the one before stands for
            the rest of it). A batch in which a pass ends counts for both, for each by how many of its
            rows are that pass's, with the mean over all of them. Where windows of ``shuffle=`` reach
            over the end of a pass, its rows are as many as a pass has, whichever they are. Accuracy and
            AUC are those of ``validation`` alone, and ``until.loss``, ``loss_fraction`` and
            ``divergence``, and ``cluster``, are not for streams. A run that is resumed reads and passes
            over what it has used, and ``loss`` is of the rows that it then trains on: of a pass that it
            goes on with in the middle, of those from there on.
            ``result.config["reading"]`` is what was read, as ``stream.ReadCounts`` has it, and
            ``result.breakdown["data"]`` the seconds that threads waited for rows.

            So is a ``stream.SparseStream``, by linear models and factorisation machines, whose
            columns are to be as many as the model's features. Updates are in place where they would
            be in memory; ``Hogwild()`` writes straight to the shared vector then.
        until: ``leashed.until(...)``: when to stop. Default of models of clicks, graphs over tables
            with one output and the loss ``log_loss``: after one epoch. Other models are to be told.
        discipline: how threads share the parameters. Default: ``Leashed()``.
        mode: of ``leashed.modes``, in place of a discipline: the threads are the workers of a parameter
            server, or peers, and the mode says who waits for whom and what becomes of a gradient;
            the parameter server is a lock that who pushes carries it out under. ``result.mode``
            has what it decided; ``result.total_updates`` counts the server's updates, of peers
            those of all models. Of peers and of ``Ensemble`` the mean of the models is evaluated
            and returned. The rows of tables are copied for a batch when it is granted, and updated
            with its push; modes whose workers send models are not for them. Of sparse data a push
            is a gradient of all parameters: choose a large ``batch_size``. A ``checkpoint`` has all
            that the server holds and who has which batch, of one moment at which all workers wait,
            and so stops them for a moment; a run that goes on from it has the same mode, ``term`` and
            number of threads. ``sync``, ``cluster`` and ``threads="auto"`` are not for runs with a
            mode, a ``record`` not for one that goes on from a checkpoint, stage-aware staleness
            policies not where workers send models or mix (``SHAT``).
        rule: the update rule, from ``leashed.rules``. Default: ``SGD(lr=0.05)``, of models of clicks
            ``Adagrad(lr=0.02)``.
        staleness: what a gradient is multiplied by for its staleness, from ``leashed.staleness``.
            Default: ``none()``. With ``Sequential`` and ``Synchronous`` staleness is always 0.
        threads: worker threads. Default: the processors this process may use (1 with
            ``Sequential``). ``"auto"``: as many as train fastest here, found by training some tenths
            of a second with 1, 2, 4, … threads first, on a part of the data, with parameters and
            small tables that are thrown away; of a stream on copies of the rows that come first
            (8,192, or a batch). The run has the same bits as with the number, which
            ``result.config["threads"]`` tells. Ctrl-C meanwhile raises ``KeyboardInterrupt``: there is
            no state yet, and of what can be read once its message says how many rows are gone.
        batch_size: examples per gradient, at most all there are; of a stream fewer than 2³¹. Default:
            that of the run to ``resume``; else 64, or all examples of data in memory where they are
            fewer, but of a model of clicks that is not told ``until`` either, of data in memory, so
            few that the epoch has 2,000 batches (at least 1; 64 where it has ``BatchNorm`` or
            ``DataNorm``). ``result.config["batch_size"]`` tells.
        seed: of the initial parameters and of the batches.
        init: ``"he"``, ``"glorot"``, ``"normal"`` (see ``Model.init``) or parameters, float32 [d];
            of a model that reads tables these go with ``tables``.
        validation: evaluated for accuracy, without weights, beside the training set, and where the
            model gives one logit for two labels for AUC and normalised entropy.
        tables: those that the model reads, by name, trained where they are: each row by its
            table's rule and staleness policy, also where the gradient of the parameters is dropped
            or excluded. Where one refuses ids for want of room, a RuntimeWarning says so, once and as
            soon as it is seen. Default: ``leashed.tables.of(model.tables, rule=rule,
            staleness=staleness, seed=seed)``; give tables where rows take no such rule or policy.
        evaluate_every: seconds between evaluations of the loss, which run on the calling thread
            beside the workers. Default: as often as keeps them to a tenth of one thread. Where a
            loss ends the run, it is evaluated at other times too, by as many threads as train, when
            the losses that these find in their batches, times what the last evaluation was above
            them, are as low (not on sparse rows that are updated in place), and copies of the
            parameters kept between two evaluations, at first of every update or as many as take a
            tenth of a thread, tell afterwards when each loss asked for was reached.
        progress: called after every evaluation; an exception it raises stops the run.
        checkpoint: a file that takes the state at the end of the run, and while it goes on if
            ``checkpoint_every`` is given: parameters, the rule's state, counters and settings. No
            thread stops for it. Under ``Leashed`` and the disciplines with a lock it is one
            published state; under ``Hogwild`` it is a copy of what threads change meanwhile, as
            consistent as the views that they read (the one at the end is exact). Of an external
            model its description stands for the gradient. Written beside the old file, flushed,
            renamed; a RuntimeWarning where that fails, or parameters are not finite. Ctrl-C meanwhile
            ends the run when the file is there; a second one, or what another signal's handler
            raises, comes out at once.

            Of a model that reads tables it is a folder, with a file for each table; rows that
            workers change while they are written may be of either moment, and the manifest says so.
            What is written at the end is exact.
        checkpoint_every: seconds between checkpoints.
        checkpoint_updates: updates between checkpoints, for each of which all workers wait, between
            two of their steps, until it is written. So it is of one moment, rows of tables and all,
            and a run that goes on from it with one thread comes to the same bits. Taken with every
            update whose number is a multiple of it. Not with ``checkpoint_every`` or a ``cluster``.
        incremental: of a model's tables a checkpoint writes only the rows that have changed since
            the one before, beside that, and all of them anew where these files have come to half of
            those of all rows. A run that resumes from the folder that it writes goes on so. For it
            a table keeps 12 bytes a row beside its ``max_bytes``, 4 where its ``rows`` are given;
            one without ``versions`` is written whole each time.
        resume: a checkpoint to go on from, with the same model (of an external one the name,
            dimension, features, y, variables and ids, and a gradient that computes the same), data,
            rule, staleness policy, seed and batch size; the discipline and the number of threads
            may differ. ``init`` is not used. The files of a stream are to have the names, the bytes
            and the order of then, in whatever folder (contents are not compared), and ``shuffle``
            and its ``seed`` are to be those of then. A file that has grown is refused too, though
            what was used may be as it was: where a pass ends, and the last window of ``shuffle=``,
            follow from all of its rows, and whether those before are others cannot be told. Train
            on what has come in a run of its own, with ``init``, or as a day of
            ``leashed.continual``. Of files that have been modified and have as many bytes a
            RuntimeWarning tells, and so it does where what was read from files now comes from an
            open file, which tells nothing; of Arrow's columns nothing is known. One thread gives
            the same bits as without the interruption. With several, the batches that were under way
            may be used twice, others not at all. Stop rules count updates and epochs from the run's
            beginning, seconds from now; losses are compared with the run's initial loss. The
            result's ``updates`` count from the run's beginning, everything else in it from now.

            Of a model that reads tables it is a folder: the rows are put into ``tables``, or into new
            ones; these must have been made alike, each with the rule, staleness policy and limits
            of then. Where the folder was not written at the end of a run
            (``result.config["resumed_exact"]``), the rows may be some updates ahead of the
            parameters. What a table has counted begins anew, and so do the sightings of ids that
            ``admit_after`` waits for.
        sync: how this trainer's parameters are kept in sync with those of others, from
            ``leashed.sync``. Default: not at all.
        cluster: the run in which this process is one of several trainers, from
            ``leashed.cluster.join()``. Its master hands out the batches of ``until.epochs``, each to
            one trainer; the other stop rules are this trainer's own: where one ends it, the others
            train on, with its batches too. The model, the data, ``until.epochs``, ``batch_size`` and
            ``seed`` must be the same for all. Sparse data are not updated in
            place. ``result.config["cluster"]`` has what was counted. Where the run is ended before
            its batches and this training are (rank 0 fails, or the master is told to stop), or the
            master stays away, the training ends with a RuntimeWarning, the parameters are those
            reached, ``result.config["cluster_ended"]`` has the reason, and ``"cluster_lost"`` tells
            whether the master has not got them.

            Each trainer writes ``checkpoint``, a file of its own, and all are given ``resume``, or
            none: rule's state, version and schedule go on from a trainer's own file, parameters are
            those of the trainer that is there first, and rank 0's file tells which batches are not
            to be trained again. What was used in about the last second before it was written is.

        record: a file that takes, while the run goes on, which gradient was computed on which
            version of the parameters, and when it was applied, with which factor; about 6 bytes a
            gradient, by a mode about 10, beside the parameters of the beginning and the end. ``leashed.replay`` makes
            the run again from it, also where the process was killed: ``docs/replay.md``. Written in
            place of a file that is there; a RuntimeWarning where that fails in mid-run, which goes on
            unrecorded. Not with ``sync``, ``cluster``, tables, or sparse data that are updated in
            place. Default: nothing is recorded.
        metrics: ``leashed.metrics.progressive(...)``: AUC, log loss and more of each batch as its
            gradient finds it, before it is trained on; ``result.metrics`` and ``progress`` have them,
            at each evaluation. For models of one output with the loss ``log_loss``. What is trained
            stays the same, bit by bit. A run that goes on from a checkpoint counts anew. Default:
            nothing is counted.
        counting: who looks on at the training's steps, each as ``"NAME:key=value,…"``; ``result.observed`` and ``progress`` have what it found, by name.
            ``"gradient_norms"`` finds the mean of the gradients' norms and the largest. What is trained
            stays the same, bit by bit. Not of sparse data that are updated in place, where there are no
            gradients. Default: nobody.
        term: of a mode's leases: seconds from a grant until the batch goes to another, and what its
            worker may still push is dropped as late. It has to be longer than most batches take,
            waiting for processors included, or none comes home; whoever is to be told may be told a
            thousandth of it later, or after an evaluation that lasts then. Default: never.

    Returns:
        A ``TrainResult``; in a cluster, of this trainer. One ``RuntimeWarning`` with the remedy tells
        where it crashed, or where the loss of a new model began above ten times that of chance
        (with the losses ``"softmax"``, ``"log_loss"`` and ``"hinge"``); another one where a model
        reads as a sequence a feature that has a name and one id a row.

    Raises:
        TypeError, ValueError: an argument is wrong, the file to resume from is damaged, of a newer
            version or of another run, or what is to go together has other columns; the message names
            it. No thread has started.
        OSError: a checkpoint cannot be read, or could not be written; or ``record`` cannot; or the
            cluster's master cannot be reached.
    """
    train_set, test_set = sets_of(model, data, validation)
    if staleness is not None:
        staleness = policies.of("staleness", staleness)
    auto = isinstance(threads, str) and threads == "auto"
    abilities.check(
        {
            **abilities.of_mode(mode, "none" if staleness is None else staleness.choice()[0]),
            **abilities.of_model(model),
            **abilities.of_end(until),
            "stream": isinstance(train_set, Streamed),
            "discipline": discipline,
            "sync": sync,
            "cluster": cluster,
            'threads="auto"': auto,
            "record": record,
            "resume": resume,
            "checkpoint": checkpoint,
            "checkpoint_every": checkpoint_every,
            "checkpoint_updates": checkpoint_updates,
            "incremental": incremental,
            "term": term,
        }
    )
    if term is not None:
        checks.real("term", checks.seconds("term", term), 0.0)
    discipline = Leashed() if discipline is None else discipline
    check_discipline(discipline)
    rule = defaults.rule(of_clicks=defaults.is_of_clicks(model)) if rule is None else rule
    check_rule(rule)
    staleness = policies.none() if staleness is None else staleness
    if threads is None or auto:
        threads = 1 if isinstance(discipline, Sequential) else cores()
    if isinstance(threads, str):
        raise TypeError(f'threads must be a whole number or "auto", got {threads!r}')
    threads = _check_threads(threads, discipline)
    full_size = batch_size
    if full_size is None:
        begun_with = resuming.batch_size_of(resume)
        full_size = begun_with or defaults.batch_size(model, len(train_set), until)
    full_size = checks.whole("batch_size", full_size)
    # A stream has no length.
    batch_size = min(full_size, len(train_set) or full_size) if batch_size is None else full_size
    until = defaults.end(model, until)
    if not isinstance(until, Until):
        raise TypeError(f"until must be leashed.until(...), got {until!r}")
    streamed = train_set if isinstance(train_set, Streamed) else None
    if streamed is not None:
        checks.size("batch_size", batch_size)  # no number of rows bounds it
        check_passes(until)
    elif batch_size > len(train_set):
        raise ValueError(
            f"batch_size must be at most the {len(train_set)} examples of the data, got {batch_size}"
        )
    if isinstance(model, Graph):
        check_batch(model, batch_size, len(train_set))
    if mode is not None and streamed is None:
        check_batches(mode, len(train_set))
    seed = checks.whole("seed", seed, 0, MAX_SEED)
    if evaluate_every is not None:
        evaluate_every = checks.real("evaluate_every", evaluate_every, 0.0)
    if checkpoint_every is not None:
        checkpoint_every = checks.real("checkpoint_every", checkpoint_every, 0.0)
    if checkpoint_updates is not None:
        checkpoint_updates = checks.whole("checkpoint_updates", checkpoint_updates, 1, 2**53)
    if progress is not None and not callable(progress):
        raise TypeError(f"progress must be callable, got {progress!r}")
    if isinstance(model, Graph) or (isinstance(model, External) and model.ids):
        check_dense_part(model)
    if resume is None:
        check_init(init, model, tables)
    trained = tables_for(model, tables, rule, staleness, seed)
    if record is not None:
        checks.writable(Path(record))
    scoring = None if metrics is None else _scoring(metrics, model, data, train_set)
    observers = observers_of(counting)
    if isinstance(init, str):
        theta = model.init(seed, init)
    else:
        theta = checks.vector("init", init, model.dimension)
    columns = check_columns(init, model, train_set, "data")

    config: dict[str, Any] = {
        "discipline": discipline.label if mode is None else type(mode).__name__,
        "rule": rule.config(),
        "state_vectors": rule.state_vectors,
        "staleness": staleness.config(),
        "threads": threads,
        "batch_size": batch_size,
        **({} if batch_size == full_size else {resuming.FULL_SIZE: full_size}),
        "seed": seed,
        "init": init if isinstance(init, str) else "array",
        "until": {name: value for name, value in asdict(until).items() if value is not None},
        "model": model.name,
        "dimension": model.dimension,
        "flops_per_example": model.flops_per_example,
        "data": train_set.name,
        "columns": columns.to_json(),
        "sparse": is_sparse(train_set),
        "examples": None if streamed is not None else len(train_set),
        "isa": _core.default_isa(),
        "cpu": cpu_model(),
        "cores": cores(),
        "version": _core.__version__,
    }
    if streamed is not None:
        config |= streamed.described
    machine: tuple[str, dict[str, Setting]] | None = None
    if mode is not None:
        machine = machine_of(mode, threads, batch_size, until, train_set, term)
        config["mode"] = {"name": machine[0], **machine[1], "commands": mode.commands()}
    check_synchroniser(sync, cluster)
    if sync is not None:
        config["sync"] = sync.label
    if trained:
        _check_kept(checkpoint=checkpoint, resume=resume)
    begun = resuming.begin(resume, model, config, trained, full_size)
    resumption, folder = begun.training, begun.folder
    # (A cluster says whether it goes on from what one of its processes has left.)
    left = begun.position if isinstance(resume, resuming.Left) else None
    if folder is not None:
        config["resumed_exact"] = folder.exact
    if resumption is not None:
        config["resumed_at"] = resumption.updates

    refusals = refusals_of(trained)

    def report(now: dict[str, Any], initial_loss: float) -> None:
        refusals.look()
        if progress is not None:
            progress(progress_of(now, initial_loss, mean_batch))

    reports = None if progress is None and refusals.told else report

    averaged = None if left else begun.statistics
    native = tracked(source_of(model, train_set), threads, averaged)
    mean_batch = mean_batch_of(train_set, batch_size, mode)

    yield  # all that can be refused has been
    warn_of_sequences(model, train_set)
    if streamed is not None:
        first = 0 if resumption is None else resumption.batches * batch_size
        streamed.open(until.epochs, threads, first)
    examples = head_of(train_set)
    validating = None if test_set is None else head_of(test_set)

    def eps(m: int) -> float:
        """Of a short run on a part of the data, to choose the number of threads."""
        part = head_of(train_set, max(batch_size, PROBE_ROWS))
        if part[0] is None:
            return 0.0
        trial = training_of(
            tracked(source_of(model, train_set), m, None),
            theta,
            part,
            discipline=discipline.choice(),
            rule=rule.choice(),
            staleness=staleness.choice(),
            workers=m,
            batch_size=batch_size,
            seed=seed,
            tables=[table.small().native for table in trained.values()],
        )
        probe = _core.train(trial, _core.Watch(until={"seconds": PROBE_SECONDS}))
        if probe["reason"] == "interrupted":
            raise KeyboardInterrupt
        return float(probe["gradients"] / probe["elapsed"])

    with ExitStack() as stack:
        if streamed is not None:
            stack.callback(streamed.end)
        if auto:
            try:
                config["threads"] = threads = fastest(candidates(threads), eps)
            except KeyboardInterrupt as stopped:
                raise KeyboardInterrupt(*(() if streamed is None else streamed.lost())) from stopped
            native = tracked(source_of(model, train_set), threads, averaged)
        checkpointer: resuming.Kept | resuming.Checkpointer | None = None
        if isinstance(checkpoint, resuming.Kept):
            checkpointer = checkpoint
            checkpoint.batch_size = full_size
        elif checkpoint is not None:
            checkpointer = stack.enter_context(
                resuming.Checkpointer(
                    checkpoint,
                    model,
                    config,
                    trained,
                    # By a mode all wait anyway, and rows fit to what its server holds.
                    paused=checkpoint_updates is not None or (mode is not None and bool(trained)),
                    incremental=incremental,
                )
            )
        rules = rules_of(until, train_set, batch_size, mode)
        session: Session | None = None
        if cluster is not None:
            total = rules.pop("batches", None)
            session = stack.enter_context(
                cluster.session(
                    model.dimension,
                    sync,
                    total=None if total is None else int(total),
                    batch_size=batch_size,
                    workers=threads,
                    lockstep=isinstance(discipline, Synchronous),
                    resumed=None if left else begun.position,
                    left=left,
                    trained=(model, train_set, seed),
                )
            )
            if left is not None and not session.goes_on:
                resumption = None
                del config["resumed_at"]
            if isinstance(checkpointer, resuming.Checkpointer):
                checkpointer.position = session.follow()
        if folder is not None:
            folder.load(trained, incremental=incremental)
        name, numbers = discipline.choice()
        choices: recordings.Choices = (
            (name, {**numbers}) if machine is None else machine,
            rule.choice(),
            staleness.choice(),
        )
        recording = None
        if record is not None:
            recording = recordings.recording(
                record, model, train_set, choices, config, theta, resumption, mode=mode is not None
            )
        training = training_of(
            native,
            theta,
            examples,
            validating,
            discipline=choices[0],
            rule=choices[1],
            staleness=choices[2],
            workers=threads,
            batch_size=batch_size,
            seed=seed,
            tables=[table.native for table in trained.values()],
            record=recording,
            metrics=scoring,
            observers=observers,
        )
        watch = _core.Watch(
            until=rules,
            milestones=until.milestones,
            evaluate_every=evaluate_every or 0.0,
            progress=reports,
            checkpoint=checkpointer,
            checkpoint_every=math.inf if checkpoint_every is None else checkpoint_every,
            checkpoint_updates=checkpoint_updates or 0,
            saving=checkpointer.look if isinstance(checkpointer, resuming.Checkpointer) else None,
        )
        if mode is not None:
            outcome = _core.train_mode(training, watch, mode.commands(), resumption)
        else:
            outcome = _core.train(
                training,
                watch,
                resumption,
                leases=None if session is None else session.leases,
                synchronisation=None if session is None else session.native,
            )
        if isinstance(checkpointer, resuming.Checkpointer) and outcome["outcome"] != "crashed":
            checkpointer.last_update = outcome["updates"]
        if session is not None:
            config["cluster"] = session.finish(outcome["parameters"], _counted(outcome))
            if session.cut_short is not None:
                config["cluster_ended"] = session.cut_short
                config["cluster_lost"] = session.lost
    config["sparse_updates"] = outcome["in_place"]
    if streamed is not None:
        config["reading"] = streamed.counts.config()
    if trained:
        config["tables"] = told_by(trained)
    refusals.look()
    _warn_of(record, outcome)
    result = result_of(
        outcome, mean_batch, config, trained, running(native), metrics is not None, streamed
    )
    return warn_of_end(result, model, train_set, examples[2])


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
        TypeError, ValueError: the discipline, the rule or the number of threads is wrong. The rest
            is not checked.
    """
    check_discipline(discipline)
    check_rule(rule)
    threads = _check_threads(threads, discipline)
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


def rules_of(until: Until, data: _Data, batch_size: int, mode: Mode | None) -> dict[str, float]:
    """When it ends, for the core."""
    rules = until.rules(drawn(data, batch_size) if mode is None else len(data), batch_size)
    if isinstance(data, Streamed) or mode is not None:
        rules.pop("batches", None)  # the stream, or the mode, ends where its examples do
    return rules


def machine_of(
    mode: Mode,
    threads: int,
    batch_size: int,
    until: Until,
    data: _Data,
    term: float | None,
) -> tuple[str, dict[str, Setting]]:
    """The native mode and its settings, with as many examples as ``until`` has it train on; 0: until
    something else ends it.
    """
    leased = until.rules(len(data), batch_size).get("batches", 0.0) * batch_size
    if isinstance(data, Streamed):
        leased = 0  # where it ends is seen when it does
    name, settings = mode.machine(threads, batch_size, leased)
    if term is not None:
        settings = {**settings, "term_ns": max(1, round(1e9 * term))}
    return name, settings


def _warn_of(record: str | os.PathLike[str] | None, outcome: dict[str, Any]) -> None:
    """Tells train's caller where the record ends before the run."""
    if outcome["recording_failure"]:
        warn(f"the record in {record} ends before the run: {outcome['recording_failure']}")


def _scoring(
    metrics: Progressive, model: AnyModel, data: Any, train_set: Any
) -> tuple[NDArray[np.uint64] | None, int]:
    """Whose each row is, and how many rows of users to keep, for the core."""
    if not isinstance(metrics, Progressive):
        raise TypeError(f"metrics must be leashed.metrics.progressive(...), got {metrics!r}")
    if isinstance(model, External) or model.loss != "log_loss" or model.classes != 2:
        raise ValueError(
            f"metrics are of models of one output with the loss log_loss, which {model.name} is not; "
            "leave them out"
        )
    data = data.train if isinstance(data, (Split, ClickSplit)) else data
    if metrics.gauc is None:
        return None, metrics.kept
    if isinstance(train_set, Streamed):
        train_set.tell_users(metrics.gauc)
        return None, metrics.kept
    if not isinstance(metrics.gauc, str):
        return users_of(metrics.gauc, len(train_set)), metrics.kept
    if not isinstance(data, ClickDataset):
        raise TypeError(
            f"gauc={metrics.gauc!r} names a feature of a ClickDataset; give an array of whole numbers, "
            "one for each row"
        )
    return data.users_by(metrics.gauc), metrics.kept


def _check_kept(**given: object) -> None:
    for name, value in given.items():
        if isinstance(value, resuming.Kept):
            raise TypeError(
                f"{name} in memory holds no rows; give a folder where a model has tables"
            )


def check_dense_part(model: AnyModel) -> None:
    if not model.dimension:
        raise ValueError(
            f"model {model.name} has no parameters but its tables' rows; give it a layer, such as "
            ">> Dense(1)"
        )


def tables_for(
    model: AnyModel,
    given: Mapping[str, Table] | None,
    rule: Rule,
    staleness: Policy,
    seed: int,
) -> dict[str, Table]:
    """Those given, or new ones, of a model that reads tables; of others none."""
    described = model.tables if isinstance(model, (Graph, External)) else ()
    if given is None:
        return new_tables(described, rule=rule, staleness=staleness, seed=seed)
    check_tables(described, given)
    return {one.name: given[one.name] for one in described}


def check_init(init: object, model: AnyModel, tables: Mapping[str, Table] | None) -> None:
    """ValueError where parameters are given to begin with, and not the rows of their tables."""
    if isinstance(init, str) or tables is not None or not getattr(model, "tables", ()):
        return
    raise ValueError(
        f"init is given without tables, so that the rows that model {model.name} reads would be new; "
        "give tables=result.tables of the training that init is from as well, or "
        "tables=leashed.tables.of(model.tables, rule=rule, seed=seed) to begin with untrained rows"
    )


def told_by(tables: Mapping[str, Table]) -> dict[str, Any]:
    """What a result's configuration says of each."""
    return {
        name: {
            "dim": table.dim,
            "rule": table.rule.config(),
            **table.statistics(),
            "row_staleness": table.row_staleness().tolist(),
        }
        for name, table in tables.items()
    }


def batches_of(data: _Data, batch_size: int, epochs: int) -> int:
    """How many batches so many epochs are, none of which reaches from one into the next: of sparse
    rows, and of all in ``train_passes``.
    """
    return epochs * batches_in(1, len(data), batch_size)


def mean_batch_of(data: _Data, batch_size: int, mode: Mode | None) -> float:
    """Examples of a batch: those of a pass over sparse rows end with it, but by a mode."""
    if isinstance(data, SparseDataset) and mode is None:
        return len(data) / batches_of(data, batch_size, 1)
    return float(batch_size)


def drawn(data: _Data, batch_size: int) -> int:
    """The examples of an epoch, with those that the last batch of a pass over sparse rows, which may
    be smaller than the others, would have to be as large.
    """
    if isinstance(data, SparseDataset):
        return batches_of(data, batch_size, 1) * batch_size
    return len(data)


def check_discipline(discipline: Discipline) -> None:
    if not isinstance(discipline, Discipline):
        raise TypeError(
            f"discipline must be Leashed() or another of leashed.disciplines, got {discipline!r}"
        )


def _check_threads(threads: int, discipline: Discipline) -> int:
    threads = checks.whole("threads", threads, maximum=MAX_THREADS)
    if isinstance(discipline, Sequential) and threads != 1:
        raise ValueError(
            f"threads must be 1 with Sequential, got {threads}; choose another discipline"
        )
    return threads


def source_of(model: AnyModel, data: _Data) -> _core.GradientSource:
    if is_sparse(data) and not isinstance(model, External):
        return model.sparse
    return model.native


def is_sparse(data: _Data) -> bool:
    return isinstance(data, SparseDataset) or (isinstance(data, Streamed) and data.sparse)


class _Clicks:
    """Clicks as a model that reads tables reads them."""

    def __init__(self, model: Graph | External, data: ClickDataset, name: str) -> None:
        self._model, self._data = model, data
        self.rows = model.rows(data, name)
        if isinstance(model, Graph):
            check_labels(model, data, name)
        self.y, self.weights, self.name = data.y, data.weights, data.name
        self.x, self.columns = data.x, data.columns

    def __len__(self) -> int:
        return len(self.y)

    def head(self, rows: int) -> _Clicks:
        return _Clicks(self._model, self._data.head(rows), self.name)


class Streamed:
    """A stream as a model reads it."""

    def __init__(
        self,
        model: Model | Graph | FactorisationMachine,
        stream: streams.Stream | streams.SparseStream,
    ) -> None:
        self._stream, self.name = stream, stream.name
        self.columns = Columns.of(stream)
        self.sparse = isinstance(stream, streams.SparseStream)
        self._distinct = isinstance(model, FactorisationMachine)
        self._features: list[tuple[int, int | None]] = []
        self._users: int | None = None
        self.passes = 1
        if isinstance(stream, streams.SparseStream):
            _check_columns(model, stream)
        else:
            self._read(model, stream)
        _check_classes(model, stream)

    def _read(self, model: Model | Graph | FactorisationMachine, stream: streams.Stream) -> None:
        _ = model.native
        if isinstance(model, Graph) and len(model.readers) > len(model.embeddings):
            raise ValueError(
                f"data must be in memory for model {model.name}, which draws ids for each batch; "
                "stream.read() reads it"
            )
        specs = [node.table for node in model.embeddings] if isinstance(model, Graph) else []
        lengths = [node.length for node in model.embeddings] if isinstance(model, Graph) else []
        numbers = model.id_features if isinstance(model, Graph) else ()
        check_stream(stream, model.features, specs, numbers)
        self._features = list(zip(numbers, lengths, strict=True))

    def __len__(self) -> int:
        return 0

    @property
    def described(self) -> dict[str, Any]:
        """What a run that goes on has to have again."""
        files = [asdict(file) for file in log_files(self._stream.files)]
        return {"files": files, "order": self._stream.order}

    def open(self, epochs: float | None, threads: int, first: int = 0) -> None:
        """Rows before ``first`` have been used."""
        self._first = first
        if epochs is None:
            self.passes = 0 if self._stream.repeatable else 1
        else:
            self.passes = int(epochs)
        if self.passes > 1 and not self._stream.repeatable:
            raise ValueError(f"{self.name} can be read once; epochs must be 1, got {epochs:g}")
        if isinstance(self._stream, streams.SparseStream):
            self._opened = self._stream.open(
                self.passes, beside=threads, distinct_columns=self._distinct
            )
        else:
            self._opened = self._stream.open(self.passes, beside=threads)

    @property
    def counts(self) -> streams.ReadCounts:
        return self._opened.counts

    def tell_users(self, feature: object) -> None:
        """Rows are to tell whose they are."""
        if isinstance(self._stream, streams.SparseStream):
            raise TypeError(
                f"gauc is not for {self.name}, whose sparse rows do not tell whose they are; leave it "
                "out, or read them into memory with stream.read() and give an array"
            )
        if not isinstance(feature, str):
            raise TypeError(
                "gauc must name a feature of the stream, whose rows are not known beforehand, got "
                f"{type(feature).__name__}"
            )
        self._users = self._stream.single(feature)

    @property
    def rows(self) -> _core.StreamedRows:
        return self._as_read(self._opened.native)

    def head(self, rows: int) -> _core.StreamedRows | None:
        """The first rows that are to be trained on, again and again; they come then all the same.
        None: there is none, or reading it fails.
        """
        native = self._opened.native
        native.start(self._first)
        found = native.head(rows)
        return None if found is None else self._as_read(found)

    def _as_read(self, native: _core.RowStream) -> _core.StreamedRows:
        return _core.StreamedRows(native, self._features, self._users)

    def end(self) -> None:
        """Nothing is read any more."""
        self._opened.native.end()

    def lost(self) -> tuple[str, ...]:
        """What is to be said where it ends before any row was trained on."""
        self.end()
        if self._stream.repeatable:
            return ()
        return (f"{self.counts.rows} rows of {self.name} were read, and none was trained on",)


def _check_columns(
    model: Model | Graph | FactorisationMachine, stream: streams.SparseStream
) -> None:
    _ = model.sparse
    if stream.features != model.features:
        raise ValueError(
            f"data has {stream.features} features, but the model takes {model.features}"
        )
    if isinstance(model, FactorisationMachine) and not stream.has_fields(model.fields):
        raise ValueError(
            f"data has columns of other fields than model {model.name}; make both of the same fields"
        )


def _check_classes(
    model: Model | Graph | FactorisationMachine, stream: streams.Stream | streams.SparseStream
) -> None:
    if (model.classes == 0) != (stream.classes == 0):
        made = (
            "the stream's classes=0 and classes=2"
            if isinstance(stream, streams.SparseStream)
            else "stream.Target() and stream.Label()"
        )
        raise ValueError(
            f"data has {'numbers' if stream.classes == 0 else 'labels'}, but the loss {model.loss} "
            f"takes {'numbers' if model.classes == 0 else 'labels'}; {made} make the one and the "
            "other"
        )
    if stream.classes > model.classes:
        raise ValueError(
            f"data has labels up to {stream.classes - 1}, but the model knows {model.classes} classes"
        )


def check_passes(until: Until) -> None:
    """Of a stream."""
    if until.epochs is not None and until.epochs != int(until.epochs):
        raise ValueError(f"until.epochs must be whole for streams, got {until.epochs:g}")


def training_of(
    source: Any,
    theta: NDArray[np.float32],
    examples: _Head,
    validation: _Head | None = None,
    **given: Any,
) -> _core.Training:
    """For the core, of what ``head_of`` gives of the training set and of the validation set."""
    x, y, weights = examples
    tested = (None, None, None) if validation is None else validation
    return _core.Training(
        source=source,
        theta=theta,
        x=x,
        y=y,
        weights=weights,
        validation_x=tested[0],
        validation_y=tested[1],
        **given,
    )


def head_of(data: _Data, rows: int | None = None) -> _Head:
    """The examples, or the first so many, what they are to give and their weights, for the native
    core.
    """
    if isinstance(data, Streamed):
        return data.rows if rows is None else data.head(rows), np.empty(0, np.int32), None
    if isinstance(data, (SparseDataset, _Clicks)):
        part = data if rows is None or rows >= len(data) else data.head(rows)
        return part.rows, part.y, part.weights
    weights = None if isinstance(data, Samples) else data.weights
    return data.x[:rows], data.y[:rows], None if weights is None else weights[:rows]


def sets_of(model: AnyModel, data: Any, validation: Any) -> tuple[_Data, _Data | None]:
    """The training and validation sets, as ``model`` reads them, of the same columns."""
    train_set, test_set = _sets_of(model, data, validation)
    if test_set is not None:
        known = columns_of(model, train_set)
        known.agreed(columns_of(model, test_set), "validation", "of data")
    return train_set, test_set


def _sets_of(model: AnyModel, data: Any, validation: Any) -> tuple[_Data, _Data | None]:
    if isinstance(data, (streams.Stream, streams.SparseStream)):
        return _streaming_sets(model, data, validation)
    if isinstance(model, (Graph, External)) and model.tables:
        if isinstance(data, ClickSplit):
            data, validation = data.train, data.test if validation is None else validation
        return (
            _Clicks(model, data, "data"),
            None if validation is None else _Clicks(model, validation, "validation"),
        )
    if isinstance(model, External):
        if isinstance(data, Split):
            data, validation = data.train, data.test if validation is None else validation
        checked = None if validation is None else model.samples("validation", validation)
        return model.samples("data", data), checked
    if not isinstance(model, (Model, FactorisationMachine, Graph)):
        raise TypeError(f"model must come from leashed.models, got {type(model).__name__}")
    data, validation = _datasets(data, validation)
    check_fits(model, data, "data")
    if validation is not None:
        _check_kinds(validation, sparse=isinstance(data, SparseDataset))
        check_fits(model, validation, "validation")
    return data, validation


def _streaming_sets(
    model: AnyModel, data: streams.Stream | streams.SparseStream, validation: Any
) -> tuple[_Data, _Data | None]:
    if not isinstance(model, (Model, Graph, FactorisationMachine)):
        raise TypeError(
            "data must be in memory for external models; stream.read() reads it, got "
            f"{type(model).__name__}"
        )
    if isinstance(validation, (streams.Stream, streams.SparseStream)):
        raise TypeError("validation must be in memory; stream.read() reads it")
    if validation is None:
        return Streamed(model, data), None
    if isinstance(model, Graph) and model.tables:
        return Streamed(model, data), _Clicks(model, validation, "validation")
    streamed = Streamed(model, data)
    _check_kinds(validation, sparse=streamed.sparse)
    check_fits(model, validation, "validation")
    return streamed, validation


def _check_kinds(validation: object, *, sparse: bool) -> None:
    if isinstance(validation, SparseDataset) != sparse:
        raise TypeError("validation must be sparse where data is, and dense where it is dense")


def _datasets(
    data: Dataset | SparseDataset | Split | tuple[Any, ArrayLike],
    validation: Dataset | SparseDataset | None,
) -> tuple[Dataset | SparseDataset, Dataset | SparseDataset | None]:
    if validation is not None and not isinstance(validation, (Dataset, SparseDataset)):
        raise TypeError(f"validation must be a Dataset, got {type(validation).__name__}")
    if isinstance(data, Split):
        return data.train, data.test if validation is None else validation
    if isinstance(data, tuple) and len(data) == 2:
        if is_csr(data[0]):
            return SparseDataset.from_csr(*data), validation
        return Dataset.from_arrays(*data), validation
    if not isinstance(data, (Dataset, SparseDataset)):
        raise TypeError(
            f"data must be a Dataset, a SparseDataset, a Split or a pair of arrays, got {type(data).__name__}"
        )
    return data, validation


def _values(scored: dict[str, Any] | None, part: str) -> Values | None:
    return None if scored is None else Values(**scored[part])


def progress_of(now: dict[str, Any], initial_loss: float, batch_size: float) -> Progress:
    seconds = now["seconds"]
    return Progress(
        seconds=seconds,
        updates=now["updates"],
        loss=now["loss"],
        accuracy=now["accuracy"],
        validation_accuracy=now["validation_accuracy"],
        eps=now["gradients"] * batch_size / seconds if seconds > 0 else math.nan,
        mean_staleness=Histogram(now["staleness"]).mean(),
        initial_loss=initial_loss,
        **{name: now[name] for name in QUALITY},
        window=_values(now["scored"], "window"),
        total=_values(now["scored"], "total"),
        observed=now["observed"],
    )


def _staleness_over_time(evaluations: list[dict[str, Any]]) -> NDArray[np.int64]:
    bins = max(len(e["staleness"]) for e in evaluations)
    table = np.zeros((len(evaluations), bins), np.int64)
    for row, evaluation in zip(table, evaluations, strict=True):
        row[: len(evaluation["staleness"])] = evaluation["staleness"]
    return np.diff(table, axis=0, prepend=np.zeros((1, bins), np.int64))


def _breakdown(outcome: dict[str, Any]) -> dict[str, float]:
    parts = {
        "gradient": outcome["gradient_seconds_total"],
        "update": outcome["update_seconds_total"],
        "sampling": outcome["sampling_seconds"],
        "read": outcome["read_seconds"],
        "waiting": outcome["waiting_seconds"],
    }
    if outcome["data_seconds"]:
        parts["data"] = outcome["data_seconds"]
        parts["sampling"] = max(0.0, parts["sampling"] - parts["data"])
    if outcome["row_seconds"]:
        parts["rows"] = outcome["row_seconds"]
    return {**parts, "rest": max(0.0, outcome["running_seconds"] - sum(parts.values()))}


def _counted(outcome: dict[str, Any]) -> dict[str, float]:
    """What a cluster's report tells of a training."""
    return {
        "updates": float(outcome["updates"]),
        "dropped_for_sync": float(outcome["lost_to_synchronisation"]),
        "crashed": float(outcome["outcome"] == "crashed"),
        "interrupted": float(outcome["reason"] == "interrupted"),
        "loss": float(outcome["evaluations"][-1]["loss"]),
        "seconds": float(outcome["elapsed"]),
        "staleness_mean": Histogram(outcome["staleness"].astype(np.int64)).mean(),
    }


def result_of(
    outcome: dict[str, Any],
    batch_size: float,
    config: dict[str, Any],
    tables: dict[str, Table],
    statistics: Running | None = None,
    scored: bool = False,
    streamed: Streamed | None = None,
) -> TrainResult:
    evaluations = outcome["evaluations"]
    if statistics is not None:
        config["statistics"] = statistics.config()

    def series(name: str, dtype: type[np.generic]) -> NDArray[Any]:
        return np.array([e[name] for e in evaluations], dtype)

    seconds = series("seconds", np.float64)
    examples = series("gradients", np.int64) * batch_size
    with np.errstate(invalid="ignore", divide="ignore"):
        eps = np.diff(examples, prepend=0) / np.diff(seconds, prepend=0.0)
    eps[~np.isfinite(eps)] = np.nan
    edges = _core.time_bin_edges()
    rows = dict(outcome["rows"])
    row_staleness = rows.pop("octaves").astype(np.int64)

    def times(name: str) -> TimeDistribution:
        return TimeDistribution(edges, outcome[name].astype(np.int64), outcome[f"{name}_total"])

    def counts(name: str) -> Histogram:
        return Histogram(outcome[name].astype(np.int64))

    mode = ModeCounts.of(outcome) if "worker_examples" in outcome else None
    # A mode's gradients may be of other numbers of examples.
    seen = outcome["gradients"] * batch_size if mode is None else mode.worker_examples.sum()
    if streamed is not None and streamed.passes:
        seen = min(seen, streamed.counts.rows * streamed.passes)  # the last batch may be smaller
    return TrainResult(
        outcome=outcome["outcome"],
        reason=outcome["reason"],
        parameters=outcome["parameters"],
        statistics=np.empty(0, np.float32) if statistics is None else statistics.values,
        seconds=seconds,
        updates=series("updates", np.int64),
        loss=series("loss", np.float64),
        accuracy=series("accuracy", np.float64),
        validation_accuracy=series("validation_accuracy", np.float64),
        eps=eps,
        **{name: series(name, np.float64) for name in QUALITY},
        tables=tables,
        rows={name: int(n) for name, n in rows.items()} if tables else {},
        row_staleness=row_staleness,
        memory_bytes=series("memory_bytes", np.int64),
        live_vectors=series("live_vectors", np.int64),
        staleness_over_time=_staleness_over_time(evaluations),
        elapsed=outcome["elapsed"],
        examples=round(float(seen)),
        total_updates=outcome["updates"],
        gradients=outcome["gradients"],
        dropped=outcome["dropped"],
        excluded=outcome["excluded"],
        staleness=counts("staleness"),
        staleness_compute=counts("staleness_compute"),
        staleness_schedule=counts("staleness_schedule"),
        tries=counts("tries"),
        gradient_seconds=times("gradient_seconds"),
        update_seconds=times("update_seconds"),
        attempt_seconds=times("attempt_seconds"),
        worker_updates=outcome["worker_updates"].astype(np.int64),
        breakdown=_breakdown(outcome),
        peak_vectors=outcome["peak_vectors"],
        peak_memory_bytes=outcome["peak_memory_bytes"],
        config=config,
        mode=mode,
        metrics=Scored.of(outcome["scored"]) if scored else None,
        observed=outcome["observed"],
    )
