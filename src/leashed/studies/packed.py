"""Files of results as they are read: plain, or packed by gzip, told by their content."""

from __future__ import annotations

import gzip
import zlib
from pathlib import Path

__all__ = ["SUFFIX", "is_packed", "unpacked"]

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
