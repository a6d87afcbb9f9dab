"""What a run's embedding servers have done, and what rows have cost its trainers, in tables."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from leashed.base.table import MISSING, Table, duration, number
from leashed.cluster.cells import count, size
from leashed.cluster.measures import Counters, Life, counted, lives, total
from leashed.cluster.packing import BY_ROW_BYTES, Costs

__all__ = ["NOTE", "facts", "servers"]

NOTE = (
    "rows: that have a place now, of all of its tables. load: what rows of a batch cost it, as profiled, "
    "were all of them different. looked up, for training and not: each batch has "
    "an id once. staleness: of updates of rows, in updates of the same row between its look-up and its "
    "update. serving: processor time. stall: seconds for which snapshots kept everybody waiting, and the "
    "longest. lost: pushes that had been applied and that a restart did not find in the last snapshot."
)
_HEADER = (
    "embedding server",
    "rows",
    "load",
    "memory",
    "lookups",
    "looked up",
    "pushes",
    "updates of rows",
    "staleness",
    "serving",
    "in",
    "out",
    "stall",
    "lost",
    "lives",
)
_POOLED = "row_pooled_"
"""Before a feature's number: whether servers pool it, of a trainer."""
_UNUSED = {
    "row_not_finite": "with gradients that were not finite",
    "row_expired": "of rows that were held too long",
    "row_unsettled": "of which nobody knows at the end",
}
"""Pushes that made no update, or may have made none, by the counter of a trainer."""
_ROWLESS = {
    "row_refused": "had no room (--table-mib, --evict)",
    "row_deferred": "came while another thread made room",
    "row_late": "had lost their row since it was looked up",
    "row_unadmitted": "had not come often enough",
}
"""Ids of pushes that learn nothing, by the counter of an embedding server."""


def servers(report: Mapping[str, Any]) -> Table:
    """A row per embedding server; none in a run without.

    Args:
        report: as in run.json.
    """
    loads, processes = _loads(report), lives(report, "embedding-ps")
    rows = [
        _server(index, each, loads.get(index, math.nan), processes[index])
        for index, each in counted(report, "embedding-ps").items()
    ]
    return Table(list(_HEADER), rows)


def facts(report: Mapping[str, Any]) -> list[tuple[str, str]]:
    """What is to be said of rows in the run as a whole, by name; nothing of a run without."""
    here = counted(report, "embedding-ps")
    if not here:
        return []
    asked = total(counted(report, "trainer").values())
    known = []
    if (cost := _bytes_an_example(asked)) is not None:
        known.append(("rows", cost))
    if (pools := _pools(asked, counted(report, "trainer"))) is not None:
        known.append(("pools of rows", pools))
    batches = asked.get("batches_used", 0.0)
    for counter, what in (("row_seconds", "rows"), ("row_settling", "pushes")):
        if counter in asked and batches:
            waited = duration(asked[counter])
            each = duration(asked[counter] / batches)
            known.append((f"waits for {what}", f"{waited} of all workers, {each} a batch"))
    if "row_pushes" in asked:
        told = f"{asked['row_pushes']:,.0f} made, {asked.get('row_settled', 0.0):,.0f} settled"
        if lost := asked.get("row_lost", 0.0):
            told += f", {lost:,.0f} lost with {asked.get('row_lost_examples', 0.0):,.0f} examples"
        for name, what in _UNUSED.items():
            if count := asked.get(name, 0.0):
                told += f", {count:,.0f} {what}"
        known.append(("pushes of rows", told))
    if (growth := _growth(total(here.values()))) is not None:
        known.append(("growth of tables", growth))
    if behind := report.get("rows_behind"):
        told = ", ".join(f"{count:,} of {name}" for name, count in behind.items())
        known.append(("not in the output", f"pushes since the last snapshot: {told}"))
    if "row_packing" in report:
        known.append(("packing of rows", _packing(report["row_packing"])))
    if (imbalance := _imbalance(here)) is not None and len(here) > 1:
        told = f"the busiest embedding server has served {number(imbalance)} times the mean"
        known.append(("balance of rows", told))
    return known


def _growth(counted: Counters) -> str | None:
    """What became of ids for which there was no row; None: each had one."""
    without = [
        f"{count:,.0f} {what}"
        for name, what in _ROWLESS.items()
        if (count := counted.get(name, 0.0))
    ]
    evicted = counted.get("row_evicted", 0.0)
    if not without and not evicted:
        return None
    told = [f"{evicted:,.0f} rows evicted"] if evicted else []
    if without:
        asked = counted["row_asked"]
        told.append(f"of {asked:,.0f} ids of pushes {', '.join(without)}, and learnt nothing then")
    return "; ".join(told)


