"""Who trains which batch: leases of spans of batch numbers. A value, without clock or sockets."""

from __future__ import annotations

import operator
from collections.abc import Iterable

from msgspec import Struct, field

from leashed.cluster.messages import Account, Apart

__all__ = ["Held", "Ledger"]


class Held(Struct):
    """A lease that is not complete.

    Attributes:
        ticket: its name, never used again.
        member: who holds it.
        first: number of its first batch.
        count: its batches.
        used: how many of them, from the first, its member has trained, as far as it has told.
        want: the request that it answers.
    """

    ticket: int
    member: int
    first: int
    count: int
    want: int
    used: int = 0


class Ledger(Struct):
    """Every batch completes exactly once: ``complete + outstanding + free == total``, always.

    What a member used after its last word before it died will be trained twice, and nobody can know
    how much that is: ``again`` counts the batches taken back from the dead, which is at least it.

    Attributes:
        total: batches of the run; None: endless.
        next: the first number that was never granted.
        back: spans that were given back, (first, count), by number; they are granted first.
        held: leases by ticket.
        complete: batches trained.
        tickets: leases granted so far.
        again: batches taken back from dead members, which are granted once more.
        resumed: of the complete ones, those that were when the run began.
        late: leases that were reported on after they had been taken back.
        taken: leases that were taken back from dead members and not reported on since.
        restored: how often the run has gone back to what was used before.
        lost: batches that were complete, and by that are not any more, each time.
        undone: batches that were complete, and are not any more since who leads all has gone back, each time.
        there: how many there are so far, of a run whose rows come once; as many as in total once all have
            come. None: rows are there from the beginning.
    """

    total: int | None
    next: int = 0
    back: list[tuple[int, int]] = field(default_factory=list)
    held: dict[int, Held] = field(default_factory=dict)
    complete: int = 0
    tickets: int = 0
    again: int = 0
    late: int = 0
    resumed: int = 0
    taken: set[int] = field(default_factory=set)
    restored: int = 0
    lost: int = 0
    there: int | None = None
    undone: int = 0

    @classmethod
    def after(cls, total: int | None, begun: Account | None) -> Ledger:
        """At the beginning of a run that goes on where another was."""
        if begun is None:
            return cls(total)
        end = begun.next if total is None else min(begun.next, total)
        spans = [(first, min(first + count, end) - first) for first, count in begun.open]
        back = _merged((first, count) for first, count in spans if count > 0)
        complete = Account(end, back).used
        return cls(total, end, back, complete=complete, resumed=complete)

    @property
    def account(self) -> Account:
        """What is used."""
        held = [(held.first + held.used, held.count - held.used) for held in self.held.values()]
        return Account(self.next, _merged([*self.back, *held]), self.restored)

    @property
    def known(self) -> Account:
        """What a master that is started again knows to be used: of leases that are not complete nothing."""
        held = [(held.first, held.count) for held in self.held.values()]
        return Account(self.next, _merged([*self.back, *held]), self.restored)

    @property
    def outstanding(self) -> int:
        """Batches that are granted and not complete."""
        return sum(held.count - held.used for held in self.held.values())

    @property
    def free(self) -> int | None:
        """Batches that are there and not granted, or not any more; None: endless."""
        if self._end is None:
            return None
        return self._end - self.next + sum(count for _, count in self.back)

    def rows(self, come: int, batch_size: int) -> int:
        """Of so many rows that have come, those of complete batches."""
        account = self.account
        open_ = [*account.open, (account.next, -(-come // batch_size) - account.next)]
        ends = [(first, min((first + count) * batch_size, come)) for first, count in open_]
        return come - sum(max(0, end - first * batch_size) for first, end in ends)

    @property
    def _end(self) -> int | None:
        """Number of the first batch that cannot be granted yet; None: there is none such."""
        return self.total if self.there is None else self.there

    @property
    def done(self) -> bool:
        """All batches are complete."""
        return self.complete == self.total

    def read(self, rows: int, batch_size: int, *, ended: bool) -> None:
        """So many rows have come, and no others do where that has ended.

        Raises:
            ValueError: there were more, or they had ended.
        """
        assert self.there is not None
        there = -(-rows // batch_size) if ended else rows // batch_size
        if there < self.there or (self.total is not None and there != self.total):
            raise ValueError(f"{there} batches are there, and {self.there} were before")
        self.there = there
        if ended:
            self.total = there

    def grant(self, member: int, batches: int, want: int) -> Held | None:
        """A lease of at most ``batches`` (one span, so maybe fewer); None where none are free."""
        if self.back:
            first, free = self.back[0]
            count = min(batches, free)
            self.back[:1] = [(first + count, free - count)] if count < free else []
        else:
            first = self.next
            count = batches if self._end is None else min(batches, self._end - first)
            self.next += count
        if count <= 0:
            return None
        self.tickets += 1
        self.held[self.tickets] = Held(self.tickets, member, first, count, want)
        return self.held[self.tickets]

    def use(self, member: int, ticket: int, used: int) -> bool:
        """A member has trained so many batches of a lease, from the first.

        Returns:
            Whether it is to forget the lease: it is complete, or not its own (any more).

        Raises:
            ValueError: the lease has not so many; nothing has changed.
        """
        held = self.held.get(ticket)
        if held is None or held.member != member:
            if ticket in self.taken:
                self.taken.remove(ticket)
                self.late += 1
            return True
        if used > held.count:
            raise ValueError(f"lease {ticket} has {held.count} batches, {used} are said to be used")
        if used > held.used:
            self.complete += used - held.used
            held.used = used
        if held.used == held.count:
            del self.held[ticket]
            return True
        return False

    def used(self, member: int) -> list[tuple[int, int]]:
        """What a member has told of the leases that it holds: (ticket, batches)."""
        return [(held.ticket, held.used) for held in self._of(member)]

    def take_back(self, member: int, *, dead: bool, apart: Iterable[Apart] = ()) -> None:
        """What a member holds and has not used is free again; it goes before what was never
        granted.

        Args:
            member: which.
            dead: it may have used more than it has told.
            apart: what else it has used of leases than their beginnings, ascending in each; of
                leases that it does not hold it says nothing.

        Raises:
            ValueError: a lease has no such batches; nothing has changed.
        """
        leases = self._of(member)
        spans = [span for held in leases for span in _unused(held, apart)]
        unused = sum(count for _, count in spans)
        self.complete += sum(held.count - held.used for held in leases) - unused
        self.again += unused * dead
        for held in leases:
            del self.held[held.ticket]
            if dead:
                self.taken.add(held.ticket)
        self.back = _merged([*self.back, *spans])

    def was(self, used: Account) -> bool:
        """Whether it may have been so."""
        ends = [0, *(first + count for first, count in used.open)]
        begins = [*(first for first, _ in used.open), used.next]
        return used.next <= self.next and all(map(operator.le, ends, begins))

    def restore(self, used: Account) -> None:
        """What was used since is free again, with the parameters that it went into; and what went into
        these and is not known to be used any more, since a master was restarted or the run has gone
        back before, is used again. There are no leases.

        Raises:
            ValueError: there are, or it never was so; nothing has changed.
        """
        if self.held or not self.was(used):
            raise ValueError(f"{used} is no account of before")
        before = self.back
        spans = [*used.open, (used.next, self.next - used.next)]
        self.back = _merged(span for span in spans if span[1] > 0)
        self.complete = self.next - _covered(self.back)
        self.restored += 1
        self.lost += _covered([*self.back, *before]) - _covered(before)

    def undo(self, complete: int) -> None:
        """Who leads all goes on from when so many were complete, and knows which; of what the run began with
        none is undone. There are no leases.

        Raises:
            ValueError: there are, or there never were so many; nothing has changed.
        """
        complete = max(complete, self.resumed)
        if self.held or complete > self.next:
            raise ValueError(
                f"{complete} batches were never complete, of {self.next} that were granted"
            )
        self.undone += max(0, self.complete - complete)
        self.back = _merged([(complete, self.next - complete)] if complete < self.next else [])
        self.complete = complete

    def _of(self, member: int) -> list[Held]:
        return [held for held in self.held.values() if held.member == member]


def _unused(held: Held, apart: Iterable[Apart]) -> list[tuple[int, int]]:
    """The spans of a lease that are not used, (first, count)."""
    spans, reached = [], held.used
    for ticket, first, count in apart:
        if ticket != held.ticket:
            continue
        if first < reached or first + count > held.count:
            raise ValueError(
                f"lease {ticket} has {held.count} batches, {held.used} of them used, and not "
                f"{count} others from {first} on"
            )
        spans.append((held.first + reached, first - reached))
        reached = first + count
    spans.append((held.first + reached, held.count - reached))
    return [(first, count) for first, count in spans if count > 0]


def _covered(spans: Iterable[tuple[int, int]]) -> int:
    """How many batches are in one of them."""
    covered = end = 0
    for first, count in sorted(spans):
        covered += max(0, first + count - max(first, end))
        end = max(end, first + count)
    return covered


def _merged(spans: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """By number, neighbours joined."""
    merged: list[tuple[int, int]] = []
    for first, count in sorted(spans):
        if merged and sum(merged[-1]) == first:
            merged[-1] = (merged[-1][0], merged[-1][1] + count)
        else:
            merged.append((first, count))
    return merged
