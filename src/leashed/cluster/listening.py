"""Who listens for connections, and passes on those that have proven the key (``handshake``)."""

from __future__ import annotations

import contextlib
import errno
import logging
import selectors
import socket
import struct
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from leashed.base.closing import Closing
from leashed.cluster.addresses import format_address, is_loopback
from leashed.cluster.handshake import CLAIM, MAGIC, Answering, Peer, Refused
from leashed.cluster.keys import Key

__all__ = ["Listener", "check_listening", "prepare"]

_PORT_OF = (  # the master's, and the others'
    "master in a plan's [cluster], rendezvous of join",
    "--ports of leashed cluster up, ports in a plan's [cluster] or of join",
)
_HALF_OPEN = 256
_AT_ONCE = 16  # accepted before those that have spoken are heard again
_TIME_TO_PROVE = 5.0  # seconds
_PAUSE = 0.05  # seconds, where there are no descriptors left
_RESET = struct.pack("ii", 1, 0)  # what SO_LINGER makes of a close
_SILENT = 1.0  # seconds, after which one who has not proved itself then makes room
# Seconds of silence until the system asks whether the host is there, between two such questions, and
# how many without an answer end a connection.
_KEEP_ALIVE = {socket.TCP_KEEPIDLE: 60, socket.TCP_KEEPINTVL: 10, socket.TCP_KEEPCNT: 6}

_log = logging.getLogger(__name__)


def prepare(connection: socket.socket) -> None:
    """What is sent goes at once; and a host that is gone without a word is found out, so that who
    waits for its next word (a sync server, which has no deadlines) does not keep the connection.
    """
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in _KEEP_ALIVE.items():
        connection.setsockopt(socket.IPPROTO_TCP, option, value)


@dataclass
class _HalfOpen:
    connection: socket.socket
    address: str
    answering: Answering
    since: float
    heard: bytes = b""


