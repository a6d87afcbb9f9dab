"""How the master brings a run to one cut, of which a checkpoint is: all of its members at rest at once.

Batches are handed out no more, so trainers use what they have, and rest; then what they push and exchange
comes to an end; then all save, the same moment since nothing moves. Each stage begins when all have
reached the one before. A value: no sockets, files or clocks.
"""

from __future__ import annotations

from collections.abc import Mapping

from leashed.cluster.membership import Member
from leashed.cluster.messages import OVER, REST, SAVED, STILL, Cut, Report, Saved
from leashed.cluster.roles import ROLES

__all__ = ["Cutting"]


class Cutting:
    """One at a time.

    Args:
        every: seconds between two; None: there are none.
        grace: seconds in which all come to rest.
        patience: seconds in which all have saved.
        now: the time.
        led: whether policy servers have all that is to be saved, by whose word trainers rest.

    Attributes:
        number: of the one under way; 0: there is none.
        stage: that its members are to reach.
    """

    def __init__(
        self, every: float | None, grace: float, patience: float, now: float, *, led: bool = False
    ) -> None:
        self._every = every
        self._led = led
        self._grace = grace
        self._patience = patience
        self._due = now + (every or 0.0)
        self._since = now
        self._members: dict[int, str] = {}  # names, by id
        self._resting: set[int] = set()
        self._reached: dict[int, int] = {}
        self._saved: dict[str, list[Saved]] = {}
        self._failed: str | None = None
        self.number = 0
        self.stage = OVER

    def due(self, now: float) -> bool:
        """Whether one is to begin."""
        return self.asked and self.number == 0 and now >= self._due

    @property
    def asked(self) -> bool:
        """Whether there are any."""
        return self._every is not None

    def begin(self, number: int, members: Mapping[int, Member], now: float) -> None:
        """It is of these members, as far as they have something to save."""
        self.number, self.stage, self._since = number, REST, now
        self._members = {each.id: each.name for each in members.values() if self.saves(each.role)}
        self._resting = {each.id for each in members.values() if self._rests(each.role)}
        self._reached, self._saved, self._failed = {}, {}, None

    def end(self, now: float) -> None:
        """It is over; the next one is due as long after it as it was after the one before."""
        self.number, self.stage = 0, OVER
        self._due = now + (self._every or 0.0)

    def told(self, member: int, report: Report) -> None:
        """A member has said how far it is."""
        number, stage = report.cut
        if number != self.number or member not in self._members:
            return
        self._reached[member] = max(stage, self._reached.get(member, OVER))
        if report.cut_failed:
            self._failed = f"{self._members[member]} has saved nothing: {report.cut_failed}"
        if stage == SAVED:
            self._saved[self._members[member]] = report.saved

    def wanted(self, role: str) -> int:
        """The stage that members of that role are to reach; servers have nothing to do until all save."""
        if self.number == 0 or not self.saves(role):
            return OVER
        if not self._rests(role) and self.stage < SAVED:
            return OVER
        return self.stage

    def proceed(self, now: float) -> bool:
        """Where all have reached its stage the next one begins; whether it has, or all have saved."""
        if self._late:
            return False
        if self.stage < SAVED:
            self.stage, self._since = {REST: STILL, STILL: SAVED}[self.stage], now
        return True

    @property
    def _late(self) -> list[int]:
        """Who is to reach the stage and has not."""
        whom = self._members if self.stage == SAVED else self._resting
        return [each for each in whom if self._reached.get(each, OVER) < self.stage]

    @property
    def whole(self) -> bool:
        """Whether all have saved."""
        return all(self._reached.get(each) == SAVED for each in self._members)

    @property
    def saved(self) -> dict[str, list[Saved]]:
        """What they have, by name."""
        return dict(sorted(self._saved.items()))

    def fails(self, members: Mapping[int, Member], now: float) -> str | None:
        """Why it cannot become whole any more; None: it can."""
        if self._failed is not None:
            return self._failed
        for each, name in self._members.items():
            if each not in members:
                return f"{name} is gone"
            if members[each].left:
                return f"{name} has left"
        for member in members.values():
            if self.saves(member.role) and member.id not in self._members:
                return f"{member.name} has come"
        late = [self._members[each] for each in self._late]
        most = self._patience if self.stage == SAVED else self._grace
        if late and now - self._since > most:
            what = "saved" if self.stage == SAVED else "at rest"
            return f"{', '.join(late)}: not {what} in {most:g} s"
        return None

    def word(self, account: tuple[int, list[tuple[int, int]]], whole: int) -> Cut:
        """What members are told of it."""
        return Cut(self.number, self.stage, *account, whole)

    def saves(self, role: str) -> bool:
        """Whether members of that role have something to save."""
        return ROLES[role].leads if self._led else ROLES[role].saves

    def _rests(self, role: str) -> bool:
        """Whether what they do has to come to rest."""
        return ROLES[role].leads if self._led else role == "trainer"
