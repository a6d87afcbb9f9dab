"""Rows sent over the wire to who asks for them, within one process."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator
from typing import Any

from leashed.cluster import batch_wire


@contextlib.contextmanager
def sending(given: Any, read: Any) -> Iterator[None]:
    """A stream is sent what it asks for, as ``read`` has it, which is closed behind that."""
    over = threading.Event()

    def feed() -> None:
        while not over.is_set():
            if given.native is None or (span := given.native.wanted([True], 0.01)) is None:
                continue
            here, there = socket.socketpair()
            batch_wire.send(there, read.read(given.native.row(span[0]), span[1]))
            given.native.give(span, batch_wire.receive(here, span[1], given.layout), 2)
            here.close()
            there.close()

    thread = threading.Thread(target=feed)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
        read.close()
