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

import hashlib
import hmac
import secrets
from dataclasses import dataclass

from leashed.cluster.keys import Key

__all__ = ["ANSWER", "CLAIM", "GREETING", "MAGIC", "Answering", "Asking", "Peer", "Refused"]

_VERSION = 1
MAGIC = b"leashed" + bytes([_VERSION])
_NONCE = 32
_PROOF = 32
_ROLE, _NAME, _PURPOSE = 16, 64, 16
GREETING = len(MAGIC) + _NONCE
CLAIM = len(MAGIC) + _NONCE + _ROLE + _NAME + _PURPOSE + _PROOF
ANSWER = _ROLE + _PROOF


class Refused(ConnectionError):  # noqa: N818 (what happened, not what went wrong here)
    """The other side does not prove that it holds the key, or speaks something else."""


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
    return hmac.digest(key.secret, direction + MAGIC + server_nonce + said, hashlib.sha256)


def _check_magic(heard: bytes) -> None:
    other = heard[: len(MAGIC)]
    if other[:-1] != MAGIC[:-1]:
        raise Refused("the other side is no leashed process: does address name another program?")
    if other != MAGIC:
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
                MAGIC,
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
        self._server_nonce = greeting[len(MAGIC) :]
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
        self.greeting = MAGIC + secrets.token_bytes(_NONCE)

    def answer(self, claim: bytes, address: str) -> tuple[bytes, Peer]:
        """What to send to who has sent these ``CLAIM`` bytes, and who that is. Raises Refused."""
        _check_magic(claim)
        said, proof = claim[:-_PROOF], claim[-_PROOF:]
        nonce = self.greeting[len(MAGIC) :]
        if not hmac.compare_digest(proof, _proof(self._key, b"client", nonce, said)):
            raise Refused("the other side does not prove that it holds the key")
        at = len(MAGIC) + _NONCE
        role, name, purpose = said[at : at + _ROLE], said[at + _ROLE : -_PURPOSE], said[-_PURPOSE:]
        try:
            peer = Peer(_read_text(role), _read_text(name), _read_text(purpose), address)
        except ValueError:
            raise Refused("the other side's role, name or purpose is no text") from None
        return self._role + _proof(self._key, b"server", nonce, said + self._role), peer
