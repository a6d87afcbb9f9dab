"""The DIN that is measured: its sizes, and the examples that everybody trains on."""

from __future__ import annotations

from functools import cache

import numpy as np
from numpy.typing import NDArray

from leashed import datasets
from leashed.datasets import ClickDataset

USERS, ITEMS, CATEGORIES, DIM, LONGEST = 10_000, 10_000, 100, 16, 50
ATTENTION, HIDDEN = (80, 40), (200, 80)
BATCHES = (128, 1024)
LR = 0.01
_EXAMPLES = 1 << 15


@cache
def data() -> ClickDataset:
    """Users with histories of 0 to 50 items, every length as likely."""
    return datasets.synthetic_histories(
        _EXAMPLES, 1, test=1, users=USERS, items=ITEMS, categories=CATEGORIES, longest=LONGEST
    ).train


def padded() -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The items of the histories, [n, 50], zeros behind them, and their lengths, [n]."""
    bags = data().ids[3]
    lengths = np.diff(bags.offsets)
    items = np.zeros((len(lengths), LONGEST), np.int64)
    items[np.arange(LONGEST) < lengths[:, None]] = bags.ids
    return items, lengths.astype(np.int64)
