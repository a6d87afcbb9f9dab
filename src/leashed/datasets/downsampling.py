"""Fewer of the rows that were not clicked."""

from __future__ import annotations

import dataclasses

import numpy as np

from leashed.base import checks
from leashed.datasets.clicks import ClickDataset

__all__ = ["downsample"]


def downsample(data: ClickDataset, negatives: float, seed: int = 0) -> ClickDataset:
    """All rows that were clicked, and of the others each with the same probability.

    What a model learns from them is too high by a known amount, which
    ``leashed.metrics.undo_downsampling`` takes off its predictions.

    Args:
        data: Rows.
        negatives: The probability to keep a row that was not clicked, above 0, at most 1.
        seed: From 0 to 2⁶⁴ − 1. Whether row i is kept depends on it, i and the label alone.

    Returns:
        The rows kept, in their order; ``hidden``, where it is known, for them.

    Raises:
        TypeError, ValueError: An argument is not of its type or out of range, or no row is left.
    """
    if not isinstance(data, ClickDataset):
        raise TypeError(f"data must be a ClickDataset, got {type(data).__name__}")
    if data.classes != 2:
        raise ValueError("data must be clicks, 0 and 1, to leave out those that are none")
    negatives = checks.real("negatives", negatives, 0.0)
    if negatives > 1:
        raise ValueError(f"negatives must be at most 1, got {negatives:g}")
    seed = checks.whole("seed", seed, 0, 2**64 - 1)
    drawn = np.random.Generator(np.random.Philox(key=seed)).random(len(data))
    rows = np.flatnonzero((data.y == 1) | (drawn < negatives))
    if len(rows) == 0:
        raise ValueError(f"none of the {len(data)} rows is left; raise negatives, {negatives:g}")
    kept = data.take(rows)
    if kept.hidden is None:
        return kept
    clicks = kept.hidden.astype(np.float64)
    share = clicks / (clicks + negatives * (1 - clicks))
    return dataclasses.replace(kept, hidden=share.astype(np.float32))
