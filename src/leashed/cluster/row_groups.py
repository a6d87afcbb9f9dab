"""Parquet files, by row groups: how many rows these have their ends tell, so that nothing is read to count
them but numbers that are standardised, and all where bad rows are skipped, which are none.
"""

from __future__ import annotations

import contextlib
import threading
import zlib
from bisect import bisect_right
from collections.abc import Iterator
from functools import cached_property, partial
from itertools import accumulate
from typing import Any

from leashed import _core
from leashed.cluster.row_parts import Counted, File, Parsed, Part, RowFiles, in_order, judge, parsed
from leashed.datasets.fields import Schema
from leashed.datasets.moments import Moments
from leashed.stream import BadLine, ReadCounts
from leashed.stream.batches import ParquetParts, arrow
from leashed.stream.parquet import ParquetStream

__all__ = ["ParquetRows"]

_PART = 1 << 16  # rows
_GOING = 4  # places of a file that are gone on from


class ParquetRows(RowFiles):
    """Of a stream's files."""

    def __init__(self, stream: ParquetStream) -> None:
        self._stream, self.bad = stream, stream.bad
        self._schema = Schema(stream.schema)

    @property
    def told(self) -> list[Any]:
        return ["parquet", self._schema.to_json(), self.bad]

    def count(self, files: list[File]) -> Counted:
        read: ParquetStream | None = self._stream
        if self.bad != "skip":
            read = self._stream.numbers_alone() if any(self._schema.standard) else None
        of_files = self._parts
        if read not in (None, self._stream):
            of_files = ParquetParts(self._stream.files, read.sources)
        moments = Moments.none([True] * self._stream.numbers)
        parts: list[Part] = []
        bad, before, first_bad = 0, 0, list[BadLine]()
        for number, file in enumerate(files):
            with contextlib.closing(_Groups(of_files, number, file)) as opened:
                pieces = list(opened.parts(before))
                before += sum(part.size for part in pieces)
                if read is None:
                    parts += pieces
                    continue
                tables = ((part, opened.read(part.offset, part.size)) for part in pieces)
                for (part, _), made in in_order(tables, partial(_piece, read)):
                    judge(made, self._stream.name, part.lines, "row", self.bad, first_bad)
                    if made.rows:
                        moments = moments.merged(made.arrays[0])
                    bad += made.bad
                    parts.append(part._replace(rows=made.rows))
        rows = sum(part.rows for part in parts)
        if not rows:
            raise _core.NoRows(f"{self._stream.name}: there is no row in it")
        counts = ReadCounts(rows, before, bad, tuple(first_bad), 0)
        return Counted(tuple(files), tuple(parts), counts, moments)

    def open(self, number: int, file: File) -> _Groups:
        return _Groups(self._parts, number, file)

    @cached_property
    def _parts(self) -> ParquetParts:
        with _told(self._stream.name):
            return ParquetParts(self._stream.files, self._stream.sources)

    def parse(self, file: File, opened: _Groups, part: Part) -> Parsed:
        del file
        found = _rows(self._stream, opened.read(part.offset, part.size))
        judge(found, self._stream.name, part.lines, "row", self.bad, [])
        return found


def _piece(stream: ParquetStream, piece: tuple[Part, Any]) -> Parsed:
    return _rows(stream, piece[1])


def _rows(stream: ParquetStream, table: Any) -> Parsed:
    return parsed(stream.of_table(table).open().native)


@contextlib.contextmanager
def _told(name: str) -> Iterator[None]:
    """What pyarrow says is wrong with a file is said with its name."""
    try:
        yield
    except (arrow("Parquet").ArrowException, OSError) as error:
        if getattr(error, "errno", None) is not None:
            raise
        raise ValueError(f"{name} is no whole Parquet file: {error}") from error


class _Groups:
    """A file's rows from any place: what is asked for in order is read once, and to go back, or to pass
    over more than a row group, begins with a row group.

    Raises:
        OSError: it cannot be read.
        ValueError: it is no whole Parquet file, or lacks a column.
    """

    def __init__(self, parts: ParquetParts, number: int, file: File) -> None:
        self._parts, self._number, self._name = parts, number, file.path
        with _told(self._name):
            self._sizes = parts.groups(number)
        self._ends = list(accumulate(self._sizes))
        self._lock = threading.Lock()
        self._going: list[_Going] = []

    def close(self) -> None:
        """Nothing is read any more."""
        self._going.clear()

    def parts(self, before: int) -> Iterator[Part]:
        """Of all rows, behind so many of other files."""
        with _told(self._name):
            checks = [zlib.crc32(told.encode()) for told in self._parts.told(self._number)]
        for end, size, check in zip(self._ends, self._sizes, checks, strict=True):
            for first in range(end - size, end, _PART):
                rows = min(_PART, end - first)
                yield Part(self._number, first, rows, rows, before + first, check)

    def read(self, first: int, count: int) -> Any:
        """Rows [first, first + count) of a row group, as a table of pyarrow."""
        group = bisect_right(self._ends, first)
        end = self._ends[group] if group < len(self._ends) else 0
        if first + count > end:
            raise ValueError(f"{self._name} has changed since its rows were counted: it has fewer")
        with self._lock, _told(self._name):
            there = [one for one in self._going if one.group == group and one.at <= first]
            going = max(there, key=lambda one: one.at, default=None)
            if going is None:
                begin = end - self._sizes[group]
                going = _Going(
                    group, begin, self._parts.of(self._number, group), self._parts.schema
                )
            else:
                self._going.remove(going)
            going.take(first - going.at)
            rows = going.take(count)
            if rows.num_rows < count:
                raise ValueError(
                    f"{self._name} is no whole Parquet file: it has fewer rows than its end tells"
                )
            if going.at < end:
                self._going = [*self._going[1 - _GOING :], going]
            return rows


class _Going:
    """A row group that is read in order: at which row of the file."""

    def __init__(self, group: int, at: int, batches: Iterator[Any], schema: Any) -> None:
        self.group, self.at = group, at
        self._batches, self._schema = batches, schema
        self._left: Any = None

    def take(self, count: int) -> Any:
        """The next so many rows, fewer where there are no more."""
        taken = []
        self.at += count
        while count:
            if self._left is None or not self._left.num_rows:
                self._left = next(self._batches, None)
                if self._left is None:
                    break
                continue
            own = min(count, self._left.num_rows)
            taken.append(self._left.slice(0, own))
            self._left = self._left.slice(own)
            count -= own
        return arrow("Parquet").Table.from_batches(taken, schema=self._schema)
