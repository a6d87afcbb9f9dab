"""A trainer's leases: more are fetched before they run out, and what of them is used is counted."""

from __future__ import annotations

import time

from leashed import _core
from leashed.cluster.member import Member
from leashed.cluster.messages import Apart, Lease

__all__ = ["LeaseTending"]

_AHEAD = 0.5  # seconds of training that leases are held for
_UNANSWERED = 1.0  # seconds in which one who has batches to give gives them
_ENDLESS = 2**62


class LeaseTending:
    """Tends them.

    Args:
        member: asks the master for them.
        total: batches of the whole run; None: endless, or not known yet.
        workers: worker threads.
        lockstep: as many of them at a time as there are workers.

    Attributes:
        leases: the core's, of which workers take batches.
        batches: used so far, those of leases that have become others' meanwhile too.
        all_given: nobody gives more, though not all are used.
    """

    def __init__(
        self,
        member: Member,
        total: int | None,
        workers: int,
        lockstep: bool,
    ) -> None:
        self.leases = _core.Leases()
        self.batches = 0
        self.all_given = False
        self._member = member
        self._total = total
        self._workers = workers
        self._lockstep = lockstep
        self._given: dict[int, int] = {}  # batches of leases that are not complete, by ticket
        self._used: dict[int, int] = {}  # and how many of them are used
        self._astray = 0  # batches used of leases that had become others'
        self._asked: float | None = None
        self._rate = 0.0
        self._short = False  # workers waited for what came last
        self._least = 0  # batches that are held whatever the rate
        self._seen = (time.monotonic(), 0)

    def given(self, lease: Lease) -> None:
        """The master has granted it. Workers that wait for it are faster than is known: twice as many are
        asked for next, at once; those that wait with batches there have not been woken yet.
        """
        self._asked = None
        if self.leases.resting and self.leases.left() < (self._workers if self._lockstep else 1):
            self._short, self._least = True, 2 * lease.count
        self._given[lease.ticket] = lease.count
        self.leases.give(lease.ticket, lease.first, lease.count)

    def know(self, total: int) -> None:
        """There are so many batches in all, which was not known."""
        self._total = total

    def begin_anew(self) -> None:
        """The batches of all leases are others' now."""
        self.leases.revoke()
        self._given.clear()
        self._used.clear()
        self._asked = None

    def end(self) -> None:
        """There are no more batches."""
        self.leases.end(self._total or _ENDLESS)

    def fetch(self, *, pauses: bool = False) -> None:
        """Asks for batches before they run out. ``pauses``: the master gives nobody any for now, and
        will.
        """
        now = time.monotonic()
        self.count()
        since, before = self._seen
        if now >= since + _AHEAD:
            self._rate = (self.batches - before) / (now - since)
            self._seen = (now, self.batches)
            self._least //= 2
        if pauses:  # for which workers wait, too
            self._short, self._least = False, 0
        ahead = max(2 * self._workers, round(self._rate * _AHEAD), self._least)
        if self._lockstep:
            ahead = -(-ahead // self._workers) * self._workers
            # What is left does not fill a step, and nobody gives more, who could have: the last
            # step is filled with batches from beyond.
            if pauses and self._asked is not None:
                self._asked = now
            asked = self._asked
            if self._given and asked and self._member.heard_at >= asked + _UNANSWERED:
                self.all_given = True
                self.end()
        if self._asked is None and (self._short or self.leases.left() * 2 < ahead):
            self._asked, self._short = now, False
            self._member.want(ahead)

    def count(self) -> None:
        """Sees what workers have used."""
        for ticket, used in self.leases.used():
            self.batches += used - self._used.get(ticket, 0)
            self._used[ticket] = used
        before, self._astray = self._astray, self.leases.astray()
        self.batches += self._astray - before

    def used(self) -> list[tuple[int, int]]:
        """Of each lease that is not complete, or has become so since the last call: its ticket, and how
        many of its batches are used, from the first.
        """
        found = list(self._used.items())
        for ticket, used in found:
            if used == self._given.get(ticket):
                del self._used[ticket], self._given[ticket]
        return found

    def apart(self) -> list[Apart]:
        """What else is used, behind batches that are not; counted now, for who leaves."""
        apart: list[Apart] = self.leases.apart()
        self.batches += sum(count for _, _, count in apart)
        return apart
