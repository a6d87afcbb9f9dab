"""The role ``reader``: reads the files that are trained on, and sends trainers the rows that they ask for.

It keeps nothing of who has had which rows: it sends whatever rows are named, by number, as often as
somebody asks. Of what is asked for, the parts of the files that come next are parsed ahead.
"""

from __future__ import annotations

import contextlib
import logging
import socket
import threading
from collections import OrderedDict
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from leashed.base.machine import cores
from leashed.cluster import batch_wire
from leashed.cluster.once_read import OnceRead
from leashed.cluster.opening import Peer
from leashed.cluster.row_index import RowIndex, files_of, index_of
from leashed.cluster.row_parts import Parsed, RowFiles
from leashed.cluster.row_slices import bytes_of, slice_of
from leashed.cluster.server_tending import BATCHES
from leashed.cluster.serving import Place, over
from leashed.models.factorisation import FactorisationMachine

if TYPE_CHECKING:
    from leashed.cluster.plan import Plan

__all__ = ["Rows", "attend", "batches_of", "run", "serve", "threads"]

_AHEAD = 2  # parts behind the one that is asked for
_OPEN = 16  # files, each with the places that it keeps
_KEPT = 256 << 20  # bytes of parts that have been parsed

_log = logging.getLogger(__name__)


def run(plan: Plan, index: int) -> None:
    """The role as a plan describes it, until the run has ended.

    Raises:
        OSError: a file cannot be read, or the master not be reached.
        ValueError: a line is bad, or the run is another.
    """
    problem = plan.problem()
    rows = index_of(problem.train, problem.model, plan.cluster.run)
    served: Rows | OnceRead
    if rows.once:
        served = OnceRead(
            rows,
            problem.train,
            plan.train.batch_size,
            plan.cluster.run,
            batches_of(plan.cluster.trainers, plan.train.threads),
            distinct=isinstance(problem.model, FactorisationMachine),
        )
    else:
        served = Rows(rows, files_of(problem.train, problem.model), threads())
    with contextlib.closing(served):
        attend(served, index, Place.of(plan, "reader", index))


def batches_of(trainers: int, workers: int | str) -> int:
    """That so many may have at one time, of those that come once: of each worker the one that it trains
    on and the next, and as many that are granted beforehand. Words stand for a worker a processor.
    """
    return 4 * trainers * (workers if isinstance(workers, int) else cores())


