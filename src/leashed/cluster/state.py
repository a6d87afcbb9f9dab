"""All that a master must still know after a restart, and the entries of the journal that lead to it.

``State.apply`` is the only way to change it, in a running master as in one that reads its journal:
so the same entries give the same state.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

from msgspec import Struct, field

from leashed.base import checks
from leashed.cluster import fingerprint
from leashed.cluster.ledger import Ledger
from leashed.cluster.membership import Membership
from leashed.cluster.messages import Account, Apart, Kept, Role, There
from leashed.cluster.packing import Costs
from leashed.cluster.roles import ROLES
from leashed.cluster.row_costs import RowTerms

__all__ = [
    "Began",
    "Change",
    "Completed",
    "CutBegun",
    "CutEnded",
    "Cuts",
    "Ended",
    "Entry",
    "EpochMade",
    "Granted",
    "How",
    "Joined",
    "Late",
    "LeftRing",
    "Read",
    "Removed",
    "Settled",
    "Snapshot",
    "State",
    "Terms",
]

How = Literal["ended", "incomplete", "failed"]
"""How a run is over: with all of its batches, or by stop rules of its trainers' own; with batches left
that were to be trained; or without a model.
"""


class Terms(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a run is, as far as its master has to know. Times are in seconds.

    Attributes:
        total: batches of the whole run; None: endless, until its trainers have stopped.
        batch_size: examples of a batch.
        trainers: how many are expected.
        sync_ps: how many sync servers share the parameters. Default 0.
        embedding_ps: how many embedding servers hold the rows of tables. Default 0.
        policy_ps: how many policy servers lead a mode. Default 0.
        readers: how many read what is trained on. Default 0.
        begun: what is used when the run begins, which goes on from a checkpoint. None: nothing.
        rows: of which tables; None: of none, or the master is to make nothing of it.
        parameters: the model's; results must have as many. None: unknown, any will do.
        statistics: running ones that the model normalises by, which follow the parameters in a result
            where a batch was averaged. Default 0.
        fingerprint: what all of the run must have alike, in words by name (``fingerprint.py``), beside
            what these terms say. What neither names the first tells who joins. Default: nothing.
        beat: time between two heartbeats, both ways. Default 0.5.
        timeout: silence after which a member, or the master, counts as dead. Default 5.
        grace: how long members have to come back to a restarted master, and the trainers to come at
            the start before the first epoch is made without the others. Default 10.
        gather: how long the next epoch waits for more changes. Default 0.2.
        min_trainers: with how many the run begins, at least, once ``grace`` has passed since the first
            came; and for how many it goes on, ``patience`` seconds after there were as many. With
            fewer it has failed. Default 1.
        require_sync: a trainer that trains for ``patience`` seconds without being synchronised, though
            at its own pace two rounds were due, or that at its end never was, makes the run fail.
            Default False.
        patience: how long the run waits for a trainer where none is left and batches are. Default 60.
        checkpoint_every: between two checkpoints of the whole run. Default: none are taken.
        cut: number of that from which the run goes on, before those of its own. Default 0.
        once: the rows that are trained on come once, out of a pipe, and nobody knows how many; ``total`` is
            None. Default False.
        to_end: of such rows all are to be trained on. Default False.
    """

    total: int | None
    batch_size: int
    trainers: int
    sync_ps: int = 0
    embedding_ps: int = 0
    policy_ps: int = 0
    readers: int = 0
    rows: RowTerms | None = None
    parameters: int | None = None
    statistics: int = 0
    fingerprint: dict[str, str] = {}
    begun: Account | None = None
    beat: float = 0.5
    timeout: float = 5.0
    grace: float = 10.0
    gather: float = 0.2
    patience: float = 60.0
    min_trainers: int = 1
    require_sync: bool = False
    checkpoint_every: float | None = None
    cut: int = 0
    once: bool = False
    to_end: bool = False

    @property
    def ends(self) -> bool:
        """Whether what is to be trained has an end."""
        return self.total is not None or self.to_end

    def check(self) -> Terms:
        """These, if they are sound; TypeError or ValueError otherwise."""
        if self.total is not None:
            checks.whole("total", self.total)
        if self.parameters is not None:
            checks.whole("parameters", self.parameters)
        checks.whole("statistics", self.statistics, 0)
        checks.whole("batch_size", self.batch_size)
        for role in ROLES.values():
            checks.whole(role.count, getattr(self, role.count), role.least, 4096)
        checks.whole("min_trainers", self.min_trainers, maximum=self.trainers)
        for name in ("beat", "timeout", "grace", "patience"):
            checks.real(name, getattr(self, name), 0.0)
        checks.real("gather", self.gather, 0.0, allow=True)
        if self.checkpoint_every is not None:
            checks.real("checkpoint_every", self.checkpoint_every, 0.0)
        if self.timeout < 3 * self.beat:
            raise ValueError(
                f"timeout must be at least three beats ({3 * self.beat:g} s), so that one late "
                f"heartbeat is no death; got {self.timeout:g}"
            )
        return self


