"""Tables of rows that are found by an id: embeddings, which any number of threads read and update
row by row, without a lock (docs/tables.md).
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, Literal, NamedTuple, Protocol, overload

import numpy as np
from numpy.typing import ArrayLike, NDArray

from leashed import _core, schedules
from leashed import staleness as policies
from leashed.base import checks, choice, memory
from leashed.base.choice import Choice
from leashed.base.warning import warn
from leashed.models.row_table import RowTable, RowUpdate
from leashed.rules import RULES, SWAP, Adagrad, Momentum, Rule, Stepping, check_rule
from leashed.staleness import Policy

__all__ = [
    "Initial",
    "Part",
    "RowUpdate",
    "RowwiseAdagrad",
    "Table",
    "constant",
    "normal",
    "of",
    "uniform",
    "zeros",
]

_MOST_BYTES = 2**62
_MOST_ROWS = 2**32 - 3
_MOST_DIM = 2**20
_MOST_SIGHTINGS = 255
SHARE = 0.25  # of the machine's memory, for the tables of a model that grow
_BESIDE = 64  # bytes of a row in the index, about
_UNKNOWN = 2**24  # bytes of each, where nothing tells how much that is
_SMALL = 2**24  # bytes
_SMALL_ROWS = 256
SHARDS = 256  # of the ids of a table that several processes share


@dataclass(frozen=True)
class Initial:
    """What rows begin with; made by ``zeros``, ``constant``, ``uniform`` or ``normal``. A row's
    values depend on the table's seed and the row's id alone.
    """

    native: str
    settings: tuple[tuple[str, float], ...] = ()

    def choice(self) -> Choice:
        """What the native core makes it from."""
        return self.native, dict(self.settings)

    @property
    def expected(self) -> float:
        """The mean of what rows begin with."""
        return dict(self.settings).get("value", 0.0)


def zeros() -> Initial:
    """Rows begin with 0."""
    return Initial("zeros")


def constant(value: float) -> Initial:
    """Rows begin with ``value`` everywhere.

    Raises:
        TypeError, ValueError: it is not a finite number.
    """
    return Initial("constant", (("value", checks.real("value", value)),))


def uniform(bound: float) -> Initial:
    """Rows begin with numbers from −``bound`` up to ``bound``, all as likely.

    Raises:
        TypeError, ValueError: it is not a finite number above 0.
    """
    return Initial("uniform", (("bound", checks.step("bound", bound)),))


def normal(sigma: float) -> Initial:
    """Rows begin with numbers of the normal distribution of mean 0 and deviation ``sigma``.

    Raises:
        TypeError, ValueError: it is not a finite number above 0.
    """
    return Initial("normal", (("sigma", checks.step("sigma", sigma)),))


@dataclass(frozen=True, eq=False, repr=False)
class RowwiseAdagrad(Adagrad):
    """Adagrad with one value of state for a whole row of a table (Gupta, Bengio and Weston, 2014):
    v ← v + Σ g² / dim, θ ← θ − η g / (√v + ε). A table's memory is half of ``Adagrad``'s.

    Args:
        lr: η, or a schedule.
        eps: ε, greater than 0.
        initial_accumulator: v before the first update, from 0.

    Raises:
        TypeError, ValueError: an argument is no such number; the message names it.
    """

    NATIVE: ClassVar[str] = "rowwise_adagrad"


def rule_of(config: Mapping[str, Any]) -> Rule:
    """The rule whose ``config`` that is."""
    own = {k: v for k, v in config.items() if k not in ("name", "schedule", "swap")}
    if "schedule" in config:
        own["lr"] = schedules.of_config(config["schedule"])
    rule: Rule = _KINDS[config["name"]](**own)
    return SWAP(rule, **config["swap"]) if "swap" in config else rule


_OF_ROWS: list[type[Stepping]] = [*RULES.values(), RowwiseAdagrad]
_KINDS = {kind.__name__: kind for kind in _OF_ROWS}


class Part(NamedTuple):
    """What one of several tables that share one by ids has saved.

    Attributes:
        path: the file of all its rows.
        changes: those that followed it, in their order.
        shards: for each of 256 whether its rows are this one's; None: all.
        capacity: rows that it had room for; 0: as many as where they are loaded.
    """

    path: str | os.PathLike[str]
    changes: Sequence[str | os.PathLike[str]] = ()
    shards: Sequence[bool] | None = None
    capacity: int = 0


class Table(RowTable):
    """Rows of ``dim`` floats, each found by an id, with an update rule's state beside each.

        table = lsh.Table(rows=100_000, dim=16, rule=lsh.Adagrad(0.05))
        values = table.lookup(ids)  # float32 [..., 16]
        table.update(ids, gradients)

    Any number of threads of this process may read and update it at once; no call keeps the GIL, and
    neither a lookup nor an update of a row waits for another. Rows are updated as under
    ``Hogwild``: of two updates of one row at the same time some components may be of either alone.
    A forked child has a copy of its own; where another thread, or a training, used the table at the
    fork, each call in the child that reads or changes rows is a ``ValueError``.

    With ``rows`` it is fixed: ids are 0 to rows − 1. Without, it grows: any 64-bit id, which gets a
    row when ``update`` first has it (a negative one is the bit pattern of one from 2⁶³ on), within
    ``max_bytes``, which hold index, states and all; what has no row reads what it would begin with.

    Args:
        dim: floats of a row, from 1.
        rows: how many there are; None: it grows.
        init: what rows begin with: ``tables.zeros()``, ``constant``, ``uniform`` or ``normal``.
            Default: ``normal(0.01)``.
        rule: from ``leashed.rules``, or ``tables.RowwiseAdagrad``; ``SWAP`` over it decays a row's
            squares when the row is next touched. Not ``Momentum`` or ``Nesterov``, nor
            with ``weight_decay`` of its own (rows without a gradient would have to move) or
            ``clip_norm``. ``Adam`` is ``torch.optim.SparseAdam``. Default: ``Adagrad(0.01)``.
        staleness: from ``leashed.staleness``, of each row: τ counts the updates of that row between
            the lookup whose ``versions`` are given to ``update``, and that. A stage-aware one goes by
            the norm of the row's last update, for which each row has 4 bytes more. Default:
            ``none()``.
        admit_after: where it grows: the number of updates that must have had an id, about, before
            it gets a row: seldom ids are forgotten meanwhile. 1 to 255.
        evict: where it grows: which rows go when there is no more room: None (none do, new ids are
            refused), "age" (those that were updated longest ago), or "norm" (those of the least
            Euclidean norm); about so, by sampling.
        max_bytes: the most that it keeps, in bytes; needed where it grows.
        seed: of what rows begin with; from 0.
        number: among the tables of one seed, whose rows begin with other numbers; from 0.
        name: in messages.
        weight_decay: λ, from 0: what the rule's weight decay is to a vector, to the rows that an update
            has, each as often as updates have it, and to no other row: λθ is added to the row's gradient,
            after clipping and its staleness; by ``AdamW``, and ``SGD(decoupled=True)``, the row shrinks
            by 1 − ηλ. 0 changes no bit.
        versions: whether each row counts its updates. Without, where all of a table's rows are
            given, a row is 8 bytes shorter and updated the faster, but staleness is not known: it
            is counted as 0, and there is no staleness policy and no ``SWAP``.
        shards: of a table that several processes share by ids, for each of 256 shards whether this
            one has its rows, as ``_core.RowPlacement`` has them; what is saved is of these. Default:
            all of them.

    Raises:
        TypeError, ValueError: an argument is wrong, or the rule or policy is none for rows, or
            ``max_bytes`` is too little, or there is less memory than ``rows`` take; the message
            names it.
    """

    def __init__(
        self,
        *,
        dim: int,
        rows: int | None = None,
        init: Initial | None = None,
        rule: Rule | str | None = None,
        staleness: Policy | str | None = None,
        admit_after: int = 1,
        evict: Literal["age", "norm"] | None = None,
        max_bytes: int | None = None,
        seed: int = 0,
        number: int = 0,
        name: str = "table",
        weight_decay: float = 0.0,
        versions: bool = True,
        shards: Sequence[bool] | None = None,
    ) -> None:
        self.dim = checks.whole("dim", dim, maximum=_MOST_DIM)
        self.rows = None if rows is None else checks.whole("rows", rows, maximum=_MOST_ROWS)
        self.init = normal(0.01) if init is None else init
        if not isinstance(self.init, Initial):
            raise TypeError(f"init must be tables.normal(...) or another one, got {init!r}")
        self.rule = _check_rows(check_rule(Adagrad(0.01) if rule is None else rule))
        self.weight_decay = checks.real("weight_decay", weight_decay, 0.0, allow=True)
        self.staleness = policies.of("staleness", staleness or policies.none())
        self.admit_after = checks.whole("admit_after", admit_after, maximum=_MOST_SIGHTINGS)
        if evict not in (None, "age", "norm"):
            raise ValueError(f'evict must be None, "age" or "norm", got {evict!r}')
        self.evict = evict
        if max_bytes is not None:
            max_bytes = checks.whole("max_bytes", max_bytes, maximum=_MOST_BYTES)
        elif rows is None:
            raise ValueError("max_bytes is needed where rows is not given: the table grows")
        if rows is not None and (evict is not None or self.admit_after != 1):
            raise ValueError("evict and admit_after are of a table that grows; leave rows out")
        if not isinstance(versions, bool):
            raise TypeError(f"versions must be True or False, got {versions!r}")
        self.versions = versions
        damped = isinstance(self.rule, SWAP) or self.staleness != policies.none()
        if not versions and (rows is None or damped):
            raise ValueError(
                "versions=False is of a table whose rows are given, without SWAP and a staleness "
                "policy; leave it True"
            )
        self.max_bytes = max_bytes
        self.share: float | None = None
        self._follows: tuple[tuple[str, ...], int] | None = None
        seed = checks.whole("seed", seed, 0, 2**64 - 1)
        number = checks.whole("number", number, 0, 2**32 - 1)
        if not isinstance(name, str):
            raise TypeError(f"name must be a string, got {name!r}")
        self.name = name
        self.shards = (
            None if shards is None or all(_check_shards(shards)) else _check_shards(shards)
        )
        if self.rows is not None:
            row = bytes_per_row(self.dim, self.rule, self.staleness, versions)
            here = _rows_of(self.rows, self.shards)
            _require_memory(f"table {name} of {here:,} rows of {row:,} bytes", here * row)
        self._has_told = False  # of ids that update() has refused
        self.native = self._made(seed, number)

    def _made(self, seed: int, number: int) -> _core.Table:
        return _core.Table(
            name=self.name,
            dim=self.dim,
            rows=self.rows or 0,
            max_bytes=self.max_bytes or 0,
            initial=self.init.choice(),
            rule=self.decaying_rule.choice(),
            staleness=self.staleness.choice(),
            admit_after=self.admit_after,
            evict=self.evict or "none",
            seed=seed,
            number=number,
            versions=self.versions,
            shards=None if self.rows is None else self.shards,
        )

    def resize(self, max_bytes: int) -> None:
        """Hold so many bytes at most, where ``share`` says how many it does and it has no row yet.

        Raises:
            ValueError: it was made with ``max_bytes``, has been trained, or that is too little.
        """
        if self.share is None or self.has_been_trained:
            raise ValueError(
                f"table {self.name} holds {self.max_bytes} bytes at most, and stays so"
            )
        self.max_bytes = checks.whole("max_bytes", max_bytes, maximum=_MOST_BYTES)
        self.native = self._made(self.seed, self.number)

    @property
    def decaying_rule(self) -> Rule:
        """The rule, with the weight decay of rows."""
        return _decaying(self.rule, self.weight_decay)

    # Of the native table, so that a load that a signal cuts short cannot leave others here.
    @property
    def seed(self) -> int:
        """Of what rows begin with."""
        return self.native.begins()[0]

    @property
    def number(self) -> int:
        """Among the tables of one seed."""
        return self.native.begins()[1]

    def small(self) -> Table:
        """A new one whose rows are alike, of 16 MiB or 256 rows at most: to try something on. Where
        it has fewer rows than this one they go, those first that were updated longest ago.
        """
        row = bytes_per_row(self.dim, self.rule, self.staleness, self.versions)
        most = max(_SMALL, _SMALL_ROWS * row)
        size: dict[str, Any] = {"rows": self.rows, "versions": self.versions}
        if self.rows is None or self.rows * row > most:
            size = {
                "max_bytes": min(most, self.max_bytes or most),
                "admit_after": self.admit_after,
                "evict": "age",
            }
        return Table(
            dim=self.dim,
            init=self.init,
            rule=self.rule,
            staleness=self.staleness,
            name=self.name,
            weight_decay=self.weight_decay,
            **size,
        )

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
        """The rows of ``ids``, copied; nothing changes, and no id gets a row.

        Args:
            ids: whole numbers, of any shape.
            versions: also how far each row has come, to tell ``update``; 0 where rows do not count
                it.

        Returns:
            float32, shaped as ``ids`` with ``dim`` more; with ``versions`` also uint32, shaped as
            ``ids``.

        Raises:
            TypeError, IndexError: ids are no whole numbers, or no rows of the table.
        """
        wanted = self.check_ids(ids)
        values, told = self.native.lookup(wanted.ravel())
        values = values.reshape(*wanted.shape, self.dim)
        return (values, told.reshape(wanted.shape)) if versions else values

    def update(
        self, ids: ArrayLike, gradients: ArrayLike, versions: NDArray[np.uint32] | None = None
    ) -> RowUpdate:
        """One step: the rule applied to the rows of ``ids``, those that come several times with the
        sum of their gradients, in their order.

        Args:
            ids: whole numbers, of any shape.
            gradients: shaped as ``ids`` with ``dim`` more; float32, or converted.
            versions: of when the rows were looked up, as ``lookup`` gives them. Default: now, so
                that nothing is stale.

        Raises:
            TypeError, ValueError, IndexError: an argument is wrong, or a gradient not finite; the
                message names it. Nothing has changed.
        """
        wanted = self.check_ids(ids)
        single = self._gradients(wanted, gradients)
        told = self.native.update(wanted.ravel(), single, self._versions(wanted, versions))
        if told["refused"] and not self._has_told:
            self._has_told = True
            Refusals({self.name: self}, since_made=True).look()
        return RowUpdate(*(told[name] for name in RowUpdate._fields))

    def ids(self) -> NDArray[np.int64]:
        """The ids that have a row, int64 [n], from the smallest on (from 2⁶³ on as the negative number
        of the same bits). A table that grows always has rows for 0 and −1.
        """
        if self.rows is None:
            return np.unique(self.native.ids())
        every = np.arange(self.rows)
        return every if self.shards is None else every[np.asarray(self.shards)[every % SHARDS]]

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write ids, rows, the rule's states, versions, periods and what an adaptive staleness policy
        has gathered to ``path``, atomically, block by block with checksums, while other threads go
        on; what they write meanwhile may be in it.

        Raises:
            ValueError: the file cannot be written.
        """
        self.native.save(os.fspath(path), json.dumps(self.description))

    @property
    def tells_changes(self) -> bool:
        """Whether it knows which rows have changed: those have versions."""
        return self.versions

    def _require_changes(self) -> None:
        if not self.tells_changes:
            raise ValueError(
                f"table {self.name} cannot tell which rows have changed, since it has no versions; "
                "save() writes all"
            )

    def follow(self, checksums: tuple[str, ...], number: int) -> None:
        """What is tracked since the save of that number are changes of a folder's files (folders.py)."""
        self._follows = checksums, number

    def follows(self, checksums: tuple[str, ...]) -> int | None:
        """The number of the save that these files have ended with; None: they are not followed. Where
        the next one has not the next number, somebody has saved changes between.
        """
        if self._follows is None or self._follows[0] != checksums or not self.native.tracks():
            return None
        return self._follows[1]

    def save_tracked(
        self,
        path: str | os.PathLike[str],
        *,
        quiet: bool = False,
        flush: bool = True,
        touched: bool = False,
    ) -> int:
        """As ``save``, and from then on ``save_changes`` writes what has changed since. Keeps 12 bytes
        a row for it, 18 where it evicts, 4 where ``rows`` are given, beside ``max_bytes``.

        Args:
            path: the file.
            quiet: whether it is certain that nobody updates rows meanwhile; without, rows that are
                updated just then are written once more with the next changes.
            flush: whether the file is to outlast a power cut when this returns; without, whoever calls
                has to flush it.
            touched: whether, of a table with ``rows``, those are left out that have never been updated,
                as far as that is known: who loads the file has them as they begin.

        Returns:
            Its number among all of these and of ``save_changes``.

        Raises:
            ValueError: the file cannot be written, or not ``tells_changes``; or a signal's handler
                calls this within a call of ``save_tracked``, ``save_changes`` or ``track``.
        """
        self._require_changes()
        save = self.native.save_touched if touched else self.native.save_tracked
        return save(os.fspath(path), json.dumps(self.description), quiet, flush)

    def save_changes(
        self, path: str | os.PathLike[str], *, quiet: bool = False, flush: bool = True
    ) -> int:
        """Write the rows that are others than in the files that ``save_tracked`` and calls of this
        have written, and the ids that have no row any more, in the same way.

        Returns:
            As ``save_tracked``.

        Raises:
            ValueError: the file cannot be written, and all rows have to be saved anew; or they have
                not been yet; or not ``tells_changes``; or as of ``save_tracked`` within a signal's
                handler.
        """
        self._require_changes()
        return self.native.save_changes(os.fspath(path), json.dumps(self.description), quiet, flush)

    def track(self) -> int:
        """What ``save_changes`` writes next are changes of the files that have just been loaded.
        Nobody may update rows meanwhile.

        Returns:
            As ``save_tracked``.

        Raises:
            ValueError: not ``tells_changes``, or as of ``save_tracked`` within a signal's handler.
        """
        self._require_changes()
        return self.native.track()

    def load(
        self,
        path: str | os.PathLike[str],
        changes: Iterable[str | os.PathLike[str]] = (),
        *,
        any_seed: bool = False,
    ) -> None:
        """What ``save`` or ``save_tracked`` has written, in place of what is there.

        Args:
            path: the file of all rows, or of all that have been updated.
            changes: files of ``save_changes`` that followed it, all of them in their order.
            any_seed: whether they may be of a table of another ``seed`` and ``number``, which this
                one has from then on: what has no row yet begins as it would there.

        Raises:
            ValueError: a file is damaged, of another table or of the other kind, or a thread uses
                this one. Nothing has changed.
        """
        paths = [os.fspath(path), *(os.fspath(file) for file in changes)]
        wanted, begins = self.description, None
        if any_seed:
            was = json.loads(_core.Table.description_of(paths[0]))
            begins = was.get("seed", wanted["seed"]), was.get("number", wanted["number"])
            wanted = {**wanted, "seed": begins[0], "number": begins[1]}
        self.native.load([(paths, json.dumps(wanted), None, 0)], self.shards, begins)

    def load_parts(self, parts: Iterable[Part]) -> None:
        """What several tables have saved that share one by ids, in place of what is there: of all
        that a table without ``shards`` has, else this one's own of them. ``max_bytes`` may be
        another one's.

        Raises:
            ValueError: two of them have one shard, or none has one that this table has; a file is
                damaged, or of another table; rows do not fit, or a thread uses this table. Nothing
                has changed.
        """
        given = []
        for part in parts:
            wanted = self.description
            if self.rows is None:
                was = json.loads(_core.Table.description_of(os.fspath(part.path)))
                wanted["max_bytes"] = was.get("max_bytes")
            paths = [os.fspath(file) for file in (part.path, *part.changes)]
            given.append((paths, json.dumps(wanted), part.shards, part.capacity))
        self.native.load(given, self.shards, None)

    @property
    def description(self) -> dict[str, Any]:
        """What a file must agree with, as JSON's own types: sizes, beginnings, kind of rule, and
        whether rows keep the norm of their last update.
        """
        native, settings = self.rule.choice()
        seed, number = self.native.begins()
        size = {"max_bytes": self.max_bytes} if self.rows is None else {"rows": self.rows}
        return {
            "dim": self.dim,
            **size,
            "init": choice.to_json(self.init.choice()),
            "rule": native,
            "swap": choice.to_json((native, settings))[1].get("swap"),
            "evict": self.evict,
            "admit_after": self.admit_after,
            "seed": seed,
            "number": number,
            **({"last_update": True} if self.staleness.native == "stage_aware" else {}),
        }

    def statistics(self) -> dict[str, int]:
        """What has been counted so far, by name.

        - ``rows``: that ids have, those of 0 and 2⁶⁴ − 1 among them, which always have one where the
          table grows; ``capacity``: that they may have at most.
        - ``bytes`` and ``most_bytes``: of rows, index and filter, now and at most;
          ``bytes_per_row``; ``scratch``: what calls of ``update`` keep for the next ones, beside
          ``max_bytes``: of each thread at most 1 MiB, or a 32nd of ``most_bytes``.
        - ``steps``: updates of the table.
        - ``asked`` and ``found``: distinct ids of updates, and of these those that had a row.
        - ``admitted``, ``evicted``: rows given to ids, and taken from them; ``rebuilt``: parts of
          the index.
        - what ``RowUpdate`` has, in all, and ``folded``: under ``Synchronous``, gradients that were
          added to another thread's of that id, for one update of both; ``staleness``, the sum over
          what was applied, and ``stalest``, the largest.
        """
        told = self.native.statistics()
        del told["octaves"]
        return dict(told)

    @property
    def has_been_trained(self) -> bool:
        """Whether a training or ``update`` has been here, or a file of another table was loaded."""
        told = self.statistics()
        known = self.rows is None and told["rows"] > 2  # as many as no table is without
        return known or bool(told["steps"] or told["asked"])

    def row_staleness(self) -> NDArray[np.int64]:
        """How stale the updates of rows were so far.

        Returns:
            int64 [bins]; how many had staleness 0, 1, 2 to 3, 4 to 7, …: bin k > 0 has those from
            2ᵏ⁻¹ to 2ᵏ − 1.
        """
        return np.asarray(self.native.statistics()["octaves"], np.int64)

    @property
    def told_size(self) -> str:
        """How it would hold more rows."""
        if self.share is None:
            return f"raise max_bytes ({self.max_bytes:,})"
        return f"raise share ({self.share:g}) of tables.of (max_bytes is {self.max_bytes:,})"

    def __repr__(self) -> str:
        size = f"rows={self.rows}" if self.rows is not None else f"max_bytes={self.max_bytes}"
        return f"Table({self.name!r}, {size}, dim={self.dim}, rule={self.rule!r})"

    def __reduce__(self) -> Any:
        """What ``save`` writes, in memory as a whole: of a copy, or a pickle."""
        settings = {
            "dim": self.dim,
            "rows": self.rows,
            "init": self.init,
            "rule": self.rule,
            "staleness": self.staleness,
            "admit_after": self.admit_after,
            "evict": self.evict,
            "max_bytes": self.max_bytes,
            "seed": self.seed,
            "number": self.number,
            "name": self.name,
            "weight_decay": self.weight_decay,
            "versions": self.versions,
            "shards": self.shards,
        }
        return _restored, (settings, self.to_bytes(), self.share)

    def to_bytes(self) -> bytes:
        """What ``save`` writes."""
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "table"
            self.save(path)
            return path.read_bytes()


