"""Where processes of a run listen and are reached, and what they call themselves there."""

from __future__ import annotations

from leashed.cluster.opening import Listener, format_address, parse_address

__all__ = ["everywhere", "is_local", "reached", "within"]


def within(run: str, name: str) -> str:
    """What a process calls itself to others of its run: other runs may have the same key."""
    return f"{name}@{run}"


def is_local(address: str) -> bool:
    """Whether what goes there does not leave this machine."""
    host, _ = parse_address(address)
    return host == "localhost" or host.startswith("127.") or host == "::1"


def everywhere(host: str) -> str:
    """Where to listen so that other machines get here, by the address family of the run's host; only
    with a key that the user has given.
    """
    return "::" if ":" in host else "0.0.0.0"  # noqa: S104


def reached(listener: Listener, advertise: str | None) -> str:
    """Where the others reach what listens here, "host:port"."""
    return listener.address if advertise is None else format_address(advertise, listener.port)
