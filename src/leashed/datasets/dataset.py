"""A labelled data set as the engine reads it, and the checks that let it in."""

from __future__ import annotations

import dataclasses
import math
import operator
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from leashed.base import checks
from leashed.base.target import check_heads
from leashed.datasets.columns import Columns, check_names, frame_names, heads_at, places
from leashed.datasets.columns import image_shape as shape_of
from leashed.datasets.fields import Schema
from leashed.datasets.heads import check_labels, heads_of, table_of
from leashed.datasets.moments import Moments

_INT32_MAX = 2**31 - 1


@dataclass(frozen=True, eq=False, repr=False)
class Dataset:
    """Examples and their labels, or the values they are to give. ``from_arrays`` and ``regression``
    build one from arrays of any numeric dtype.

    Attributes:
        x: float32 [n, features], C-contiguous, read-only, finite.
        y: int32 [n], read-only, each in [0, classes); for regression float32 [n], or [n, k] of
            several numbers, finite; of several
            ``heads`` float32 [n, heads], each 0 or 1, or NaN where it is not known.
        classes: Number of classes, at least 2; 0 for regression, and of several heads.
        name: What plots and reports call this set.
        image_shape: (channels, height, width) whose product is ``features``, or None when the
            features are no image.
        weights: float32 [n], read-only, finite and not negative, or None: all are 1. An example's
            loss and its gradient are multiplied by its weight; means over a batch or the set divide
            by the number of examples, not by the sum of their weights. Accuracies do not weigh.
        names: Of the features, one for each, or None: they have none.
        divided: Whether ``x`` is known to be bytes that were divided by 255.
        schema: What the columns of the file or table that it is of became; None: it is of arrays.
        heads: The names of the labels where an example has several; else none.

    Raises:
        TypeError: An argument is not of the type above.
        ValueError: An argument has the wrong shape, is empty, or holds a value it must not hold.
    """

    x: NDArray[np.float32]
    y: NDArray[np.int32] | NDArray[np.float32]
    classes: int
    name: str = "arrays"
    image_shape: tuple[int, int, int] | None = None
    weights: NDArray[np.float32] | None = None
    names: tuple[str, ...] | None = None
    divided: bool = False
    schema: Schema | None = None
    heads: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        _check_storage("x", self.x, np.float32, 2)
        values = np.float32 if self.classes == 0 else np.int32
        several = bool(self.heads) or (self.classes == 0 and np.ndim(self.y) > 1)
        _check_storage("y", self.y, values, 1 + several)
        if not isinstance(self.name, str):
            raise TypeError(f"name must be a str, got {type(self.name).__name__}")
        _check_shapes(self.x, self.y, several=several)
        classes = check_y(self.y, self.classes, self.heads)
        _check_finite(self.x)
        x = self.x.view()
        x.flags.writeable = False
        y = self.y.copy()
        y.flags.writeable = False
        object.__setattr__(self, "x", x)
        object.__setattr__(self, "y", y)
        object.__setattr__(self, "classes", classes)
        object.__setattr__(self, "weights", check_weights(self.weights, len(y)))
        if self.image_shape is not None:
            shape = _image_shape(self.image_shape, features=x.shape[1])
            object.__setattr__(self, "image_shape", shape)
        object.__setattr__(self, "names", check_names("names", self.names, x.shape[1]))

    @classmethod
    def from_arrays(
        cls,
        x: ArrayLike,
        y: ArrayLike,
        classes: int | None = None,
        name: str = "arrays",
        image_shape: tuple[int, int, int] | None = None,
        weights: ArrayLike | None = None,
        names: Sequence[str] | None = None,
    ) -> Dataset:
        """Build a data set from arrays of any boolean, integer or floating-point dtype.

        Images of dtype uint8 are divided by 255; other values of ``x`` are converted to float32 as
        they are, also uint8 rows [n, features] without an ``image_shape``. An ``x`` that is float32
        and C-contiguous already is shared, not copied, so that a large set costs no second copy: do
        not change it afterwards. ``y`` is always copied.

        Args:
            x: Examples: [n, features], images [n, height, width] or [n, channels, height, width].
            y: Labels [n]: whole numbers from 0, of any numeric dtype. Or of several labels that do
                not exclude each other [n, heads], from 2 on: each 0 or 1, or NaN where it is not known;
                a data frame's columns name them, else they are ``y1``, ``y2``, ….
            classes: Number of classes, at least 2. Default: the largest label + 1.
            name: What plots and reports call this set.
            image_shape: (channels, height, width) of the rows of a two-dimensional ``x``. Images
                of three or four dimensions carry their shape themselves.
            weights: How much each example counts, [n], not negative. Default: 1 each.
            names: Of the features. Default: those of a data frame's columns, else none.

        Raises:
            TypeError: A dtype is not numeric, or an argument is of the wrong type.
            ValueError: Wrong number of dimensions, different lengths, nothing in ``x``, a NaN or an
                infinity in ``x`` or ``weights``, a negative weight, or labels that are negative,
                too large or not whole.
        """
        examples = _numeric_array("x", x)
        labels, heads = labels_of(_numeric_array("y", y), frame_names(y))
        if heads and classes is not None:
            raise ValueError(
                f"y must be one label per example where classes are given, shape [n], got {labels.shape}; "
                "pass y.argmax(axis=1) for one-hot labels"
            )
        if examples.ndim not in (2, 3, 4):
            raise ValueError(
                "x must be [n, features], [n, height, width] or [n, channels, height, width], "
                f"got {examples.ndim} dimension(s) {examples.shape}; reshape it, e.g. "
                "x.reshape(len(y), -1)"
            )
        _check_shapes(examples, labels, several=bool(heads))
        if (own_shape := shape_of(examples.shape)) is not None:
            if image_shape not in (None, own_shape):
                raise ValueError(
                    f"image_shape is {image_shape}, but x already says {own_shape}; leave it out"
                )
            image_shape = own_shape
        classes = 0 if heads else number_of_classes(labels, classes)
        image = image_shape is not None
        x32, divided = float_rows(examples, image=image), image and examples.dtype == np.uint8
        checked = check_weights(weights, len(labels))
        named = frame_names(x) if names is None else check_names("names", names, x32.shape[1])
        y32: Any = labels.astype(np.float32 if heads else np.int32)
        return cls(x32, y32, classes, name, image_shape, checked, named, divided, heads=heads)

    @classmethod
    def regression(
        cls,
        x: ArrayLike,
        y: ArrayLike,
        name: str = "arrays",
        weights: ArrayLike | None = None,
        names: Sequence[str] | None = None,
    ) -> Dataset:
        """Build a data set whose examples are to give numbers, from arrays of any boolean, integer
        or floating-point dtype.

        Args:
            x: Examples [n, features]; shared, not copied, where it is float32 and C-contiguous.
            y: Numbers [n], or several of each example, [n, k] with k ≥ 2; finite in float32.
            name: What plots and reports call this set.
            weights: How much each example counts, [n], not negative. Default: 1 each.
            names: As for ``from_arrays``.

        Raises:
            TypeError, ValueError: As ``from_arrays``, and where a number is not finite.
        """
        examples, values = _numeric_array("x", x), _numeric_array("y", y)
        if examples.ndim != 2:
            raise ValueError(f"x must be [n, features], got shape {examples.shape}")
        _check_shapes(examples, values, several=values.ndim == 2 and values.shape[1] > 1)
        with np.errstate(over="ignore"):
            x32 = np.ascontiguousarray(examples, dtype=np.float32)
            y32 = np.ascontiguousarray(values, dtype=np.float32)
        checked = check_weights(weights, len(y32))
        named = frame_names(x) if names is None else check_names("names", names, x32.shape[1])
        return cls(x32, y32, 0, name, weights=checked, names=named)

    @cached_property
    def columns(self) -> Columns:
        """What models keep of the columns that they were trained on."""
        peak = None if self.image_shape is None else float(self.x.max())
        return Columns(
            self.names,
            image=self.image_shape,
            peak=peak,
            divided=self.divided,
            schema=self.schema,
            heads=self.heads,
        )

    def arranged(self, known: Columns, name: str = "data") -> Dataset:
        """Its columns in the order in which a model knows them by name, others left out; itself where
        they are so. ValueError where one is not there.
        """
        found, made = places(known.numbers, self.names, name), self
        if found is not None:
            x = np.ascontiguousarray(self.x[:, found])
            made = dataclasses.replace(made, x=x, names=known.numbers, image_shape=None)
        if (of_heads := heads_at(known.heads, self.heads, name)) is not None:
            y: Any = np.ascontiguousarray(self.y[:, of_heads])
            made = dataclasses.replace(made, y=y, heads=known.heads)
        return made

    def standardised(self, moments: Moments) -> Dataset:
        """The same with numbers standardised by what they came to."""
        return dataclasses.replace(self, x=moments.standardised(self.x))

    @property
    def features(self) -> int:
        """Values per example."""
        return int(self.x.shape[1])

    def head(self, rows: int) -> Dataset:
        """The first so many examples."""
        weights = None if self.weights is None else self.weights[:rows]
        return dataclasses.replace(self, x=self.x[:rows], y=self.y[:rows], weights=weights)

    def __len__(self) -> int:
        return len(self.x)

    def __repr__(self) -> str:
        image = "" if self.image_shape is None else f", image_shape={self.image_shape}"
        judged = f"heads={list(self.heads)}" if self.heads else f"classes={self.classes}"
        return (
            f"Dataset(name={self.name!r}, n={len(self)}, features={self.features}, {judged}{image})"
        )


