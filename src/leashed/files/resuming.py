"""Checkpoints that a run goes on from: taken while it trains, resumed bit for bit. On top of what
``checkpoint`` and ``model_file`` say of files.
"""

from __future__ import annotations

import errno
import json
import math
import os
import threading
from collections.abc import Callable, Mapping
from functools import partial
from itertools import zip_longest
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from leashed import _core
from leashed.base import checks
from leashed.base.warning import warn
from leashed.datasets.columns import UNKNOWN, Columns
from leashed.datasets.moments import Moments
from leashed.files import checkpoint, folders, model_file
from leashed.files.model_file import BEHIND, LAST_UPDATES, MODE, Content
from leashed.models._running import Running, averaged
from leashed.models.external import External
from leashed.models.factorisation import FactorisationMachine
from leashed.models.graphs import Graph
from leashed.models.network import Model
from leashed.models.tables import Table

if TYPE_CHECKING:
    from leashed.sync import Position

__all__ = [
    "FULL_SIZE",
    "NUMBERS",
    "AnyFiles",
    "AtCut",
    "AtEnd",
    "Before",
    "Begun",
    "Checkpointer",
    "From",
    "Kept",
    "Left",
    "OtherData",
    "Reached",
    "Resume",
    "TableCheckpointer",
    "before",
    "begin",
    "contents",
    "put",
    "resume",
    "statistics",
    "updates_in",
]

AnyModel: TypeAlias = "Model | FactorisationMachine | Graph | External"
# What a run must be continued with, and how a message calls it.
_SAME = {
    "rule": "rule",
    "staleness": "staleness",
    "seed": "seed",
    "sparse": "whether data is sparse",
    "examples": "the number of examples in data",
    "batch_size": "batch_size",
    "mode": "mode",
}
# The batch size by default of a run whose data, as those of one day of several, have fewer examples.
FULL_SIZE = "full_batch_size"
# What the numbers of a run, which are standardised, came to before its first row.
NUMBERS = "numbers_begun"
# What the runs had in common that could be resumed before those on sparse rows could.
_BEFORE_SPARSE = {"sparse": False, "decay": (0.0, [], 0)}
_NO_MODE = {"mode": None}
_ALONE: dict[str, Any] = {"open": [], "run": ""}  # what runs in no cluster do not tell


class Kept:
    """A checkpoint in memory, for a run in several calls of ``leashed.train`` with the same
    arguments but for ``until``: given as ``checkpoint`` and as ``resume``.

    Attributes:
        reached: where the last call ended; None before the first.
        statistics: the running ones that it ended with, of a model that has any.
        batch_size: that of the calls; None: it is not known.
        numbers: what their numbers, which are standardised, came to before the first one; None: they stay
            as they are.
    """

    def __init__(self) -> None:
        self.numbers: Moments | None = None
        self.reached: _core.Resumption | None = None
        self.batch_size: int | None = None
        self.statistics: Running | None = None

    @classmethod
    def at(cls, vectors: NDArray[np.float32], updates: int, batches: int) -> Kept:
        """To go on from parameters and the rule's states, [1 + S, d], that so many updates have
        led to, with that batch of data that may be another; under no staleness policy.
        """
        kept, nothing = cls(), np.empty(0, np.float32)
        kept.reached = _core.Resumption(
            vectors=vectors,
            last_updates=nothing,
            updates=updates,
            batches=batches,
            initial_loss=math.nan,
            staleness=[],
            behind=nothing,
            shrink=(0.0, [], 0),
        )
        return kept

    def go_on(self, batch_size: int) -> _core.Resumption | None:
        """Where a call with batches of that size begins; None: at the beginning.

        Raises:
            ValueError: the call before had batches of another size.
        """
        if self.reached is not None and self.batch_size not in (None, batch_size):
            raise ValueError(
                f"cannot resume: batch_size was {self.batch_size} and is {batch_size}; give the same"
            )
        return self.reached

    def __call__(self, reached: _core.Resumption) -> None:
        self.reached = reached
        self.statistics = averaged(reached.running)


class From(NamedTuple):
    """A checkpoint to go on from otherwise than ``resume=path`` does: given as ``resume``.

    Attributes:
        path: the file, or the folder.
    """

    path: Path


