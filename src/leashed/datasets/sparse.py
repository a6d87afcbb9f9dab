"""Data most of whose values are 0: rows in CSR form, from SciPy's matrices or svmlight files."""

from __future__ import annotations

import os
from dataclasses import dataclass, fields
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from leashed import _core
from leashed.base import checks
from leashed.base.machine import cores
from leashed.datasets.columns import UNKNOWN, Columns
from leashed.datasets.dataset import (
    _numeric_array,
    _whole_labels,
    check_weights,
    check_y,
    number_of_classes,
)

__all__ = ["SparseDataset", "read_libffm", "read_svmlight"]

_LARGEST_COLUMN = 2**31 - 2
_MOST_TOLD = 2**24  # labels, which are read as float32: larger ones could not be told apart


@dataclass(frozen=True, eq=False, repr=False)
class SparseDataset:
    """Sparse examples and their labels, or the values they are to give: row i has ``data[j]`` in
    column ``indices[j]`` for j in [indptr[i], indptr[i + 1]). Columns may come in any order, and one
    that occurs twice in a row counts with the sum, as in SciPy. ``from_csr`` and ``regression``
    build one.

    Training makes a copy of the rows, shuffled by its seed once and with the columns that occur
    most often first; the copy of the last seed is kept.

    Attributes:
        indptr: int64 [n + 1], from 0, never falling.
        indices: int32, each in [0, features).
        data: float32, finite.
        features: Number of columns.
        y: int32 [n], each in [0, classes); for regression float32 [n], finite.
        classes: Number of classes, at least 2; 0 for regression.
        name: What plots and reports call this set.
        weights: As of a ``Dataset``.
        columns: What is known of the columns of other data that these were made of.

    Raises:
        TypeError: An array is not of the type above.
        ValueError: An array has the wrong shape, or holds a value it must not hold; the message
            names the row.
    """

    indptr: NDArray[np.int64]
    indices: NDArray[np.int32]
    data: NDArray[np.float32]
    features: int
    y: NDArray[np.int32] | NDArray[np.float32]
    classes: int
    name: str = "rows"
    weights: NDArray[np.float32] | None = None
    columns: Columns = UNKNOWN

    def __post_init__(self) -> None:
        checks.whole("features", self.features, 1, _LARGEST_COLUMN + 1)
        if not isinstance(self.name, str):
            raise TypeError(f"name must be a str, got {type(self.name).__name__}")
        dtypes = {
            "indptr": np.int64,
            "indices": np.int32,
            "data": np.float32,
            "y": np.float32 if self.classes == 0 else np.int32,
        }
        for name, dtype in dtypes.items():
            array = getattr(self, name)
            several = name == "y" and self.classes == 0 and np.ndim(array) == 2
            shaped = isinstance(array, np.ndarray) and array.ndim == 1 + several
            if not shaped or array.dtype != dtype:
                got = getattr(array, "dtype", type(array).__name__)
                raise TypeError(
                    f"{name} must be a one-dimensional {np.dtype(dtype).name} array, got {got}; "
                    "SparseDataset.from_csr(x, y) converts it"
                )
            array = np.ascontiguousarray(array).view()
            array.flags.writeable = False
            object.__setattr__(self, name, array)
        if len(self.indptr) < 2:
            raise ValueError("indptr must have one entry more than there are rows, at least 2")
        if len(self.y) != len(self):
            raise ValueError(
                f"x has {len(self)} rows but y has {len(self.y)} entries; pass one for each row"
            )
        object.__setattr__(self, "classes", check_y(self.y, self.classes))
        object.__setattr__(self, "weights", check_weights(self.weights, len(self)))
        _ = self.rows

    @cached_property
    def rows(self) -> _core.SparseRows:
        """The native rows."""
        return _core.SparseRows(self.indptr, self.indices, self.data, self.features)

    def __getstate__(self) -> dict[str, object]:
        return {item.name: getattr(self, item.name) for item in fields(self)}  # no native parts

    @classmethod
    def from_csr(
        cls,
        x: Any,
        y: ArrayLike,
        classes: int | None = None,
        name: str = "rows",
        weights: ArrayLike | None = None,
    ) -> SparseDataset:
        """Build a data set from a matrix in CSR form and labels.

        Arrays that are int64 (indptr), int32 (indices) and float32 (data) already are shared, not
        copied: do not change them afterwards.

        Args:
            x: ``scipy.sparse.csr_matrix`` or ``csr_array`` [n, features], or anything else that has
                ``indptr``, ``indices``, ``data`` and ``shape``.
            y: Labels [n]: whole numbers from 0, of any numeric dtype.
            classes: Number of classes, at least 2. Default: the largest label + 1.
            name: What plots and reports call this set.
            weights: How much each row counts, [n], not negative. Default: 1 each.

        Raises:
            TypeError: ``x`` is no such matrix, or a dtype is not numeric.
            ValueError: ``x``, ``y`` or ``weights`` does not fit the description; the message names
                the row.
        """
        parts = csr_parts(x)
        labels = _whole_labels(_numeric_array("y", y))
        _check_length(parts[0], labels)
        classes = number_of_classes(labels, classes)
        checked = check_weights(weights, len(labels))
        return cls(*parts, labels.astype(np.int32), classes, name, checked)

    @classmethod
    def regression(
        cls, x: Any, y: ArrayLike, name: str = "rows", weights: ArrayLike | None = None
    ) -> SparseDataset:
        """Build a data set whose rows are to give numbers: as ``from_csr``, with numbers ``y`` [n], or
        several of each row, [n, k]; finite in float32.
        """
        parts = csr_parts(x)
        values = _numeric_array("y", y)
        several = values.ndim == 2 and values.shape[1] > 1
        _check_length(parts[0], values, several=several)
        with np.errstate(over="ignore"):
            numbers = np.ascontiguousarray(values, np.float32)
        return cls(*parts, numbers, 0, name, check_weights(weights, len(numbers)))

    def __len__(self) -> int:
        return len(self.indptr) - 1

    def __getitem__(self, rows: slice) -> SparseDataset:
        """The rows of a slice of step 1, without a copy of their entries: ``data[:1000]``."""
        if not isinstance(rows, slice) or rows.step not in (None, 1):
            raise TypeError(f"rows must be a slice of step 1, got {rows!r}")
        begin, end, _ = rows.indices(len(self))
        indptr = self.indptr[begin : max(begin, end) + 1]
        entries = slice(int(indptr[0]), int(indptr[-1]))
        return SparseDataset(
            indptr - indptr[0],
            self.indices[entries],
            self.data[entries],
            self.features,
            self.y[rows],
            self.classes,
            self.name,
            None if self.weights is None else self.weights[rows],
            self.columns,
        )

    def head(self, rows: int) -> SparseDataset:
        """The first so many rows."""
        return self[:rows]

    def split(self, test: int) -> tuple[SparseDataset, SparseDataset]:
        """The last ``test`` rows for testing, behind those before them for training.

        Raises:
            TypeError, ValueError: ``test`` is no whole number from 1 to n − 1.
        """
        if len(self) < 2:
            raise ValueError("one row cannot be split; it takes two, one of them to test")
        test = checks.whole("test", test, 1, len(self) - 1)
        return self[:-test], self[-test:]

    def __repr__(self) -> str:
        return (
            f"SparseDataset(name={self.name!r}, n={len(self)}, features={self.features}, "
            f"entries={len(self.data)}, classes={self.classes})"
        )