class Split(NamedTuple):
    """A training set and the test set that belongs to it."""

    train: Dataset
    test: Dataset


def float_rows(examples: NDArray[Any], *, image: bool) -> NDArray[np.float32]:
    """float32 [n, features] of arrays of any numeric dtype; 8-bit images are brought into 0 to 1."""
    rows = examples.reshape(len(examples), math.prod(examples.shape[1:]))
    if image and rows.dtype == np.uint8:
        scaled: NDArray[np.float32] = np.divide(rows, np.float32(255), dtype=np.float32)
        return scaled
    with np.errstate(over="ignore"):
        return np.ascontiguousarray(rows, dtype=np.float32)


def _numeric_array(name: str, values: ArrayLike) -> NDArray[Any]:
    try:
        array = np.asarray(values)
    except (TypeError, ValueError, RuntimeError) as error:
        raise TypeError(f"{name} cannot be read as an array: {error}") from error
    if array.dtype.kind not in "biuf":
        raise TypeError(
            f"{name} has dtype {array.dtype}; pass booleans, integers or floats, e.g. "
            f"np.asarray({name}, dtype=float)"
        )
    return array


def _whole_labels(labels: NDArray[Any]) -> NDArray[Any]:
    """Labels as integers: booleans and whole floats are converted, anything else is refused."""
    if labels.dtype.kind == "b":
        return labels.astype(np.int32)
    if labels.dtype.kind == "f" and labels.size:
        whole = np.isfinite(labels) & (np.floor(labels) == labels)
        if not whole.all():
            first = np.unravel_index(np.argmin(whole), labels.shape)
            raise ValueError(
                f"y must hold whole numbers, got {labels[first]} at index {first[0]}; "
                "number the classes 0, 1, 2, …"
            )
        if float(np.abs(labels).max()) > _INT32_MAX:
            raise ValueError(f"y has a label beyond {_INT32_MAX}; number the classes 0, 1, 2, …")
        return labels.astype(np.int64)
    return labels


