"""Tables whose rows embedding servers hold, for loops that are not the engine's: looked up and updated by
calls (docs/cluster.md, "Tables for a loop of your own").

A thread that uses a table has a worker of the core's for it (``RowCalls``), until it ends: connections of its
own, and look-ups and pushes that are numbered by themselves. A call is that thread's alone, so nothing here
waits for another thread but the end.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import threading
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeVar, overload

import numpy as np
from numpy.typing import ArrayLike, NDArray

from leashed import _core
from leashed.base.warning import warn
from leashed.cluster.trainer_session import Output, Session
from leashed.models import TableSpec
from leashed.models.external import External, external
from leashed.models.row_table import RowTable, RowUpdate
from leashed.models.tables import Table
from leashed.rules import Rule
from leashed.staleness import Policy
from leashed.training.rows_read import RowsRead

if TYPE_CHECKING:
    from typing_extensions import Self

__all__ = ["ServedTable", "ServedTables", "asked", "table"]

T = TypeVar("T")

_MODEL = "tables"
_NUMBERS = 2**32  # of look-ups, as versions have them
_APART = 0x9E3779B1  # by which those of several threads and tables begin


def asked(
    described: Sequence[TableSpec],
    rule: Rule | str | None,
    staleness: Policy | str | None,
    seed: int,
) -> tuple[RowsRead, External]:
    """What is asked of embedding servers, and the model that stands for it in files.

    Raises:
        TypeError, ValueError: an argument is wrong; the message names it.
    """
    if isinstance(described, TableSpec) or not isinstance(described, Sequence) or not described:
        raise TypeError(
            f"tables must be a list of leashed.models.TableSpec, one at least, got {described!r}"
        )
    for i, one in enumerate(described):
        if not isinstance(one, TableSpec):
            raise TypeError(f"tables[{i}] must be a leashed.models.TableSpec, got {one!r}")
    model = external(_no_gradient, dimension=1, features=0, ids=list(described), name=_MODEL)
    if len(model.tables) < len(described):
        raise ValueError("tables has one TableSpec twice; a table is looked up by its name alone")
    tried = Table(dim=1, rows=1, rule=rule, staleness=staleness, seed=seed)
    features = list(range(len(model.tables)))
    read = RowsRead(model.tables, features, tried.rule, tried.staleness, tried.seed, apart=True)
    return read, model


def _no_gradient(*_: Any) -> float:
    """Of a model that is its tables: what is beside them is a loop's own."""
    raise NotImplementedError(
        "these tables were trained by a loop of one's own, which has the model"
    )


