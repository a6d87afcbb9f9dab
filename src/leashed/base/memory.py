"""How much memory this process may take, and still take."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

__all__ = ["available", "total"]


def available(root: Path = Path("/")) -> int | None:
    """Bytes that the system has left, or one of the control groups (v2 or v1) that this process is
    in, whichever is less; what only keeps files in memory counts as left. None: nothing tells.

    Args:
        root: where ``proc`` and ``sys`` are.
    """
    left = [*_of_system(root, "MemAvailable"), *(left for _, left in _of_groups(root))]
    return max(0, min(left)) if left else None


def total(root: Path = Path("/")) -> int | None:
    """Bytes that the system has, or that the limit of one of those groups is, whichever is less,
    however many of them are in use. None: nothing tells.

    Args:
        root: where ``proc`` and ``sys`` are.
    """
    most = [*_of_system(root, "MemTotal"), *(limit for limit, _ in _of_groups(root))]
    return min(most) if most else None


def _of_system(root: Path, asked: str) -> Iterator[int]:
    for line in _lines(root / "proc/meminfo"):
        name, _, value = line.partition(":")
        if name == asked:
            yield 1024 * int(value.split()[0])


def _of_groups(root: Path) -> Iterator[tuple[int, int]]:
    """Of each its limit, and what is left of it."""
    groups = root / "sys/fs/cgroup"
    for line in _lines(root / "proc/self/cgroup"):
        _, controllers, path = line.split(":", 2)
        if not controllers:  # where both versions are mounted, v2 is in a folder of its own
            for top in (groups, groups / "unified"):
                yield from _of_group(top, path, "memory.max", "memory.current", "")
        elif "memory" in controllers.split(","):
            yield from _of_group(
                groups / "memory",
                path,
                "memory.limit_in_bytes",
                "memory.usage_in_bytes",
                "total_",
            )


def _of_group(
    top: Path, path: str, limit: str, usage: str, total: str
) -> Iterator[tuple[int, int]]:
    """Of the group and those above it, as far as they are seen from here."""
    below = [part for part in path.split("/") if part not in ("", "..")]
    for depth in range(len(below) + 1):
        group = top.joinpath(*below[:depth])
        most, used = _number(group / limit), _number(group / usage)
        if most is None or used is None:
            continue
        told = (line.split() for line in _lines(group / "memory.stat"))
        cached = (f"{total}inactive_file", f"{total}active_file")
        yield most, most - used + sum(int(value) for name, value in told if name in cached)


def _number(path: Path) -> int | None:
    """None where there is no such file, or it says "max"."""
    text = "".join(_lines(path))
    return int(text) if text.isdigit() else None


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text(encoding="utf-8").splitlines()
    except OSError:
        return []
