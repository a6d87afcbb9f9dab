"""Everything that is asked of a training, checked once, with nothing started."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from leashed import _core, disciplines
from leashed import staleness as policies
from leashed.base import checks
from leashed.base.choice import Choice, from_json, to_json
from leashed.base.machine import cores, cpu_model
from leashed.datasets import ClickDataset, ClickSplit, SparseDataset, Split
from leashed.datasets.columns import UNKNOWN, Columns, arrange
from leashed.datasets.moments import Moments
from leashed.disciplines import Discipline, Leashed, Sequential
from leashed.files import model_file, resuming
from leashed.metrics import Progressive, users_of
from leashed.models._columns import check_columns, kept
from leashed.models._running import Running, check_batch, tracked
from leashed.models.external import External
from leashed.models.graphs import Graph
from leashed.models.tables import Refusals, Table, refusals_of
from leashed.models.tables import check as check_tables
from leashed.models.tables import of as new_tables
from leashed.modes import Mode, check_batches
from leashed.rules import Rule, check_rule
from leashed.staleness import Policy
from leashed.stopping import Until
from leashed.stream import SparseStream, Stream
from leashed.training import abilities, best, defaults
from leashed.training.defaults import MAX_SEED, MAX_THREADS
from leashed.training.doubts import warn_of_more
from leashed.training.led_mode import LedMode, check_recorded, check_reduced, lanes_of
from leashed.training.options import Checkpoint, Init, Observe, options
from leashed.training.outcome import progress_of
from leashed.training.progress import watched
from leashed.training.recordings import AnyModel, Choices, Servers, recording
from leashed.training.sets import (
    AnyData,
    Head,
    Set,
    Streamed,
    check_passes,
    drawn,
    is_sparse,
    mean_batch_of,
    rows_of,
    sets_of,
    shaped,
    source_of,
    training_of,
)
from leashed.training.standard import standardised, unread

if TYPE_CHECKING:
    from leashed.sync import Cluster, Synchroniser

__all__ = [
    "MAX_SEED",
    "MAX_THREADS",
    "Request",
    "ThreadRequest",
    "asked",
    "check_dense_part",
    "of",
    "tables_for",
    "threads_of",
]

_OF_TABLES = ("label", "columns", "bad", "shuffle")  # arguments of data that are a table


@dataclass(frozen=True, kw_only=True, eq=False)
class Request:
    """What all trainings have, by threads and in virtual time.

    Attributes:
        theta: what the parameters begin with, float32 [d]; ``init``: what that was made by.
        workers: how many; by a mode over several processes those by which threads look ahead among them.
        full_size: the batch size that data of enough examples would have.
        tables: those that the model reads, by name.
        columns: of the data that the model was made for, as far as is known.
        statistics: running ones that go on, unless a checkpoint's do.
        numbers: what the numbers, which are standardised, came to before the data's first row; None:
            they stay as they are.
        observers: who looks on at its steps, for the core.
    """

    model: AnyModel
    train_set: Set
    test_set: Set | None
    until: Until
    discipline: Discipline
    mode: Mode | None
    rule: Rule
    staleness: Policy
    workers: int
    batch_size: int
    full_size: int
    seed: int
    init: str
    theta: NDArray[np.float32]
    tables: dict[str, Table]
    columns: Columns
    statistics: Running | None
    numbers: Moments | None
    observe: Observe
    observers: list[Choice]

    @property
    def streamed(self) -> Streamed | None:
        """The training set, where it is a stream."""
        return self.train_set if isinstance(self.train_set, Streamed) else None

    @property
    def mean_batch(self) -> float:
        """Examples of a batch."""
        return mean_batch_of(self.train_set, self.batch_size, self.mode)

    @property
    def choices(self) -> Choices:
        """The discipline or the mode, the rule and the staleness policy, for the core."""
        first = self.discipline.choice() if self.mode is None else self._machine(self.mode)
        return (first[0], {**first[1]}), self.rule.choice(), self.staleness.choice()

    def _machine(self, mode: Mode) -> tuple[str, dict[str, Any]]:
        """With as many examples as ``until`` has it train on; 0: until something else ends it."""
        name, settings = mode.machine(self.all_workers, self.batch_size, self._examples)
        if mode.term is not None:
            settings = {**settings, "term_ns": max(1, round(1e9 * mode.term))}
        return name, settings

    @property
    def all_workers(self) -> int:
        """Of a mode."""
        return self.workers

    @property
    def batches(self) -> float | None:
        """That a mode leases; None: until something else ends it, as where a stream ends whose rows nobody
        has counted is seen then.
        """
        rows = len(self.train_set) if self.streamed is None else self.streamed.counted
        return None if rows is None else self.until.rules(rows, self.batch_size).get("batches")

    @property
    def _examples(self) -> float:
        """That a mode leases: of a stream the last batch has the rows that are left. 0: until something else
        ends it.
        """
        if self.batches is None:
            return 0.0
        if self.streamed is None:
            return self.batches * self.batch_size
        assert self.streamed.counted is not None
        assert self.until.epochs is not None
        return self.until.epochs * self.streamed.counted

    @property
    def rules(self) -> dict[str, float]:
        """When it ends, for the core."""
        by_mode = self.mode is not None
        examples = len(self.train_set) if by_mode else drawn(self.train_set, self.batch_size)
        if self.streamed is not None and self.streamed.counted is not None:
            examples = self.streamed.counted
        rules = self.until.rules(examples, self.batch_size)
        if (self.streamed is not None and self.streamed.counted is None) or by_mode:
            rules.pop("batches", None)  # the stream, or the mode, ends where its examples do
        return {**rules, "rows": float(self.observe.rows or 0)}

    def config(self) -> dict[str, Any]:
        """What a result says was asked for, as JSON's own types."""
        until = {name: value for name, value in asdict(self.until).items() if value is not None}
        config: dict[str, Any] = {
            "discipline": self.discipline.label if self.mode is None else type(self.mode).__name__,
            "rule": self.rule.config(),
            "state_vectors": self.rule.state_vectors,
            "staleness": self.staleness.config(),
            "threads": self.workers,
            "batch_size": self.batch_size,
            "seed": self.seed,
            "init": self.init,
            "until": until,
            "model": self.model.name,
            "dimension": self.model.dimension,
            "flops_per_example": self.model.flops_per_example,
            "data": self.train_set.name,
            "columns": self.columns.to_json(),
            "sparse": is_sparse(self.train_set),
            "examples": None if self.streamed is not None else len(self.train_set),
            "isa": _core.default_isa(),
            "cpu": cpu_model(),
            "cores": cores(),
            "version": _core.__version__,
        }
        if self.numbers is not None:
            config[resuming.NUMBERS] = self.numbers.to_json()
        if self.streamed is not None:
            config |= self.streamed.described
        if self.mode is not None:
            name, settings = self.choices[0]
            config["mode"] = {"name": name, **settings, "commands": self.mode.commands()}
        return config

    @property
    def _standardises_late(self) -> bool:
        """Whether what is evaluated is standardised by what is known then."""
        late = self.streamed is not None and self.streamed.begun is not None
        return late and self.test_set is not None

    def wait(self) -> None:
        """For the first row that is to be trained on, where something is evaluated by what is known then."""
        if self._standardises_late:
            assert self.streamed is not None
            self.streamed.head(1)

    def source(self, workers: int, begun: Any = None) -> _core.GradientSource:
        """That so many workers train, whose running statistics go on from those."""
        begun = self.statistics if begun is None else begun
        source = source_of(self.model, self.train_set)
        if self._standardises_late:
            assert self.streamed is not None
            source = _core.StandardisedSource(source, self.streamed.rows)
        return tracked(source, workers, begun)

    def training(
        self,
        source: _core.GradientSource,
        examples: Head,
        workers: int,
        validation: Head | None = None,
        **more: Any,
    ) -> _core.Training:
        """For the core."""
        discipline, rule, staleness = self.choices
        given = {"tables": [table.native for table in self.tables.values()], **more}
        return training_of(
            source,
            self.theta,
            examples,
            validation,
            discipline=discipline,
            rule=rule,
            staleness=staleness,
            workers=workers,
            batch_size=self.batch_size,
            seed=self.seed,
            **given,
        )

    @contextmanager
    def report(
        self, refusals: Refusals
    ) -> Iterator[Callable[[dict[str, Any], float], None] | None]:
        """What the core is to call after each evaluation; None: nobody wants to hear."""
        mean_batch, examples = self.mean_batch, 0 if self.streamed else len(self.train_set)
        with watched(self.observe.progress, self.until, examples) as progress:

            def report(now: dict[str, Any], initial_loss: float) -> None:
                refusals.look()
                if progress is not None:
                    progress(progress_of(now, initial_loss, mean_batch, self.columns.heads))

            yield None if progress is None and refusals.told else report

    def refusals(self) -> Refusals:
        """What its tables refuse from now on, which is to be told."""
        return refusals_of(self.tables)


