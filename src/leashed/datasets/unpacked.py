"""What a file unpacks to, from any place of it: for who reads parts of files in any order."""

from __future__ import annotations

import io
import os
import stat
import threading
import zlib
from bisect import bisect_right
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Protocol

from leashed.datasets.files import MAGIC, name_of, packed_by, unpacking_errors, zstd_frames

__all__ = ["Unpacked"]

_STEP = 4 << 20  # bytes between two places that can be gone on from, at first
_MOST = 256  # places that are kept: of gzip some 40 KiB each
_PACKED = 1 << 18  # bytes of the packed file that are read at once
_PASSED = 1 << 20  # bytes in memory at once of what is not wanted
_GZIP = 31  # zlib's window bits, where gzip's header comes first


class Unpacked:
    """A regular file, plain or packed by gzip or zstd (told by its content): bytes from any place of what
    it unpacks to. What is asked for in order is unpacked once. To go back, a gzip file is unpacked from
    one of 256 places that are kept on the way, 4 MiB apart or, of a longer one, as many times that as it
    takes; a zstd file from a frame's beginning. From any thread.

    Args:
        path: of the file, which stays open until ``close()``.

    Raises:
        OSError: it cannot be opened.
        ValueError: it is no regular file, or packed by zstd and nothing here unpacks that.
    """

    def __init__(self, path: Path) -> None:
        self._name = name_of(path)
        self._file = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        try:
            if not stat.S_ISREG(os.fstat(self._file).st_mode):
                raise ValueError(
                    f"{self._name} is no regular file, and cannot be read from any place"
                )
            self._packed = packed_by(os.pread(self._file, MAGIC, 0))
            self._errors = unpacking_errors()
            self._lock = threading.Lock()
            self._step = _STEP
            self._kept: list[tuple[int, _Reader]] = []
            self._at = 0
            if self._packed:
                self._here = self._begun()
        except BaseException:
            self.close()
            raise

    @property
    def packed(self) -> bool:
        """Whether it is."""
        return bool(self._packed)

    def close(self) -> None:
        """Nothing is read any more."""
        if getattr(self, "_file", -1) >= 0:
            os.close(self._file)
            self._file = -1

    __del__ = close

    def read(self, first: int, count: int) -> bytes:
        """Bytes [first, first + count) of what it unpacks to, fewer where that ends before.

        Raises:
            OSError: it cannot be read.
            ValueError: it is damaged as a packed file.
        """
        if not self._packed:
            return b"".join(_plain(self._file, first, count))
        with self._lock:
            try:
                self._go_to(first)
                return b"".join(self._next(first + count, _PASSED))
            except self._errors as error:
                self._at, self._here = 0, self._begun()
                raise ValueError(f"{self._name}: corrupt {self._packed} file: {error}") from error

    def at(self, first: int, count: int) -> io.RawIOBase | io.BytesIO:
        """The same bytes, as a file: of a plain file they are read by who reads that, where he wants them."""
        if self._packed:
            return io.BytesIO(self.read(first, count))
        return _From(self._file, first, first + count, self)

    def _begun(self) -> _Reader:
        return _Gzip(self._file) if self._packed == "gzip" else _Frames(self._file, 0, self._name)

    def _go_to(self, first: int) -> None:
        """Passes over what lies before, from the nearest place that can be gone on from."""
        found = bisect_right(self._kept, first, key=lambda kept: kept[0])
        at, reader = self._kept[found - 1] if found else (0, None)
        if first < self._at or at > self._at:
            again = None if reader is None else reader.copy()
            self._at, self._here = (at, again) if again is not None else (0, self._begun())
        for _ in self._next(first, _PASSED):
            pass

    def _next(self, end: int, most: int) -> Iterator[bytes]:
        """What follows, up to that place."""
        while self._at < end and (found := self._here.read(min(most, end - self._at))):
            self._at += len(found)
            self._keep()
            yield found

    def _keep(self) -> None:
        if self._at - (self._kept[-1][0] if self._kept else 0) < self._step:
            return
        if (copy := self._here.copy()) is None:
            return
        self._kept.append((self._at, copy))
        if len(self._kept) > _MOST:
            self._kept = self._kept[1::2]
            self._step *= 2


class _Reader(Protocol):
    """What comes out of a packed file from some place on."""

    def read(self, most: int) -> bytes:
        """Up to so many bytes; none at the end."""

    def copy(self) -> _Reader | None:
        """Another, that goes on from here; None: none can."""


class _Gzip:
    """The members of a gzip file, one after another."""

    def __init__(self, file: int) -> None:
        self._file = file
        self._next = 0  # of the packed file
        self._held = b""  # read, and not unpacked
        self._member: Any = None

    def read(self, most: int) -> bytes:
        while True:
            if not self._held:
                self._held = os.pread(self._file, _PACKED, self._next)
                self._next += len(self._held)
            if self._member is None:
                if not self._held:
                    return b""
                self._member = zlib.decompressobj(_GZIP)
            found: bytes = self._member.decompress(self._held, most)
            if not (found or self._held or self._member.eof):
                raise EOFError("it ends before the end was marked")
            self._held = self._member.unconsumed_tail
            if self._member.eof:
                self._held = self._member.unused_data
                self._member = None
                self._pass_zeros()
            if found:
                return found

    def copy(self) -> _Gzip:
        copy = _Gzip(self._file)
        copy._next, copy._held = self._next, self._held
        copy._member = self._member and self._member.copy()
        return copy

    def _pass_zeros(self) -> None:
        """Which may stand behind a member."""
        while not (held := self._held.lstrip(b"\0")):
            self._held = os.pread(self._file, _PACKED, self._next)
            self._next += len(self._held)
            if not self._held:
                return
        self._held = held


class _Frames:
    """The frames of a zstd file from one's beginning on."""

    def __init__(self, file: int, first: int, name: str) -> None:
        self._number, self._first, self._name = file, first, name
        self._file: io.BufferedReader | None = None  # not read yet
        self._frames: Any = None

    def read(self, most: int) -> bytes:
        if self._file is None:
            self._file = io.BufferedReader(_From(self._number, self._first), _PACKED)
            self._frames = zstd_frames(self._file, self._name)
        found = bytearray(most)
        return bytes(found[: self._frames.readinto(memoryview(found))])

    def copy(self) -> _Frames | None:
        if self._file is None:
            return _Frames(self._number, self._first, self._name)
        if not self._frames.between:
            return None
        return _Frames(self._number, self._file.tell(), self._name)


class _From(io.RawIOBase):
    """A file from a place on, at most to another, whoever else reads it; ``of`` is there as long."""

    def __init__(self, file: int, first: int, end: int | None = None, of: object = None) -> None:
        self._file, self._next, self._end, self._of = file, first, end, of

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, to: int, whence: int = os.SEEK_SET) -> int:
        if whence != os.SEEK_CUR or to != 0:
            raise io.UnsupportedOperation("it is read in order")
        return self._next

    def readinto(self, buffer: Any) -> int:
        room = memoryview(buffer)
        if self._end is not None:
            room = room[: max(0, self._end - self._next)]
        count = os.preadv(self._file, [room], self._next)
        self._next += count
        return count


def _plain(file: int, first: int, count: int) -> Iterator[bytes]:
    while count > 0 and (found := os.pread(file, count, first)):
        yield found
        first, count = first + len(found), count - len(found)
