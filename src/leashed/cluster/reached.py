"""What a run has come to that nobody has handed in: from its sync servers' snapshots, from the files that its
trainers have kept, or from those that its policy servers have left.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from leashed.cluster import journal, packing, parameter_shards, server
from leashed.cluster.led_leaving import parameters_left
from leashed.cluster.plan import Plan
from leashed.files import model_file, resuming
from leashed.models._running import Running, mean

__all__ = ["Reached", "find"]


class Reached(NamedTuple):
    """What a run has come to.

    Attributes:
        what: that is, in words.
        parameters: [d].
        running: the statistics that the model normalises by; None: there are none.
    """

    what: str
    parameters: NDArray[np.float32]
    running: Running | None


def find(folder: Path, plan: Plan, model: model_file.BuiltIn, since: float = 0.0) -> Reached | None:
    """The parameters that a run has reached: w^PS where the snapshots in
    the folder have all of it, else those of the trainer whose file there has the most batches in it; by a
    mode what its policy servers have left. None: there is nothing of these. Statistics are that trainer's; of w^PS the mean of those that all
    have kept. Files that were not written after ``since``, seconds since 1970,
    are none: a file system's clock may tell two of one moment alike.

    Raises:
        OSError: a file cannot be read.
        ValueError: the journal, or a file, is damaged.
    """
    found = journal.read(folder / "journal.jsonl")
    if found is None:
        return None
    began, *_ = found
    cluster = plan.cluster
    if cluster.policy_ps:
        spans = parameter_shards.spans(model, cluster.policy_ps, cluster.shards)
        left = parameters_left(folder, began.run, spans, model.dimension, since)
        return None if left is None else Reached(str(left), left.parameters, None)
    kept = []
    for path in sorted(folder.glob("trainer-*.kept")):
        if path.stat().st_mtime <= since:
            continue
        content = model_file.read(path)
        told = content.run or {}
        if told.get("run") == began.run:
            used = told["batches"] - sum(count for _, count in told["open"])
            what = f"what {path.stem} had kept when {used:,} batches were used"
            running = resuming.statistics(content)
            kept.append((used, Reached(what, content.parameters, running)))
    servers = plan.cluster.sync_ps
    if servers and began.costs is not None:
        packed = packing.packed(model.dimension, servers, began.costs).servers
        if (w := _w_ps(folder, began.run, model.dimension, packed, since)) is not None:
            running = mean(each.running for _, each in kept)
            return Reached("w^PS, of the sync servers' last snapshots", w, running)
    return max(kept, key=lambda each: each[0])[1] if kept else None


def _w_ps(
    folder: Path, run: str, dimension: int, packed: Sequence[Sequence[int]], since: float
) -> NDArray[np.float32] | None:
    """Of the fragments that each server has; None: the snapshots have not all of them."""
    parameters = np.zeros(dimension, np.float32)
    cut = packing.fragments(dimension)
    for index, mine in enumerate(packed):
        path = folder / f"sync-ps-{index}.snapshot"
        held = server.held_in(path, run)
        if held is None or held[0] != [True] * len(mine) or path.stat().st_mtime <= since:
            return None
        at = 0
        for first, end in (cut[fragment] for fragment in mine):
            parameters[first:end] = held[1][at : at + end - first]
            at += end - first
    return parameters