def is_csr(x: Any) -> bool:
    """Whether ``x`` is a matrix in CSR form."""
    parts = all(hasattr(x, part) for part in ("indptr", "indices", "data", "shape"))
    return parts and getattr(x, "format", "csr") == "csr"


def csr_parts(x: Any) -> tuple[NDArray[np.int64], NDArray[np.int32], NDArray[np.float32], int]:
    """(indptr, indices, data, features) of a matrix in CSR form, in the engine's dtypes."""
    if not is_csr(x) or len(x.shape) != 2:
        raise TypeError(
            f"x must be a matrix in CSR form with two dimensions, got {type(x).__name__}; "
            "scipy.sparse.csr_array(x) makes one"
        )
    indptr, indices = (_whole_array(name, getattr(x, name)) for name in ("indptr", "indices"))
    if indices.size:
        for value in (int(indices.min()), int(indices.max())):
            if not 0 <= value < x.shape[1]:
                raise ValueError(f"indices has {value}, outside 0 to {x.shape[1] - 1}")
    with np.errstate(over="ignore"):
        data = np.ascontiguousarray(_numeric_array("data", x.data), np.float32)
    return (
        np.ascontiguousarray(indptr, np.int64),
        np.ascontiguousarray(indices, np.int32),
        data,
        int(x.shape[1]),
    )


