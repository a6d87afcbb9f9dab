"""What a run has come to, in tables."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from leashed.base.table import MISSING, Table, duration, number, pairs
from leashed.cluster import mode_row_table, mode_table, row_table, traffic
from leashed.cluster.cells import count, size, whole
from leashed.cluster.measures import Counters, Life, counted, lives, measure, total
from leashed.cluster.packing import BY_LENGTH
from leashed.cluster.roles import ROLES

__all__ = [
    "NOTE",
    "facts",
    "line",
    "lived",
    "members",
    "render",
    "servers",
    "trainers",
]

NOTE = (
    "Counted over all lives of a process, what it had told before it died included. sync gap: "
    "iterations over synchronisations (eq. 2 of the ShadowSync paper, first form); by bytes: "
    "iterations over transfers of the whole of w in as many bytes as it takes, compressed or not, "
    "each direction apart (second form). EPS: over the time that a trainer was a member, up to when "
    "it counted, of all: from the first one's coming to the last count, with what was trained and "
    "not counted. in sync: time spent in synchronisation. load: what one exchange of all fragments of a server costs it, as profiled; "
    "serving: processor time that all of them have cost."
)
_TRAINERS = (
    "trainer",
    "examples",
    "iterations",
    "EPS",
    "sync gap",
    "by bytes out",
    "by bytes in",
    "syncs/s",
    "out",
    "in",
    "in sync",
    "failed",
    "staleness",
    "lives",
)
_SERVERS = (
    "sync server",
    "fragments",
    "load",
    "exchanges",
    "of all its fragments",
    "serving",
    "in",
    "out",
    "lost",
    "lives",
)


def render(report: Mapping[str, Any]) -> str:
    """The tables of a run, as text.

    Args:
        report: as in run.json, with what ``outcome.conclude`` adds. What it lacks is left out.
    """
    tables = (
        trainers(report),
        servers(report),
        row_table.servers(report),
        mode_table.servers(report),
        mode_row_table.servers(report),
        traffic.table(report),
    )
    processes = [str(table) for table in tables if table.rows]
    return "\n\n".join([*processes, pairs(facts(report)), str(members(report))])


def trainers(report: Mapping[str, Any]) -> Table:
    """A row per trainer, and one for all."""
    counters, processes = counted(report, "trainer"), lives(report, "trainer")
    batch_size = report["terms"]["batch_size"]
    rows = [
        _trainer(str(index), each, lived(report, index), batch_size, len(processes[index]))
        for index, each in counters.items()
    ]
    if rows:
        several = sum(map(len, processes.values()))
        every = total(counters.values())
        rows.append(_trainer("all", every, lived(report), batch_size, several, _eps(report)))
    return Table(list(_TRAINERS), rows)


def servers(report: Mapping[str, Any]) -> Table:
    """A row per sync server."""
    packing, processes = report.get("packing"), lives(report, "sync-ps")
    rows = [
        _server(index, each, packing and packing["servers"][index], processes[index])
        for index, each in counted(report, "sync-ps").items()
    ]
    return Table(list(_SERVERS), rows)


def line(report: Mapping[str, Any]) -> str:
    """The state of a run in one line."""
    counters = total(counted(report, "trainer").values())
    now = measure(counters, lived(report), report["terms"]["batch_size"])
    ledger = report["ledger"]
    parts = [f"{report['seconds']:.1f} s"]
    of = f" of {ledger['total']:,}" if ledger.get("total") else ""
    parts.append(f"{ledger['complete']:,}{of} batches")
    parts += [
        f"{_eps(report):,.0f} EPS",
        f"sync gap {number(now.gap)}",
        f"{sum(member['gone'] is None for member in report['members'])} members",
    ]
    return "  ".join(parts)


def lived(report: Mapping[str, Any], index: int | None = None) -> float:
    """Seconds for which a trainer was a member, in all its lives, up to its newest count in each;
    without ``index``: from the coming of the first to the newest count of all, or, of who has told
    nothing, its going.
    """
    if index is not None:
        return sum(life.seconds for life in lives(report, "trainer")[index])
    trainers = [each for each in report["members"] if each["role"] == "trainer"]
    ends = [
        next(at for at in (each["counted"], each["gone"], report["seconds"]) if at is not None)
        for each in trainers
    ]
    return float(max(ends) - min(each["joined"] for each in trainers)) if trainers else 0.0


def _eps(report: Mapping[str, Any]) -> float:
    """Of all trainers, those included of which nothing is counted, since they died with the master."""
    ledger, seconds = report["ledger"], lived(report)
    anew = ledger.get("lost", 0) + ledger.get("undone", 0)
    known = ledger["complete"] - ledger.get("resumed", 0) + anew
    counters = total(counted(report, "trainer").values())
    trained = max(counters.get("examples", 0.0), known * report["terms"]["batch_size"])
    return trained / seconds if seconds > 0.0 else 0.0


def _trainer(
    name: str,
    counters: Counters,
    seconds: float,
    batch_size: float,
    several: int,
    eps: float | None = None,
) -> list[str]:
    measures = measure(counters, seconds, batch_size)
    mean = counters.get("staleness_mean", math.nan)
    return [
        name,
        count(counters, "examples"),
        count(counters, "batches_used"),
        whole(measures.eps if eps is None else eps),
        number(measures.gap),
        number(measures.gap_out),
        number(measures.gap_in),
        number(measures.syncs),
        size(counters, "bytes_out"),
        size(counters, "bytes_in"),
        duration(counters.get("sync_seconds", math.nan)),
        count(counters, "sync_failed"),
        MISSING if name == "all" else number(mean),  # means do not add up
        str(several),
    ]


def _server(
    index: int, counters: Counters, packed: Mapping[str, Any] | None, several: list[Life]
) -> list[str]:
    return [
        str(index),
        MISSING if packed is None else str(packed["fragments"]),
        duration(math.nan if packed is None else packed["load"]),
        count(counters, "exchanges"),
        count(counters, "whole"),
        duration(counters.get("serving_seconds", math.nan)),
        size(counters, "bytes_in"),
        size(counters, "bytes_out"),
        count(counters, "lost"),
        str(len(several)),
    ]


def facts(report: Mapping[str, Any]) -> list[tuple[str, str]]:
    """What is to be said of the run as a whole, by name."""
    ledger = dict(report["ledger"])
    if "mode" in report and ledger["total"] is None:  # all that there may be is the policy server's
        ledger["outstanding"] = None
    known = []
    if "sync" in report:
        by = f"mode {report['mode']}" if "mode" in report else f"sync {report['sync']}"
        known.append(("trained", f"{report['model']} on {report['data']}, {by}"))
    known += [
        ("run", f"{report['state']} ({report['reason']}) after {duration(report['seconds'])}"),
        ("ledger", ", ".join(f"{name} {_plain(value)}" for name, value in ledger.items())),
    ]
    if "reading" in report:
        known.append(("rows read", _reading(report["reading"])))
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
    known += [("turned away", f"{name}: {why}") for name, why in report.get("unlike", {}).items()]
    if any(refused.values()):
        told = ", ".join(f"{name} {count:,.0f}" for name, count in refused.items() if count)
        known.append(("not finite", f"{told} (rounds and fragments that nobody has taken)"))
    unwritten = [
        f"{v['snapshots_failed']:,.0f} of {role.words} {k}"
        for name, role in ROLES.items()
        for k, v in counted(report, name).items()
        if v.get("snapshots_failed")
    ]
    if unwritten:
        known.append(("snapshots", f"{', '.join(unwritten)} not written; its log says why"))
    if partial := _partial(report):
        known.append(("partial", f"{'; '.join(partial)} (rounds without some fragments)"))
    if report.get("restarts"):  # (else whoever starts processes here is not known)
        again = [f"{name} {count}" for name, count in report["restarts"].items() if count]
        known.append(("restarts", ", ".join(again) or "none"))
    known += [("given up", f"{name} {how}") for name, how in report.get("given_up", {}).items()]
    if untold := _untold(report):
        known.append(("not counted", f"{', '.join(untold)}: gone before the master was told"))
    if "packing" in report:
        known.append(("packing", _packing(report["packing"])))
    known += row_table.facts(report)
    known += mode_table.facts(report)
    known += mode_row_table.facts(report)
    if "elp" in report:
        known.append(("ELP", f"{report['elp']:,} examples worked on at one time"))
    if report.get("no_output"):
        known.append(("no output", str(report["no_output"])))
    if "output" in report:
        known.append(("output", str(report["output"])))
        if "train_loss" in report:
            known.append(("train loss", number(report["train_loss"], 4)))
        if "test_loss" in report:  # of older runs there is none
            known.append(("test loss", number(report["test_loss"], 4)))
        if "test_accuracy" in report:
            known.append(("test accuracy", f"{100.0 * report['test_accuracy']:.2f}%"))
        if "test_auc" in report:
            entropy = number(report["test_normalised_entropy"], 4)
            known.append(("test AUC", f"{report['test_auc']:.4f}, normalised entropy {entropy}"))
    return known


def _reading(told: Mapping[str, Any]) -> str:
    """Of a pass, and what was left out of it, or comes no more and was not trained on."""
    parts = [f"{told['rows']:,}"]
    if unused := told["rows"] - told.get("used", told["rows"]):
        parts.append(f"{unused:,} of them not trained on, and the pipe has them no more")
    if told["bad"]:
        file, line, why = told["first_bad"][0]
        bad = f"{told['bad']:,} bad lines left out, the first of them {line:,} of {file}: {why}"
        parts.append(bad)
    return "; ".join(parts)


def _partial(report: Mapping[str, Any]) -> list[str]:
    """Trainers whose rounds were without some fragments, and for how many rounds these wait."""
    return [
        f"trainer {index} {each['sync_partial']:,.0f} of {each['syncs']:,.0f}, "
        f"one waiting for {each['sync_lag']:,.0f}"
        for index, each in counted(report, "trainer").items()
        # (For one round each waits, while that is under way or was at the end.)
        if each.get("sync_partial") or each.get("sync_lag", 0.0) > 1.0
    ]


def _untold(report: Mapping[str, Any]) -> list[str]:
    """Trainers that have gone, and of what they counted nothing is known: they had told nothing, or
    none but a master that died with it.
    """
    back = {each["before"] for each in report["members"]}  # who has told all of it since
    return [
        f"{each['role']} {each['index']} ({duration(each['joined'])} to {duration(each['gone'])})"
        for each in report["members"]
        if each["role"] == "trainer" and each["gone"] is not None and each["counted"] is None
        if each["id"] not in back
    ]


def _packing(packing: Mapping[str, Any]) -> str:
    told = f"the most loaded server has {number(packing['imbalance'], 4)} times the least possible"
    if (packing["one"], packing["whole"]) == (BY_LENGTH.one, BY_LENGTH.whole):
        return f"{told}, by bytes"
    return (
        f"{told}; an exchange costs {duration(packing['whole'])} for a whole fragment, "
        f"{duration(packing['one'])} for one float"
    )


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
