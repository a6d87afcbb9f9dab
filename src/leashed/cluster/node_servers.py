"""Which servers of a run that others have started each rank starts: rank 0 all, or the first of each node one."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from pathlib import Path

from leashed.base import checks
from leashed.cluster import placing, row_files
from leashed.cluster.row_packing import MOST_SERVERS

__all__ = ["RowsOn", "placed", "rows_on"]


@dataclass(frozen=True)
class RowsOn:
    """Where embedding servers are.

    Attributes:
        servers: how many there are.
        mine: the role and the number of each that this rank starts.
        nodes: whether there is one for each node.
        node: the number of this rank's.
    """

    servers: int
    mine: tuple[tuple[str, int], ...]
    nodes: bool = False
    node: int = 0

    def home(self, base: Path, run: int, node: int | None = None) -> Path:
        """Of what a node other than rank 0's writes of a run; by default this one's."""
        return base / f"node-{self.node if node is None else node}" / f"run-{run}"

    def folders(self, home: Path, run: int) -> list[Path]:
        """Where the servers save their rows, in their order, as rank 0 finds them."""
        homes = [
            self.home(home.parent, run, k) if self.nodes and k != self.node else home
            for k in range(self.servers)
        ]
        return [row_files.folder_of(one, k) for k, one in enumerate(homes)]


def rows_on(servers: object, place: placing.Place, folder: object, *, collect: bool) -> RowsOn:
    """Where those are that the argument ``embedding_servers`` asks for."""
    count, mine = placed("embedding_servers", servers, "embedding-ps", place, folder)
    found = RowsOn(count, tuple(mine))
    if servers == "nodes":
        found = replace(found, nodes=True, node=placing.node(os.environ, place).number)
    if found.servers and folder is None and not collect:
        raise ValueError(
            "folder must be given with embedding_servers: that is where the tables are left, in "
            "run-0/output; or give collect=True, by which rank 0's result has them"
        )
    return found


def placed(
    name: str, given: object, role: str, place: placing.Place, folder: object
) -> tuple[int, list[tuple[str, int]]]:
    """How many of a role there are, and which of them this rank starts, as the argument ``name`` says."""
    if isinstance(given, str) and given != "nodes":
        raise ValueError(f'{name} must be a number or "nodes", got {given!r}')
    if given == "nodes":
        node = placing.node(os.environ, place, name)
        if folder is None and node.nodes > 1:
            raise ValueError(
                f'folder must be given with {name}="nodes" on several nodes: where each leaves '
                "what its process writes, and rank 0 the run's output"
            )
        return node.nodes, [(role, node.number)] if place.local_rank == 0 else []
    count = checks.whole(name, given, 0, MOST_SERVERS)
    return count, [(role, k) for k in range(count)] if place.rank == 0 else []
