"""The role ``sync-ps``: a server that holds fragments of w^PS (shadowsync, section 3.1).

Beside what it serves, it writes a snapshot now and then, if something has changed, from which it goes
on where it is started again: what trainers have exchanged since then is lost, and counted. One that is
told to end, or whose run or master is no more, writes a last one.
"""

from __future__ import annotations

import logging
import os
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from leashed import _core
from leashed.cluster import checkpoints, fingerprint, packing
from leashed.cluster.cut_tending import ServerCuts
from leashed.cluster.keeping import Counts, Keeping, replacing
from leashed.cluster.keeping import Counts as _Counts  # noqa: F401 (its old name)
from leashed.cluster.messages import Saved, Welcome
from leashed.cluster.server_tending import EXCHANGE
from leashed.cluster.serving import Place, accepting, making, over

if TYPE_CHECKING:
    from leashed.cluster.plan import Plan

__all__ = ["held_in", "run", "serve"]

_log = logging.getLogger(__name__)


def run(plan: Plan, index: int) -> None:
    """The role as a plan describes it, until the run has ended.

    Raises:
        OSError: the master cannot be reached, or the run's folder not be written.
    """
    problem = plan.problem()
    plan.index(problem)  # before which no master answers
    serve(problem.model.dimension, plan.cluster.sync_ps, index, Place.of(plan, "sync-ps", index))


def serve(dimension: int, servers: int, index: int, place: Place) -> None:
    """Hold the fragments of server ``index`` of ``servers`` until the run has ended.

    Args:
        dimension: length of the parameters.
        servers: how many there are.
        index: which of them this is.
        place: where it has its run.

    Raises:
        ValueError: the run has another number of sync servers, or a snapshot is of another run.
        OSError: the master cannot be reached (any more), or a snapshot not be read.
    """
    words = {
        **fingerprint.of_server(dimension),
        **fingerprint.of_servers({"sync-ps": servers}),
    }
    with making() as made:
        accept = accepting(made, EXCHANGE, place.transport)
        with place.joined("sync-ps", index, accept, words) as (member, heard):
            mine, lengths = _share(member.welcome, dimension, servers, index)
            server = _core.SyncServer(list(zip(mine, lengths, strict=True)))
            path = place.folder / f"sync-ps-{index}.snapshot"
            run = member.welcome.run
            restored = _restore(server, path, run, sum(lengths), len(mine))
            if restored == 0 and place.resume is not None:
                _begin(server, checkpoints.Checkpoint(place.resume), dimension, mine)
            tending = ServerCuts(
                member,
                place.cuts or place.folder,
                place.resume,
                lambda to: _cut(server, to, f"sync-ps-{index}", mine),
            )
            kept = Keeping(
                lambda: int(server.counters()["changes"]),
                lambda: _save(server, path, run),
                Counts(path.with_suffix(".count"), run, restored),
                restored,
                place.snapshot_every,
            )
            made.set_result((run, server))
            try:
                while not over(heard, member, run, tending):
                    counted = _counters(server, len(mine))
                    kept.keep(int(counted["changes"]))
                    member.report({**counted, "restored": restored, **kept.counters()})
            finally:
                kept.end()


def _share(
    welcome: Welcome, dimension: int, servers: int, index: int
) -> tuple[tuple[int, ...], list[int]]:
    """The fragments of this server, and how long they are."""
    placed = welcome.placed.get("sync-ps")
    if placed is None:
        raise ValueError("the run has no sync servers; give all of its processes servers= above 0")
    cut = packing.fragments(dimension)
    mine = packing.packed(dimension, servers, placed.costs).servers[index]
    return mine, [cut[k][1] - cut[k][0] for k in mine]


def _begin(
    server: _core.SyncServer,
    begins: checkpoints.Checkpoint,
    dimension: int,
    mine: tuple[int, ...],
) -> None:
    """With what a checkpoint has of its fragments."""
    if (found := begins.w_ps(dimension)) is None:
        return
    values, known = found
    cut = packing.fragments(dimension)
    part = np.concatenate([values[slice(*cut[k])] for k in mine]) if mine else values[:0]
    server.restore(part, [bool(known[k]) for k in mine], 0)
    _log.info("goes on from w^PS in %s", begins.folder)


def _cut(server: _core.SyncServer, folder: Path, name: str, mine: tuple[int, ...]) -> list[Saved]:
    """Its part of a checkpoint in that folder."""
    values, present, _ = server.snapshot()
    folder.mkdir(parents=True, exist_ok=True)
    held = np.asarray(mine, "<u8"), np.asarray(present, np.bool_), np.asarray(values, "<f4")
    checkpoints.put_array(folder / f"{name}.part", *held)
    return checkpoints.saved_of(folder, f"{name}.part")


def _counters(server: _core.SyncServer, fragments: int) -> dict[str, float]:
    counted: dict[str, float] = server.counters()
    return {**counted, "whole": counted["exchanges"] / max(1, fragments)}


def _save(server: _core.SyncServer, path: Path, run: str) -> int:
    """Writes a snapshot beside the one before, which it then replaces; how many changes are in it."""
    values, present, changes = server.snapshot()
    with replacing(path, ".new") as file:
        head = np.array([changes, len(present), *present], "<u8")
        np.save(file, np.frombuffer(run.encode(), np.uint8), allow_pickle=False)
        np.save(file, head, allow_pickle=False)
        np.save(file, values, allow_pickle=False)
        file.flush()
        os.fsync(file.fileno())
    return changes


def held_in(path: Path, run: str) -> tuple[list[bool], NDArray[np.float32]] | None:
    """Of a snapshot of that run which fragments are present, and the values of all, one behind the other;
    None: there is no such snapshot.
    """
    found = _read(path)
    if found is None or found[0] != run:
        return None
    return [bool(each) for each in found[1][2:]], found[2].astype(np.float32)


def _read(path: Path) -> tuple[str, NDArray[np.uint64], NDArray[np.float32]] | None:
    """Whose a snapshot is, its head and its values; None: there is none."""
    try:
        with path.open("rb") as file:
            of, head, values = (np.load(file, allow_pickle=False) for _ in range(3))
    except FileNotFoundError:
        return None
    except EOFError:
        raise ValueError(f"{path} is damaged: remove it and its .count") from None
    return of.tobytes().decode(errors="replace"), head, values


def _restore(server: _core.SyncServer, path: Path, run: str, length: int, fragments: int) -> int:
    """Goes on from a snapshot, if there is one; how many changes are in it."""
    found = _read(path)
    if found is None:
        return 0
    of, head, values = found
    if of != run or len(head) != fragments + 2 or values.shape != (length,):
        raise ValueError(
            f"{path} is of another run; remove it and its .count, or choose another folder"
        )
    changes = int(head[0])
    server.restore(values.astype(np.float32), [bool(each) for each in head[2:]], changes)
    _log.info("goes on from a snapshot with %d changes", changes)
    return changes
