"""Connections of a trainer's workers with those of others, with whom they sum gradients (docs/modes.md)."""

from __future__ import annotations

import logging
import socket
from functools import partial

from leashed import _core
from leashed.cluster.addressing import is_local, within
from leashed.cluster.connecting import Connecting
from leashed.cluster.lives import SLOTS
from leashed.cluster.messages import Epoch
from leashed.cluster.opening import Peer

__all__ = ["SUM", "SumTending"]

SUM = "sum/"
"""What such a connection is for, with the number of the worker that is called and of the one that calls
behind it, each within its trainer.
"""

_AGAIN = 0.2  # seconds before a connection is tried again
_TRAINER = "trainer-"

_log = logging.getLogger(__name__)


class SumTending:
    """Makes them, and takes those that others make.

    Args:
        connecting: makes connections.
        mode: whose workers have them.
        index: of this trainer.
        transport: as of ``Cluster``.
    """

    def __init__(
        self, connecting: Connecting, mode: _core.ModeTrainer, index: int, transport: str
    ) -> None:
        self._connecting = connecting
        self._mode = mode
        self._first = index * SLOTS
        self._transport = transport
        self._under_way: set[tuple[int, int]] = set()
        self._why: dict[int, str] = {}

    def accept(self, link: socket.socket, peer: Peer) -> None:
        """A worker of another trainer, or of this one, calls; this must not wait."""
        found = _called(peer, self._connecting.run)
        if found is None or not self._connecting.start(partial(self._take, link, peer, *found)):
            link.close()

    def tend(self, epoch: Epoch) -> None:
        """Begins to make those that are missing."""
        addresses = {seat.index: seat.address for seat in epoch.members}
        for lane, client in self._mode.wanted:
            address = addresses.get(client // SLOTS)
            if address is None or (lane, client) in self._under_way:
                continue
            self._under_way.add((lane, client))
            if not self._connecting.start(partial(self._call, lane, client, address)):
                self._under_way.discard((lane, client))
                return  # and is tried again

    def _call(self, lane: int, client: int, address: str) -> None:
        trainer, there = divmod(client, SLOTS)
        try:
            link = self._connecting.connect(address, f"{SUM}{there}/{lane}", "trainer")
            checked = not is_local(address)
            self._mode.adopt_sum(lane, client, link.detach(), checked, True, self._transport)
            self._why.pop(trainer, None)
        except (OSError, ValueError) as error:
            if self._why.get(trainer) != str(error):
                _log.info("%s%d at %s: %s", _TRAINER, trainer, address, str(error))
            self._why[trainer] = str(error)
            self._connecting.closing.wait(_AGAIN)
        finally:
            self._under_way.discard((lane, client))

    def _take(self, link: socket.socket, peer: Peer, lane: int, client: int) -> None:
        checked = not is_local(peer.address)
        try:
            self._mode.adopt_sum(lane, client, link.detach(), checked, False, self._transport)
        except (OSError, ValueError) as error:
            _log.info("a connection of %s: %s", peer.name, str(error))


def _called(peer: Peer, run: str) -> tuple[int, int] | None:
    """Which worker here is called by which one of the run, by its number of all; None: it is none of it."""
    here, _, there = peer.purpose.removeprefix(SUM).partition("/")
    end = within(run, "")
    index = peer.name.removeprefix(_TRAINER).removesuffix(end)
    known = peer.name == f"{_TRAINER}{index}{end}"
    if not (known and here.isdigit() and there.isdigit() and index.isdigit()):
        return None
    return int(here), int(index) * SLOTS + int(there)
