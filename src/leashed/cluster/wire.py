"""Messages as bytes: a length of 4 bytes, little-endian, then JSON, checked against its type."""

from __future__ import annotations

from typing import Generic, TypeVar

import msgspec

from leashed.cluster.messages import FromMaster, ToMaster

__all__ = ["LONGEST", "Malformed", "Reader", "encode", "from_master", "to_master"]

LONGEST = 1 << 20  # bytes of a message
_LENGTH = 4

Message = TypeVar("Message")


class Malformed(ValueError):  # noqa: N818 (what was heard is)
    """What came is no message; nothing after it on this connection can be trusted."""


def encode(message: ToMaster | FromMaster) -> bytes:
    """A message's bytes. Raises ValueError where they would be too many."""
    body = msgspec.json.encode(message)
    if len(body) > LONGEST:
        raise ValueError(f"a message must have at most {LONGEST} bytes, got {len(body)}")
    return len(body).to_bytes(_LENGTH, "little") + body


class Reader(Generic[Message]):
    """Messages out of a stream's bytes, in whatever pieces these come. A value; no sockets.

    It never holds more than one message's bytes and those of one piece.
    """

    def __init__(self, decoder: msgspec.json.Decoder[Message]) -> None:
        self._decoder = decoder
        self._heard = bytearray()

    def feed(self, data: bytes) -> list[Message]:
        """The messages that are whole with these bytes. Raises Malformed."""
        self._heard += data
        messages = []
        at = 0
        while len(self._heard) - at >= _LENGTH:
            length = int.from_bytes(self._heard[at : at + _LENGTH], "little")
            if length > LONGEST:
                raise Malformed(f"a message of {length} bytes; the longest has {LONGEST}")
            end = at + _LENGTH + length
            if len(self._heard) < end:
                break
            try:
                messages.append(self._decoder.decode(self._heard[at + _LENGTH : end]))
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
                raise Malformed(f"no message of this release: {error}") from None
            at = end
        del self._heard[:at]
        return messages


def to_master() -> Reader[ToMaster]:
    """Reads what members say."""
    return Reader(msgspec.json.Decoder(ToMaster))


def from_master() -> Reader[FromMaster]:
    """Reads what the master says."""
    return Reader(msgspec.json.Decoder(FromMaster))