def _restored(settings: dict[str, Any], saved: bytes, share: float | None = None) -> Table:
    table = Table(**settings)
    table.share = share
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "table"
        path.write_bytes(saved)
        table.load(path)
    return table


class Described(Protocol):
    """What a model says of a table that it reads."""

    @property
    def name(self) -> str: ...
    @property
    def dim(self) -> int: ...
    @property
    def rows(self) -> int | None: ...


def of(
    described: Iterable[Described],
    *,
    rule: Rule | str | None = None,
    init: Initial | None = None,
    staleness: Policy | str | None = None,
    admit_after: int = 1,
    evict: Literal["age", "norm"] | None = None,
    max_bytes: int | None = None,
    share: float | None = None,
    seed: int = 0,
    weight_decay: float = 0.0,
    versions: bool = True,
    shards: Mapping[str, Sequence[bool]] | None = None,
) -> dict[str, Table]:
    """New tables for a model: ``tables.of(model.tables, rule=lsh.Adagrad(0.01))``.

    Args:
        described: their names, sizes and dimensions; one without a number of rows grows.
        rule, init, staleness, seed, weight_decay, versions: as for ``Table``, of all of them.
        admit_after, evict, max_bytes: as for ``Table``, of each that grows.
        share: in place of ``max_bytes``: of the machine's memory, or of that of the smallest control group
            (v1 or v2) that this process is in, the share that all tables that grow may take together,
            above 0 to 1; each may have as many rows as the others. What a file or a checkpoint has
            that is loaded into them keeps the size that it had. Default: a quarter.
        shards: as for ``Table``, by name, of each; one of which no shard is here is left out.

    Returns:
        A table by each name.

    Raises:
        TypeError, ValueError: as ``Table``; or all of them together would take more memory than there
            is. Then none has been made.
    """
    described = list(described)
    if not described:
        return {}
    rule = _check_rows(check_rule(Adagrad(0.01) if rule is None else rule))
    staleness = policies.of("staleness", staleness or policies.none())
    numbered = dict(enumerate(described))
    of_each = dict.fromkeys(one.name for one in described)
    if shards is not None:
        if missing := [one.name for one in described if one.name not in shards]:
            raise ValueError(f"shards must be given for each table, and not without {missing[0]}")
        of_each = {one.name: _check_shards(shards[one.name]) for one in described}
        numbered = {k: one for k, one in numbered.items() if any(of_each[one.name] or ())}
        described = list(numbered.values())
    each = _sizes(described, rule, staleness, versions, max_bytes, share)
    fixed = [
        (_rows_of(one.rows, of_each[one.name]), one.dim)
        for one in described
        if one.rows is not None
    ]
    told = f"{len(fixed)} tables of {sum(rows for rows, _ in fixed):,} rows in all"
    _require_memory(
        told, sum(rows * bytes_per_row(dim, rule, staleness, versions) for rows, dim in fixed)
    )
    found = {}
    for number, one in numbered.items():
        grows: dict[str, Any] = {}
        if one.rows is None:
            most = each[one.name]
            grows = {"admit_after": admit_after, "evict": evict, "max_bytes": most}
        found[one.name] = made = Table(
            dim=one.dim,
            rows=one.rows,
            init=init,
            rule=rule,
            staleness=staleness,
            seed=seed,
            number=number,
            name=one.name,
            weight_decay=weight_decay,
            versions=versions,
            shards=of_each[one.name],
            **grows,
        )
        if one.rows is None and max_bytes is None:
            made.share = SHARE if share is None else share
    return found