class OtherData(From):
    """With other data, from their first batch on, as a day's run goes on from that of the day before."""


class AnyFiles(From):
    """Whatever the files of its stream are now, for who compares them himself."""


class Left(From):
    """That a process of a cluster's run may have left for the one after it: gone on from where it is
    there and of the same run.
    """


class AtCut(From):
    """A trainer's file of a checkpoint of its whole run, whose rows of tables servers begin with."""


class AtEnd(AtCut):
    """One of a run of which all batches are used, with other data."""


Resume: TypeAlias = "str | os.PathLike[str] | Kept | From"


class Checkpointer:
    """Writes checkpoints on a thread of its own, so that the monitor waits for no disk, and nothing
    that a signal's handler raises, which is on the main thread, ends a file half-way.

    At every moment the file is the newest one complete. Where writing fails, a RuntimeWarning says
    why, training goes on and the file stays as it was; so it does where parameters are no longer
    finite. Where states alone are not, it is written, and one warning tells.

    Args:
        path: the file; of a model that reads tables the folder, which is made where it is not there.
        model: what is trained.
        config: what ``leashed.train`` was asked for, as JSON's own types.
        tables: by name, those that the model reads; their rows are written while workers go on
            changing them.
        paused: states come while no worker goes on, and each is written before it does: rows are
            exact then.
        incremental: whether of rows only those are written that have changed.
        begun: what the run goes on from; of states that were infinite by then nothing is told.
        moments: what numbers come to when so many batches have been used; None: what ``config`` says.

    Attributes:
        path: as given.
        position: tells how far the run is that the training is a part of; None: it is not.
        last_update: where all workers have ended, the updates they made; None before.

    Raises:
        OSError: the file or the folder could not be written, or has something else in it; found before
            training, not after.
        ValueError: a file cannot hold the model's description.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        model: AnyModel,
        config: dict[str, Any],
        tables: Mapping[str, Table] | None = None,
        *,
        paused: bool = False,
        incremental: bool = False,
        begun: _core.Resumption | None = None,
        moments: Callable[[int], Moments | None] | None = None,
    ) -> None:
        from concurrent.futures import ThreadPoolExecutor  # noqa: PLC0415 (seldom asked for)

        self.path = Path(path)
        self._model = model
        self._config, self._moments = config, moments
        self._tables = tables or {}
        self._paused, self._incremental = paused, incremental
        self._written: int | None = None
        self.last_update: int | None = None
        model_file.description(model)  # so that what no file can hold is said now
        if self._tables:
            folders.prepare(self.path)
        else:
            checks.writable(self.path)
        self._thread = ThreadPoolExecutor(1, "leashed-checkpoint")
        # It is started now: a handler that raises while it is leaves one that nobody waits for.
        self._thread.submit(int).result()
        self._lock = threading.Lock()
        self._newest: Reached | None = None  # to be written
        # Held while the thread has something to write. A bare lock: what a handler raises while it is
        # waited for leaves it as it was.
        self._writing = threading.Lock()
        self._handed: _core.Resumption | None = None  # that is waited for
        self._failure: BaseException | None = None
        self._still_before = 0 if begun is None else _still_in(begun.vectors)  # which was told then
        self._still = 0  # parameters that stand still, where there are more
        self._told_still = False
        self.position: Callable[[], Position] | None = None
        self._run: Position | None = None  # as of before the next state

    def __enter__(self) -> Checkpointer:  # noqa: PYI034 (Self is of Python 3.11)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        try:
            self._wait()
            if error is None:
                self._end()
        except BaseException:
            if error is None:
                self._wait()  # the file is there before it is passed on; a second one is at once
            raise
        finally:
            self._thread.shutdown(wait=not self._writing.locked())
        self._warn()

    def look(self) -> None:
        """To be called before a state is copied: what the run has used by then is in that state."""
        if self.position is not None:
            self._run = self.position()

    def __call__(self, reached: _core.Resumption) -> None:
        """Write this; if another is being written, then afterwards, unless a newer one has come. Of
        ``paused`` ones all are written before it returns.

        What a signal's handler raises meanwhile is passed on, and ends no writing: called with the
        same state again, it goes on.
        """
        self._warn()
        if reached is not self._handed:
            with self._lock:
                self._newest = Reached(reached, self._run)
                if not self._writing.locked():
                    writing = threading.Lock()
                    writing.acquire()
                    self._thread.submit(self._write, writing)
                    self._writing = writing
        if self._paused:
            self._handed = reached
            self._wait()
            self._handed = None

    def require(self, updates: int) -> None:
        """OSError where the state that came last, with so many updates, is not written."""
        if self._written != updates:
            raise OSError(
                errno.EIO, "rows of tables could not be kept; make room there", str(self.path)
            )

    def _put(self, reached: Reached) -> None:
        self._written = None
        told = self._contents(reached)

        def put_model(file: Path) -> None:
            model_file.write(file, self._model, *told)

        if self._tables:
            folders.write(
                self.path,
                self._tables,
                put_model,
                exact=self._paused,
                incremental=self._incremental,
            )
        else:
            put_model(self.path)
        self._written = reached.training.updates

    def _end(self) -> None:
        """All is written, and the run has ended without an exception. The last state is handed over
        when no worker is left, so its tables are of that moment.
        """
        if self._tables and self._written is not None and self._written == self.last_update:
            self._thread.submit(self._try, partial(folders.mark_exact, self.path))

    def _contents(self, reached: Reached) -> tuple[dict[str, NDArray[Any]], dict[str, str]]:
        if not self._still and (found := _still_in(reached.training.vectors)) > self._still_before:
            self._still = found
        config, moments = self._config, self._moments
        now = None if moments is None else moments(reached.training.batches)
        if now is not None:
            config = {**config, "columns": {**config["columns"], "moments": now.to_json()}}
        return contents(self._model, *reached, config)

    def _wait(self) -> None:
        """Until all that was handed over is written."""
        with self._writing:
            pass

    def _write(self, writing: threading.Lock) -> None:
        while True:
            with self._lock:
                reached, self._newest = self._newest, None
                if reached is None:
                    writing.release()
                    return
            self._try(partial(self._put, reached))

    def _try(self, work: Callable[[], None]) -> None:
        """Of the thread, which runs no handler: whatever is raised is the work's own."""
        try:
            work()
        except BaseException as error:  # noqa: BLE001 (told by the thread that trains)
            self._failure = error

    def _warn(self) -> None:
        if self._failure is not None:
            why = str(self._failure) or type(self._failure).__name__
            self._failure = None
            warn(f"no checkpoint was written to {self.path}: {why}")
        if self._still and not self._told_still:
            self._told_still = True
            warn(
                f"{self._still:,} of {self._model.dimension:,} parameters of {self._model.name} stand "
                "still, since the rule's states beside them are infinite; scale the features, or give "
                "the rule clip_value="
            )