class ServedTables(Mapping[str, "ServedTable"]):
    """Tables of a run's embedding servers, by name, until they are closed; made by
    ``Cluster.tables``.

    As ``with cluster.tables(...) as tables`` they are closed at its end. A process that leaves the ``with``
    by an exception leaves the run as one that died: others go on, but where it was rank 0, whose children
    the servers are.

    Attributes:
        model: what stands for the tables in files, of which ``leashed.load(folder, model).tables`` reads
            the output, and ``leashed.cluster.tables_of(model, folders)`` what servers have saved.
        output: once it is closed, of rank 0: the ``folder`` of the output, and with ``collect=True`` of
            ``join`` its ``tables``; None: of other ranks, or where it could not be written.
    """

    def __init__(
        self, session: Session, read: RowsRead, model: External, threads: int, look_ahead: int
    ) -> None:
        self.model = model
        self.output: Output | None = None
        self._session = session
        self._process = os.getpid()
        self._counted: dict[str, float] = {}
        self._closing = threading.RLock()  # (a signal's handler may close what is being closed)
        self._is_open = True
        self._has_told = False  # of updates that came too late
        assert session.rows is not None
        self._rows = session.rows
        self._tables = {
            one.name: ServedTable(self, self._rows, number, read, threads, look_ahead)
            for number, one in enumerate(read.tables)
        }
        _open.add(self)

    def __getitem__(self, name: str) -> ServedTable:
        if name not in self._tables:
            raise KeyError(f"there is no table {name!r}; there are {', '.join(self._tables)}")
        return self._tables[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._tables)

    def __len__(self) -> int:
        return len(self._tables)

    # (As of an object that is open or closed, and no value.)
    __hash__ = object.__hash__
    __eq__ = object.__eq__

    @property
    def counters(self) -> dict[str, float]:
        """What this process has counted so far, by name, as the report of the run tells of a trainer.

        - ``lookups`` and ``rows``: look-ups that updates were to follow, and rows of them; ``reads``: others.
        - ``pushes``: updates; ``settled``: parts of these, one for each server that has rows of the table, of
          which it has told what became of them; of these ``not_finite`` and ``expired`` ones (rows that were
          held longer than ``patience``) were left out.
        - ``lost``: parts that were applied and went with a server that was started again; ``unsettled``:
          those of which nobody has told at the end.
        - ``cuts``: connections that ended; ``seconds`` and ``settling``: of waiting for rows, and for what
          was pushed to be applied; ``bytes_in`` and ``bytes_out``.
        """
        told = self._counted or self._session.metrics()
        names = ("row_pooled_", "row_kernel_", "row_least_", "row_all_")
        return {
            name.removeprefix("row_"): value
            for name, value in told.items()
            if name.startswith("row_") and not name.startswith(names)
        }

    @property
    def cut_short(self) -> str | None:
        """Why the run ended before this process had closed its tables; None: it did not."""
        return self._session.cut_short

    def settle(self) -> None:
        """Waits until all that this thread has pushed is applied.

        Raises:
            TimeoutError: an embedding server has not answered for ``patience`` seconds.
        """
        for one in self._tables.values():
            one.settle()

    def _tell_expired(self) -> None:
        """A warning, the first time that there are updates whose rows were let go before they came."""
        expired = int(self._rows.counters()["expired"])
        if expired and not self._has_told:
            self._has_told = True
            warn(
                f"embedding servers have left {expired:,} parts of updates out, whose rows were looked up longer "
                "before than they keep them; update sooner behind lookup(ids, versions=True), without its "
                "versions, or give join() more patience"
            )

    def close(self) -> None:
        """Ends this process's part in the run, once all that it has pushed is applied. The last one has the
        servers save all rows, and rank 0 waits for that and writes the output.

        Raises:
            TimeoutError: an embedding server has not answered for ``patience`` seconds. It is closed.
            ConnectionError: the run was over before all was applied. It is closed.
            RuntimeError: this thread is in a call of a table, which a signal's handler has interrupted. It is
                not closed.
        """
        self._close(finished=True)

    def _close(self, *, finished: bool) -> None:
        if os.getpid() != self._process:  # in a fork's child all of it is the parent's
            return
        if any(one._is_calling for one in self._tables.values()):
            raise RuntimeError(
                "tables cannot be closed within a call of one, as in a signal's handler: let it raise an "
                "exception, which ends the call, and close them behind that"
            )
        with self._closing:
            if not self._is_open:
                return
            try:
                self._is_open = False
                _open.discard(self)
                for one in self._tables.values() if finished else ():
                    one._finish()
                if finished:
                    self._tell_expired()
            except BaseException:
                finished = False
                raise
            finally:
                if not finished:  # nobody waits any more
                    self._rows.forsake()
                for one in self._tables.values():
                    one._leave()
                with self._session as session:
                    self._counted = session.metrics()
                    if finished:
                        pushes = self._counted.get("row_pushes", 0.0)
                        self._counted = session.finish(np.zeros(1, np.float32), {"updates": pushes})
                self.output = self._session.output

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        self._close(finished=error is None)

    def __repr__(self) -> str:
        return f"ServedTables({', '.join(self._tables)}{'' if self._is_open else ', closed'})"

    def __reduce__(self) -> Any:
        raise TypeError("served tables are of one process, and cannot be copied or pickled")


