"""Means with their 95% intervals (Student's t)."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

__all__ = ["Course", "Interval", "difference", "interval", "ratio"]

_CONFIDENCE = 0.95
_BISECTIONS = 60


class Interval(NamedTuple):
    """A mean and where it is with a probability of 95%; infinite ends for a single value."""

    mean: float
    low: float
    high: float

    @property
    def half(self) -> float:
        """Half its width."""
        return (self.high - self.low) / 2.0

    def text(self, digits: int = 4) -> str:
        """The mean ± half the width, to so many digits; of a single value the mean alone, and a
        dash for NaN.
        """
        if math.isnan(self.mean):
            return "–"
        half = f" ± {self.half:.{digits}f}" if math.isfinite(self.half) else ""
        return f"{self.mean:.{digits}f}{half}"

    def signed(self) -> str:
        """Of a difference: the mean with its sign ± half the width."""
        return f"{self.mean:+.4f} ± {self.half:.4f}"


def interval(values: Sequence[float]) -> Interval:
    """The mean of values that are drawn independently, about normally; NaN ends where a value is
    not finite.

    Raises:
        ValueError: there is none.
    """
    if not values:
        raise ValueError("values must not be empty")
    if not all(map(math.isfinite, values)):
        return Interval(sum(values) / len(values), math.nan, math.nan)
    mean = math.fsum(values) / len(values)
    if len(values) == 1:
        return Interval(mean, -math.inf, math.inf)
    half = _quantile(len(values) - 1) * statistics.stdev(values) / math.sqrt(len(values))
    return Interval(mean, mean - half, mean + half)


def difference(ours: Iterable[float], theirs: Iterable[float]) -> Interval:
    """The mean difference of pairs, such as runs of the same seed.

    Raises:
        ValueError: there is no pair, or one lacks its other half.
    """
    return interval([a - b for a, b in zip(ours, theirs, strict=True)])


def ratio(ours: Sequence[float], theirs: Sequence[float]) -> Interval:
    """The mean ratio of pairs, by the logarithms of their ratios.

    Raises:
        ValueError: there is no pair, one lacks its other half, or a value is not positive.
    """
    logs = [math.log(a / b) for a, b in zip(ours, theirs, strict=True)]
    return Interval(*map(math.exp, interval(logs)))


def _quantile(freedom: int) -> float:
    """Student's t that is exceeded, up or down, with a probability of 5%."""
    low, high = 0.0, 1000.0
    for _ in range(_BISECTIONS):
        middle = (low + high) / 2.0
        if _within(middle, freedom) < _CONFIDENCE:
            low = middle
        else:
            high = middle
    return high


def _within(t: float, freedom: int) -> float:
    """P(|T| < t) (Abramowitz and Stegun, 26.7.3 and 26.7.4)."""
    angle = math.atan(t / math.sqrt(freedom))
    odd = freedom % 2
    term = math.cos(angle) if odd else 1.0
    total = 0.0 if freedom == 1 else term
    for k in range(1 + odd, freedom - 2, 2):
        term *= k / (k + 1) * math.cos(angle) ** 2
        total += term
    total *= math.sin(angle)
    return 2.0 / math.pi * (angle + total) if odd else total


class Course:
    """Of what has an AUC in the course of runs.

    Attributes:
        auc: float64 [repeats, E]; at E evaluations, equally far apart.
    """

    auc: NDArray[np.float64]

    @property
    def done(self) -> NDArray[np.float64]:
        """float64 [E]; the share of the run at each evaluation."""
        return np.linspace(0.0, 1.0, self.auc.shape[1])

    def intervals(self) -> list[Interval]:
        """The AUC at each evaluation, as a mean over the repeats with its 95% interval."""
        return [interval(list(values)) for values in self.auc.T]

    def against(self, other: Course) -> Interval:
        """How much better the AUC at the end is than another's of the same seeds."""
        return difference(self.auc[:, -1], other.auc[:, -1])
