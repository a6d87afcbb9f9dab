"""When a run is over: its trainers have finished, or what its terms ask for is not there in time."""

from __future__ import annotations

from typing import NamedTuple

from leashed.cluster.roles import ROLES
from leashed.cluster.state import How, State, Terms
from leashed.cluster.verdict import Verdict, cut_short, has_result

__all__ = ["Over", "RunEnds"]

_CRASHED = (
    "all have crashed, with losses or parameters that are not finite, or have trained nothing"
)
_BEHIND = 1.0  # seconds, at most, that counters are older than their coming
_NEVER = "{} never synchronised, and require_sync is set"


class Over(NamedTuple):
    """Why the run is over, and how."""

    reason: str
    how: How


class RunEnds:
    """Since when nobody trains, or too few do.

    Args:
        terms: what the run is.
        state: of it.
        verdict: what it has come to.
        now: the time.
    """

    def __init__(self, terms: Terms, state: State, verdict: Verdict, now: float) -> None:
        self._terms = terms
        self._state = state
        self._verdict = verdict
        # So long trainers that were told to end with the master before may take to come back.
        self._return = 0.0 if state.membership.came is None else terms.patience
        self._trained = now  # when there was a trainer last
        self._enough = now  # when there were as many as there must be

    def came(self) -> None:
        """A trainer has come, or come back."""
        self._return = 0.0

    def lacks(self, now: float, *, told_end: bool) -> Over | None:
        """What the terms ask for that is not there; None: nothing is missed. ``told_end``: trainers are
        told that there are no more batches.
        """
        terms, membership = self._terms, self._state.membership
        trainers = [m for m in membership.members.values() if m.role == "trainer"]
        told = self._verdict.told().values()
        done = sum(not cut_short(each) and has_result(each) for each in told)
        if not trainers or len(trainers) + done >= terms.min_trainers or told_end:
            self._enough = now
        waits = terms.patience if membership.epoch.number else terms.grace
        if now - self._enough >= waits:
            return Over(
                f"{len(trainers)} of {terms.trainers} trainers are here for {waits:g} s, and "
                f"min_trainers is {terms.min_trainers}{self._verdict.left()}", "failed"
            )  # fmt: skip
        for member in trainers if terms.require_sync else ():
            overdue = member.counters.get("sync_overdue", 0.0)
            if overdue >= terms.patience and not member.left:
                return Over(
                    f"{member.name} trains for {overdue:.0f} s without being synchronised, and "
                    f"require_sync is set: {member.trouble or 'it does not know why'}"
                    f"{self._verdict.left()}", "failed",
                )  # fmt: skip
        return None

    def over(self, now: float, *, leaving: bool) -> Over | None:
        """Whether nobody is left who trains, nor will come. ``leaving``: the master is to leave the run
        to the next.
        """
        terms, membership, verdict = self._terms, self._state.membership, self._verdict
        if membership.came is None:
            return None
        if any(m.role == "trainer" for m in membership.members.values()):
            self._trained = now  # a last evaluation, and handing in a result, may take long
            return None
        told = verdict.ended()
        finished, crashed = len(told), not any(map(has_result, told.values()))
        short = sorted(name for name, each in told.items() if cut_short(each))
        left = bool(short) and not verdict.complete
        if left and (leaving or now - self._trained < self._return):
            return None
        if self._leader_behind(now):
            return None
        never = ""
        if terms.require_sync and (apart := verdict.apart()):
            never = _NEVER.format(", ".join(apart))
        how: How = "failed" if crashed else "ended"
        if finished >= terms.trainers:
            if crashed:
                why = verdict.no_row() or _CRASHED
                return Over(f"no trainer has handed in parameters: {why}", how)
            if never:
                return Over(never, "failed")
            if left and (terms.ends or len(short) == finished):
                return Over(
                    f"stopped before its end: {', '.join(short)}{verdict.left()}", "incomplete"
                )
            if self._state.ledger.done and not verdict.complete:
                how = "incomplete"
            return Over(f"all trainers have finished{verdict.words()}", how)
        waits = crashed or (left and len(short) == finished)  # for one that goes on
        if now - self._trained <= (terms.patience if waits else terms.grace):
            return None
        if never:
            how, never = "failed", f"{never}; "
        elif how == "ended" and (short or terms.ends) and not verdict.complete:
            how = "incomplete"
        return Over(
            f"{never}no trainer is left; {finished} of {terms.trainers} have finished"
            f"{verdict.words()}",
            how,
        )

    def _leader_behind(self, now: float) -> bool:
        """Whether who leads may still tell what became of the last batches of trainers that have ended
        before their run; or, to a master that was started again, anything at all.
        """
        if now >= self._trained + 3.0 * _BEHIND:
            return False
        # (Of several the others tell of no lease what became of it.)
        last = not self._state.ledger.done or self._terms.policy_ps > 1
        return any(
            member.counted is None
            or (last and member.connected and member.counted < self._trained + _BEHIND)
            for member in self._state.membership.members.values()
            if ROLES[member.role].leads
        )
