"""How many threads train fastest here: measured, not guessed."""

from __future__ import annotations

from collections.abc import Callable, Sequence

__all__ = ["candidates", "fastest"]

ROUNDS = 3
WORTH = 1.03  # more threads must be so many times as fast to be taken


def candidates(cores: int) -> list[int]:
    """The numbers of threads to compare: the powers of two below ``cores``, and ``cores``."""
    return [2**k for k in range((cores - 1).bit_length())] + [cores]


def fastest(counts: Sequence[int], eps: Callable[[int], float]) -> int:
    """The number of threads with the most examples per second, by the median of some rounds.

    The numbers take turns, so that a slow moment of the machine meets all alike. One that is hardly
    faster than a smaller one is not worth its threads.

    Args:
        counts: numbers of threads, ascending; with one alone nothing is measured.
        eps: trains a moment with so many threads and returns the examples per second.
    """
    if len(counts) == 1:
        return counts[0]
    rounds = [[eps(m) for m in counts] for _ in range(ROUNDS)]
    import statistics  # noqa: PLC0415 (seldom asked for)

    rates = [statistics.median(turns) for turns in zip(*rounds, strict=True)]
    best = 0
    for k, rate in enumerate(rates):
        if rate > WORTH * rates[best]:
            best = k
    return counts[best]