def _whole_array(name: str, values: Any) -> NDArray[Any]:
    array = _numeric_array(name, values)
    if array.dtype.kind not in "iu" or array.ndim != 1:
        raise TypeError(f"{name} must be a one-dimensional array of integers, got {array.dtype}")
    return array


def _check_length(indptr: NDArray[np.int64], y: NDArray[Any], *, several: bool = False) -> None:
    rows = len(indptr) - 1
    if rows == 0:
        raise ValueError("x has no row; pass at least one")
    if y.ndim != 1 + several or y.size == 0 or rows != len(y):
        raise ValueError(f"y must be one entry per row, shape ({rows},), got {y.shape}")


def read_svmlight(
    path: str | os.PathLike[str],
    features: int | None = None,
    *,
    zero_based: bool | None = None,
    regression: bool = False,
) -> SparseDataset:
    """Read a file in the svmlight (libsvm) format: a row a line, ``target column:value …``.

    Args:
        path: The file, packed by gzip or zstd or not.
        features: Number of columns. Default: the largest column's number, + 1 if zero-based.
        zero_based: Whether columns are numbered from 0 or from 1. Default: from 0 where a column 0
            occurs; pass it for a test file that goes with a training file.
        regression: Targets are values. Default: they are labels: −1 and 1 become 0 and 1, others
            must be whole numbers from 0.

    Raises:
        ValueError: The file cannot be read, or is no such file: the message names the file, the
            line and the column. Or ``features`` is too small, or targets are no labels.
    """
    path = checks.path(path)
    rows = _rows_in(path)
    indices = rows.indices
    lowest = int(indices.min()) if indices.size else 1
    if zero_based is None:
        zero_based = lowest == 0
    if not zero_based:
        if lowest == 0:
            raise ValueError(f"{path}: column 0 occurs; pass zero_based=True")
        indices -= 1
    found = int(indices.max()) + 1 if indices.size else 1
    features = found if features is None else checks.whole("features", features, 1)
    if found > features:
        raise ValueError(
            f"{path}: the largest column makes {found} features; features must be at least that, "
            f"got {features}"
        )
    return _with_targets(path, rows, features, regression)


