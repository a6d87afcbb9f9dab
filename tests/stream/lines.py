"""Lines of files for the tests of streams."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path

COLUMNS = ("Label", *(f"I{j}" for j in range(1, 14)), *(f"C{f}" for f in range(1, 27)))


def criteo_line(draw: random.Random) -> list[str]:
    """A row as the published files have them: with what is missing, and large and negative numbers."""
    numbers = [
        draw.choice(["", "0", "-1", str(draw.randrange(10 ** draw.randrange(1, 9))), "2.5"])
        for _ in range(13)
    ]
    categories = [
        draw.choice(["", f"{draw.getrandbits(32):08x}", f"{draw.getrandbits(32):08X}"])
        for _ in range(26)
    ]
    return [str(draw.randrange(2)), *numbers, *categories]


def criteo_rows(count: int, seed: int = 0) -> list[list[str]]:
    draw = random.Random(seed)
    return [criteo_line(draw) for _ in range(count)]


def write(
    path: Path, rows: Sequence[Sequence[str]], separator: str = "\t", end: str = "\n"
) -> Path:
    path.write_bytes("".join(separator.join(row) + end for row in rows).encode())
    return path