TableCheckpointer = Checkpointer  # its old name, of models with tables


class Reached(NamedTuple):
    """How far a training is, and the run that it is a part of."""

    training: _core.Resumption
    run: Position | None


def contents(
    model: AnyModel,
    reached: _core.Resumption,
    position: Position | None,
    config: dict[str, Any],
) -> tuple[dict[str, NDArray[Any]], dict[str, str]]:
    """A checkpoint's tensors and metadata. ValueError where parameters are not finite: the last
    checkpoint before that is worth more.
    """
    theta, *states = reached.vectors
    if wrong := np.count_nonzero(~np.isfinite(theta)):
        raise ValueError(
            f"{wrong:,} of {theta.size:,} parameters are not finite after {reached.updates:,} updates"
        )
    tensors: dict[str, NDArray[Any]] = {**model_file.parts(model, theta)}
    for k, state in enumerate(states, 1):
        tensors |= model_file.parts(model, state, model_file.state(k))
    if reached.behind.size:
        tensors |= model_file.parts(model, reached.behind, BEHIND)
    if reached.last_updates.size:
        tensors[LAST_UPDATES] = reached.last_updates
    numbers, vectors = reached.mode
    if numbers.size:
        tensors = {MODE[0]: numbers, MODE[1]: vectors, **tensors}
    counts = np.trim_zeros(np.asarray(reached.staleness, np.uint64), "b").tolist()
    told = dict(config)
    columns = model_file.columns_told(Columns.from_json(told.pop("columns", {})))
    run = {
        **told,
        "updates": reached.updates,
        "batches": reached.batches,
        "initial_loss": reached.initial_loss if math.isfinite(reached.initial_loss) else None,
        "staleness_counts": counts,
        "decay": reached.shrink,
    }
    if position is not None:
        run |= position._asdict()
    if (statistics := averaged(reached.running)) is not None:
        tensors[model_file.STATISTICS] = statistics.values
        run["statistics"] = statistics.config()
    return tensors, {"run": json.dumps(run), **columns}


