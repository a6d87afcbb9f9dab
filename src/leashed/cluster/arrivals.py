"""Who comes to the master: processes that join, and members that come back."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from leashed.cluster.fingerprint import differing
from leashed.cluster.membership import Member
from leashed.cluster.messages import Bye, Gone, Join, Placed, Rejoin, Role, Welcome
from leashed.cluster.packing import Costs
from leashed.cluster.roles import ROLES
from leashed.cluster.state import Joined, State, Terms
from leashed.cluster.supervisor import name_of
from leashed.cluster.switchboard import Line, Switchboard

__all__ = ["ONCE", "Arrivals"]

ONCE = "rows that come once, out of a pipe, cannot be read again; write them into a file for runs that are to outlive it"


class Arrivals:
    """Lets them in, or says why not.

    Args:
        terms: what the run is.
        run: its name.
        state: of it.
        board: the connections.
        costs: of exchanges with servers, by their role.
        remove: takes a member out, which is told with a reason and the time.
        fail: ends the run, likewise.

    Attributes:
        unlike: processes that were turned away, by name: why.
    """

    def __init__(
        self,
        terms: Terms,
        run: str,
        state: State,
        board: Switchboard,
        costs: Mapping[Role, Costs],
        remove: Callable[[int, str, float], None],
        fail: Callable[[str, float], None],
    ) -> None:
        self._terms = terms
        self._run = run
        self._state = state
        self._board = board
        self._costs = costs
        self._remove = remove
        self._fail = fail
        self.unlike: dict[str, str] = {}

    def join(self, connection: int, line: Line, join: Join, now: float) -> Member | None:
        """One asks to become a member; who is admitted, if it is."""
        membership = self._state.membership
        if line.member in membership.members:  # it has asked twice
            self._welcome(connection, line.member)
            return None
        if line.member and join.before != Rejoin(self._run, line.member):
            self.turn_away(connection, line.member)  # it had asked before it was that
            return None
        known = self._state.fingerprint
        if (reason := differing(known, join.fingerprint)) is not None:
            self.unlike[name_of(join.role, join.index)] = reason
            self._board.send(connection, Gone(reason, unlike=True))
            return None
        holder = membership.holder(join.role, join.index)
        if holder and holder.id in self._board.of:
            self._board.send(
                connection,
                Gone(f"{holder.name} is taken by a living process, which was heard last "
                     f"{now - holder.heard:.1f} s ago"),
            )  # fmt: skip
            return None
        if holder:
            self._remove(holder.id, "another process has its place", now)
        if ROLES[join.role].leads and not self._goes_on(join):
            return None  # the run ends by that; who came would write over its record
        if join.role == "reader" and self._state.read is not None and not self._was(join):
            self._fail(f"the reader has ended, and {ONCE}", now)
            return None
        self.unlike.pop(name_of(join.role, join.index), None)
        before = self._was(join)
        told = {name: word for name, word in join.fingerprint.items() if name not in known}
        id_ = membership.ids + 1
        kept = join.kept if join.kept is not None and join.kept.run == self._run else None
        self._board.record(
            Joined(
                id_, join.role, join.index, join.address, now, before, told, join.summing, kept,
                join.returns,
            )
        )  # fmt: skip
        return self._admit(connection, line, membership.members[membership.ids], now)

    def rejoin(self, connection: int, line: Line, rejoin: Rejoin, now: float) -> Member | None:
        """A member comes back on another connection; who is admitted, if it is.

        Raises:
            ValueError: the connection is another member's.
        """
        membership = self._state.membership
        member = membership.members.get(rejoin.id)
        if rejoin.run != self._run:
            self._board.send(connection, Gone(f"this is run {self._run}, not {rejoin.run}"))
        elif member is None:
            self.turn_away(connection, rejoin.id)
        elif line.member == member.id:  # it has asked twice
            self._welcome(connection, member.id)
        elif line.member not in membership.members:
            if old := self._board.of.get(member.id):  # whose closing we have not heard of yet
                self._board.close(old)
            return self._admit(connection, line, member, now)
        else:
            raise ValueError(f"the connection of member {line.member} says it is {rejoin.id}")
        return None

    def turn_away(self, connection: int, member: int) -> None:
        """What to tell one that was a member."""
        past = next((p for p in self._state.membership.past if p.id == member), None)
        if past and past.finished:
            self._board.send(connection, Bye(past.why))
        else:
            self._board.send(connection, Gone(past.why if past else "it has not joined"))

    def _goes_on(self, join: Join) -> bool:
        """Whether who leads is the first in its place, or goes on from what the one before has kept."""
        before = any(
            (past.role, past.index) == (join.role, join.index)
            for past in self._state.membership.past
        )
        kept, ledger = join.kept, self._state.ledger
        if not before:
            return True
        return kept is not None and kept.run == self._run and kept.next <= ledger.next

    def _was(self, join: Join) -> int:
        """The id that the process had here before; 0: none."""
        was = join.before
        if was is None or was.run != self._run:
            return 0
        place = was.id, join.role, join.index
        known = any((p.id, p.role, p.index) == place for p in self._state.membership.past)
        return was.id if known else 0

    def _admit(self, connection: int, line: Line, member: Member, now: float) -> Member:
        line.member = member.id
        self._board.of[member.id] = connection
        member.connected, member.heard = True, now
        self._welcome(connection, member.id)
        return member

    def _welcome(self, connection: int, member: int) -> None:
        terms, read = self._terms, self._state.read
        placed: dict[str, Placed] = {
            role: Placed(
                getattr(terms, ROLES[role].count),
                costs,
                terms.batch_size,
                terms.rows.room if role == "embedding-ps" and terms.rows else None,
            )
            for role, costs in self._costs.items()
        }
        begins = self._state.ledger.tickets == 0
        # (How many there are, where that was not known at the beginning and is by now.)
        rows = read.rows if read is not None and read.ended else None
        self._board.send(
            connection, Welcome(self._run, member, terms.beat, terms.timeout, placed, begins, rows)
        )
