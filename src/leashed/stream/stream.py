"""Rows that are read while they are used: what every source of them has in common."""

from __future__ import annotations

import atexit
import copy
import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Generic, NamedTuple, TypeVar, cast

import numpy as np

from leashed import _core
from leashed.base import checks
from leashed.base.machine import cores
from leashed.datasets import Bags, ClickDataset, Dataset, text
from leashed.datasets.columns import Columns, heads_at, places
from leashed.datasets.fields import Column, Schema

__all__ = ["BadLine", "Opened", "Options", "Parts", "ReadCounts", "Stream"]

T = TypeVar("T")

_BAD = ("fail", "skip")


class BadLine(NamedTuple):
    """A line that is no row.

    Attributes:
        file: as it was named.
        number: of the line in its file, from 1; of what has no lines, of the row.
        reason: what is wrong with it.
    """

    file: str
    number: int
    reason: str


@dataclass(frozen=True)
class ReadCounts:
    """What was read of a stream, in its first pass.

    Attributes:
        rows: read; some may not have been used, where the run ended before the stream.
        lines: of the files, headers and empty ones too.
        bad: lines that are no rows, and were left out.
        first_bad: the first of these, 100 at most.
        bytes: as they are after unpacking.
    """

    rows: int
    lines: int
    bad: int
    first_bad: tuple[BadLine, ...]
    bytes: int

    def config(self) -> dict[str, Any]:
        """As JSON's own types."""
        return {**asdict(self), "first_bad": [list(bad) for bad in self.first_bad]}