def _sizes(
    described: Sequence[Described],
    rule: Rule,
    staleness: Policy,
    versions: bool,
    max_bytes: int | None,
    share: float | None,
) -> dict[str, int]:
    """The most bytes of each table that grows, by name."""
    row = {
        one.name: bytes_per_row(one.dim, rule, staleness, versions)
        for one in described
        if one.rows is None
    }
    if max_bytes is not None:
        if share is not None:
            raise ValueError("share and max_bytes both say how large tables grow; give one of them")
        return dict.fromkeys(row, max_bytes)
    part = check_share(SHARE if share is None else share)
    if (most := memory.total()) is None:
        return dict.fromkeys(row, _UNKNOWN)
    together = sum(bytes_ + _BESIDE for bytes_ in row.values())
    return {name: int(part * most * (bytes_ + _BESIDE) / together) for name, bytes_ in row.items()}


def check_share(share: float) -> float:
    """The share of the memory that tables may take; TypeError or ValueError where it is none."""
    part = checks.real("share", share, 0.0)
    if part > 1:
        raise ValueError(f"share must be at most 1, all of the memory, got {part:g}")
    return part


def check(described: Sequence[Described], given: Mapping[str, Table] | None) -> list[_core.Table]:
    """The native tables, in that order; TypeError or ValueError where one is missing or other than
    the model says.
    """
    names = [one.name for one in described]
    if not isinstance(given, Mapping) or not all(isinstance(t, Table) for t in given.values()):
        raise TypeError(f"tables must map names to leashed.Table, got {given!r}")
    if set(given) != set(names):
        raise ValueError(
            f"tables must be {', '.join(names) or 'left out: the model reads none'}; "
            f"got {', '.join(given) or 'none'}"
        )
    if len({id(table) for table in given.values()}) < len(given):
        raise ValueError(
            "tables has one Table under two names; let the embeddings share a TableSpec instead"
        )
    for one in described:
        table = given[one.name]
        if (table.dim, table.rows) != (one.dim, one.rows):
            raise ValueError(
                f"tables[{one.name!r}] has dim {table.dim} and rows {table.rows}, but the model "
                f"reads dim {one.dim} and rows {one.rows}"
            )
    return [given[name].native for name in names]


