"""What the master decides: events in, each with its ``now``; changes, messages and closings out.

No sockets, files, threads or clocks: a value. Who drives it writes the changes to the journal, and
only then sends what goes with them (``take``), so that nobody has heard of what a restarted master
does not know. What it decides of has a file each: who comes (``arrivals``), who is given which batches
(``granting``), cuts of which checkpoints are (``cut_leading``), when the run is over (``run_ends``) and
what it has come to (``verdict``), and whose connections these are (``switchboard``).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from leashed.cluster.arrivals import ONCE, Arrivals
from leashed.cluster.cut_leading import CutLeading
from leashed.cluster.granting import Granting
from leashed.cluster.ledger import Ledger
from leashed.cluster.membership import Member
from leashed.cluster.messages import (
    FINISHED,
    Account,
    Beat,
    Bye,
    End,
    Gone,
    Join,
    Rejoin,
    Report,
    Role,
    Rows,
    Saved,
    There,
    ToMaster,
)
from leashed.cluster.packing import Costs
from leashed.cluster.roles import ROLES
from leashed.cluster.run_ends import Over, RunEnds
from leashed.cluster.run_standing import standing
from leashed.cluster.state import (
    Ended,
    EpochMade,
    How,
    LeftRing,
    Read,
    Removed,
    Settled,
    State,
    Terms,
)
from leashed.cluster.switchboard import Close, Line, Output, Send, Switchboard
from leashed.cluster.switchboard import Line as _Connection  # noqa: F401 (its old name)
from leashed.cluster.verdict import Verdict

__all__ = ["Close", "Coordinator", "Output", "Send"]


_NO_COSTS: Mapping[Role, Costs] = {}
_COMPLETE = "all batches are complete"


class Coordinator:
    """The master of a run.

    Args:
        terms: what the run is.
        run: its name.
        state: from the journal, or new.
        now: the time, in seconds since the run began; never goes back, also not over a restart.
        costs: of exchanges with servers, by their role. Default: none are known.
        whole: number of the newest cut of which a whole checkpoint is there. Default: it is not known.

    Attributes:
        terms: the terms.
        costs: of exchanges.
        run: the name.
        state: everything that outlives the master.
        malformed: connections closed because what came on them was no message, or made no sense.
        board: the connections.
        leaving: this master is to leave the run to the next; trainers that are told to end may be so
            with it, as where a machine is shut down, and come back after it.
    """

    def __init__(
        self,
        terms: Terms,
        run: str,
        state: State,
        now: float,
        costs: Mapping[Role, Costs] = _NO_COSTS,
        whole: int = 0,
    ) -> None:
        self.terms = terms
        self.costs = costs
        self.run = run
        self.state = state
        self.malformed = 0
        self.leaving = False
        self.board = Switchboard(state)
        self._verdict = Verdict(terms, state)
        self._ends = RunEnds(terms, state, self._verdict, now)
        self._granting = Granting(terms, state, self.board)
        self._cuts = CutLeading(terms, state, self.board, now, whole)
        self._arrivals = Arrivals(terms, run, state, self.board, costs, self._remove, self._fail)
        self._beaten = now
        self._told_servers = state.membership.servers_number
        self._told_end = False  # that all batches are complete
        state.membership.restarted(now)

    @property
    def over(self) -> str | None:
        """Why the run is over; None: it is not."""
        return self.state.over

    def take(self) -> Output:
        """What is to be done now, once."""
        return self.board.take()

    def opened(self, connection: int, now: float) -> None:
        """There is a connection of that number, new in this master's life."""
        self.board.lines[connection] = Line(now)

    def closed(self, connection: int, now: float) -> None:
        """It is closed, by the other side or by the network."""
        membership = self.state.membership
        membership.passed(now)
        member = self.board.forget(connection)
        if member:
            self._granting.forget(member)
            if not membership.cut_off(member, now):
                self._remove(member, "its connection closed", now)
            self._settle(now)

    def heard(self, connection: int, message: ToMaster, now: float) -> None:
        """A message has come."""
        members = self.state.membership.members
        self.state.membership.passed(now)
        line = self.board.lines.get(connection)
        if line is None:
            return  # closed meanwhile
        if self.over is not None:
            self.board.send(connection, Bye(self.over))
            return
        try:
            if isinstance(message, Report):
                self._report(connection, line, message, now)
            elif isinstance(message, Beat):
                if line.member in members:
                    members[line.member].heard = now
            else:
                self._come(connection, line, message, now)
        except ValueError as error:
            self.refuse(connection, str(error), now)
        self._settle(now)

    def refuse(self, connection: int, reason: str, now: float) -> None:
        """What came on a connection cannot be trusted; its member counts as dead."""
        self.malformed += 1
        self.board.send(connection, Gone(reason))
        if member := self.board.close(connection):
            self._remove(member, reason, now)
            self._settle(now)

    def tick(self, now: float) -> None:
        """Time has passed. To be called a few times in each beat."""
        if self.over is not None:
            return
        membership, board = self.state.membership, self.board
        membership.passed(now)
        for member in membership.silent(now):
            connection = board.of.get(member.id)
            if connection is None:
                self._remove(member.id, "it did not come back to the master", now)
                continue
            board.close(connection)
            self._remove(member.id, f"silent for {self.terms.timeout:g} s", now)
        for connection, line in list(board.lines.items()):
            late = now - line.since > self.terms.timeout
            if late and line.member not in membership.members:
                board.close(connection)
        if now - self._beaten >= self.terms.beat:
            self._beaten = now
            for connection in board.of.values():
                board.send(connection, Beat())
        self._stop_if(self._ends.lacks(now, told_end=self._told_end), now)
        self._settle(now)

    def stop(self, reason: str, now: float, how: How | None = None) -> None:
        """End the run; all are told. Default of ``how``: whether batches are left, or no model."""
        if self.over is not None:
            return
        members = self.state.membership.members.values()
        told = {m.id: (m.counters, m.counted) for m in members if m.counted is not None}
        self.board.record(Ended(reason, now, how or self._verdict.as_it_is, told))
        for connection in list(self.board.lines):
            self.board.send(connection, Bye(reason))
            self.board.close(connection)

    def interrupt(self, reason: str, now: float) -> None:
        """End the run, whatever is left."""
        self.stop(f"{reason}{self._verdict.left()}", now)

    @property
    def cut(self) -> int:
        """Number of the cut under way; 0: none is."""
        return self._cuts.number

    @property
    def checkpoint(self) -> tuple[int, dict[str, list[Saved]]] | None:
        """Of the cut that all have saved its number, and whose files are which; None: there is none."""
        return self._cuts.checkpoint

    def written(self, number: int, now: float, why: str = "") -> None:
        """The manifest of that cut's checkpoint is there, or ``why`` it is not."""
        if self.over is None and number == self._cuts.number:
            self._cuts.end(now, whole=not why, why=why)
            self._settle(now)

    @property
    def handing_in(self) -> bool:
        """Whether there are trainers that have left, and not said their last word."""
        return any(member.left for member in self.state.membership.members.values())

    def standing(self, now: float) -> dict[str, Any]:
        """How the run stands, as JSON's own types; times are in seconds since it began."""
        unlike = self._arrivals.unlike
        return standing(self.run, self.terms, self.state, now, self.malformed, unlike)

    def _come(self, connection: int, line: Line, message: Join | Rejoin, now: float) -> None:
        if isinstance(message, Join):
            member = self._arrivals.join(connection, line, message, now)
        else:
            member = self._arrivals.rejoin(connection, line, message, now)
        if member is not None and member.role == "trainer":
            self._ends.came()
        if member is not None and ROLES[member.role].leads and not self.state.ledger.done:
            self._told_end = False  # also where it was, before who leads went back
            self._cuts.more_left()

    def _report(self, connection: int, line: Line, report: Report, now: float) -> None:
        """Take in a member's standing, and answer what is out of date in it."""
        member = self.state.membership.members.get(line.member)
        if member is None:
            self._arrivals.turn_away(connection, line.member)
            return
        member.heard = now
        if report.asks:
            ledger = self.state.ledger
            # (A reader keeps nothing of what is used, and who takes this master's place may grant it again.)
            told = ledger.known if member.role == "reader" else ledger.account
            self.board.send(connection, told)
        if report.there is not None and report.there != self.state.read:
            self._read(member, report.there, now)
            if self.over is not None:
                return
        if report.metrics:
            member.counters, member.counted = report.metrics, now
        if (
            report.metrics or report.trouble
        ):  # (It may have failed before it had anything to count.)
            member.trouble = report.trouble
        self._granting.told(connection, member, report)
        if report.settled > member.settled and member.role == "trainer":
            self.board.record(Settled(member.id, report.settled))
        if report.left and not member.left:  # also with its last word: what it tells counts
            self._granting.forget(member.id)
            used = self.state.ledger.used(member.id)
            self.board.record(LeftRing(member.id, now, used, report.apart))
        if report.summary is not None:
            self._remove(member.id, FINISHED, now, report.summary)
            self.board.send(connection, Bye(FINISHED))
            return
        self._answer(connection, member, report, now)
        self._cuts.told(connection, member, report)

    def _read(self, member: Member, there: There, now: float) -> None:
        """A reader has read more of rows that come once, or all of them."""
        if member.role != "reader" or not self.terms.once:
            raise ValueError(f"{member.name} tells of rows that come once, and there are none")
        if there.failed:
            self._fail(f"{member.name}: {there.failed}", now)
        elif there.ended and not there.rows:
            self._fail(f"{member.name} has read all that there is, and it has no row", now)
        else:
            self.board.record(Read(there))
            if there.ended:
                self.board.tell_trainers(Rows(there.rows))

    def _answer(self, connection: int, member: Member, report: Report, now: float) -> None:
        """What who trains, or leads who does, does not know yet."""
        membership, trains = self.state.membership, member.role == "trainer"
        if trains:
            membership.broke(report.broken, now)
        elif not ROLES[member.role].leads:
            return
        # (Of several who lead, each has to know the first.)
        knows = trains or self.terms.policy_ps > 1
        if knows and report.servers < membership.servers_number:
            self.board.send(connection, membership.servers())
        if report.epoch < membership.epoch.number:
            self.board.send(connection, membership.epoch)
        if trains and self._told_end and not report.ended:
            self.board.send(connection, End(_COMPLETE))
        if report.batches and not member.left:
            self._granting.asked(connection, member, report)

    def _remove(
        self, member: int, why: str, now: float, summary: dict[str, float] | None = None
    ) -> None:
        self._granting.forget(member)
        self.board.of.pop(member, None)
        used = self.state.ledger.used(member)
        gone = self.state.membership.members[member]
        self.board.record(Removed(member, why, now, used, summary, gone.counters, gone.counted))

    def _fail(self, why: str, now: float) -> None:
        self.stop(why, now, "failed")

    def _stop_if(self, over: Over | None, now: float) -> None:
        if over is not None:
            self.stop(over.reason, now, over.how)

    def _settle(self, now: float) -> None:
        """What follows from what has happened: leases, news, the next epoch, the end."""
        if self.over is not None:
            return
        ledger, membership, verdict = self.state.ledger, self.state.membership, self._verdict
        lost = verdict.lost
        if (failed := verdict.leader_failed) is not None:
            self._fail(f"{failed}{verdict.left()}", now)
            return
        # (A machine that is shut down ends all at once.)
        if not self.leaving and (leader := verdict.leader_gone) is not None:
            self._fail(f"{leader}, and with it all that was trained{verdict.left()}", now)
            return
        self._cuts.advance(now, may=not lost, told_end=self._told_end)
        # Nobody begins before the others are there, or have had the time to come.
        if not lost and self._cuts.number == 0 and membership.epoch.number > 0:
            self._granting.grant()
        if lost and self.terms.once:
            self._fail(f"all who had what was trained are lost{verdict.left()}, and {ONCE}", now)
            return
        if lost:
            self._told_end = False
            self._cuts.more_left()
        elif ledger.done and not self._told_end and not self._cuts.keeps_from_end(now):
            self._told_end = True
            self.board.tell_trainers(End(_COMPLETE))
        if membership.servers_number != self._told_servers:
            self._told_servers = membership.servers_number
            self.board.tell_trainers(membership.servers())
        enough = membership.epoch.number or len(membership.ring()) >= self.terms.min_trainers
        if enough and membership.epoch_due(now, lost=lost) and not (lost and self._revoked(now)):
            self.board.record(self._next_epoch(lost=lost))
            self.board.tell_trainers(membership.epoch)
        self._stop_if(self._ends.over(now, leaving=self.leaving), now)

    def _revoked(self, now: float) -> bool:
        """Of those to whom the parameters did not come in time, who have leases join anew."""
        holders = {held.member for held in self.state.ledger.held.values()}
        for member in holders:
            self._remove(
                member, "it begins anew: the parameters with which it was to go on are lost", now
            )
        return bool(holders)

    def _next_epoch(self, *, lost: bool) -> EpochMade:
        ledger, membership = self.state.ledger, self.state.membership
        number, broken = membership.epoch.number + 1, membership.failed
        if not lost:
            # (As long as nothing has been trained, whoever is there has all there is.)
            begin = ledger.complete == ledger.resumed and not ledger.held
            return EpochMade(number, broken, begin=begin)
        offers = []
        for member in membership.ring():
            if (kept := member.kept) is not None:
                account = Account(kept.next, kept.open)
                if ledger.was(account):
                    offers.append((account.used, -member.index, account, member.id))
        if not offers:
            begun = Ledger.after(self.terms.total, self.terms.begun).account
            return EpochMade(number, broken, begin=True, restored=begun)
        *_, account, by = max(offers, key=lambda offer: offer[:2])
        return EpochMade(number, broken, restored=account, by=by)
