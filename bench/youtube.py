"""The YouTubeDNN that is measured: its sizes, and the examples that everybody trains on."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

ITEMS, DIM, HIDDEN, NEGATIVES = 100_000, 32, (128, 64), 512
LONGEST = 50  # of a history
EXPONENT = 1.2  # of Zipf's law
BATCHES = (128, 1024)
LR = 0.01
_EXAMPLES = 1 << 16


def data() -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Histories, of each example 1 to 50 items: [entries], and where they begin [n + 1]; and what was
    chosen then [n]. Items are numbered by falling frequency.
    """
    rng = np.random.default_rng(1)
    cumulative = np.cumsum(np.arange(1, ITEMS + 1) ** -EXPONENT)

    def drawn(n: int) -> NDArray[np.int64]:
        return np.searchsorted(cumulative, rng.random(n) * cumulative[-1]).astype(np.int64)

    lengths = rng.integers(1, LONGEST + 1, _EXAMPLES)
    offsets = np.append(0, np.cumsum(lengths))
    return drawn(int(offsets[-1])), offsets, drawn(_EXAMPLES)
