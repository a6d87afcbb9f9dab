"""Clicks of users with histories, from a seed."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from leashed import metrics
from leashed.datasets import Bags, ClickDataset, synthetic_histories

SMALL = {"users": 300, "items": 600, "categories": 20, "longest": 8}


def bags(data: ClickDataset, feature: str) -> Bags:
    found = data.ids[data.names.index(feature)]
    assert isinstance(found, Bags)
    return found


def test_a_row_is_the_same_whatever_is_asked_for_beside_it():
    large = synthetic_histories(3000, 5, test=500, threads=4, **SMALL)
    small = synthetic_histories(100, 5, test=50, threads=1, **SMALL)
    for one, other in ((small.train, large.train.head(100)), (small.test, large.test.head(50))):
        assert one.names == ("user", "item", "category", "items", "categories")
        np.testing.assert_array_equal(one.y, other.y)
        np.testing.assert_array_equal(one.x, other.x)
        np.testing.assert_array_equal(one.hidden, other.hidden)
        for a, b in zip(one.ids, other.ids, strict=True):
            if isinstance(a, Bags):
                np.testing.assert_array_equal(a.ids, b.ids)
                np.testing.assert_array_equal(a.offsets, b.offsets)
            else:
                np.testing.assert_array_equal(a, b)
    other = synthetic_histories(100, 6, test=50, **SMALL)
    assert not np.array_equal(small.train.ids[1], other.train.ids[1])
    assert not np.array_equal(small.train.ids[1][:50], small.test.ids[1])


def test_days_are_others_and_items_drift():
    still, moving = (
        synthetic_histories(3000, 5, test=500, days=3, drift=drift, **SMALL) for drift in (0.0, 0.3)
    )
    alone = synthetic_histories(3000, 5, test=50, **SMALL).train
    days = [moving.train[day * 3000 : (day + 1) * 3000] for day in range(3)]
    for one, other in zip(alone.ids, days[0].ids, strict=True):
        np.testing.assert_array_equal(
            np.asarray(one) if not isinstance(one, Bags) else one.ids,
            other.ids if isinstance(other, Bags) else other,
        )
    np.testing.assert_array_equal(alone.hidden, days[0].hidden)
    np.testing.assert_array_equal(still.train.ids[1], moving.train.ids[1])
    assert not np.array_equal(days[1].ids[1], days[2].ids[1])
    assert (still.train.hidden[:3000] == moving.train.hidden[:3000]).all()
    same = still.train.hidden[6000:] == moving.train.hidden[6000:]
    assert 0.0 <= same.mean() < 0.2  # the share of clicks stays, so all have moved a little
    assert all(abs(day.y.mean() - 0.25) < 0.04 for day in days)
    assert abs(moving.test.y.mean() - 0.25) < 0.08
    short = synthetic_histories(100, 5, test=50, days=3, drift=0.3, threads=1, **SMALL)
    np.testing.assert_array_equal(short.train.hidden[200:], days[2].hidden[:100])
    np.testing.assert_array_equal(short.test.hidden, moving.test.hidden[:50])


def test_rows_are_what_is_said_of_them():
    data = synthetic_histories(20_000, 1, test=100).train
    items, categories = bags(data, "items"), bags(data, "categories")
    lengths = np.diff(items.offsets)
    assert set(lengths) == set(range(21))
    np.testing.assert_array_equal(items.offsets, categories.offsets)
    np.testing.assert_array_equal(items.ids % np.uint64(100), categories.ids)
    np.testing.assert_array_equal(data.ids[1] % np.uint64(100), data.ids[2])
    np.testing.assert_allclose(data.x[:, 0], np.log1p(lengths), rtol=1e-6)
    assert items.ids.max() < 10_000
    assert data.ids[0].max() < 10_000
    assert abs(data.y.mean() - 0.25) < 0.02
    assert 0.74 < data.hidden_auc < 0.86
    assert abs(metrics.calibration(data.hidden, data.y) - 1) < 0.1


def test_what_a_user_clicked_before_says_what_the_user_clicks():
    """Rows whose history has the category that is shown are clicked more often."""
    data = synthetic_histories(20_000, 2, test=100).train
    categories = bags(data, "categories")
    rows = np.repeat(np.arange(len(data)), np.diff(categories.offsets))
    alike = np.bincount(rows, categories.ids == data.ids[2][rows], len(data))
    assert data.y[alike >= 3].mean() > data.y[alike == 0].mean() + 0.1
    # and what is recent counts for more than what is old, in histories of all 20
    full = np.diff(categories.offsets) == 20
    own = categories.ids[np.repeat(full, np.diff(categories.offsets))].reshape(-1, 20)
    same = own == data.ids[2][full][:, None]
    hidden = data.hidden[full]
    early = same[:, :5].any(1) & ~same[:, 5:].any(1)
    late = same[:, 15:].any(1) & ~same[:, :15].any(1)
    assert hidden[late].mean() > hidden[early].mean()


def test_extremes():
    data = synthetic_histories(
        50, 3, test=1, users=1, items=1, categories=1, longest=1, exponent=3.0
    ).train
    assert not data.ids[0].any()
    assert not data.ids[1].any()
    assert len(bags(data, "items").ids) < 50


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"rows": 0}, ValueError, "rows must be at least 1"),
        ({"seed": -1}, ValueError, "seed must be at least 0"),
        ({"items": 101}, ValueError, "items must be a multiple of categories"),
        ({"items": 2**49}, ValueError, "items must be at most"),
        ({"users": 0}, ValueError, "users must be at least 1"),
        ({"categories": 0}, ValueError, "categories must be at least 1"),
        ({"longest": 0}, ValueError, "longest must be at least 1"),
        ({"days": 0}, ValueError, "days must be at least 1"),
        ({"drift": 1.5}, ValueError, "drift must be at most 1"),
        ({"exponent": 0}, ValueError, "exponent must be greater than 0"),
        ({"threads": "two"}, TypeError, "threads must be a whole number"),
    ],
)
def test_wrong_arguments(arguments: dict[str, Any], error: type[Exception], message: str):
    with pytest.raises(error, match=message):
        synthetic_histories(**arguments)
