"""Files that are there whole or not at all."""

from __future__ import annotations

import io
import os
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

__all__ = ["flush", "opened", "write"]


class _Owned(io.FileIO):
    """A new file of this process alone: a child that is forked meanwhile, by a signal's handler, has
    the same place in it.
    """

    def __init__(self, temporary: Path, path: Path) -> None:
        super().__init__(temporary, "x")
        self._path, self._process = path, os.getpid()

    def is_ours(self) -> bool:
        return os.getpid() == self._process

    def require_ours(self) -> None:
        if not self.is_ours():
            raise RuntimeError(
                f"'{self._path}' was being written when this process was forked; the parent goes on "
                "with it"
            )

    def write(self, data: ReadableBuffer, /) -> int:
        self.require_ours()
        return super().write(data)


def write(path: Path, content: Iterable[bytes | memoryview]) -> None:
    """Write beside ``path``, flush, rename, and flush the folder: a reader finds the old file or the
    whole new one, also after a loss of power.
    """
    with opened(path) as file:
        file.writelines(content)


@contextmanager
def opened(path: Path) -> Iterator[IO[bytes]]:
    """As ``write``, of what is written within.

    Raises:
        RuntimeError: this process was forked within, and is the child: the parent goes on.
    """
    # Opened by name, not by tempfile, for the permissions that any new file gets.
    temporary = path.with_name(f".{path.name}.{os.getpid()}.{threading.get_ident()}")
    raw = _Owned(temporary, path)
    try:
        with raw:  # what is raised leaves out what is still to be written
            file = io.BufferedWriter(raw)
            yield file
            file.flush()
            os.fsync(raw.fileno())
        raw.require_ours()
        temporary.replace(path)
    except BaseException:
        if raw.is_ours():
            temporary.unlink(missing_ok=True)
        raise
    flush(path.parent)  # the new name, too


def flush(path: Path) -> None:
    """What is in a file, or the names in a folder, outlasts a power cut from then on."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
