"""What a run has come to that nobody has handed in: from its sync servers' snapshots, or from the files
that its trainers have kept.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from leashed.cluster import journal, packing, server
from leashed.cluster.plan import Plan
from leashed.files import checkpoint
from leashed.models.network import Model

__all__ = ["find"]


def find(folder: Path, plan: Plan, model: Model) -> tuple[str, NDArray[np.float32]] | None:
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
        parameters = np.zeros(model.dimension, np.float32)
        cut = packing.fragments(model.dimension)
        whole = True
        for index, mine in enumerate(packing.packed(model.dimension, servers, began.costs).servers):
            held = server.held_in(folder / f"sync-ps-{index}.snapshot", began.run)
            whole &= held is not None and all(held[0]) and len(held[0]) == len(mine)
            if held is None or not whole:
                break
            at = 0
            for fragment in mine:
                first, end = cut[fragment]
                parameters[first:end] = held[1][at : at + end - first]
                at += end - first
        if whole:
            return "w^PS, of the sync servers' last snapshots", parameters
    kept = []
    for path in sorted(folder.glob("trainer-*.kept")):
        _, tensors, metadata = checkpoint.read(path)
        told = json.loads(metadata["run"])
        if told.get("run") == began.run:
            used = told["batches"] - sum(count for _, count in told["open"])
            kept.append((used, path.stem, checkpoint.whole(model, tensors, "")))
    if not kept:
        return None
    used, name, parameters = max(kept, key=lambda each: each[0])
    return f"what {name} had kept when {used:,} batches were used", parameters
