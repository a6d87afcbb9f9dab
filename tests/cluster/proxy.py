"""A TCP proxy that is a bad network: it delays, resets, swallows and holds what goes through it."""

from __future__ import annotations

import contextlib
import selectors
import socket
import struct
import threading
import time
from collections import deque
from typing import Literal

from leashed.cluster.opening import format_address, parse_address

Mode = Literal["pass", "swallow", "hold"]

_CHUNK = 1 << 16
_LOOK = 0.005


class Proxy:
    """Stands for ``address``, on a port of its own.

    Attributes:
        address: where it listens.
        mode: ``"pass"``; ``"swallow"``: what comes is read and goes nowhere, as to a host that has
            lost power behind a switch that has not; ``"hold"``: nothing is read, as where a link is
            down. New connections are accepted in each.
        delay: seconds by which every byte comes later.
        accepted: connections so far.
    """

    def __init__(self, address: str) -> None:
        self._target = parse_address(address)
        self.mode: Mode = "pass"
        self.delay = 0.0
        self.accepted = 0
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.address = format_address(*self._listening.getsockname()[:2])
        self._pairs: set[tuple[socket.socket, socket.socket]] = set()
        self._lock = threading.Lock()
        self._closed = threading.Event()
        self._threads = [threading.Thread(target=self._serve, daemon=True)]
        self._threads[0].start()

    def reset(self) -> None:
        """End all connections as a host does that knows nothing of them."""
        with self._lock:
            pairs = list(self._pairs)
        for pair in pairs:
            for end in pair:
                with contextlib.suppress(OSError):
                    end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                    end.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self._closed.set()
        self.reset()
        for thread in list(self._threads):
            thread.join()
        self._listening.close()

    def _serve(self) -> None:
        self._listening.settimeout(0.05)
        while not self._closed.is_set():
            try:
                near, _ = self._listening.accept()
            except TimeoutError:
                continue
            self.accepted += 1
            try:
                far = socket.create_connection(self._target, 5.0)
            except OSError:
                near.close()
                continue
            for end in (near, far):
                end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                end.setblocking(False)
            with self._lock:
                self._pairs.add((near, far))
            thread = threading.Thread(target=self._carry, args=(near, far), daemon=True)
            self._threads.append(thread)
            thread.start()

    def _carry(self, near: socket.socket, far: socket.socket) -> None:
        """Both ways, until one end is closed."""
        late: dict[socket.socket, deque[tuple[float, bytes]]] = {near: deque(), far: deque()}
        other = {near: far, far: near}
        with contextlib.suppress(OSError), selectors.DefaultSelector() as selector:
            for end in (near, far):
                selector.register(end, selectors.EVENT_READ)
            while not self._closed.is_set():
                if self.mode == "hold":
                    time.sleep(_LOOK)
                    continue
                for key, _ in selector.select(_LOOK):
                    end = key.fileobj
                    assert isinstance(end, socket.socket)
                    data = end.recv(_CHUNK)
                    if not data:
                        return self._end(near, far)
                    if self.mode == "pass":
                        late[other[end]].append((time.monotonic() + self.delay, data))
                for end, waiting in late.items():
                    while waiting and waiting[0][0] <= time.monotonic():
                        end.settimeout(5.0)
                        end.sendall(waiting.popleft()[1])
                        end.setblocking(False)
        self._end(near, far)
        return None

    def _end(self, near: socket.socket, far: socket.socket) -> None:
        with self._lock:
            self._pairs.discard((near, far))
        near.close()
        far.close()
