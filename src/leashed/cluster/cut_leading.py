"""When the master begins a cut of the run, whom it tells of it, and how it ends (``cutting``)."""

from __future__ import annotations

from leashed.cluster.cutting import Cutting
from leashed.cluster.membership import Member
from leashed.cluster.messages import OVER, Cut, Report, Saved
from leashed.cluster.roles import ROLES
from leashed.cluster.state import CutBegun, CutEnded, State, Terms
from leashed.cluster.switchboard import Switchboard

__all__ = ["CutLeading"]


class CutLeading:
    """The cuts of a run.

    Args:
        terms: what it is.
        state: of it.
        board: the connections.
        now: the time.
        whole: number of the newest cut of which a whole checkpoint is there; 0: it is not known.
    """

    def __init__(
        self, terms: Terms, state: State, board: Switchboard, now: float, whole: int
    ) -> None:
        self._terms = terms
        self._state = state
        self._board = board
        led = terms.policy_ps > 0
        self._cutting = Cutting(terms.checkpoint_every, terms.grace, terms.patience, now, led=led)
        # Until when the end waits for a checkpoint of all batches; None: some are left.
        self._last: float | None = None
        if state.cuts.begun > state.cuts.ended and state.over is None:
            made = whole == state.cuts.begun  # and the master died before that was written down
            why = "" if made else "the master was started again"
            board.record(CutEnded(state.cuts.begun, made, why))

    @property
    def number(self) -> int:
        """Of the one under way; 0: none is."""
        return self._cutting.number

    @property
    def checkpoint(self) -> tuple[int, dict[str, list[Saved]]] | None:
        """Of the cut that all have saved its number, and whose files are which; None: there is none."""
        cutting = self._cutting
        return (cutting.number, cutting.saved) if cutting.number and cutting.whole else None

    def told(self, connection: int, member: Member, report: Report) -> None:
        """A member has said how far it is; it is answered where that is out of date."""
        self._cutting.told(member.id, report)
        number, stage = report.cut
        wanted = self._cutting.wanted(member.role)
        if wanted == OVER and number:
            self._board.send(connection, Cut(number, OVER, whole=self._state.cuts.whole))
        elif wanted != OVER and (number != self._cutting.number or stage < wanted):
            self._board.send(connection, self._word())

    def advance(self, now: float, *, may: bool, told_end: bool) -> None:
        """Begins a cut where one is due and there ``may`` be one, as it is when all batches are complete,
        and sees to the one under way. ``told_end``: trainers are told that there are no more batches.
        """
        cutting, cuts = self._cutting, self._state.cuts
        members = self._state.membership.members
        if self._last is None and self._state.ledger.done:
            self._last = now + (self._terms.grace if cutting.asked else 0.0)
        due = cutting.due(now) or self.keeps_from_end(now)
        if may and not told_end and due and self._all_there():
            self._board.record(CutBegun(cuts.begun + 1))
            cutting.begin(cuts.begun, members, now)
            self._tell()
        if cutting.number == 0:
            return
        if told_end:
            self.end(now)
        elif why := cutting.fails(members, now):
            self.end(now, why=why)
        elif not cutting.whole and cutting.proceed(now):
            self._tell()

    def keeps_from_end(self, now: float) -> bool:
        """Whether all batches are complete, and a checkpoint of them is still to come: as long as it is
        under way, and for ``grace`` until all are there who are to save.
        """
        if self._last is None:
            return False
        return self._cutting.number > 0 or now < self._last

    def more_left(self) -> None:
        """Batches are to be trained again."""
        self._last = None

    def end(self, now: float, *, whole: bool = False, why: str = "") -> None:
        """The cut under way is over, ``whole`` or for a reason."""
        number, told = self._cutting.number, self._cutting.wanted
        whom = [m for m in self._state.membership.members.values() if told(m.role) != OVER]
        self._board.record(CutEnded(number, whole, why))
        self._cutting.end(now)
        if whole and self._state.ledger.done:
            self._last = now
        for member in whom:
            self._board.tell(member.id, Cut(number, OVER, whole=self._state.cuts.whole))

    def _all_there(self) -> bool:
        """Whether all are that have something to save, and train."""
        membership = self._state.membership
        members = membership.members.values()
        there = [member for member in members if self._cutting.saves(member.role)]
        servers = [
            role for role in ROLES.values() if role.serves and self._cutting.saves(role.name)
        ]
        counts = {role.name: getattr(self._terms, role.count) for role in servers}
        return (
            membership.epoch.number > 0
            and self._cutting.number == 0
            and all(member.connected and not member.left for member in there)
            and any(member.role == "trainer" for member in members)
            and all(sum(m.role == name for m in there) == n for name, n in counts.items())
        )

    def _word(self) -> Cut:
        account = self._state.ledger.account
        return self._cutting.word((account.next, account.open), self._state.cuts.whole)

    def _tell(self) -> None:
        """All who are to reach its stage."""
        for member in self._state.membership.members.values():
            if self._cutting.wanted(member.role) != OVER:
                self._board.tell(member.id, self._word())
