"""A recorded run, made again by one thread."""

from __future__ import annotations

import math
import os
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from leashed import _core
from leashed import datasets as known
from leashed.base import checks
from leashed.base.choice import Choice
from leashed.base.warning import warn
from leashed.datasets import Dataset, SparseDataset, Split
from leashed.datasets.columns import Columns
from leashed.datasets.moments import Moments
from leashed.files import model_file
from leashed.files.resuming import NUMBERS
from leashed.models._columns import columns_of, keep
from leashed.models.external import Description, External
from leashed.models.factorisation import FactorisationMachine
from leashed.models.graphs import Graph
from leashed.models.network import Model
from leashed.models.tables import Table
from leashed.training import recordings
from leashed.training.options import Observe
from leashed.training.recordings import AnyModel
from leashed.training.sets import (
    AnyStream,
    Set,
    Streamed,
    head_of,
    sets_of,
    source_of,
    training_of,
)
from leashed.training.spelled import observers_of
from leashed.training.standard import standardised

__all__ = ["Applied", "Inspected", "Replay", "replay"]

_MOST = 2**64 - 1


@dataclass(frozen=True)
class Applied:
    """One gradient, or model, that was part of an update of a run.

    Attributes:
        worker: whose it was, from 0.
        batch: the number of its batch, by a mode of its lease.
        read: the version of the parameters that the gradient was computed on; of a worker's own
            model the one that it got last.
        staleness: τ, updates between that and this one.
        staleness_schedule: its part τˢ, those between the gradient and the update.
        tries: failed attempts to publish it.
        factor: what the staleness policy multiplied the gradient by; of a stage-aware policy the
            largest of the variables'.
        loss: mean loss of its batch at the parameters read; of several local steps the last one's.
    """

    worker: int
    batch: int
    read: int
    staleness: int
    staleness_schedule: int
    tries: int
    factor: float
    loss: float

    @property
    def staleness_compute(self) -> int:
        """τᶜ, updates while the gradient was computed."""
        return self.staleness - self.staleness_schedule


@dataclass(frozen=True)
class Inspected:
    """Numbers of one variable after an update, or of that update.

    Attributes:
        name: of the variable, and what of it.
        shape: of the variable.
        norm: the Euclidean norm.
        mean: the mean.
        least: the least value.
        most: the greatest value.
        not_finite: how many values are NaN or infinite.
    """

    name: str
    shape: tuple[int, ...]
    norm: float
    mean: float
    least: float
    most: float
    not_finite: int


@dataclass(frozen=True, eq=False)
class Replay:
    """What a recorded run was after some update.

    Attributes:
        model: what was trained.
        parameters: float32 [d], after that update.
        updates: how many there have been, from the run's beginning.
        applied: what the last of them was made of: a gradient; under ``Synchronous`` one of each
            worker; by a mode those, or the models, that it summed, in that order. Empty: the replay
            made no update.
        before: float32 [d], the parameters before the last update; empty without one. Where workers
            have models of their own and it is their mean that is looked at, before the last step
            on one of them.
        gradient: float32 [d], the gradient that it applied, before the rule clipped it or the
            policy damped it; of several their mean, by a mode with the policy's factors in it.
            Empty without one, and where models were summed.
        counts: gradients in the part of the trace that was read, by outcome: ``published``,
            ``dropped`` by the persistence bound or the mode, ``excluded`` by the staleness policy,
            ``given_up`` because the run ended. (A worker's next published gradient is read ahead.
            By a mode ``published`` are pushes that were kept.)
        ended: whether the trace holds the run's end, and this is it. Not where the run was killed,
            or still goes on, and not before its end.
        difference: the largest absolute difference between ``parameters`` and those that the run
            ended with, 0 where they are the same bit for bit; NaN unless ``ended``. Infinite where
            rows of tables are others than then: of these the trace has a digest alone.
        exact: whether the run is made again bit for bit: under every discipline but ``Hogwild``,
            of which one possible run is, that in which each read saw exactly the updates counted
            before it. (With one thread that is the one.)
        config: what ``leashed.train`` was asked for, and on which machine.
        tables: those that the model reads, by name, with their rows after that update.
        observed: what those found that ``Observe.counting`` names, by name.
    """

    model: AnyModel
    parameters: NDArray[np.float32]
    updates: int
    applied: tuple[Applied, ...]
    before: NDArray[np.float32]
    gradient: NDArray[np.float32]
    counts: dict[str, int]
    ended: bool
    difference: float
    exact: bool
    config: dict[str, Any]
    tables: dict[str, Table]
    observed: dict[str, float]

    @property
    def last(self) -> Applied | None:
        """The first of ``applied``; None: there is none."""
        return self.applied[0] if self.applied else None

    def inspect(self, name: str) -> list[Inspected]:
        """Numbers of a variable, such as ``"0.weight"``, or all of a layer, ``"0"``: of its values
        after the last update, of the gradient, and of what the update changed.

        Raises:
            ValueError: the model has no such variable or layer; the message lists those it has.
        """
        vectors = {"value": self.parameters}
        if len(self.gradient):
            vectors["gradient"] = self.gradient
        if len(self.before):
            with np.errstate(invalid="ignore"):
                vectors["change"] = self.parameters - self.before
        chosen = _chosen(self.model, name)
        parts = {what: model_file.parts(self.model, vector) for what, vector in vectors.items()}
        return [
            _inspected(f"{one} {what}", part[one]) for one in chosen for what, part in parts.items()
        ]


