"""How every connection begins: both sides prove that they hold the key, and say what it is for.

    server → client   magic, version, the server's nonce                              40 bytes
    client → server   magic, version, the client's nonce, its role, name, purpose,
                      the client's proof                                             168 bytes
    server → client   the server's role, the server's proof                           48 bytes

A proof is HMAC-SHA256, under the key, of the direction, the version, both nonces and all that was
said: one that is sent back, sent again or altered proves nothing. A client without the key gets the
first 40 bytes, the same for everybody but for fresh random ones, and never another. A server without
the key is sent roles, name and purpose, and nothing after them. Neither side reads a byte beyond,
so the descriptor can be handed on.

A server that has no room or no more patience breaks the connection off by a reset, and one that was
told no proof ends it: so a client knows what may pass from a key that is another.

This keeps strangers out. It does not encrypt: who can read or alter packets on the way can read,
and alter, what follows.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import hmac
import ipaddress
import logging
import os
import secrets
import selectors
import shlex
import socket
import stat
import struct
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from leashed.base import checks
from leashed.base.closing import Closing
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
    "make_key",
    "parse_address",
    "read_key",
]

_VERSION = 1
_MAGIC = b"leashed" + bytes([_VERSION])
_NONCE = 32
_PROOF = 32
_ROLE, _NAME, _PURPOSE = 16, 64, 16
GREETING = len(_MAGIC) + _NONCE
CLAIM = len(_MAGIC) + _NONCE + _ROLE + _NAME + _PURPOSE + _PROOF
ANSWER = _ROLE + _PROOF

_PORTS = 65_535
_PORT_OF = (  # the master's, and the others'
    "master in a plan's [cluster], rendezvous of join",
    "--ports of leashed cluster up, ports in a plan's [cluster] or of join",
)
_SECRET = 32
_LONGEST_SECRET = 1024
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


class Refused(ConnectionError):  # noqa: N818 (what happened, not what went wrong here)
    """The other side does not prove that it holds the key, or speaks something else."""


@dataclass(frozen=True)
class Key:
    """What both sides must hold.

    Attributes:
        secret: at least 32 bytes.
        given: it comes from a file that the user named, and not one made for this run; only then
            may a ``Listener`` be reached from other machines.
    """

    secret: bytes = field(repr=False)
    given: bool


@dataclass(frozen=True)
class Peer:
    """Who is at the other end, as it has proven.

    Attributes:
        role: its role.
        name: its name.
        purpose: what the connection is for.
        address: where it calls from, "host:port".
    """

    role: str
    name: str
    purpose: str
    address: str


def make_key(path: str | os.PathLike[str]) -> Key:
    """Write a new key of 32 random bytes to a file that only this user can read.

    Raises:
        FileExistsError: there is a file; a key is never overwritten.
        OSError: it cannot be written.
    """
    secret = secrets.token_bytes(_SECRET)
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    except FileExistsError:
        raise FileExistsError(
            errno.EEXIST, "there is a file already, and a key is never overwritten", str(path)
        ) from None
    with os.fdopen(descriptor, "wb") as file:
        file.write(secret)
        file.flush()
        os.fsync(descriptor)
    return Key(secret, given=False)


def read_key(path: str | os.PathLike[str], *, given: bool = True) -> Key:
    """The key in a file.

    Args:
        path: the file.
        given: the user named it; False for one made for this run alone.

    Raises:
        PermissionError: others can read or write it, or it is another user's.
        ValueError: it is shorter than 32 bytes, longer than 1,024, or no file.
        OSError: it cannot be read.
    """
    name = str(path)
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except FileNotFoundError:
        make = f"(umask 077; head -c 32 /dev/urandom > {shlex.quote(name)})"
        raise FileNotFoundError(
            errno.ENOENT, f"there is no key; make one, and copy it to each machine: {make}", name
        ) from None
    try:
        about = os.fstat(descriptor)
        if not stat.S_ISREG(about.st_mode):
            raise ValueError(f"key file {name!r} must be a regular file")
        if about.st_uid != os.geteuid():
            raise PermissionError(
                errno.EACCES,
                f"key file of user {about.st_uid}, not of this one ({os.geteuid()}); copy it to a "
                "file of your own",
                name,
            )
        if about.st_mode & 0o077:
            raise PermissionError(
                errno.EACCES,
                f"key file that others can read or write (mode {about.st_mode & 0o777:04o}); "
                f"make a new one, or, if nobody has seen it: chmod 600 {name}",
                name,
            )
        secret = os.read(descriptor, _LONGEST_SECRET + 1)
    finally:
        os.close(descriptor)
    if not _SECRET <= len(secret) <= _LONGEST_SECRET:
        raise ValueError(
            f"key file {name!r} must hold {_SECRET} to {_LONGEST_SECRET} bytes, got "
            f"{'more' if len(secret) > _LONGEST_SECRET else len(secret)}; make one with make_key()"
        )
    return Key(secret, given)


def parse_address(text: str, name: str = "address") -> tuple[str, int]:
    """Host and port of "host:port" or "[::1]:port".

    Raises:
        TypeError, ValueError: it is none.
    """
    if not isinstance(text, str):
        raise TypeError(f"{name} must be a str such as '10.0.0.1:7000', got {text!r}")
    host, colon, port = text.rpartition(":")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host:
        raise ValueError(f"{name}: an IPv6 address stands in brackets, '[::1]:7000'; got {text!r}")
    if not colon or not host or not (port.isascii() and port.isdigit() and int(port[:6]) < 65536):
        raise ValueError(f"{name} must be 'host:port' such as '10.0.0.1:7000', got {text!r}")
    return host, int(port)


def format_address(host: str, port: int) -> str:
    """Such as "host:port", or "[host]:port" where the host is an IPv6 address."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def check_ports(name: str, first: int, count: int, others: Mapping[str, int]) -> None:
    """That the ``count`` ports from ``first`` on exist, and are none of ``others``, by whose they are.

    Raises:
        TypeError, ValueError: they do not, or are; the message names ``name``.
    """
    last = checks.whole(name, first) + count - 1
    if last > _PORTS:
        raise ValueError(
            f"{name} must be at most {_PORTS - count + 1}, so that the {count} ports of sync servers "
            f"and trainers are below {_PORTS + 1}; got {first}"
        )
    for who, port in others.items():
        if first <= port <= last:
            raise ValueError(
                f"{name}: {first} to {last} are the ports of sync servers and trainers, and {port} is "
                f"that of {who}; give ports beside it"
            )


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach ``host``."""
    try:
        return ipaddress.ip_address(host.partition("%")[0]).is_loopback
    except ValueError:
        return host == "localhost"


def _text(name: str, value: str, room: int) -> bytes:
    if not isinstance(value, str):
        raise TypeError(f"{name} must be a str, got {value!r}")
    if not (0 < len(value) <= room and value.isascii() and value.isprintable()):
        raise ValueError(f"{name} must be 1 to {room} printable ASCII characters, got {value!r}")
    return value.encode().ljust(room, b"\0")


def _read_text(field: bytes) -> str:
    """The text in a field of fixed size; ValueError where it is not as ``_text`` writes it."""
    text = field.rstrip(b"\0").decode("ascii")
    if not text or not text.isprintable():
        raise ValueError("not a text")
    return text


def _proof(key: Key, direction: bytes, server_nonce: bytes, said: bytes) -> bytes:
    return hmac.digest(key.secret, direction + _MAGIC + server_nonce + said, hashlib.sha256)


def _check_magic(heard: bytes) -> None:
    other = heard[: len(_MAGIC)]
    if other[:-1] != _MAGIC[:-1]:
        raise Refused("the other side is no leashed process: does address name another program?")
    if other != _MAGIC:
        raise Refused(
            f"the other side opens by version {other[-1]}, this release by {_VERSION}; use one "
            "release on all machines"
        )


class Asking:
    """The client's side of the handshake, as a value: ``claim`` from the greeting, ``check`` of the
    answer.

    Raises:
        TypeError, ValueError: role, name or purpose is no such text.
    """

    def __init__(self, key: Key, role: str, name: str, purpose: str) -> None:
        self._key = key
        self._said = b"".join(
            (
                _MAGIC,
                secrets.token_bytes(_NONCE),
                _text("role", role, _ROLE),
                _text("name", name, _NAME),
                _text("purpose", purpose, _PURPOSE),
            )
        )
        self._server_nonce = b""

    def claim(self, greeting: bytes) -> bytes:
        """What to send to who has sent these ``GREETING`` bytes. Raises Refused."""
        _check_magic(greeting)
        self._server_nonce = greeting[len(_MAGIC) :]
        return self._said + _proof(self._key, b"client", self._server_nonce, self._said)

    def check(self, answer: bytes) -> str:
        """The server's role, from its ``ANSWER`` bytes. Raises Refused where they prove nothing."""
        role, proof = answer[:_ROLE], answer[_ROLE:]
        said = self._said + role
        if not hmac.compare_digest(proof, _proof(self._key, b"server", self._server_nonce, said)):
            raise Refused("the other side does not prove that it holds the key")
        return _read_text(role)