def put(
    model: AnyModel,
    reached: _core.Resumption,
    config: dict[str, Any],
    path: Path,
    position: Position,
) -> None:
    """Write a checkpoint of a run that is a part of another, which has come to that position; without
    tables. ValueError as of ``contents``; OSError where it cannot be written.
    """
    model_file.write(path, model, *contents(model, reached, position, config))


def _still_in(vectors: NDArray[np.float32]) -> int:
    """How many finite parameters have a state that is not, such as a sum of squares beyond float32's
    range: by it their steps are 0.
    """
    theta, states = vectors[0], vectors[1:]
    return int(np.count_nonzero(np.isfinite(theta) & ~np.isfinite(states).all(axis=0)))


class Begun(NamedTuple):
    """What a run goes on from.

    Attributes:
        training: for the core; None: the run begins.
        position: how far the run of which it is a part was; None: it is not known.
        statistics: the running ones, of a model that has any.
        folder: whose rows the tables are to get; None: there are none.
    """

    training: _core.Resumption | None = None
    position: Position | None = None
    statistics: Running | None = None
    folder: folders.Opened | None = None


def begin(
    given: Resume | None,
    model: AnyModel,
    config: dict[str, Any],
    tables: Mapping[str, Table],
    batch_size: int,
) -> Begun:
    """What a run with that argument ``resume``, model, configuration, tables and batch size goes on from.
    No table has changed. ``config["columns"]`` becomes what the data or the checkpoint tells.

    Raises:
        OSError: a file is missing or cannot be read.
        ValueError: one is damaged, or of another run, model or tables.
    """
    if given is None:
        return Begun()
    if isinstance(given, Kept):
        return Begun(given.go_on(batch_size), statistics=given.statistics)
    path = given.path if isinstance(given, From) else given
    other_data, any_files = isinstance(given, (OtherData, AtEnd)), isinstance(given, AnyFiles)
    try:
        folder = folders.opened(path) if tables or folders.is_one(path) else None
        # (Whatever is wrong, and is told, is the folder's.)
        file = path if folder is None else folder.model
        content = model_file.read(file)
        _check_workers(file, content, config)
        if config.get("mode") is not None and (told := let_go(file, content)) is not None:
            warn(f"what policy servers had apart of each other is let go: {told}")
        training, position = resume(
            file, content, model, config, other_data=other_data, any_files=any_files
        )
        if folder is not None:
            folder.fit(tables)
            folder.require(tables, same_rule=True)
        return Begun(training, position, statistics(content), folder)
    except (OSError, ValueError) as error:
        if not isinstance(given, Left):
            raise
        if not isinstance(error, FileNotFoundError):
            warn(f"{path} is of no use, so this trainer begins with initial parameters: {error}")
    return Begun()


def let_go(path: str | os.PathLike[str], content: Content) -> str | None:
    """What a run has let go that goes on elsewhere than on the policy servers of then, each of which decided by
    itself; None: nothing.
    """
    told = (content.run or {}).get("let_go")
    if told is None or not (told["examples"] or told["again"]):
        return None
    return (
        f"{path} is of {told['servers']} policy servers, each of which decided by itself: gradients of "
        f"{told['examples']} examples that waited at some of them and not at all are let go, and batches of "
        f"{told['again']} examples are trained again of which some had made updates; on as many servers with the "
        "same shards nothing is"
    )


def _check_workers(
    path: str | os.PathLike[str], content: Content, config: Mapping[str, Any]
) -> None:
    """ValueError where a policy server's mode has other workers than there are to be threads, or no run
    can be read.
    """
    try:
        nodes = (content.run or {}).get("nodes")
    except ValueError as error:
        raise ValueError(f"cannot resume {path}: {error}") from error
    if nodes is not None and config.get("mode") is not None and nodes != config["threads"]:
        raise ValueError(
            f"cannot resume {path}: its mode has {nodes} workers and is to have {config['threads']}; give "
            f"threads={nodes}, or go on with a policy server, which takes any number"
        )


