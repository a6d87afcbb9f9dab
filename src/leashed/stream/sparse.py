"""Streams of sparse rows: the svmlight (libsvm) format and libffm's."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from leashed import _check, _core
from leashed.datasets import SparseDataset
from leashed.machine import cores
from leashed.stream.files import Paths, check_readable, is_repeatable, name_of, open_file, paths_of
from leashed.stream.stream import Opened, Options, Parts
from leashed.stream.text import PART_BYTES, PLACES

__all__ = ["SparseStream", "libffm", "libsvm"]

_MOST_FEATURES = 2**31 - 1
_MOST_CLASSES = 2**31 - 1


def libsvm(
    path: Paths,
    features: int,
    *,
    zero_based: bool = False,
    classes: int = 2,
    bad: str = "fail",
    threads: int | None = None,
    shuffle: int = 0,
    seed: int = 0,
    part_bytes: int = PART_BYTES,
) -> SparseStream:
    """Rows in the svmlight (libsvm) format: ``target column:value …`` a line, ``#`` before a comment,
    ``qid:…`` passed over.

        rows = lsh.stream.libsvm("clicks-*.svm.gz", 1_000_000, bad="skip")
        for part in rows.parts(100_000): ...         # SparseDatasets, in order
        data = rows.read()                           # in memory

    ``datasets.read_svmlight`` reads a plain file into memory, and finds out by itself what is said
    here before it is read.

    Args:
        path: as of :func:`criteo`.
        features: number of columns; a line with one beyond is bad.
        zero_based: whether columns are numbered from 0, and not from 1.
        classes: labels are whole numbers below, from 0; of two they may be −1 and 1 too. 0: targets
            are values, for regression.
        bad, threads, shuffle, seed, part_bytes: as of :func:`criteo`.

    Raises:
        FileNotFoundError: there is no such file; other OSErrors where it cannot be read.
        TypeError, ValueError: an argument is wrong. While it is read: there is no row, a compressed
            file is damaged, or a line is bad and not to be skipped; the message names the file, the
            line's number and what is wrong.
    """
    if not isinstance(zero_based, bool):
        raise TypeError(f"zero_based must be True or False, got {zero_based!r}")
    features = _check.whole("features", features, 1, _MOST_FEATURES)
    options = Options(bad, threads, shuffle, seed)
    return SparseStream(path, features, 0 if zero_based else 1, None, classes, options, part_bytes)


def libffm(
    path: Paths,
    fields: ArrayLike,
    *,
    classes: int = 2,
    bad: str = "fail",
    threads: int | None = None,
    shuffle: int = 0,
    seed: int = 0,
    part_bytes: int = PART_BYTES,
) -> SparseStream:
    """Rows in the libffm format: ``target field:column:value …`` a line, both numbered from 0.

    Args:
        path: as of :func:`criteo`.
        fields: of each column its field, whole numbers from 0, [features], as ``models.ffm`` takes
            them; a line that says otherwise, or has a column beyond, is bad.
        classes, bad, threads, shuffle, seed, part_bytes: as of :func:`libsvm`.

    Raises:
        FileNotFoundError, TypeError, ValueError: as of :func:`libsvm`.
    """
    given = _check.numeric("fields", fields)
    if given.dtype.kind not in "iu":
        raise TypeError(f"fields must be whole numbers, got {given.dtype}")
    if given.ndim != 1 or not 0 < given.size <= _MOST_FEATURES:
        raise ValueError(f"fields must be one for each column, [features], got {given.shape}")
    for value in (int(given.min()), int(given.max())):
        if not 0 <= value <= _MOST_FEATURES - 1:
            raise ValueError(f"fields must be from 0 to {_MOST_FEATURES - 1}, got {value}")
    of_columns = np.array(given, np.int32)
    options = Options(bad, threads, shuffle, seed)
    return SparseStream(path, len(of_columns), 0, of_columns, classes, options, part_bytes)


class SparseStream:
    """Sparse rows of text files, in their order; made by :func:`libsvm` and :func:`libffm`.

    It is a description, as a ``Stream`` is: each use reads it from the beginning, with threads of
    its own and a bounded number of rows in memory. What is read does not depend on how many threads
    read.

    Attributes:
        name: what messages call it.
        features: number of columns.
        classes: of the labels; 0: there are values in their place.
        repeatable: whether it can be read more than once.
    """

    def __init__(
        self,
        path: Paths,
        features: int,
        first: int,
        fields: NDArray[np.int32] | None,
        classes: int,
        options: Options,
        part_bytes: int,
    ) -> None:
        self._files = paths_of(path)
        others = f" and {len(self._files) - 1} more" if len(self._files) > 1 else ""
        self.name = name_of(self._files[0]) + others
        self.features = features
        self.classes = _check.whole("classes", classes, 0, _MOST_CLASSES)
        if self.classes == 1:
            raise ValueError("classes must be at least 2, or 0 for values, got 1")
        self._first, self._fields, self._options = first, fields, options
        self._part_bytes = _check.whole("part_bytes", part_bytes, 1, 1 << 30)

    @property
    def repeatable(self) -> bool:
        """Whether it can be read more than once."""
        return is_repeatable(self._files)

    def parts(self, rows: int = 65_536) -> Parts[SparseDataset]:
        """All rows in order, so many at a time.

        Raises:
            TypeError, ValueError: ``rows`` is no whole number from 1.
        """
        return Parts(self._open, _check.size("rows", rows), self._dataset)

    def read(self, rows: int | None = None) -> SparseDataset:
        """The rows in memory, all or the first so many.

        Raises:
            ValueError: there is no row, or a bad line and ``bad="fail"``.
            OSError: a file cannot be read.
        """
        most = None if rows is None else _check.whole("rows", rows)
        return self._dataset(self._open().read(most))

    def _open(self) -> Opened:
        options, files = self._options, self._files
        check_readable(files)
        threads = cores() if options.threads is None else options.threads
        native = _core.open_svmlight(
            self._first,
            self.features,
            self._fields,
            self.classes,
            [name_of(file) for file in files],
            lambda n, stopped: open_file(files[n], stopped),
            self.repeatable,
            self._part_bytes,
            threads,
            threads + PLACES,
            1,
            options.bad == "skip",
            options.shuffle,
            options.seed,
        )
        return Opened(native)

    def _dataset(self, taken: Any) -> SparseDataset:
        _, _, ((columns, offsets, values),), y, _ = taken
        indices = columns.astype(np.int32)
        return SparseDataset(offsets, indices, values, self.features, y, self.classes, self.name)

    def __repr__(self) -> str:
        return f"SparseStream(name={self.name!r}, features={self.features}, classes={self.classes})"
