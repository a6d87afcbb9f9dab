"""What a run has come to that nobody has handed in: from its sync servers' snapshots, or from the files
that its trainers have kept.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from leashed.cluster import journal, packing, server
from leashed.cluster.plan import Plan
from leashed.files import model_file

__all__ = ["find"]

_SAID = ": no trainer has handed in its parameters"


def find(
    folder: Path, plan: Plan, model: model_file.BuiltIn
) -> tuple[str, NDArray[np.float32]] | None:
    """The parameters [d] that a run without results has reached, and in words which they are: w^PS where
    the snapshots in the folder have all of it, else those of the trainer whose file there has the most
    batches in it; None: there is nothing of either.

    Raises:
        OSError: a file cannot be read.
        ValueError: the journal, or a file, is damaged.
    """
    found = journal.read(folder / "journal.jsonl")
    if found is None:
        return None
    began, *_ = found
    servers = plan.cluster.sync_ps
    if servers and began.costs is not None:
        packed = packing.packed(model.dimension, servers, began.costs).servers
        if (w := _w_ps(folder, began.run, model.dimension, packed)) is not None:
            return f"w^PS, of the sync servers' last snapshots{_SAID}", w
    kept = []
    for path in sorted(folder.glob("trainer-*.kept")):
        content = model_file.read(path)
        told = content.run or {}
        if told.get("run") == began.run:
            used = told["batches"] - sum(count for _, count in told["open"])
            kept.append((used, path.stem, content.parameters))
    if not kept:
        return None
    used, name, parameters = max(kept, key=lambda each: each[0])
    return f"what {name} had kept when {used:,} batches were used{_SAID}", parameters


def _w_ps(
    folder: Path, run: str, dimension: int, packed: Sequence[Sequence[int]]
) -> NDArray[np.float32] | None:
    """Of the fragments that each server has; None: the snapshots have not all of them."""
    parameters = np.zeros(dimension, np.float32)
    cut = packing.fragments(dimension)
    for index, mine in enumerate(packed):
        held = server.held_in(folder / f"sync-ps-{index}.snapshot", run)
        if held is None or held[0] != [True] * len(mine):
            return None
        at = 0
        for first, end in (cut[fragment] for fragment in mine):
            parameters[first:end] = held[1][at : at + end - first]
            at += end - first
    return parameters
