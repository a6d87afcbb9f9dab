"""A trainer's rows that readers read: asked for when a lease of them has come, before they are wanted."""

from __future__ import annotations

import logging
import threading
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from leashed import _core
from leashed.cluster import batch_wire
from leashed.cluster.connecting import Connecting
from leashed.cluster.row_index import RowIndex
from leashed.cluster.server_tending import BATCHES
from leashed.datasets.fields import Weight
from leashed.datasets.moments import Moments
from leashed.stream import ReadCounts, SparseStream, Stream
from leashed.stream.stream import Opened, Options
from leashed.stream.text import PART_BYTES

__all__ = ["BatchTending", "SentSparse", "SentStream", "sent"]

_AT_ONCE = 4096  # rows of a request, about,
_BYTES = 64 << 20  # and what these may have in memory, about
_GROWS = 8.0  # bytes in memory for one in a file, at most, about
_CREDITS = 4  # requests of a connection that have no answer
_STRIPE = 1 << 16  # rows that one reader has before the next has as many
_AGAIN = 0.2  # seconds before a connection is tried again
_LOOK = 0.05  # seconds between two looks whether something is wanted

_TAKEN = "this trainer was taken for dead, and others have trained on what a worker waits for: start it again"

_log = logging.getLogger(__name__)


class _Sent(ABC):
    """What streams of rows that others read have in common, whatever their rows are."""

    batch_size = workers = 1
    native: _core.SentRows | None = None
    standard: Moments | None = None
    index: RowIndex
    _readers: int

    @property
    @abstractmethod
    def layout(self) -> batch_wire.Layout:
        """What rows are made of."""

    @property
    def files(self) -> tuple[Path, ...]:
        return ()

    @property
    def digest(self) -> str:
        """Of the rows."""
        return self.index.digest

    def know(self, rows: int) -> None:
        """So many have come of those of which it was not known how many there are."""
        self.index = replace(self.index, counts=replace(self.index.counts, rows=rows))

    def asked_by(self, batch_size: int, workers: int) -> None:
        """A trainer with so many, which opens it next."""
        self.batch_size, self.workers = batch_size, workers

    def _asks(self, passes: int) -> _core.SentRows:
        """For so many passes, anew."""
        layout, at_once = self.layout, _at_once(self.index, self.batch_size)
        self.native = _core.SentRows(
            numbers=layout.numbers,
            bags=list(layout.bags),
            classes=layout.classes > 0,
            values=layout.values,
            weights=layout.weights,
            columns=layout.columns,
            distinct_columns=layout.distinct,
            rows=self.index.rows,
            passes=1 if self.index.once else passes,
            at_once=at_once,
            room=max(2 * _CREDITS * at_once, 4 * self.workers * self.batch_size),
            stripe=_STRIPE,
            readers=self._readers,
        )
        return self.native


class SentStream(_Sent, Stream):
    """A stream whose rows others read and send.

    Args:
        stream: which, whose rows come in the order of its files.
        index: of these.
        readers: how many read.

    Attributes:
        source: the first.
        index: the second; of rows that come once, what it tells of them at the end of the run.
        batch_size, workers: of the trainer that asks for them.
        native: what has come, once it is opened.
        standard: by what numbers are standardised; None: they stay as they are.
    """

    def __init__(self, stream: Stream, index: RowIndex, readers: int) -> None:
        super().__init__(stream.name, stream._schema, Options(stream.bad, None, 0, 0))
        self.source, self.index, self._readers = stream, index, readers

    @property
    def repeatable(self) -> bool:
        return not self.index.once

    @property
    def layout(self) -> batch_wire.Layout:
        values = max(1, len(self.heads))
        weights = any(isinstance(c, Weight) for c in self._schema.columns.values())
        return batch_wire.Layout(
            self.numbers, self._many, 0 if self.heads else self.classes, values, weights
        )

    def open(self, passes: int = 1, *, beside: int = 0) -> Opened:
        del beside
        return _Opened(self._open(0, passes), self)

    def _open(self, threads: int, passes: int) -> Any:
        del threads
        return self._asks(passes)


class SentSparse(_Sent, SparseStream):
    """A stream of sparse rows that others read and send; arguments and attributes as of ``SentStream``."""

    def __init__(self, stream: SparseStream, index: RowIndex, readers: int) -> None:
        text = stream.text
        super().__init__(
            stream.files,
            text.features,
            text.first,
            text.fields,
            text.classes,
            Options(stream.bad, None, 0, 0),
            PART_BYTES,
        )
        self.source, self.index, self._readers = stream, index, readers
        self._distinct = False

    @property
    def layout(self) -> batch_wire.Layout:
        return batch_wire.Layout(
            0,
            (True,),
            self.classes,
            1,
            weights=False,
            columns=self.features,
            distinct=self._distinct,
        )

    def open(
        self,
        passes: int = 1,
        *,
        beside: int = 0,
        distinct_columns: bool = False,
        tells_fields: bool = False,
    ) -> Opened:
        del beside, tells_fields
        self._distinct = distinct_columns
        return _Opened(self._asks(passes), self)


