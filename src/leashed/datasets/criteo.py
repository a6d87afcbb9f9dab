"""Criteo's display advertising data: 13 numbers and 26 categories of shown advertisements, and which
were clicked.

A line is ``Label I1 … I13 C1 … C26``: the published set apart by tabs and without a header, the
samples in circulation with commas and a header that names the columns (and may have others, ``Id``).
What is missing is empty. A category is a hash of 8 hexadecimal digits.
"""

from __future__ import annotations

import gzip
import math
import os
import re
import zlib
from array import array
from binascii import unhexlify
from collections.abc import Iterable, Iterator
from typing import IO, cast

import numpy as np

from leashed import _core
from leashed.base import checks
from leashed.datasets.clicks import ClickDataset, names_of

__all__ = ["criteo"]

_GZIP_MAGIC = b"\x1f\x8b"
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_NUMBERS = tuple(f"I{j + 1}" for j in range(13))
_CATEGORIES = names_of(26)
_COLUMNS = ("Label", *_NUMBERS, *_CATEGORIES)
_CATEGORY = re.compile(rb"[0-9a-fA-F]{8}").fullmatch
_NO_NUMBER = re.compile(
    rb"[_\s]"
).search  # what float() lets stand in one, and no other reader does
_LONGEST_LINE = 64 << 20  # bytes, as of a stream
_NONE = b"00000000"
_BAD = ("fail", "skip")


def criteo(
    path: str | os.PathLike[str], rows: int | None = None, *, bad: str = "fail"
) -> ClickDataset:
    """Read a file of Criteo's, plain or compressed by gzip (told by its content), into memory.

    A number x becomes ln(1 + max(x, 0)), and 0 where it is missing, as in DLRM. The category v of
    feature f, from 1, becomes the id f · 2³³ + v, and where it is missing f · 2³³ + 2³²: ids differ
    by feature, so that features can share a table, and what is missing is a category too.

    About 12 µs a row. Labels of the sample's ``test.tiny.csv`` are all 0: they were not published.
    To test, keep rows of the training file: ``criteo("train.csv").split(test=1000)``.

    Args:
        path: The file.
        rows: Read the first so many alone. Default: all.
        bad: What to do about a line that is none: ``"fail"``, or ``"skip"`` it and count it in
            ``skipped``. Empty lines are passed over.

    Returns:
        x float32 [n, 13], ids uint64 [n, 26], names C1 to C26.

    Raises:
        ValueError: The file has no row, is corrupt as a gzip file, its header lacks a column, a line
            is longer than 64 MiB, or bad: the message names the file, the line's number and what is
            wrong.
        FileNotFoundError: There is no such file.
    """
    path = checks.path(path)
    most = math.inf if rows is None else checks.whole("rows", rows)
    if bad not in _BAD:
        raise ValueError(f"bad must be one of {', '.join(_BAD)}, got {bad!r}")
    read = _Rows()
    try:
        with path.open("rb") as file:
            compressed = file.read(2) == _GZIP_MAGIC
            file.seek(0)
            stream = cast("IO[bytes]", gzip.GzipFile(fileobj=file)) if compressed else file
            read.all(_lines(stream), most, fail=bad == "fail")
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise ValueError(f"{path}: corrupt gzip file: {error}") from error
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None
    if not read.labels:
        raise _core.NoRows(f"{path}: there is no row in it")
    return read.dataset(path.name)


def _lines(stream: IO[bytes]) -> Iterator[bytes]:
    """With their ends. A packed file may have one that no memory holds."""
    while line := stream.readline(_LONGEST_LINE + 1):
        if len(line) > _LONGEST_LINE:
            raise ValueError(f"a line is longer than {_LONGEST_LINE >> 20} MiB; is it a text file?")
        yield line


