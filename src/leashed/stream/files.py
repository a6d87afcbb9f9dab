"""Files that a stream reads: several in order, told by their content whether they are compressed."""

from __future__ import annotations

import contextlib
import gzip
import importlib
import io
import os
import select
import stat
import zlib
from collections.abc import Callable, Iterable
from glob import glob, has_magic
from pathlib import Path
from typing import IO, Any, TypeAlias, cast

__all__ = ["Opened", "Paths", "is_repeatable", "paths_of"]

Paths: TypeAlias = "str | os.PathLike[str] | Iterable[str | os.PathLike[str]] | IO[bytes]"
# What the core reads: the path of a plain file, or what has readinto(buffer) and close().
Opened: TypeAlias = "str | _Bytes"

_GZIP = b"\x1f\x8b"
_ZSTD = b"\x28\xb5\x2f\xfd"
_PACKED = 1 << 16  # bytes that are unpacked at once, to some times as many
_PATIENCE = 0.05  # seconds of waiting for a pipe between two looks whether to go on


def paths_of(given: Paths) -> list[Path | IO[bytes]]:
    """The files, in order: a pattern such as ``"day-*.tsv.gz"`` in the order of its names.

    Raises:
        FileNotFoundError: there is none of that name, or none that the pattern matches.
        TypeError: it is neither a path, several, nor an open binary file.
        ValueError: it is an empty sequence.
    """
    if isinstance(given, (str, os.PathLike)):
        return list(_matched(given))
    if hasattr(given, "readinto"):
        return [cast("IO[bytes]", given)]
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
        return found
    if not path.exists():
        raise FileNotFoundError(f"there is no file {path}")
    if path.is_dir():
        raise IsADirectoryError(f"{path} is a folder; name the files in it, as {path / '*.tsv'}")
    if path.is_file():
        path.open("rb").close()  # that it cannot be read is said before any thread has started
    return [path]


def is_repeatable(files: list[Path | IO[bytes]]) -> bool:
    """Whether they can be read again: an open file or a pipe gives its bytes once."""
    return all(isinstance(file, Path) and file.is_file() for file in files)


def name_of(file: Path | IO[bytes]) -> str:
    """What messages call it."""
    return str(file) if isinstance(file, Path) else str(getattr(file, "name", "the open file"))


def open_file(file: Path | IO[bytes], stopped: Callable[[], bool]) -> Opened:
    """For reading from its beginning; of an open file from where it is."""
    if isinstance(file, Path) and file.is_file():
        with file.open("rb") as plain:
            magic = plain.read(4)
        if not magic.startswith(_GZIP) and magic != _ZSTD:
            return str(file)
    raw: Any = file
    if isinstance(file, Path):
        raw = _Interruptible(file, stopped)
    return _Bytes(raw, name_of(file), own=isinstance(file, Path))


class _Interruptible(io.RawIOBase):
    """A file; of a pipe, whoever waits for its writer looks now and then whether to go on."""

    def __init__(self, path: Path, stopped: Callable[[], bool]) -> None:
        self._stopped = stopped
        # A pipe that nobody writes to yet: opening it is not to wait either.
        self._file = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        self._waits = not stat.S_ISREG(os.fstat(self._file).st_mode)
        self._begun = False

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while not self._stopped():
            if self._waits and not select.select([self._file], [], [], _PATIENCE)[0]:
                continue
            try:
                count = os.readv(self._file, [buffer])
            except BlockingIOError:
                continue
            if count == 0 and self._waits and not self._begun:
                select.select([], [], [], _PATIENCE)  # nobody has opened it to write
                continue
            self._begun = True
            return count
        return 0

    def close(self) -> None:
        if not self.closed:
            os.close(self._file)
        super().close()


class _Bytes:
    """What a file unpacks to."""

    def __init__(self, raw: Any, name: str, *, own: bool) -> None:
        self._name, self._raw, self._own = name, raw, own
        buffered: Any = raw
        if not hasattr(raw, "peek"):
            buffered = io.BufferedReader(raw, 1 << 18)
        magic = buffered.peek(4)[:4]
        self._stream: Any = buffered
        if magic.startswith(_GZIP):
            self._stream = gzip.GzipFile(fileobj=buffered)
        elif magic == _ZSTD:
            self._stream = _Zstd(buffered, name)
        self._kind = "gzip" if magic.startswith(_GZIP) else "zstd"
        self._errors = _errors()

    def readinto(self, buffer: memoryview) -> int:
        try:
            return int(self._stream.readinto(buffer) or 0)
        except self._errors as error:
            raise ValueError(f"{self._name}: corrupt {self._kind} file: {error}") from error

    def close(self) -> None:
        if self._own:
            self._raw.close()


class _Zstd:
    """The frames of a file compressed by zstd, one after another."""

    def __init__(self, file: Any, name: str) -> None:
        self._file = file
        self._new = _zstd_decompressor(name)
        self._frame = self._new()
        self._packed = b""
        self._left = memoryview(b"")

    def readinto(self, buffer: memoryview) -> int:
        while not self._left:
            packed = self._packed or self._file.read(_PACKED)
            if not packed:
                if not self._frame.eof:
                    raise EOFError("it ends before the end was marked")
                return 0
            if self._frame.eof:
                self._frame = self._new()
            self._left = memoryview(self._frame.decompress(packed))
            self._packed = self._frame.unused_data
        count = min(len(buffer), len(self._left))
        buffer[:count] = self._left[:count]
        self._left = self._left[count:]
        return count


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


def _errors() -> tuple[type[Exception], ...]:
    """What unpacking raises where a file is damaged."""
    found: list[type[Exception]] = [gzip.BadGzipFile, EOFError, zlib.error]
    for module, name in (("compression.zstd", "ZstdError"), ("zstandard", "ZstdError")):
        with contextlib.suppress(ImportError):
            found.append(getattr(importlib.import_module(module), name))
    return tuple(found)
