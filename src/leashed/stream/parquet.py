"""Streams of Parquet files, and of whatever a table comes as."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from leashed.base.target import Labels, TargetWord
from leashed.datasets.fields import Column, Schema
from leashed.datasets.files import Paths, check_readable, paths_of
from leashed.datasets.text import CRITEO
from leashed.stream.arrow import _Arrow, arrow
from leashed.stream.batches import (
    is_parquet,
    is_table,
    parquet_batches,
    parquet_files,
    separator_of,
)
from leashed.stream.infer import infer
from leashed.stream.schema import schema
from leashed.stream.stream import Options, Stream
from leashed.stream.text import criteo, csv

__all__ = ["Given", "ParquetStream", "parquet", "table"]

Given = Mapping[str, Column] | str | os.PathLike[str] | None


def parquet(
    path: Paths,
    columns: Given = None,
    *,
    label: Labels | None = None,
    target: TargetWord | None = None,
    bad: str = "fail",
    threads: int | None = None,
    shuffle: int = 0,
    seed: int = 0,
) -> Stream:
    """Parquet files, by pyarrow (``pip install 'leashed[parquet]'``).

        rows = lsh.stream.parquet("logs/*.parquet", label="clicked")
        result = lsh.train(lsh.models.dlrm(), rows)

    Files come one after the other, those of a pattern or a folder by name; folders named ``key=value``,
    as Hive and Spark write them, are columns. A file that lacks a column is an error.

    Args:
        path: a file, a pattern, a folder, with those in it, or several of them in order.
        columns: as of :func:`csv`, or the path of a file that :func:`schema` reads. Default: as
            :func:`infer` finds of the first rows; for days give all the same ones.
        label: the column that is to be predicted of a row, or several, as of :func:`infer`, where
            ``columns`` does not say.
        target: as of :func:`infer`, of the label.
        bad, threads, shuffle, seed: as of :func:`arrow`.

    Raises:
        FileNotFoundError: there is no such file; other OSErrors where it cannot be read.
        ImportError: pyarrow is not installed.
        TypeError, ValueError: an argument is wrong; and as of :func:`arrow`.
    """
    files = parquet_files(path)
    known = _known(files, columns, label, target=target)
    return ParquetStream(files, known, Options(bad, threads, shuffle, seed))


def table(
    source: Any,
    columns: Given = None,
    *,
    label: Labels | None = None,
    ids: bool = True,
    target: TargetWord | None = None,
    bad: str = "fail",
    threads: int | None = None,
    shuffle: int = 0,
    seed: int = 0,
) -> Stream:
    """The rows of whatever there is: a DataFrame of pandas or polars, a table of pyarrow, anything
    with ``__arrow_c_stream__``, Parquet, CSV.

        rows = lsh.stream.table(frame, label="clicked")
        data = rows.read()                           # in memory

    Args:
        source: such a table; or a path, as of :func:`parquet` where it ends in .parquet or is a
            folder, else of :func:`csv`, its header telling what is between fields.
        columns, label, bad, threads, shuffle, seed: as of :func:`parquet`.
        ids, target: as of :func:`infer`.

    Raises:
        FileNotFoundError, ImportError, TypeError, ValueError: as of :func:`parquet`, or of :func:`csv`.
    """
    if not is_table(source):
        raise TypeError(
            "source must have __arrow_c_stream__, as tables of pyarrow, polars and pandas do, or be a "
            f"path, got {type(source).__name__}"
        )
    given: dict[str, Any] = {"bad": bad, "threads": threads, "shuffle": shuffle, "seed": seed}
    if hasattr(source, "__arrow_c_stream__"):
        known = _known(source, columns, label, ids=ids, target=target)
        return arrow(source, known, name="table", **given)
    if is_parquet(source):
        files = parquet_files(source)
        return parquet(files, _known(files, columns, label, ids=ids, target=target), **given)
    if isinstance(columns, (str, os.PathLike)):
        return csv(source, **schema(columns), **given)
    found = _known(source, columns, label, ids=ids, target=target)
    if Schema(found) == CRITEO.schema:
        return criteo(source, **given)
    return csv(source, found, separator=separator_of(paths_of(source)[0]), **given)


def _known(
    source: Any,
    columns: Given,
    label: Labels | None,
    *,
    ids: bool = True,
    target: TargetWord | None = None,
) -> Mapping[str, Column]:
    if (columns is None) == (label is None):
        raise ValueError(
            "label must name the column that tells what is to be predicted, or columns say what each is"
            + ("" if columns is None else "; give one of them")
        )
    if columns is not None and target is not None:
        raise ValueError(
            "target goes with label; columns say by Label(classes) and Target() what is to be predicted"
        )
    if columns is None:
        assert label is not None
        return infer(source, label=label, ids=ids, target=target)
    found: Mapping[str, Column] = (
        schema(columns)["columns"] if isinstance(columns, (str, os.PathLike)) else columns
    )
    return found


class ParquetStream(_Arrow):
    """Of Parquet files."""

    def __init__(self, files: list[Path], columns: Mapping[str, Column], options: Options) -> None:
        others = f" and {len(files) - 1} more" if len(files) > 1 else ""
        super().__init__(None, Schema(columns), options, str(files[0]) + others)
        self._files = files

    @property
    def files(self) -> tuple[Path, ...]:
        return tuple(self._files)

    def _made(self) -> Callable[[], Any]:
        check_readable([*self._files])
        return partial(parquet_batches, self._files, self.sources)

    @property
    def sources(self) -> list[str]:
        """The columns of a file that are read."""
        return self._schema.sources(labelled=self.labelled)

    def numbers_alone(self) -> ParquetStream:
        """The same rows without what they are to give and their ids."""
        columns = self._schema.columns
        told = self.heads or (str(self._schema.target),)
        kept = Schema({name: columns[name] for name in (*told, *self.number_names)})
        made = self._of(kept).unlabelled()
        assert isinstance(made, ParquetStream)
        return made

    def of_table(self, rows: Any) -> Stream:
        """Rows that pyarrow has read of these columns; bad ones are passed over and counted."""
        made = _Arrow(rows, self._schema, Options("skip", 1, 0, 0), self.name)
        made.labelled = self.labelled
        return made
