"""What policy servers report of their mode."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from leashed.cluster.mode_table import BEHIND

__all__ = ["heard", "told_of"]


def heard(counted: Mapping[str, Any]) -> int:
    """How many pushes a server's mode was told of, by its counters: those that came, and what is in sums of workers."""
    return int(counted.get("pushes", 0) + counted.get("summed", 0))


def told_of(standing: dict[str, Any], counted: dict[str, float]) -> dict[str, float]:
    """What the report of a run has of it."""
    names = ("applied", "stale", "late", "straggler", "missing", "exchanges", "updates")
    tokens = [int(count) for count in standing["data_staleness"]]
    return {
        **{name: float(value) for name, value in counted.items()},
        **{f"mode_{name}": float(standing[name]) for name in names},
        "mode_pushed": float(sum(map(int, standing["worker_examples"]))),
        "mode_data_staleness": float(sum(step * count for step, count in enumerate(tokens))),
        "mode_data_gradients": float(sum(tokens)),
        **_octaves(tokens),
    }


def _octaves(counts: list[int]) -> dict[str, float]:
    """Of counts by steps those of 0, 1, 2 to 3, 4 to 7, ..., where there are some, by the first of each."""
    found = {f"{BEHIND}0": float(sum(counts[:1]))}
    first = 1
    while first < len(counts):
        if some := sum(counts[first : 2 * first]):
            found[f"{BEHIND}{first}"] = float(some)
        first *= 2
    return found