def _at_once(index: RowIndex, batch_size: int) -> int:
    """Rows of a request, in whole batches: fewer where rows are long."""
    if index.once:  # which are to be there before they are granted
        return min(batch_size, batch_wire.MOST_ROWS)
    in_files = max(index.counts.bytes, sum(file.size for file in index.files))
    rows = min(_AT_ONCE, int(_BYTES * index.rows / (_GROWS * max(1, in_files))))
    return min(max(1, rows // batch_size) * batch_size, batch_wire.MOST_ROWS)


def sent(stream: Stream | SparseStream, index: RowIndex, readers: int) -> SentStream | SentSparse:
    """The same rows, which others read and send."""
    if isinstance(stream, SparseStream):
        return SentSparse(stream, index, readers)
    return SentStream(stream, index, readers)


class _Opened(Opened):
    def __init__(self, native: Any, of: _Sent) -> None:
        super().__init__(native)
        self._of = of

    @property
    def counts(self) -> ReadCounts:
        return self._of.index.counts


class BatchTending:
    """Has rows sent.

    Args:
        stream: which, opened.
        connecting: makes connections.
        readers: how many there are.
        patience: seconds for which readers are waited for, where none sends what it is asked for.
    """

    def __init__(
        self,
        stream: SentStream | SentSparse,
        connecting: Connecting,
        readers: int,
        patience: float,
    ) -> None:
        assert stream.native is not None
        self._stream, self._native = stream, stream.native
        self._connecting, self._patience = connecting, patience
        self._addresses: dict[int, str] = {}
        self._reached = [False] * readers
        self._heard = time.monotonic()
        self._rows = [0] * readers
        self._why: dict[int, str] = {}
        self._threads = [
            threading.Thread(target=self._run, args=(k,), name=f"leashed-reader-{k}", daemon=True)
            for k in range(readers)
        ]
        for thread in self._threads:
            thread.start()

    def told(self, addresses: Mapping[int, str]) -> None:
        """These are there, by index."""
        self._addresses = dict(addresses)

    def expect(self, first: int, count: int) -> None:
        """Such batches are going to be trained on."""
        size = self._stream.batch_size
        self._native.expect(first * size, count * size)

    def know(self, rows: int) -> None:
        """There are so many, which was not known."""
        self._native.know(rows)
        self._stream.know(rows)

    def forget(self) -> None:
        """None is, but those that a worker waits for."""
        self._native.forget()

    def counters(self) -> dict[str, float]:
        """So far: rows received."""
        return {"rows_received": float(sum(self._rows))}

    def end(self) -> None:
        """No rows come any more; who waits for some has none."""
        self._native.end()

    def close(self) -> None:
        """Nothing is asked for any more; ``Connecting.closing`` is set."""
        self._native.end()
        for thread in self._threads:
            thread.join()
        if not self._stream.index.rows:
            self._stream.know(sum(self._rows))

    def _run(self, reader: int) -> None:
        closing = self._connecting.closing
        while not closing.is_set() and not self._native.stopped:
            if (address := self._addresses.get(reader)) is not None:
                try:
                    self._serve(reader, address)
                except batch_wire.RefusedError as error:
                    self._native.fail(f"reader {reader}: {error}")
                    return
                except Exception as error:  # noqa: BLE001 (else nobody would ask for its rows)
                    if self._why.get(reader) != str(error):
                        _log.info("reader %d at %s: %s", reader, address, str(error))
                    self._why[reader] = str(error)
                self._reached[reader] = False
            if not any(self._reached) and time.monotonic() - self._heard > self._patience:
                why = "; ".join(f"reader {k}: {told}" for k, told in sorted(self._why.items()))
                self._native.fail(
                    f"no reader has sent any rows for {self._patience:g} s{why and f' ({why})'}"
                )
                return
            closing.wait(_AGAIN)

    def _serve(self, reader: int, address: str) -> None:
        """Asks and receives, until the connection or the run ends."""
        link = self._connecting.connect(address, BATCHES, "reader")
        native, layout = self._native, self._stream.layout
        asked: deque[tuple[int, int]] = deque()
        with link:
            link.settimeout(max(self._connecting.timeout, 1.0))
            batch_wire.check_hello(link, self._stream.index)
            self._reached[reader] = True
            try:
                while not self._connecting.closing.is_set():
                    while len(asked) < _CREDITS:
                        found = native.wanted(self._those(reader), 0.0 if asked else _LOOK)
                        if found is None:
                            break
                        asked.append(found)
                        batch_wire.ask(link, native.row(found[0]), found[1])
                    if not asked:
                        self._heard = time.monotonic()
                        if native.stopped:
                            return
                        continue
                    try:
                        arrays = batch_wire.receive(link, asked[0][1], layout)
                    except batch_wire.UsedError as error:
                        # Where nobody waits, the master tells soon that the lease is another's.
                        if native.lost(asked.popleft()):
                            raise batch_wire.RefusedError(f"{error}; {_TAKEN}") from error
                        raise
                    if (standard := self._stream.standard) is not None:
                        arrays = (standard.standardised(arrays[0]), *arrays[1:])
                    native.give(asked[0], arrays, layout.classes)
                    self._rows[reader] += asked.popleft()[1]
                    self._heard = time.monotonic()
            except RuntimeError as error:
                raise ValueError(str(error)) from error
            finally:
                for span in asked:
                    native.lost(span)

    def _those(self, reader: int) -> list[bool]:
        """Whose rows it is asked for: its own, and the first one that is there those of whom is not."""
        first = self._reached.index(True) if any(self._reached) else reader
        return [
            k == reader or (reader == first and not there) for k, there in enumerate(self._reached)
        ]
