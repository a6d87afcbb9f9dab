"""What servers of every role do alike: connections that are handed to the core, and when it is over."""

from __future__ import annotations

import contextlib
import logging
import queue
import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError, Future
from typing import Protocol, TypeAlias

from leashed.cluster.addressing import is_local, within
from leashed.cluster.member import Lost, Member
from leashed.cluster.messages import Bye, Cut, Welcome
from leashed.cluster.opening import Peer

__all__ = ["REPORT", "Made", "Serving", "accepting", "cancelling", "over"]

REPORT = 0.25
"""Seconds between two reports."""

_log = logging.getLogger(__name__)


class Serving(Protocol):
    """What of the core serves."""

    def adopt(self, socket: int, checked: bool, transport: str = ..., /) -> None:
        """Takes a trainer's connection over."""


Made: TypeAlias = "Future[tuple[str, Serving]]"
"""Of which run, and who serves it, once that is known."""


def accepting(made: Made, purpose: str, transport: str) -> Callable[[socket.socket, Peer], None]:
    """What a listener calls with each connection: those for that purpose are handed over."""

    def accept(link: socket.socket, peer: Peer) -> None:
        if peer.purpose != purpose:
            link.close()
            return
        arguments = made, link, peer.name, not is_local(peer.address), transport
        # The two sides agree on the transport, which may take them seconds. (No daemon, as it would
        # abort the process were it in the core when the interpreter ends.)
        threading.Thread(target=_adopt, args=arguments, daemon=False).start()

    return accept


@contextlib.contextmanager
def cancelling(made: Made) -> Iterator[None]:
    """Whoever waits for it, where it fails to be made, is told so."""
    try:
        yield
    finally:
        made.cancel()


def over(
    heard: queue.SimpleQueue[object],
    member: Member,
    run: str,
    cut: Callable[[Cut], None] | None = None,
) -> bool:
    """Whether the run has ended; waits for news until it is time to report. ``cut`` is called with what
    the master says of cuts, where there is something to be saved.

    Raises:
        ConnectionError: the master is lost, or of another run.
    """
    end = time.monotonic() + REPORT
    while (left := end - time.monotonic()) > 0:
        try:
            event = heard.get(timeout=left)
        except queue.Empty:
            break
        if isinstance(event, Bye):
            return True
        if isinstance(event, Cut) and cut is not None:
            cut(event)
        if isinstance(event, Welcome) and event.run != run:
            raise ConnectionError(f"its master's place is taken by that of run {event.run}")
        if isinstance(event, Lost):
            raise ConnectionError(event.reason)
    if member.state == "failed":
        raise ConnectionError("what kept the connection to the master has failed")
    return member.state == "over"


def _adopt(made: Made, link: socket.socket, name: str, checked: bool, transport: str) -> None:
    """Hand a connection over, once there is a server, if it is of its run."""
    try:
        run, server = made.result()
        if not name.endswith(within(run, "")):
            raise ValueError(f"{name} is of another run, which has the same key")
        server.adopt(link.detach(), checked, transport)
    except (CancelledError, ValueError) as error:
        link.close()
        _log.info("a trainer's connection: %s", error)
