"""Rows of batches that Python gives: what streams of one's own are made of (docs/extending.md)."""

from __future__ import annotations

import numpy as np
import pytest

from leashed import _core


def opened(made, *, numbers=2, features=1, classes=2, again=True, passes=1, window=0):
    native = _core.open_rows(numbers, features, classes, "given", made, again, 4, passes, window, 0)
    native.start()
    return native


def batches(*sizes, first=0):
    for size in sizes:
        i = np.arange(first, first + size)
        first += size
        x = np.stack([i, -i], axis=1).astype(np.float32)
        yield x, i.astype(np.uint64), (i % 2).astype(np.int32)


def test_rows_come_in_order_whatever_batches_they_came_in():
    native = opened(lambda: batches(3, 1, 4))
    x, ids, bags, y, weights = native.take(100)
    np.testing.assert_array_equal(x[:, 0], np.arange(8))
    np.testing.assert_array_equal(x[:, 1], -np.arange(8))
    np.testing.assert_array_equal(ids, np.arange(8, dtype=np.uint64)[:, None])
    np.testing.assert_array_equal(y, np.arange(8) % 2)
    assert (bags, weights) == ([], None)
    assert native.counts()["rows"] == 8


def test_it_is_asked_again_for_each_pass():
    asked = []

    def made():
        asked.append(1)
        return batches(3)

    x = opened(made, passes=2).take(100)[0]
    np.testing.assert_array_equal(x[:, 0], [0, 1, 2, 0, 1, 2])
    assert len(asked) == 2


def test_numbers_in_place_of_labels():
    def made():
        yield np.ones((2, 2), np.float32), np.empty((2, 0), np.uint64), np.array([0.5, -1], "f")

    *_, y, _ = opened(made, features=0, classes=0).take(2)
    np.testing.assert_array_equal(y, np.array([0.5, -1], np.float32))


@pytest.mark.parametrize(
    ("batch", "message"),
    [
        (
            (np.ones((2, 3), "f"), np.ones(2, "u8"), np.ones(2, "i4")),
            "given: a batch must be x",
        ),
        ((np.ones((2, 2), "f"), np.ones(3, "u8"), np.ones(2, "i4")), r"ids \[n, 1\]"),
        (
            (np.ones((2, 2), "f"), np.ones(2, "u8"), np.full(2, 2, "i4")),
            "labels must be from 0 to 1",
        ),
    ],
)
def test_a_batch_that_does_not_fit_is_told(batch, message):
    native = opened(lambda: iter([batch]))
    with pytest.raises(ValueError, match=message):
        native.take(1)


@pytest.mark.parametrize(
    ("batch", "message"),
    [
        (None, r"given: a batch must be a tuple \(x, ids, y\) of arrays, got NoneType"),
        ((np.ones((2, 2), "f"), np.ones(2, "u8")), r"a tuple \(x, ids, y\)"),
        (
            (np.ones((2, 2)), np.ones(2, "u8"), np.ones(2, "i4")),
            r"given: a batch's x must be an array of dtype float32, got float64; np\.asarray",
        ),
        (
            (np.ones((2, 2), "f"), np.ones(2, "i8"), np.ones(2, "i4")),
            "ids must be .* uint64, got int64",
        ),
        ((np.ones((2, 2), "f"), np.ones(2, "u8"), None), "y must be .* int32, got NoneType"),
    ],
)
def test_what_is_no_batch_is_told(batch, message):
    native = opened(lambda: iter([batch]))
    with pytest.raises(TypeError, match=message):
        native.take(1)


def test_what_the_iterator_raises_comes_out():
    def made():
        yield from batches(2)
        raise RuntimeError("no more disk")

    native = opened(made)
    with pytest.raises(RuntimeError, match="no more disk"):
        native.take(10)
