"""Sync servers in a process of their own, each behind a link of given bandwidth.

A link is a token bucket each way, in front of its server: what comes from the trainers and what goes
to them is read in pieces, and a piece is passed on when all bytes before it have had their time. It
counts bytes, so it is as exact as its clock; a pause of the processor of up to 20 ms is made up for
afterwards. Unlike ``tc`` it needs no privileges, and the sync server knows nothing of it.

Run as a script this is that process: ``python -m leashed.cluster.shadowsync.servers ASKED DESCRIPTOR``, with
what is asked as JSON. Over the descriptor, a Unix socket, come the trainers' connections, each with
the number of its server, and the question for the counters; its end ends the process.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import subprocess
import sys
import time
from dataclasses import dataclass
from typing import Any

from leashed import _core
from leashed.base import checks
from leashed.base.closing import Closing
from leashed.cluster import packing

__all__ = ["Link", "Servers", "pair"]

_PIECE = 1 << 15  # bytes
_SLACK = 0.02  # seconds of bandwidth that are made up for
_ANSWER = 10.0  # seconds in which the process is expected to answer
_LINE = 1 << 16
_MOST = 255  # a byte tells which


def pair() -> tuple[socket.socket, socket.socket]:
    """A TCP connection over loopback, both ends of it. Nobody else can get in: it is listened for
    one connection, which must be our own.

    Raises:
        ConnectionError: somebody else was sooner.
    """
    with socket.create_server(("127.0.0.1", 0), backlog=1) as listener:
        one = socket.create_connection(listener.getsockname())
        other, address = listener.accept()
    if address != one.getsockname():
        one.close()
        other.close()
        raise ConnectionError("a process that is none of this run has connected")
    for end in (one, other):
        end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return one, other


class Servers(Closing):
    """So many sync servers for a vector of so many floats, until ``close``.

    Args:
        dimension: length of the parameters.
        count: how many servers.
        bandwidth: of each server's link, bytes per second each way; None: without a limit; 0: nothing
            goes over it, so that connections are there and no exchange is ever answered.

    Raises:
        TypeError, ValueError: an argument is wrong; the message names it.
        OSError: the process cannot be started.
    """

    def __init__(self, dimension: int, count: int, bandwidth: float | None = None) -> None:
        self.dimension = checks.whole("dimension", dimension)
        self.count = checks.whole("count", count, 1, _MOST)
        if bandwidth is not None and checks.real("bandwidth", bandwidth) < 0.0:
            raise ValueError(f"bandwidth must be at least 0, got {bandwidth:g}")
        asked = json.dumps({"dimension": dimension, "count": count, "bandwidth": bandwidth})
        ours, its = socket.socketpair()
        with its:
            self._process = subprocess.Popen(  # noqa: S603  (this Python, and JSON)
                [sys.executable, "-m", __name__, asked, str(its.fileno())],
                pass_fds=[its.fileno()],
                start_new_session=True,  # a terminal's Ctrl-C comes here alone
            )
        self._control = ours
        ours.settimeout(_ANSWER)

    def connect(self, server: int) -> socket.socket:
        """A trainer's connection with a server, over its link.

        Raises:
            OSError: the process has ended.
        """
        one, other = pair()
        with other:
            socket.send_fds(self._control, [bytes([1, server])], [other.fileno()])
        return one

    def counters(self) -> dict[str, float]:
        """Of all servers together: ``exchanges`` of fragments, ``bytes_in``, ``bytes_out``; and
        ``cpu_seconds`` of their process, links included.

        Raises:
            OSError: the process has ended.
        """
        self._control.sendall(bytes([0, 0]))
        said = b""
        while not said.endswith(b"\n"):
            piece = self._control.recv(_LINE)
            if not piece:
                raise ConnectionError("the sync servers' process has ended")
            said += piece
        counted: dict[str, float] = json.loads(said)
        return counted

    def close(self) -> None:
        """Ends them."""
        self._control.close()
        try:
            self._process.wait(_ANSWER)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


@dataclass
class Link:
    """One direction of a link: when the last byte that was passed to it is through.

    Attributes:
        bandwidth: bytes per second.
        through: the time, on the caller's clock.
    """

    bandwidth: float
    through: float = 0.0

    def carry(self, size: int, now: float) -> float:
        """When so many bytes, which come at ``now``, are through."""
        self.through = max(self.through, now - _SLACK) + size / self.bandwidth
        return self.through


async def _pump(source: socket.socket, target: socket.socket, link: Link) -> None:
    """Carries what comes from one socket to the other, until either ends."""
    loop = asyncio.get_running_loop()
    with contextlib.suppress(OSError):
        while data := await loop.sock_recv(source, _PIECE):
            now = time.monotonic()
            await asyncio.sleep(link.carry(len(data), now) - now)
            await loop.sock_sendall(target, data)


async def _relay(trainer: socket.socket, server: socket.socket, up: Link, down: Link) -> None:
    with trainer, server:
        for end in (trainer, server):
            end.setblocking(False)
        both = [
            asyncio.ensure_future(_pump(trainer, server, up)),
            asyncio.ensure_future(_pump(server, trainer, down)),
        ]
        try:
            await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for each in both:
                each.cancel()
            await asyncio.gather(*both, return_exceptions=True)


class _Served:
    """The servers, in their process."""

    def __init__(self, dimension: int, count: int, bandwidth: float | None) -> None:
        cut = packing.fragments(dimension)
        self.servers = [
            _core.SyncServer([(k, cut[k][1] - cut[k][0]) for k in mine])
            for mine in packing.packed(dimension, count, packing.BY_LENGTH).servers
        ]
        self.bandwidth = bandwidth
        self.links = [(Link(bandwidth or 1.0), Link(bandwidth or 1.0)) for _ in self.servers]
        self.relays: set[asyncio.Task[None]] = set()
        self.unanswered: list[socket.socket] = []

    def connected(self, server: int, trainer: socket.socket) -> None:
        """A trainer has connected with a server."""
        if self.bandwidth is None:
            self.servers[server].adopt(trainer.detach(), False)
        elif self.bandwidth == 0.0:
            self.unanswered.append(trainer)
        else:
            here, there = socket.socketpair()
            self.servers[server].adopt(there.detach(), False)
            relay = asyncio.ensure_future(_relay(trainer, here, *self.links[server]))
            self.relays.add(relay)
            relay.add_done_callback(self.relays.discard)

    def counters(self) -> dict[str, float]:
        """As of ``Servers``."""
        each = [server.counters() for server in self.servers]
        names = ("exchanges", "bytes_in", "bytes_out")
        sums = {name: sum(counted[name] for counted in each) for name in names}
        return {**sums, "cpu_seconds": time.process_time()}

    async def serve(self, control: socket.socket) -> None:
        """Until the other end of ``control`` is closed."""
        control.setblocking(False)
        loop = asyncio.get_running_loop()
        over: asyncio.Future[None] = loop.create_future()

        def heard() -> None:
            try:
                said, descriptors, _, _ = socket.recv_fds(control, 2, 1)
            except BlockingIOError:
                return
            if not said:
                loop.remove_reader(control)
                over.set_result(None)
            elif said[0]:
                self.connected(said[1], socket.socket(fileno=descriptors[0]))
            else:
                control.send(json.dumps(self.counters()).encode() + b"\n")

        loop.add_reader(control, heard)
        await over


def _main(asked: str, descriptor: str) -> None:
    words: dict[str, Any] = json.loads(asked)
    with socket.socket(fileno=int(descriptor)) as control:
        asyncio.run(_Served(**words).serve(control))


if __name__ == "__main__":
    _main(*sys.argv[1:])
