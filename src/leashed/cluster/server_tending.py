"""A trainer's connections to servers of one role: made where one is there and not connected to, again
and again.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Protocol

from leashed.cluster.addressing import is_local
from leashed.cluster.connecting import Connecting
from leashed.cluster.readiness import await_made
from leashed.cluster.roles import ROLES

__all__ = ["BATCHES", "EXCHANGE", "POLICY", "ROWS", "Served", "ServerTending"]

EXCHANGE = "exchange"
"""What a connection to a sync server is for."""
ROWS = "rows"
"""What one to an embedding server is for."""
POLICY = "policy"
"""What one to a policy server is for."""
BATCHES = "batches"
"""What one to a reader is for."""

_AGAIN = 0.2  # seconds before a connection is tried again
_PROBING = 5.0  # seconds, at most, in which a server has to answer before it is relied on
_MAKING = "it says that it still makes or reads what it serves"

_log = logging.getLogger(__name__)


class Served(Protocol):
    """What of the core has connections with servers."""

    @property
    def slots(self) -> int:
        """Threads that need one with each."""

    def missing(self, servers: int, /) -> list[tuple[int, int]]:
        """(slot, server) of each that is wanted and not there."""

    def adopt(
        self,
        slot: int,
        server: int,
        socket: int,
        checked: bool,
        transport: str = ...,
        patience: float = ...,
        /,
    ) -> bool:
        """Takes one over; False: nobody answers."""


class ServerTending:
    """Tends them.

    Args:
        role: the servers'.
        purpose: what a connection to one is for.
        connecting: makes connections.
        servers: how many there are.
        transport: as of ``Cluster``.
        expect: called with what is to have the connections, whenever a server says that it will serve.
    """

    def __init__(
        self,
        role: str,
        purpose: str,
        connecting: Connecting,
        servers: int,
        transport: str,
        expect: Callable[[Any], None] = lambda _: None,
    ) -> None:
        self._role = role
        self._purpose = purpose
        self._connecting = connecting
        self._servers = servers
        self._transport = transport
        self._expect = expect
        self._addresses: dict[int, str] = {}
        self._known: set[int] = set()  # that were there
        self._missing: set[int] = set()
        self._under_way: set[tuple[int, int]] = set()
        self._making: dict[int, int] = {}  # the slot whose connection waits for that server
        self._told: set[int] = set()  # of which it was said that they are waited for
        self._why: dict[int, str] = {}  # it is not reached

    def told(self, addresses: Mapping[int, str]) -> None:
        """These are there, by index."""
        self._addresses = dict(addresses)
        self._known.update(addresses)

    @property
    def came(self) -> bool:
        """Whether each has been there, which may have left since."""
        return len(self._known) >= self._servers

    def tend(self, native: Served) -> None:
        """Begins to make those connections that are missing."""
        if native.slots == 0:
            return
        missing = native.missing(self._servers)
        self._missing = {server for _, server in missing}
        for slot, server in missing:
            if (slot, server) in self._under_way or server not in self._addresses:
                continue
            if server in self._making:
                continue
            self._under_way.add((slot, server))
            address = self._addresses[server]
            if not self._connecting.start(partial(self._reach, native, slot, server, address)):
                self._under_way.discard((slot, server))
                return  # and is tried again

    def amiss(self) -> dict[str, str]:
        """Which are not reached and why, in words, by name."""
        found = {}
        for server in sorted(self._missing):
            where = self._addresses.get(server)
            name = f"{ROLES[self._role].words} {server}" + (f" at {where}" if where else "")
            why = "it has left the run" if server in self._known else "it has not joined the run"
            if where:
                why = self._why.get(server, "it does not answer")
            found[f"{self._role} {server}"] = f"{name} is not reached: {why}"
        return found

    def _reach(self, native: Served, slot: int, server: int, address: str) -> None:
        try:
            patience = min(self._connecting.timeout, _PROBING)
            making = partial(self._wait, native, slot, server, address, time.monotonic())
            with self._connecting.connect(address, self._purpose, self._role) as link:
                await_made(link, patience, making)
                checked = not is_local(address)
                adopted = native.adopt(
                    slot, server, link.detach(), checked, self._transport, patience
                )
            if not adopted:
                raise TimeoutError(f"it does not answer within {patience:g} s")
            self._why.pop(server, None)
            self._told.discard(server)
        except (OSError, ValueError) as error:
            if self._why.get(server) != str(error):
                words = ROLES[self._role].words
                _log.info("%s %d at %s: %s", words, server, address, str(error))
            self._why[server] = str(error)
            self._connecting.closing.wait(_AGAIN)
        finally:
            if self._making.get(server) == slot:
                del self._making[server]
            self._under_way.discard((slot, server))

    def _wait(self, native: Served, slot: int, server: int, address: str, since: float) -> None:
        """A server is being made; OSError where this connection is not to wait for it."""
        if self._connecting.closing.is_set():
            raise OSError("nobody waits for it any more")
        if self._making.setdefault(server, slot) != slot:
            raise OSError(_MAKING)
        self._expect(native)
        self._why[server] = _MAKING
        if server not in self._told and time.monotonic() >= since + _PROBING:
            self._told.add(server)
            words = ROLES[self._role].words
            _log.warning("%s %d at %s is waited for: %s", words, server, address, _MAKING)
