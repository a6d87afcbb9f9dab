"""The columns that parameters were trained on. Parameters are an array that knows them, as do its copies,
also those of ``copy.deepcopy`` and ``pickle``, and what is computed from all of it; a plain array, such
as ``np.array(parameters)``, knows nothing.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from leashed.base.warning import warn
from leashed.datasets import ClickDataset, Dataset, SparseDataset
from leashed.datasets.columns import UNKNOWN, Columns, arrange

__all__ = ["Parameters", "arranged", "check_columns", "columns_of", "keep", "kept", "standardised"]


class Parameters(np.ndarray[Any, np.dtype[np.float32]]):
    """Float32 [d].

    Attributes:
        columns: of the data that they were trained on.
    """

    columns: Columns

    def __array_finalize__(self, of: object) -> None:
        whole = isinstance(of, Parameters) and of.shape == self.shape and self.dtype.kind == "f"
        self.columns = of.columns if whole and isinstance(of, Parameters) else UNKNOWN

    def __array_wrap__(self, array: Any, context: Any = None, return_scalar: bool = False) -> Any:
        # Of NumPy 1 a sum would be an array too.
        return array[()] if array.ndim == 0 else super().__array_wrap__(array, context)

    def __reduce__(self) -> Any:
        return keep, (np.array(self), self.columns)


def keep(parameters: NDArray[np.float32], columns: Columns) -> NDArray[np.float32]:
    """The same parameters, in the same memory, trained on data of these columns."""
    if columns == UNKNOWN:
        return parameters
    found = parameters.view(Parameters)
    found.columns = columns
    return found


def kept(parameters: Any) -> Columns:
    """What ``keep`` was told of these, or of what they are a copy of."""
    return parameters.columns if isinstance(parameters, Parameters) else UNKNOWN


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
            "on, as of a plain array; where that was data like these, which are standardised, give "
            "result.parameters, or a copy by its copy(), or predict with result.model"
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
