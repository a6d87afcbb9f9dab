"""A training in a process that is killed after it has told of its progress."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path


def told_by(program: str, *arguments: str) -> list[tuple[int, float]]:
    """What a program has told when it is killed, which prints lines of updates and loss (in
    hexadecimal): eight lines at least, the last but one of updates, and the last of more.
    """
    child = subprocess.Popen(
        [sys.executable, "-c", program, *arguments],
        stdout=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).parent,  # where it finds the tests' own modules
    )
    assert child.stdout is not None
    told: list[tuple[int, float]] = []
    try:
        while len(told) < 8 or not 0 < told[-2][0] < told[-1][0]:
            updates, loss = child.stdout.readline().split()
            told.append((int(updates), float.fromhex(loss)))
    finally:
        child.kill()
        child.wait()
        child.stdout.close()
    return told