def _chosen(model: AnyModel, name: str) -> list[str]:
    """The variables that ``name`` is of, as ``Replay.inspect`` has it."""
    known = list(model_file.shapes(model))
    chosen = [one for one in known if one == name or one.startswith(f"{name}.")]
    if not chosen:
        raise ValueError(f"{model.name} has no variable {name!r}; choose one of {', '.join(known)}")
    return chosen


def _inspected(name: str, values: NDArray[np.float32]) -> Inspected:
    with np.errstate(all="ignore"):
        wide = values.astype(np.float64)
        return Inspected(
            name,
            values.shape,
            float(np.linalg.norm(wide.reshape(-1))),
            float(wide.mean()),
            float(wide.min()),
            float(wide.max()),
            int(np.count_nonzero(~np.isfinite(values))),
        )


def replay(
    trace: str | os.PathLike[str],
    model: AnyModel | None = None,
    data: Dataset | SparseDataset | Split | AnyStream | tuple[Any, ArrayLike] | None = None,
    *,
    until: int | None = None,
    inspect: str | None = None,
    observe: Observe | None = None,
) -> Replay:
    """Make a run again that ``leashed.train(..., observe=Observe(record=trace))`` has recorded, by
    one thread.

    Every gradient is computed anew on the version of the parameters that it was computed on then,
    and applied in the recorded order, with the recorded factor where the staleness policy adapts.
    Under ``Sequential``, ``Synchronous``, ``Locked`` and ``Leashed`` (leashed-sgd, Algorithms 2 and
    3), and by every mode, the parameters are those of the run bit for bit, at the same
    instruction-set level. By a mode the server hears once more what it heard, with the times of
    then, so that it decides the same. Under
    ``Hogwild`` (Algorithm 4), where a read sees parts of several versions, the replay is the run in
    which each saw exactly the updates counted before it: the same whenever it is made, and
    ``difference`` tells how far the recorded end is from it.

    Ctrl-C raises ``KeyboardInterrupt``.

    Args:
        trace: the file. One that a killed process has left is replayed up to the first update that
            is not in it.
        model: what was trained. Default: as the trace describes it, unless it is external.
        data: the training set that was given then; of a ``Split`` its training set, of a pair of
            arrays as ``leashed.train`` takes it. A stream is read anew; its files are to have the
            names, the bytes and the order of then. Default: ``datasets.synthetic_digits()``, where
            that was it.
        until: the number of updates, from the run's beginning, after which to stop. Default: all
            that were recorded.
        inspect: a variable or layer that ``Replay.inspect`` will be asked for: one that the model
            lacks is refused before anything is computed.
        observe: ``leashed.Observe(counting=…)`` alone: who looks on, whether or not they did then. They
            are told what they would have been told then; of a gradient that was dropped or excluded,
            which is not computed again, what became of it and no more.

    Returns:
        A ``Replay``.

    Raises:
        TypeError, ValueError: the trace is damaged, of a newer version, of another model, other
            data or another instruction-set level, or has not so many updates; or the model has no
            such variable. The message says which.
        OSError: the file cannot be read.
    """
    return replay_of(trace, None, model, data, until=until, inspect=inspect, observe=observe)


