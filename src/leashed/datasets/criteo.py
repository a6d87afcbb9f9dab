"""Criteo's display advertising data: 13 numbers and 26 categories of shown advertisements, and which
were clicked.

A line is ``Label I1 … I13 C1 … C26``: the published set apart by tabs and without a header, the
samples in circulation with commas and a header that names the columns (and may have others, ``Id``).
What is missing is empty. A category is a hash of 8 hexadecimal digits.
"""

from __future__ import annotations

import io
import os
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import IO, Any

from leashed import _core
from leashed.base import checks
from leashed.base.machine import cores
from leashed.datasets.clicks import ClickDataset
from leashed.datasets.files import behind, check_readable, name_of, unpacked
from leashed.datasets.text import CRITEO, Rows, Text, read

__all__ = ["criteo"]

_LABEL = b"Label"
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_LONGEST_LINE = 64 << 20  # bytes, as of a stream
_AT_ONCE = 1 << 18  # lines in memory beside the rows, at most
_BAD = ("fail", "skip")


def criteo(
    path: str | os.PathLike[str], rows: int | None = None, *, bad: str = "fail"
) -> ClickDataset:
    """Read a file of Criteo's, plain or compressed by gzip or zstd (told by its content), into memory:
    ``leashed.stream.criteo``, read.

    A number x becomes ln(1 + max(x, 0)), and 0 where it is missing, as in DLRM. The category v of
    feature f, from 1, becomes the id f · 2³³ + v, and where it is missing f · 2³³ + 2³²: ids differ
    by feature, so that features can share a table, and what is missing is a category too.

    About 1 µs a row and core; 264 bytes a row, and while it is read an eighth more. Labels of the
    sample's ``test.tiny.csv`` are all 0: they were not published. To test, keep rows of the training
    file: ``criteo("train.csv").split(test=1000)``.

    Args:
        path: The file.
        rows: Read the first so many alone. Default: all.
        bad: What to do about a line that is none: ``"fail"``, or ``"skip"`` it and count it in
            ``skipped``. Empty lines are passed over.

    Returns:
        x float32 [n, 13], ids uint64 [n, 26], names C1 to C26.

    Raises:
        ValueError: The file has no row, is corrupt as a compressed file, its header lacks a column, a
            line is longer than 64 MiB, or bad: the message names the file, the line's number and what
            is wrong.
        FileNotFoundError: There is no such file.
    """
    path = checks.path(path)
    most = None if rows is None else checks.whole("rows", rows)
    if bad not in _BAD:
        raise ValueError(f"bad must be one of {', '.join(_BAD)}, got {bad!r}")
    if bad == "fail":
        check_readable([path])
        return _dataset(path, read(_opened(path, path), most), 0)
    with unpacked(path) as file:
        lines = _lines(file, path)
        head, skipped = _head(lines, path)
        if most is not None:
            return _first(path, head, lines, most, skipped)
        native = _opened(path, behind(head, file))
        return _dataset(path, read(native), skipped + native.counts()["bad"])


def _opened(path: Path, file: Path | IO[bytes], text: Text = CRITEO) -> _core.RowStream:
    """Not started yet."""
    skip = not isinstance(file, Path)
    return text.open([file], threads=cores(), skip=skip, named=[name_of(path)])


def _lines(file: IO[bytes], path: Path) -> Iterator[bytes]:
    """With their ends. A packed file may have one that no memory holds."""
    while line := file.readline(_LONGEST_LINE + 1):
        if len(line) > _LONGEST_LINE:
            raise ValueError(
                f"{path}: a line is longer than {_LONGEST_LINE >> 20} MiB; is it a text file?"
            )
        yield line


def _first(
    path: Path, head: bytes, lines: Iterator[bytes], most: int, skipped: int
) -> ClickDataset:
    """So many rows, and of bad lines those between them: as many lines at a time as rows are wanted,
    so that none is read behind the last.
    """
    separator, fields = _fields(head)
    header = head if _LABEL in fields else b""
    text = CRITEO if header else CRITEO._replace(separators=separator, header="none")
    rows: Rows | None = None
    wanted, ended = most, False
    own = [] if header else [head]
    while wanted and not ended:
        asked = min(wanted, _AT_ONCE)
        own += islice(lines, asked - len(own))
        ended = len(own) < asked
        given = sum(1 for line in own if line.strip(b"\r\n"))
        try:
            taken = read(_opened(path, io.BytesIO(b"".join([header, *own])), text))
        except _core.NoRows:
            skipped += given
        else:
            skipped += given - len(taken[3])
            wanted -= len(taken[3])
            if rows is None:
                rows = Rows(taken)
            else:
                rows.add(taken)
        own = []
    if rows is None:
        raise _core.NoRows(f"{path}: there is no row in it")
    return _dataset(path, rows.all(), skipped)


def _head(lines: Iterator[bytes], path: Path) -> tuple[bytes, int]:
    """The first line that tells how fields are apart: a header, or one of as many as there are to be;
    and how many others come before.
    """
    bad = 0
    for number, ended in enumerate(lines):
        line = ended.removeprefix(_BYTE_ORDER_MARK) if number == 0 else ended
        _, fields = _fields(line)
        if _LABEL in fields or len(fields) == len(CRITEO.names):
            return line, bad
        bad += line.strip(b"\r\n") != b""
    raise _core.NoRows(f"{path}: there is no row in it")


def _fields(line: bytes) -> tuple[str, list[bytes]]:
    separator = "\t" if b"\t" in line else ","
    return separator, line.rstrip(b"\r\n").split(separator.encode())


def _dataset(path: Path, taken: Any, skipped: int) -> ClickDataset:
    x, ids, _, y, _ = taken
    schema = CRITEO.schema
    return ClickDataset(
        x,
        ids,
        y,
        tuple(schema.ids),
        path.name,
        skipped=skipped,
        number_names=schema.numbers,
        schema=schema,
    )
