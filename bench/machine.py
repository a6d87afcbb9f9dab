"""What a benchmark says about its machine; run as a script, it prints the name for result files."""

from __future__ import annotations

import re
from pathlib import Path

from leashed import _core
from leashed.machine import cores, cpu_model


def describe() -> dict[str, str | int]:
    """Processor, instruction-set level used and number of processors; never a host's name."""
    info = Path("/proc/cpuinfo")
    fields = re.findall(r"^(cpu family|model)\s*: (\d+)$", info.read_text("utf-8"), re.MULTILINE)
    numbers = ", ".join(f"{name} {value}" for name, value in dict(fields).items())
    cpu = f"{cpu_model()} ({numbers})" if numbers else cpu_model()
    return {"cpu": cpu, "isa": _core.default_isa(), "cores": cores()}


def slug() -> str:
    """The same as one word, such as ``amd-epyc-cpu-family-25-model-17-v4-2-cores``."""
    machine = describe()
    words = f"{machine['cpu']} {machine['isa']} {machine['cores']} cores"
    return re.sub(r"[^a-z0-9]+", "-", words.lower()).strip("-")


if __name__ == "__main__":
    print(slug())
