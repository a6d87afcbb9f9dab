"""The master's journal: a line of JSON for each change, on the disk before anybody hears of it. Once it
is long, all that it amounts to takes its place.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import logging
import os
import time
from collections.abc import Iterable
from pathlib import Path

import msgspec

from leashed.cluster.state import Began, Entry, Snapshot, State

__all__ = ["Journal", "held", "lines", "read"]

_LONG = 1 << 20  # bytes behind the last snapshot, and
_TIMES = 4  # times as many as that has, after which the next is due

_LOOKED_AT = 0.5  # seconds, for much less of which ``held`` may have the lock

_log = logging.getLogger(__name__)
_decoder = msgspec.json.Decoder(Entry)


def read(path: Path) -> tuple[Began, State, int] | None:
    """What a journal amounts to, and the bytes of it that count: a last line that is torn was
    never heard of by anybody. None where there is no journal, or nothing in it.

    Raises:
        ValueError: it is damaged.
        OSError: it cannot be read.
    """
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return None
    whole = content.rfind(b"\n") + 1
    lines = content[:whole].splitlines()
    if not lines:
        return None
    began: Began | None = None
    state: State | None = None
    for number, line in enumerate(lines, 1):
        try:
            entry = _decoder.decode(line)
            if isinstance(entry, Began) and began is None:
                began, state = entry, State.of(entry.terms)
            elif began is None or state is None or isinstance(entry, Began):
                raise ValueError("it is no beginning" if began is None else "it begins again")
            elif isinstance(entry, Snapshot):
                state = entry.state
            else:
                state.apply(entry)
        except (ValueError, RecursionError) as error:
            raise ValueError(
                f"{path}, line {number}, is damaged ({error}); give another folder, or put the "
                "journal back as it was"
            ) from None
    assert began is not None
    assert state is not None
    return began, state, whole


def held(path: Path) -> bool:
    """Whether a master has that journal now."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False


def lines(entries: Iterable[Entry]) -> bytes:
    """As they are in the file."""
    return b"".join(msgspec.json.encode(entry) + b"\n" for entry in entries)


class Journal:
    """A journal that is written. One process at a time has it, and one thread.

    Args:
        path: the file; made where there is none.

    Attributes:
        found: what stood in it: the beginning and the state; None where it is new.

    Raises:
        BlockingIOError: another master has it.
        ValueError: it is damaged.
        OSError: it cannot be written.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._descriptor = _locked(path)
        try:
            found = read(path)
            self._size = found[2] if found else 0
            os.ftruncate(self._descriptor, self._size)
            self.found = found and found[:2]
            self._due = _LONG
        except BaseException:
            self.close()
            raise

    @property
    def long(self) -> bool:
        """Whether it is time for a snapshot."""
        return self._size > self._due

    def write(self, entries: bytes, whole: bytes | None = None) -> None:
        """Write these ``lines``; they are on the disk when this returns. Or, in place of all that is
        there, ``whole``: the beginning, and a snapshot with what the entries say. Where there is no
        room for it beside the other, that goes on.
        """
        if whole is None or not self._replaced(whole):
            _write(self._descriptor, entries)
            self._size += len(entries)

    def _replaced(self, whole: bytes) -> bool:
        fresh = self._path.with_suffix(".new")
        descriptor = -1
        try:
            fresh.unlink(missing_ok=True)
            descriptor = _locked(fresh)
            _write(descriptor, whole)
            fresh.rename(self._path)
        except OSError as error:
            if descriptor >= 0:
                os.close(descriptor)
            with contextlib.suppress(OSError):
                fresh.unlink(missing_ok=True)
            _log.warning(
                "the journal stays as long as it is (%d bytes): %s", self._size, str(error)
            )
            self._due = self._size + _LONG
            return False
        os.close(self._descriptor)
        self._descriptor, self._size = descriptor, len(whole)
        self._due = self._size + max(_LONG, _TIMES * self._size)
        _sync_folder(self._path.parent)
        return True

    def close(self) -> None:
        """Leave it to others."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


def _locked(path: Path) -> int:
    """A descriptor that appends to the file under its name, which nobody else has."""
    end = time.monotonic() + _LOOKED_AT
    while True:
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
        descriptor = os.open(path, flags, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            _sync_folder(path.parent)
            if path.exists() and os.path.samestat(path.stat(), os.fstat(descriptor)):
                return descriptor
        except BlockingIOError:
            os.close(descriptor)
            if time.monotonic() < end:
                time.sleep(0.01)
                continue
            raise BlockingIOError(
                errno.EWOULDBLOCK,
                "another master has this journal; end it, or give another folder",
                str(path),
            ) from None
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)  # another has put a new file in its place meanwhile


def _write(descriptor: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]
    os.fsync(descriptor)


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_CLOEXEC | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
