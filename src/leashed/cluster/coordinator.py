"""What the master decides: events in, each with its ``now``; changes, messages and closings out.

No sockets, files, threads or clocks: a value. Who drives it writes the changes to the journal, and
only then sends what goes with them (``take``), so that nobody has heard of what a restarted master
does not know.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from leashed.cluster.cutting import Cutting
from leashed.cluster.fingerprint import differing
from leashed.cluster.ledger import Ledger
from leashed.cluster.measures import counted
from leashed.cluster.membership import Member
from leashed.cluster.messages import (
    FINISHED,
    OVER,
    Account,
    Beat,
    Bye,
    Cut,
    Done,
    End,
    FromMaster,
    Gone,
    Join,
    Lease,
    Placed,
    Rejoin,
    Report,
    Role,
    Rows,
    Saved,
    There,
    ToMaster,
    Welcome,
)
from leashed.cluster.packing import Costs
from leashed.cluster.roles import ROLES
from leashed.cluster.state import (
    Change,
    Completed,
    CutBegun,
    CutEnded,
    Ended,
    EpochMade,
    Granted,
    How,
    Joined,
    Late,
    LeftRing,
    Read,
    Removed,
    Settled,
    State,
    Terms,
)
from leashed.cluster.supervisor import name_of

__all__ = ["Close", "Coordinator", "Output", "Send"]


_NO_COSTS: Mapping[Role, Costs] = {}
_CRASHED = (
    "all have crashed, with losses or parameters that are not finite, or have trained nothing"
)
_COMPLETE = "all batches are complete"
_BEHIND = 1.0  # seconds, at most, that counters are older than their coming
_NEVER = "{} never synchronised, and require_sync is set"
_ONCE = "rows that come once, out of a pipe, cannot be read again; write them into a file for runs that are to outlive it"


class Send(NamedTuple):
    """Send a message on a connection."""

    connection: int
    message: FromMaster


class Close(NamedTuple):
    """Close a connection, once what was sent is out."""

    connection: int


class Output(NamedTuple):
    """What is to be done: first ``changes`` on the disk, then ``actions`` in order."""

    changes: list[Change]
    actions: list[Send | Close]


class _Connection:
    """One that is open: since when, and whose."""

    def __init__(self, since: float) -> None:
        self.since = since
        self.member = 0


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
        unlike: processes that were turned away, by name: why.
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
        self.unlike: dict[str, str] = {}
        self.leaving = False
        # So long trainers that were told to end with the master before may take to come back.
        self._return = 0.0 if state.membership.came is None else terms.patience
        self._connections: dict[int, _Connection] = {}
        self._of: dict[int, int] = {}  # member: its connection
        self._waiting: dict[int, tuple[int, int]] = {}  # member: request and batches, first come
        self._beaten = now
        self._told_servers = state.membership.servers_number
        self._done: float | None = None  # since when all batches are complete, and this is told
        self._trained = now  # when there was a trainer last
        self._enough = now  # when there were as many as there must be
        self._changes: list[Change] = []
        self._actions: list[Send | Close] = []
        self._cutting = Cutting(terms.checkpoint_every, terms.grace, terms.patience, now)
        # Until when the end waits for a checkpoint of all batches; None: some are left.
        self._cut_last: float | None = None
        if state.cuts.begun > state.cuts.ended and state.over is None:
            made = whole == state.cuts.begun  # and the master died before that was written down
            why = "" if made else "the master was started again"
            self._record(CutEnded(state.cuts.begun, made, why))
        state.membership.restarted(now)

    @property
    def over(self) -> str | None:
        """Why the run is over; None: it is not."""
        return self.state.over

    def take(self) -> Output:
        """What is to be done now, once."""
        output = Output(self._changes, self._actions)
        self._changes, self._actions = [], []
        return output

    def opened(self, connection: int, now: float) -> None:
        """There is a connection of that number, new in this master's life."""
        self._connections[connection] = _Connection(now)

    def closed(self, connection: int, now: float) -> None:
        """It is closed, by the other side or by the network."""
        membership = self.state.membership
        membership.passed(now)
        member = self._forget(connection)
        if member:
            self._waiting.pop(member, None)  # should it come back, it asks again
            if not membership.cut_off(member, now):
                self._remove(member, "its connection closed", now)
            self._settle(now)

    def heard(self, connection: int, message: ToMaster, now: float) -> None:
        """A message has come."""
        self.state.membership.passed(now)
        link = self._connections.get(connection)
        if link is None:
            return  # closed meanwhile
        if self.over is not None:
            self._send(connection, Bye(self.over))
            return
        try:
            if isinstance(message, Report):
                self._report(connection, link, message, now)
            elif isinstance(message, Beat):
                if link.member in self.state.membership.members:
                    self.state.membership.members[link.member].heard = now
            elif isinstance(message, Join):
                self._join(connection, link, message, now)
            else:
                self._rejoin(connection, link, message, now)
        except ValueError as error:
            self.refuse(connection, str(error), now)
        self._settle(now)

    def refuse(self, connection: int, reason: str, now: float) -> None:
        """What came on a connection cannot be trusted; its member counts as dead."""
        self.malformed += 1
        self._send(connection, Gone(reason))
        self._actions.append(Close(connection))
        member = self._forget(connection)
        if member:
            self._remove(member, reason, now)
            self._settle(now)

    def tick(self, now: float) -> None:
        """Time has passed. To be called a few times in each beat."""
        if self.over is not None:
            return
        self.state.membership.passed(now)
        for member in self.state.membership.silent(now):
            connection = self._of.get(member.id)
            if connection is None:
                self._remove(member.id, "it did not come back to the master", now)
                continue
            self._forget(connection)
            self._actions.append(Close(connection))
            self._remove(member.id, f"silent for {self.terms.timeout:g} s", now)
        for connection, link in list(self._connections.items()):
            if (
                link.member not in self.state.membership.members
                and now - link.since > self.terms.timeout
            ):
                self._forget(connection)
                self._actions.append(Close(connection))
        if now - self._beaten >= self.terms.beat:
            self._beaten = now
            for connection in self._of.values():
                self._send(connection, Beat())
        self._require(now)
        self._settle(now)

    def _require(self, now: float) -> None:
        """Ends the run where what its terms ask for is not there."""
        terms, membership = self.terms, self.state.membership
        trainers = [m for m in membership.members.values() if m.role == "trainer"]
        done = sum(not _cut_short(each) and _has_result(each) for each in self._told().values())
        if not trainers or len(trainers) + done >= terms.min_trainers or self._done is not None:
            self._enough = now
        waits = terms.patience if membership.epoch.number else terms.grace
        if self.over is None and now - self._enough >= waits:
            self.stop(
                f"{len(trainers)} of {terms.trainers} trainers are here for {waits:g} s, and "
                f"min_trainers is {terms.min_trainers}{self._left()}", now, "failed"
            )  # fmt: skip
        for member in trainers if terms.require_sync else ():
            overdue = member.counters.get("sync_overdue", 0.0)
            if overdue >= terms.patience and not member.left:
                self.stop(
                    f"{member.name} trains for {overdue:.0f} s without being synchronised, and "
                    f"require_sync is set: {member.trouble or 'it does not know why'}{self._left()}",
                    now, "failed",
                )  # fmt: skip

    def stop(self, reason: str, now: float, how: How | None = None) -> None:
        """End the run; all are told. Default of ``how``: whether batches are left, or no model."""
        if self.over is not None:
            return
        members = self.state.membership.members.values()
        told = {m.id: (m.counters, m.counted) for m in members if m.counted is not None}
        how = how or self._as_it_is()
        self._record(Ended(reason, now, how, told))
        for connection in list(self._connections):
            self._send(connection, Bye(reason))
            self._actions.append(Close(connection))
            self._forget(connection)

    def interrupt(self, reason: str, now: float) -> None:
        """End the run, whatever is left."""
        self.stop(f"{reason}{self._left()}", now)

    @property
    def cut(self) -> int:
        """Number of the cut under way; 0: none is."""
        return self._cutting.number

    @property
    def checkpoint(self) -> tuple[int, dict[str, list[Saved]]] | None:
        """Of the cut that all have saved its number, and whose files are which; None: there is none."""
        cutting = self._cutting
        return (cutting.number, cutting.saved) if cutting.number and cutting.whole else None

    def written(self, number: int, now: float, why: str = "") -> None:
        """The manifest of that cut's checkpoint is there, or ``why`` it is not."""
        if self.over is None and number == self._cutting.number:
            self._end_cut(now, whole=not why, why=why)
            self._settle(now)

    @property
    def handing_in(self) -> bool:
        """Whether there are trainers that have left, and not said their last word."""
        return any(member.left for member in self.state.membership.members.values())

    def standing(self, now: float) -> dict[str, Any]:
        """How the run stands, as JSON's own types; times are in seconds since it began."""
        state = self.state
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
            "run": self.run,
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
                "twice": _twice(ledger, everybody, self.terms.batch_size),
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
                "used": ledger.rows(read.rows, self.terms.batch_size),
            },
            "checkpoints": {
                "whole": state.cuts.whole,
                "made": state.cuts.made,
                "given_up": state.cuts.given_up,
                "why": state.cuts.why,
            },
            "epoch": membership.epoch.number,
            "epochs_broken": membership.broken,
            "malformed": self.malformed,
            "unlike": dict(self.unlike),
            "members": everybody,
            "metrics": {
                f"{m['role']}-{m['index']}": m["counters"] for m in everybody if m["counters"]
            },
            "summaries": dict(state.summaries),
        }

    def _join(self, connection: int, link: _Connection, join: Join, now: float) -> None:
        membership = self.state.membership
        if link.member in membership.members:  # it has asked twice
            self._welcome(connection, link.member)
            return
        if link.member and join.before != Rejoin(self.run, link.member):
            self._turn_away(connection, link.member)  # it had asked before it was that
            return
        known = self.state.fingerprint
        if (reason := differing(known, join.fingerprint)) is not None:
            self.unlike[name_of(join.role, join.index)] = reason
            self._send(connection, Gone(reason, unlike=True))
            return
        holder = membership.holder(join.role, join.index)
        if holder and holder.id in self._of:
            self._send(
                connection,
                Gone(f"{holder.name} is taken by a living process, which was heard last "
                     f"{now - holder.heard:.1f} s ago"),
            )  # fmt: skip
            return
        if holder:
            self._remove(holder.id, "another process has its place", now)
        if join.role == "reader" and self.state.read is not None and not self._was(join):
            self.stop(f"the reader has ended, and {_ONCE}", now, "failed")
            return
        self.unlike.pop(name_of(join.role, join.index), None)
        before = self._was(join)
        told = {name: word for name, word in join.fingerprint.items() if name not in known}
        id_ = membership.ids + 1
        kept = join.kept if join.kept is not None and join.kept.run == self.run else None
        self._record(
            Joined(id_, join.role, join.index, join.address, now, before, told, join.summing, kept)
        )
        self._admit(connection, link, membership.members[membership.ids], now)

    def _was(self, join: Join) -> int:
        """The id that the process had here before; 0: none."""
        was = join.before
        if was is None or was.run != self.run:
            return 0
        place = was.id, join.role, join.index
        known = any((p.id, p.role, p.index) == place for p in self.state.membership.past)
        return was.id if known else 0

    def _rejoin(self, connection: int, link: _Connection, rejoin: Rejoin, now: float) -> None:
        membership = self.state.membership
        member = membership.members.get(rejoin.id)
        if rejoin.run != self.run:
            self._send(connection, Gone(f"this is run {self.run}, not {rejoin.run}"))
        elif member is None:
            self._turn_away(connection, rejoin.id)
        elif link.member == member.id:  # it has asked twice
            self._welcome(connection, member.id)
        elif link.member not in membership.members:
            if old := self._of.get(member.id):  # whose closing we have not heard of yet
                self._forget(old)
                self._actions.append(Close(old))
            self._admit(connection, link, member, now)
        else:
            raise ValueError(f"the connection of member {link.member} says it is {rejoin.id}")

    def _turn_away(self, connection: int, member: int) -> None:
        """What to tell one that was a member."""
        past = next((p for p in self.state.membership.past if p.id == member), None)
        if past and past.finished:
            self._send(connection, Bye(past.why))
        else:
            self._send(connection, Gone(past.why if past else "it has not joined"))

    def _admit(self, connection: int, link: _Connection, member: Member, now: float) -> None:
        link.member = member.id
        self._of[member.id] = connection
        if member.role == "trainer":
            self._return = 0.0
        member.connected, member.heard = True, now
        self._welcome(connection, member.id)

    def _welcome(self, connection: int, member: int) -> None:
        terms = self.terms
        placed: dict[str, Placed] = {
            role: Placed(
                getattr(terms, ROLES[role].count),
                costs,
                terms.batch_size,
                terms.rows.room if role == "embedding-ps" and terms.rows else None,
            )
            for role, costs in self.costs.items()
        }
        begins = self.state.ledger.tickets == 0
        self._send(
            connection,
            Welcome(self.run, member, terms.beat, terms.timeout, placed, begins, self._all_rows),
        )

    def _report(self, connection: int, link: _Connection, report: Report, now: float) -> None:
        """Take in a member's standing, and answer what is out of date in it."""
        member = self.state.membership.members.get(link.member)
        if member is None:
            self._turn_away(connection, link.member)
            return
        member.heard = now
        if report.asks:
            ledger = self.state.ledger
            # (A reader keeps nothing of what is used, and who takes this master's place may grant it again.)
            told = ledger.known if member.role == "reader" else ledger.account
            self._send(connection, told)
        if report.there is not None and report.there != self.state.read:
            self._read(member, report.there, now)
            if self.over is not None:
                return
        if report.metrics:
            member.counters, member.counted = report.metrics, now
            member.trouble = report.trouble
        if done := [ticket for ticket, used in report.used if self._use(member, ticket, used)]:
            self._send(connection, Done(done))
        if report.settled > member.settled and member.role == "trainer":
            self._record(Settled(member.id, report.settled))
        if report.left and not member.left:  # also with its last word: what it tells counts
            self._waiting.pop(member.id, None)
            used = self.state.ledger.used(member.id)
            self._record(LeftRing(member.id, now, used, report.apart))
        if report.summary is not None:
            self._remove(member.id, FINISHED, now, report.summary)
            self._send(connection, Bye(FINISHED))
            return
        if member.role == "trainer":
            self._trainer(connection, member, report, now)
        elif ROLES[member.role].leads:
            self._leader(connection, member, report)
        self._cut(connection, member, report)

    @property
    def _all_rows(self) -> int | None:
        """How many there are, where that was not known at the beginning and is by now."""
        read = self.state.read
        return read.rows if read is not None and read.ended else None

    def _read(self, member: Member, there: There, now: float) -> None:
        """A reader has read more of rows that come once, or all of them."""
        if member.role != "reader" or not self.terms.once:
            raise ValueError(f"{member.name} tells of rows that come once, and there are none")
        if there.failed:
            self.stop(f"{member.name}: {there.failed}", now, "failed")
        elif there.ended and not there.rows:
            self.stop(f"{member.name} has read all that there is, and it has no row", now, "failed")
        else:
            self._record(Read(there))
            if there.ended:
                self._tell_trainers(Rows(there.rows))

    def _cut(self, connection: int, member: Member, report: Report) -> None:
        self._cutting.told(member.id, report)
        number, stage = report.cut
        wanted = self._cutting.wanted(member.role)
        if wanted == OVER and number:
            self._send(connection, Cut(number, OVER, whole=self.state.cuts.whole))
        elif wanted != OVER and (number != self._cutting.number or stage < wanted):
            self._send(connection, self._word())

    def _word(self) -> Cut:
        account = self.state.ledger.account
        return self._cutting.word((account.next, account.open), self.state.cuts.whole)

    def _advance_cut(self, now: float) -> None:
        """Begins a cut where one is due, as it is when all batches are complete, and sees to the one
        under way.
        """
        cutting, membership, cuts = self._cutting, self.state.membership, self.state.cuts
        members = membership.members
        if self._cut_last is None and self.state.ledger.done:
            self._cut_last = now + (self.terms.grace if cutting.asked else 0.0)
        if (cutting.due(now) or self._waits_for_cut(now)) and self._may_cut():
            self._record(CutBegun(cuts.begun + 1))
            cutting.begin(cuts.begun, members, now)
            self._tell_cut()
        if cutting.number == 0:
            return
        if self._done is not None:
            self._end_cut(now)
        elif why := cutting.fails(members, now):
            self._end_cut(now, why=why)
        elif not cutting.whole and cutting.proceed(now):
            self._tell_cut()

    def _waits_for_cut(self, now: float) -> bool:
        """Whether all batches are complete, and a checkpoint of them is still to come: as long as it is
        under way, and for ``grace`` until all are there who are to save.
        """
        if self._cut_last is None or self._done is not None:
            return False
        return self._cutting.number > 0 or now < self._cut_last

    def _may_cut(self) -> bool:
        """Whether all are there that have something to save, and train."""
        terms, membership = self.terms, self.state.membership
        there = [member for member in membership.members.values() if ROLES[member.role].saves]
        servers = [role for role in ROLES.values() if role.serves and role.saves]
        counts = {role.name: getattr(terms, role.count) for role in servers}
        return (
            membership.epoch.number > 0
            and self._cutting.number == 0
            and self._done is None
            and not self._lost()
            and all(member.connected and not member.left for member in there)
            and any(member.role == "trainer" for member in there)
            and all(sum(m.role == name for m in there) == n for name, n in counts.items())
        )

    def _end_cut(self, now: float, *, whole: bool = False, why: str = "") -> None:
        number, told = self._cutting.number, self._cutting.wanted
        whom = [m for m in self.state.membership.members.values() if told(m.role) != OVER]
        self._record(CutEnded(number, whole, why))
        self._cutting.end(now)
        if whole and self.state.ledger.done:
            self._cut_last = now
        for member in whom:
            if connection := self._of.get(member.id):
                self._send(connection, Cut(number, OVER, whole=self.state.cuts.whole))

    def _tell_cut(self) -> None:
        """All who are to reach its stage."""
        for member in self.state.membership.members.values():
            connection = self._of.get(member.id)
            if connection and self._cutting.wanted(member.role) != OVER:
                self._send(connection, self._word())

    def _trainer(self, connection: int, member: Member, report: Report, now: float) -> None:
        membership = self.state.membership
        membership.broke(report.broken, now)
        if report.servers < membership.servers_number:
            self._send(connection, membership.servers())
        if report.epoch < membership.epoch.number:
            self._send(connection, membership.epoch)
        if self._done is not None and not report.ended:
            self._send(connection, End(_COMPLETE))
        if report.batches and not member.left:
            self._want(connection, member, report.want, report.batches)

    def _leader(self, connection: int, member: Member, report: Report) -> None:
        epoch = self.state.membership.epoch
        if report.epoch < epoch.number:  # of whom it leads who is gone
            self._send(connection, epoch)
        if report.batches:
            self._want(connection, member, report.want, report.batches)

    def _use(self, member: Member, ticket: int, used: int) -> bool:
        """Whether the member is to forget the lease."""
        ledger = self.state.ledger
        held = ledger.held.get(ticket)
        if ticket in ledger.taken:
            self._record(Late(ticket, member.id))
        elif held and held.member == member.id and held.count == used:
            self._record(Completed(ticket, member.id))
        else:
            return ledger.use(member.id, ticket, used)
        return True

    def _want(self, connection: int, member: Member, want: int, batches: int) -> None:
        if want > member.answered:
            self._waiting[member.id] = (want, batches)
            return
        for held in self.state.ledger.held.values():  # the answer was lost
            if held.member == member.id and held.want == want == member.answered:
                self._lease(connection, held.ticket)

    def _lease(self, connection: int, ticket: int) -> None:
        held = self.state.ledger.held[ticket]
        self._send(
            connection,
            Lease(ticket, held.first, held.count, self.terms.batch_size, held.want),
        )

    def _remove(
        self, member: int, why: str, now: float, summary: dict[str, float] | None = None
    ) -> None:
        self._waiting.pop(member, None)
        self._of.pop(member, None)
        used = self.state.ledger.used(member)
        gone = self.state.membership.members[member]
        self._record(Removed(member, why, now, used, summary, gone.counters, gone.counted))

    def _settle(self, now: float) -> None:
        """What follows from what has happened: leases, news, the next epoch, the end."""
        ledger, membership = self.state.ledger, self.state.membership
        lost = self._lost()
        # (A machine that is shut down ends all at once.)
        if not self.leaving and (leader := self._leader_gone()) is not None:
            self.stop(f"{leader}, and with it all that was trained{self._left()}", now, "failed")
            return
        self._advance_cut(now)
        for member, (want, asked) in list(self._waiting.items()):
            # Nobody begins before the others are there, or have had the time to come.
            wait = lost or self._cutting.number > 0
            if ledger.free == 0 or membership.epoch.number == 0 or wait:
                break
            del self._waiting[member]
            batches, leads = asked, ROLES[membership.members[member].role].leads
            if (
                ledger.free is not None and not leads
            ):  # towards the end less, so that all end together
                batches = min(asked, -(-ledger.free // (2 * self.terms.trainers)))
            self._record(Granted(ledger.tickets + 1, member, batches, want))
            self._lease(self._of[member], ledger.tickets)
        if lost and self.terms.once:
            self.stop(
                f"all who had what was trained are lost{self._left()}, and {_ONCE}", now, "failed"
            )
            return
        if lost:
            self._done = self._cut_last = None
        elif ledger.done and self._done is None and not self._waits_for_cut(now):
            self._done = now
            self._tell_trainers(End(_COMPLETE))
        if membership.servers_number != self._told_servers:
            self._told_servers = membership.servers_number
            self._tell_trainers(membership.servers())
        enough = membership.epoch.number or len(membership.ring()) >= self.terms.min_trainers
        if enough and membership.epoch_due(now, lost=lost) and not (lost and self._revoked(now)):
            self._record(self._next_epoch(lost=lost))
            self._tell_trainers(membership.epoch)
        self._end_if_over(now)

    def _lost(self) -> bool:
        """Whether batches are complete, and no parameters are left that they went into."""
        ledger = self.state.ledger
        if ledger.complete == ledger.resumed or not self.state.membership.orphaned:
            return False
        return not self._complete()

    def _leader_gone(self) -> str | None:
        """Why there is no run any more without whom it had to lead it; None: there is."""
        for past in self.state.membership.past if self.over is None else ():
            if ROLES[past.role].leads and not past.finished:
                return f"{ROLES[past.role].words} {past.index} is lost ({past.why})"
        return None

    def _leader_behind(self, now: float) -> bool:
        """Whether who leads may still tell what became of the last batches of trainers that have ended
        before their run.
        """
        return now < self._trained + 3.0 * _BEHIND and any(
            ROLES[member.role].leads
            and member.connected
            and (member.counted or 0.0) < self._trained + _BEHIND
            for member in self.state.membership.members.values()
        )

    def _complete(self) -> bool:
        """Whether all batches are complete, and somebody who was there then has handed in parameters."""
        state = self.state
        return state.ledger.done and any(_has_result(state.summaries[n]) for n in state.whole)

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

    def _end_if_over(self, now: float) -> None:
        terms, membership = self.terms, self.state.membership
        if self.over is not None or membership.came is None:
            return
        if any(m.role == "trainer" for m in membership.members.values()):
            self._trained = now  # a last evaluation, and handing in a result, may take long
            return
        told = self._ended()
        finished, crashed = len(told), not any(map(_has_result, told.values()))
        cut = sorted(name for name, each in told.items() if _cut_short(each))
        how: How = "failed" if crashed else "ended"
        left = bool(cut) and not self._complete()
        if left and (self.leaving or now - self._trained < self._return):
            return
        if not self.state.ledger.done and self._leader_behind(now):
            return
        if finished >= terms.trainers:
            if crashed:
                self.stop(
                    f"no trainer has handed in parameters: {self._no_row() or _CRASHED}", now, how
                )
            elif terms.require_sync and (apart := self._apart()):
                self.stop(_NEVER.format(", ".join(apart)), now, "failed")
            elif left and (terms.ends or len(cut) == finished):
                self.stop(
                    f"stopped before its end: {', '.join(cut)}{self._left()}", now, "incomplete"
                )
            else:
                if how == "ended" and self.state.ledger.done and not self._complete():
                    how = "incomplete"
                self.stop(f"all trainers have finished{self._words()}", now, how)
            return
        waits = crashed or (left and len(cut) == finished)  # for one that goes on
        if now - self._trained > (terms.patience if waits else terms.grace):
            if how == "ended" and (cut or terms.ends) and not self._complete():
                how = "incomplete"
            required = ""
            if terms.require_sync and (apart := self._apart()):
                how, required = "failed", f"{_NEVER.format(', '.join(apart))}; "
            self.stop(
                f"{required}no trainer is left; {finished} of {terms.trainers} have finished"
                f"{self._words()}",
                now,
                how,
            )

    def _words(self) -> str:
        """What is to be said of a run at its end."""
        never = "".join(f"; {name} was never synchronised" for name in self._apart())
        crashed = "".join(
            f"; {name} has crashed" for name, last in self._told().items() if last.get("crashed")
        )
        return f"{self._left()}{self._anew()}{never}{crashed}"

    def _as_it_is(self) -> How:
        """How the run is over, if it is now."""
        done, state = self.state.ledger.done, self.state
        trains = any(member.role == "trainer" for member in state.membership.members.values())
        if (done or not trains) and not any(map(_has_result, self._told().values())):
            return "failed"
        return "ended" if self._complete() else "incomplete"

    def _told(self) -> dict[str, dict[str, float]]:
        """The last words of trainers, by name."""
        return {n: s for n, s in self.state.summaries.items() if n.startswith("trainer-")}

    def _ended(self) -> dict[str, dict[str, float]]:
        """Likewise, but of who was told to end, came back, and was lost then."""
        past = [each for each in self.state.membership.past if each.role == "trainer"]
        lost = {name_of(each.role, each.index): not each.finished for each in past}
        return {n: s for n, s in self._told().items() if not (_cut_short(s) and lost.get(n))}

    def _apart(self) -> list[str]:
        """Of several trainers those that were to be synchronised, and have trained alone."""
        told = self._told()
        if self.terms.trainers == 1:
            return []
        return sorted(n for n, s in told.items() if s.get("batches_used") and s.get("syncs") == 0)

    def _left(self) -> str:
        """What the run lacks, in words; nothing where that can't be said."""
        ledger = self.state.ledger
        if self._complete():
            return ""
        if ledger.done:
            return "; all batches are trained, and no trainer that was there at the end has all of them"
        if not self.terms.ends:
            return ""
        if ledger.total is None:
            assert ledger.there is not None
            return (
                f"; {ledger.there - ledger.complete:,} of {ledger.there:,} batches that have come are left, "
                "and the pipe has not ended"
            )
        return f"; {ledger.total - ledger.complete:,} of {ledger.total:,} batches are left"

    def _no_row(self) -> str:
        """That none has come out of a pipe, in words; nothing where that is not so."""
        read = self.state.read
        nothing = self.terms.once and (read is None or not read.rows)
        return "no row has come out of the pipe" if nothing else ""

    def _anew(self) -> str:
        """What was trained once more, in words; nothing where nothing was."""
        ledger = self.state.ledger
        if not ledger.restored:
            return ""
        if not ledger.lost:
            return "; all trainers were lost, and went on from what one had kept, with all that was known to be used"
        return f"; {ledger.lost:,} batches were trained anew, since all who had what they had led to were lost"

    def _tell_trainers(self, message: FromMaster) -> None:
        for member in self.state.membership.ring():
            if connection := self._of.get(member.id):
                self._send(connection, message)

    def _forget(self, connection: int) -> int:
        """The member whose connection it was; 0: none's."""
        link = self._connections.pop(connection, None)
        if link and self._of.get(link.member) == connection:
            del self._of[link.member]
            return link.member
        return 0

    def _record(self, change: Change) -> None:
        self.state.apply(change)
        self._changes.append(change)

    def _send(self, connection: int, message: FromMaster) -> None:
        self._actions.append(Send(connection, message))


def _has_result(summary: Mapping[str, float]) -> bool:
    """Whether a trainer with this last word has handed in parameters."""
    return bool(summary.get("handed_in", 1.0)) and not summary.get("crashed")


def _twice(ledger: Ledger, members: list[dict[str, Any]], batch_size: int) -> int:
    """Batches that a trainer has told of which another had, or had itself before it was taken for dead."""
    leaders = counted({"members": members}, "policy-ps").values()
    if leaders:  # which know of each gradient whether another's was before it
        return round(sum(each.get("mode_late", 0.0) for each in leaders) / batch_size)
    told = counted({"members": members}, "trainer").values()
    used = round(sum(each.get("batches_used", 0.0) for each in told))
    # (Less where counters went with a trainer that died while there was no master.)
    return max(0, used - (ledger.complete - ledger.resumed) - ledger.lost)


def _cut_short(summary: Mapping[str, float]) -> bool:
    """Whether a trainer with this last word was told to end, or the run was, for it, before its end."""
    return bool(summary.get("interrupted") or summary.get("cut_short"))
