"""Exactly so many bytes of a connection, by a deadline."""

from __future__ import annotations

import errno
import socket
import time

__all__ = ["EndedError", "exactly", "fill"]


class EndedError(ConnectionResetError):
    """The other side has ended the connection before all had come."""


def exactly(connection: socket.socket, size: int, end: float | None = None) -> bytes:
    """The next ``size`` bytes. What is raised: as of ``fill``."""
    found = bytearray(size)
    fill(connection, memoryview(found), end)
    return bytes(found)


def fill(connection: socket.socket, to: memoryview, end: float | None = None) -> None:
    """The next bytes, as many as there is room for.

    Args:
        connection: a blocking one.
        to: bytes, which are written to.
        end: on the monotonic clock, when all must have come; the socket's own timeout is set for it.
            Default: that holds for each piece, as it is.

    Raises:
        EndedError: the other side ends the connection before.
        TimeoutError: not all has come in time.
        OSError: the connection breaks.
    """
    while to:
        if end is not None:
            left = end - time.monotonic()
            if left <= 0:
                raise TimeoutError(errno.ETIMEDOUT, f"{len(to)} bytes have not come in time")
            connection.settimeout(left)
        if not (count := connection.recv_into(to)):
            raise EndedError("it has closed the connection in the middle of what it was to send")
        to = to[count:]
