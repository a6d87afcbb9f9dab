"""Numbers by which servers and trainers' threads tell each other's processes apart."""

from __future__ import annotations

import secrets

__all__ = ["SLOTS", "boot", "life"]

SLOTS = 1 << 16
"""Threads of a trainer, at most: trainer k's have numbers from k times as many on."""
_RANDOM = 24  # bits of a life that are so
_BOOT = 62  # bits


def life(member: int) -> int:
    """Of a trainer's process, which is that member of its run: one that comes later has a larger one."""
    return member << _RANDOM | secrets.randbits(_RANDOM)


def boot() -> int:
    """Of a server's process: no other one ever has it."""
    return secrets.randbits(_BOOT) | 1
