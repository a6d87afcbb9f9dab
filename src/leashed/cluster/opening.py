"""How a process opens a connection to another of its run, both sides proven (``handshake``).

What that is made of has a file each: ``keys``, ``addresses``, ``handshake`` and ``listening``; their names
are found here too.
"""

from __future__ import annotations

import errno
import socket
import time

from leashed.cluster.addresses import check_ports, format_address, is_loopback, parse_address
from leashed.cluster.handshake import ANSWER, GREETING, Answering, Asking, Peer, Refused
from leashed.cluster.keys import Key, make_key, read_key
from leashed.cluster.listening import (
    Listener,
    _HalfOpen,  # noqa: F401 (its old name)
    check_listening,
    prepare,
)
from leashed.cluster.receiving import EndedError, exactly

__all__ = [
    "Answering",
    "Asking",
    "Key",
    "Listener",
    "Peer",
    "Refused",
    "check_listening",
    "check_ports",
    "connect",
    "format_address",
    "is_loopback",
    "make_key",
    "parse_address",
    "read_key",
]


def connect(
    address: str,
    key: Key,
    *,
    role: str,
    name: str,
    purpose: str,
    deadline: float,
    expected: str | None = None,
) -> socket.socket:
    """A connection to a ``Listener``, both sides proven.

    Args:
        address: "host:port" or "[::1]:port".
        key: what both hold.
        role: what this process is, at most 16 characters.
        name: which one it is, at most 64.
        purpose: what the connection is for, at most 16.
        deadline: seconds that all of it may take (looking up a host's name apart, which has the
            system's own limits).
        expected: the role of who listens there. Default: any.

    Returns:
        A blocking socket without a time limit, nothing of which has been read but the handshake.

    Raises:
        Refused: the other side does not prove the key, or ended the connection instead; or it has
            another role.
        ConnectionResetError: the other side broke the connection off, which may pass.
        TimeoutError: not done in time.
        OSError: nobody listens there, or there is no such host.
        TypeError, ValueError: an argument is wrong.
    """
    host, port = parse_address(address)
    asking = Asking(key, role, name, purpose)
    end = time.monotonic() + deadline
    try:
        connection = socket.create_connection((host, port), timeout=max(deadline, 1e-3))
    except TimeoutError:
        raise TimeoutError(f"{address} does not answer within {deadline:g} s") from None
    except OSError as error:  # which names no address
        raise type(error)(error.errno, error.strerror or str(error), address) from None
    try:
        if connection.getsockname() == connection.getpeername():
            # The system gave this end the very port that nobody listens on.
            raise ConnectionRefusedError(errno.ECONNREFUSED, "nobody listens", address)
        prepare(connection)
        claim = asking.claim(_read(connection, GREETING, end, address))
        _limit(connection, end, address)
        try:
            connection.sendall(claim)
        except (BrokenPipeError, ConnectionResetError):
            raise _broken_off(address) from None
        found = asking.check(_read(connection, ANSWER, end, address))
        if expected is not None and found != expected:
            raise Refused(
                f"a {found} listens at {address}, and no {expected}: is the address of another process?"
            )
        connection.settimeout(None)
    except TimeoutError:
        connection.close()
        raise TimeoutError(
            f"{address} accepted, but did not prove itself within {deadline:g} s"
        ) from None
    except BaseException:
        connection.close()
        raise
    return connection


def _limit(connection: socket.socket, end: float, address: str) -> None:
    left = end - time.monotonic()
    if left <= 0:
        raise TimeoutError(f"{address} took too long")
    connection.settimeout(left)


def _read(connection: socket.socket, size: int, end: float, address: str) -> bytes:
    """Exactly ``size`` bytes, or why the other side has not sent them."""
    try:
        return exactly(connection, size, end)
    except ConnectionResetError as error:
        if size == GREETING:
            raise ConnectionResetError(
                errno.ECONNRESET, "closed the connection before its greeting", address
            ) from None
        if not isinstance(error, EndedError):
            raise _broken_off(address) from None
        raise Refused(
            f"{address} closed the connection before it had proved itself: it holds another key "
            "(give all processes the same key file)"
        ) from None


def _broken_off(address: str) -> ConnectionResetError:
    why = (
        "broke the connection off before it had proved itself: it has no descriptors left, too many "
        "others to listen to, or waited too long; its log says which"
    )
    return ConnectionResetError(errno.ECONNRESET, why, address)
