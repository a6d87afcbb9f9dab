"""What users chose next, after what they had chosen before: data of models that retrieve."""

from __future__ import annotations

import numpy as np

from leashed.base import checks
from leashed.datasets.clicks import Bags, ClickDataset, ClickSplit

__all__ = ["next_items"]


def next_items(sequences: Bags, length: int = 50, name: str = "next_items") -> ClickSplit:
    """One example for each item but the first that a user chose: what they had chosen before, from
    the oldest on, and the item. The last item of each user of at least three is for testing.

    Args:
        sequences: A bag for each user, the items in the order in which they were chosen.
        length: Most items of a history, the latest.
        name: What plots and reports call the sets.

    Returns:
        ``ClickSplit(train, test)`` with the features ``history``, ``Bags``, and ``chosen``; every
        example is clicked, and there are no numbers.

    Raises:
        TypeError, ValueError: ``sequences`` are no ``Bags``, ``length`` is below 1, or no user has
            three items.
    """
    if not isinstance(sequences, Bags):
        raise TypeError(f"sequences must be Bags, one for each user, got {sequences!r}")
    length = checks.whole("length", length)
    lengths = np.diff(sequences.offsets)
    if not (lengths > 2).any():
        raise ValueError("sequences must have a user with at least three items")
    # Of each item: its place in its user's sequence, and whether it is the last of one.
    place = np.arange(len(sequences.ids)) - np.repeat(sequences.offsets[:-1], lengths)
    last = (place + 1 == np.repeat(lengths, lengths)) & (place >= 2)
    return ClickSplit(
        _examples(sequences, np.flatnonzero((place > 0) & ~last), place, length, f"{name}/train"),
        _examples(sequences, np.flatnonzero(last), place, length, f"{name}/test"),
    )


def _examples(
    sequences: Bags, chosen: np.ndarray, place: np.ndarray, length: int, name: str
) -> ClickDataset:
    lengths = np.minimum(place[chosen], length)
    offsets = np.append(0, np.cumsum(lengths))
    entries = np.repeat(chosen - lengths - offsets[:-1], lengths) + np.arange(offsets[-1])
    return ClickDataset.from_arrays(
        None,
        {"history": Bags(sequences.ids[entries], offsets), "chosen": sequences.ids[chosen]},
        np.ones(len(chosen), np.int32),
        name=name,
    )