class Refusals:
    """Ids that tables refuse for want of room from now on, in a run: told of once.

    Args:
        tables: by name.
        since_made: also what they have refused before.
    """

    def __init__(self, tables: Mapping[str, Table], *, since_made: bool = False) -> None:
        self._of = {id(table) for table in tables.values()}
        # A fixed one refuses none.
        self._tables = {name: table for name, table in tables.items() if table.rows is None}
        self._before = dict.fromkeys(self._tables, (0, 0))
        if not since_made:
            self._before = self._counted()
        self._told = not self._tables

    def are_of(self, tables: Mapping[str, Table]) -> bool:
        """Whether they are of these tables."""
        return self._of == {id(table) for table in tables.values()}

    @property
    def told(self) -> bool:
        """Whether nothing is left to be told of."""
        return self._told

    def look(self) -> None:
        """A ``RuntimeWarning``, the first time that there are some."""
        if self._told:
            return
        shares = {name: n / asked for name, (asked, n) in self._counted().items() if n and asked}
        if not shares:
            return
        self._told = True
        name = max(shares, key=lambda name: shares[name])
        table, others = self._tables[name], len(shares) - 1
        full = f"table {name} is full" + (f", and {others} more" if others else "")
        remedy = 'say evict="age" or "norm", by which old rows make room'
        if table.evict:
            remedy = "take smaller batches or fewer threads, whose rows are in use at once"
        warn(
            f"{full}: of the ids of batches {shares[name]:.2%} so far were refused a row, and learn "
            f"nothing; {table.told_size}, or {remedy} (evict is {table.evict!r})"
        )

    def _counted(self) -> dict[str, tuple[int, int]]:
        """(asked, refused) of each since the beginning."""
        found = {}
        for name, table in self._tables.items():
            asked, refused = table.native.refusals()
            before = self._before[name]
            found[name] = asked - before[0], refused - before[1]
        return found


