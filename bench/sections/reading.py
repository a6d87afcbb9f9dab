"""Text into arrays beside other libraries, and training from text beside training from memory.

Everybody makes the same arrays of the same file, which lies in the system's cache, each time from
the beginning. DLRM (``bench.dlrm``) trains on the file, read again and again, and on the same rows
read before; both by as many threads as there are processors, and the stream's beside them.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import leashed as lsh
from bench import dlrm, figures, readers
from bench.context import Bench, Record
from bench.figures import Results
from bench.markdown import count, number, paragraphs, table
from bench.section import Goal
from bench.turns import Turn, quiet_median, record, take_turns, timed

PLACE, TITLE = 220, "Reading text"

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
    model = dlrm.model()
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


def _from_text(record: Record) -> float:
    rate, share = record["rate"], record["cpu_share"]
    text, memory = (quiet_median(rate[name], share[name]) for name in ("text", "memory"))
    return text / memory


def over_peers(results: Results) -> float | None:
    """Bytes per second over those of the fastest peer."""
    found = figures.records(results, "reading", figure="reading")
    rates = {n: statistics.median(r) for n, r in found[0]["rate"].items()} if found else {}
    peers = [rate for name, rate in rates.items() if name != "leashed"]
    return rates["leashed"] / max(peers) if peers else None


def from_text(batch: int, results: Results) -> float | None:
    """Examples per second of DLRM trained from text, over those from memory."""
    found = figures.records(results, "reading", figure="training", batch=batch)
    return _from_text(found[0]) if found else None


def words(results: Results) -> str:
    """All of it."""
    read, trained = (
        figures.records(results, "reading", figure=figure) for figure in ("reading", "training")
    )
    if not read:
        return ""
    rates = [
        [name, number(statistics.median(rate) / 1e6), number(statistics.median(share))]
        for (name, rate), share in zip(
            read[0]["rate"].items(), read[0]["cpu_share"].values(), strict=True
        )
    ]
    ratios = [
        [
            str(record["batch"]),
            number(_from_text(record)),
            f"{statistics.median(record['waits']['text']):.2%}",
        ]
        for record in trained
    ]
    return paragraphs(
        f"A file in Criteo's format into the same arrays, {read[0]['bytes'] / 1e6:.0f} MB, "
        f"{count(read[0]['threads'], 'thread')}; medians of the turns.",
        table(["", "MB/s", "share of the processors"], rates),
        "DLRM trained from that text, beside training from the same rows in memory: the readers' "
        "threads are beside the trainers' on the same processors.",
        table(["batch", "examples/s over memory's", "trainers wait for data"], ratios),
    )


GOALS = (
    Goal(
        "Criteo's text into arrays, bytes/s over the fastest library's", 1.5, over_peers, unit="×"
    ),
    *(
        Goal(
            f"DLRM, batch {batch}, trained from text, examples/s over from memory",
            0.75,
            partial(from_text, batch),
        )
        for batch in _BATCHES
    ),
)