class _Entry(Struct, frozen=True, tag=str.lower):
    """One line of the journal."""


class Began(_Entry, frozen=True):
    """The first one: the run, the moment (seconds since 1970), the terms, and what exchanges with
    sync servers cost, and rows embedding servers, where there are some.
    """

    run: str
    at: float
    terms: Terms
    costs: Costs | None = None
    row_costs: Costs | None = None

    def by_role(self) -> dict[Role, Costs]:
        """What servers cost, by their role."""
        all_of: dict[Role, Costs | None] = {"sync-ps": self.costs, "embedding-ps": self.row_costs}
        return {role: costs for role, costs in all_of.items() if costs is not None}


class Joined(_Entry, frozen=True):
    """A new member; ``before``: the id that its process had until it was taken for dead, or 0;
    ``fingerprint``: what it has told of the run that was not known yet; ``summing``, ``kept`` and
    ``returns``: as of ``Member``.
    """

    id: int
    role: Role
    index: int
    address: str
    now: float
    before: int = 0
    fingerprint: dict[str, str] = {}
    summing: bool = False
    kept: Kept | None = None
    returns: bool = False


class Removed(_Entry, frozen=True):
    """One is no member any more; with what it had used of its leases, its last word, and what it had
    counted, and when that was told.
    """

    id: int
    why: str
    now: float
    used: list[tuple[int, int]]
    summary: dict[str, float] | None = None
    counters: dict[str, float] = {}
    counted: float | None = None


class LeftRing(_Entry, frozen=True):
    """A trainer takes part in no more epochs, and gives its leases back; with what it had used of
    them, from the first and apart.
    """

    id: int
    now: float
    used: list[tuple[int, int]]
    apart: list[Apart] = []


class Settled(_Entry, frozen=True):
    """A trainer has trained in an epoch."""

    id: int
    epoch: int


class Read(_Entry, frozen=True):
    """What has been read of rows that come once."""

    there: There


class Granted(_Entry, frozen=True):
    """A lease."""

    ticket: int
    member: int
    batches: int
    want: int


class Completed(_Entry, frozen=True):
    """A lease is complete."""

    ticket: int
    member: int


class Late(_Entry, frozen=True):
    """A member has reported on a lease that had been taken back."""

    ticket: int
    member: int


class EpochMade(_Entry, frozen=True):
    """An epoch of the trainers that were there; ``broken``: a round of the last one had failed;
    ``restored``: what the run goes back to, and ``by``: the member that has kept parameters of then,
    0: all begin with initial ones; ``begin``: of what was complete then nothing is in any parameters.
    """

    number: int
    broken: bool
    begin: bool = False
    restored: Account | None = None
    by: int = 0


