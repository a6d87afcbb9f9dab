"""Streams of sparse rows: the svmlight (libsvm) format and libffm's."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from leashed.base import checks
from leashed.datasets import SparseDataset
from leashed.datasets.files import Paths, check_readable, is_repeatable, name_of, paths_of
from leashed.datasets.text import FIELD_SHIFT, SparseText
from leashed.stream.stream import Opened, Options, Parts
from leashed.stream.text import PART_BYTES

__all__ = ["Scanned", "SparseStream", "libffm", "libsvm", "scan_libffm", "scan_libsvm"]

_MOST_FEATURES = 2**31 - 1
_MOST_CLASSES = 2**31 - 1
_SCANNED = 1 << 16  # rows in memory
_MOST_TOLD = 2**24  # labels, which are read as float32: larger ones could not be told apart
_FIELD = np.uint64(FIELD_SHIFT)
_COLUMN = np.uint64(2**32 - 1)


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
        model = lsh.models.logistic_regression(rows.features)
        result = lsh.train(model, rows, until=lsh.until(epochs=1), batch_size=4096)
        for part in rows.parts(100_000): ...         # SparseDatasets, in order
        data = rows.read()                           # in memory

    ``datasets.read_svmlight`` reads a file into memory, and finds out by itself what is said here
    before it is read.

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
    _check_zero_based(zero_based)
    features = checks.whole("features", features, 1, _MOST_FEATURES)
    options = Options(bad, threads, shuffle, seed)
    return SparseStream(path, features, 0 if zero_based else 1, None, classes, options, part_bytes)


def libffm(
    path: Paths,
    fields: ArrayLike | int,
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
            them; a line that says otherwise, or has a column beyond, is bad. Or how many columns
            there are, for models without fields: then lines may say any.
        classes, bad, threads, shuffle, seed, part_bytes: as of :func:`libsvm`.

    Raises:
        FileNotFoundError, TypeError, ValueError: as of :func:`libsvm`.
    """
    options = Options(bad, threads, shuffle, seed)
    if isinstance(fields, (int, np.integer)):
        features = checks.whole("fields", fields, 1, _MOST_FEATURES)
        any_field = np.empty(0, np.int32)
        return SparseStream(path, features, 0, any_field, classes, options, part_bytes)
    given = checks.numeric("fields", fields)
    if given.dtype.kind not in "iu":
        raise TypeError(f"fields must be whole numbers, got {given.dtype}")
    if given.ndim != 1 or not 0 < given.size <= _MOST_FEATURES:
        raise ValueError(f"fields must be one for each column, [features], got {given.shape}")
    for value in (int(given.min()), int(given.max())):
        if not 0 <= value <= _MOST_FEATURES - 1:
            raise ValueError(f"fields must be from 0 to {_MOST_FEATURES - 1}, got {value}")
    of_columns = np.array(given, np.int32)
    return SparseStream(path, len(of_columns), 0, of_columns, classes, options, part_bytes)


def _check_zero_based(given: object) -> None:
    if not isinstance(given, bool):
        raise TypeError(f"zero_based must be True or False, got {given!r}")


class Scanned(NamedTuple):
    """What a stream of sparse rows has to be told before it is read.

    Attributes:
        rows: how many there are.
        features: the largest column's number, + 1 if columns are numbered from 0; at least 1.
        classes: that the labels are below, at least 2; 0: not all targets are labels, which are
            whole numbers from 0 below 2²⁴, or −1 and 1.
        fields: of each column its field, int32 [features], of files in the libffm format; a column
            that does not occur is of field 0. Else None.
    """

    rows: int
    features: int
    classes: int
    fields: NDArray[np.int32] | None


def scan_libsvm(path: Paths, *, zero_based: bool = False) -> Scanned:
    """Read files in the svmlight (libsvm) format once for what :func:`libsvm` has to be told.

    Lines that are no rows are passed over.

    Args:
        path: as of :func:`criteo`, of what can be read again.
        zero_based: whether columns are numbered from 0, and not from 1.

    Raises:
        FileNotFoundError: there is no such file; other OSErrors where it cannot be read.
        TypeError, ValueError: an argument is wrong, what is given can be read once only, or there
            is no row.
    """
    _check_zero_based(zero_based)
    return _scanned(path, 0 if zero_based else 1, None)


def scan_libffm(path: Paths) -> Scanned:
    """Read files in the libffm format once for what :func:`libffm` has to be told.

        found = lsh.stream.scan_libffm("clicks-*.ffm.gz")
        rows = lsh.stream.libffm("clicks-*.ffm.gz", found.fields)

    Lines that are no rows are passed over. Where lines disagree of what field a column is, it is of
    the one that comes last.

    Args:
        path: as of :func:`criteo`, of what can be read again.

    Raises:
        FileNotFoundError, ValueError: as of :func:`scan_libsvm`.
    """
    return _scanned(path, 0, np.empty(0, np.int32))


