"""Clicks drawn from a seed, by a hidden model whose own AUC is known.

The rows are made by the core (``cpp/leashed/data/clicks.h`` has the model), on two threads more than
a million a second; the arrays for them by NumPy.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from leashed import _core
from leashed.base import checks
from leashed.base.machine import cores
from leashed.datasets.clicks import ClickDataset, ClickSplit, names_of

__all__ = ["synthetic_click_lines", "synthetic_clicks"]

_FEATURES = 26
MOST_DAYS = 2**16
_PART = 1 << 18  # rows between two looks at signals
_BLOCK = 1 << 14  # rows of a block of lines: about 4 MB
_HASHES = 2**32  # of a category's 8 hexadecimal digits


def synthetic_clicks(
    rows: int = 100_000,
    seed: int = 0,
    *,
    test: int = 20_000,
    days: int = 1,
    drift: float = 0.0,
    delay: float = 0.0,
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
        delay: Mean time in days, at least 0, until a click is told. A training row is shown at any
            time of its day, and has the label that it has at the day's end: 0 where its click has
            not been told yet. Test rows are complete.
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
    rows = checks.whole("rows", rows)
    test = checks.whole("test", test)
    days = checks.whole("days", days, 1, MOST_DAYS)
    seed, counts, exponent, drift, delay = _model(seed, cardinalities, exponent, drift, delay)
    threads = check_threads(threads)
    train, testing = _empty(rows * days, len(counts)), _empty(test, len(counts))
    for day in range(days):
        native = _core.ClickGenerator(seed, counts, exponent, drift, delay, day)
        _fill(native, False, tuple(a[day * rows : (day + 1) * rows] for a in train), threads)
    _fill(native, True, testing, threads)
    name = f"synthetic_clicks(seed={seed})"
    return ClickSplit(_dataset(train, f"{name}/train"), _dataset(testing, f"{name}/test"))


def synthetic_click_lines(
    rows: int | None = 100_000,
    seed: int = 0,
    *,
    day: int = 0,
    test: bool = False,
    drift: float = 0.0,
    delay: float = 0.0,
    cardinalities: int | Sequence[int] = 100_000,
    exponent: float = 1.2,
    threads: int | None = None,
) -> Iterator[bytes]:
    """The rows of ``synthetic_clicks`` as Criteo's text: label, 13 counts and the ids apart by tabs,
    without a header. A count that is missing is empty, an id has 8 hexadecimal digits.

    Lines are made as they are asked for, a block of some MB each time, so that any number of rows
    takes no more memory. ``criteo`` reads 26 features.

    Args:
        rows: How many; None: without end.
        seed: As of ``synthetic_clicks``, as are ``drift``, ``delay``, ``exponent`` and ``threads``.
        day: From 0.
        test: The day's rows for testing, instead of those for training.
        cardinalities: As of ``synthetic_clicks``, but at most 2³².

    Returns:
        Blocks of whole lines.

    Raises:
        TypeError, ValueError: An argument is not of its type or out of range.
    """
    rows = None if rows is None else checks.whole("rows", rows)
    day = checks.whole("day", day, 0, MOST_DAYS - 1)
    seed, counts, exponent, drift, delay = _model(seed, cardinalities, exponent, drift, delay)
    if max(counts) > _HASHES:
        raise ValueError(
            f"cardinalities must be at most 2**32, for ids of 8 digits; got {max(counts)}"
        )
    threads = check_threads(threads)
    native = _core.ClickGenerator(seed, counts, exponent, drift, delay, day)
    return _lines(native, test, rows, threads)


def _lines(
    native: _core.ClickGenerator, test: bool, rows: int | None, threads: int
) -> Iterator[bytes]:
    first = 0
    while rows is None or first < rows:
        count = _BLOCK if rows is None else min(_BLOCK, rows - first)
        yield native.lines(test, first, count, threads)
        first += count


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


def _model(
    seed: int, cardinalities: int | Sequence[int], exponent: float, drift: float, delay: float
) -> tuple[int, list[int], float, float, float]:
    """What every generator of clicks is made of, checked."""
    return (
        checks.whole("seed", seed, 0, 2**64 - 1),
        _cardinalities(cardinalities),
        checks.real("exponent", exponent, 0.0),
        check_drift(drift),
        checks.real("delay", delay, 0.0, allow=True),
    )


def check_drift(drift: object) -> float:
    """A probability of each day."""
    found = checks.real("drift", drift, 0.0, allow=True)
    if found > 1:
        raise ValueError(f"drift must be at most 1, got {found:g}")
    return found


def check_threads(given: int | None) -> int:
    """That many; None: one for each processor."""
    return cores() if given is None else checks.whole("threads", given, 1, 1024)


def _cardinalities(given: int | Sequence[int]) -> list[int]:
    largest = _core.ClickGenerator.LARGEST_CARDINALITY
    if isinstance(given, Sequence) and not isinstance(given, (str, bytes)):
        if not given:
            raise ValueError("cardinalities must have at least one entry")
        return [checks.whole(f"cardinalities[{f}]", n, 1, largest) for f, n in enumerate(given)]
    return [checks.whole("cardinalities", given, 1, largest)] * _FEATURES
