"""How many examples hypothesis draws."""

from __future__ import annotations

import os

# LEASHED_EXAMPLES=20 makes it 20 times as many everywhere, as `make test-all` does.
TIMES = int(os.environ.get("LEASHED_EXAMPLES", "1"))


def examples(count: int = 100) -> int:
    """``count`` of them, where nothing else was asked for."""
    return count * TIMES
