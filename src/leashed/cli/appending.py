"""Results that are written line by line, so that a command can go on where it ended."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TextIO, TypeVar

from leashed.studies.packed import SUFFIX, is_packed

__all__ = ["before", "opened", "tell", "tell_left"]

T = TypeVar("T")


def tell(text: str) -> None:
    """Print to standard error."""
    print(text, file=sys.stderr)


def tell_left(left: int, total: int, output: object | None) -> None:
    """Say how many runs are left, and what to do about it; nothing where none is."""
    if left:
        remedy = "" if output is None else "; the same command with --resume goes on"
        tell(f"{left} of {total} runs are left{remedy}")


def before(
    options: argparse.Namespace, read: Callable[[Path], tuple[list[T], int]]
) -> tuple[list[T], int]:
    """What ``--output`` has already, and how many of its bytes that is.

    Args:
        options: with ``output`` and ``resume``.
        read: gives them of a file, without a last line that was not written to the end.

    Raises:
        FileExistsError: there is something, and it is not to be added to.
        ValueError: the file is packed, or is named as one that is.
    """
    path: Path | None = options.output
    if path is None:
        return [], 0
    if path.suffix == SUFFIX:
        raise ValueError(
            f"{path}: results are written as text, line by line: name a file without {SUFFIX}, and "
            f"pack it afterwards"
        )
    if not path.exists() or not path.stat().st_size:
        return [], 0
    if not options.resume:
        raise FileExistsError(
            f"{path} has results already: --resume adds what is missing, another --output starts "
            "anew"
        )
    if is_packed(path):
        raise ValueError(f"{path} is packed by gzip, nothing can be appended: unpack it first")
    found, size = read(path)
    if size < path.stat().st_size:
        tell(f"{path}: its last line was not written to the end and is dropped")
    return found, size


def opened(path: Path, size: int) -> TextIO:
    """The file to append to, cut to so many bytes."""
    file = path.open("a", encoding="utf-8")
    if path.stat().st_size > size:
        file.truncate(size)
    return file
