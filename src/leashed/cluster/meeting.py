"""How the members of a ring come to sum with a library instead of over the ring itself: what they tell
each other first, over the connections that have proven the run's key, and what is asked of it then.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from leashed.cluster.receiving import exactly

__all__ = ["Collective", "Meeting", "all_gather"]

_LENGTH = 2  # bytes, in front of each text
_MOST = 256  # bytes of a text


class Collective(Protocol):
    """What sums among the members of one epoch. They all call the same, in one order, from whatever
    thread; one operation after the other. What it raises breaks the round, and it is closed.
    """

    def sum(self, values: NDArray[np.float32]) -> None:
        """Begins: values ← their sum over all members.

        Args:
            values: float32 [n], to be written to until ``done``; no longer where that never comes.
        """
        ...

    def broadcast(self, values: NDArray[np.float32], root: int) -> None:
        """Begins: values ← those of the member of rank ``root``."""
        ...

    def done(self, seconds: float) -> bool:
        """Whether what has begun is done; waits for that, at most for about so long."""
        ...

    def close(self) -> None:
        """Ends it, also in the middle of an operation, and waits for nobody."""
        ...


@dataclass(frozen=True)
class Meeting:
    """The members of one epoch, as one of them sees them.

    Attributes:
        rank: of this one.
        members: how many there are, at least 2.
        epoch: its number; a later one is greater.
        host: where the others reach this member, and they alone where that is loopback.
        timeout: seconds for an operation, and for whatever is waited for here.
        gather: tells the others a text of up to 256 bytes, and returns those of all, by rank. Who has
            called it is not called off any more: as long as nobody dies all go on from it.
    """

    rank: int
    members: int
    epoch: int
    host: str
    timeout: float
    gather: Callable[[str], list[str]]


def all_gather(
    behind: socket.socket,
    ahead: socket.socket,
    text: str,
    *,
    rank: int,
    members: int,
    timeout: float,
) -> list[str]:
    """The texts of all members of a ring, by rank.

    Args:
        behind: the connection with the member before.
        ahead: with the one behind this.
        text: this member's, up to 256 bytes.
        rank: this member's.
        members: how many there are.
        timeout: seconds until the last has come.

    Raises:
        OSError: a connection ends, or something else comes than a text, or nothing in time.
        ValueError: the text is too long.
    """
    end = time.monotonic() + timeout
    texts = [text]  # of this member, of the one before it, and so on
    for _ in range(members - 1):
        data = texts[-1].encode()
        if len(data) > _MOST:
            raise ValueError(f"a text may have {_MOST} bytes, not {len(data)}")
        ahead.settimeout(max(end - time.monotonic(), 1e-3))
        ahead.sendall(len(data).to_bytes(_LENGTH, "little") + data)
        length = int.from_bytes(exactly(behind, _LENGTH, end), "little")
        if length > _MOST:
            raise ConnectionError("something else has come than a member's text")
        try:
            texts.append(exactly(behind, length, end).decode())
        except UnicodeDecodeError:
            raise ConnectionError("something else has come than a member's text") from None
    return [texts[(rank - other) % members] for other in range(members)]
