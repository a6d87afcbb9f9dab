"""Files that a stream reads: several in order, told by their content whether they are compressed."""

from __future__ import annotations

import contextlib
import gzip
import importlib
import io
import os
import re
import select
import stat
import zlib
from collections.abc import Callable, Iterable
from glob import glob, has_magic
from pathlib import Path
from typing import IO, Any, TypeAlias, cast

__all__ = [
    "MAGIC",
    "Opened",
    "Paths",
    "behind",
    "check_readable",
    "is_repeatable",
    "name_of",
    "open_file",
    "packed_by",
    "paths_of",
    "raw",
    "unpacked",
    "unpacking_errors",
    "zstd_frames",
]

Paths: TypeAlias = "str | os.PathLike[str] | Iterable[str | os.PathLike[str]] | IO[bytes]"
# What the core reads: the path of a plain file, or what has readinto(buffer) and close().
Opened: TypeAlias = "bytes | _Bytes"

_GZIP = b"\x1f\x8b"
_ZSTD = b"\x28\xb5\x2f\xfd"
_SKIPPED = b"\x2a\x4d\x18"  # behind a byte from 0x50 to 0x5f
MAGIC = 4
"""Bytes of a file that tell what it was packed by."""

_PACKED = 1 << 16  # bytes of a file that are passed over at once
_OPEN_HERE = re.compile(r"/proc/\d+/fd/(\d+)")
_PATIENCE = 50  # milliseconds of waiting for a pipe between two looks whether to go on


def paths_of(given: Paths) -> list[Path | IO[bytes]]:
    """The files, in order: a pattern such as ``"day-*.tsv.gz"`` in the order of its names.

    Raises:
        FileNotFoundError: there is none of that name, or none that the pattern matches; other
            OSErrors where one is a folder, or cannot be read.
        TypeError: it is neither a path, several, nor an open binary file.
        ValueError: it is an empty sequence, or a file that is open for writing or closed.
    """
    if isinstance(given, (str, os.PathLike)):
        return list(_matched(given))
    if hasattr(given, "readinto"):
        file = cast("IO[bytes]", given)
        if getattr(file, "closed", False):
            raise ValueError(f"path is {name_of(file)}, which is closed; open it with mode 'rb'")
        if hasattr(file, "readable") and not file.readable():
            raise ValueError(f"path is {name_of(file)}, open for writing; open it with mode 'rb'")
        return [file]
    if hasattr(given, "read"):
        raise TypeError("path is a file open in text mode; open it with open(..., 'rb')")
    if not isinstance(given, Iterable):
        raise TypeError(
            f"path must be a path, several, or an open binary file, got {type(given).__name__}"
        )
    paths: list[Path | IO[bytes]] = []
    for each in given:
        if not isinstance(each, (str, os.PathLike)):
            raise TypeError(f"path must hold paths, got {type(each).__name__}")
        paths.extend(_matched(each))
    if not paths:
        raise ValueError("path must name at least one file")
    return paths


def _matched(given: str | os.PathLike[str]) -> list[Path]:
    path = Path(given)
    if not path.exists() and has_magic(str(given)):
        # (Path.glob() takes no absolute pattern.)
        found = [Path(name) for name in sorted(glob(str(given)))]  # noqa: PTH207
        if not found:
            raise FileNotFoundError(f"no file matches {given}")
    elif not path.exists():
        raise FileNotFoundError(f"there is no file {path}")
    else:
        found = [path]
    for file in found:
        if file.is_dir():
            raise IsADirectoryError(
                f"{file} is a folder; name the files in it, as {file / '*.tsv'}"
            )
        if file.is_file():
            file.open("rb").close()  # that it cannot be read is said before any thread has started
    return found


def is_repeatable(files: list[Path | IO[bytes]]) -> bool:
    """Whether they can be read again: an open file or a pipe gives its bytes once."""
    return all(isinstance(file, Path) and not _is_pipe(file) for file in files)


def check_readable(files: list[Path | IO[bytes]]) -> None:
    """OSError where one is gone, or cannot be read any more: asked before any thread has started."""
    for file in files:
        if isinstance(file, Path) and not _is_pipe(file):
            file.open("rb").close()


def _is_pipe(path: Path) -> bool:
    return path.exists() and not path.is_file()


