"""Whether a data set is one that a model takes."""

from __future__ import annotations

import math
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from leashed import _core
from leashed.base import checks
from leashed.datasets import ClickDataset, Dataset, SparseDataset

__all__ = ["check_fits", "check_labels", "examples"]


class Judged(Protocol):
    """What is asked of a model. ``native`` and ``sparse`` raise ValueError where it takes no dense
    data, or no sparse.
    """

    @property
    def native(self) -> _core.GradientSource: ...
    @property
    def sparse(self) -> _core.SparseModel: ...
    @property
    def features(self) -> int: ...
    @property
    def classes(self) -> int: ...
    @property
    def loss(self) -> str: ...


def check_fits(model: Judged, data: Dataset | SparseDataset, name: str) -> None:
    """TypeError where ``data`` is no data set, ValueError where the model does not take its kind, it
    has not the model's number of features, or other labels.
    """
    if not isinstance(data, (Dataset, SparseDataset)):
        raise TypeError(f"{name} must be a Dataset, got {type(data).__name__}")
    _ = model.sparse if isinstance(data, SparseDataset) else model.native
    if data.features != model.features:
        raise ValueError(
            f"{name} has {data.features} features, but the model takes {model.features}"
        )
    check_labels(model, data, name)


def check_labels(model: Judged, data: Dataset | SparseDataset | ClickDataset, name: str) -> None:
    """ValueError where the data has too many classes, or numbers for a model of classes."""
    if model.classes == 0 or data.classes == 0:
        if model.classes != data.classes:
            raise ValueError(
                f"{name} has {'numbers' if data.classes == 0 else 'labels'}, but the loss "
                f"{model.loss} takes {'numbers' if model.classes == 0 else 'labels'}; "
                "Dataset.regression(x, y) and Dataset.from_arrays(x, y) make the one and the other"
            )
        return
    if int(data.y.max()) >= model.classes:
        raise ValueError(
            f"{name} has labels up to {int(data.y.max())}, but the model knows "
            f"{model.classes} classes"
        )


def examples(x: Any, features: int) -> NDArray[np.float32]:
    """``x``, [n, features], images or one example, as float32 [n, features].

    Raises:
        TypeError: its dtype is not numeric.
        ValueError: it has the wrong shape or is not finite.
    """
    given = checks.numeric("x", x)
    if given.ndim == 0:
        raise ValueError("x must be [n, features], images or one example, got a single number")
    if given.ndim == 1:
        given = given[None, :]
    with np.errstate(over="ignore"):
        rows = np.ascontiguousarray(
            given.reshape(len(given), math.prod(given.shape[1:])), np.float32
        )
    if rows.shape[1] != features:
        raise ValueError(f"x must have {features} values per row, got {rows.shape[1]}")
    if not np.isfinite(rows).all():
        raise ValueError("x is NaN, infinite or beyond float32 somewhere; it must be finite")
    return rows
