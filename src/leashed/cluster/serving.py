"""What servers of every role do alike: connections that are handed to the core, and when it is over."""

from __future__ import annotations

import contextlib
import logging
import queue
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import CancelledError, Future
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, TypeAlias

from leashed.cluster import fingerprint
from leashed.cluster.addressing import is_local, reached, within
from leashed.cluster.member import Lost, Member, master_address
from leashed.cluster.messages import Bye, Cut, Kept, Welcome
from leashed.cluster.opening import Key, Listener, Peer
from leashed.cluster.readiness import tell_made

if TYPE_CHECKING:
    from leashed.cluster.plan import Plan

__all__ = ["REPORT", "Made", "Place", "Serving", "accepting", "making", "over"]

REPORT = 0.25
"""Seconds between two reports."""

_log = logging.getLogger(__name__)


class Serving(Protocol):
    """What of the core serves."""

    def adopt(self, socket: int, checked: bool, transport: str = ..., /) -> None:
        """Takes a trainer's connection over."""


Made: TypeAlias = "Future[tuple[str, Serving]]"
"""Of which run, and who serves it, once that is known."""


@dataclass(frozen=True)
class Place:
    """Where a process that serves has its run.

    Attributes:
        master: the master's address, or what tells it.
        key: what connections are opened with.
        host: where to listen.
        folder: of the run, for what is saved.
        grace: seconds for which a master that is away is waited for.
        transport: as of ``session.Cluster``.
        port: likewise.
        advertise: likewise.
        job: likewise.
        snapshot_every: seconds between two snapshots, where writing one takes less than a tenth of
            that: what came since the last is lost by a restart.
        resume: the checkpoint's folder that the run goes on from. Default: it begins.
        cuts: the folder of the run's checkpoints. Default: that of the run.
        restarts: whether who dies is started again.
    """

    master: str | Callable[[], str]
    key: Key
    host: str
    folder: Path
    grace: float
    transport: str
    port: int = 0
    advertise: str | None = None
    job: str = ""
    snapshot_every: float = 1.0
    resume: Path | None = None
    cuts: Path | None = None
    restarts: bool = True

    @classmethod
    def of(cls, plan: Plan, role: str, index: int) -> Place:
        """Of a process that a plan describes. OSError, ValueError: its key cannot be read."""
        cluster = plan.cluster
        return cls(
            master=master_address(cluster.run, cluster.known_master),
            key=cluster.read_key(),
            host=cluster.host,
            port=cluster.port(role, index),
            folder=cluster.run,
            grace=cluster.grace,
            transport=cluster.transport,
            job=cluster.name,
            snapshot_every=cluster.snapshot_every,
            resume=cluster.resume,
            cuts=cluster.cuts,
            restarts=cluster.restarts > 0,
        )

    @contextlib.contextmanager
    def joined(
        self,
        role: str,
        index: int,
        accept: Callable[[socket.socket, Peer], None],
        words: Mapping[str, str],
        kept: Kept | None = None,
        *,
        returns: bool = False,
    ) -> Iterator[tuple[Member, queue.SimpleQueue[object]]]:
        """A member of the run within, and what it hears.

        Args:
            role: what it is.
            index: which one.
            accept: as of ``Listener``.
            words: what it has that all of the run must have alike, by name, beside its job.
            kept: as of ``Member``.
            returns: likewise.

        Raises:
            ValueError: the run is another.
            OSError: the master cannot be reached, or the port is in use.
        """
        heard: queue.SimpleQueue[object] = queue.SimpleQueue()
        with (
            contextlib.closing(Listener(self.host, self.port, self.key, role, accept)) as listener,
            contextlib.closing(
                Member(
                    self.master,
                    self.key,
                    role=role,
                    index=index,
                    listening=reached(listener, self.advertise),
                    heard=heard.put,
                    grace=self.grace,
                    fingerprint={**words, **fingerprint.of_job(self.job)},
                    kept=kept,
                    returns=returns,
                )
            ) as member,
        ):
            yield member, heard


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
def making() -> Iterator[Made]:
    """What is to be made within; whoever waits for it, where it fails to be, is told so."""
    made: Made = Future()
    try:
        yield made
    finally:
        made.cancel()


def over(
    heard: queue.SimpleQueue[object],
    member: Member,
    run: str,
    cut: Callable[[Cut], None] | None = None,
    other: Callable[[object], None] | None = None,
    seconds: float = REPORT,
) -> bool:
    """Whether the run has ended; waits for news until it is time to report, for so many ``seconds``. ``cut``
    is called with what the master says of cuts, where there is something to be saved, ``other`` with all
    that it says.

    Raises:
        ConnectionError: the master is lost, or of another run.
    """
    end = time.monotonic() + seconds
    while (left := end - time.monotonic()) > 0:
        try:
            event = heard.get(timeout=left)
        except queue.Empty:
            break
        if isinstance(event, Bye):
            return True
        if isinstance(event, Cut) and cut is not None:
            cut(event)
        if other is not None:
            other(event)
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
        run, server = tell_made(link, made)
        if not name.endswith(within(run, "")):
            raise ValueError(f"{name} is of another run, which has the same key")
        server.adopt(link.detach(), checked, transport)
    except (CancelledError, OSError, ValueError) as error:
        link.close()
        _log.info("a trainer's connection: %s", str(error))
