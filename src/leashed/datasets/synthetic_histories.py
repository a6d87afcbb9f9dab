"""Clicks of users with histories, drawn from a seed, by a hidden model whose own AUC is known.

The rows are made by the core; ``cpp/leashed/data/histories.h`` has the model.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

import numpy as np

from leashed import _core
from leashed.base import checks
from leashed.datasets.clicks import Bags, ClickDataset, ClickSplit
from leashed.datasets.synthetic_clicks import MOST_DAYS, check_drift, check_threads

__all__ = ["HISTORY_FEATURES", "synthetic_histories"]

HISTORY_FEATURES = ("user", "item", "category", "items", "categories")
"""What ids the rows have: of the user, of what is shown, and of what was clicked before."""

_PART = 1 << 16  # rows between two looks at signals
_MOST = _core.ClickGenerator.LARGEST_CARDINALITY


def synthetic_histories(
    rows: int = 100_000,
    seed: int = 0,
    *,
    test: int = 20_000,
    days: int = 1,
    drift: float = 0.0,
    users: int = 10_000,
    items: int = 10_000,
    categories: int = 100,
    longest: int = 20,
    exponent: float = 1.1,
    threads: int | None = None,
) -> ClickSplit:
    """Draw clicks of users who have clicked before: what DIN, DIEN and YouTubeDNN are made for.

    A row has the ids of the user, of the item that is shown and of its category, and the items that
    the user clicked before with their categories, from the oldest on: features ``user``, ``item``,
    ``category``, ``items``, ``categories``, the last two as ``Bags``. Its one number is
    log(1 + length of the history). A user has three categories of interest, which take turns in the
    history; the click depends on the part of the history that is about what is shown, the recent
    part more. A quarter of the rows are clicked.

    Row i of a day depends on the seed, the day and i alone, whatever ``rows``, ``days`` and
    ``threads`` are.

    Args:
        rows: Training rows of each day, at least 1. A row takes up to 60 + 16 ``longest`` bytes.
        seed: From 0 to 2⁶⁴ − 1.
        test: Test rows, at least 1; of the last day.
        days: How many. Day d is ``train[d * rows : (d + 1) * rows]``.
        drift: With this probability, 0 to 1, what the hidden model has of an item is drawn anew each
            day after the first. The share of clicks stays.
        users: How many, up to 2⁴⁸, as ``items``.
        items: How many, a multiple of ``categories``; item i is of category i mod ``categories``.
        categories: How many, at least 1.
        longest: Most items of a history, at least 1; lengths from 0 to it are equally likely.
        exponent: Of Zipf's law of the items of a category, above 0.
        threads: How many make rows. Default: one for each processor.

    Returns:
        ``ClickSplit(train, test)``, with ``hidden``, the probability of each click, and
        ``hidden_auc``, the AUC that those reach.

    Raises:
        TypeError, ValueError: An argument is not of its type or out of range.
    """
    rows = checks.whole("rows", rows)
    test = checks.whole("test", test)
    users = checks.whole("users", users, 1, _MOST)
    categories = checks.whole("categories", categories, 1, _MOST)
    items = checks.whole("items", items, 1, _MOST)
    if items % categories:
        raise ValueError(f"items must be a multiple of categories, {categories}, got {items}")
    longest = checks.whole("longest", longest, 1, 2**16)
    drift = check_drift(drift)
    days = checks.whole("days", days, 1, MOST_DAYS)
    seed = checks.whole("seed", seed, 0, 2**64 - 1)
    exponent = checks.real("exponent", exponent, 0.0)
    threads = check_threads(threads)
    natives = [
        _core.HistoryGenerator(seed, users, items, categories, longest, exponent, drift, day)
        for day in range(days)
    ]
    name = f"synthetic_histories(seed={seed})"
    return ClickSplit(
        _rows(natives, False, rows, categories, longest, threads, f"{name}/train"),
        _rows(natives[-1:], True, test, categories, longest, threads, f"{name}/test"),
    )


def _rows(
    days: Sequence[_core.HistoryGenerator],
    test: bool,
    of_a_day: int,
    categories: int,
    longest: int,
    threads: int,
    name: str,
) -> ClickDataset:
    rows = of_a_day * len(days)
    user, item = np.empty(rows, np.uint64), np.empty(rows, np.uint64)
    lengths, y = np.empty(rows, np.int64), np.empty(rows, np.int32)
    hidden = np.empty(rows, np.float32)
    before = []
    place = np.arange(longest)
    for day, begin in product(range(len(days)), range(0, of_a_day, _PART)):
        first = day * of_a_day
        part = slice(first + begin, first + min(begin + _PART, of_a_day))
        padded = np.empty((len(y[part]), longest), np.uint64)
        days[day].fill(
            test,
            begin,
            user[part],
            item[part],
            padded,
            lengths[part],
            y[part],
            hidden[part],
            threads,
        )
        before.append(padded[place < lengths[part, None]])
    entries = np.concatenate(before)
    offsets = np.append(0, np.cumsum(lengths))
    count = np.uint64(categories)
    ids = (user, item, item % count, Bags(entries, offsets), Bags(entries % count, offsets))
    x = np.log1p(lengths.astype(np.float32))[:, None]
    return ClickDataset(x, ids, y, HISTORY_FEATURES, name, hidden=hidden)
