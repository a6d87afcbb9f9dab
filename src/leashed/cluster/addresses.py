"""Addresses and ports as text: "host:port", "[::1]:port"."""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping

from leashed.base import checks

__all__ = ["check_ports", "format_address", "is_loopback", "parse_address"]

_PORTS = 65_535


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