def asked(
    model: AnyModel,
    data: AnyData,
    validation: Any,
    *,
    until: Until | None,
    discipline: Discipline | str | None,
    mode: Mode | None,
    rule: Rule | str | None,
    staleness: Policy | str | None,
    workers: Callable[[Discipline], int],
    batch_size: int | None,
    seed: int,
    init: Init,
    observe: Observe,
    also: Mapping[str, object],
    resume: resuming.Resume | None = None,
    dense: str = abilities.DENSE[0],
) -> Request:
    """A training, checked.

    Args:
        workers: how many under a discipline; may refuse it.
        also: what else was asked for, by the names of ``abilities``.
        resume: where parameters and rows come from instead.
        dense: who sums gradients, of ``abilities.DENSE``.

    Raises:
        TypeError, ValueError: something is wrong; the message names it.
    """
    staleness = policies.none() if staleness is None else policies.of("staleness", staleness)
    discipline = None if discipline is None else disciplines.of(discipline)
    rule = None if rule is None else check_rule(rule)
    seed = checks.whole("seed", seed, 0, MAX_SEED)
    if batch_size is not None:
        checks.whole("batch_size", batch_size)
    if until is not None:
        _check_end(until)
    before = resuming.before(resume)
    known = kept(init.parameters) if before is None else before.columns
    goes_on = before is not None or known != UNKNOWN
    if not getattr(model, "made_by", None):  # which reads all that there are
        known = known.read(getattr(model, "id_features", ()))
    given, data = data, arrange(known, data)
    warn_of_more(given, known.heads)
    model = shaped(model, data)
    if isinstance(data, (Stream, SparseStream)):
        data = _sent(model, data, also.get("cluster"))
    train_set, test_set = sets_of(model, data, validation)
    columns = check_columns(init.parameters, model, train_set, "data")
    numbers = unread(model, columns)
    if goes_on:
        numbers = known.moments if before is None else before.numbers
    train_set, test_set, moments = standardised(train_set, test_set, numbers)
    streamed = isinstance(train_set, Streamed)
    abilities.check(
        {
            **abilities.of_mode(mode, staleness.choice()[0]),
            **abilities.of_dense(dense, mode, staleness.choice()[0]),
            **abilities.of_model(model, init.tables if observe.record else None),
            **abilities.of_discipline(discipline, mode),
            **abilities.of_end(until),
            "stream": streamed,
            "sparse rows": is_sparse(train_set),
            "stream here": streamed and not getattr(data, "digest", None),
            "rows that come once": isinstance(train_set, Streamed) and train_set.comes_once,
            "init.tables": init.tables is not None,
            "record": observe.record,
            "metrics": observe.metrics,
            **also,
        }
    )
    discipline = Leashed() if discipline is None else discipline
    of_clicks = defaults.is_of_clicks(model)
    examples = len(train_set)  # 0 of a stream
    rows, seen = data.train if isinstance(data, ClickSplit) else data, defaults.Seen(examples)
    if rule is None or until is None:
        seen = defaults.seen(model, rows, examples)
    if rule is None:
        rule = check_rule(defaults.rule(of_clicks=of_clicks, often=seen.often))
    threads = workers(discipline)
    full_size = batch_size
    if full_size is None:
        begun_with = None if before is None else before.batch_size
        full_size = begun_with or defaults.batch_size(model, until, seen.rows)
    full_size = checks.whole("batch_size", full_size)
    batch_size = min(full_size, examples or full_size)
    end = _check_end(defaults.end(model, until, seen.often))
    best.check(end, model, columns.heads, validates=test_set is not None)
    if streamed:
        checks.size("batch_size", batch_size)  # no number of rows bounds it
        check_passes(end)
    if isinstance(model, Graph):
        check_batch(model, batch_size, examples)
    if mode is not None and not streamed:
        check_batches(mode, examples)
    if isinstance(model, Graph) or (isinstance(model, External) and model.ids):
        check_dense_part(model)
    if init.parameters is None:
        init = replace(init, parameters=defaults.init(model))
    named = isinstance(init.parameters, str)
    if resume is None:
        _check_init(init, model)
    return Request(
        model=model,
        train_set=train_set,
        test_set=test_set,
        until=end,
        discipline=discipline,
        mode=mode,
        rule=rule,
        staleness=staleness,
        workers=threads,
        batch_size=batch_size,
        full_size=full_size,
        seed=seed,
        init=init.parameters if isinstance(init.parameters, str) else "array",
        tables={}
        if also.get("embedding servers") or also.get("policy servers")  # which have them
        else tables_for(model, init.tables, rule, staleness, seed),
        theta=(
            model.init(seed, str(init.parameters))
            if named
            else checks.vector("init", init.parameters, model.dimension)
        ),
        columns=replace(columns, moments=moments),
        statistics=init.statistics,
        numbers=numbers,
        observe=observe,
        observers=_observers_of(observe.counting),
    )


