"""Clicks as sparse rows: numbers in columns of their own, ids hashed into the others."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from leashed.base import checks
from leashed.datasets.clicks import Bags, ClickDataset, by_feature
from leashed.datasets.dataset import Dataset
from leashed.datasets.sparse import SparseDataset

__all__ = ["hashed"]

_MOST_BITS = 30
_FEATURE = np.uint64(0x9E3779B97F4A7C15)  # of the golden ratio: features' ids go apart


def hashed(data: ClickDataset | Dataset, bits: int = 18) -> SparseDataset:
    """The rows for linear models and factorisation machines, by the hashing trick: number j is the
    value of column j, 0 left out; each id is a 1, or its weight, in one of 2^bits columns behind
    them, which one depends on its feature's place and the id alone. Ids that meet in a column count
    together.

    Args:
        data: Rows; those of a ``Dataset`` have no ids.
        bits: 1 to 30.

    Returns:
        As many columns as there are numbers, and 2^bits where there are ids; the classes are those
        of ``data``.

    Raises:
        TypeError, ValueError: An argument is not of its type or out of range.
    """
    if not isinstance(data, (ClickDataset, Dataset)):
        raise TypeError(f"data must be a ClickDataset or a Dataset, got {type(data).__name__}")
    bits = checks.whole("bits", bits, 1, _MOST_BITS)
    n = len(data)
    # Entries of all columns, put in the order of rows in the end.
    rows: list[NDArray[np.intp]] = []
    columns: list[NDArray[np.int32]] = []
    values: list[NDArray[np.float32]] = []
    row, number = np.nonzero(data.x)
    rows.append(row)
    columns.append(number.astype(np.int32))
    values.append(data.x[row, number])
    numbers = data.x.shape[1]
    for feature, column in enumerate(_ids_of(data)):
        if isinstance(column, Bags):
            ids, of_row = column.ids, np.repeat(np.arange(n), np.diff(column.offsets))
            weights = column.weights
        else:
            ids, of_row, weights = column, np.arange(n), None
        rows.append(of_row)
        columns.append((numbers + _hash(ids, feature, bits)).astype(np.int32))
        values.append(np.ones(len(ids), np.float32) if weights is None else weights)
    of_entry = np.concatenate(rows)
    order = np.argsort(of_entry, kind="stable")
    return SparseDataset(
        np.append(0, np.cumsum(np.bincount(of_entry, minlength=n))).astype(np.int64),
        np.concatenate(columns)[order],
        np.concatenate(values)[order],
        numbers + (2**bits if isinstance(data, ClickDataset) else 0),
        data.y,
        data.classes,
        data.name,
        data.weights,
        data.columns,
    )


def _ids_of(data: ClickDataset | Dataset) -> Iterable[NDArray[np.uint64] | Bags]:
    if isinstance(data, Dataset):
        return ()
    return by_feature(data)


def _hash(ids: NDArray[np.uint64], feature: int, bits: int) -> NDArray[np.uint64]:
    """The finaliser of SplitMix64 (Steele, Lea and Flood, 2014), its top bits."""
    with np.errstate(over="ignore"):
        z = ids + _FEATURE * np.uint64(feature + 1)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return (z ^ (z >> np.uint64(31))) >> np.uint64(64 - bits)
