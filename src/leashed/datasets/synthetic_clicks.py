"""Clicks drawn from a seed, by a hidden model whose own AUC is known.

The rows are made by the core (``cpp/leashed/data/clicks.h`` has the model), on two threads more than
a million a second; the arrays for them by NumPy.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from leashed import _check, _core
from leashed.datasets.clicks import ClickDataset, ClickSplit, names_of
from leashed.machine import cores

__all__ = ["synthetic_clicks"]

_FEATURES = 26
_PART = 1 << 18  # rows between two looks at signals


def synthetic_clicks(
    rows: int = 100_000,
    seed: int = 0,
    *,
    test: int = 20_000,
    days: int = 1,
    drift: float = 0.0,
    cardinalities: int | Sequence[int] = 100_000,
    exponent: float = 1.2,
    threads: int | None = None,
) -> ClickSplit:
    """Draw clicks in the shape of Criteo's: 13 numbers, 26 features that are ids, and a quarter of
    the rows clicked.

    Numbers are log(1 + count) of counts with a heavy tail, 0 where the count is missing. Ids follow
    Zipf's law: of n, id k has a probability ∝ (k + 1)^−exponent. Labels are drawn by a hidden
    factorisation machine over all of them, whose logits have the standard deviation 1.3.

    Row i of a day depends on the seed, the day and i alone, whatever ``rows``, ``days`` and
    ``threads`` are, and test rows come from a stream of their own. (Between machines a last digit
    may differ, where rounding does.)

    Args:
        rows: Training rows of each day, at least 1. A row takes 268 bytes.
        seed: From 0 to 2⁶⁴ − 1.
        test: Test rows, at least 1; of the last day.
        days: How many. Day d is ``train[d * rows : (d + 1) * rows]``.
        drift: With this probability, 0 to 1, each id's part of the hidden model is drawn anew each
            day after the first. The share of clicks stays.
        cardinalities: How many ids there are, up to 2⁴⁸: of every feature, or for each of any number
            of features.
        exponent: Of Zipf's law, above 0.
        threads: How many make rows. Default: one for each processor.

    Returns:
        ``ClickSplit(train, test)``, with ``hidden``, the probability of each click, and
        ``hidden_auc``, the AUC that those reach.

    Raises:
        TypeError, ValueError: An argument is not of its type or out of range.
    """
    rows = _check.whole("rows", rows)
    seed = _check.whole("seed", seed, 0, 2**64 - 1)
    test = _check.whole("test", test)
    days = _check.whole("days", days, 1, 2**16)
    drift = _check.real("drift", drift, 0.0, allow=True)
    if drift > 1:
        raise ValueError(f"drift must be at most 1, got {drift:g}")
    counts = _cardinalities(cardinalities)
    exponent = _check.real("exponent", exponent, 0.0)
    threads = cores() if threads is None else _check.whole("threads", threads, 1, 1024)
    train, testing = _empty(rows * days, len(counts)), _empty(test, len(counts))
    for day in range(days):
        native = _core.ClickGenerator(seed, counts, exponent, drift, day)
        _fill(native, False, tuple(a[day * rows : (day + 1) * rows] for a in train), threads)
    _fill(native, True, testing, threads)
    name = f"synthetic_clicks(seed={seed})"
    return ClickSplit(_dataset(train, f"{name}/train"), _dataset(testing, f"{name}/test"))


_Arrays = tuple[
    NDArray[np.float32], NDArray[np.uint64], NDArray[np.int32], NDArray[np.float32]
]  # x, ids, y, hidden


def _empty(rows: int, features: int) -> _Arrays:
    x = np.empty((rows, _core.ClickGenerator.NUMBERS), np.float32)
    ids = np.empty((rows, features), np.uint64)
    return x, ids, np.empty(rows, np.int32), np.empty(rows, np.float32)


def _fill(native: _core.ClickGenerator, test: bool, arrays: Any, threads: int) -> None:
    for begin in range(0, len(arrays[0]), _PART):
        x, ids, labels, hidden = (a[begin : begin + _PART] for a in arrays)
        native.fill(test, begin, x, ids, labels, hidden, threads)


def _dataset(arrays: _Arrays, name: str) -> ClickDataset:
    x, ids, y, hidden = arrays
    return ClickDataset(x, ids, y, names_of(ids.shape[1]), name, hidden=hidden)


def _cardinalities(given: int | Sequence[int]) -> list[int]:
    largest = _core.ClickGenerator.LARGEST_CARDINALITY
    if isinstance(given, Sequence) and not isinstance(given, (str, bytes)):
        if not given:
            raise ValueError("cardinalities must have at least one entry")
        return [_check.whole(f"cardinalities[{f}]", n, 1, largest) for f, n in enumerate(given)]
    return [_check.whole("cardinalities", given, 1, largest)] * _FEATURES