def _check_end(until: object) -> Until:
    if not isinstance(until, Until):
        raise TypeError(f"until must be leashed.until(...), got {until!r}")
    return until


def _sent(model: AnyModel, data: Stream | SparseStream, cluster: Any) -> Stream | SparseStream:
    """A stream as a cluster's readers send it, where it has any."""
    if not getattr(cluster, "readers", 0) or getattr(data, "digest", None):
        return data
    sent: Stream | SparseStream = cluster.sending(model, data)
    return sent


def _observers_of(counting: object) -> list[Choice]:
    if counting == ():
        return []
    from leashed.training.spelled import observers_of  # noqa: PLC0415 (seldom asked for)

    return observers_of(counting)


@dataclass(frozen=True, kw_only=True, eq=False)
class ThreadRequest(Request):
    """A training by threads.

    Attributes:
        auto: whether the number of threads is to be found.
        begun: what it goes on from.
        left: where a process before this one may have left that; else None.
        told: what a result says was asked for, as JSON's own types.
        counting: whose each row is, and how many rows of users to keep; None: nothing is counted.
        says_bad: whether it is to be said which rows of a stream were left out.
        reduces: whether workers of a mode sum gradients among themselves.
    """

    auto: bool
    checkpoint: Checkpoint | None
    begun: resuming.Begun
    left: Any
    cluster: Cluster | None
    sync: Synchroniser | None
    told: dict[str, Any]
    counting: tuple[NDArray[np.uint64] | None, int] | None
    says_bad: bool
    reduces: bool

    @property
    def all_workers(self) -> int:
        """Of a mode: those of all trainers."""
        return self.workers * getattr(self.cluster, "trainers", 1)

    def led(self, source: _core.GradientSource) -> LedMode:
        """The mode, for the policy servers of a cluster.

        Raises:
            ValueError: no several servers train so, or the model has fewer parts than there are servers.
        """
        assert self.mode is not None
        if self.reduces:
            check_reduced(self.all_workers)
        theta, ends, order = self.theta, source.block_ends, None
        if is_sparse(self.train_set) and not isinstance(self.model, External):
            rows: Any = self.train_set.rows if isinstance(self.train_set, SparseDataset) else None
            order, ends = self.model.sparse.training_order(rows, self.seed)
            theta = theta[order]
        # (As a process has them that is told by JSON.)
        mode, rule, staleness = (from_json(to_json(choice)) for choice in self.choices)
        shards, owners = self._shards(mode[0], rule, staleness), self._owners(source)
        return LedMode(
            mode,
            rule,
            staleness,
            theta,
            ends,
            self.all_workers,
            self.all_workers // self.workers,
            self.batch_size,
            None if self.batches is None else int(self.batches),
            self.mode.commands(),
            model_file.description(self.model),
            self._led_config,
            record=self._record(Servers(shards, owners) if shards else None),
            shards=shards,
            tables=[
                (one.name, one.dim, one.rows or 0) for one in getattr(self.model, "tables", ())
            ],
            owners=owners,
            reduces=self.reduces,
            updates=self.until.updates,
            order=order,
        )

    def _owners(self, source: _core.GradientSource) -> list[int]:
        """Of each table which of several policy servers has its rows; nothing: there is one."""
        tables = getattr(self.model, "tables", ())
        if getattr(self.cluster, "policy_servers", 1) == 1 or not tables:
            return []
        place: Any = self.cluster
        owners: list[int] = place.owners(tables, source.features_of_tables)
        return owners

    def _shards(self, mode: str, rule: Choice, staleness: Choice) -> list[list[tuple[int, int]]]:
        """What each of several policy servers has; nothing: there is one."""
        if getattr(self.cluster, "policy_servers", 1) == 1:
            return []
        _core.check_parts(mode, rule, staleness)
        place: Any = self.cluster
        spans: list[list[tuple[int, int]]] = place.spans(self.model)
        return spans

    @property
    def _led_config(self) -> dict[str, Any]:
        """What was asked for, as of one run of all workers."""
        mode = {**self.told["mode"], "workers": self.all_workers}
        told = {name: value for name, value in self.told.items() if name != "look_ahead"}
        return {**told, "threads": self.all_workers, "mode": mode}

    def _record(self, servers: Servers | None) -> tuple[str, str] | None:
        """The file that a mode's server in another process writes, and its header; None: this one starts
        none, or nothing is recorded. ``servers``: there are several.

        Raises:
            ValueError: there are more workers than a replay has.
        """
        if self.observe.record is None or getattr(self.cluster, "index", 0) != 0:
            return None
        check_recorded(self.all_workers)
        path, header, _ = recording(
            self.observe.record,
            self.model,
            self.train_set,
            self.choices,
            self._led_config,
            self.theta,
            None,
            tables={},
            mode=True,
            servers=servers,
        )
        return path, header