def resume(
    path: str | os.PathLike[str],
    content: Content,
    model: AnyModel,
    config: dict[str, Any],
    *,
    other_data: bool = False,
    any_files: bool = False,
) -> tuple[_core.Resumption, Position]:
    """What a checkpoint of a run of that model and configuration holds, and how far that run was; on
    ``other_data`` it begins with batch 0. ``config["columns"]`` becomes what the data or the
    checkpoint tells. Files of a stream that have been modified and have as many bytes, as copies
    have, are warned of.

    Raises:
        ValueError: it is without a run, or of another one, or of data with other columns, or in another
            order, or, unless ``any_files``, of other files.
    """
    if "run" not in content.metadata:
        raise ValueError(
            f"cannot resume {path}: it holds parameters but no run; begin one with them: {_anew(model)}"
        )
    if wrong := model_file.mismatch(content.model, model):
        raise ValueError(f"cannot resume {path}: {wrong}")
    try:
        here = Columns.from_json(config["columns"])
        config["columns"] = content.columns.agreed(here, "data", "of the run").to_json()
    except ValueError as error:
        raise ValueError(f"cannot resume {path}: {error}") from error
    try:
        run = {**_BEFORE_SPARSE, **_ALONE, **_NO_MODE, **json.loads(content.metadata["run"])}
        asked = {**_NO_MODE, **config}
        if other_data:
            run |= {"examples": config["examples"], "batches": 0, "open": [], "decay": (0.0, [], 0)}
            run["mode"] = asked["mode"] = None  # its machine begins anew
            run["batch_size"] = run.get(FULL_SIZE, run["batch_size"])
            asked["batch_size"] = config.get(FULL_SIZE, config["batch_size"])
        spans = [(span[0], span[1]) for span in run["open"]]
        from leashed.sync import Position  # noqa: PLC0415 (seldom asked for)

        position = Position(run["batches"], spans, run["run"])
        resumption = _resumption(path, content, run, asked)
        if not other_data:
            _check_order(path, model, run, config)
        if not (other_data or any_files):
            _check_files(path, model, run.get("files", []), config)
        return resumption, position
    except (KeyError, IndexError, TypeError, AttributeError) as error:
        raise ValueError(f"cannot resume {path}: its run lacks or has a wrong {error}") from error


def updates_in(path: str | os.PathLike[str]) -> int:
    """The updates that a checkpoint has, a file or a folder.

    Raises:
        OSError: it cannot be read.
        ValueError: it is damaged, or holds no run.
    """
    run = checkpoint.read_model(path).run
    if run is None:
        raise ValueError(f"{path} holds parameters but no run")
    return int(run["updates"])


class Before(NamedTuple):
    """What a run was that goes on.

    Attributes:
        batch_size: with which it goes on that is told none.
        columns: of its data.
        numbers: what its numbers, which are standardised, came to before the first row of the data with
            which it goes on; None: they stay as they are.
    """

    batch_size: int
    columns: Columns
    numbers: Moments | None = None


def before(given: Resume | None) -> Before | None:
    """None: a run begins, or ``begin`` tells what is wrong."""
    if given is None:
        return None
    if isinstance(given, Kept):
        batch_size = None if given.reached is None else given.batch_size
        return None if batch_size is None else Before(batch_size, UNKNOWN, given.numbers)
    try:
        content = checkpoint.read_model(given.path if isinstance(given, From) else given)
        run, columns = content.run or {}, content.columns
        begun = Moments.from_json(run[NUMBERS]) if NUMBERS in run else None
        numbers = columns.moments if isinstance(given, (OtherData, AtEnd)) else begun
        return Before(int(run.get(FULL_SIZE, run["batch_size"])), columns, numbers)
    except (OSError, KeyError, TypeError, ValueError):
        return None


def statistics(content: Content) -> Running | None:
    """The running statistics in a checkpoint; None: there are none."""
    if content.statistics is None:
        return None
    told = json.loads(content.metadata["run"])["statistics"]
    return Running(content.statistics, told["batches"], told["near_zero"])