class ServedTable(RowTable):
    """A table whose rows embedding servers hold; ``ServedTables`` has those of a run by name.

        values, versions = table.lookup(ids, versions=True)
        table.update(ids, gradients(values), versions)

    is a step of a trainer's thread: rows are found once, with their versions, by which the staleness
    policy goes, and one message has the gradients. ``update`` without ``versions``, of other ids, or of
    several look-ups at once finds its rows by a look-up of its own first. An update is on its way when
    the call returns, and each is applied once, whatever is cut off; look-ups of the same thread see it.

    Any thread may use it, as many at once as ``threads`` of ``Cluster.tables`` says; each has connections
    of its own from its first call until it ends. No call keeps the GIL, and Ctrl-C ends one that waits. It is
    of this process alone: in a fork's child each call is a RuntimeError.

    Attributes:
        name, dim, rows: as of its ``TableSpec``.
        rule, staleness, seed: by which servers update and begin rows.
    """

    def __init__(
        self,
        tables: ServedTables,
        rows: _core.RemoteRows,
        number: int,
        read: RowsRead,
        threads: int,
        look_ahead: int,
    ) -> None:
        spec = read.tables[number]
        self.name, self.dim, self.rows = spec.name, spec.dim, spec.rows
        self.rule, self.staleness, self.seed = read.rule, read.staleness, read.seed
        self._tables = tables
        self._process = os.getpid()
        self._look_ahead = look_ahead
        self._threads = threads
        self._lock = threading.Lock()
        self._has_told = False  # of ids that were refused a row
        self._lanes: list[_Lane] = []
        self._free: list[_Lane] = []
        self._served = rows
        self._number, self._each = number, len(read.tables)
        self._of_thread = threading.local()

    @overload
    def lookup(
        self, ids: ArrayLike, *, versions: Literal[False] = False
    ) -> NDArray[np.float32]: ...
    @overload
    def lookup(
        self, ids: ArrayLike, *, versions: Literal[True]
    ) -> tuple[NDArray[np.float32], NDArray[np.uint32]]: ...

    def lookup(
        self, ids: ArrayLike, *, versions: bool = False
    ) -> NDArray[np.float32] | tuple[NDArray[np.float32], NDArray[np.uint32]]:
        """The rows of ``ids``, behind all updates of this thread.

        Args:
            ids: whole numbers, of any shape.
            versions: whether an update of them is to follow: then ids without a row may get one, and
                servers keep which rows and versions these are, of the last look-up of this thread, or of
                as many more as ``look_ahead`` of ``join`` says. Without, nothing changes.

        Returns:
            float32, shaped as ``ids`` with ``dim`` more; with ``versions`` also uint32, shaped as ``ids``,
            which tells ``update`` which look-up this is, and nothing else.

        Raises:
            TypeError, ValueError, IndexError: ids are no whole numbers, no rows of the table, or too many
                for a message (64 MiB of ids, 256 MiB of rows for a server).
            TimeoutError: an embedding server has not answered for ``patience`` seconds.
            ConnectionError: the run is over.
            RuntimeError: the tables are closed, this is a fork's child, or more than ``threads`` threads use
                the table.
        """
        wanted = self.check_ids(ids)
        flat = wanted.ravel()
        if not versions:
            values: NDArray[np.float32] = self._call(lambda lane: lane.calls.look(flat))
            return values.reshape(*wanted.shape, self.dim)
        found, name = self._call(lambda lane: lane.find(flat))
        return found.reshape(*wanted.shape, self.dim), np.full(wanted.shape, name, np.uint32)

    def prefetch(self, ids: ArrayLike) -> None:
        """Asks for the rows of a look-up to come, while something else is computed: ``lookup`` of the same
        ids with ``versions`` takes them, without the updates between.

        Args:
            ids: as of that ``lookup``.

        Raises:
            ValueError: as many are under way as ``look_ahead`` of ``join`` says.
            TypeError, IndexError, TimeoutError, ConnectionError, RuntimeError: as of ``lookup``.
        """
        flat = self.check_ids(ids).ravel()
        self._call(lambda lane: lane.ask_ahead(flat))

    def update(
        self, ids: ArrayLike, gradients: ArrayLike, versions: NDArray[np.uint32] | None = None
    ) -> RowUpdate:
        """One step of the table: the rule applied to the rows of ``ids``, those that come several times with
        the sum of their gradients, in their order. Steps count from all processes and threads.

        Args:
            ids: whole numbers, of any shape.
            gradients: shaped as ``ids`` with ``dim`` more; float32, or converted.
            versions: of the look-up of these ids, as ``lookup`` gives them. Default, and where they are of
                other ids, of several look-ups, or of one that is not kept any more: rows are looked up
                now, so that nothing is stale.

        Returns:
            What became of this thread's updates before, as far as servers have told since that was said
            last: an update is not waited for (``settle`` does).

        Raises:
            TypeError, ValueError, IndexError: an argument is wrong, or a gradient not finite; the
                message names it. Nothing has changed.
            TimeoutError, ConnectionError, RuntimeError: as of ``lookup``; nothing is pushed.
        """
        wanted = self.check_ids(ids)
        single = self._gradients(wanted, gradients)
        known = self._versions(wanted, versions)
        names = [] if known is None else np.unique(known).tolist()
        return self._told(self._call(lambda lane: lane.update(wanted.ravel(), single, names)))

    def settle(self) -> RowUpdate:
        """Waits until all that this thread has pushed is applied.

        Returns:
            As ``update``.

        Raises:
            TimeoutError, ConnectionError, RuntimeError: as of ``lookup``.
        """
        told = self._told(self._call(lambda lane: lane.calls.finish()))
        self._tables._tell_expired()
        return told

    def _told(self, became: Mapping[str, Any]) -> RowUpdate:
        """What became of updates; of ids that were refused a row there is a warning, once."""
        told = RowUpdate(*(int(became[name]) for name in RowUpdate._fields))
        if told.refused and not self._has_told:
            self._has_told = True
            warn(
                f"table {self.name} is full at its embedding servers: ids are refused a row, and learn nothing; "
                'give join(tables={"max_bytes": ...}) more, or "evict" there, "age" or "norm", by which old '
                "rows make room"
            )
        return told

    def __repr__(self) -> str:
        size = "grows" if self.rows is None else f"rows={self.rows}"
        return f"ServedTable({self.name!r}, {size}, dim={self.dim}, rule={self.rule!r})"

    def __reduce__(self) -> Any:
        raise TypeError(
            f"table {self.name} is of embedding servers and this process, and cannot be copied or pickled"
        )

    def _call(self, f: Callable[[_Lane], T]) -> T:
        """What f makes of this thread's lane; its errors are those of calls."""
        if os.getpid() != self._process:
            raise RuntimeError(
                f"table {self.name} is of the process that has joined the run, and this is a child that it "
                "has forked: join there, or look rows up in the parent"
            )
        lane = self._lane()
        if (
            lane.is_calling
        ):  # this thread, which does not go on before its handler of a signal is over
            raise RuntimeError(
                f"table {self.name} is in a call of this thread, which a signal's handler has interrupted: let "
                "the handler raise an exception, which ends the call, or note what is to be done behind it"
            )
        with lane.lock:
            self._require_open()
            try:
                lane.is_calling = True
                return f(lane)
            except _core.RowsAway as error:
                raise self._away(error) from None
            finally:
                lane.is_calling = False

    @property
    def _is_calling(self) -> bool:
        """Whether this thread is."""
        lane: _Lane | None = getattr(self._of_thread, "lane", None)
        return lane is not None and lane.is_calling

    def _away(self, error: _core.RowsAway) -> OSError:
        why = self._tables.cut_short
        if why is None and not self._served.forsaken:
            return TimeoutError(f"table {self.name}: {error}")
        return ConnectionError(
            f"the rows of table {self.name} are gone: {why or 'the run is over'}"
        )

    def _require_open(self) -> None:
        if not self._tables._is_open:
            raise RuntimeError(
                f"table {self.name} is closed; call within the with of Cluster.tables(), or before close()"
            )

    def _lane(self) -> _Lane:
        """This thread's, which is another's when the thread has ended."""
        lane: _Lane | None = getattr(self._of_thread, "lane", None)
        if lane is not None:
            return lane
        self._require_open()
        with self._lock:
            if self._free:
                lane = self._free.pop()
                lane.begin_anew()
            elif len(self._lanes) < self._threads:
                worker = len(self._lanes) * self._each + self._number
                calls = _core.RowCalls(self._served, worker)
                lane = _Lane(calls, self._look_ahead, worker * _APART % _NUMBERS)
                self._lanes.append(lane)
            else:
                raise RuntimeError(
                    f"table {self.name} is used by {self._threads} "
                    f"{'thread' if self._threads == 1 else 'threads'} already; give threads={self._threads + 1}, "
                    "or more, to Cluster.tables()"
                )
        self._of_thread.lane = lane
        held = _Held()
        self._of_thread.held = held
        weakref.finalize(held, self._free.append, lane).atexit = False
        return lane

    def _finish(self) -> None:
        """What all threads have pushed is applied, unless the run is over."""
        for lane in self._lanes:
            with lane.lock:
                try:
                    self._told(lane.calls.finish())
                except _core.RowsAway as error:
                    if self._tables.cut_short is None:
                        raise self._away(error) from None

    def _leave(self) -> None:
        """No thread takes part any more."""
        for lane in self._lanes:
            with lane.lock:
                lane.calls.leave()