def _scanned(path: Paths, first: int, any_field: NDArray[np.int32] | None) -> Scanned:
    options = Options("skip", None, 0, 0)
    stream = SparseStream(path, _MOST_FEATURES, first, any_field, 0, options, PART_BYTES)
    if not stream.repeatable:
        raise ValueError(f"{stream.name} can be read once only; give files, or say what they have")
    rows, features, largest, labels, signs = 0, 1, 0.0, True, True
    fields = np.zeros(0, np.int32)
    tells = stream.format == "libffm"
    parts: Parts[Any] = Parts(
        lambda: stream.open(tells_fields=tells), _SCANNED, lambda taken: taken
    )
    for _, _, ((ids, *_),), y, _ in parts:
        columns = (ids & _COLUMN).astype(np.int64)
        rows += len(y)
        features = max(features, int(columns.max(initial=0)) + 1)
        if tells:
            fields = np.pad(fields, (0, features - len(fields)))
            fields[columns] = (ids >> _FIELD).astype(np.int32)
        whole = y == np.floor(y)
        signs = signs and bool((np.abs(y) == 1).all())
        labels = labels and bool((whole & (y >= 0)).all())
        largest = max(largest, float(y.max()))
    labels = labels and largest < _MOST_TOLD
    classes = 2 if signs else max(2, int(largest) + 1) if labels else 0
    return Scanned(rows, features, classes, fields if tells else None)


class SparseStream:
    """Sparse rows of text files, in their order; made by :func:`libsvm` and :func:`libffm`.

    It is a description, as a ``Stream`` is: each use reads it from the beginning, with threads of
    its own and a bounded number of rows in memory. What is read does not depend on how many threads
    read.

    Attributes:
        name: what messages call it.
        features: number of columns.
        classes: of the labels; 0: there are values in their place.
        format: ``"libsvm"`` or ``"libffm"``.
        repeatable: whether it can be read more than once.
        files: that it reads, in order; empty where it is of no files.
        order: ``shuffle``, and where there is any its ``seed``.
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
        self.classes = checks.whole("classes", classes, 0, _MOST_CLASSES)
        if self.classes == 1:
            raise ValueError("classes must be at least 2, or 0 for values, got 1")
        self._first, self._fields, self._options = first, fields, options
        self._part_bytes = checks.whole("part_bytes", part_bytes, 1, 1 << 30)

    @property
    def repeatable(self) -> bool:
        """Whether it can be read more than once."""
        return is_repeatable(self._files)

    @property
    def files(self) -> tuple[Path, ...]:
        """That it reads, in order; empty where it is of no files."""
        return tuple(file for file in self._files if isinstance(file, Path))

    @property
    def order(self) -> dict[str, int]:
        """``shuffle``, and where there is any its ``seed``."""
        return self._options.order

    @property
    def text(self) -> SparseText:
        """How its files are written."""
        return SparseText(self._first, self.features, self._fields, self.classes)

    @property
    def bad(self) -> str:
        """What is done about a line that is no row."""
        return self._options.bad

    @property
    def format(self) -> str:
        """``"libsvm"`` or ``"libffm"``."""
        return "libsvm" if self._fields is None else "libffm"

    def parts(self, rows: int = 65_536) -> Parts[SparseDataset]:
        """All rows in order, so many at a time.

        Raises:
            TypeError, ValueError: ``rows`` is no whole number from 1.
        """
        return Parts(self.open, checks.size("rows", rows), self._dataset)

    def read(self, rows: int | None = None) -> SparseDataset:
        """The rows in memory, all or the first so many.

        Raises:
            ValueError: there is no row, or a bad line and ``bad="fail"``.
            OSError: a file cannot be read.
        """
        most = None if rows is None else checks.whole("rows", rows)
        return self._dataset(self.open().read(most))

    def has_fields(self, fields: Sequence[int] | None) -> bool:
        """Whether columns are of these fields; also where either is of none."""
        if self._fields is None or not self._fields.size or fields is None:
            return True
        return np.array_equal(self._fields, fields)

    def open(
        self,
        passes: int = 1,
        *,
        beside: int = 0,
        distinct_columns: bool = False,
        tells_fields: bool = False,
    ) -> Opened:
        """For one use: the native stream of so many passes (0: as many as are asked for), not started
        yet; ``beside`` so many threads that compute. The others are ``SparseText.open``'s.
        """
        options, files = self._options, self._files
        check_readable(files)
        native = self.text.open(
            files,
            threads=options.reading_threads(beside),
            skip=options.bad == "skip",
            part_bytes=self._part_bytes,
            passes=passes,
            shuffle=options.shuffle,
            seed=options.seed,
            distinct_columns=distinct_columns,
            tells_fields=tells_fields,
        )
        return Opened(native)

    def _dataset(self, taken: Any) -> SparseDataset:
        _, _, ((columns, offsets, values),), y, _ = taken
        indices = columns.astype(np.int32)
        return SparseDataset(offsets, indices, values, self.features, y, self.classes, self.name)

    def __repr__(self) -> str:
        return f"SparseStream(name={self.name!r}, features={self.features}, classes={self.classes})"
