"""Labels of several heads: of each row several, each 0 or 1, or NaN where it is not known."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from leashed.base.target import check_heads

__all__ = ["check_labels", "heads_of", "table_of"]


def heads_of(names: Sequence[str] | None, count: int) -> tuple[str, ...]:
    """The names of so many labels; None: they have none, and are y1, y2, …."""
    if names is None:
        return tuple(f"y{k + 1}" for k in range(count))
    return check_heads("target", names, count)


def table_of(y: NDArray[Any], heads: Sequence[str]) -> NDArray[np.float32]:
    """float32 [n, heads], checked, of labels of any numeric dtype."""
    check_labels(y, heads)
    return np.array(y, np.float32, order="C")


def check_labels(y: NDArray[Any], heads: Sequence[str]) -> None:
    """ValueError where a label is neither 0 nor 1, nor NaN."""
    wrong = ~((y == 0) | (y == 1) | np.isnan(y))
    if wrong.any():
        row, head = np.argwhere(wrong)[0]
        raise ValueError(
            f"y has {y[row, head]} at index {row} of {heads[head]!r}; each of several labels is 0 or 1, "
            "or NaN where it is not known"
        )
