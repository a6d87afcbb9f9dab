"""Rows that come once, out of a pipe, as a reader has them: read in their order, and kept until no trainer
can ask for them any more. Where much is kept, reading waits.
"""

from __future__ import annotations

import logging
import threading
from bisect import bisect_right
from collections import deque
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from leashed.cluster.batch_wire import UsedError
from leashed.cluster.member import Member
from leashed.cluster.messages import MOST_WORDS, There
from leashed.cluster.row_index import RowIndex
from leashed.cluster.row_slices import bytes_of, slice_of
from leashed.stream import SparseStream

if TYPE_CHECKING:
    from leashed.training.sets import AnyStream

__all__ = ["OnceRead"]

_KEPT = 256 << 20  # bytes
_AT_ONCE = 1 << 14  # rows of a block, at most
_LOOK = 0.1  # seconds between two looks whether rows have come, or the end has

_log = logging.getLogger(__name__)


class OnceRead:
    """The rows of a pipe, by their numbers, for any number of threads.

    Args:
        index: that of the run.
        stream: whose rows they are.
        batch_size: of the run.
        folder: of the run, where its index tells at the end what was read.
        batches: that are kept, whatever they have: as many as trainers may have at one time.
        distinct: whether a column that comes again in a sparse row is added to where it came first.
        kept: bytes of rows beyond which reading waits. Default: 256 MiB.

    Attributes:
        index: the first.
    """

    def __init__(
        self,
        index: RowIndex,
        stream: AnyStream,
        batch_size: int,
        folder: Path,
        batches: int,
        *,
        distinct: bool = False,
        kept: int = _KEPT,
    ) -> None:
        self.index, self._folder = index, folder
        self._batch_size, self._most = batch_size, kept
        self._least = batches * batch_size
        if isinstance(stream, SparseStream):
            self._opened = stream.open(distinct_columns=distinct)
        else:
            self._opened = stream.open()
        self._changed = threading.Condition()
        self._blocks: deque[Any] = deque()  # of rows, in order
        self._firsts: deque[int] = deque()  # number of the first row of each
        self._bytes = 0
        self._there = There()
        self._told: There | None = None  # of that, to the master
        self._ended = False
        self._counted = {"rows_sent": 0.0, "refused": 0.0}
        self._thread = threading.Thread(target=self._read, name="leashed-pipe", daemon=True)

    def close(self) -> None:
        """Nothing is read any more; the index tells what was."""
        with self._changed:
            self._ended = True
            self._changed.notify_all()
        self._opened.native.end()
        if self._thread.ident is not None:
            self._thread.join()
            if not self._there.ended:
                self._keep_counts()

    @property
    def rows(self) -> int:
        """That have come so far."""
        with self._changed:
            return self._there.rows

    def counters(self) -> dict[str, float]:
        """So far: rows sent, requests that were refused, rows that are kept, and lines left out."""
        with self._changed:
            bad = self._opened.counts.bad
            return {**self._counted, "rows_kept": float(self._kept()), "bad_lines": float(bad)}

    def count(self, name: str, more: int) -> None:
        """Something has happened so often."""
        with self._changed:
            self._counted[name] += more

    def tend(self, member: Member) -> None:
        """Tells the master what has come, and lets go what is used."""
        with self._changed:
            there = self._there
        if there is not self._told:
            member.read(there)
            if self._told is None:
                member.ask()
            self._told = there
        if (account := member.account) is None:
            return
        if self._thread.ident is None:  # whoever takes this one's place is told apart from now on
            self._thread.start()
        batch = min([account.next, *(first for first, _ in account.open)])
        self._let_go(batch * self._batch_size)

    def read(self, first: int, count: int) -> list[Any]:
        """Rows [first, first + count): arrays as the core gives them, one tuple of each block.

        Raises:
            UsedError: some of them are used, and not kept any more.
        """
        found = []
        with self._changed:
            if not self._firsts or first < self._firsts[0]:
                raise UsedError(f"rows from {first:,} on are used, and not kept any more")
            at = bisect_right(self._firsts, first) - 1
            while count > 0:
                begin = first - self._firsts[at]
                taken = min(count, len(self._blocks[at][3]) - begin)
                found.append(slice_of(self._blocks[at], begin, begin + taken))
                first, count, at = first + taken, count - taken, at + 1
        return found

    def _let_go(self, row: int) -> None:
        """No row before that is asked for any more."""
        with self._changed:
            while self._blocks and self._firsts[0] + len(self._blocks[0][3]) <= row:
                self._bytes -= bytes_of(self._blocks.popleft())
                self._firsts.popleft()
            self._changed.notify_all()

    def _kept(self) -> int:
        """How many rows are."""
        return self._there.rows - self._firsts[0] if self._firsts else 0

    def _full(self) -> bool:
        return self._bytes > self._most and self._kept() > self._least

    def _keep_counts(self) -> None:
        replace(self.index, counts=self._opened.counts).keep(self._folder)

    def _read(self) -> None:
        native = self._opened.native
        try:
            native.start()
            while True:
                with self._changed:
                    self._changed.wait_for(lambda: self._ended or not self._full())
                    if self._ended:
                        return
                    rows = self._there.rows
                wanted = self._come(rows)
                if wanted is None:
                    continue
                block = native.take(wanted)
                count = len(block[3])
                if count < wanted:
                    self._keep_counts()
                with self._changed:
                    if count:
                        self._firsts.append(rows)
                        self._blocks.append(block)
                        self._bytes += bytes_of(block)
                    self._there = There(rows + count, ended=count < wanted)
                if count < wanted:
                    return
        except Exception as error:  # noqa: BLE001 (the run is told, whatever it is)
            _log.error("%s", str(error))
            with self._changed:
                self._there = There(self._there.rows, failed=str(error)[:MOST_WORDS] or "it failed")

    def _come(self, rows: int) -> int | None:
        """How many behind so many are to be taken now, of which none is waited for; None: none have come,
        and more may. At the end more than there are.
        """
        native, size = self._opened.native, self._batch_size
        if (known := native.known(rows + size, _LOOK)) is None:
            return None
        if known < rows + size:
            return size
        most = max(1, _AT_ONCE // size)
        batches = 1
        while batches < most and native.known(rows + 2 * batches * size, 0.0) is not None:
            batches *= 2
        return batches * size
