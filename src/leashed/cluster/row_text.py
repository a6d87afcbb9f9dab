"""Files of text of which each line is a row, plain or packed: in Criteo's format, CSV, libsvm and libffm."""

from __future__ import annotations

import contextlib
import io
import zlib
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from leashed import _core
from leashed.cluster.row_parts import Counted, File, Parsed, Part, RowFiles, in_order, judge, parsed
from leashed.datasets.files import behind, name_of
from leashed.datasets.moments import Moments
from leashed.datasets.text import SparseText, Text
from leashed.datasets.unpacked import Unpacked
from leashed.stream import BadLine, ReadCounts

__all__ = ["TextRows"]

_PART = 4 << 20  # bytes
_LONGEST_LINE = 64 << 20
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


class TextRows(RowFiles):
    """Of text.

    Args:
        text: how files are written.
        bad: as of ``RowFiles``.
        distinct: whether a column that comes again in a sparse row is added to where it came first.
    """

    def __init__(self, text: Text | SparseText, bad: str, *, distinct: bool = False) -> None:
        self.text, self.bad, self._distinct = text, bad, distinct

    @property
    def told(self) -> list[Any]:
        return [*self.text.told, self._distinct, self.bad]

    def count(self, files: list[File]) -> Counted:
        known: list[File] = []
        parts: list[Part] = []
        numbers = 0 if isinstance(self.text, SparseText) else len(self.text.schema.numbers)
        moments = Moments.none([True] * numbers)
        of_all = [0, 0, 0]  # lines, bad lines, bytes
        first_bad: list[BadLine] = []
        for number, found in enumerate(files):
            with contextlib.closing(self.open(number, found)) as opened:
                file, offset, lines = self._begun(found, opened)
                known.append(file)
                of_all[0] += lines
                of_all[2] += offset
                pieces = _lines(opened, offset, file.path)
                for (at, content), (check, made) in in_order(pieces, partial(self._piece, file)):
                    judge(made, name_of(Path(file.path)), lines, "line", self.bad, first_bad)
                    if made.rows:
                        moments = moments.merged(made.arrays[0])
                    parts.append(Part(number, at, len(content), made.rows, lines, check))
                    lines += made.lines
                    of_all[0] += made.lines
                    of_all[1] += made.bad
                    of_all[2] += len(content)
        rows = sum(part.rows for part in parts)
        if not rows:
            raise _core.NoRows(f"{files[0].path}: there is no row in it")
        counts = ReadCounts(rows, of_all[0], of_all[1], tuple(first_bad), of_all[2])
        return Counted(tuple(known), tuple(parts), counts, moments)

    def _piece(self, file: File, piece: tuple[int, bytes]) -> tuple[int, Parsed]:
        _, content = piece
        return zlib.crc32(content), self._rows(file, io.BytesIO(content), len(content))

    def open(self, number: int, file: File) -> Unpacked:
        del number
        return Unpacked(Path(file.path))

    def parse(self, file: File, opened: Unpacked, part: Part) -> Parsed:
        return self._rows(file, opened.at(part.offset, part.size), part.size)

    def _rows(self, file: File, lines: Any, size: int) -> Parsed:
        """The rows in whole lines of a file, of so many bytes. ValueError where the header lacks a column."""
        head = file.head.encode("utf-8", "surrogateescape")
        given = behind(head, lines) if head else lines
        how: dict[str, Any] = {"threads": 1, "skip": True, "part_bytes": len(head) + size + 1}
        text = self.text
        if isinstance(text, SparseText):
            how["distinct_columns"] = self._distinct
        elif file.separator:
            text = text._replace(separators=file.separator, header="none")
        return parsed(text.open([given], named=[file.path], **how), int(bool(head)))

    def _begun(self, file: File, opened: Unpacked) -> tuple[File, int, int]:
        """What is known of a file by its first line, where its rows begin, and lines before."""
        text = self.text
        content = opened.read(0, _PART)
        while b"\n" not in content.lstrip(b"\r\n") and len(content) < _LONGEST_LINE:
            more = opened.read(len(content), _PART)
            if not more:
                break
            content += more
        mark = len(_BYTE_ORDER_MARK) if content.startswith(_BYTE_ORDER_MARK) else 0
        begin = mark
        while content[begin : begin + 1] in (b"\r", b"\n"):
            begin += 1
        blank = content.count(b"\n", 0, begin)
        end = content.find(b"\n", begin) + 1 or len(content)
        line = content[begin:end]
        if isinstance(text, SparseText) or text.header == "none" or not line:
            return file, begin, blank
        told = line if line.endswith(b"\n") else line + b"\n"
        alone = self._rows(file, io.BytesIO(told), len(told))
        if not alone.rows and not alone.bad:  # it names the columns
            head = told.decode("utf-8", "surrogateescape")
            return replace(file, head=head), end, blank + 1
        return replace(file, separator=_separator_of(line, text)), begin, blank


def _separator_of(line: bytes, text: Text) -> str:
    """As the core finds it by a file's first line: the one that it has as many of as there are names, or
    has most of.
    """
    counts = {separator: line.count(separator.encode()) for separator in text.separators}
    fits = (one for one, count in counts.items() if count == len(text.names) - 1)
    return next(fits, max(counts, key=lambda one: counts[one]))


def _lines(opened: Unpacked, offset: int, name: str) -> Iterator[tuple[int, bytes]]:
    """Parts of whole lines from there on, each with its offset."""
    size = _PART
    while content := opened.read(offset, size):
        end = len(content) if len(content) < size else content.rfind(b"\n") + 1
        if end == 0:
            if size >= _LONGEST_LINE:
                raise ValueError(
                    f"{name}: a line is longer than {_LONGEST_LINE >> 20} MiB; is it a text file?"
                )
            size *= 2
            continue
        yield offset, content[:end]
        offset, size = offset + end, _PART
