"""Fewer rows that were not clicked, and what a model then predicts."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from leashed import metrics
from leashed.datasets import ClickDataset, downsample, synthetic_clicks


def test_clicks_stay_and_so_many_of_the_others():
    data = synthetic_clicks(40_000, 2).train
    kept = downsample(data, 0.1, seed=5)
    assert kept.y.sum() == data.y.sum()
    assert abs((kept.y == 0).sum() / (data.y == 0).sum() - 0.1) < 0.01
    first = downsample(data[:1000], 0.1, seed=5)
    np.testing.assert_array_equal(first.ids, kept.ids[: len(first)])
    assert len(downsample(data, 1.0)) == len(data)
    assert not np.array_equal(downsample(data, 0.1, seed=6).ids[:100], kept.ids[:100])


def test_probabilities_go_back_and_forth():
    """Those of the rows kept are calibrated on them, and undone on all rows."""
    data = synthetic_clicks(100_000, 2).train
    kept = downsample(data, 0.1)
    assert abs(metrics.calibration(kept.hidden, kept.y) - 1) < 0.02
    back = metrics.undo_downsampling(kept.hidden, 0.1)
    np.testing.assert_allclose(back[kept.y == 1], data.hidden[data.y == 1], rtol=1e-4, atol=1e-7)
    p = np.array([0.0, 0.3, 1.0])
    np.testing.assert_allclose(metrics.undo_downsampling(p, 1.0), p)
    np.testing.assert_allclose(metrics.undo_downsampling(p, 0.5), [0, 0.3 / (0.3 + 0.7 / 0.5), 1])


def test_rows_without_known_probabilities():
    data = ClickDataset.from_arrays(None, np.zeros((4, 1), int), [0, 1, 0, 0])
    kept = downsample(data, 1e-12)
    assert kept.y.tolist() == [1]
    assert kept.hidden is None
    with pytest.raises(ValueError, match="none of the 2 rows is left"):
        downsample(data[2:], 1e-12)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ((None, 0.5), TypeError, "data must be a ClickDataset"),
        ((0.0,), ValueError, "negatives must be greater than 0"),
        ((1.5,), ValueError, "negatives must be at most 1"),
        ((0.5, -1), ValueError, "seed must be at least 0"),
    ],
)
def test_wrong_arguments(arguments: Any, error: type[Exception], message: str):
    data = synthetic_clicks(10, test=1).train
    given = arguments if arguments[0] is None else (data, *arguments)
    with pytest.raises(error, match=message):
        downsample(*given)
    with pytest.raises(ValueError, match="negatives must be at most 1"):
        metrics.undo_downsampling([0.5], 2.0)