class Ended(_Entry, frozen=True):
    """The run is over. ``told``: what those who are still members had counted, and when, by id."""

    reason: str
    now: float
    how: How = "ended"
    told: dict[int, tuple[dict[str, float], float]] = {}


class CutBegun(_Entry, frozen=True):
    """The run is brought to a cut of that number."""

    number: int


class CutEnded(_Entry, frozen=True):
    """It is over. ``whole``: there is a checkpoint of it; else ``why`` it was given up; neither: nothing
    was left to be saved.
    """

    number: int
    whole: bool = False
    why: str = ""


Change = (
    CutBegun
    | CutEnded
    | Joined
    | Removed
    | LeftRing
    | Settled
    | Read
    | Granted
    | Completed
    | Late
    | EpochMade
    | Ended
)


class Cuts(Struct):
    """What cuts there were.

    Attributes:
        begun: number of the newest.
        ended: of the newest that is over.
        whole: of the newest of which there is a checkpoint, if only that with which the run has begun;
            0: none.
        made: how many checkpoints there were.
        given_up: how many cuts were given up.
        why: the last of these was.
    """

    begun: int = 0
    ended: int = 0
    whole: int = 0
    made: int = 0
    given_up: int = 0
    why: str = ""


class State(Struct):
    """Everything that the entries so far amount to.

    Attributes:
        ledger: who trains which batch.
        membership: who takes part.
        fingerprint: what all of the run have alike, in words by name.
        summaries: the last words, by name ("trainer-0").
        whole: of these the trainers' whose parameters all batches went into.
        over: why the run is over; None: it is not.
        ended: when it was.
        how: it is over, as far as it is.
        cuts: what cuts there were.
        read: what has been read of rows that come once; None: nothing yet, or they do not.
        batch_size: of the run.
    """

    ledger: Ledger
    membership: Membership
    fingerprint: dict[str, str] = field(default_factory=dict)
    summaries: dict[str, dict[str, float]] = field(default_factory=dict)
    whole: set[str] = field(default_factory=set)
    over: str | None = None
    ended: float = 0.0
    how: How = "ended"
    cuts: Cuts = field(default_factory=Cuts)
    read: There | None = None
    batch_size: int = 1

    @classmethod
    def of(cls, terms: Terms) -> State:
        """At the beginning."""
        membership = Membership(terms.trainers, terms.timeout, terms.grace, terms.gather)
        ledger = Ledger.after(terms.total, terms.begun)
        if terms.once:
            ledger.there = 0
        counts = {name: getattr(terms, role.count) for name, role in ROLES.items() if role.serves}
        known = {
            **fingerprint.of_batches(terms.total, terms.batch_size),
            **fingerprint.of_begin(terms.begun is not None),
            **fingerprint.of_servers(counts),
            **terms.fingerprint,
        }
        cuts = Cuts(terms.cut, terms.cut, terms.cut)
        return cls(ledger, membership, known, cuts=cuts, batch_size=terms.batch_size)

    def apply(self, entry: Change) -> None:
        """What the entry says has happened. ValueError where it cannot have, after the others."""
        try:
            self._apply(entry)
        except (KeyError, AttributeError) as error:
            raise ValueError(f"{entry} does not follow from what is before it: {error}") from None

    def _apply(self, entry: Change) -> None:
        ledger, membership = self.ledger, self.membership
        if isinstance(entry, Granted):
            held = ledger.grant(entry.member, entry.batches, entry.want)
            _same("ticket", held.ticket if held else None, entry.ticket)
            membership.members[entry.member].answered = entry.want
        elif isinstance(entry, Completed):
            ledger.use(entry.member, entry.ticket, ledger.held[entry.ticket].count)
        elif isinstance(entry, Joined):
            member = membership.join(
                entry.role, entry.index, entry.address, entry.now, entry.before,
                summing=entry.summing, kept=entry.kept, returns=entry.returns,
            )  # fmt: skip
            _same("id", member.id, entry.id)
            # (Of several who lead those behind the first have leased nothing.)
            if ROLES[entry.role].leads and entry.index == 0 and entry.kept is not None:
                ledger.undo(entry.kept.next)
            there = any(each.id == entry.before and each.done for each in membership.past)
            kept = (
                entry.kept is not None and entry.kept.next == ledger.total and not entry.kept.open
            )
            if member.summing:  # until it has summed
                member.behind = ledger.complete > ledger.resumed and not (there or kept)
            else:  # with sync servers a new process begins with what these have
                member.behind = ledger.done and entry.before > 0 and not there
            self.fingerprint |= entry.fingerprint
        elif isinstance(entry, Removed):
            member = membership.members[entry.id]
            # (Who leads has all batches; those that workers had when it died are trained once more, and
            # it alone knows which.)
            dead = entry.summary is None and not (ROLES[member.role].leads and member.returns)
            self._take_back(entry, dead=dead)
            membership.remove(
                entry.id,
                entry.why,
                entry.now,
                finished=entry.summary is not None,
                counters={**entry.counters, **(entry.summary or {})},
                counted=entry.counted,
                done=ledger.done and not member.behind,
            )
            if entry.summary is not None:
                told = self.summaries[member.name] = dict(entry.summary)
                # (Who was told to end has not what others had computed by then.)
                alone = membership.trainers == 1
                if member.whole and (alone or not told.get("interrupted")):
                    self.whole.add(member.name)
                else:
                    self.whole.discard(member.name)
                    if "left_early" in told:  # also who had left when the run went back
                        told["left_early"] = float(ledger.total is not None)
        elif isinstance(entry, LeftRing):
            self._take_back(entry, dead=False, apart=entry.apart)
            member = membership.members[entry.id]
            member.whole = ledger.done and not member.behind
            membership.leave(entry.id, entry.now)
        elif isinstance(entry, Settled):
            member = membership.members[entry.id]
            member.settled = entry.epoch
            if member.summing and entry.epoch > membership.unled:
                member.behind = False
            member.holds |= not member.behind
        elif isinstance(entry, Read):
            ledger.read(entry.there.rows, self.batch_size, ended=entry.there.ended)
            self.read = entry.there
        elif isinstance(entry, EpochMade):
            if entry.restored is not None:
                ledger.restore(entry.restored)
                for member in membership.members.values():
                    member.behind = False
            if entry.by:
                membership.members[entry.by].holds = True
            made = membership.next_epoch(
                broken=entry.broken, begin=entry.begin, restored=ledger.restored
            )
            _same("epoch", made.number, entry.number)
        elif isinstance(entry, CutBegun):
            self.cuts.begun = entry.number
        elif isinstance(entry, CutEnded):
            cuts = self.cuts
            cuts.ended = entry.number
            if entry.whole:
                cuts.whole = entry.number
                cuts.made += 1
            elif entry.why:
                cuts.given_up += 1
                cuts.why = entry.why
        elif isinstance(entry, Late):
            ledger.use(entry.member, entry.ticket, 0)
        else:
            self.over, self.ended, self.how = entry.reason, entry.now, entry.how
            for member_id, (counters, counted) in entry.told.items():
                membership.members[member_id].counters = counters
                membership.members[member_id].counted = counted

    def _take_back(
        self, entry: Removed | LeftRing, *, dead: bool, apart: Iterable[Apart] = ()
    ) -> None:
        for ticket, used in entry.used:
            self.ledger.use(entry.id, ticket, used)
        self.ledger.take_back(entry.id, dead=dead, apart=apart)


class Snapshot(_Entry, frozen=True):
    """In place of all the changes before it."""

    state: State


Entry = Began | Snapshot | Change


def _same(name: str, got: int | None, said: int) -> None:
    if got != said:
        raise ValueError(f"{name} {said} does not follow; it would be {got}")