_around: ContextVar[Refusals | None] = ContextVar("refusals", default=None)


@contextmanager
def in_run(refusals: Refusals) -> Iterator[None]:
    """A training within is part of that run."""
    token = _around.set(refusals)
    try:
        yield
    finally:
        _around.reset(token)


def refusals_of(tables: Mapping[str, Table]) -> Refusals:
    """Those of the run that a training of these tables is part of."""
    around = _around.get()
    return around if around is not None and around.are_of(tables) else Refusals(tables)


def bytes_per_row(dim: int, rule: Rule, staleness: Policy, versions: bool = True) -> int:
    """Of memory, with what the rule keeps of a row."""
    return _core.Table.bytes_per_row(
        dim=dim, rule=rule.choice(), staleness=staleness.choice(), versions=versions
    )


def _check_shards(shards: Sequence[bool]) -> list[bool]:
    found = [bool(each) for each in shards]
    if len(found) != SHARDS:
        raise ValueError(f"shards must be {SHARDS}, one for each, got {len(found)}")
    return found


def _rows_of(rows: int, shards: Sequence[bool] | None) -> int:
    """Of so many those that are of these shards."""
    if shards is None:
        return rows
    whole, rest = divmod(rows, SHARDS)
    return whole * sum(shards) + sum(shards[:rest])


