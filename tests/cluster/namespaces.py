"""Network namespaces with a network between them, where this user may make them: two and their link, or any
number at a switch.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

HERE, THERE = "10.213.77.1", "10.213.77.2"


def missing() -> str | None:
    """Why there can be none here; None: there can."""
    if os.geteuid() != 0:
        return "network namespaces need root"
    for program in ("ip", "tc"):
        if shutil.which(program) is None:
            return f"network namespaces need {program} (iproute2)"
    name = f"leashed-try-{os.getpid()}"  # several of pytest's processes try at once
    tried = subprocess.run(
        ["ip", "netns", "add", name], check=False, capture_output=True, text=True
    )
    if tried.returncode:
        return f"no network namespaces here: {tried.stderr.strip()}"
    _ip("netns", "del", name)
    return None


def inside(namespace: str, program: Sequence[str]) -> list[str]:
    """What starts a program in a namespace."""
    return ["ip", "netns", "exec", namespace, *program]


@dataclass(frozen=True)
class Link:
    """Between the namespaces ``near``, of address ``HERE``, and ``far``, of ``THERE``."""

    near: str
    far: str

    def inside(self, namespace: str, program: Sequence[str]) -> list[str]:
        """What starts a program in one of them."""
        return inside(namespace, program)

    def up(self) -> None:
        _ip("-n", self.near, "link", "set", "veth", "up")

    def down(self) -> None:
        _ip("-n", self.near, "link", "set", "veth", "down")

    def limit(self, rate: str) -> None:
        """A token bucket on both ends; such as ``100mbit``."""
        for namespace in (self.near, self.far):
            subprocess.run(
                ["tc", "-n", namespace, "qdisc", "replace", "dev", "veth", "root", "tbf",
                 "rate", rate, "burst", "128kb", "latency", "200ms"],
                check=True,
                capture_output=True,
            )  # fmt: skip

    def payload(self) -> tuple[int, int]:
        """Bytes that have gone to ``near`` and to ``far`` as the kernel counts, without the headers
        of Ethernet, IPv4 and TCP with time stamps.
        """
        found = subprocess.run(
            ["ip", "-n", self.near, "-s", "-j", "link", "show", "veth"],
            check=True,
            capture_output=True,
        )
        counted = json.loads(found.stdout)[0]["stats64"]
        return tuple(  # type: ignore[return-value]
            counted[way]["bytes"] - (14 + 20 + 32) * counted[way]["packets"] for way in ("rx", "tx")
        )


@contextlib.contextmanager
def link() -> Iterator[Link]:
    """Two namespaces, joined; gone afterwards with all that is in them."""
    name = f"leashed-{os.getpid()}"
    near, far = f"{name}-a", f"{name}-b"
    try:
        for namespace in (near, far):
            _ip("netns", "add", namespace)
            _ip("-n", namespace, "link", "set", "lo", "up")
        _ip("link", "add", "veth", "netns", near, "type", "veth", "peer", "name", "veth",
            "netns", far)  # fmt: skip
        for namespace, address in ((near, HERE), (far, THERE)):
            _ip("-n", namespace, "address", "add", f"{address}/24", "dev", "veth")
            _ip("-n", namespace, "link", "set", "veth", "up")
        yield Link(near, far)
    finally:
        for namespace in (near, far):
            subprocess.run(["ip", "netns", "del", namespace], check=False, capture_output=True)


@contextlib.contextmanager
def switched(count: int) -> Iterator[dict[str, str]]:
    """So many namespaces at one switch, by address; gone afterwards with all that is in them."""
    name = f"leashed-{os.getpid()}"
    switch = f"{name}-switch"
    found = {f"{HERE.rpartition('.')[0]}.{k + 1}": f"{name}-{k}" for k in range(count)}
    try:
        _ip("netns", "add", switch)
        _ip("-n", switch, "link", "add", "name", "bridge", "type", "bridge")
        _ip("-n", switch, "link", "set", "dev", "bridge", "up")
        for port, (address, namespace) in enumerate(found.items()):
            _ip("netns", "add", namespace)
            _ip("-n", namespace, "link", "set", "lo", "up")
            _ip("link", "add", "veth", "netns", namespace, "type", "veth", "peer", "name",
                f"port{port}", "netns", switch)  # fmt: skip
            _ip("-n", switch, "link", "set", "dev", f"port{port}", "master", "bridge", "up")
            _ip("-n", namespace, "address", "add", f"{address}/24", "dev", "veth")
            _ip("-n", namespace, "link", "set", "veth", "up")
        yield found
    finally:
        for namespace in (*found.values(), switch):
            subprocess.run(["ip", "netns", "del", namespace], check=False, capture_output=True)


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True, text=True)
