"""Whom the master gives which batches, and what it is told of them."""

from __future__ import annotations

from leashed.cluster.membership import Member
from leashed.cluster.messages import Done, Lease, Report
from leashed.cluster.roles import ROLES
from leashed.cluster.state import Completed, Granted, Late, State, Terms
from leashed.cluster.switchboard import Switchboard

__all__ = ["Granting"]


class Granting:
    """Leases of batches, one after another in the order of the run.

    Args:
        terms: what the run is.
        state: of it.
        board: the connections.

    Attributes:
        waiting: members to which none could be given yet: request and batches, first come.
    """

    def __init__(self, terms: Terms, state: State, board: Switchboard) -> None:
        self._terms = terms
        self._state = state
        self._board = board
        self.waiting: dict[int, tuple[int, int]] = {}

    def asked(self, connection: int, member: Member, report: Report) -> None:
        """A member asks for some, or for what it was given and has not heard of."""
        if report.want > member.answered:
            self.waiting[member.id] = (report.want, report.batches)
            return
        for held in self._state.ledger.held.values():  # the answer was lost
            if held.member == member.id and held.want == report.want == member.answered:
                self._lease(connection, held.ticket)

    def forget(self, member: int) -> None:
        """It waits no more; should it come back, it asks again."""
        self.waiting.pop(member, None)

    def told(self, connection: int, member: Member, report: Report) -> None:
        """A member has used some; of which leases it is to tell no more."""
        if done := [ticket for ticket, used in report.used if self._use(member, ticket, used)]:
            self._board.send(connection, Done(done))

    def grant(self) -> None:
        """Gives some to all that wait, as long as there are any."""
        ledger, members = self._state.ledger, self._state.membership.members
        for member, (want, asked) in list(self.waiting.items()):
            if ledger.free == 0:
                break
            del self.waiting[member]
            batches, leads = asked, ROLES[members[member].role].leads
            if (
                ledger.free is not None and not leads
            ):  # towards the end less, so that all end together
                batches = min(asked, -(-ledger.free // (2 * self._terms.trainers)))
            self._board.record(Granted(ledger.tickets + 1, member, batches, want))
            self._lease(self._board.of[member], ledger.tickets)

    def _use(self, member: Member, ticket: int, used: int) -> bool:
        """Whether the member is to forget the lease."""
        ledger = self._state.ledger
        held = ledger.held.get(ticket)
        if ticket in ledger.taken:
            self._board.record(Late(ticket, member.id))
        elif held and held.member == member.id and held.count == used:
            self._board.record(Completed(ticket, member.id))
        else:
            return ledger.use(member.id, ticket, used)
        return True

    def _lease(self, connection: int, ticket: int) -> None:
        held = self._state.ledger.held[ticket]
        self._board.send(
            connection,
            Lease(ticket, held.first, held.count, self._terms.batch_size, held.want),
        )