def _require_memory(what: str, wanted: int) -> None:
    """ValueError where so many bytes are more than there are."""
    left = memory.available()
    if left is not None and wanted > left:
        raise ValueError(
            f"{what} would take {wanted / 2**30:.3g} GiB, and {left / 2**30:.3g} GiB of memory are "
            "left; give fewer rows, a smaller dim, or a rule that keeps less beside a row "
            "(RowwiseAdagrad, SGD); or leave rows out and give max_bytes, for as many ids as that "
            "holds"
        )


def _decaying(rule: Rule, weight_decay: float) -> Rule:
    """The rule with that weight decay."""
    if not weight_decay:
        return rule
    if isinstance(rule, SWAP):
        return replace(rule, rule=_decaying(rule.rule, weight_decay))
    assert isinstance(rule, Stepping)
    return replace(rule, weight_decay=weight_decay)


def _check_rows(rule: Rule) -> Rule:
    """``rule``; TypeError or ValueError where rows of a table cannot have it."""
    inner = rule.rule if isinstance(rule, SWAP) else rule
    moves = "would have to move rows of a table that get no gradient"
    if isinstance(inner, Momentum):
        raise TypeError(
            f"{type(inner).__name__} {moves}; choose SGD, Adagrad, RowwiseAdagrad, RMSprop, Adam "
            "or FTRL"
        )
    if getattr(inner, "weight_decay", 0):
        raise ValueError(
            f"weight_decay {moves}; leave it 0 ({type(inner).__name__}), and give it to the tables, "
            "whose rows it moves when an update has them: tables.of(model.tables, weight_decay=...)"
        )
    if getattr(inner, "clip_norm", None) is not None:
        raise ValueError(
            "clip_norm is of a whole gradient, which a row does not see; use clip_value"
        )
    return rule
