"""Whether a server is made: the first that it says over a trainer's connection.

server → trainer   a byte, again and again while it makes, or reads, what it serves; another one when it has

From that on the connection is the core's.
"""

from __future__ import annotations

import socket
from collections.abc import Callable
from concurrent.futures import Future, wait
from typing import TypeVar

__all__ = ["await_made", "tell_made"]

_MAKING, _MADE = b"\0", b"\1"
_AGAIN = 0.1  # seconds between two bytes

T = TypeVar("T")


def tell_made(link: socket.socket, made: Future[T]) -> T:
    """Says so until it is made; what was made.

    Raises:
        CancelledError: it will not be.
        OSError: the other side is gone.
    """
    while not made.done():  # (that it will not be wakes nobody)
        if not wait([made], _AGAIN).done:
            link.sendall(_MAKING)
    found = made.result()
    link.sendall(_MADE)
    return found


def await_made(link: socket.socket, patience: float, making: Callable[[], None]) -> None:
    """Returns when the other side is made; ``making`` is called as often as it says that it is not yet.

    Raises:
        OSError: it says nothing for ``patience`` seconds, or ends the connection.
    """
    link.settimeout(patience)
    while (said := link.recv(1)) == _MAKING:
        making()
    if said != _MADE:
        raise ConnectionError("it has ended the connection")
    link.settimeout(None)