def _check_storage(name: str, array: object, dtype: type[np.generic], ndim: int) -> None:
    if not isinstance(array, np.ndarray) or array.dtype != dtype or not array.dtype.isnative:
        got = f"{array.dtype} array" if isinstance(array, np.ndarray) else type(array).__name__
        raise TypeError(
            f"{name} must be a {dtype.__name__} array, got {got}; "
            "Dataset.from_arrays(x, y) converts it"
        )
    if array.ndim != ndim or not array.flags.c_contiguous:
        raise ValueError(
            f"{name} must be C-contiguous with {ndim} dimension(s), got shape {array.shape} and "
            f"strides {array.strides}; Dataset.from_arrays(x, y) converts it"
        )


def number_of_classes(labels: NDArray[Any], classes: int | None) -> int:
    """Checks labels against the number of classes, which by default is the largest + 1."""
    if classes is not None:
        classes = checks.whole("classes", classes, 2, _INT32_MAX)
        _check_labels(labels, classes)
        return classes
    classes = min(max(int(labels.max()), 0) + 1, _INT32_MAX)
    _check_labels(labels, classes)
    if classes < 2:
        raise ValueError(
            "y holds only the label 0, which leaves the number of classes open; "
            "pass classes=2 or more"
        )
    return classes


def labels_of(y: NDArray[Any], names: Sequence[str] | None) -> tuple[NDArray[Any], tuple[str, ...]]:
    """Labels as whole numbers, and the names of several; [n, 1] is one that is a column."""
    if y.ndim != 2 or y.shape[1] < 2:
        return _whole_labels(y), ()
    heads = heads_of(names, y.shape[1])
    return table_of(y, heads), heads


