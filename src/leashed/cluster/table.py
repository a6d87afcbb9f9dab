"""What a run has come to, in tables."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from leashed.cluster.measures import Counters, counted, over, total
from leashed.report.summary import Table
from leashed.report.table import MISSING, duration, mebibytes, number, pairs

__all__ = ["NOTE", "facts", "line", "lived", "members", "render", "servers", "trainers"]

NOTE = (
    "Counted since a process was started last. sync gap: iterations over synchronisations (eq. 2 of "
    "the ShadowSync paper, first form); by bytes: iterations over transfers of the whole of w, each "
    "direction apart (second form). EPS: over the time that a trainer was a member, of all: from the "
    "first one's coming to the last one's going. in sync: time spent in synchronisation."
)
_TRAINERS = (
    "trainer",
    "examples",
    "iterations",
    "EPS",
    "sync gap",
    "by bytes out",
    "in",
    "syncs/s",
    "out",
    "in",
    "in sync",
    "failed",
    "staleness",
    "restarts",
)
_SERVERS = ("sync server", "exchanges", "of all its fragments", "in", "out", "lost", "restarts")


def render(report: Mapping[str, Any]) -> str:
    """The tables of a run, as text.

    Args:
        report: as in run.json, with what ``outcome.conclude`` adds. What it lacks is left out.
    """
    processes = [str(table) for table in (trainers(report), servers(report)) if table.rows]
    return "\n\n".join([*processes, pairs(facts(report)), str(members(report))])


def trainers(report: Mapping[str, Any]) -> Table:
    """A row per trainer, and one for all."""
    counters, restarts = counted(report, "trainer"), report.get("restarts", {})
    rows = [
        _trainer(str(index), each, lived(report, index), report, restarts)
        for index, each in counters.items()
    ]
    if rows:
        rows.append(_trainer("all", total(counters.values()), lived(report), report, restarts))
    return Table(list(_TRAINERS), rows)


def servers(report: Mapping[str, Any]) -> Table:
    """A row per sync server."""
    restarts = report.get("restarts", {})
    rows = [_server(index, each, restarts) for index, each in counted(report, "sync-ps").items()]
    return Table(list(_SERVERS), rows)


def line(report: Mapping[str, Any]) -> str:
    """The state of a run in one line."""
    now = over(total(counted(report, "trainer").values()), lived(report), report)
    ledger = report["ledger"]
    parts = [f"{report['seconds']:.1f} s"]
    if ledger.get("total"):
        parts.append(f"{ledger['complete']:,} of {ledger['total']:,} batches")
    parts += [
        f"{0.0 if math.isnan(now.eps) else now.eps:,.0f} EPS",
        f"sync gap {number(now.gap)}",
        f"{sum(member['gone'] is None for member in report['members'])} members",
    ]
    return "  ".join(parts)


def lived(report: Mapping[str, Any], index: int | None = None) -> float:
    """Seconds for which a trainer has been a member since it was started last; without ``index``:
    from the coming of the first to the going of the last of all.
    """
    trainers = [each for each in report["members"] if each["role"] == "trainer"]
    if index is not None:
        trainers = [each for each in trainers if each["index"] == index][-1:]
    if not trainers:
        return 0.0
    ends = [report["seconds"] if each["gone"] is None else each["gone"] for each in trainers]
    return float(max(ends) - min(each["joined"] for each in trainers))


def _trainer(
    name: str,
    counters: Counters,
    seconds: float,
    report: Mapping[str, Any],
    restarts: Mapping[str, int],
) -> list[str]:
    measures = over(counters, seconds, report)
    again = sum(
        count
        for process, count in restarts.items()
        if process == f"trainer-{name}" or (name == "all" and process.startswith("trainer-"))
    )
    mean = counters.get("staleness_mean", math.nan)
    return [
        name,
        _count(counters, "examples"),
        _count(counters, "batches_used"),
        _whole(measures.eps),
        number(measures.gap),
        number(measures.gap_out),
        number(measures.gap_in),
        number(measures.syncs),
        _bytes(counters, "bytes_out"),
        _bytes(counters, "bytes_in"),
        duration(counters.get("sync_seconds", math.nan)),
        _count(counters, "sync_failed"),
        MISSING if name == "all" else number(mean),  # means do not add up
        str(again),
    ]


def _server(index: int, counters: Counters, restarts: Mapping[str, int]) -> list[str]:
    return [
        str(index),
        _count(counters, "exchanges"),
        _count(counters, "whole"),
        _bytes(counters, "bytes_in"),
        _bytes(counters, "bytes_out"),
        _count(counters, "lost"),
        str(restarts.get(f"sync-ps-{index}", 0)),
    ]


def facts(report: Mapping[str, Any]) -> list[tuple[str, str]]:
    """What is to be said of the run as a whole, by name."""
    ledger = report["ledger"]
    known = []
    if "sync" in report:
        known.append(("trained", f"{report['model']} on {report['data']}, sync {report['sync']}"))
    known += [
        ("run", f"{report['state']} ({report['reason']}) after {duration(report['seconds'])}"),
        ("ledger", ", ".join(f"{name} {_plain(value)}" for name, value in ledger.items())),
    ]
    refused = {
        **{
            f"trainer {k}": v.get("sync_not_finite", 0.0)
            for k, v in counted(report, "trainer").items()
        },
        **{
            f"sync server {k}": v.get("not_finite", 0.0)
            for k, v in counted(report, "sync-ps").items()
        },
    }
    if any(refused.values()):
        told = ", ".join(f"{name} {count:,.0f}" for name, count in refused.items() if count)
        known.append(("not finite", f"{told} (rounds and fragments that nobody has taken)"))
    if "restarts" in report:
        again = [f"{name} {count}" for name, count in report["restarts"].items() if count]
        told = f"{', '.join(again)} (whose rows count from their last start)" if again else "none"
        known.append(("restarts", told))
    if "elp" in report:
        known.append(("ELP", f"{report['elp']:,} examples worked on at one time"))
    if "output" in report:
        known.append(("output", str(report["output"])))
        known.append(("train loss", number(report["train_loss"], 4)))
        known.append(("test accuracy", f"{100.0 * report['test_accuracy']:.2f}%"))
    return known


def members(report: Mapping[str, Any]) -> Table:
    """Who came and went, and why."""
    rows = []
    for each in sorted(report["members"], key=lambda member: float(member["joined"])):
        gone = each["gone"]
        rows.append(
            [
                f"{each['role']} {each['index']}",
                duration(each["joined"]),
                MISSING if gone is None else duration(gone),
                each["why"] or MISSING,
            ]
        )
    return Table(["member", "came", "went", "why"], rows)


def _plain(value: Any) -> str:
    return "∞" if value is None else f"{value:,}"


def _count(counters: Counters, name: str) -> str:
    return _whole(counters.get(name, math.nan))


def _whole(value: float) -> str:
    return f"{value:,.0f}" if math.isfinite(value) else number(value)


def _bytes(counters: Counters, name: str) -> str:
    return mebibytes(counters[name]) if name in counters else MISSING
