"""Processes of runs, found by their command lines."""

from __future__ import annotations

import contextlib
from pathlib import Path

__all__ = ["child", "pids", "running"]


def running() -> dict[int, list[str]]:
    """The words of each process's command line, by its id."""
    found = {}
    for each in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):  # it has ended meanwhile
            words = each.read_bytes().decode(errors="replace").rstrip("\0")
            found[int(each.parent.name)] = words.split("\0")
    return found


def pids(folder: Path) -> dict[str, int]:
    """Those of the run in a folder, by role and index, such as ``trainer-1``."""
    found = {}
    for pid, words in running().items():
        if "leashed.cluster.role" in words and str(folder / "plan.toml") in words:
            role, index = words[words.index("--plan") - 1], words[words.index("--index") + 1]
            found[f"{role}-{index}"] = pid
    return found


def child(home: Path, role: str, index: int) -> int | None:
    """That one of a joined run in this folder; None: it is not there."""
    wanted = ["leashed.cluster.child", role, str(home), str(index)]
    return next((pid for pid, words in running().items() if words[-4:] == wanted), None)