def threads() -> int:
    """That parse."""
    return max(1, cores() // 2)


def attend(rows: Rows | OnceRead, index: int, place: Place) -> None:
    """Send rows as reader ``index``, which has its run there, until that has ended.

    Raises:
        ValueError: the run is another.
        OSError: the master cannot be reached (any more).
    """
    words = {"data": rows.index.digest}
    with place.joined("reader", index, _accepting(rows), words) as (member, heard):
        while not over(heard, member, member.welcome.run):
            member.report(rows.counters())
            if isinstance(rows, OnceRead):
                rows.tend(member)


class Rows:
    """The rows of an index, by their numbers, for any number of threads.

    Args:
        index: which.
        files: how they are read.
        threads: that parse.
    """

    def __init__(self, index: RowIndex, files: RowFiles, threads: int) -> None:
        self.index, self._read = index, files
        self._pool = ThreadPoolExecutor(threads, "leashed-parse")
        self._lock = threading.Lock()
        self._files: OrderedDict[int, Any] = OrderedDict()
        self._parsed: OrderedDict[int, Future[Parsed]] = OrderedDict()
        self._sizes: dict[int, int] = {}  # bytes of those that have been parsed
        self._left: dict[int, int] = {}  # rows of those that are sent in part
        self._counted = {"rows_sent": 0.0, "parts_parsed": 0.0, "refused": 0.0}

    def close(self) -> None:
        """Nothing is read any more."""
        self._pool.shutdown(cancel_futures=True)
        for file in self._files.values():
            file.close()

    @property
    def rows(self) -> int:
        """That there are."""
        return self.index.rows

    def counters(self) -> dict[str, float]:
        """So far: rows sent, parts parsed, requests that were refused."""
        with self._lock:
            return dict(self._counted)

    def count(self, name: str, more: int) -> None:
        """Something has happened so often."""
        with self._lock:
            self._counted[name] += more

    def read(self, first: int, count: int) -> list[Any]:
        """Rows [first, first + count): arrays as the core gives them, one tuple of each part.

        Raises:
            OSError: a file cannot be read.
            ValueError: one has changed since its rows were counted.
            MemoryError: there is none for a part. What is raised holds for this time alone.
        """
        found = []
        for part, begin, taken in self.index.spans(first, count):
            work = self._work(part)
            for ahead in range(part + 1, min(part + 1 + _AHEAD, len(self.index.parts))):
                self._work(ahead)
            try:
                found.append(slice_of(work.result().arrays, begin, begin + taken))
                self._given(part, taken)
            except Exception:
                with self._lock:
                    if self._parsed.get(part) is work:
                        self._forget(part)
                raise
        return found

    def _given(self, part: int, rows: int) -> None:
        """So many rows of a part are sent: one of which all are makes room, while its memory is warm."""
        with self._lock:
            self._left[part] = self._left.get(part, self.index.parts[part].rows) - rows
            if self._left[part] <= 0:
                self._forget(part)

    def _forget(self, part: int) -> None:
        self._parsed.pop(part, None)
        self._sizes.pop(part, None)
        self._left.pop(part, None)

    def _work(self, part: int) -> Future[Parsed]:
        with self._lock:
            work = self._parsed.get(part)
            if work is None:
                work = self._parsed[part] = self._pool.submit(self._parse, part)
            self._parsed.move_to_end(part)
            while len(self._parsed) > _AHEAD + 2 and sum(self._sizes.values()) > _KEPT:
                oldest, parsed = next(iter(self._parsed.items()))
                if not parsed.done():
                    break
                self._forget(oldest)
            return work

    def _parse(self, number: int) -> Parsed:
        part = self.index.parts[number]
        file = self.index.files[part.file]
        file.check()
        with self._lock:
            if part.file not in self._files:
                self._files[part.file] = self._read.open(part.file, file)
            opened = self._files[part.file]
            self._files.move_to_end(part.file)
            while len(self._files) > _OPEN:  # whoever reads one still has it
                self._files.popitem(last=False)
        parsed = self._read.parse(file, opened, part)
        if parsed.rows != part.rows:
            raise ValueError(
                f"{file.path} has changed since its rows were counted: a part of it has {parsed.rows:,} "
                f"rows, and had {part.rows:,}; start the run anew, in another folder"
            )
        self.count("parts_parsed", 1)
        with self._lock:
            if number in self._parsed:
                self._sizes[number] = bytes_of(parsed.arrays)
        return parsed


def _accepting(rows: Rows | OnceRead) -> Any:
    """What a listener calls with each connection."""

    def accept(link: socket.socket, peer: Peer) -> None:
        if peer.purpose != BATCHES:
            link.close()
            return
        threading.Thread(target=serve, args=(rows, link, peer.name), daemon=True).start()

    return accept


def serve(rows: Rows | OnceRead, link: socket.socket, name: str) -> None:
    """Answer a trainer until its connection ends; one that asks for what there is not is closed."""
    with contextlib.closing(link):
        try:
            link.sendall(batch_wire.hello(rows.index))
            for first, count in _asked(rows, link):
                try:
                    found = rows.read(first, count)
                except ValueError as error:
                    _log.error("%s", str(error))
                    batch_wire.refuse(link, str(error))
                    return
                except batch_wire.UsedError as error:
                    _log.warning("%s asks for what is gone: %s", name, str(error))
                    batch_wire.used(link, str(error))
                    return
                except Exception as error:  # noqa: BLE001 (of this machine: may pass, others may have it)
                    _log.error("rows from %d on cannot be read for now: %s", first, str(error))
                    return
                batch_wire.send(link, found)
                rows.count("rows_sent", count)
        except ValueError as error:
            rows.count("refused", 1)
            _log.warning("%s is refused: %s", name, str(error))
        except OSError as error:
            _log.info("the connection of %s has ended: %s", name, str(error))


def _asked(rows: Rows | OnceRead, link: socket.socket) -> Iterator[tuple[int, int]]:
    while (asked := batch_wire.asked(link)) is not None:
        first, count = asked
        if not 0 < count <= batch_wire.MOST_ROWS or first + count > rows.rows:
            raise ValueError(f"it asks for {count:,} rows from {first:,} on")
        yield first, count
