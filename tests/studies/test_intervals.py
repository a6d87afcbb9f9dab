"""Intervals against tables of Student's t, and ratios of pairs."""

from __future__ import annotations

import math

import pytest

from leashed.studies.intervals import difference, interval, ratio

# Two-sided, 95%; by degrees of freedom.
TABLE = {1: 12.706, 2: 4.303, 3: 3.182, 4: 2.776, 5: 2.571, 9: 2.262, 10: 2.228, 19: 2.093}


@pytest.mark.parametrize("freedom", TABLE)
def test_the_interval_is_students(freedom: int) -> None:
    values = [float(k) for k in range(freedom + 1)]
    mean = sum(values) / len(values)
    error = math.sqrt(sum((v - mean) ** 2 for v in values) / freedom / len(values))
    found = interval(values)
    assert found.mean == pytest.approx(mean)
    assert found.half / error == pytest.approx(TABLE[freedom], abs=6e-4)
    assert found.high - found.mean == pytest.approx(found.mean - found.low)


def test_one_value_tells_nothing_of_its_spread() -> None:
    assert interval([2.0]) == (2.0, -math.inf, math.inf)
    assert interval([2.0]).text(1) == "2.0"
    assert interval([2.0, 2.0]).text(1) == "2.0 ± 0.0"
    with pytest.raises(ValueError, match="empty"):
        interval([])


def test_a_difference_is_of_pairs() -> None:
    ours, theirs = [3.0, 5.0, 8.0], [1.0, 4.0, 5.0]
    assert difference(iter(ours), iter(theirs)) == interval([2.0, 1.0, 3.0])
    assert difference(theirs, ours).signed() == "-2.0000 ± 2.4841"
    with pytest.raises(ValueError, match="zip"):
        difference(ours, theirs[:2])


@pytest.mark.parametrize("wrong", [math.nan, math.inf, -math.inf])
def test_what_is_not_finite_has_no_interval(wrong: float) -> None:
    found = interval([1.0, wrong, 2.0])
    assert not math.isfinite(found.mean)
    assert math.isnan(found.low)
    assert math.isnan(found.high)
    assert math.isnan(interval([math.inf, -math.inf]).mean)
    assert interval([math.nan]).text() == "–"


def test_a_ratio_and_its_inverse_have_inverse_intervals() -> None:
    ours, theirs = [1.0, 2.2, 3.0], [1.1, 2.0, 3.1]
    there, back = ratio(ours, theirs), ratio(theirs, ours)
    assert there.mean == pytest.approx(1.0 / back.mean)
    assert (there.low, there.high) == pytest.approx((1.0 / back.high, 1.0 / back.low))
    with pytest.raises(ValueError, match="longer"):
        ratio([1.0], [1.0, 2.0])
