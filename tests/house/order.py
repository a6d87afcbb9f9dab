"""What depends on what, for the tests that hold the house up: rooms by height, and circles."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def heights(floors: Iterable[str]) -> dict[str, int]:
    """The height of each name, from a list of floors from below, several names on one."""
    return {name: height for height, floor in enumerate(floors) for name in floor.split()}


def circle(graph: Mapping[str, Iterable[str]]) -> list[str]:
    """The names along one circle of the graph; empty where there is none."""
    done: set[str] = set()
    path: list[str] = []

    def visit(name: str) -> list[str]:
        if name in path:
            return [*path[path.index(name) :], name]
        if name in done:
            return []
        path.append(name)
        for other in graph.get(name, ()):
            if found := visit(other):
                return found
        done.add(path.pop())
        return []

    return next((found for name in graph if (found := visit(name))), [])
