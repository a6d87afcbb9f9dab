"""What a run has come to, in tables."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from leashed.cluster.measures import Counters, over, total
from leashed.report.table import MISSING, duration, mebibytes, number, pairs, text

__all__ = ["line", "lived", "render"]

_HEADER = (
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
    """The tables of a run.

    Args:
        report: as in run.json, with what ``leashed cluster up`` adds: ``restarts`` by process,
            ``output``, ``train_loss`` and ``test_accuracy``. What it lacks is left out.
    """
    trainers: Mapping[str, Counters] = report["trainers"]
    restarts: Mapping[str, int] = report.get("restarts", {})
    rows = [
        _trainer(f"{index}", counters, lived(report, "trainer", index), report, restarts)
        for index, counters in sorted(trainers.items(), key=lambda item: int(item[0]))
    ]
    if rows:
        everything = total(trainers.values())
        rows.append(_trainer("all", everything, float(report["seconds"]), report, restarts))
    parts = [text(_HEADER, rows)]
    servers = sorted(report["servers"].items(), key=lambda item: int(item[0]))
    if servers:
        parts.append(text(_SERVERS, [_server(index, each, restarts) for index, each in servers]))
    parts += [pairs(_facts(report)), _members(report)]
    return "\n\n".join(parts)


def line(report: Mapping[str, Any]) -> str:
    """The state of a run in one line."""
    everything = total(report["trainers"].values())
    now = over(everything, float(report["seconds"]), report)
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


def lived(report: Mapping[str, Any], role: str, index: str) -> float:
    """Seconds for which a process, with all that it was started again as, has been a member."""
    return math.fsum(
        (report["seconds"] if each["gone"] is None else each["gone"]) - each["joined"]
        for each in report["members"]
        if each["role"] == role and str(each["index"]) == index
    )


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


def _server(index: str, counters: Counters, restarts: Mapping[str, int]) -> list[str]:
    return [
        index,
        _count(counters, "exchanges"),
        _count(counters, "whole"),
        _bytes(counters, "bytes_in"),
        _bytes(counters, "bytes_out"),
        _count(counters, "lost"),
        str(restarts.get(f"sync-ps-{index}", 0)),
    ]


def _facts(report: Mapping[str, Any]) -> list[tuple[str, str]]:
    ledger = report["ledger"]
    known = [
        ("run", f"{report['state']} ({report['reason']}) after {duration(report['seconds'])}"),
        ("ledger", ", ".join(f"{name} {_plain(value)}" for name, value in ledger.items())),
    ]
    if report.get("restarts"):
        again = [f"{name} {count}" for name, count in report["restarts"].items() if count]
        known.append(("restarts", ", ".join(again) or "none"))
    if "elp" in report:
        known.append(("ELP", f"{report['elp']:,} examples worked on at one time"))
    if "output" in report:
        known.append(("output", str(report["output"])))
        known.append(("train loss", number(report["train_loss"], 4)))
        known.append(("test accuracy", f"{100.0 * report['test_accuracy']:.2f}%"))
    return known


def _members(report: Mapping[str, Any]) -> str:
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
    return text(["member", "came", "went", "why"], rows)


def _plain(value: Any) -> str:
    return "∞" if value is None else f"{value:,}"


def _count(counters: Counters, name: str) -> str:
    return _whole(counters.get(name, math.nan))


def _whole(value: float) -> str:
    return f"{value:,.0f}" if math.isfinite(value) else number(value)


def _bytes(counters: Counters, name: str) -> str:
    return mebibytes(counters[name]) if name in counters else MISSING
