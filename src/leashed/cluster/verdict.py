"""What a run has come to: whether it is complete, and what is to be said of it at its end."""

from __future__ import annotations

from collections.abc import Mapping

from leashed.cluster.roles import ROLES
from leashed.cluster.state import How, State, Terms
from leashed.cluster.supervisor import name_of

__all__ = ["Verdict", "cut_short", "has_result"]


class Verdict:
    """Of what has happened up to now.

    Args:
        terms: what the run is.
        state: of it.
    """

    def __init__(self, terms: Terms, state: State) -> None:
        self._terms = terms
        self._state = state

    @property
    def complete(self) -> bool:
        """Whether all batches are complete, and somebody who was there then has handed in parameters."""
        state = self._state
        return state.ledger.done and any(has_result(state.summaries[n]) for n in state.whole)

    @property
    def lost(self) -> bool:
        """Whether batches are complete, and no parameters are left that they went into."""
        ledger = self._state.ledger
        if ledger.complete == ledger.resumed or not self._state.membership.orphaned:
            return False
        return not self.complete

    @property
    def leader_gone(self) -> str | None:
        """Why there is no run any more without whom it had to lead it; None: there is."""
        membership = self._state.membership
        for past in reversed(membership.past):
            if not ROLES[past.role].leads or past.finished:
                continue
            if membership.holder(past.role, past.index) is None:  # none was started again
                return f"{ROLES[past.role].words} {past.index} is lost ({past.why})"
        return None

    @property
    def leader_failed(self) -> str | None:
        """Why one that leads the run, and is still here, cannot go on, as it tells; None: all can."""
        for member in self._state.membership.members.values():
            if ROLES[member.role].leads and member.trouble:
                return f"{ROLES[member.role].words} {member.index} has failed: {member.trouble}"
        return None

    @property
    def as_it_is(self) -> How:
        """How the run is over, if it is now."""
        done, state = self._state.ledger.done, self._state
        trains = any(member.role == "trainer" for member in state.membership.members.values())
        if (done or not trains) and not any(map(has_result, self.told().values())):
            return "failed"
        return "ended" if self.complete else "incomplete"

    def told(self) -> dict[str, dict[str, float]]:
        """The last words of trainers, by name."""
        return {n: s for n, s in self._state.summaries.items() if n.startswith("trainer-")}

    def ended(self) -> dict[str, dict[str, float]]:
        """Likewise, but of who was told to end, came back, and was lost then."""
        past = [each for each in self._state.membership.past if each.role == "trainer"]
        lost = {name_of(each.role, each.index): not each.finished for each in past}
        return {n: s for n, s in self.told().items() if not (cut_short(s) and lost.get(n))}

    def apart(self) -> list[str]:
        """Of several trainers those that were to be synchronised, and have trained alone."""
        if self._terms.trainers == 1:
            return []
        told = self.told().items()
        return sorted(n for n, s in told if s.get("batches_used") and s.get("syncs") == 0)

    def words(self) -> str:
        """What is to be said of a run at its end."""
        never = "".join(f"; {name} was never synchronised" for name in self.apart())
        crashed = "".join(
            f"; {name} has crashed" for name, last in self.told().items() if last.get("crashed")
        )
        return f"{self.left()}{self._anew()}{never}{crashed}"

    def left(self) -> str:
        """What the run lacks, in words; nothing where that can't be said."""
        ledger = self._state.ledger
        if self.complete:
            return ""
        if ledger.done:
            return "; all batches are trained, and no trainer that was there at the end has all of them"
        if not self._terms.ends:
            return ""
        if ledger.total is None:
            assert ledger.there is not None
            return (
                f"; {ledger.there - ledger.complete:,} of {ledger.there:,} batches that have come are left, "
                "and the pipe has not ended"
            )
        return f"; {ledger.total - ledger.complete:,} of {ledger.total:,} batches are left"

    def no_row(self) -> str:
        """That none has come out of a pipe, in words; nothing where that is not so."""
        read = self._state.read
        nothing = self._terms.once and (read is None or not read.rows)
        return "no row has come out of the pipe" if nothing else ""

    def _anew(self) -> str:
        """What was trained once more, in words; nothing where nothing was."""
        ledger = self._state.ledger
        if ledger.undone:
            return f"; {ledger.undone:,} batches were trained anew, since a policy server was lost with what they had led to"
        if not ledger.restored:
            return ""
        if not ledger.lost:
            return "; all trainers were lost, and went on from what one had kept, with all that was known to be used"
        return f"; {ledger.lost:,} batches were trained anew, since all who had what they had led to were lost"


def has_result(summary: Mapping[str, float]) -> bool:
    """Whether a trainer with this last word has handed in parameters."""
    return bool(summary.get("handed_in", 1.0)) and not summary.get("crashed")


def cut_short(summary: Mapping[str, float]) -> bool:
    """Whether a trainer with this last word was told to end, or the run was, for it, before its end."""
    return bool(summary.get("interrupted") or summary.get("cut_short"))