def name_of(file: Path | IO[bytes]) -> str:
    """What messages call it: as it was given, also what a process opens that another has open."""
    name = file if isinstance(file, Path) else str(getattr(file, "name", "the open file"))
    told = os.fsencode(name).decode(errors="backslashreplace")
    if (found := _OPEN_HERE.fullmatch(told)) is None:
        return told
    return "standard input" if found[1] == "0" else f"/dev/fd/{found[1]}"


def open_file(file: Path | IO[bytes], stopped: Callable[[], bool]) -> Opened:
    """For reading from its beginning; of an open file from where it is."""
    if not isinstance(file, Path):
        return _Bytes(_given(file, stopped), name_of(file))
    if file.is_file():
        with file.open("rb") as plain:
            magic = plain.read(MAGIC)
        if not packed_by(magic):
            return os.fsencode(file)
    # A pipe that nobody writes to yet: opening it is not to wait.
    number = os.open(file, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    return _Bytes(_Interruptible(number, stopped, own=True), name_of(file))


def raw(path: Path | int) -> io.RawIOBase:
    """The bytes of a file, or of a pipe, for which nobody waits but between two looks at signals; or of
    what is open here by that number, which stays so.
    """
    if isinstance(path, int):
        number = os.dup(path)
    else:
        number = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    return _Interruptible(number, lambda: False, own=True)


def unpacked(path: Path) -> io.BufferedReader:
    """What a file unpacks to, for who looks at its lines himself. OSError where it cannot be opened."""
    number = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    file = _Interruptible(number, lambda: False, own=True)
    return io.BufferedReader(_Bytes(file, name_of(path)), 1 << 18)


def behind(head: bytes, file: IO[bytes]) -> IO[bytes]:
    """These bytes, and behind them a file, which stays open."""
    return cast("IO[bytes]", _Behind(head, file))


def packed_by(magic: bytes) -> str:
    """What a file was packed by that begins so; nothing where it was not."""
    if magic.startswith(_GZIP):
        return "gzip"
    # (A frame that is to be skipped may come first.)
    return "zstd" if magic == _ZSTD or (magic[1:] == _SKIPPED and magic[0] >> 4 == 5) else ""


def _given(file: Any, stopped: Callable[[], bool]) -> Any:
    """An open file of somebody else's, who closes it. Where it is a pipe's or the like, whoever waits
    for it looks now and then whether to go on; of other kinds that ends when ``readinto`` does.
    """
    raw = getattr(file, "raw", file)
    if not isinstance(raw, io.FileIO) or stat.S_ISREG(os.fstat(raw.fileno()).st_mode):
        return file
    waiting = _Interruptible(raw.fileno(), stopped, own=False)
    return waiting if raw is file else _Behind(_taken_already(file), waiting)


def _taken_already(file: Any) -> bytes:
    """What a buffered reader has taken out of its pipe and not given out."""
    blocking = os.get_blocking(file.fileno())
    os.set_blocking(file.fileno(), False)
    try:
        return bytes(file.read1(len(file.peek())))
    finally:
        os.set_blocking(file.fileno(), blocking)


class _Interruptible(io.RawIOBase):
    """A file; of a pipe, whoever waits for its writer looks now and then whether to go on."""

    def __init__(self, number: int, stopped: Callable[[], bool], *, own: bool) -> None:
        self._file, self._stopped, self._own = number, stopped, own
        self._ready = None if stat.S_ISREG(os.fstat(number).st_mode) else select.poll()
        if self._ready:
            self._ready.register(number, select.POLLIN)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while not self._stopped():
            if self._ready and not self._ready.poll(_PATIENCE):
                continue
            with contextlib.suppress(BlockingIOError):
                return os.readv(self._file, [buffer])
        return 0

    def close(self) -> None:
        if self._own and not self.closed:
            os.close(self._file)
        super().close()


class _Behind(io.RawIOBase):
    """Some bytes, and behind them a file, which stays open."""

    def __init__(self, head: bytes, file: Any) -> None:
        self.head, self._file = head, file

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        if not self.head:
            count = self._file.readinto(buffer)
            if count is None:
                raise BlockingIOError("it does not wait for its bytes; make it blocking")
            return int(count)
        count = min(len(buffer), len(self.head))
        buffer[:count], self.head = self.head[:count], self.head[count:]
        return count


class _Bytes(io.RawIOBase):
    """What a file unpacks to."""

    def __init__(self, file: Any, name: str) -> None:
        self._file, self._name = file, name
        self._stream: Any = _Behind(b"", file)
        magic = b""
        while len(magic) < MAGIC and (more := self._stream.read(MAGIC - len(magic))):
            magic += more
        self._stream.head = magic
        self._packed = packed_by(magic)
        if self._packed:
            buffered = io.BufferedReader(self._stream, 1 << 18)
            packed_by_gzip = self._packed == "gzip"
            self._stream = (
                gzip.GzipFile(fileobj=buffered) if packed_by_gzip else _Zstd(buffered, name)
            )
        self._errors = unpacking_errors()

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        try:
            return int(self._stream.readinto(buffer))
        except self._errors as error:
            raise ValueError(f"{self._name}: corrupt {self._packed} file: {error}") from error

    def close(self) -> None:
        if isinstance(self._file, _Interruptible):
            self._file.close()
        super().close()


class _Zstd:
    """The frames of a file compressed by zstd, one after another, each a block at a time. What a few
    bytes unpack to has no bound, but a block has: 128 KiB.
    """

    def __init__(self, file: Any, name: str) -> None:
        self._file = file
        self._new = _zstd_decompressor(name)
        self._frame: Any = None
        self._checksum = 0  # bytes behind the frame's last block
        self._left = memoryview(b"")

    def readinto(self, buffer: memoryview) -> int:
        while not self._left:
            if self._frame is None and not self._begin():
                return 0
            self._left = memoryview(self._block())
        count = min(len(buffer), len(self._left))
        buffer[:count] = self._left[:count]
        self._left = self._left[count:]
        return count

    @property
    def between(self) -> bool:
        """Whether all of the frames that were begun has been read."""
        return self._frame is None and not self._left

    def _begin(self) -> bool:
        """The header of the next frame that has blocks; False where there is none."""
        while magic := self._file.read(MAGIC):
            if magic[1:] == _SKIPPED:
                self._skip(int.from_bytes(self._exactly(4), "little"))
                continue
            self._frame = self._new()
            self._frame.decompress(magic)
            told = self._exactly(1)
            one_segment = told[0] >> 5 & 1
            size = (one_segment, 2, 4, 8)[told[0] >> 6]
            window, dictionary = 1 - one_segment, (0, 1, 2, 4)[told[0] & 3]
            self._frame.decompress(told + self._exactly(window + dictionary + size))
            self._checksum = told[0] & 4
            return True
        return False

    def _block(self) -> bytes:
        header = self._exactly(3)
        told = int.from_bytes(header, "little")
        last, kind, size = told & 1, told >> 1 & 3, told >> 3
        repeated = kind == 1  # one byte, so many times
        packed = header + self._exactly(1 if repeated else size)
        if last:
            packed += self._exactly(self._checksum)
        unpacked: bytes = self._frame.decompress(packed)
        if last:
            self._frame = None
        return unpacked

    def _exactly(self, count: int) -> bytes:
        found: bytes = self._file.read(count)
        if len(found) < count:
            raise EOFError("it ends before the end was marked")
        return found

    def _skip(self, count: int) -> None:
        while count > 0:
            count -= len(self._exactly(min(count, _PACKED)))


def zstd_frames(file: Any, name: str) -> _Zstd:
    """What the frames of an open file come to; its errors call it ``name``."""
    return _Zstd(file, name)


def _zstd_decompressor(name: str) -> Callable[[], Any]:
    try:
        return cast(
            "Callable[[], Any]", importlib.import_module("compression.zstd").ZstdDecompressor
        )
    except ImportError:
        pass
    try:
        zstandard = importlib.import_module("zstandard")
    except ImportError:
        raise ValueError(
            f"{name} is compressed by zstd, which takes Python 3.14 or the package zstandard: "
            "pip install 'leashed[zstd]'"
        ) from None
    return lambda: zstandard.ZstdDecompressor().decompressobj()


def unpacking_errors() -> tuple[type[Exception], ...]:
    """What unpacking raises where a file is damaged."""
    found: list[type[Exception]] = [gzip.BadGzipFile, EOFError, zlib.error]
    for module, name in (("compression.zstd", "ZstdError"), ("zstandard", "ZstdError")):
        with contextlib.suppress(ImportError):
            found.append(getattr(importlib.import_module(module), name))
    return tuple(found)
