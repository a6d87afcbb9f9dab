import math

import numpy as np
import pytest
from factories import EDGES, times
from hypothesis import given
from hypothesis import strategies as st

from leashed.training.histogram import Histogram, TimeDistribution

counted = st.lists(st.integers(0, 40), min_size=1, max_size=200)


@given(counted)
def test_a_histogram_summarises_what_was_counted(values):
    histogram = Histogram(np.bincount(values))
    assert histogram.total == len(values)
    assert histogram.max() == max(values)
    assert histogram.mean() == pytest.approx(np.mean(values))


@given(counted, st.floats(0, 1))
def test_a_quantile_is_the_smallest_value_that_enough_do_not_exceed(values, q):
    value = Histogram(np.bincount(values)).quantile(q)
    assert value == np.quantile(values, q, method="inverted_cdf")


@given(counted, counted)
def test_histograms_add_up(first, second):
    together = Histogram(np.bincount(first)) + Histogram(np.bincount(second))
    assert together.counts.tolist() == np.bincount(first + second).tolist()


def test_an_empty_histogram_has_no_mean():
    empty = Histogram(np.zeros(0, dtype=np.int64))
    assert empty.total == empty.max() == 0
    assert math.isnan(empty.mean())
    assert math.isnan(empty.quantile(0.5))


@pytest.mark.parametrize("counts", [[[1]], [-1]])
def test_counts_must_be_counts(counts):
    with pytest.raises(ValueError, match="counts"):
        Histogram(counts)


@pytest.mark.parametrize("q", [-0.1, 1.1, math.nan])
def test_a_quantile_lies_between_0_and_1(q):
    with pytest.raises(ValueError, match="q must"):
        Histogram([1]).quantile(q)
    with pytest.raises(ValueError, match="q must"):
        times(1e-3, 10).quantile(q)


def test_durations_have_an_exact_mean_and_quantiles_within_a_bin():
    durations = times(2e-3, 10_000)
    assert durations.mean() == durations.total / 10_000
    width = EDGES[1] / EDGES[0]
    assert durations.quantile(0.5) == pytest.approx(2e-3, rel=width - 1)
    assert durations.quantile(0.0) <= durations.quantile(0.5) <= durations.quantile(1.0)


def test_the_same_durations_in_more_bins_are_the_same_distribution():
    durations = TimeDistribution([1.0, 2.0, 4.0, 8.0, 16.0], [0, 3, 1, 0], 9.0)
    assert durations.edges.tolist() == [2.0, 4.0, 8.0]
    assert durations.counts.tolist() == [3, 1]


def test_durations_add_up_over_different_ranges():
    edges = np.array([1.0, 2.0, 4.0, 8.0, 16.0])
    together = TimeDistribution(edges, [2, 0, 0, 0], 3.0) + TimeDistribution(
        edges, [0, 0, 0, 5], 50.0
    )
    assert together.count == 7
    assert together.total == 53.0
    assert together.quantile(0.2) < 2.0
    assert together.quantile(0.9) > 8.0


def test_durations_in_other_bins_cannot_be_added():
    with pytest.raises(ValueError, match="different bins"):
        TimeDistribution([1.0, 4.0], [1], 2.0) + TimeDistribution([1.0, 2.0, 4.0], [1, 1], 4.0)


def test_nothing_measured_has_no_mean():
    nothing = TimeDistribution([1.0, 2.0], [0], 0.0)
    assert math.isnan(nothing.mean())
    assert math.isnan(nothing.quantile(0.5))


@pytest.mark.parametrize(
    ("edges", "counts", "name"),
    [([1.0, 2.0], [1, 1], "edges"), ([2.0, 1.0], [1], "edges"), ([1.0, 2.0], [-1], "counts")],
)
def test_bins_must_fit(edges, counts, name):
    with pytest.raises(ValueError, match=name):
        TimeDistribution(edges, counts, 1.0)
