"""What transfers take in virtual time: links with a bandwidth and a latency."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from leashed.base import checks
from leashed.base.choice import Choice

__all__ = ["Network"]


@dataclass(frozen=True)
class Network:
    """A link for each worker and for the server, which send and receive at the same time.

    A push or a pull of d parameters is 4 d bytes; of tables, the distinct rows of the batch with 8
    bytes for each id besides. Alone it takes ``latency`` + bytes ÷ the smaller of
    the two bandwidths; who finds a link taken waits, first come, first served. So a server passes at
    most ``server_bandwidth`` ÷ bytes pushes a second, and as many pulls. Peers that meet send each
    other their models: two at once, more over a ring, where each sends 2 (k - 1) ÷ k of its own.

    Args:
        bandwidth: bytes a second of a worker's link, each way; ``math.inf``: without bounds.
        latency: seconds from one link to another.
        server_bandwidth: bytes a second of the server's. Default: as a worker's.
        slower: what the first workers' bandwidths are divided by; all others' by 1.

    Raises:
        TypeError, ValueError: a bandwidth or a factor is not above 0, or the latency negative.
    """

    bandwidth: float
    latency: float = 0.0
    server_bandwidth: float | None = None
    slower: Sequence[float] = ()

    def __post_init__(self) -> None:
        checks.real("bandwidth", self.bandwidth, 0.0, infinite=True)
        checks.seconds("latency", self.latency)
        if self.server_bandwidth is not None:
            checks.real("server_bandwidth", self.server_bandwidth, 0.0, infinite=True)
        factors = tuple(checks.real("slower", factor, 0.0) for factor in self.slower)
        object.__setattr__(self, "slower", factors)

    def choice(self) -> Choice:
        """As the core is told."""
        server = self.bandwidth if self.server_bandwidth is None else self.server_bandwidth
        return "links", {
            "bandwidth": float(self.bandwidth),
            "latency": float(self.latency),
            "server_bandwidth": float(server),
            "slower": np.array(self.slower, np.float64),
        }
