"""What every section is given."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from leashed.datasets import Dataset

BATCHES = (16, 64, 512)

Record = dict[str, Any]


@dataclass(frozen=True)
class Bench:
    """One run of the benchmark.

    Attributes:
        data: the training set.
        build: CMake's build folder, with the C++ programs in ``bench/cpp``.
        threads: processors that this process may use.
        scale: 1 for results to keep; less makes every measurement so much shorter.
    """

    data: Dataset
    build: Path
    threads: int
    scale: float = 1.0

    def seconds(self, full: float, least: float = 0.0) -> float:
        """How long something takes that takes so long at scale 1."""
        return max(least, full * self.scale)

    def times(self, full: int, least: int = 1) -> int:
        """How often something is done that is done so often at scale 1."""
        return max(least, round(full * self.scale))

    def run(self, program: str, *arguments: float | str) -> list[Record]:
        """The figures that a C++ program prints, one JSON object a line."""
        libraries = f"{sys.prefix}/lib:{os.environ.get('LD_LIBRARY_PATH', '')}".rstrip(":")
        lines = subprocess.run(
            [self.build / "bench" / "cpp" / program, *map(str, arguments)],
            env={**os.environ, "LD_LIBRARY_PATH": libraries},
            check=True,
            stdout=subprocess.PIPE,
            encoding="utf-8",
        ).stdout
        return [json.loads(line) for line in lines.splitlines()]


def installed(module: str) -> bool:
    """Whether a peer is installed here."""
    return importlib.util.find_spec(module) is not None


def only(records: Sequence[Record], **wanted: object) -> list[Record]:
    """The records that have these values."""
    return [r for r in records if all(r.get(name) == value for name, value in wanted.items())]
