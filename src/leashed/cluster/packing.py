"""Which server holds what: of sync servers, which fragments of the parameter vector.

What is to be held is spread over the servers by what each part costs, the dearest first, always to the
server with the least so far (longest processing time first; Graham, 1969): no server has more than
4/3 − 1/(3n) times what it would have at best. Where servers have only so much memory, it goes to the
one with the least so far among those that have room, and what is large beside that memory goes early,
as what is dear does. A part that is more than a server's share, and may be, is cut into pieces.

A vector of d floats is cut into fragments of 65,280 bytes. What one costs is profiled once in a run, by
its master, and told to all: so all derive the same servers from it.
"""

from __future__ import annotations

import heapq
import logging
import math
import socket
from collections.abc import Sequence
from dataclasses import dataclass

from leashed import _core
from leashed.base import checks

__all__ = [
    "BY_LENGTH",
    "BY_ROW_BYTES",
    "FRAGMENT",
    "Costs",
    "NoRoomError",
    "Packing",
    "fragments",
    "owners",
    "pack",
    "packed",
    "profile",
]

FRAGMENT: int = _core.FRAGMENT
"""Floats of a fragment."""


class NoRoomError(ValueError):
    """No server has room for a part."""


@dataclass(frozen=True)
class Costs:
    """What one exchange costs a server; between the two lengths, in proportion.

    Attributes:
        one: of a fragment of one float, in seconds.
        whole: of a whole fragment, in seconds.
    """

    one: float
    whole: float

    def of(self, floats: int) -> float:
        """Of a fragment of so many floats."""
        return self.one + (self.whole - self.one) * (floats - 1) / (FRAGMENT - 1)


BY_LENGTH = Costs(1.0, float(FRAGMENT))
"""Where nothing but links counts: each float as much as any other. (In floats.)"""

BY_ROW_BYTES = Costs(16.0, 8.0 + 8.0 * FRAGMENT)
"""Of rows, where nothing but links counts: an id, and each float there and back. (In bytes.)"""

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Packing:
    """Parts assigned to servers.

    Attributes:
        servers: for each server the numbers of its parts, ascending. One may have none. Pieces of what is
            cut count as parts, in place of it.
        loads: what each server's parts cost together, in the unit of the costs.
        sizes: how large they are together, where that was given; else zeros.
        pieces: of each part, as they were given, how many it is in: 1 is whole.
        bound: what the most loaded server has at least, however parts are assigned: the mean load or
            the dearest part, in as many pieces as it may be in, whichever is more.
    """

    servers: tuple[tuple[int, ...], ...]
    loads: tuple[float, ...]
    sizes: tuple[float, ...]
    pieces: tuple[int, ...]
    bound: float

    @property
    def imbalance(self) -> float:
        """The largest load over ``bound``: 1 at best."""
        return max(self.loads) / self.bound


def fragments(dimension: int) -> list[tuple[int, int]]:
    """The fragments of a vector of so many floats: where each begins and ends. The last may be
    shorter than the others.

    Raises:
        TypeError, ValueError: ``dimension`` is no whole number from 1.
    """
    dimension = checks.whole("dimension", dimension)
    return [(at, min(at + FRAGMENT, dimension)) for at in range(0, dimension, FRAGMENT)]


def pack(
    costs: Sequence[float],
    servers: int,
    *,
    sizes: Sequence[float] | None = None,
    room: Sequence[float] | None = None,
    pieces: Sequence[int] | None = None,
) -> Packing:
    """Assign parts to servers; the same numbers always give the same assignment.

    Args:
        costs: of each part, all positive: seconds of an exchange as profiled, or its bytes.
        servers: how many.
        sizes: of each part, not negative: bytes of memory. Default: they do not count.
        room: of each server, positive: how much it holds at most; with ``sizes``. Default: all.
        pieces: into how many, all alike, each part may be cut, which is done where it costs more than
            a server's share of all, or is larger than the smallest room. Default: it stays whole.

    Raises:
        TypeError, ValueError: there is no part, a cost is not positive and finite, another number is
            out of its range, there are not as many as there are parts or servers, ``servers`` is no
            whole number from 1, or no server has room for a part, as this way assigns them.
    """
    servers = checks.whole("servers", servers)
    if not len(costs):
        raise ValueError("costs must hold the cost of at least one part")
    cost = [checks.real(f"costs[{k}]", each, 0.0) for k, each in enumerate(costs)]
    size = _as_many("sizes", sizes, len(cost), 0.0, allow=True)
    most = _as_many("room", room, servers, math.inf)
    if room is not None and sizes is None:
        raise ValueError("room needs sizes: give both, or neither")
    allowed = [1] * len(cost) if pieces is None else [*pieces]
    if len(allowed) != len(cost):
        raise ValueError(f"pieces must have {len(cost)} numbers, got {len(allowed)}")
    allowed = [checks.whole(f"pieces[{k}]", each) for k, each in enumerate(allowed)]
    share, least_room = math.fsum(cost) / servers, min(most)
    cut = [
        n if c > share or s > least_room else 1 for c, s, n in zip(cost, size, allowed, strict=True)
    ]
    bound = max(share, *(c / n for c, n in zip(cost, allowed, strict=True)))
    parts = [
        (c / n, s / n, k)
        for k, (c, s, n) in enumerate(zip(cost, size, cut, strict=True))
        for _ in range(n)
    ]
    held, loads, sums = _assigned(parts, most)
    return Packing(held, loads, sums, tuple(cut), bound)