class _Held:
    """Goes with its thread."""


class _Looked(NamedTuple):
    """A look-up that the core keeps: its number there, and its ids, int64 [n]."""

    number: int
    ids: NDArray[np.int64]


class _Lane:
    """What a thread has of a table.

    Args:
        calls: the core's.
        look_ahead: look-ups that may be asked for before they are needed.
        name: of the first look-up, from 0 to 2³² − 1; one that no other lane comes to before long.

    Attributes:
        lock: of a call; only who closes waits for it. (Its thread may take it again, in a signal's handler.)
        is_calling: whether its thread is in the core.
    """

    def __init__(self, calls: _core.RowCalls, look_ahead: int, name: int) -> None:
        self.calls = calls
        self.lock = threading.RLock()
        self.is_calling = False
        self._look_ahead = look_ahead
        self._next = name
        # Those that the core keeps, by name, the oldest first. Where an interrupt came behind a call of it, it
        # may keep others.
        self._kept: dict[int, _Looked] = {}
        self._ahead: list[int] = []  # of these those that nobody has looked up yet

    def begin_anew(self) -> None:
        """For another thread, which has asked for nothing."""
        self._kept.clear()
        self._ahead.clear()

    def find(self, ids: NDArray[np.int64]) -> tuple[NDArray[np.float32], int]:
        """The rows of a look-up, and its name."""
        self._forget_dropped()
        ahead = (name for name in self._ahead if np.array_equal(self._kept[name].ids, ids))
        if (name := next(ahead, None)) is None:
            name = self._ask(ids)
        else:
            self._ahead.remove(name)
        return self.calls.values(self._kept[name].number), name

    def ask_ahead(self, ids: NDArray[np.int64]) -> None:
        """Asks for rows of a look-up to come."""
        self._forget_dropped()
        if len(self._ahead) >= self._look_ahead:
            raise ValueError(
                f"look_ahead is {self._look_ahead}, and {len(self._ahead)} prefetched look-ups wait for their "
                "lookup(ids, versions=True); look them up first, or join with a larger look_ahead"
            )
        self._ahead.append(self._ask(ids))

    def update(
        self, ids: NDArray[np.int64], gradients: NDArray[np.float32], names: Sequence[int]
    ) -> dict[str, Any]:
        """A step by the look-up of that name, where it is one; else by one of its own."""
        self._forget_dropped()
        kept = self._kept.get(names[0]) if len(names) == 1 else None
        if kept is None:
            given = None
        elif np.array_equal(kept.ids, ids):
            given = gradients
        else:
            given = _arranged(kept.ids, ids, gradients)
        if kept is None or given is None:
            _check_finite(ids, gradients)
            kept, given = self._kept[self._ask(ids)], gradients
        told: dict[str, Any] = self.calls.update(kept.number, given)
        self._forget_dropped()
        return told

    def _ask(self, ids: NDArray[np.int64]) -> int:
        number = self.calls.ask(ids)
        name, self._next = self._next, (self._next + 1) % _NUMBERS
        self._kept[name] = _Looked(number, ids.copy())  # the caller may change his
        self._forget_dropped()
        return name

    def _forget_dropped(self) -> None:
        """What the core does not keep any more."""
        for name in [k for k, one in self._kept.items() if not self.calls.keeps(one.number)]:
            del self._kept[name]
            if name in self._ahead:
                self._ahead.remove(name)


