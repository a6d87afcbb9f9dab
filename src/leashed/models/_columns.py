"""The columns that parameters were trained on. Parameters are plain arrays, so what is known of the
data is kept beside them, for as long as an array lives; a copy of it knows nothing.
"""

from __future__ import annotations

import weakref
from collections.abc import Collection
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from leashed.base.warning import warn
from leashed.datasets import ClickDataset, Dataset, SparseDataset
from leashed.datasets.columns import UNKNOWN, Columns, arrange

__all__ = ["arranged", "check_columns", "columns_of", "keep", "kept", "standardised"]

# By the id of the array, of which the weak reference tells whether it is still that one.
_kept: dict[int, tuple[weakref.ref[Any], Columns]] = {}


def keep(parameters: Any, columns: Columns) -> None:
    """These parameters were trained on data of these columns."""
    if columns == UNKNOWN:
        return
    key = id(parameters)
    forget = _kept.pop  # also while the interpreter ends
    _kept[key] = weakref.ref(parameters, lambda _: forget(key, None)), columns


def kept(parameters: Any) -> Columns:
    """What ``keep`` was told of this very array."""
    found = _kept.get(id(parameters))
    return found[1] if found is not None and found[0]() is parameters else UNKNOWN


def columns_of(model: Any, data: object) -> Columns:
    """What is known of data, as the model reads them: of the features that are ids those that it
    reads, of sparse rows all, which went into their columns.
    """
    known = Columns.of(data)
    return known if isinstance(data, SparseDataset) else known.read(_read(model))


def arranged(parameters: Any, model: Any, data: Any, name: str) -> Any:
    """Data with the columns in the order in which the parameters were trained on them, where both know
    names (``leashed.datasets.columns.arrange``); of what has sparse rows as they are.
    """
    known = kept(parameters)
    if known == UNKNOWN or isinstance(data, SparseDataset):
        return data
    return arrange(known.read(_read(model)), data, name)


def standardised(parameters: Any, data: Any) -> Any:
    """A data set, or numbers [n, columns], as a graph of these parameters reads them."""
    known = kept(parameters)
    if known == UNKNOWN:
        _warn_of_scales(data)
    moments = known.moments
    if moments is None or not isinstance(data, (ClickDataset, Dataset, np.ndarray)):
        return data
    if isinstance(data, np.ndarray):
        return moments.standardised(data)
    return data.standardised(moments)


def _warn_of_scales(data: Any) -> None:
    schema = getattr(data, "schema", None)
    if schema is not None and any(schema.standard):
        warn(
            "numbers are read as they are, since nothing is known of what these parameters were trained "
            "on, as of a copy of the array; where that was data like these, which are standardised, give "
            "the array itself, or predict with result.model"
        )


def check_columns(
    parameters: Any,
    model: Any,
    data: object,
    name: str,
    rows: NDArray[np.float32] | None = None,
) -> Columns:
    """What is known of data and of what the parameters were trained on; ``rows`` are the data as the
    model reads them, where these are an array.

    Raises:
        ValueError: they were trained on other columns, or in another order.
    """
    known = kept(parameters)
    if not isinstance(data, SparseDataset):
        known = known.read(_read(model))
    now = columns_of(model, data)
    if rows is not None and known.peak is not None:
        divided = now.image is not None and getattr(data, "dtype", None) == np.uint8
        now = replace(now, peak=float(rows.max(initial=0.0)), divided=divided or now.divided)
    return known.agreed(now, name, "that the parameters were trained on")


def _read(model: Any) -> Collection[int]:
    features: Collection[int] = getattr(model, "id_features", ())
    return features
