"""Which sync server holds which fragments of the parameter vector.

A vector of d floats is cut into fragments of 65,280 bytes, and these are spread over the servers by what
each costs, the dearest first, always to the server with the least so far (longest processing time
first; Graham, 1969): no server has more than 4/3 − 1/(3n) times what it would have at best.

What a fragment costs is profiled once in a run, by its master, and told to all: so all derive the
same servers from it.
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
    "FRAGMENT",
    "Costs",
    "Packing",
    "fragments",
    "owners",
    "pack",
    "packed",
    "profile",
]

FRAGMENT: int = _core.FRAGMENT
"""Floats of a fragment."""


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

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Packing:
    """Fragments assigned to servers.

    Attributes:
        servers: for each server the numbers of its fragments, ascending. One may have none.
        loads: what each server's fragments cost together, in the unit of the costs.
        bound: what the most loaded server has at least, however fragments are assigned: the mean
            load or the dearest fragment, whichever is more.
    """

    servers: tuple[tuple[int, ...], ...]
    loads: tuple[float, ...]
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


def pack(costs: Sequence[float], servers: int) -> Packing:
    """Assign fragments to servers; the same costs always give the same assignment.

    Args:
        costs: of each fragment, all positive: seconds of an exchange as profiled, or its bytes.
        servers: how many.

    Raises:
        TypeError, ValueError: there is no fragment, a cost is not positive and finite, or
            ``servers`` is no whole number from 1.
    """
    servers = checks.whole("servers", servers)
    if not len(costs):
        raise ValueError("costs must hold the cost of at least one fragment")
    checked = [checks.real(f"costs[{k}]", cost, 0.0) for k, cost in enumerate(costs)]
    held: list[list[int]] = [[] for _ in range(servers)]
    least = [(0.0, server) for server in range(servers)]
    for fragment in sorted(range(len(checked)), key=lambda k: (-checked[k], k)):
        load, server = least[0]
        held[server].append(fragment)
        heapq.heapreplace(least, (load + checked[fragment], server))
    loads = tuple(math.fsum(checked[k] for k in mine) for mine in held)
    bound = max(math.fsum(checked) / servers, *checked)
    return Packing(tuple(tuple(sorted(mine)) for mine in held), loads, bound)


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
        _log.warning("exchanges cannot be profiled (%s); fragments are assigned by bytes", error)
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
