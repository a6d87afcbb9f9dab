import dataclasses
import re
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from leashed.datasets import Dataset, Split

NUMERIC = ["?", "i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8", "f2", "f4", "f8", "g", ">i4", ">f8"]

X = np.arange(12.0).reshape(4, 3)
Y = [0, 1, 2, 1]


@pytest.mark.parametrize("dtype", NUMERIC)
def test_any_numeric_dtype_becomes_float32_and_int32(dtype: str) -> None:
    data = Dataset.from_arrays(np.ones((4, 3), dtype), np.array([0, 1, 1, 0], dtype))
    assert data.x.dtype == np.float32
    assert data.y.dtype == np.int32
    assert data.x.flags.c_contiguous
    assert (data.x == 1).all()
    assert data.y.tolist() == [0, 1, 1, 0]
    assert (len(data), data.features, data.classes, data.image_shape) == (4, 3, 2, None)


@given(
    hnp.arrays(
        st.sampled_from([np.int64, np.float64, np.float32]),
        hnp.array_shapes(min_dims=2, max_dims=4, max_side=4),
        elements=st.integers(-9, 9),
    )
)
def test_images_are_flattened_in_row_major_order(x: np.ndarray) -> None:
    data = Dataset.from_arrays(x, np.zeros(len(x)), classes=2)
    np.testing.assert_array_equal(data.x, x.reshape(len(x), -1))
    expected = {2: None, 3: (1, *x.shape[1:]), 4: x.shape[1:]}[x.ndim]
    assert data.image_shape == expected


def test_lists_and_strided_arrays_are_taken() -> None:
    data = Dataset.from_arrays(X.tolist(), Y)
    np.testing.assert_array_equal(data.x, X)
    big = np.arange(48.0, dtype=np.float32).reshape(8, 6)
    strided = Dataset.from_arrays(big[::2, ::2], Y)
    np.testing.assert_array_equal(strided.x, big[::2, ::2])
    assert strided.x.flags.c_contiguous
    fortran = Dataset.from_arrays(np.asfortranarray(X), Y)
    np.testing.assert_array_equal(fortran.x, X)


def test_values_are_not_rescaled() -> None:
    assert Dataset.from_arrays(np.full((2, 1), 255, np.uint8), [0, 1]).x.max() == 255


def test_float32_is_shared_read_only_and_labels_are_copied() -> None:
    x = X.astype(np.float32)
    y = np.array(Y, np.int32)
    data = Dataset.from_arrays(x, y)
    assert np.shares_memory(data.x, x)
    assert not np.shares_memory(data.y, y)
    assert x.flags.writeable
    with pytest.raises(ValueError, match="read-only"):
        data.x[0, 0] = 1
    with pytest.raises(ValueError, match="read-only"):
        data.y[0] = 1
    y[0] = 1000
    assert data.y.max() == 2


def test_a_data_set_is_frozen_and_prints_short() -> None:
    data = Dataset.from_arrays(np.zeros((2, 4, 5)), [0, 1], classes=3, name="mine")
    assert repr(data) == (
        "Dataset(name='mine', n=2, features=20, classes=3, image_shape=(1, 4, 5))"
    )
    with pytest.raises(dataclasses.FrozenInstanceError):
        data.classes = 4  # type: ignore[misc]
    train, test = Split(data, data)
    assert train is test


def test_image_shape_of_flat_rows() -> None:
    assert Dataset.from_arrays(X, Y, image_shape=(3, 1, 1)).image_shape == (3, 1, 1)
    for shape in [(1, 2, 2), (0, 3, 1), (-1, -3, 1)]:
        with pytest.raises(ValueError, match="image_shape"):
            Dataset.from_arrays(X, Y, image_shape=shape)
    with pytest.raises(TypeError, match="image_shape"):
        Dataset.from_arrays(X, Y, image_shape=(1, 3))  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="image_shape"):
        Dataset.from_arrays(np.zeros((4, 2, 2)), Y, image_shape=(2, 2, 1))
    assert Dataset.from_arrays(np.zeros((4, 2, 2)), Y, image_shape=(1, 2, 2)).features == 4