def of(
    model: AnyModel,
    data: AnyData,
    *,
    threads: int | str | None = None,
    validation: Any = None,
    init: str | ArrayLike | Init | None = None,
    mode: Mode | str | None = None,
    observe: Observe | Callable[..., object] | None = None,
    checkpoint: str | os.PathLike[str] | resuming.Kept | Checkpoint | None = None,
    resume: resuming.Resume | None = None,
    cluster: Cluster | None = None,
    old: Mapping[str, Any] | None = None,
    batch_size: int | None = None,
    dense: str = abilities.DENSE[0],
    **choices: Any,
) -> ThreadRequest:
    """The arguments of ``leashed.train``, checked.

    Raises:
        OSError: a checkpoint cannot be read, or a record not written.
        TypeError, ValueError: something is wrong; the message names it.
    """
    names = ("init", "mode", "observe", "checkpoint", "cluster")
    told = dict(old or {})
    of_table = {name: told.pop(name, None) for name in _OF_TABLES}
    data, validation = rows_of(model, data, validation, **of_table, seed=choices.get("seed", 0))
    given = options(init, mode, observe, checkpoint, cluster, told, names)
    observe, checkpoint, cluster = given.observe, given.checkpoint, given.cluster
    if (resuming_ := getattr(cluster, "resuming", None)) is not None:
        cluster, resume = resuming_(resume)
    if observe.record is not None and getattr(cluster, "begins", None) is not None:
        abilities.check({"record": True, "mode": True, "resume": True})
    sync = getattr(cluster, "sync", None)
    auto = isinstance(threads, str) and threads == "auto"
    # (Rows of embedding servers are asked for by their store.)
    ahead = getattr(cluster, "ahead", 0) if getattr(cluster, "policy_servers", 0) else 0
    request = asked(
        model,
        data,
        validation,
        mode=given.mode,
        workers=lambda discipline: lanes_of(
            threads_of(None if auto else threads, discipline), ahead
        ),
        batch_size=batch_size,
        init=given.init,
        observe=observe,
        resume=resume,
        dense=dense,
        also={
            "sync": sync,
            "cluster": cluster,
            **abilities.of_cluster(cluster),
            'threads="auto"': auto,
            "checkpoints of the run": getattr(cluster, "begins", None),
            "resume": None if isinstance(resume, (resuming.Left, resuming.AtCut)) else resume,
            "checkpoint": checkpoint,
            "checkpoint.every": checkpoint and checkpoint.every,
            "checkpoint.updates": checkpoint and checkpoint.updates,
            "checkpoint.incremental": checkpoint and checkpoint.incremental,
        },
        **choices,
    )
    if checkpoint is not None and checkpoint.path is None:
        raise ValueError("checkpoint.path must be given: it names what is written")
    if observe.record is not None and getattr(cluster, "index", 0) == 0:
        checks.writable(Path(observe.record))
    counting = None
    if observe.metrics is not None:
        counting = _counting(observe.metrics, request.model, data, request.train_set)
    if cluster is not None:
        from leashed.sync import check as check_synchronised  # noqa: PLC0415 (seldom asked for)

        sync = check_synchronised(None, cluster)
    if request.tables:
        _check_kept(checkpoint=checkpoint and checkpoint.path, resume=resume)
    told = request.config()
    if ahead:
        told |= {"threads": request.workers // (1 + ahead), "look_ahead": ahead}
    if request.full_size != request.batch_size:
        told[resuming.FULL_SIZE] = request.full_size
    if sync is not None:
        told["sync"] = sync.label
    begun = resuming.begin(resume, request.model, told, request.tables, request.full_size)
    if begun.folder is not None:
        told["resumed_exact"] = begun.folder.exact
    if begun.training is not None:
        told["resumed_at"] = begun.training.updates
    return ThreadRequest(
        **vars(request),
        auto=auto,
        checkpoint=checkpoint,
        begun=begun,
        # (A cluster says whether it goes on from what one of its processes has left.)
        left=begun.position if isinstance(resume, resuming.Left) else None,
        cluster=cluster,
        sync=sync,
        told=told,
        counting=counting,
        says_bad=of_table["bad"] is not None,
        reduces=dense == abilities.ALL_REDUCE,
    )


def _counting(
    metrics: Progressive, model: AnyModel, data: Any, train_set: Any
) -> tuple[NDArray[np.uint64] | None, int]:
    """Whose each row is, and how many rows of users to keep, for the core."""
    if not isinstance(metrics, Progressive):
        raise TypeError(f"metrics must be leashed.metrics.progressive(...), got {metrics!r}")
    known: Any = None if isinstance(model, External) else model
    of_one = known is not None and known.loss == "log_loss" and known.classes == 2
    if not of_one and not getattr(known, "heads", 0):
        raise ValueError(
            f"metrics are of models of one output with the loss log_loss, and of several heads, which "
            f"{model.name} is not; leave them out"
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
    """ValueError where all that it has are rows."""
    if not model.dimension:
        raise ValueError(
            f"model {model.name} has no parameters but its tables' rows; give it a layer, such as "
            ">> Dense(1)"
        )


def tables_for(
    model: AnyModel,
    given: Mapping[str, Table] | None,
    rule: Rule | str,
    staleness: Policy | str,
    seed: int,
) -> dict[str, Table]:
    """Those given, or new ones, of a model that reads tables; of others none."""
    described = model.tables if isinstance(model, (Graph, External)) else ()
    if given is None:
        return new_tables(described, rule=rule, staleness=staleness, seed=seed)
    check_tables(described, given)
    return {one.name: given[one.name] for one in described}


def _check_init(init: Init, model: AnyModel) -> None:
    """ValueError where parameters are given to begin with, and not the rows of their tables."""
    given = isinstance(init.parameters, str) or init.tables is not None
    if given or not getattr(model, "tables", ()):
        return
    raise ValueError(
        f"init is given without tables, so that the rows that model {model.name} reads would be new; "
        "give init=leashed.Init(parameters, result.tables) with those of the training that it is from, or "
        "leashed.tables.of(model.tables, rule=rule, seed=seed) to begin with untrained rows"
    )


def threads_of(threads: object, discipline: Discipline) -> int:
    """So many; None: as many as there are processors, under ``Sequential`` one."""
    if threads is None:
        threads = 1 if isinstance(discipline, Sequential) else cores()
    if isinstance(threads, str):
        raise TypeError(f'threads must be a whole number or "auto", got {threads!r}')
    threads = checks.whole("threads", threads, maximum=MAX_THREADS)
    if isinstance(discipline, Sequential) and threads != 1:
        raise ValueError(
            f"threads must be 1 with Sequential, got {threads}; choose another discipline"
        )
    return threads