class Listener(Closing):
    """Accepts connections, and passes on those that have proven the key.

    One thread serves all handshakes. At most 256 of them are open at a time, each for at most 5 s and
    for 168 bytes: where more come, the oldest goes, so that connections that never speak keep nobody
    out for long and take no more memory.

    Args:
        host: the address to listen on, such as "127.0.0.1" or "::".
        port: 0 for a free one.
        key: what both sides must hold.
        role: what this process is.
        accept: called with each connection (blocking, nothing read but the handshake) and who it
            is from, on the listener's thread: it must not block, and it owns the socket.

    Attributes:
        host: the address.
        port: the port.
        address: both, as ``connect`` takes them.
        refused: connections that ended without proof.

    Raises:
        ValueError: ``host`` can be reached from other machines, and ``key`` was made for this run.
        OSError: the port is in use, or there is no such address here.
    """

    def __init__(
        self,
        host: str,
        port: int,
        key: Key,
        role: str,
        accept: Callable[[socket.socket, Peer], None],
    ) -> None:
        if not is_loopback(host) and not key.given:
            raise ValueError(
                f"host {host!r} can be reached from other machines, which needs a key that all of "
                "them hold: make a key file, copy it to each (mode 0600), and give it as key_file; "
                "or listen on 127.0.0.1"
            )
        Answering(key, role)  # told now, not by the first connection
        self._key, self._role, self._accept = key, role, accept
        self.refused = 0
        self._told = False
        self._half_open: dict[socket.socket, _HalfOpen] = {}
        self._socket = _listening(host, port, role)
        self.host, self.port = self._socket.getsockname()[:2]
        self.address = format_address(self.host, self.port)
        self._wake, self._woken = socket.socketpair()
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._socket, selectors.EVENT_READ)
        self._selector.register(self._woken, selectors.EVENT_READ)
        self._closing = False
        self._thread = threading.Thread(target=self._run, name="leashed-listener", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop listening; connections that were passed on stay. May be called again."""
        if not self._closing:
            self._closing = True
            with contextlib.suppress(OSError):  # the thread may have seen it, and be gone
                self._wake.send(b"x")
        if threading.current_thread() is not self._thread:
            self._thread.join()
            self._wake.close()

    def _run(self) -> None:
        try:
            while not self._closing:
                self._turn()
        finally:
            for half in list(self._half_open.values()):
                self._drop(half)
            self._selector.close()
            self._socket.close()
            self._woken.close()

    def _turn(self) -> None:
        oldest = next(iter(self._half_open.values()), None)
        patience = None
        if oldest:
            patience = max(0.0, oldest.since + _TIME_TO_PROVE - time.monotonic())
        ready = [key.fileobj for key, _ in self._selector.select(patience)]
        for connection in ready:  # before more are accepted, for which these might have to go
            if isinstance(connection, socket.socket) and connection in self._half_open:
                self._hear(self._half_open[connection])
        overdue = time.monotonic() - _TIME_TO_PROVE
        for half in [half for half in self._half_open.values() if half.since <= overdue]:
            self._refuse(half, "no proof in time", passes=True)
        if self._socket in ready:
            self._accept_some()

    def _accept_some(self) -> None:
        for _ in range(_AT_ONCE):
            try:
                connection, address = self._socket.accept()
            except BlockingIOError:
                return
            except OSError as error:
                if error.errno in (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM):
                    self._wait_for_room(error)
                    return
                continue  # that one connection is gone
            if len(self._half_open) >= _HALF_OPEN:
                self._refuse(next(iter(self._half_open.values())), "too many others", passes=True)
            connection.setblocking(False)
            half = _HalfOpen(
                connection,
                format_address(*address[:2]),
                Answering(self._key, self._role),
                time.monotonic(),
            )
            self._half_open[connection] = half
            self._selector.register(connection, selectors.EVENT_READ)
            self._send(half, half.answering.greeting)

    def _wait_for_room(self, error: OSError) -> None:
        """Those who have called and are not accepted yet wait, too."""
        if not self._told:
            self._told = True
            _log.warning(
                "no more connections are accepted for now: %s; a higher hard limit (ulimit -Hn) on "
                "open files lets in more",
                error.strerror,
            )
        oldest = next(iter(self._half_open.values()), None)
        if oldest and oldest.since + _SILENT <= time.monotonic():
            self._refuse(oldest, "no descriptors left", passes=True)
        time.sleep(_PAUSE)

    def _hear(self, half: _HalfOpen) -> None:
        try:
            more = half.connection.recv(CLAIM - len(half.heard))
        except BlockingIOError:
            return
        except OSError:
            more = b""
        if not more:
            self._refuse(half, "closed")
            return
        half.heard += more
        if not MAGIC.startswith(half.heard[: len(MAGIC)]):
            self._refuse(half, "not leashed")
        elif len(half.heard) == CLAIM:
            try:
                answer, peer = half.answering.answer(half.heard, half.address)
            except Refused as error:
                self._refuse(half, str(error))
                return
            if self._send(half, answer):
                self._pass_on(half, peer)

    def _send(self, half: _HalfOpen, data: bytes) -> bool:
        """A fresh connection has room for these few bytes; one that has not is refused."""
        try:
            if half.connection.send(data) == len(data):
                return True
        except OSError:
            pass
        self._refuse(half, "takes no bytes")
        return False

    def _pass_on(self, half: _HalfOpen, peer: Peer) -> None:
        self._selector.unregister(half.connection)
        del self._half_open[half.connection]
        try:
            half.connection.setblocking(True)
            prepare(half.connection)
            self._accept(half.connection, peer)
        except Exception:  # noqa: BLE001 (the caller's; others are to be served)
            _log.exception("the connection of %s at %s is closed", peer.name, peer.address)
            half.connection.close()

    def _refuse(self, half: _HalfOpen, why: str, *, passes: bool = False) -> None:
        """``passes``: it may succeed another time."""
        if passes:
            half.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
        self.refused += 1
        _log.info("a connection from %s is refused: %s", half.address, why)
        self._drop(half)

    def _drop(self, half: _HalfOpen) -> None:
        self._selector.unregister(half.connection)
        del self._half_open[half.connection]
        with contextlib.suppress(OSError):
            half.connection.close()


def check_listening(host: str, port: int, role: str) -> None:
    """OSError, which has the remedy, where a role cannot listen there now."""
    _listening(host, port, role).close()


def _listening(host: str, port: int, role: str) -> socket.socket:
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except OSError as error:
        raise OSError(error.errno, f"host {host!r} is no address: {error.strerror}") from None
    family, kind, protocol, _, address = found[0]
    listening = socket.socket(family, kind, protocol)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(address)
        listening.listen(_HALF_OPEN)
        listening.setblocking(False)
    except OSError as error:
        listening.close()
        where = format_address(host, port)
        remedy = ""
        if error.errno == errno.EADDRINUSE:
            remedy = f"; end what has the port ('ss -ltnp' tells), or give another: {_PORT_OF[role != 'master']}"
        raise OSError(error.errno, f"cannot listen at {where}: {error.strerror}{remedy}") from None
    return listening
