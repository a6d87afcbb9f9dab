"""Files of results as they are read: plain, or packed by gzip, told by their content."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

__all__ = ["SUFFIX", "is_packed", "parsed", "unpacked"]

T = TypeVar("T")

SUFFIX = ".gz"
_MAGIC = b"\x1f\x8b"


def is_packed(path: Path) -> bool:
    """Whether a file begins as gzip's do.

    Raises:
        OSError: the file cannot be read.
    """
    with path.open("rb") as file:
        return file.read(len(_MAGIC)) == _MAGIC


def unpacked(path: Path) -> bytes:
    """The content of a file, without its packing.

    Raises:
        OSError: the file cannot be read.
        ValueError: the file is packed, and is damaged or ends too soon.
    """
    content = path.read_bytes()
    if not content.startswith(_MAGIC):
        return content
    try:
        return gzip.decompress(content)
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise ValueError(f"{path}: corrupt gzip file: {error}") from error


def parsed(content: bytes, path: str | Path, parse: Callable[[str], T]) -> Iterator[T]:
    """What the lines of a file's content are; empty ones are passed over.

    Raises:
        ValueError: ``parse`` raised it; the message has the line's number.
    """
    for number, line in enumerate(content.decode("utf-8").split("\n"), start=1):
        if not line.strip():
            continue
        try:
            yield parse(line)
        except ValueError as error:
            raise ValueError(f"{path}, line {number}: {error}") from None