def read_libffm(
    path: str | os.PathLike[str],
    *others: str | os.PathLike[str],
    fields: ArrayLike | None = None,
    regression: bool = False,
) -> tuple[list[SparseDataset], NDArray[np.int32]]:
    """Read files in the libffm format, of a row a line, ``target field:column:value …``, that go
    together: training and test rows have the same columns.

    Args:
        path: a file. Columns and fields are numbered from 0, as they stand there.
        others: more of them.
        fields: of each column its field, as returned for other files: the columns are those.
            Default: as the files have them; a column that occurs in none is of field 0.
        regression: as for ``read_svmlight``.

    Returns:
        A data set for each file, and of each column its field, int32 [features], for
        ``models.ffm``.

    Raises:
        ValueError: A file cannot be read, or is no such file, or targets are no labels: the message
            names the file, the line and the column. Or a column is in two fields, or beyond
            ``fields``.
    """
    paths = [checks.path(one) for one in (path, *others)]
    files = [_rows_in(one, fields=True) for one in paths]
    if fields is None:
        columns = max(
            (1 + int(rows.indices.max()) for rows in files if rows.indices.size), default=1
        )
        field_of = np.zeros(columns, np.int32)
        for rows in files:
            field_of[rows.indices] = rows.fields
    else:
        given = _whole_array("fields", fields)
        wrong = np.flatnonzero((given < 0) | (given >= 2**31 - 1))
        if wrong.size:
            at = int(wrong[0])
            raise ValueError(f"fields[{at}] must be from 0 to {2**31 - 2}, got {given[at]}")
        field_of = given.astype(np.int32)
    found = []
    for one, rows in zip(paths, files, strict=True):
        indices, of_entry = rows.indices, rows.fields
        if indices.size and int(indices.max()) >= len(field_of):
            raise ValueError(
                f"{one}: column {int(indices.max())} occurs, but fields has {len(field_of)} columns; "
                "read the files together"
            )
        wrong = np.flatnonzero(field_of[indices] != of_entry)
        if wrong.size:
            entry = int(wrong[0])
            row = int(np.searchsorted(rows.indptr, entry, "right")) - 1
            column = int(indices[entry])
            raise ValueError(
                f"{one}: in row {row} column {column} is of field {int(of_entry[entry])}, elsewhere "
                f"of field {int(field_of[column])}; give the columns of each field numbers of their own"
            )
        found.append(_with_targets(one, rows, len(field_of), regression))
    return found, field_of


class _Rows(NamedTuple):
    """As they stand in a file: columns by their numbers there, and of each its field, if any."""

    targets: NDArray[np.float32]
    indptr: NDArray[np.int64]
    indices: NDArray[np.int32]
    data: NDArray[np.float32]
    fields: NDArray[np.int32]


def _rows_in(path: Path, *, fields: bool = False) -> _Rows:
    from leashed.datasets.files import check_readable  # noqa: PLC0415 (seldom asked for)
    from leashed.datasets.text import FIELD_SHIFT, SparseText, read  # noqa: PLC0415 (seldom asked for)

    text = SparseText(0, _LARGEST_COLUMN + 1, np.empty(0, np.int32) if fields else None, 0)
    try:
        check_readable([path])
        _, _, ((ids, indptr, data),), targets, _ = read(
            text.open([path], threads=cores(), tells_fields=fields)
        )
    except OSError as error:
        raise ValueError(f"{path}: {error.strerror or error}") from error
    except _core.Error as error:
        of_stream = f'stream.{"libffm" if fields else "libsvm"}(path, ..., bad="skip")'
        raise type(error)(str(error).replace('bad="skip"', of_stream)) from None
    of_fields = (ids >> np.uint64(FIELD_SHIFT)).astype(np.int32)
    return _Rows(targets, indptr, ids.astype(np.uint32).astype(np.int32), data, of_fields)


def _with_targets(path: Path, rows: _Rows, features: int, regression: bool) -> SparseDataset:
    """The data set of a file's rows, whose targets are values or labels."""
    csr, targets = (rows.indptr, rows.indices, rows.data, features), rows.targets
    if regression:
        return SparseDataset(*csr, targets, 0, path.name)
    try:
        if np.abs(targets).max() >= _MOST_TOLD:
            raise ValueError(f"y has a label beyond {_MOST_TOLD - 1}")
        labels = (targets > 0) if set(np.unique(targets)) <= {-1.0, 1.0} else _whole_labels(targets)
        classes = max(2, number_of_classes(labels.astype(np.int64), None)) if labels.any() else 2
    except ValueError as error:
        raise ValueError(f"{path}: {error}; pass regression=True for values") from None
    return SparseDataset(*csr, labels.astype(np.int32), classes, path.name)
