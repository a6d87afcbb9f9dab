"""The page's part on reading text, and the figures that goals ask for."""

from __future__ import annotations

import statistics
from collections.abc import Callable

from bench import figures
from bench.context import Record, only
from bench.figures import Results
from bench.markdown import count, number, paragraphs, table
from bench.turns import quiet_median

OURS = "leashed"


def _records(results: Results, **wanted: object) -> list[Record]:
    return only(figures.figures(results, "reading") or [], **wanted)


def _from_text(record: Record) -> float:
    rate, share = record["rate"], record["cpu_share"]
    text, memory = (quiet_median(rate[name], share[name]) for name in ("text", "memory"))
    return text / memory


def over_peers(results: Results) -> float | None:
    """Bytes per second over those of the fastest peer."""
    found = _records(results, figure="reading")
    rates = {n: statistics.median(r) for n, r in found[0]["rate"].items()} if found else {}
    peers = [rate for name, rate in rates.items() if name != OURS]
    return rates[OURS] / max(peers) if peers else None


def from_text(batch: int, results: Results) -> float | None:
    """Examples per second of DLRM trained from text, over those from memory."""
    found = _records(results, figure="training", batch=batch)
    return _from_text(found[0]) if found else None


def words(results: Results) -> str:
    """All of it."""
    read, trained = (_records(results, figure=figure) for figure in ("reading", "training"))
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


SECTIONS: dict[str, Callable[[Results], str]] = {"Reading text": words}
PROFILES = {"reading": ("Reading text", words)}