def _check_finite(ids: NDArray[np.int64], gradients: NDArray[np.float32]) -> None:
    """ValueError where gradients are not, or sums of those of an id: of the core too, but behind a look-up,
    by which ids may get a row.
    """
    most = float(np.finfo(np.float32).max) / max(1, len(ids))
    if not gradients.size or (gradients.max() <= most and gradients.min() >= -most):
        return
    each = gradients.reshape(len(ids), -1)
    for i, k in np.argwhere(~np.isfinite(each)).tolist():
        raise ValueError(f"gradients[{i}, {k}] is {each[i, k]}; every value must be finite")
    if not np.isfinite(_sums(ids, each)[2]).all():
        raise ValueError("the gradients of an id add up to what is not finite; scale them down")


def _sums(
    ids: NDArray[np.int64], gradients: NDArray[np.float32]
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float32]]:
    """Distinct ids, where each is first, and the sums of their gradients in their order."""
    distinct, first, place = np.unique(ids, return_index=True, return_inverse=True)
    sums = np.zeros((len(distinct), gradients.shape[1]), np.float32)
    with np.errstate(over="ignore", invalid="ignore"):
        np.add.at(sums, place.ravel(), gradients)
    return distinct, first, sums


def _arranged(
    kept: NDArray[np.int64], ids: NDArray[np.int64], gradients: NDArray[np.float32]
) -> NDArray[np.float32] | None:
    """Gradients of ids, added up in their order, as those of a look-up of the same ids in another order,
    or other numbers of each; None: they are not the same, or something is not finite.
    """
    distinct, first = np.unique(kept, return_index=True)
    own, _, sums = _sums(ids, gradients.reshape(len(ids), gradients.size // max(1, len(ids))))
    if not np.array_equal(distinct, own) or not np.isfinite(sums).all():
        return None
    found = np.zeros((len(kept), sums.shape[1]), np.float32)
    found[first] = sums
    return found.ravel()


_open: set[ServedTables] = set()


@atexit.register
def _close_all() -> None:
    """Before the interpreter goes, which threads of runs may want."""
    for tables in list(_open):
        if tables._process != os.getpid():
            continue
        with contextlib.suppress(Exception):  # nobody is there to hear of it
            warn(
                f"tables {', '.join(tables)} of embedding servers were not closed before the end of the process, "
                "which leaves the run as one that died: call close(), or use with"
            )
        with contextlib.suppress(Exception):
            tables._close(finished=False)


def table(name: str, tables: ServedTables | None = None) -> ServedTable:
    """The table of that name whose rows embedding servers hold, of what ``Cluster.tables`` has opened.

        with lsh.cluster.join(embedding_servers=2, folder="run").tables([users, items]):
            embedding = lsh.torch.Embedding(table=lsh.cluster.table("users"))

    Args:
        name: of the table.
        tables: in which to look. Default: those that are open in this process, where they are of one
            run.

    Raises:
        KeyError: there is none of that name; the message has those that there are.
        RuntimeError: nothing is open, or tables of several runs are.
    """
    if tables is None:
        of = [one for one in _open if one._process == os.getpid()]
        if not of:
            raise RuntimeError(
                "no tables of embedding servers are open in this process; open them with "
                "leashed.cluster.join(embedding_servers=1, ...).tables([...])"
            )
        if len(of) > 1:
            raise RuntimeError(
                f"tables of {len(of)} runs are open; say of which: leashed.cluster.table({name!r}, tables)"
            )
        tables = of[0]
    return tables[name]
