"""Rows as the core gives them, x, single ids, bags, y and weights: their bytes, and some of them."""

from __future__ import annotations

from typing import Any

__all__ = ["bytes_of", "slice_of"]


def bytes_of(arrays: Any) -> int:
    """Of arrays in tuples and lists; None has none."""
    if isinstance(arrays, (tuple, list)):
        return sum(map(bytes_of, arrays))
    return 0 if arrays is None else int(arrays.nbytes)


def slice_of(arrays: Any, begin: int, end: int) -> Any:
    """Rows [begin, end) of such."""
    x, ids, bags, y, weights = arrays
    cut = []
    for own_ids, offsets, *of_ids in bags:
        first, last = offsets[begin], offsets[end]
        cut.append(
            (
                own_ids[first:last],
                offsets[begin : end + 1] - first,
                *(each[first:last] for each in of_ids),
            )
        )
    own = None if weights is None else weights[begin:end]
    return x[begin:end], ids[begin:end], cut, y[begin:end], own