@pytest.mark.filterwarnings("ignore:Creating an ndarray from ragged")
@pytest.mark.parametrize(
    "bad",
    [
        np.array([["a", "b"]]),
        np.array([[1j, 2]]),
        np.array([[object(), 1]]),
        np.array([[None, 1.0]]),
        np.zeros((1, 2), "M8[s]"),
        np.zeros((1, 2), "m8[s]"),
        [[1, 2], [3]],
        "digits",
        None,
    ],
)
def test_other_dtypes_are_refused_by_name(bad: Any) -> None:
    with pytest.raises(TypeError, match=r"^x "):
        Dataset.from_arrays(bad, [0])
    with pytest.raises(TypeError, match=r"^y "):
        Dataset.from_arrays([[1.0]], bad)


@pytest.mark.parametrize(
    ("x", "y", "message"),
    [
        (np.zeros(4), Y, "x must be"),
        (np.zeros(()), Y, "x must be"),
        (np.zeros((4, 1, 1, 1, 1)), Y, "x must be"),
        (np.zeros((0, 3)), [], "x is empty"),
        (np.zeros((4, 0)), Y, "x is empty"),
        (X, Y[:3], "x has 4 examples but y has 3 labels"),
        (X, np.eye(4), "y must be one label per example"),
        (X, 3, "y must be one label per example"),
        (X, [0, 1, -1, 0], "y has the label -1 at index 2"),
        (X, [0, 1, 0, 7], "y has the label 7 at index 3, outside 0 to 2"),
        (X, [0, 1, 0.5, 0], "y must hold whole numbers, got 0.5 at index 2"),
        (X, [0, np.nan, 0, 0], "y must hold whole numbers, got nan at index 1"),
        (X, [0, 1, 0, np.inf], "y must hold whole numbers, got inf at index 3"),
        (X, [0, 1, 0, 1e300], "y has a label beyond"),
        (X, np.array([0, 1, 0, 2**63], np.uint64), "y has the label 9223372036854775808"),
        (X, np.array([0, 1, 0, 2**32], np.int64), "y has the label 4294967296"),
    ],
)
def test_bad_arrays_are_refused_by_name(x: Any, y: Any, message: str) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(message)}"):
        Dataset.from_arrays(x, y, classes=3)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 1e300])
def test_not_finite_values_are_refused_with_their_row(value: float) -> None:
    x = np.zeros((5, 3))
    x[3, 1] = value
    with pytest.raises(ValueError, match=r"^x is NaN, infinite or beyond float32 in row 3 "):
        Dataset.from_arrays(x, [0, 1, 0, 1, 0])


def test_classes_are_counted_or_checked() -> None:
    assert Dataset.from_arrays(X, Y).classes == 3
    assert Dataset.from_arrays(X, Y, classes=np.int8(7)).classes == 7  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"pass classes=2"):
        Dataset.from_arrays(X, [0, 0, 0, 0])
    for labels in ([0, 3, 0, -2], [-2, -2, -2, -2]):
        with pytest.raises(ValueError, match=r"^y has the label -2"):
            Dataset.from_arrays(X, labels)
    for few in (1, 0, -3, 2**31):
        with pytest.raises(ValueError, match=r"^classes must be at"):
            Dataset.from_arrays(X, [0, 0, 0, 0], classes=few)
    for kind in (2.0, "3", True):
        with pytest.raises(TypeError, match=r"^classes must be a whole number"):
            Dataset.from_arrays(X, Y, classes=kind)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"^y has the label 2147483647"):
        Dataset.from_arrays(X, [0, 1, 2, 2**31 - 1])


def test_the_constructor_refuses_what_the_engine_cannot_read() -> None:
    x, y = X.astype(np.float32), np.array(Y, np.int32)
    Dataset(x, y, 3)
    for wrong in (X, x.tolist(), x.astype(">f4")):
        with pytest.raises(TypeError, match=r"^x must be a float32 array"):
            Dataset(wrong, y, 3)
    with pytest.raises(TypeError, match=r"^y must be a int32 array"):
        Dataset(x, y.astype(np.int64), 3)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"^x must be C-contiguous"):
        Dataset(x.T, y, 3)
    with pytest.raises(ValueError, match=r"^y has the label 2 at index 2"):
        Dataset(x, y, 2)
    with pytest.raises(ValueError, match=r"^x is NaN"):
        Dataset(x * np.float32(np.nan), y, 3)
    with pytest.raises(TypeError, match=r"^name must be a str"):
        Dataset(x, y, 3, name=None)  # type: ignore[arg-type]
