"""The DLRM that is measured: its sizes, and the examples that everybody trains on."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

import leashed
from leashed.models import Graph

DENSE, TABLES, ROWS, DIM = 13, 26, 100_000, 16
BOTTOM, TOP = (64, DIM), (64, 32)
INTERACTIONS = DIM + TABLES * (TABLES + 1) // 2
EXPONENT = 1.2  # of Zipf's law
BATCHES = (128, 512, 2048)
LR = 0.01
_EXAMPLES = 1 << 17

# Of an example, forward and backward, 2 per multiply-add: every product but the first layer's with
# respect to its input, and each dot product of two of the vectors once forward and twice backward.
FLOPS = 2 * (
    2 * DENSE * BOTTOM[0]
    + 3 * BOTTOM[0] * BOTTOM[1]
    + 3 * (TABLES + 1) * TABLES // 2 * DIM
    + 3 * (INTERACTIONS * TOP[0] + TOP[0] * TOP[1] + TOP[1])
)


def model() -> Graph:
    """As leashed has it."""
    return leashed.models.dlrm(ROWS, DIM, DENSE, BOTTOM, TOP, categories=TABLES)


def data() -> tuple[NDArray[np.float32], NDArray[np.uint64], NDArray[np.int32]]:
    """Numbers [n, 13], ids [n, 26] by Zipf's law, whose ranks lie scattered over a table's rows, and
    labels [n] of which a quarter are 1.
    """
    rng = np.random.default_rng(1)
    x = rng.standard_normal((_EXAMPLES, DENSE)).astype(np.float32)
    cumulative = np.cumsum(np.arange(1, ROWS + 1) ** -EXPONENT)
    ranks = np.searchsorted(cumulative, rng.random((_EXAMPLES, TABLES)) * cumulative[-1])
    ids = ranks.astype(np.uint64) * np.uint64(2654435761) % np.uint64(ROWS)
    y = (rng.random(_EXAMPLES) < 0.25).astype(np.int32)
    return x, ids, y
