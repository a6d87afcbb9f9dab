"""Turns, and which of them count.

A turn is one contender's go. Beside its figure it tells which share of the processors that it asked
for it was given: near 1 on a quiet machine.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import NamedTuple, TypeVar

from bench.machine import busy_share

QUIET = 0.9
_FEWEST = 3

Key = TypeVar("Key", bound=Hashable)


class Turn(NamedTuple):
    """What a contender did in its turn."""

    eps: float  # examples per second
    cpu_share: float


def timed(train: Callable[[], float], threads: int) -> Turn:
    """A turn of this process: ``train`` returns examples per second."""
    start, cpu = time.perf_counter(), time.process_time()
    eps = train()
    elapsed = time.perf_counter() - start
    return Turn(eps, (time.process_time() - cpu) / elapsed / threads)


def take_turns(contenders: Mapping[Key, Callable[[], Turn]], rounds: int) -> dict[Key, list[Turn]]:
    """So many rounds in which everyone has a turn."""
    turns: dict[Key, list[Turn]] = {key: [] for key in contenders}
    for _ in range(rounds):
        for key, play in contenders.items():
            turns[key].append(play())
    return turns


def record(turns: Mapping[str, Sequence[Turn]]) -> dict[str, dict[str, list[float]]]:
    """The rates and processor shares of all turns, by contender."""
    return {
        "rate": {name: [turn.eps for turn in played] for name, played in turns.items()},
        "cpu_share": {
            name: [round(turn.cpu_share, 3) for turn in played] for name, played in turns.items()
        },
    }


def shortened(turns: Sequence[Turn]) -> dict[str, list[float]]:
    """What a record has of the turns of one contender."""
    return {
        "eps": [round(turn.eps, 1) for turn in turns],
        "cpu_share": [round(turn.cpu_share, 3) for turn in turns],
    }


def repeat_disturbed(
    turns: dict[Key, list[Turn]], play: Callable[[Key], Turn], patience: float
) -> None:
    """Replace disturbed turns by better ones, the least tried and most disturbed first, in moments
    when the processors are idle, for so many seconds.
    """
    tries = {(key, k): 0 for key, played in turns.items() for k in range(len(played))}
    end = time.monotonic() + patience
    while time.monotonic() < end:
        disturbed = [
            (n, turns[key][k].cpu_share, index, key, k)
            for index, ((key, k), n) in enumerate(tries.items())
            if turns[key][k].cpu_share < QUIET
        ]
        if not disturbed:
            return
        if busy_share(0.2) > 1.0 - QUIET:
            continue
        *_, key, k = min(disturbed, key=lambda entry: entry[:3])
        tries[key, k] += 1
        turns[key][k] = max(turns[key][k], play(key), key=lambda turn: turn.cpu_share)


def quiet_median(values: Sequence[float], *shares: Sequence[float]) -> float:
    """The median of the values whose every share is at least QUIET; where these are fewer than
    three, of the three values with the largest.
    """
    ranked = sorted(zip(map(min, zip(*shares, strict=True)), values, strict=True), reverse=True)
    quiet = [value for share, value in ranked if share >= QUIET]
    return statistics.median(
        quiet if len(quiet) >= _FEWEST else [value for _, value in ranked[:_FEWEST]]
    )
