"""Whether a data set is one that a model takes."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from leashed import _core
from leashed.base import checks
from leashed.datasets import ClickDataset, Dataset, SparseDataset
from leashed.datasets.columns import image_shape, same_image
from leashed.datasets.dataset import float_rows
from leashed.datasets.heads import heads_of

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
    if isinstance(data, Dataset):
        check_image(model, data.image_shape, name)
    check_labels(model, data, name)


def check_image(model: Any, shape: tuple[int, int, int] | None, name: str) -> None:
    """ValueError where a model of images is given others, such as those whose channels come last."""
    takes = getattr(model, "input_shape", None)
    if takes is None or takes[1:] == (1, 1) or same_image(shape, takes):
        return
    raise ValueError(
        f"{name}'s images are {shape}, (channels, height, width), but the model takes {takes}; where "
        "channels come last, x.transpose(0, 3, 1, 2) brings them to the front"
    )


def check_labels(model: Judged, data: Any, name: str) -> None:
    """ValueError where the data has too many classes, numbers for a model of classes, or another number of
    labels.
    """
    if getattr(model, "heads", 0) or getattr(data, "heads", ()):
        _check_heads(model, data, name)
        return
    given = data.y.shape[1] if np.ndim(data.y) == 2 else 1
    takes = getattr(model, "outputs", 1) if model.classes == 0 else 1
    if data.classes == 0 and given != takes:
        raise ValueError(
            f"{name} has {given} numbers a row, but the model, whose loss is {model.loss}, takes {takes}; "
            "a network of loss='squared_error' takes as many as it has outputs"
        )
    if model.classes == 0 or data.classes == 0:
        if model.classes != data.classes:
            remedy = (
                'target="number" is of a model of numbers and of ClickDataset.from_arrays, "click" or '
                '"classes" of one of labels'
                if isinstance(data, ClickDataset)
                else "Dataset.regression(x, y) and Dataset.from_arrays(x, y) make the one and the other"
            )
            raise ValueError(
                f"{name} has {'numbers' if data.classes == 0 else 'labels'}, but the loss "
                f"{model.loss} takes {'numbers' if model.classes == 0 else 'labels'}; {remedy}"
            )
        return
    if (largest := int(data.y.max())) >= model.classes:
        raise ValueError(
            f"{name} has labels up to {largest}, first in row {int(np.argmax(data.y >= model.classes))}, "
            f"but the model knows {model.classes} classes"
        )


def _check_heads(model: Judged, data: Any, name: str) -> None:
    takes, has = getattr(model, "heads", 0), getattr(data, "heads", ())
    if takes == len(has):
        asked = getattr(getattr(model, "made_by", None), "target", None)
        if isinstance(asked, tuple) and has not in (asked, heads_of(None, takes)):
            raise ValueError(
                f"{name}'s labels are {', '.join(has)}, and the model's target is {', '.join(asked)}; name "
                "them alike and in the same order, or leave the model's target out"
            )
        return
    if isinstance(data, SparseDataset):
        raise ValueError(  # noqa: TRY004 (of two that do not go together)
            f"{name} has sparse rows, whose labels have no names, and each of the model's {takes} heads is of "
            "a named one; make them dense with x.toarray()"
        )
    if not has:
        raise ValueError(
            f"{name} has one {'label' if data.classes else 'number'} a row, but the model has {takes} heads, "
            f"each of a label of its own; give y of shape [n, {takes}], or name {takes} columns by label="
        )
    told = f"{name} has {len(has)} labels a row, {', '.join(has)}"
    if not takes:
        raise ValueError(
            f"{told}, but the loss {model.loss} takes one; models of clicks take them by target={has}, networks "
            f"by loss='binary_cross_entropy' and {len(has)} outputs; y.argmax(axis=1) makes one of one-hot rows"
        )
    raise ValueError(
        f"{told}, but the model has {takes} heads; give as many labels as it has heads"
    )


def examples(x: Any, model: Judged) -> NDArray[np.float32]:
    """``x``, [n, features], images or one example, as float32 [n, features]; images of dtype uint8
    are divided by 255, as ``Dataset.from_arrays`` does.

    Raises:
        TypeError: its dtype is not numeric.
        ValueError: it has the wrong shape or is not finite.
    """
    given = checks.numeric("x", x)
    if given.ndim == 0:
        raise ValueError("x must be [n, features], images or one example, got a single number")
    if given.ndim == 1:
        given = given[None, :]
    image = image_shape(given.shape)
    rows = float_rows(given, image=image is not None)
    if rows.shape[1] != model.features:
        raise ValueError(f"x must have {model.features} values per row, got {rows.shape[1]}")
    check_image(model, image, "x")
    if not np.isfinite(rows).all():
        raise ValueError("x is NaN, infinite or beyond float32 somewhere; it must be finite")
    return rows
