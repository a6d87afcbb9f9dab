"""Rows of numbers and ids: what is let in, what is refused and how, and what their parts are."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import leashed as lsh
from leashed import _core
from leashed.datasets import Bags, ClickDataset

X = np.arange(8, dtype=np.float32).reshape(4, 2)
IDS = np.arange(12, dtype=np.uint64).reshape(4, 3)
Y = np.array([0, 1, 0, 1])


def bags(**changes: Any) -> Bags:
    """[[7, 8], [], [9], [7]]."""
    parts: dict[str, Any] = {"ids": [7, 8, 9, 7], "offsets": [0, 2, 2, 3, 4]}
    return Bags(**parts | changes)


def made(**changes: Any) -> ClickDataset:
    return ClickDataset.from_arrays(**{"x": X, "ids": IDS, "y": Y} | changes)


def test_arrays_become_what_the_core_reads() -> None:
    data = made(x=X.astype(np.float64).tolist(), ids=IDS.tolist(), y=[False, True, False, True])
    assert (len(data), data.numbers, data.features, data.classes) == (4, 2, 3, 2)
    assert (data.x.dtype, data.ids.dtype, data.y.dtype) == (np.float32, np.uint64, np.int32)
    assert data.names == ("C1", "C2", "C3")
    assert not any(array.flags.writeable for array in (data.x, data.ids, data.y))
    assert repr(data) == "ClickDataset(name='clicks', n=4, numbers=2, features=3)"
    rows = data.rows_of(range(data.features))
    assert isinstance(rows, _core.ClickRows)
    assert (rows.rows, rows.numbers, rows.features) == (4, 2, 3)
    assert lsh.ClickDataset is ClickDataset


def test_what_fits_already_is_shared_and_left_writable() -> None:
    data = made()
    assert np.shares_memory(data.x, X)
    assert np.shares_memory(data.ids, IDS)
    assert X.flags.writeable
    assert IDS.flags.writeable


def test_features_by_name_have_one_id_or_a_bag() -> None:
    data = made(
        x=None,
        ids={"user": np.array([3, 2**63, 1, 0], np.uint64), "liked": bags(weights=[1, 2, 0.5, -1])},
    )
    assert (data.numbers, data.features, data.names) == (0, 2, ("user", "liked"))
    user, liked = data.ids
    assert user.dtype == np.uint64
    assert liked.ids.tolist() == [7, 8, 9, 7]
    assert (liked.offsets.dtype, liked.weights.dtype) == (np.int64, np.float32)
    assert repr(liked) == "Bags(n=4, entries=4, weighed)"
    assert data.rows_of(range(2)).features == 2


def test_negative_ids_are_taken_by_their_bits() -> None:
    for dtype in (np.int64, np.int32):
        ids = np.array([[-1], [-2], [0], [5]], dtype)
        assert made(ids=ids).ids.ravel().tolist() == [2**64 - 1, 2**64 - 2, 0, 5]
    assert bags(ids=[-1, 0, 1, 2]).ids[0] == 2**64 - 1
    assert made(ids=np.full((4, 1), 2.0**53)).ids[0, 0] == 2**53


def test_slices_share_and_rows_are_taken_in_any_order() -> None:
    weighed = bags(weights=[1, 2, 3, 4])
    ids = {"user": IDS[:, 0], "liked": bags(), "read": weighed}
    data = made(ids=ids, weights=[1, 2, 3, 4])
    part = data[1:3]
    assert np.shares_memory(part.x, data.x)
    assert np.shares_memory(part.ids[1].ids, data.ids[1].ids)
    assert (part.ids[1].ids.tolist(), part.ids[1].offsets.tolist()) == ([9], [0, 0, 1])
    assert (part.y.tolist(), part.weights.tolist()) == ([1, 0], [2, 3])
    taken = data.take([3, 0, 0])
    assert taken.ids[0].tolist() == [9, 0, 0]
    assert taken.ids[2].ids.tolist() == [7, 7, 8, 7, 8]
    assert taken.ids[2].offsets.tolist() == [0, 1, 3, 5]
    assert taken.ids[2].weights.tolist() == [4, 1, 2, 1, 2]
    assert data.head(2).y.tolist() == [0, 1]
    assert data.take(np.arange(4)).ids[2].ids.tolist() == [7, 8, 9, 7]
    assert taken.rows_of(range(taken.features)).rows == 3
    split = data.split(test=1)
    assert (len(split.train), len(split.test), split.test.x[0, 0]) == (3, 1, 6)
    for wrong, error in (
        ([4], ValueError),
        ([-1], ValueError),
        ([0.5], TypeError),
        ([[0]], TypeError),
    ):
        with pytest.raises(error, match="rows"):
            data.take(wrong)
    for slice_ in (slice(None, None, 2), 1):
        with pytest.raises(TypeError, match=r"take\(rows\)"):
            data[slice_]  # type: ignore[index]
    with pytest.raises(ValueError, match="y is empty"):
        data[4:]
    for test in (0, 4):
        with pytest.raises(ValueError, match="test must be"):
            data.split(test)


def joined(rows: list[list[int]]) -> list[int]:
    return [value for row in rows for value in row]


@given(st.lists(st.lists(st.integers(0, 2**64 - 1), max_size=5), min_size=1, max_size=8), st.data())
def test_any_rows_of_bags_are_those_of_lists(rows: list[list[int]], draw: Any) -> None:
    offsets = np.append(0, np.cumsum([len(row) for row in rows]))
    given_bags = Bags(np.array(joined(rows), np.uint64), offsets)
    chosen = draw.draw(st.lists(st.integers(0, len(rows) - 1), max_size=10))
    begin, end = sorted(draw.draw(st.lists(st.integers(0, len(rows)), min_size=2, max_size=2)))
    for part, expected in (
        (given_bags.take(np.array(chosen, np.intp)), [rows[i] for i in chosen]),
        (given_bags.take(slice(begin, end)), rows[begin:end]),
    ):
        assert part.offsets.tolist() == np.append(0, np.cumsum([len(r) for r in expected])).tolist()
        assert part.ids.tolist() == joined(expected)


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"ids": IDS + 0.5}, ValueError, r"ids must hold whole numbers, got 0\.5 at \[0, 0\]"),
        ({"ids": IDS * np.nan}, ValueError, "ids must hold whole numbers, got nan"),
        ({"ids": IDS + 2.0**60}, ValueError, "ids must hold whole numbers.*2⁵³"),
        ({"ids": np.array([["a"]])}, TypeError, "ids has dtype"),
        ({"ids": IDS[:2]}, ValueError, r"ids must be .* each of the 4 labels.*\[4, 3\]"),
        ({"ids": IDS[:, 0]}, ValueError, r"ids must have shape \[n, features\]"),
        ({"ids": IDS[:, :0]}, ValueError, "names must be one for each of the 0 features"),
        ({"ids": {}}, ValueError, "names must be one for each of the 0 features"),
        ({"ids": {"user": [1, 2]}}, ValueError, r"ids\['user'\] must be"),
        ({"ids": {"user": [1, 2, 3, 0.5]}}, ValueError, r"ids\['user'\] must hold whole.* \[3\]"),
        ({"ids": {"liked": Bags([], [0])}}, ValueError, r"ids\['liked'\] has 0 rows but y has 4"),
        ({"names": ["a", "b"]}, ValueError, "names must be one for each of the 3"),
        ({"names": ["a", "b", "a"]}, ValueError, "none twice"),
        ({"names": ["a", "b", 3]}, TypeError, "names must be a tuple of str"),
        ({"ids": {"a": Y}, "names": ["a"]}, ValueError, "names are the keys"),
        ({"x": X[:2]}, ValueError, "x must be .* each of the 4 labels"),
        ({"x": X[:, 0]}, ValueError, "x must be C-contiguous"),
        ({"x": X * np.nan}, ValueError, r"x is NaN.* row 0"),
        ({"x": X.astype(np.float64) + 1e300}, ValueError, "beyond float32 in row 0"),
        ({"y": [0, 1, 2, 1]}, ValueError, "y has 2 at index 2, and a click is 0 or 1"),
        ({"y": [0, 1, -1, 1]}, ValueError, "y has -1 at index 2, and a click is 0 or 1"),
        ({"y": [0, 1, 0.5, 1]}, ValueError, "y has 0.5 at index 2, and a click is 0 or 1"),
        ({"y": Y[:, None]}, ValueError, r"y must be one label per example, shape \[n\]"),
        ({"y": [], "x": X[:0], "ids": IDS[:0]}, ValueError, "y is empty"),
        ({"weights": [1, 1, 1, np.nan]}, ValueError, r"weights\[3\] is nan"),
        ({"weights": [1, 1, 1]}, ValueError, "weights must have one value per example"),
    ],
)
def test_what_fits_not_is_refused(changes: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        made(**changes)


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"offsets": [0, 2, 2, 3]}, ValueError, "offsets end with 3, but there are 4 ids"),
        ({"offsets": [0, 2, 2, 3, 5]}, ValueError, "offsets end with 5, but there are 4 ids"),
        ({"offsets": [1, 2, 4]}, ValueError, "offsets must begin with 0"),
        ({"offsets": []}, (TypeError, ValueError), "offsets must"),
        ({"offsets": [0, 3, 2, 4]}, ValueError, "offsets fall from 3 to 2 in row 1"),
        ({"offsets": [0.0, 4.0]}, TypeError, "offsets must be whole numbers"),
        ({"offsets": [[0, 4]]}, TypeError, "offsets must be whole numbers"),
        ({"ids": [7, 8, 9, 0.5]}, ValueError, r"ids must hold whole numbers, got 0\.5 at \[3\]"),
        ({"ids": [[7, 8, 9, 7]]}, ValueError, r"ids must have shape \[n\]"),
        ({"weights": [1, 2, 3, np.nan]}, ValueError, r"weights\[3\] is nan"),
        ({"weights": [1, 2, 3, 1e300]}, ValueError, r"weights\[3\] is 1e\+300"),
        ({"weights": [1, 2, 3]}, ValueError, "weights must have one value for each id, 4"),
        ({"weights": ["a"] * 4}, TypeError, "weights has dtype"),
    ],
)
def test_wrong_bags_are_refused(
    changes: Any, error: type[Exception] | tuple[type[Exception], ...], message: str
) -> None:
    with pytest.raises(error, match=message):
        bags(**changes)


def test_the_constructor_takes_no_other_types() -> None:
    with pytest.raises(TypeError, match="ids must be a uint64 array, got int64 array"):
        ClickDataset(X, IDS.astype(np.int64), Y.astype(np.int32), ("a", "b", "c"))
    with pytest.raises(TypeError, match="y must be a int32 array"):
        ClickDataset(X, IDS, Y.astype(np.int64), ("a", "b", "c"))
    with pytest.raises(TypeError, match="y must be a int32 array, got NoneType"):
        ClickDataset(X, IDS, None, ("a", "b", "c"))  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="name must be a str"):
        made(name=3)
    with pytest.raises(ValueError, match="C-contiguous"):
        ClickDataset(X, np.asfortranarray(IDS), Y.astype(np.int32), ("a", "b", "c"))


def test_the_core_looks_at_what_it_relies_on() -> None:
    ids, offsets = np.arange(4, dtype=np.uint64), np.array([0, 1, 4])
    for column, message in (
        ((ids, None, None), "ids must be one-dimensional, of length 2"),
        ((ids[:1][::-1], offsets, None), "offsets must go from 0"),
        ((ids, offsets[:2], None), "offsets must be"),
        ((ids, offsets + 1, None), "offsets must go from 0"),
        ((ids, offsets, np.ones(3, np.float32)), "weights must be"),
        ((ids[::2], np.array([0, 1, 2]), None), "ids must be one-dimensional and C-contiguous"),
    ):
        with pytest.raises(ValueError, match=message):
            _core.ClickRows(X[:2], [column])
    with pytest.raises(ValueError, match="x must have shape"):
        _core.ClickRows(X[0], [])


def test_hidden_probabilities_are_from_0_to_1() -> None:
    data = ClickDataset.from_arrays(None, np.zeros((3, 1), np.int64), [0, 1, 0])
    good = np.array([0, 1, 0.5], np.float32)
    assert dataclasses.replace(data, hidden=good).hidden_auc == 1
    for wrong in (-0.1, 1.5, np.nan):
        hidden = np.array([0.5, wrong, 0.5], np.float32)
        with pytest.raises(ValueError, match=r"hidden\[1\] is .*from 0 to 1"):
            dataclasses.replace(data, hidden=hidden)
