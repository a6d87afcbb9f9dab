"""Clicks from a seed. Their distributions: tests/cpp/data/test_clicks.cc."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import leashed as lsh
from leashed.datasets import ClickDataset, criteo, synthetic_click_lines, synthetic_clicks


def same(a: ClickDataset, b: ClickDataset) -> None:
    assert a.hidden is not None
    assert b.hidden is not None
    for one, other in ((a.x, b.x), (a.ids, b.ids), (a.y, b.y), (a.hidden, b.hidden)):
        np.testing.assert_array_equal(one, other)


def test_a_row_is_the_same_whatever_is_asked_for_beside_it():
    large = synthetic_clicks(3000, 5, test=500, days=3, drift=0.3, threads=4)
    small = synthetic_clicks(100, 5, test=50, days=3, drift=0.3, threads=1)
    for day in range(3):
        same(small.train[day * 100 : day * 100 + 100], large.train[day * 3000 :].head(100))
    same(small.test, large.test.head(50))
    assert not np.array_equal(small.train.ids[:50], small.test.ids)
    other = synthetic_clicks(100, 6)
    assert not np.array_equal(small.train.ids[:100], other.train.ids)


def test_the_shape_is_criteos():
    train, test = synthetic_clicks(20_000, 1)
    assert (len(train), len(test)) == (20_000, 20_000)
    assert (train.numbers, train.features) == (13, 26)
    assert train.ids.max() < 100_000
    assert abs(train.y.mean() - 0.25) < 0.02
    assert (train.name, test.name) == (
        "synthetic_clicks(seed=1)/train",
        "synthetic_clicks(seed=1)/test",
    )
    counts = np.bincount(train.ids[:, 3].astype(np.int64))
    assert counts.argmax() == 0
    for data in (train, test):
        assert 0.74 < data.hidden_auc < 0.86
        assert data.hidden_auc == lsh.metrics.auc(data.hidden, data.y)
        assert abs(lsh.metrics.calibration(data.hidden, data.y) - 1) < 0.1


def test_cardinalities_and_the_exponent_are_settings():
    data = synthetic_clicks(500, test=10, cardinalities=(1, 5, 2**48), exponent=0.5).train
    assert data.features == 3
    assert data.ids[:, 0].max() == 0
    assert set(data.ids[:, 1]) == set(range(5))
    assert data.ids[:, 2].max() > 2**40
    assert data.names == ("C1", "C2", "C3")


def test_hidden_probabilities_stay_with_their_rows():
    data = synthetic_clicks(100, test=10).train
    assert data[10:20].hidden.tolist() == data.hidden[10:20].tolist()
    assert data.take([3, 1]).hidden.tolist() == data.hidden[[3, 1]].tolist()
    plain = ClickDataset.from_arrays(data.x, data.ids, data.y)
    with pytest.raises(ValueError, match="no hidden probabilities"):
        _ = plain.hidden_auc


@pytest.mark.parametrize("delay", [0.05, 1.0, 50.0])
def test_clicks_that_are_told_late_are_missing_in_training(delay: float):
    prompt, late = synthetic_clicks(40_000, 3), synthetic_clicks(40_000, 3, delay=delay)
    same(late.test, prompt.test)
    np.testing.assert_array_equal(late.train.ids, prompt.train.ids)
    assert not (late.train.y > prompt.train.y).any()
    told = late.train.y[prompt.train.y == 1].mean()
    # Shown at u, told by the end of the day with the probability 1 − exp(−(1 − u) / delay).
    share = 1 - delay * (1 - np.exp(-1 / delay))
    assert abs(told - share) < 0.02
    np.testing.assert_allclose(late.train.hidden, prompt.train.hidden * share, rtol=1e-4)


@pytest.mark.parametrize("threads", [1, 3])
def test_lines_are_the_same_rows(tmp_path: Path, threads: int):
    """Read back they are what memory has: Criteo's reader moves each feature's ids to their own."""
    made = synthetic_clicks(40_000, 7, test=1000, days=2, drift=0.3)
    shift = (np.arange(1, 27, dtype=np.uint64) << np.uint64(33))[None, :]
    for test, data in ((False, made.train[40_000:]), (True, made.test)):
        file = tmp_path / "day.tsv"
        with file.open("wb") as out:
            out.writelines(
                synthetic_click_lines(len(data), 7, day=1, test=test, drift=0.3, threads=threads)
            )
        read = criteo(file)
        np.testing.assert_array_equal(read.ids, data.ids + shift)
        np.testing.assert_array_equal(read.y, data.y)
        np.testing.assert_allclose(read.x, data.x, rtol=1e-6)
        assert b"\t\t" in file.read_bytes()[:10_000]  # counts that are missing


def test_lines_without_end_go_on():
    endless = synthetic_click_lines(None, 3, cardinalities=(5, 2**32))
    blocks = b"".join(next(endless) for _ in range(2))
    whole = b"".join(synthetic_click_lines(40_000, 3, cardinalities=(5, 2**32)))
    assert whole.startswith(blocks)
    assert all(line.count(b"\t") == 15 for line in blocks.splitlines())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"rows": 0}, "rows must be at least 1"),
        ({"day": -1}, "day must be at least 0"),
        ({"day": 2**16}, "day must be at most"),
        ({"drift": 2.0}, "drift must be at most 1"),
        ({"cardinalities": 2**32 + 1}, r"cardinalities must be at most 2\*\*32"),
        ({"threads": 0}, "threads must be at least 1"),
    ],
)
def test_wrong_arguments_of_lines_are_refused_at_once(arguments: dict[str, Any], message: str):
    with pytest.raises(ValueError, match=message):
        synthetic_click_lines(**arguments)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"rows": 0}, ValueError, "rows must be at least 1"),
        ({"rows": 1.5}, TypeError, "rows must be a whole number"),
        ({"seed": -1}, ValueError, "seed must be at least 0"),
        ({"seed": 2**64}, ValueError, "seed must be at most"),
        ({"test": 0}, ValueError, "test must be at least 1"),
        ({"days": 0}, ValueError, "days must be at least 1"),
        ({"drift": -0.1}, ValueError, "drift must be at least 0"),
        ({"drift": 1.1}, ValueError, "drift must be at most 1"),
        ({"delay": -1}, ValueError, "delay must be at least 0"),
        ({"drift": float("nan")}, ValueError, "drift must be finite"),
        ({"cardinalities": 0}, ValueError, "cardinalities must be at least 1"),
        ({"cardinalities": []}, ValueError, "cardinalities must have at least one entry"),
        ({"cardinalities": [3, 2**48 + 1]}, ValueError, r"cardinalities\[1\] must be at most"),
        ({"cardinalities": "12"}, TypeError, "cardinalities must be"),
        ({"exponent": 0}, ValueError, "exponent must be greater than 0"),
        ({"exponent": float("inf")}, ValueError, "exponent must be finite"),
        ({"threads": 0}, ValueError, "threads must be at least 1"),
    ],
)
def test_bad_arguments_are_named(arguments: dict[str, Any], error: type[Exception], message: str):
    with pytest.raises(error, match=message):
        synthetic_clicks(**{"rows": 10, "test": 10} | arguments)
