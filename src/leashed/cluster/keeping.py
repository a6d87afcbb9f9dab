"""What a server leaves to the one that is started in its place: snapshots now and then, and the count of
what there was, which tells what a restart has lost.
"""

from __future__ import annotations

import contextlib
import logging
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO, Protocol

__all__ = ["Counts", "Keeping", "Tally", "replacing"]

_WRITING = 0.1  # of the time, at most, snapshots are written

_log = logging.getLogger(__name__)


class Tally(Protocol):
    """Who knows how many changes there were.

    Attributes:
        lost: by restarts, so far.
    """

    lost: int

    def keep(self, changes: int, /) -> None:
        """There were so many, with those of the snapshot. OSError where it cannot be written."""

    def sync(self) -> None:
        """What was written is to outlast a power cut. OSError where it cannot."""


class Keeping:
    """What a server leaves to the one that is started in its place: snapshots, and beside them, more
    often, how many changes there were, which tells what a restart has lost.

    What cannot be written costs that writing alone: what was written before stays, and the next
    comes when it is due.

    Args:
        changes: how many there were, with those of the snapshot that it began with.
        save: writes a snapshot; how many changes are in it. OSError where it cannot.
        counts: of how many there were.
        restored: changes in the snapshot from which this server goes on.
        every: seconds between two snapshots, at least.
        first: seconds that the first one is thought to take, where it takes longer than the next: a tenth
            of the time is for that one too.
    """

    def __init__(
        self,
        changes: Callable[[], int],
        save: Callable[[], int],
        counts: Tally,
        restored: int,
        every: float,
        first: float = 0.0,
    ) -> None:
        self._changes = changes
        self._write = save
        self._every = every
        self._counts = counts
        self._saved = restored
        self._due = time.monotonic() + max(every, first / _WRITING)
        self._hurries = False
        self._failed = 0
        self._told = False
        self._wrote(lambda: self._counts.keep(restored))

    def counters(self) -> dict[str, float]:
        """What is reported of it."""
        return {"lost": self._counts.lost, "snapshots_failed": self._failed}

    def keep(self, changes: int) -> None:
        """There were so many, with those of the snapshot: writes what has changed and is due."""
        self._wrote(lambda: self._counts.keep(changes))
        if not self.due(changes):
            return
        begun = time.monotonic()
        hurried, self._hurries = self._hurries, False  # (What is told meanwhile is for the next.)
        self._wrote(self._counts.sync)
        if not self._wrote(self._save):
            self._failed += 1
            if hurried:
                self._saved = -1  # when it is due, whatever has changed until then
        took = time.monotonic() - begun
        self._due = begun + max(self._every, took / _WRITING)

    def due(self, changes: int) -> bool:
        """Whether ``keep`` of so many writes a snapshot now."""
        return self._hurries or (time.monotonic() >= self._due and changes != self._saved)

    def hurry(self) -> None:
        """With the next ``keep`` all is written, also where there was no change that counts as one. From any
        thread.
        """
        self._hurries = True

    def end(self) -> None:
        """What has changed is written, and what trainers exchange meanwhile counted."""
        self._due = 0.0
        self.keep(self._changes())
        self._wrote(lambda: self._counts.keep(self._changes()))

    def _save(self) -> None:
        self._saved = self._write()

    def _wrote(self, write: Callable[[], None]) -> bool:
        """Whether it could be written; if not, why is told once."""
        try:
            write()
        except OSError as error:
            if not self._told:
                _log.warning(
                    "a snapshot cannot be written (%s): the last one stays, and it is tried again. "
                    "What is exchanged meanwhile is lost where this server is started again; "
                    "snapshots_failed in its report counts on",
                    str(error),
                )
            self._told = True
            return False
        return True


class Counts:
    """How many changes there were, and how many were lost by restarts, in a file beside the snapshot.
    It is written with each report, and is on the disk before each snapshot: of those since then nobody
    knows.

    Args:
        path: the file.
        run: the run's name.
        restored: changes in the snapshot from which this server goes on.

    Attributes:
        lost: so far.
    """

    def __init__(self, path: Path, run: str, restored: int) -> None:
        self._path = path
        self._run = run
        self._written = -1
        self.lost = 0
        with contextlib.suppress(FileNotFoundError):
            try:
                of, changes, lost = path.read_text(encoding="ascii").split()
                if of == run:
                    self.lost = int(lost) + max(0, int(changes) - restored)
                else:
                    _log.info("%s is of run %s, and is begun anew", path, of)
            except ValueError:
                _log.warning(
                    "%s is damaged: what restarts have lost so far is not known, and is counted anew",
                    path,
                )

    def keep(self, changes: int) -> None:
        """There were so many, with those of the snapshot. OSError where it cannot be written."""
        if changes == self._written:
            return
        with replacing(self._path, ".count.new") as file:
            file.write(f"{self._run} {changes} {self.lost}\n".encode())
        self._written = changes

    def sync(self) -> None:
        """What was written is to outlast a power cut. OSError where it cannot."""
        with self._path.open("rb") as file:
            os.fsync(file.fileno())


@contextlib.contextmanager
def replacing(path: Path, suffix: str) -> Iterator[BinaryIO]:
    """A file that takes the other's place once it is whole; where it fails, nothing is left of it."""
    beside = path.with_suffix(suffix)
    try:
        with beside.open("wb") as file:
            yield file
        beside.replace(path)
    except OSError:
        beside.unlink(missing_ok=True)
        raise