@dataclass(frozen=True)
class Options:
    """How a stream is read, whatever it is of."""

    bad: str
    threads: int | None
    shuffle: int
    seed: int

    def __post_init__(self) -> None:
        if self.bad not in _BAD:
            raise ValueError(f"bad must be one of {', '.join(_BAD)}, got {self.bad!r}")
        if self.threads is not None:
            checks.whole("threads", self.threads, 1, 1024)
        checks.whole("shuffle", self.shuffle, 0, 2**32)
        checks.whole("seed", self.seed, 0, 2**64 - 1)

    @property
    def order(self) -> dict[str, int]:
        """What the order of the rows follows from, beside that of the files."""
        return {"shuffle": self.shuffle, "seed": self.seed} if self.shuffle else {"shuffle": 0}

    def reading_threads(self, beside: int) -> int:
        """How many threads read, beside so many that compute."""
        if self.threads is not None:
            return self.threads
        return max(1, cores() // 2) if beside else cores()


class Opened:
    """A stream that is being read, once."""

    def __init__(self, native: _core.RowStream) -> None:
        self.native = native
        _opened.add(self)

    @property
    def counts(self) -> ReadCounts:
        """So far."""
        counts = self.native.counts()
        counts["first_bad"] = tuple(BadLine(*bad) for bad in counts["first_bad"])
        return ReadCounts(**counts)

    def read(self, most: int | None) -> Any:
        """All rows or the first so many, as the native stream gives them; it ends."""
        return text.read(self.native, most)


_opened: weakref.WeakSet[Opened] = weakref.WeakSet()


@atexit.register
def _end_all() -> None:
    """Before the interpreter goes, which threads that read may want."""
    for opened in list(_opened):
        opened.native.end()


class Stream(ABC):
    """Rows of numbers and ids, and what each is to give, in the order of their files.

    A stream is a description: each use reads it from the beginning, with threads of its own, and a
    bounded number of rows in memory. What is read does not depend on how many threads read.

    Attributes:
        name: what results and messages call it.
        numbers: numbers of a row.
        number_names: what they are called.
        names: of the features that are ids.
        bounds: of each of these what its ids are below; None: there is no such bound.
        classes: of the labels; 0: there are numbers in their place, or several ``heads``.
        heads: the names of the labels where a row has several; else none.
        repeatable: whether it can be read more than once.
        files: that it reads, in order; empty where it is of no files.
        order: ``shuffle``, and where there is any its ``seed``.
        labelled: whether what rows are to give is read.
    """

    def __init__(self, name: str, schema: Schema, options: Options) -> None:
        self.name = name
        self.numbers = len(schema.numbers)
        self.number_names = schema.numbers
        self.names = tuple(schema.ids)
        self.bounds = tuple(column.bound for column in schema.ids.values())
        self.classes, self.heads = schema.classes, schema.heads
        self._schema, self._options = schema, options
        self.labelled = True
        self._many = tuple(column.between is not None for column in schema.ids.values())

    @property
    @abstractmethod
    def repeatable(self) -> bool:
        """Whether it can be read more than once."""

    @property
    def files(self) -> tuple[Path, ...]:
        """The files that it reads, in order; empty where it is of no files."""
        return ()

    @property
    def order(self) -> dict[str, int]:
        """``shuffle``, and where there is any its ``seed``."""
        return self._options.order

    @property
    def text(self) -> text.Text | None:
        """How its files are written, where they are of text of which each line is a row."""
        return None

    @property
    def bad(self) -> str:
        """What is done about a line that is no row."""
        return self._options.bad

    @abstractmethod
    def _open(self, threads: int, passes: int) -> _core.RowStream:
        """The native stream, not started yet, of so many passes; 0: as many as are asked for."""

    def open(self, passes: int = 1, *, beside: int = 0) -> Opened:
        """For one use: the native stream of so many passes (0: as many as are asked for), not started
        yet; ``beside`` so many threads that compute.
        """
        return Opened(self._open(self._options.reading_threads(beside), passes))

    @property
    def features(self) -> int:
        """Features that are ids."""
        return len(self.names)

    @property
    def columns(self) -> Columns:
        """What models keep of the columns that they were trained on."""
        bags = tuple(f for f, many in enumerate(self._many) if many)
        heads = self.heads if self.labelled else ()
        return Columns(self.number_names, self.names, bags, schema=self._schema, heads=heads)

    @property
    def schema(self) -> dict[str, Column]:
        """What each column becomes, by its name: for other files of the same columns."""
        return dict(self._schema.columns)

    def unlabelled(self) -> Stream:
        """The same rows without what they are to give, and how much they count: these columns need not
        be there, and are not read. Labels are 0 then, of several heads NaN.

            model.predict(result.parameters, rows.unlabelled().read(), result.tables)
        """
        found = copy.copy(self)
        found.labelled = False
        return found

    def arranged(self, known: Columns, name: str = "data") -> Stream:
        """The same rows, their columns in the order in which a model knows them by name, others left out;
        itself where they are so.

        Raises:
            ValueError: one is not there, or is a number where it was an id; the message calls the
                stream ``name``.
        """
        of_numbers = places(known.numbers, self.number_names, name, self.names)
        of_ids = places(known.ids, self.names, name, self.number_names)
        of_heads = heads_at(known.heads, self.heads if self.labelled else (), name)
        if of_numbers is None and of_ids is None and of_heads is None:
            return self
        numbers = known.numbers if of_numbers is not None else self.number_names
        ids = known.ids if of_ids is not None else self.names
        unread = iter([one for one in self.names if one not in (ids or ())])
        order = [*(numbers or ()), *(next(unread, "") if one is None else one for one in ids or ())]
        if "" in order:
            raise ValueError(
                f"{name} lacks columns that the model does not read and counts its ids by; give all that "
                "it was trained on"
            )
        columns = self._schema.columns
        kept = {n: c for n, c in columns.items() if n not in (*self.number_names, *self.names)}
        if of_heads is not None:
            kept = {n: c for n, c in kept.items() if n not in self.heads}
            order = [*known.heads, *order]
        return self._of(Schema({**kept, **{one: columns[one] for one in order}}))

    def _of(self, schema: Schema) -> Stream:
        """The same rows by another schema."""
        made = copy.copy(self)
        Stream.__init__(made, self.name, schema, self._options)
        made.labelled = self.labelled
        return made

    def single(self, feature: str) -> int:
        """The number of a feature among those that are ids, which has one a row.

        Raises:
            TypeError: a row may have any number of its ids.
            ValueError: there is no feature of that name.
        """
        if feature not in self.names:
            raise ValueError(
                f"{self.name} has no feature {feature!r}; choose one of "
                f"{', '.join(self.names) or 'none: no column of it is an id'}"
            )
        number = self.names.index(feature)
        if self._many[number]:
            raise TypeError(
                f"feature {feature!r} of {self.name} has any number of ids a row; choose one that "
                "has one"
            )
        return number

    def parts(self, rows: int = 65_536) -> Parts[ClickDataset | Dataset]:
        """All rows in order, so many at a time: ``ClickDataset``s, or where no feature is an id
        ``Dataset``s.

        Raises:
            TypeError, ValueError: ``rows`` is no whole number from 1.
        """
        return Parts(self.open, checks.size("rows", rows), self._dataset)

    def read(self, rows: int | None = None) -> ClickDataset | Dataset:
        """The rows in memory, all or the first so many.

        Raises:
            ValueError: there is no row, or a bad line and ``bad="fail"``.
            OSError: a file cannot be read.
        """
        return self.read_counted(rows)[0]

    def read_counted(self, rows: int | None = None) -> tuple[ClickDataset | Dataset, ReadCounts]:
        """As ``read``, and what was read for it."""
        most = None if rows is None else checks.whole("rows", rows)
        opened = self.open()
        made = self._dataset(opened.read(most), opened.counts.bad)
        return made, opened.counts

    def _dataset(self, taken: Any, skipped: int = 0) -> ClickDataset | Dataset:
        x, ids, bags, y, weights = taken
        if self.heads and not self.labelled:
            y = np.full((len(y), len(self.heads)), np.nan, np.float32)
        if not self.names:
            return Dataset(
                x,
                y,
                self.classes,
                name=self.name,
                weights=weights,
                names=self.number_names,
                schema=self._schema,
                heads=self.heads,
            )
        columns: Any = ids
        if bags:
            single, several = iter(ids.T), iter(bags)
            columns = tuple(
                Bags(*next(several)) if many else np.ascontiguousarray(next(single))
                for many in self._many
            )
        return ClickDataset(
            x,
            columns,
            y,
            self.names,
            self.name,
            weights,
            skipped=skipped,
            number_names=self.number_names,
            schema=self._schema,
            classes=self.classes,
            heads=self.heads,
        )

    def __repr__(self) -> str:
        return (
            f"Stream(name={self.name!r}, numbers={self.numbers}, features={self.features}, "
            f"classes={self.classes})"
        )


class Parts(Iterator[T], Generic[T]):
    """The rows of a stream, part after part: each once, whichever thread asks for the next. Where
    asking is interrupted, as by Ctrl-C, the rows come when it is asked again. What reading raises,
    such as of a damaged file, every thread is told that asks for rows behind it, as often as it asks.

    Attributes:
        counts: what was read so far.
    """

    def __init__(self, opened: Callable[[], Opened], rows: int, made: Callable[[Any], T]) -> None:
        self._rows, self._made = rows, made
        self._opened = opened()
        self._opened.native.start()

    @property
    def counts(self) -> ReadCounts:
        """What was read so far."""
        return self._opened.counts

    def __next__(self) -> T:
        return cast("T", self._opened.native.next(self._rows, self._made))
