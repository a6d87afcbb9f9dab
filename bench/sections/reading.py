"""Text into arrays beside other libraries, and training from text beside training from memory.

Everybody makes the same arrays of the same file, which lies in the system's cache, each time from
the beginning. DLRM (``bench.dlrm``) trains on the file, read again and again, and on the same rows
read before; both by as many threads as there are processors, and the stream's beside them.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import leashed as lsh
from bench import dlrm, readers
from bench.context import Bench
from bench.turns import Turn, record, take_turns, timed

_ROWS = 1 << 17
_ROUNDS = 5
_SECONDS = 3.0  # of a turn
_BATCHES = (128, 2048)


def _read(read: Callable[[Path, int], Any], path: Path, threads: int) -> float:
    """Bytes per second."""
    begin = time.perf_counter()
    read(path, threads)
    return path.stat().st_size / (time.perf_counter() - begin)


def _trainer(data: Any, batch: int, threads: int, waits: list[float]) -> Callable[[float], float]:
    """Trains for so many seconds; examples per second."""
    model = lsh.models.dlrm(
        dlrm.ROWS, dlrm.DIM, dlrm.DENSE, dlrm.BOTTOM, dlrm.TOP, categories=dlrm.TABLES
    )
    rule = lsh.Adagrad(dlrm.LR)
    tables = lsh.tables.of(model.tables, rule=rule, versions=False)

    def train(seconds: float) -> float:
        result = lsh.train(
            model,
            data,
            until=lsh.until(seconds=seconds),
            discipline=lsh.Hogwild(),
            rule=rule,
            threads=threads,
            batch_size=batch,
            init=lsh.Init(tables=tables),
            observe=lsh.Observe(every=1e6),
        )
        waits.append(result.breakdown.get("data", 0.0) / sum(result.breakdown.values()))
        return result.mean_eps

    return train


def measure(bench: Bench) -> list[dict[str, Any]]:
    """A record of reading, and one of training with each batch size."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "day.tsv"
        readers.write(path, _ROWS)
        plays: dict[str, Callable[[], Turn]] = {
            name: partial(timed, partial(_read, read, path, bench.threads), bench.threads)
            for name, read in readers.contenders().items()
        }
        take_turns(plays, 1)
        turns = take_turns(plays, bench.times(_ROUNDS))
        found: list[dict[str, Any]] = [
            {"figure": "reading", "bytes": path.stat().st_size, "threads": bench.threads}
            | record(turns)
        ]
        rows = readers.opened(path, bench.threads, dlrm.ROWS)
        memory = rows.read()
        seconds = bench.seconds(_SECONDS, least=0.3)
        for batch in _BATCHES:
            waits: dict[str, list[float]] = {"text": [], "memory": []}
            plays = {}
            for name, data in (("text", rows), ("memory", memory)):
                train = _trainer(data, batch, bench.threads, waits[name])
                train(seconds / 2)
                plays[name] = partial(timed, partial(train, seconds), bench.threads)
            turns = take_turns(plays, bench.times(_ROUNDS))
            found.append(
                {"figure": "training", "batch": batch, "threads": bench.threads, "waits": waits}
                | record(turns)
            )
    return found