def check_y(y: NDArray[Any], classes: int, heads: Sequence[str] = ()) -> int:
    """Checks what the examples are to give: labels, or numbers where ``classes`` is 0, or those of
    several heads.
    """
    if heads:
        if classes != 0:
            raise ValueError(f"classes must be 0 where there are several heads, got {classes!r}")
        check_heads("heads", heads, y.shape[1])
        check_labels(y, heads)
        return 0
    if isinstance(classes, int) and not isinstance(classes, bool) and classes == 0:
        if not np.isfinite(y).all():
            first = int(np.argmin(np.isfinite(y)))
            raise ValueError(
                f"y is NaN, infinite or beyond float32 at index {first}; remove such examples"
            )
        return 0
    classes = checks.whole("classes", classes, 2, _INT32_MAX)
    _check_labels(y, classes)
    return classes


def check_weights(weights: ArrayLike | None, rows: int) -> NDArray[np.float32] | None:
    """A read-only copy of the examples' weights, checked."""
    if weights is None:
        return None
    values = _numeric_array("weights", weights)
    if values.shape != (rows,):
        raise ValueError(
            f"weights must have one value per example, shape ({rows},), got {values.shape}"
        )
    with np.errstate(over="ignore"):
        checked = values.astype(np.float32)
    wrong = ~(np.isfinite(checked) & (checked >= 0))
    if wrong.any():
        first = int(np.argmax(wrong))
        raise ValueError(
            f"weights[{first}] is {values[first]}; every weight must be finite in float32 and not "
            "negative"
        )
    checked.flags.writeable = False
    return checked


def _check_shapes(x: NDArray[Any], y: NDArray[Any], *, several: bool = False) -> None:
    if y.ndim != 1 + several:
        raise ValueError(
            f"y must be one label per example, shape [n], got {y.shape}; pass y.ravel() for a "
            "column, y.argmax(axis=1) for one-hot labels"
        )
    if x.size == 0:
        raise ValueError(f"x is empty, shape {x.shape}; pass at least one example and one feature")
    if len(x) != len(y):
        raise ValueError(
            f"x has {len(x)} examples but y has {len(y)} labels; pass one label per example"
        )


def _check_labels(y: NDArray[Any], classes: int) -> None:
    wrong = (y < 0) | (y >= classes)
    if wrong.any():
        first = int(np.argmax(wrong))
        raise ValueError(
            f"y has the label {y[first]} at index {first}, outside 0 to {classes - 1}; "
            "number the classes from 0" + (", or pass a larger classes" if y[first] > 0 else "")
        )


def _check_finite(x: NDArray[np.float32]) -> None:
    if math.isfinite(x.min()) and math.isfinite(x.max()):
        return
    row, column = np.argwhere(~np.isfinite(x))[0]
    raise ValueError(
        f"x is NaN, infinite or beyond float32 in row {row} (column {column}); remove such rows "
        "or replace the values, e.g. by np.nan_to_num"
    )


def _image_shape(shape: Any, features: int) -> tuple[int, int, int]:
    try:
        channels, height, width = (operator.index(side) for side in shape)
    except (TypeError, ValueError):
        raise TypeError(f"image_shape must be (channels, height, width), got {shape!r}") from None
    if min(channels, height, width) < 1 or channels * height * width != features:
        raise ValueError(
            f"image_shape {(channels, height, width)} does not hold the {features} features of x"
        )
    return channels, height, width
