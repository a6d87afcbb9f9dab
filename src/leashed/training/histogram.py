"""Counts of whole numbers and of durations, as the engine's telemetry collects them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray


def _counts(name: str, values: ArrayLike) -> NDArray[np.int64]:
    counts = np.asarray(values, dtype=np.int64)
    if counts.ndim != 1:
        raise ValueError(f"{name} must have one dimension, not {counts.ndim}")
    if (counts < 0).any():
        raise ValueError(f"{name} must not be negative")
    return counts


def octaves(bins: int) -> list[str]:
    """What the first bins of counts by a number's binary digits stand for: 0, 1, 2–3, 4–7 and on."""
    return [str(k) if k < 2 else f"{2 ** (k - 1):,}–{2**k - 1:,}" for k in range(bins)]


def _check_quantile(q: float) -> float:
    if not 0.0 <= q <= 1.0:
        raise ValueError(f"q must lie between 0 and 1, not {q}")
    return float(q)


@dataclass(frozen=True, eq=False, repr=False)
class Histogram:
    """How often each whole number 0, 1, 2, … was seen; the counts are exact.

    Args:
        counts: int64 [bins]; ``counts[k]`` is how often k was seen.

    Raises:
        ValueError: ``counts`` is negative somewhere or not one-dimensional.
    """

    counts: NDArray[np.int64]

    def __post_init__(self) -> None:
        object.__setattr__(self, "counts", _counts("counts", self.counts))

    @property
    def total(self) -> int:
        """How many numbers were counted."""
        return int(self.counts.sum())

    def mean(self) -> float:
        """The mean of what was counted; NaN if nothing was."""
        if not self.total:
            return float("nan")
        return float(np.arange(self.counts.size) @ self.counts) / self.total

    def max(self) -> int:
        """The largest number seen; 0 if nothing was counted."""
        seen = np.flatnonzero(self.counts)
        return int(seen[-1]) if seen.size else 0

    def quantile(self, q: float) -> float:
        """The smallest number that at least a share ``q`` of the counted ones does not exceed.

        NaN if nothing was counted.
        """
        q = _check_quantile(q)
        if not self.total:
            return float("nan")
        cumulative = np.cumsum(self.counts)
        return float(np.searchsorted(cumulative, max(1, int(np.ceil(q * self.total)))))

    def __add__(self, other: Histogram) -> Histogram:
        counts = np.zeros(max(self.counts.size, other.counts.size), dtype=np.int64)
        counts[: self.counts.size] += self.counts
        counts[: other.counts.size] += other.counts
        return Histogram(counts)

    def __repr__(self) -> str:
        return f"Histogram(total {self.total}, mean {self.mean():.3g}, max {self.max()})"


@dataclass(frozen=True, eq=False, repr=False)
class TimeDistribution:
    """How long something took, counted in bins between log-spaced edges.

    Empty bins at both ends are dropped, so that it says little where little was measured.

    Args:
        edges: float64 [bins + 1], seconds, increasing.
        counts: int64 [bins]; what lies outside the edges is counted in the first or last bin.
        total: the sum of all durations in seconds, exact.

    Raises:
        ValueError: the lengths do not fit, the edges do not increase or a count is negative.
    """

    edges: NDArray[np.float64]
    counts: NDArray[np.int64]
    total: float

    def __post_init__(self) -> None:
        edges = np.asarray(self.edges, dtype=np.float64)
        counts = _counts("counts", self.counts)
        if edges.shape != (counts.size + 1,):
            raise ValueError(f"edges must have shape ({counts.size + 1},), not {edges.shape}")
        if not (np.diff(edges) > 0).all():
            raise ValueError("edges must increase")
        used = np.flatnonzero(counts)
        first, last = (int(used[0]), int(used[-1])) if used.size else (0, min(0, counts.size - 1))
        object.__setattr__(self, "edges", edges[first : last + 2])
        object.__setattr__(self, "counts", counts[first : last + 1])
        object.__setattr__(self, "total", float(self.total))

    @classmethod
    def empty(cls) -> TimeDistribution:
        """Of nothing."""
        return cls(np.ones(1), np.empty(0, dtype=np.int64), 0.0)

    @property
    def count(self) -> int:
        """How many durations were measured."""
        return int(self.counts.sum())

    def mean(self) -> float:
        """The exact mean in seconds; NaN if nothing was measured."""
        return self.total / self.count if self.count else float("nan")

    def quantile(self, q: float) -> float:
        """The ``q`` quantile in seconds, interpolated within its bin; NaN if nothing was measured.

        The interpolation is geometric, as the edges are, except in a bin that starts at 0.
        """
        q = _check_quantile(q)
        if not self.count:
            return float("nan")
        cumulative = np.cumsum(self.counts)
        rank = q * self.count
        k = int(np.flatnonzero((cumulative >= rank) & (self.counts > 0))[0])
        share = 1.0 - (float(cumulative[k]) - rank) / float(self.counts[k])
        low, high = float(self.edges[k]), float(self.edges[k + 1])
        if low <= 0.0:
            return low + share * (high - low)
        return low * float((high / low) ** share)

    def __add__(self, other: TimeDistribution) -> TimeDistribution:
        if not (self.counts.size and other.counts.size):
            return other if other.counts.size else self
        edges = np.union1d(self.edges, other.edges)
        counts = np.zeros(edges.size - 1, dtype=np.int64)
        for part in (self, other):
            bins = np.searchsorted(edges, part.edges)
            if (np.diff(bins) != 1).any():
                raise ValueError("time distributions with different bins cannot be added")
            counts[bins[:-1]] += part.counts
        return TimeDistribution(edges, counts, self.total + other.total)

    def to_dict(self) -> dict[str, Any]:
        """The fields as JSON's own types."""
        return {
            "edges": self.edges.tolist(),
            "counts": self.counts.tolist(),
            "total": self.total,
        }

    def __repr__(self) -> str:
        return f"TimeDistribution(count {self.count}, mean {self.mean():.3g} s)"
