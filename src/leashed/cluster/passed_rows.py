"""Rows of a stream of objects, such as a table of pyarrow, which only this process has: a reader on threads
of it sends them to all trainers. The stream is read in order, with some of what has gone by kept, and from
its beginning where somebody asks for what is not.
"""

from __future__ import annotations

import hashlib
import logging
import threading
from typing import Any

import numpy as np

from leashed.base.closing import Closing
from leashed.cluster.reader import Rows, attend
from leashed.cluster.row_index import RowIndex, digest_of
from leashed.cluster.row_parts import Counted, File, Parsed, Part, RowFiles
from leashed.cluster.serving import Place
from leashed.datasets.fields import Schema
from leashed.datasets.moments import Moments
from leashed.stream import Stream
from leashed.stream.stream import Opened

__all__ = ["Attending", "PassedRows", "index_of"]

_PART = 1 << 16  # rows, at most,
_BYTES = 16 << 20  # and what these have in memory, about
_FIRST = 1 << 10  # rows, before it is known how long they are

_log = logging.getLogger(__name__)


class _Object(File):
    """What is read in place of files."""

    def check(self) -> None:
        pass


class PassedRows(RowFiles):
    """Of a stream of objects that can be read again."""

    def __init__(self, stream: Stream) -> None:
        self._stream, self.bad = stream, stream.bad

    @property
    def told(self) -> list[Any]:
        return ["objects", Schema(self._stream.schema).to_json(), self.bad]

    def count(self, files: list[File]) -> Counted:
        del files
        opened, digest = self._stream.open(), hashlib.sha256()
        moments = Moments.none([True] * self._stream.numbers)
        parts: list[Part] = []
        rows = size = 0
        most = min(_FIRST, _PART)
        opened.native.start()
        try:
            while True:
                arrays = opened.native.take(most)
                count = len(arrays[3])
                for each in _flat(arrays):
                    size += each.nbytes
                    digest.update(np.ascontiguousarray(each).data)
                if count:
                    moments = moments.merged(arrays[0])
                    parts.append(Part(0, rows, count, count, rows))
                rows += count
                if count < most:
                    break
                most = min(_PART, max(1, _BYTES * rows // max(1, size)))
        finally:
            opened.native.end()
        one = _Object(self._stream.name, size, 0, digest.hexdigest()[:16])
        return Counted((one,), tuple(parts), opened.counts, moments)

    def open(self, number: int, file: File) -> _Going:
        del number, file
        return _Going(self._stream)

    def parse(self, file: File, opened: _Going, part: Part) -> Parsed:
        arrays = opened.read(part.offset, part.size)
        if (found := len(arrays[3])) != part.rows:
            raise ValueError(
                f"{file.path} has {found:,} rows at {part.offset:,}, and had {part.rows:,} when they were "
                "counted: give what makes the same rows each time"
            )
        return Parsed(arrays, found, found, 0, ())


class _Going:
    """A stream that is read in order, and from its beginning to go back."""

    def __init__(self, stream: Stream) -> None:
        self._stream = stream
        self._opened: Opened | None = None
        self._at = 0

    def close(self) -> None:
        """Nothing is read any more."""
        if self._opened is not None:
            self._opened.native.end()
        self._opened = None

    def read(self, first: int, count: int) -> Any:
        """Rows from the first on; fewer, where there are no more."""
        if self._opened is None or first < self._at:
            self.close()
            self._opened, self._at = self._stream.open(), 0
            self._opened.native.start()
        native = self._opened.native
        while self._at < first and (passed := len(native.take(min(_FIRST, first - self._at))[3])):
            self._at += passed
        found = native.take(count)
        self._at += len(found[3])
        return found


def index_of(stream: Stream) -> RowIndex:
    """Of the rows of a stream of objects that can be read again, which are read for it.

    Raises:
        ValueError: there is no row, or one is bad and ``bad="fail"``.
    """
    rows = PassedRows(stream)
    counted = rows.count([])
    return RowIndex(*counted[:3], digest_of(rows.told), counted.moments, None)


class Attending(Closing):
    """A reader of such a stream, on threads, until the run has ended.

    Args:
        stream: which.
        index: of it.
        place: where it has its run.
    """

    def __init__(self, stream: Stream, index: RowIndex, place: Place) -> None:
        self._rows = Rows(index, PassedRows(stream), 1)  # one thread, since they are read in order
        self._thread = threading.Thread(
            target=self._run, args=(place,), name="leashed-reader", daemon=True
        )
        self._thread.start()

    def _run(self, place: Place) -> None:
        try:
            attend(self._rows, 0, place)
        except (OSError, ValueError) as error:  # trainers are told that nobody sends them rows
            _log.warning("the reader of this process has ended: %s", str(error))

    def close(self) -> None:
        """Waits until the run has ended, or its master has been away for ``grace``."""
        self._thread.join()
        self._rows.close()


def _flat(arrays: Any) -> list[Any]:
    """The arrays in tuples and lists."""
    if isinstance(arrays, (tuple, list)):
        return [one for each in arrays for one in _flat(each)]
    return [] if arrays is None else [arrays]
