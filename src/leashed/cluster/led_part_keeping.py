"""What a policy server behind the first of several leaves to the process that is started in its place: as the only
one of a run does (``led_keeping``). But the first goes on meanwhile, and so do the batches that it leases: what
was heard since the snapshot is trained nowhere anew. It is lost for this server's part of the parameters, and
its rows, where it counts as missing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from leashed import _core
from leashed.cluster.led_keeping import ServerKeeping, Snapshot, tell_lost

__all__ = ["PartKeeping"]


class PartKeeping(ServerKeeping):
    """Of one behind the first; else as ``ServerKeeping``."""

    _server: _core.PartServer | None = None

    @property
    def again(self) -> bool:
        """Whether there was a process of this run's before this one."""
        return self._ever.lives > 1

    def serve(self, server: _core.PartServer) -> None:
        """Keeps that one from now on."""
        self._server = server
        self._keeps(server)

    def keep(self, pushes: int) -> None:
        """There were so many: writes what is due."""
        _, keeping = self._served
        keeping.keep(pushes)

    def _began(self, then: Mapping[str, Any], *, again: bool) -> None:
        if again:
            tell_lost(then, self._undone_pushes, self._undone)

    def _moment(self, now: Mapping[str, Any]) -> Snapshot:
        assert self._server is not None, "serve() comes first"
        (state, nodes, *_), served, (pushes, examples) = self._server.keep()
        told = {
            "batches": 0,
            "pushes": pushes,
            "examples": examples,
            "nodes": nodes,
            "commands": 0,
            "position": now["position"],
        }
        return Snapshot(told, state, served)

    def _was_written(self, taken: Snapshot) -> None:
        assert self._server is not None, "serve() comes first"
        super()._was_written(taken)
        self._server.kept(taken.told["position"])
