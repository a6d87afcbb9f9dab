"""Files that are there whole or not at all."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

__all__ = ["opened", "write"]


def write(path: Path, content: Iterable[bytes | memoryview]) -> None:
    """Write beside ``path``, flush, rename, and flush the folder: a reader finds the old file or the
    whole new one, also after a loss of power.
    """
    with opened(path) as file:
        file.writelines(content)


@contextmanager
def opened(path: Path) -> Iterator[IO[bytes]]:
    """As ``write``, of what is written within."""
    # Opened by name, not by tempfile, for the permissions that any new file gets.
    temporary = path.with_name(f".{path.name}.{os.getpid()}.{threading.get_ident()}")
    try:
        with temporary.open("xb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)  # the new name, too
    finally:
        os.close(folder)