def replay_of(
    trace: str | os.PathLike[str],
    opened: tuple[Any, recordings.Header] | None,
    model: AnyModel | None = None,
    data: Any = None,
    *,
    until: int | None = None,
    inspect: str | None = None,
    observe: Observe | None = None,
) -> Replay:
    """As :func:`replay`; ``opened`` is what ``recordings.opened`` gave, where the trace is open already."""
    until = _MOST if until is None else checks.whole("until", until, 0, _MOST)
    observers = _observers(observe)
    again = again_from(trace, opened, model, data, observers, inspect)
    first = again.found.start["updates"]
    if until < first:
        raise ValueError(
            f"until is {until}, but {os.fspath(trace)} begins after update {first}; "
            "give at least that"
        )
    try:
        training = again.training()
        found = again.found
        made = _core.replay(
            again.native,
            training,
            found.mode,
            until,
            again.resumed,
            found.looks_up,
            found.servers.shards,
            found.servers.native,
        )
    except _core.Error as error:
        raise ValueError(f"cannot replay {os.fspath(trace)}: {error}") from error
    if until not in (_MOST, made["updates"]):
        raise ValueError(
            f"until is {until}, but {os.fspath(trace)} goes to update {made['updates']}; "
            "give at most that"
        )
    doubt(again, trace)
    if found.servers.shards and made["ended"] and math.isinf(made["difference"]):
        warn(
            f"rows in this replay of {os.fspath(trace)} are others than the run's: where a table was full at one "
            "of its policy servers, which ids had no room is not in the record; give tables more max_bytes"
        )
    return _replay(made, again.model, again.found, again.tables, again.given)


def doubt(again: Again, trace: str | os.PathLike[str]) -> None:
    """Warns of what the record of several policy servers has not, where it has no end."""
    if again.found.servers.shards and not again.native.ended:
        warn(
            f"{os.fspath(trace)} is of several policy servers, and has not what they said at the run's end: a "
            "part of a push that did not come to one of them is made again as if it had"
        )


class Again(NamedTuple):
    """A recorded run with what it is made again of.

    Attributes:
        native: the trace.
        found: what it says of its run.
        model, given: what was trained, on which data.
        tables: as they were then, by name.
        theta: the parameters that it began with, float32 [d]; ``resumed``: what it went on from.
        observers: who looks on, for the core.
    """

    native: Any
    found: recordings.Header
    model: AnyModel
    given: Set
    tables: dict[str, Table]
    theta: NDArray[np.float32]
    resumed: _core.Resumption | None
    observers: list[Choice]

    def training(self) -> _core.Training:
        """For the core; the rows of a stream are read from now on."""
        found, config = self.found, self.found.config
        if isinstance(self.given, Streamed):
            self.given.open(config["until"].get("epochs"), 1)
        return training_of(
            source_of(self.model, self.given),
            self.theta,
            head_of(self.given),
            discipline=found.discipline,
            rule=found.rule,
            staleness=found.staleness,
            workers=config["threads"],
            batch_size=config["batch_size"],
            seed=config["seed"],
            tables=[table.native for table in self.tables.values()],
            observers=self.observers,
        )


def again_from(
    trace: str | os.PathLike[str],
    opened: tuple[Any, recordings.Header] | None,
    model: AnyModel | None,
    data: Any,
    observers: list[Choice],
    inspect: str | None = None,
) -> Again:
    """As :func:`replay_of` has these; nothing is computed.

    Raises:
        TypeError, ValueError, OSError: as of :func:`replay`.
    """
    native, found = recordings.opened(trace) if opened is None else opened
    try:
        _check_isa(found)
        model = _model(found, model)
        given = _data(found, model, data)
        if not isinstance(given, Streamed):
            checks.whole("batch_size", found.config["batch_size"], maximum=len(given))
        if inspect is not None:
            _chosen(model, inspect)
        theta, resumed = _start(native.start, model.dimension, found)
        _check_tables(model, found)
        tables = recordings.new_tables(found.tables)
    except ValueError as error:
        raise ValueError(f"cannot replay {os.fspath(trace)}: {error}") from error
    return Again(native, found, model, given, tables, theta, resumed, observers)


def _observers(observe: Observe | None) -> list[Choice]:
    if observe is None:
        return []
    if not isinstance(observe, Observe):
        raise TypeError(f"observe must be leashed.Observe(counting=...), got {observe!r}")
    if observe != Observe(counting=observe.counting):
        raise ValueError(
            "observe of a replay has counting alone, since it evaluates and records nothing; "
            "leave progress, every, metrics and record out"
        )
    return observers_of(observe.counting)


def _model(found: recordings.Header, given: AnyModel | None) -> AnyModel:
    if given is None:
        if isinstance(found.model, Description):
            raise ValueError(
                "its model is external, and no file holds a gradient; give the model: "
                f"leashed.replay(trace, {found.model}, data)"
            )
        return found.model
    if not isinstance(given, (Model, FactorisationMachine, Graph, External)):
        raise TypeError(f"model must come from leashed.models, got {type(given).__name__}")
    if wrong := model_file.mismatch(found.model, given):
        raise ValueError(wrong)
    return given


