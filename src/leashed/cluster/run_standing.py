"""How a run stands, as its report tells it: batches, members, what was counted of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from leashed.cluster.ledger import Ledger
from leashed.cluster.measures import counted
from leashed.cluster.state import State, Terms

__all__ = ["standing"]


def standing(
    run: str, terms: Terms, state: State, now: float, malformed: int, unlike: Mapping[str, str]
) -> dict[str, Any]:
    """As JSON's own types; times are in seconds since it began.

    Args:
        run: its name.
        terms: what it is.
        state: of it.
        now: the time.
        malformed: connections closed because what came on them made no sense.
        unlike: processes that were turned away, by name: why.
    """
    ledger, membership, read = state.ledger, state.membership, state.read
    everybody: list[dict[str, Any]] = [
        {
            "id": m.id, "role": m.role, "index": m.index, "address": m.address,
            "joined": m.joined, "gone": None, "why": None, "finished": False,
            "before": m.before, "counters": dict(m.counters), "counted": m.counted,
            "trouble": m.trouble,
        }
        for m in membership.members.values()
    ] + [
        {
            "id": p.id, "role": p.role, "index": p.index, "address": p.address,
            "joined": p.joined, "gone": p.gone, "why": p.why, "finished": p.finished,
            "before": p.before, "counters": dict(p.counters), "counted": p.counted,
        }
        for p in membership.past
    ]  # fmt: skip
    everybody.sort(key=lambda m: int(m["id"]))
    return {
        "run": run,
        "state": "running" if state.over is None else state.how,
        "reason": state.over,
        "seconds": now if state.over is None else state.ended,
        "ledger": {
            "total": ledger.total,
            "complete": ledger.complete,
            "outstanding": ledger.outstanding,
            "free": ledger.free,
            "granted": ledger.tickets,
            "again": ledger.again,
            "late": ledger.late,
            "resumed": ledger.resumed,
            "restored": ledger.restored,
            "lost": ledger.lost,
            "undone": ledger.undone,
            "twice": _twice(ledger, everybody, terms.batch_size),
            "with_replicas": round(
                sum(
                    past.counters.get("unsynced", 0)
                    for past in membership.past
                    if past.role == "trainer" and not past.finished
                )
            ),
        },
        "read": read
        and {
            "rows": read.rows,
            "ended": read.ended,
            "used": ledger.rows(read.rows, terms.batch_size),
        },
        "checkpoints": {
            "whole": state.cuts.whole,
            "made": state.cuts.made,
            "given_up": state.cuts.given_up,
            "why": state.cuts.why,
        },
        "epoch": membership.epoch.number,
        "epochs_broken": membership.broken,
        "malformed": malformed,
        "unlike": dict(unlike),
        "members": everybody,
        "metrics": {f"{m['role']}-{m['index']}": m["counters"] for m in everybody if m["counters"]},
        "summaries": dict(state.summaries),
    }


def _twice(ledger: Ledger, members: list[dict[str, Any]], batch_size: int) -> int:
    """Batches that a trainer has told of which another had, or had itself before it was taken for dead."""
    leaders = counted({"members": members}, "policy-ps")
    if leaders:  # of which the first knows of each gradient whether another's was before it
        return round(leaders.get(0, {}).get("mode_late", 0.0) / batch_size)
    told = counted({"members": members}, "trainer").values()
    used = round(sum(each.get("batches_used", 0.0) for each in told))
    # (Less where counters went with a trainer that died while there was no master.)
    return max(0, used - (ledger.complete - ledger.resumed) - ledger.lost)
