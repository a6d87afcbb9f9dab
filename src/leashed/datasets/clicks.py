"""Rows of numbers and ids, and whether each was clicked, or what else it is to give: what models with
embedding tables read.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from leashed import _core, metrics
from leashed.base import checks
from leashed.base.target import REMEDY, Asked, TargetWord, check_target, classes_of
from leashed.datasets.columns import Columns, check_names, frame_names, heads_at, places
from leashed.datasets.dataset import (
    _check_finite,
    _numeric_array,
    _whole_labels,
    check_weights,
    check_y,
    number_of_classes,
)
from leashed.datasets.fields import Schema
from leashed.datasets.heads import heads_of, table_of
from leashed.datasets.moments import Moments

__all__ = ["Bags", "ClickDataset", "ClickSplit"]

_EXACT = 2**53  # whole numbers up to here are floats without loss


class Bags:
    """A feature of which a row has any number of ids, also none: row i has
    ``ids[offsets[i]:offsets[i + 1]]``.

    Args:
        ids: Whole numbers [entries]. Negative ones are taken by their bits: −1 is 2⁶⁴ − 1.
        offsets: Whole numbers [n + 1], from 0, never falling, to ``entries``.
        weights: How much each id counts where a model adds up its rows, [entries], finite.
            Default: 1 each.

    Attributes:
        ids: uint64 [entries], read-only; shared, not copied, where it is that already.
        offsets: int64 [n + 1], read-only.
        weights: float32 [entries], read-only, or None.

    Raises:
        TypeError: An argument is no array of numbers.
        ValueError: An id is not whole, an offset is wrong, or a weight is not finite.
    """

    def __init__(
        self, ids: ArrayLike, offsets: ArrayLike, weights: ArrayLike | None = None
    ) -> None:
        self.ids = _as_ids("ids", ids, 1)
        self.offsets = _as_offsets(offsets, len(self.ids))
        self.weights = None if weights is None else _as_weights(weights, len(self.ids))

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __repr__(self) -> str:
        weighed = "" if self.weights is None else ", weighed"
        return f"Bags(n={len(self)}, entries={len(self.ids)}{weighed})"

    def take(self, rows: slice | NDArray[np.intp]) -> Bags:
        """The bags of these rows: of a slice of step 1 without a copy of the ids."""
        if isinstance(rows, slice):
            begin, end, _ = rows.indices(len(self))
            offsets = self.offsets[begin : max(begin, end) + 1]
            entries: Any = slice(int(offsets[0]), int(offsets[-1]))
            offsets = offsets - offsets[0]
        else:
            lengths = np.diff(self.offsets)[rows]
            offsets = np.append(0, np.cumsum(lengths))
            entries = np.repeat(self.offsets[rows] - offsets[:-1], lengths)
            entries += np.arange(len(entries))
        return Bags(
            self.ids[entries], offsets, None if self.weights is None else self.weights[entries]
        )


@dataclass(frozen=True, eq=False, repr=False)
class ClickDataset:
    """Examples of numbers and ids, and which of them were clicked, or the class or number that each is to
    give. ``from_arrays`` builds one.

    An id is any 64-bit number. Which row of which table it stands for is the model's to say.

    Attributes:
        x: float32 [n, numbers], C-contiguous, read-only, finite; ``numbers`` may be 0.
        ids: One id a feature: uint64 [n, features], read-only. Otherwise a tuple that has for each
            feature uint64 [n], or ``Bags`` of n rows.
        y: int32 [n], read-only: 1 where it was clicked, else 0; or each in [0, classes). Of numbers
            float32 [n], finite. Of several ``heads``, as a click and a purchase, float32 [n, heads], each
            0 or 1, or NaN where it is not known.
        names: Of the features that are ids.
        name: What plots and reports call this set.
        weights: float32 [n] or None, as of a ``Dataset``.
        skipped: Bad lines of the file that were left out.
        hidden: float32 [n] or None: the probability that ``y`` is 1, where labels were drawn by a
            model that is known.
        number_names: Of the numbers, one for each, or None: they have none.
        named: Whether ``names`` are the data's own; else they are C1, C2, … for want of any.
        schema: What the columns of the file or table that it is of became; None: it is of arrays.
        classes: Number of classes, at least 2, of clicks 2; 0 of numbers, and of several heads.
        heads: The names of the labels where an example has several; else none.

    Raises:
        TypeError: An argument is not of the type above.
        ValueError: An argument has the wrong shape, is empty, or holds a value it must not hold.
    """

    x: NDArray[np.float32]
    ids: NDArray[np.uint64] | tuple[NDArray[np.uint64] | Bags, ...]
    y: NDArray[np.int32] | NDArray[np.float32]
    names: tuple[str, ...]
    name: str = "clicks"
    weights: NDArray[np.float32] | None = None
    skipped: int = 0
    hidden: NDArray[np.float32] | None = None
    number_names: tuple[str, ...] | None = None
    named: bool = True
    schema: Schema | None = None
    classes: int = 2
    heads: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        n = len(self.y) if np.ndim(self.y) else 0
        shape = (n, len(self.heads)) if self.heads else (n,)
        _check_array("y", self.y, np.float32 if self.classes == 0 else np.int32, shape)
        if not isinstance(self.name, str):
            raise TypeError(f"name must be a str, got {type(self.name).__name__}")
        if n == 0:
            raise ValueError("y is empty; pass at least one example")
        object.__setattr__(self, "classes", check_y(self.y, self.classes, self.heads))
        columns = self.x.shape[1] if getattr(self.x, "ndim", 0) == 2 else 0
        _check_array("x", self.x, np.float32, (n, columns))
        if columns:
            _check_finite(self.x)
        numbers = check_names("number_names", self.number_names, columns)
        object.__setattr__(self, "number_names", numbers)
        self._check_ids(n)
        for name in ("x", "y"):
            object.__setattr__(self, name, _read_only(getattr(self, name)))
        object.__setattr__(self, "weights", check_weights(self.weights, n))
        if self.hidden is not None:
            _check_array("hidden", self.hidden, np.float32, (n,))
            wrong = ~((self.hidden >= 0) & (self.hidden <= 1))
            if wrong.any():
                first = int(np.argmax(wrong))
                raise ValueError(
                    f"hidden[{first}] is {self.hidden[first]}; every probability must be from 0 to 1"
                )
            object.__setattr__(self, "hidden", _read_only(self.hidden))

    def _check_ids(self, n: int) -> None:
        tuples = isinstance(self.ids, tuple)
        features = len(self.ids) if tuples else getattr(self.ids, "shape", (0, 0))[-1]
        names = self.names
        if not isinstance(names, tuple) or not all(isinstance(name, str) for name in names):
            raise TypeError(f"names must be a tuple of str, got {names!r}")
        if len(names) != features or len(set(names)) != len(names) or not names:
            raise ValueError(
                f"names must be one for each of the {features} features of ids, at least 1, none "
                f"twice; got {len(names)}"
            )
        if not isinstance(self.ids, tuple):
            _check_array("ids", self.ids, np.uint64, (n, features))
            object.__setattr__(self, "ids", _read_only(self.ids))
            return
        for name, feature in zip(names, self.ids, strict=True):
            if not isinstance(feature, Bags):
                _check_array(f"ids[{name!r}]", feature, np.uint64, (n,))
            elif len(feature) != n:
                raise ValueError(
                    f"ids[{name!r}] has {len(feature)} rows but y has {n} labels; pass one bag for "
                    "each, which may be empty"
                )
        read_only = tuple(f if isinstance(f, Bags) else _read_only(f) for f in self.ids)
        object.__setattr__(self, "ids", read_only)

    @classmethod
    def from_arrays(
        cls,
        x: ArrayLike | None,
        ids: ArrayLike | Mapping[str, ArrayLike | Bags],
        y: ArrayLike,
        names: Sequence[str] | None = None,
        name: str = "clicks",
        weights: ArrayLike | None = None,
        number_names: Sequence[str] | None = None,
        *,
        target: Asked = "click",
    ) -> ClickDataset:
        """Build a data set from arrays of any boolean, integer or floating-point dtype.

        Arrays that have the dtype and layout of the attribute already are shared, not copied: do
        not change them afterwards.

        Args:
            x: Numbers [n, numbers]; None: there are none.
            ids: Whole numbers [n, features], or for each feature by its name whole numbers [n], or
                ``Bags``. Negative ones are taken by their bits.
            y: [n], what each example is to give, as ``target`` says. Or of several labels that do not
                exclude each other [n, heads], from 2 on: each 0 or 1, or NaN where it is not known, as a
                purchase that is told of clicks alone.
            names: Of the features, where ``ids`` is an array. Default: those of a data frame's
                columns, else ``C1``, ``C2``, …, which are not taken for the data's own.
            name: What plots and reports call this set.
            weights: How much each example counts, [n], not negative. Default: 1 each.
            number_names: Of the numbers. Default: those of a data frame's columns, else none.
            target: ``"click"``: ``y`` is 1 where the example was clicked, else 0. ``"number"``: finite
                numbers. So many classes, at least 2: whole numbers from 0 below; ``"classes"``: of so
                many as the largest label tells. Of several labels their names. Default: those of a data
                frame's columns, else ``y1``, ``y2``, ….

        Raises:
            TypeError: A dtype is not numeric, or an argument is of the wrong type.
            ValueError: Lengths differ, an id or a label is not whole, a click is neither 0 nor 1, a
                label is no class, or a number or a weight is not finite.
        """
        labels, classes, heads = _targets(
            _numeric_array("y", y), check_target(target), frame_names(y)
        )
        numbers = np.zeros((len(labels), 0)) if x is None else _numeric_array("x", x)
        with np.errstate(over="ignore"):
            x32 = np.ascontiguousarray(numbers, np.float32)
        columns: Any
        called: Any = frame_names(x) if number_names is None else number_names
        named = True
        if isinstance(ids, Mapping):
            if names is not None:
                raise ValueError("names are the keys of ids already; leave them out")
            names = tuple(ids)
            columns = tuple(
                f if isinstance(f, Bags) else _as_ids(f"ids[{key!r}]", f, 1)
                for key, f in ids.items()
            )
        else:
            columns = _as_ids("ids", ids, 2)
            names = frame_names(ids) if names is None else names
            if names is None:
                names, named = names_of(columns.shape[1]), False
        return cls(
            x32,
            columns,
            labels,
            tuple(names),
            name,
            check_weights(weights, len(labels)),
            number_names=called,
            named=named,
            classes=classes,
            heads=heads,
        )

    @property
    def numbers(self) -> int:
        """Numbers of an example."""
        return int(self.x.shape[1])

    @property
    def features(self) -> int:
        """Features that are ids."""
        return len(self.ids) if isinstance(self.ids, tuple) else int(self.ids.shape[1])

    @property
    def columns(self) -> Columns:
        """What models keep of the columns that they were trained on."""
        ids = self.ids if isinstance(self.ids, tuple) else ()
        bags = {f: column for f, column in enumerate(ids) if isinstance(column, Bags)}
        weighed = tuple(f for f, column in bags.items() if column.weights is not None)
        names = self.names if self.named else None
        return Columns(
            self.number_names, names, tuple(bags), weighed, schema=self.schema, heads=self.heads
        )

    def arranged(self, known: Columns, name: str = "data") -> ClickDataset:
        """Its columns in the order in which a model knows them by name, others left out; itself where
        they are so. ValueError where one is not there, or is a number where it was an id.
        """
        names, numbers = self.names if self.named else None, self.number_names
        of_numbers = places(known.numbers, numbers, name, names or ())
        of_ids = places(known.ids, names, name, numbers or ())
        made = self
        if of_numbers is not None:
            x = np.ascontiguousarray(self.x[:, of_numbers])
            made = dataclasses.replace(made, x=x, number_names=known.numbers)
        if of_ids is not None:
            whole = self.ids
            own = whole if isinstance(whole, tuple) else tuple(np.ascontiguousarray(whole.T))
            unread = np.zeros(len(self), np.uint64)
            ids = tuple(unread if f < 0 else own[f] for f in of_ids)
            called = tuple(
                f"(not read: {f})" if of is None else of for f, of in enumerate(known.ids or ())
            )
            made = dataclasses.replace(made, ids=ids, names=called)
        if (of_heads := heads_at(known.heads, self.heads, name)) is not None:
            y: Any = np.ascontiguousarray(self.y[:, of_heads])
            made = dataclasses.replace(made, y=y, heads=known.heads)
        return made

    def standardised(self, moments: Moments) -> ClickDataset:
        """The same with numbers standardised by what they came to."""
        return dataclasses.replace(self, x=moments.standardised(self.x))

    def rows_of(
        self,
        features: Sequence[int],
        most: Sequence[int | None] = (),
        drawn: Sequence[tuple[int, int, int, bool]] = (),
    ) -> _core.ClickRows:
        """The native rows, with these features that are ids, in this order; of each as many ids of
        a row as ``most`` says, by default all. ``drawn``: what is drawn for each batch, as (before
        which of them, how many ids, below which, whether log-uniformly).
        """
        columns = by_feature(self)
        parts: list[Any] = [
            (f.ids, f.offsets, f.weights) if isinstance(f, Bags) else (f, None, None)
            for f in (columns[feature] for feature in features)
        ]
        return _core.ClickRows(self.x, parts, list(most), list(drawn))

    def has_bags(self, feature: int) -> bool:
        """Whether a row may have any number of ids of that feature."""
        return isinstance(self.ids, tuple) and isinstance(self.ids[feature], Bags)

    def users_by(self, feature: str) -> NDArray[np.uint64]:
        """The ids [n] of a feature that tells whose each row is.

        Raises:
            TypeError: A row may have any number of its ids.
            ValueError: There is no feature of that name.
        """
        if feature not in self.names:
            raise ValueError(
                f"{self.name} has no feature {feature!r}; choose one of {', '.join(self.names)}"
            )
        f = self.names.index(feature)
        column = self.ids[f] if isinstance(self.ids, tuple) else self.ids[:, f]
        if isinstance(column, Bags):
            raise TypeError(
                f"feature {feature!r} of {self.name} has any number of ids a row; choose one that "
                "has one"
            )
        return np.ascontiguousarray(column)

    def ids_of(self, feature: int) -> NDArray[np.uint64]:
        """The ids of a feature by its number, of all rows one after the other."""
        column = self.ids[feature] if isinstance(self.ids, tuple) else self.ids[:, feature]
        return column.ids if isinstance(column, Bags) else column

    def largest(self, feature: int) -> int:
        """The largest id of a feature; −1 where it has none."""
        ids = self.ids_of(feature)
        return int(ids.max()) if len(ids) else -1

    def distinct(self, feature: int) -> int:
        """How many ids of a feature there are."""
        ids = self.ids_of(feature)
        if self.largest(feature) < len(ids):
            return int(np.count_nonzero(np.bincount(ids.astype(np.int64))))
        return len(np.unique(ids))

    @cached_property
    def hidden_auc(self) -> float:
        """The AUC that ``hidden`` reaches on these rows, as would a model that had learned everything.
        NaN where all labels are the same.

        Raises:
            ValueError: Nobody knows how the labels were drawn.
        """
        if self.hidden is None:
            raise ValueError(f"{self.name} has no hidden probabilities; synthetic_clicks has")
        return metrics.auc(self.hidden, self.y)

    def __len__(self) -> int:
        return len(self.y)

    def __getitem__(self, rows: slice) -> ClickDataset:
        """The rows of a slice of step 1, without a copy: ``data[:1000]``."""
        if not isinstance(rows, slice) or rows.step not in (None, 1):
            raise TypeError(f"rows must be a slice of step 1, got {rows!r}; take(rows) takes any")
        return self._of(rows)

    def take(self, rows: ArrayLike) -> ClickDataset:
        """A copy of these rows, by their numbers [m] from 0, in this order.

        Raises:
            TypeError: Rows are not whole numbers.
            ValueError: There is none, or one is outside 0 to n − 1.
        """
        chosen = np.asarray(rows)
        if chosen.ndim != 1 or chosen.dtype.kind not in "iu":
            raise TypeError(f"rows must be whole numbers [m], got {chosen.dtype} {chosen.shape}")
        wrong = (chosen < 0) | (chosen >= len(self))
        if wrong.any():
            first = chosen[np.argmax(wrong)]
            raise ValueError(f"rows has {first}, outside 0 to {len(self) - 1}")
        return self._of(chosen.astype(np.intp))

    def head(self, rows: int) -> ClickDataset:
        """The first so many rows."""
        return self[:rows]

    def split(self, test: int) -> ClickSplit:
        """The last ``test`` rows for testing, and those before them for training.

        Raises:
            TypeError, ValueError: ``test`` is no whole number from 1 to n − 1.
        """
        if len(self) < 2:
            raise ValueError("one row cannot be split; it takes two, one of them to test")
        test = checks.whole("test", test, 1, len(self) - 1)
        return ClickSplit(self[:-test], self[-test:])

    def _of(self, rows: Any) -> ClickDataset:
        """With the parts of these rows of everything that has a part for each."""
        if isinstance(self.ids, tuple):
            ids: Any = tuple(f.take(rows) if isinstance(f, Bags) else f[rows] for f in self.ids)
        else:
            ids = self.ids[rows]
        weights = None if self.weights is None else self.weights[rows]
        hidden = None if self.hidden is None else self.hidden[rows]
        return dataclasses.replace(
            self, x=self.x[rows], ids=ids, y=self.y[rows], weights=weights, hidden=hidden
        )

    def __repr__(self) -> str:
        heads = f", heads={list(self.heads)}" if self.heads else ""
        return (
            f"ClickDataset(name={self.name!r}, n={len(self)}, numbers={self.numbers}, "
            f"features={self.features}{heads})"
        )


class ClickSplit(NamedTuple):
    """A training set and the test set that belongs to it."""

    train: ClickDataset
    test: ClickDataset


def _targets(
    y: NDArray[Any], target: TargetWord, names: tuple[str, ...] | None
) -> tuple[NDArray[Any], int, tuple[str, ...]]:
    """What examples are to give, how many classes there are, 0 of numbers, and the names of several
    labels.
    """
    if y.ndim == 2 and y.shape[1] > 1 and (target == "click" or isinstance(target, tuple)):
        heads = heads_of(target if isinstance(target, tuple) else names, y.shape[1])
        return table_of(y, heads), 0, heads
    if named := len(target) if isinstance(target, tuple) else 0:
        raise ValueError(
            f"y must be of shape [n, {named}] where target is {target!r}, got {y.shape}"
        )
    if y.ndim != 1:
        raise ValueError(f"y must be one label per example, shape [n], got {y.shape}")
    if (classes := classes_of(target)) == 0:
        with np.errstate(over="ignore"):
            return np.array(y, np.float32), 0, ()
    if target == "click" and len(y):
        wrong = ~((y == 0) | (y == 1))
        if wrong.any():
            first = int(np.argmax(wrong))
            raise ValueError(f"y has {y[first]} at index {first}, and a click is 0 or 1; {REMEDY}")
    labels = _whole_labels(y)
    if not len(labels):
        raise ValueError("y is empty; pass at least one example")
    return labels.astype(np.int32), number_of_classes(labels, classes), ()


def by_feature(data: ClickDataset) -> tuple[NDArray[np.uint64] | Bags, ...]:
    """Its ids, a column for each feature."""
    return data.ids if isinstance(data.ids, tuple) else tuple(data.ids.T)


def names_of(features: int) -> tuple[str, ...]:
    """C1, C2, …, as Criteo calls them."""
    return tuple(f"C{f + 1}" for f in range(features))


def _read_only(array: NDArray[Any]) -> NDArray[Any]:
    view = array.view()
    view.flags.writeable = False
    return view


def _check_array(name: str, array: object, dtype: type[np.generic], shape: tuple[int, ...]) -> None:
    if not isinstance(array, np.ndarray) or array.dtype != dtype or not array.dtype.isnative:
        got = f"{array.dtype} array" if isinstance(array, np.ndarray) else type(array).__name__
        raise TypeError(
            f"{name} must be a {dtype.__name__} array, got {got}; "
            "ClickDataset.from_arrays(x, ids, y) converts it"
        )
    if array.shape != shape or not array.flags.c_contiguous:
        wanted = ", ".join(str(side) for side in shape)
        raise ValueError(
            f"{name} must be C-contiguous, with one entry for each of the {shape[0]} labels, shape "
            f"[{wanted}], got shape {array.shape} and strides {array.strides}; "
            "ClickDataset.from_arrays(x, ids, y) copies what is not contiguous"
        )


def _as_ids(name: str, values: ArrayLike, ndim: int) -> NDArray[np.uint64]:
    """Whole numbers as their 64 bits."""
    array = _numeric_array(name, values)
    if array.ndim != ndim:
        shape = "[n, features]" if ndim == 2 else "[n]"
        raise ValueError(f"{name} must have shape {shape}, got {array.shape}")
    if array.dtype.kind == "f":
        with np.errstate(invalid="ignore"):
            wrong = ~((np.floor(array) == array) & (np.abs(array) <= _EXACT))
        if wrong.any():
            first = tuple(int(i) for i in np.unravel_index(np.argmax(wrong), array.shape))
            raise ValueError(
                f"{name} must hold whole numbers, got {array[first]} at {list(first)}; a float is "
                "one up to 2⁵³: pass an array of integers, np.uint64 for large ones"
            )
    if array.dtype.kind != "u":
        array = np.ascontiguousarray(array, np.int64).view(np.uint64)
    return _read_only(np.ascontiguousarray(array, np.uint64))


def _as_offsets(values: ArrayLike, entries: int) -> NDArray[np.int64]:
    array = _numeric_array("offsets", values)
    if array.ndim != 1 or array.dtype.kind not in "iu":
        raise TypeError(f"offsets must be whole numbers [n + 1], got {array.dtype} {array.shape}")
    offsets = np.ascontiguousarray(array, np.int64)
    if len(offsets) == 0 or offsets[0] != 0:
        raise ValueError("offsets must begin with 0, and have one entry more than there are rows")
    falls = np.diff(offsets) < 0
    if falls.any():
        row = int(np.argmax(falls))
        raise ValueError(
            f"offsets fall from {offsets[row]} to {offsets[row + 1]} in row {row}; a row's ids end "
            "where the next one's begin"
        )
    if offsets[-1] != entries:
        raise ValueError(
            f"offsets end with {offsets[-1]}, but there are {entries} ids; the last entry is their "
            "number"
        )
    return _read_only(offsets)


def _as_weights(values: ArrayLike, entries: int) -> NDArray[np.float32]:
    array = _numeric_array("weights", values)
    if array.shape != (entries,):
        raise ValueError(f"weights must have one value for each id, {entries}, got {array.shape}")
    with np.errstate(over="ignore"):
        weights = np.ascontiguousarray(array, np.float32)
    if not np.isfinite(weights).all():
        first = int(np.argmin(np.isfinite(weights)))
        raise ValueError(f"weights[{first}] is {array[first]}; every weight must be finite")
    return _read_only(weights)
