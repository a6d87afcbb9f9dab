"""Streams of text files: Criteo's, and CSV by a schema."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from leashed import _core
from leashed.base import checks
from leashed.datasets.fields import Column, Schema
from leashed.datasets.files import Paths, check_readable, is_repeatable, name_of, paths_of
from leashed.datasets.text import CRITEO, PART_BYTES, PLACES, Text
from leashed.stream.arrow import _Arrow
from leashed.stream.batches import csv_batches
from leashed.stream.stream import Options, Stream

__all__ = ["PART_BYTES", "PLACES", "criteo", "csv"]


def criteo(
    path: Paths,
    *,
    bad: str = "fail",
    threads: int | None = None,
    shuffle: int = 0,
    seed: int = 0,
    part_bytes: int = PART_BYTES,
) -> Stream:
    """Criteo's display advertising data: lines of ``Label I1 … I13 C1 … C26``, apart by tabs, or with
    commas and a header that names the columns, in any order, and may have others (``Id``).

    A number x becomes ln(1 + max(x, 0)), and 0 where it is missing, as in DLRM. The category v of
    feature f, from 1, becomes the id f · 2³³ + v, and where it is missing f · 2³³ + 2³²: ids differ
    by feature, so that features can share a table, and what is missing is a category too.

    Args:
        path: a file, a pattern such as ``"day-*.tsv.gz"``, several of them in order, a named pipe, or
            an open binary file (which is read once). Files compressed by gzip or zstd are told by
            their content.
        bad: what to do about a line that is no row: ``"fail"``, or ``"skip"`` it, count it, and keep
            its number and the reason. Empty lines are passed over.
        threads: that parse. Default: half of the processors beside a training, else all.
        shuffle: the rows of each window of so many, from the first row on, in an order drawn from
            ``seed``; so many rows are in memory then. Default 0: in the order of the files.
        seed: of that order.
        part_bytes: of text that a thread parses at a time; the bytes in memory are some times as
            many for each thread. What is read does not depend on it.

    Returns:
        13 numbers, 26 features that are ids, C1 to C26, and labels 0 and 1.

    Raises:
        FileNotFoundError: there is no such file; other OSErrors where it cannot be read.
        TypeError, ValueError: an argument is wrong. While it is read: there is no row, a header lacks a
            column, a compressed file is damaged, or a line is bad and not to be skipped; the
            message names the file, the line's number and what is wrong.
    """
    return _Text(path, CRITEO, Options(bad, threads, shuffle, seed), part_bytes)


def csv(
    path: Paths,
    columns: Mapping[str, Column],
    *,
    separator: str = ",",
    names: Sequence[str] | None = None,
    bad: str = "fail",
    threads: int | None = None,
    shuffle: int = 0,
    seed: int = 0,
    part_bytes: int = PART_BYTES,
) -> Stream:
    """Text files of which each line is a row, by what their columns become.

        lsh.stream.csv("clicks-*.csv.gz", {
            "clicked": lsh.stream.Label(),
            "price": lsh.stream.Number(log=True, missing=0),
            "city": lsh.stream.Hashed(buckets=100_000),
            "device": lsh.stream.Vocabulary(["phone", "tablet", "desktop"]),
            "seen": lsh.stream.Id(between=" "),
        })

    A field may stand in double quotes, with quotes within it doubled; a line ends at every newline.
    Columns that are not named are passed over. Where one is a part of a date or a timestamp, which are
    as ISO 8601 has them, pyarrow reads all of them, and ``bad`` is ``"fail"``. Numbers are read to
    the nearest float32 of the nearest float64.

    Args:
        path: as of :func:`criteo`.
        columns: what each column that is read becomes, by its name: one ``Label`` or ``Target``, and
            ``Number``, ``Id``, ``Hashed``, ``Vocabulary`` and ``Weight``. Numbers and features come
            in this order.
        separator: between fields, one ASCII character.
        names: of all columns, where files have no header. Default: each file begins with one, which
            may have them in another order.
        bad, threads, shuffle, seed, part_bytes: as of :func:`criteo`.

    Raises:
        FileNotFoundError, TypeError, ValueError: as of :func:`criteo`.
    """
    schema = Schema(columns)
    if not isinstance(separator, str) or len(separator) != 1 or not separator.isascii():
        raise ValueError(f"separator must be one ASCII character, got {separator!r}")
    if separator in '\n\r"':
        raise ValueError(f"separator must be no quote and no end of a line, got {separator!r}")
    if names is not None:
        names = tuple(names)
        if len(set(names)) != len(names):
            raise ValueError("names must be there once each; one is there twice")
        lacking = [name for name in schema.columns if name not in names]
        if lacking:
            raise ValueError(f"names must have every column, and lack {', '.join(lacking)}")
    if schema.parts:
        return _Moments(path, schema, separator, names, Options(bad, threads, shuffle, seed))
    header = "present" if names is None else "none"
    text = Text(schema, separator, header, names or (), quotes=True)
    return _Text(path, text, Options(bad, threads, shuffle, seed), part_bytes)


class _Text(Stream):
    def __init__(self, path: Paths, text: Text, options: Options, part_bytes: int) -> None:
        self._files = paths_of(path)
        first = name_of(self._files[0])
        others = f" and {len(self._files) - 1} more" if len(self._files) > 1 else ""
        super().__init__(first + others, text.schema, options)
        self._text = text
        self._part_bytes = checks.whole("part_bytes", part_bytes, 1, 1 << 30)

    @property
    def repeatable(self) -> bool:
        return is_repeatable(self._files)

    @property
    def files(self) -> tuple[Path, ...]:
        return tuple(file for file in self._files if isinstance(file, Path))

    @property
    def text(self) -> Text:
        return self._text

    def _of(self, schema: Schema) -> Stream:
        made = super()._of(schema)
        assert isinstance(made, _Text)
        made._text = self._text._replace(schema=schema)
        return made

    def _open(self, threads: int, passes: int) -> _core.RowStream:
        check_readable(self._files)
        return self._text.open(
            self._files,
            threads=threads,
            skip=self._options.bad == "skip",
            part_bytes=self._part_bytes,
            passes=passes,
            shuffle=self._options.shuffle,
            seed=self._options.seed,
            labelled=self.labelled,
        )


class _Moments(_Arrow):
    """Of which some columns are parts of dates in text."""

    def __init__(
        self,
        path: Paths,
        schema: Schema,
        separator: str,
        names: Sequence[str] | None,
        options: Options,
    ) -> None:
        if options.bad != "fail":
            raise ValueError("bad must be 'fail' where columns are parts of dates in text")
        if not is_repeatable(files := paths_of(path)):
            raise ValueError("path must be files where columns are parts of dates in text")
        others = f" and {len(files) - 1} more" if len(files) > 1 else ""
        super().__init__(None, schema, options, name_of(files[0]) + others)
        self._files, self._separator, self._names = files, separator, names

    @property
    def files(self) -> tuple[Path, ...]:
        return tuple(file for file in self._files if isinstance(file, Path))

    def _made(self) -> Callable[[], Any]:
        check_readable(self._files)
        columns = self._schema.read(labelled=self.labelled)
        return partial(csv_batches, self.files, columns, self._separator, self._names)