class _Columns:
    """Where a line has what, told by the first that has as many fields, or is a header."""

    def __init__(self, first: bytes) -> None:
        self._separator = b"\t" if b"\t" in first else b","
        names = first.split(self._separator)
        self.header = b"Label" in names
        if not self.header:
            names = [name.encode() for name in _COLUMNS]
        lacking = [name for name in _COLUMNS if name.encode() not in names]
        if lacking:
            raise ValueError(f"its header has no column {', '.join(lacking)}")
        self._count = len(names)
        self._places = [names.index(name.encode()) for name in _COLUMNS]

    def fields(self, line: bytes) -> list[bytes]:
        """Label, numbers, categories."""
        fields = line.split(self._separator)
        if len(fields) != self._count:
            apart = "tabs" if self._separator == b"\t" else "commas"
            raise ValueError(f"{len(fields)} fields apart by {apart} instead of {self._count}")
        return [fields[place] for place in self._places]


class _Rows:
    """What has been read so far, row after row."""

    def __init__(self) -> None:
        self.labels = bytearray()
        self._numbers = array("d")
        self._categories = bytearray()  # four bytes each
        self._missing = bytearray()
        self._skipped = 0

    def all(self, lines: Iterable[bytes], most: float, *, fail: bool) -> None:
        """Up to ``most`` rows."""
        known: _Columns | None = None
        for number, ended in enumerate(lines, 1):
            line = ended.removesuffix(b"\n").removesuffix(b"\r")
            if number == 1:
                line = line.removeprefix(_BYTE_ORDER_MARK)
            if not line:
                continue
            columns = known or _Columns(line)
            if columns.header and known is None:
                known = columns
                continue
            if len(self.labels) >= most:
                return
            try:
                fields = columns.fields(line)
                known = columns
                self._add(fields)
            except ValueError as error:
                if fail:
                    raise ValueError(
                        f'line {number}: {error}; bad="skip" leaves such lines out'
                    ) from None
                self._skipped += 1

    def _add(self, fields: list[bytes]) -> None:
        label, numbers, categories = fields[0], fields[1:14], fields[14:]
        clicked = _number(label)
        if clicked not in (0, 1):
            raise ValueError(f"Label is {_shown(label)}, not 0 or 1")
        try:
            values = [float(text) if text else 0.0 for text in numbers]
        except ValueError:
            values = [math.nan]
        if not all(map(math.isfinite, values)) or _NO_NUMBER(b"".join(numbers)):
            name, text = next(
                item
                for item in zip(_NUMBERS, numbers, strict=True)
                if item[1] and not math.isfinite(_number(item[1]))
            )
            raise ValueError(f"{name} is {_shown(text)}, no finite number")
        for name, text in zip(_CATEGORIES, categories, strict=True):
            if text and not _CATEGORY(text):
                raise ValueError(f"{name} is {_shown(text)}, not 8 hexadecimal digits")
        self.labels.append(clicked == 1)
        self._numbers.extend(values)
        self._categories += unhexlify(b"".join(text or _NONE for text in categories))
        self._missing += bytes(not text for text in categories)

    def dataset(self, name: str) -> ClickDataset:
        n = len(self.labels)
        x = np.frombuffer(self._numbers, np.float64).reshape(n, -1)
        hashes = np.frombuffer(self._categories, ">u4").reshape(n, -1).astype(np.uint64)
        missing = np.frombuffer(self._missing, np.uint8).reshape(n, -1).astype(np.uint64)
        feature = np.arange(1, len(_CATEGORIES) + 1, dtype=np.uint64)
        return ClickDataset(
            np.log1p(np.maximum(x, 0)).astype(np.float32),
            feature << np.uint64(33) | missing << np.uint64(32) | hashes,
            np.frombuffer(self.labels, np.uint8).astype(np.int32),
            _CATEGORIES,
            name,
            skipped=self._skipped,
            number_names=_NUMBERS,
        )


def _number(text: bytes) -> float:
    """As a stream reads it; NaN where it is none."""
    try:
        return math.nan if _NO_NUMBER(text) else float(text)
    except ValueError:
        return math.nan


def _shown(text: bytes) -> str:
    return repr(text[:20].decode("latin-1"))
