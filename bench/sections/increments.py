"""Files of the rows that have changed against files of all rows: bytes and time after 1% of the rows
of a table were updated, and after none, which is the scan over the rows' headers.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import leashed as lsh
from bench.context import Bench

_ROWS, _DIM = 1_000_000, 16
_ROUNDS = 7
_PERCENT = 1


def _seconds(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def measure(bench: Bench) -> list[dict[str, Any]]:
    """A record of each kind of table."""
    rows = bench.times(_ROWS, least=20_000)
    found = []
    for name, size in (("fixed", {"rows": rows}), ("growing", {"max_bytes": 400 * rows})):
        table = lsh.Table(dim=_DIM, rule=lsh.Adagrad(0.05), **size)
        ids = np.arange(rows)
        rng = np.random.default_rng(1)
        some = rng.permutation(rows)[: rows * _PERCENT // 100]
        for part in np.array_split(ids, max(1, rows // 50_000)):
            table.update(part, np.ones((len(part), _DIM), np.float32))
        seconds: dict[str, list[float]] = {"all": [], "changes": [], "scan": []}
        with tempfile.TemporaryDirectory() as folder:
            path = {what: Path(folder) / what for what in seconds}
            for _ in range(bench.times(_ROUNDS)):
                seconds["all"].append(_seconds(lambda: table.save_tracked(path["all"])))  # noqa: B023
                table.update(some, np.ones((len(some), _DIM), np.float32))
                for what in ("changes", "scan"):
                    seconds[what].append(_seconds(lambda: table.save_changes(path[what])))  # noqa: B023
            bytes_of = {what: file.stat().st_size for what, file in path.items()}
        found.append({"figure": name, "rows": rows, "seconds": seconds, "bytes": bytes_of})
    return found
