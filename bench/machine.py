"""What a benchmark says about its machine; run as a script, it prints the name for result files."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from leashed import _core
from leashed.base.machine import cores, cpu_model


def describe() -> dict[str, str | int]:
    """Processor, instruction-set level used and number of processors; never a host's name."""
    info = Path("/proc/cpuinfo")
    fields = re.findall(r"^(cpu family|model)\s*: (\d+)$", info.read_text("utf-8"), re.MULTILINE)
    numbers = ", ".join(f"{name} {value}" for name, value in dict(fields).items())
    cpu = f"{cpu_model()} ({numbers})" if numbers else cpu_model()
    return {"cpu": cpu, "isa": _core.default_isa(), "cores": cores()}


def named(of: Mapping[str, Any]) -> str:
    """Of what ``describe`` told, the processor's name alone."""
    return str(of["cpu"]).split(" (", maxsplit=1)[0]


def slug() -> str:
    """The same as one word, such as ``amd-epyc-cpu-family-25-model-17-v4-2-cores``."""
    machine = describe()
    words = f"{machine['cpu']} {machine['isa']} {machine['cores']} cores"
    return re.sub(r"[^a-z0-9]+", "-", words.lower()).strip("-")


def busy_share(seconds: float) -> float:
    """The share of the machine's processors that is in use over the next so many seconds."""

    def ticks() -> tuple[int, int]:
        first = Path("/proc/stat").read_text("ascii").split("\n", maxsplit=1)[0]
        user, nice, system, idle, waiting, *rest = map(int, first.split()[1:9])
        busy = user + nice + system + sum(rest)
        return busy, busy + idle + waiting

    busy, total = ticks()
    time.sleep(seconds)
    busy_after, total_after = ticks()
    return (busy_after - busy) / max(1, total_after - total)


if __name__ == "__main__":
    print(slug())