def _assigned(
    parts: Sequence[tuple[float, float, int]], room: Sequence[float]
) -> tuple[tuple[tuple[int, ...], ...], tuple[float, ...], tuple[float, ...]]:
    """Of each server the parts that it gets, what they cost, and how large they are. A part is its cost,
    its size, and of which number it is.
    """
    share, largest = math.fsum(cost for cost, _, _ in parts) / len(room), max(room)

    def rank(k: int) -> tuple[float, float, int]:
        cost, size, _ = parts[k]
        return -max(cost / share, size / largest), -cost, k

    held: list[list[int]] = [[] for _ in room]
    taken = [0.0] * len(room)
    least = [(0.0, server) for server in range(len(room))]
    for part in sorted(range(len(parts)), key=rank):
        cost, size, number = parts[part]
        full = []
        while least and taken[least[0][1]] + size > room[least[0][1]]:
            full.append(heapq.heappop(least))
        if not least:
            raise NoRoomError(
                f"no server has room for part {number}, or a piece of it, of size {size:g}: of "
                f"{math.fsum(room):g} in all {math.fsum(taken):g} are taken; give more servers, more "
                "room, or more pieces"
            )
        load, server = least[0]
        held[server].append(part)
        taken[server] += size
        heapq.heapreplace(least, (load + cost, server))
        for each in full:
            heapq.heappush(least, each)
    loads = tuple(math.fsum(parts[k][0] for k in mine) for mine in held)
    sums = tuple(math.fsum(parts[k][1] for k in mine) for mine in held)
    return tuple(tuple(sorted(mine)) for mine in held), loads, sums


def _as_many(
    name: str, given: Sequence[float] | None, count: int, default: float, *, allow: bool = False
) -> list[float]:
    if given is None:
        return [default] * count
    if len(given) != count:
        raise ValueError(f"{name} must have {count} numbers, got {len(given)}")
    return [checks.real(f"{name}[{k}]", each, 0.0, allow=allow) for k, each in enumerate(given)]


def packed(dimension: int, servers: int, costs: Costs) -> Packing:
    """The fragments of a vector of so many floats on so many servers; the same for all that ask with
    the same costs.

    Raises:
        TypeError, ValueError: a number is no whole one from 1.
    """
    return pack([costs.of(end - begin) for begin, end in fragments(dimension)], servers)


def profile(transport: str) -> Costs:
    """Measure, on this machine, what an exchange costs a sync server: processor seconds to receive,
    interpolate and answer, over a connection of its own on loopback. That takes a fraction of a
    second.

    Args:
        transport: as of ``Cluster``.

    Returns:
        The costs; ``BY_LENGTH`` where they cannot be measured: the assignment is then by bytes.

    Raises:
        ValueError: shared memory cannot be had where it must, or an exchange failed.
    """
    try:
        found = Costs(_exchange(transport, 1), _exchange(transport, FRAGMENT))
    except (OSError, RuntimeError) as error:
        _log.warning(
            "exchanges cannot be profiled (%s); fragments are assigned by bytes", str(error)
        )
        return BY_LENGTH
    # (Some systems tell a thread's processor time in steps of milliseconds.)
    return found if min(found.one, found.whole) > 0.0 else BY_LENGTH


def _exchange(transport: str, floats: int) -> float:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        here = socket.create_connection(listening.getsockname())
        there, _ = listening.accept()
    return _core.profile_exchange(here.detach(), there.detach(), transport, floats)


def owners(dimension: int, servers: int, costs: Costs) -> list[int]:
    """The server of each fragment.

    Raises:
        TypeError, ValueError: a number is no whole one from 1.
    """
    held = packed(dimension, servers, costs).servers
    found = {k: server for server, mine in enumerate(held) for k in mine}
    return [found[k] for k in range(len(found))]