def _resumption(
    path: str | os.PathLike[str], content: Content, run: dict[str, Any], config: dict[str, Any]
) -> _core.Resumption:
    here = json.loads(json.dumps(config))
    for one in (run, here):
        if one["mode"] is not None:
            one["mode"] = {k: v for k, v in one["mode"].items() if k != "examples"}
    for key, name in _SAME.items():
        if run[key] != here[key]:
            raise ValueError(
                f"cannot resume {path}: {name} was {_text(run[key])} and is {_text(here[key])}; "
                f"give the same, or begin a new run with {_anew(content.model)}"
            )
    model, tensors, _ = content
    prefixes = ["", *(model_file.state(k) for k in range(1, run["state_vectors"] + 1))]
    vectors = [model_file.whole(model, tensors, prefix) for prefix in prefixes]
    nothing = np.empty(0, np.float32)
    total, done, turn = run["decay"]
    loss = run["initial_loss"]
    return _core.Resumption(
        vectors=np.stack(vectors),
        last_updates=tensors.get(LAST_UPDATES, nothing),
        updates=run["updates"],
        batches=run["batches"],
        initial_loss=math.nan if loss is None else loss,
        staleness=run["staleness_counts"],
        behind=model_file.whole(model, tensors, BEHIND) if done else nothing,
        shrink=(total, done, turn),
        mode=None if run["mode"] is None else (tensors[MODE[0]], tensors[MODE[1]]),
    )


def _check_order(
    path: str | os.PathLike[str], model: AnyModel, run: dict[str, Any], config: dict[str, Any]
) -> None:
    """ValueError where a stream gives its rows in another order."""
    then, now = run.get("order"), config.get("order")
    if then is None or now is None or then == now:
        return
    differ = next(name for name in ("shuffle", "seed") if then.get(name) != now.get(name))
    raise ValueError(
        f"cannot resume {path}: {differ} of the stream was {then.get(differ)} and is "
        f"{now.get(differ)}; give the same, or begin a new run with {_anew(model)}"
    )


def _check_files(
    path: str | os.PathLike[str],
    model: AnyModel,
    then: list[dict[str, Any]],
    config: dict[str, Any],
) -> None:
    """ValueError where a stream's files are others; nothing is known of what is not read from files:
    that goes on as if it were the same, and ``config`` keeps the files of then.
    """
    now = config.get("files", [])
    if then and not now:
        config["files"] = then
        warn(
            f"{path} was begun with {_file_text(then[0])} and data is of no files now: whether its rows "
            "are the same is not known"
        )
    if not then or not now:
        return
    modified = []
    for k, (was, here) in enumerate(zip_longest(then, now), 1):
        if (told := _file_text(was)) != (given := _file_text(here)):
            raise ValueError(
                f"cannot resume {path}: file {k} of data was {told} and is {given}; "
                f"give the same, or begin a new run with {_anew(model)}"
            )
        if was["modified"] != here["modified"]:
            modified.append(Path(here["path"]).name)
    if modified:
        more = f" and {len(modified) - 1} more" if len(modified) > 1 else ""
        warn(
            f"{modified[0]}{more} of data has been modified since {path} was begun, and has as many "
            "bytes: rows that the run has used are passed over unread, so that it goes on as it would "
            f"have only with a copy; where rows are others begin a new run with {_anew(model)}"
        )


def _file_text(file: dict[str, Any] | None) -> str:
    """What is to be the same: a copy may lie in another folder."""
    return "none" if file is None else f"{Path(file['path']).name} of {file['bytes']:,} bytes"


def _anew(model: object) -> str:
    """The arguments that begin a run with what a file holds."""
    if getattr(model, "tables", getattr(model, "ids", ())):
        return "init=leashed.Init(leashed.load(folder, model, tables).parameters, tables)"
    return "init=leashed.load(path, model).parameters"


def _text(value: object) -> str:
    if isinstance(value, dict):
        settings = ", ".join(f"{k}={_text(v)}" for k, v in value.items() if k != "name")
        return f"{value.get('name', '')}({settings})"
    return "none" if value is None else str(value)