class Answering:
    """The server's side of one handshake, as a value.

    Attributes:
        greeting: what to send first.
    """

    def __init__(self, key: Key, role: str) -> None:
        self._key = key
        self._role = _text("role", role, _ROLE)
        self.greeting = _MAGIC + secrets.token_bytes(_NONCE)

    def answer(self, claim: bytes, address: str) -> tuple[bytes, Peer]:
        """What to send to who has sent these ``CLAIM`` bytes, and who that is. Raises Refused."""
        _check_magic(claim)
        said, proof = claim[:-_PROOF], claim[-_PROOF:]
        nonce = self.greeting[len(_MAGIC) :]
        if not hmac.compare_digest(proof, _proof(self._key, b"client", nonce, said)):
            raise Refused("the other side does not prove that it holds the key")
        at = len(_MAGIC) + _NONCE
        role, name, purpose = said[at : at + _ROLE], said[at + _ROLE : -_PURPOSE], said[-_PURPOSE:]
        try:
            peer = Peer(_read_text(role), _read_text(name), _read_text(purpose), address)
        except ValueError:
            raise Refused("the other side's role, name or purpose is no text") from None
        return self._role + _proof(self._key, b"server", nonce, said + self._role), peer


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
        _prepare(connection)
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


def _prepare(connection: socket.socket) -> None:
    """What is sent goes at once; and a host that is gone without a word is found out, so that who
    waits for its next word (a sync server, which has no deadlines) does not keep the connection.
    """
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in _KEEP_ALIVE.items():
        connection.setsockopt(socket.IPPROTO_TCP, option, value)


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
        if not _MAGIC.startswith(half.heard[: len(_MAGIC)]):
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
            _prepare(half.connection)
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