def _loads(report: Mapping[str, Any]) -> dict[int, float]:
    """Seconds, of each server of which they are known."""
    packing = report.get("row_packing")
    if packing is None or _costs(packing) == BY_ROW_BYTES:
        return {}
    return {index: server["load"] for index, server in enumerate(packing["servers"])}


def _costs(packing: Mapping[str, Any]) -> Costs:
    return Costs(packing["one"], packing["whole"])


def _packing(packing: Mapping[str, Any]) -> str:
    told = f"the most loaded server has {number(packing['imbalance'], 4)} times the least possible"
    costs = _costs(packing)
    if costs == BY_ROW_BYTES:
        return f"{told}, by bytes"
    dims = f"{duration(costs.of(1))} with one float, {duration(costs.of(64))} with 64"
    return f"{told}; a row costs a server {dims}"


def _bytes_an_example(asked: Counters) -> str | None:
    """What rows have cost on the wire beside the least: each id once, and each float there and back."""
    examples = asked.get("examples", 0.0)
    moved = asked.get("row_bytes_out", math.nan) + asked.get("row_bytes_in", math.nan)
    if not examples or math.isnan(moved):
        return None
    told = f"{moved / examples:,.0f} bytes an example"
    if not (least := asked.get("row_least_bytes", 0.0)):
        return told
    told += f", {number(moved / least)} times the least, {least / examples:,.0f}"
    reads = asked.get("row_reads", 0.0)
    return f"{told} (with {reads:,.0f} look-ups of evaluations)" if reads else told


def _pools(asked: Counters, trainers: Mapping[int, Counters]) -> str | None:
    """Which features servers pool, for which trainers where these have decided differently, and what
    that leaves of the bytes that their rows would take.
    """
    decided: dict[int, dict[int, bool]] = {}  # by feature and trainer
    for trainer, counters in sorted(trainers.items()):
        for name, at in counters.items():
            if name.startswith(_POOLED):
                decided.setdefault(int(name.removeprefix(_POOLED)), {})[trainer] = at > 0.0
    if not decided:
        return None
    pooled = []
    for feature, by in sorted(decided.items()):
        pooling = [str(trainer) for trainer, at in by.items() if at]
        if pooling:
            only = "" if len(pooling) == len(by) else f" for {_trainers(pooling)} alone"
            pooled.append(f"{feature}{only}")
    if not pooled:
        return f"by trainers, of all {len(decided)} features of ids, which are read as rows"
    told = f"by servers of {len(pooled)} of {len(decided)} features of ids (from 0: {', '.join(pooled)})"
    least, rows = asked.get("row_least_bytes", 0.0), asked.get("row_all_rows_bytes", 0.0)
    return f"{told}; the least bytes are {number(least / rows)} of rows'" if rows else told


def _trainers(indices: list[str]) -> str:
    if len(indices) == 1:
        return f"trainer {indices[0]}"
    return f"trainers {', '.join(indices[:-1])} and {indices[-1]}"


def _imbalance(here: Mapping[int, Counters]) -> float | None:
    """The largest of what servers have served over the mean; None: nothing is known."""
    seconds = [each.get("serving_seconds", math.nan) for each in here.values()]
    mean = math.fsum(seconds) / len(seconds)
    return max(seconds) / mean if mean > 0.0 else None


def _server(index: int, counters: Counters, load: float, several: list[Life]) -> list[str]:
    updates = counters.get("row_updates", 0.0)
    stale = counters.get("row_staleness", math.nan) / updates if updates else math.nan
    stall = MISSING
    if "stalled" in counters:
        stall = f"{duration(counters['stalled'])}, {duration(counters['stall'])}"
    return [
        str(index),
        count(counters, "rows"),
        duration(load),
        size(counters, "row_bytes"),
        count(counters, "lookups"),
        count(counters, "looked_up"),
        count(counters, "pushes"),
        count(counters, "row_updates"),
        number(stale),
        duration(counters.get("serving_seconds", math.nan)),
        size(counters, "bytes_in"),
        size(counters, "bytes_out"),
        stall,
        count(counters, "lost"),
        str(len(several)),
    ]