def _check_tables(model: AnyModel, found: recordings.Header) -> None:
    """Before one is made, of whatever size."""
    remedy = "use an unaltered copy, and give the model of then"
    specs = model.tables if isinstance(model, (Graph, External)) else ()
    reads = [spec.name for spec in specs]
    if reads != list(found.tables):
        raise ValueError(
            f"its tables are {', '.join(found.tables) or 'none'}, but model {model.name} reads "
            f"{', '.join(reads) or 'none'}; {remedy}"
        )
    for spec in specs:
        size = {"dim": spec.dim, "rows": spec.rows}
        told = {key: found.tables[spec.name].get(key, value) for key, value in size.items()}
        if told != size:
            raise ValueError(
                f"its table {spec.name!r} has dim {told['dim']} and rows {told['rows']}, but model "
                f"{model.name} reads dim {spec.dim} and rows {spec.rows}; {remedy}"
            )


def _data(found: recordings.Header, model: AnyModel, data: Any) -> Any:
    then = found.data
    streamed = found.config["examples"] is None
    size = "a stream" if streamed else f"{then['examples']} examples"
    was = f"its data was {then['name']}, {size}"
    if data is None:
        data = known.synthetic_digits()
        if recordings.fingerprint(data.train) != then["fingerprint"]:
            raise ValueError(f"{was}; give the same as data")
    columns = Columns.from_json(found.config.get("columns", {}))
    given, _ = sets_of(model, data, None, columns)
    columns.agreed(columns_of(model, given), "data", "of the run")
    begun = found.config.get(NUMBERS)
    given, _, _ = standardised(given, None, None if begun is None else Moments.from_json(begun))
    now = recordings.fingerprint(given)
    if now == then["fingerprint"]:
        return given
    if isinstance(given, Streamed) != streamed:
        how = "read whole" if streamed else "a stream"
        raise ValueError(f"{was}, and data is {given.name}, {how}; give it as then")
    difference = (
        f" of files of other names, sizes or order than those of {given.name}"
        if streamed
        else f" with the fingerprint {then['fingerprint'][:12]}; data is {given.name}, "
        f"{len(given)} examples with {now[:12]}"
    )
    raise ValueError(f"{was}{difference}; give the same")


def _check_isa(found: recordings.Header) -> None:
    here, then = _core.default_isa(), found.config["isa"]
    if here != then:
        remedy = (
            f"set LEASHED_ISA={then}"
            if then in _core.available_isas()
            else "replay it on a machine that has it"
        )
        raise ValueError(
            f"it was recorded at the instruction-set level {then} and this is {here}, which rounds "
            f"otherwise; {remedy}"
        )


def _start(
    start: NDArray[np.float32], dimension: int, found: recordings.Header
) -> tuple[NDArray[np.float32], _core.Resumption | None]:
    """The parameters that the run began with, and what it went on from."""
    states = found.start["vectors"] * dimension
    if len(start) < states:
        raise ValueError("it ends before the run began")
    if not found.start["resumed"]:
        return start[:dimension], None
    total, done, turn = found.start.get("decay", (0.0, [], 0))
    end = len(start) - (dimension if done else 0)
    resumed = _core.Resumption(
        vectors=start[:states].reshape(-1, dimension),
        last_updates=start[states:end],
        updates=found.start["updates"],
        batches=found.start["batches"],
        initial_loss=math.nan,
        staleness=[],
        behind=start[end:],
        shrink=(total, done, turn),
    )
    return start[:dimension], resumed


def _replay(
    made: dict[str, Any],
    model: AnyModel,
    found: recordings.Header,
    tables: dict[str, Table],
    given: Set,
) -> Replay:
    name, _ = found.discipline
    columns = Columns.from_json(found.config.get("columns", {}))
    if isinstance(given, Streamed):
        columns = replace(columns, moments=given.moments())
    return Replay(
        model=model,
        parameters=keep(made["parameters"], columns),
        updates=made["updates"],
        applied=tuple(Applied(**part) for part in made["last"]),
        before=made["before"],
        gradient=made["gradient"],
        counts={name: made[name] for name in ("published", "dropped", "excluded", "given_up")},
        ended=made["ended"],
        difference=made["difference"] if made["ended"] else math.nan,
        exact=name != "hogwild" or found.config["threads"] == 1,
        config=found.config,
        tables=tables,
        observed=made["observed"],
    )
