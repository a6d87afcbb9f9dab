"""What a measurement must say about the machine it was made on."""

from __future__ import annotations

import functools
import os
import platform
from pathlib import Path


@functools.cache
def cpu_model() -> str:
    """The processor's name as the system tells it, or else its architecture."""
    try:
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            name, _, value = line.partition(":")
            if name.strip() == "model name":
                return value.strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def cores() -> int:
    """How many processors this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
