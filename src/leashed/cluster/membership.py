"""Who takes part, who counts as dead, and who is in the ring. A value: ``now`` is told to it."""

from __future__ import annotations

from msgspec import Struct, field

from leashed.cluster.messages import Epoch, Kept, Role, Seat, Servers
from leashed.cluster.roles import ROLES

__all__ = ["Member", "Membership", "Past"]


class Member(Struct):
    """One that takes part.

    Attributes:
        id: its name, never used again.
        role: what it is.
        index: which one of its role.
        address: where others reach it.
        joined: when.
        heard: when it was last heard of.
        connected: it has a connection; without one it has been away since the master's restart, or leads.
        settled: the newest epoch in which it has trained; 0: none.
        left: it takes part in no more epochs.
        answered: its newest request for a lease that was answered.
        before: the id that its process had until it was taken for dead; 0: the process is new.
        counters: what its process has counted, as it was told last.
        counted: when that was; None: it has told nothing.
        summing: the run's parameters are in such members alone.
        kept: what its process began with, of one before it.
        trouble: what keeps it from being in step with the others, as it tells.
        holds: it has the run's parameters, with which it has begun, or trained in an epoch.
        whole: when it left all batches were complete, and so in its parameters.
        returns: who leads is started again where it dies, and goes on from what it has kept.
        behind: it was away while others trained, and has not what these have: of those who sum until it
            has with one that is not, of others a process that is back when all batches are complete.
    """

    id: int
    role: Role
    index: int
    address: str
    joined: float
    heard: float
    connected: bool = True
    settled: int = 0
    left: bool = False
    answered: int = 0
    before: int = 0
    counters: dict[str, float] = field(default_factory=dict)
    counted: float | None = None
    summing: bool = False
    kept: Kept | None = None
    trouble: str = ""
    holds: bool = False
    whole: bool = False
    behind: bool = False
    returns: bool = False

    @property
    def name(self) -> str:
        """Such as "trainer-3"."""
        return f"{self.role}-{self.index}"


class Past(Struct):
    """One that took part.

    Attributes:
        id: its name.
        role: what it was.
        index: which one of its role.
        address: where others reached it.
        joined: when.
        gone: when.
        why: in words.
        finished: it had said its last word.
        before: the id that its process had until it was taken for dead; 0: the process was new.
        counters: what its process had counted, as it was told last; with its last word.
        counted: when that was; None: it had told nothing.
        done: whether all batches were complete when it went, and in its parameters.
    """

    id: int
    role: Role
    index: int
    address: str
    joined: float
    gone: float
    why: str
    finished: bool
    before: int = 0
    counters: dict[str, float] = field(default_factory=dict)
    counted: float | None = None
    done: bool = False


class Membership(Struct):
    """All members of a run.

    Attributes:
        trainers: how many are expected at the start.
        timeout: seconds of silence after which a member is dead.
        grace: seconds in which a member must be back after the master's restart, and in which the
            expected trainers must come at the start.
        gather: seconds between a change and the epoch that it leads to, for others to come along.
        members: those alive, by id.
        past: those that are not any more.
        ids: given so far.
        servers_number: changes of the servers so far.
        epoch: the newest one; its number is 0 before the first.
        changed: since when there has been a change that needs a new epoch; None: there is none.
        failed: a round of the newest epoch has failed.
        unled: the newest epoch in which all were behind; 0: none.
        broken: epochs that were given up because a round failed.
        came: when the first trainer came; None: none has.
        now: the time, as it was told last.
        lenient: until when a member whose connection is closed may come back.
    """

    trainers: int
    timeout: float
    grace: float
    gather: float
    members: dict[int, Member] = field(default_factory=dict)
    past: list[Past] = field(default_factory=list)
    ids: int = 0
    servers_number: int = 0
    epoch: Epoch = field(default_factory=lambda: Epoch(0, []))
    changed: float | None = None
    failed: bool = False
    unled: int = 0
    broken: int = 0
    came: float | None = None
    now: float = 0.0
    lenient: float = 0.0

    def holder(self, role: Role, index: int) -> Member | None:
        """The member of that role and index."""
        for member in self.members.values():
            if (member.role, member.index) == (role, index):
                return member
        return None

    def ring(self) -> list[Member]:
        """The trainers that would be in an epoch made now, in the ring's order."""
        ring = [m for m in self.members.values() if m.role == "trainer" and not m.left]
        return sorted(ring, key=lambda m: m.index)

    def servers(self) -> Servers:
        """The servers that are alive."""
        addresses: dict[str, dict[int, str]] = {
            name: {} for name, role in ROLES.items() if role.serves
        }
        for member in sorted(self.members.values(), key=lambda m: m.index):
            if member.role in addresses:
                addresses[member.role][member.index] = member.address
        return Servers(self.servers_number, addresses)

    def join(
        self,
        role: Role,
        index: int,
        address: str,
        now: float,
        before: int = 0,
        *,
        summing: bool = False,
        kept: Kept | None = None,
        returns: bool = False,
    ) -> Member:
        """A new member; there is none of that role and index."""
        self.ids += 1
        member = Member(
            self.ids, role, index, address, now, now, before=before, summing=summing, kept=kept,
            returns=returns,
        )  # fmt: skip
        self.members[member.id] = member
        if role == "trainer" and self.came is None:
            self.came = now
        self._change(member, now)
        return member

    def leave(self, member: int, now: float) -> None:
        """A trainer takes part in no more epochs."""
        self.members[member].left = True
        self._change(self.members[member], now)

    def remove(
        self,
        member: int,
        why: str,
        now: float,
        *,
        finished: bool,
        counters: dict[str, float] | None = None,
        counted: float | None = None,
        done: bool = False,
    ) -> None:
        """It is no member any more."""
        gone = self.members.pop(member)
        self.past.append(
            Past(
                gone.id, gone.role, gone.index, gone.address, gone.joined, now, why, finished,
                gone.before, counters or {}, counted, done,
            )
        )  # fmt: skip
        if not gone.left:
            self._change(gone, now)

    def broke(self, epoch: int, now: float) -> None:
        """A round of an epoch failed; of an older one than the newest this is no news."""
        if epoch == self.epoch.number > 0:
            self.failed = True
            if self.changed is None:
                self.changed = now

    def restarted(self, now: float) -> None:
        """The master is new: all members are away, and have ``grace`` to come back."""
        self.now = now
        for member in self.members.values():
            member.connected = False
            member.heard = now

    def passed(self, now: float) -> None:
        """Time has passed. To be told often: where it was not for half a timeout, the master itself
        has been stopped, and could hear nobody. That time counts for nobody's silence, and who has
        given up waiting for it may come back within ``grace``.
        """
        pause = now - self.now
        self.now = now
        if pause > self.timeout / 2:
            self.lenient = now + self.grace
            for member in self.members.values():
                member.heard = min(member.heard + pause, now)

    def cut_off(self, member: int, now: float) -> bool:
        """Its connection is closed; whether it may come back. Who leads has as long as one that is silent, since
        without it there is no run, and where it is started again the time for that too.
        """
        if now >= self.lenient and not ROLES[self.members[member].role].leads:
            return False
        self.members[member].connected = False
        self.members[member].heard = now
        return True

    def silent(self, now: float) -> list[Member]:
        """Members that have been silent for too long."""
        return [
            member
            for member in self.members.values()
            if now - member.heard > self._patience(member, now)
        ]

    def _patience(self, member: Member, now: float) -> float:
        """Seconds for which it may be silent."""
        if member.connected:
            return self.timeout
        if ROLES[member.role].leads and now >= self.lenient:
            return self.timeout + (self.grace if member.returns else 0.0)
        return self.grace

    @property
    def orphaned(self) -> bool:
        """There are trainers that go on, and the run's parameters were in such ones, and none of these
        has them.
        """
        trainers = self.ring()
        return any(m.summing for m in trainers) and not any(m.holds for m in trainers)

    def epoch_due(self, now: float, *, lost: bool = False) -> bool:
        """Whether a new epoch is to be made now; ``lost``: with what trainers may have kept, who
        have as much time to come as at the start.
        """
        ring = self.ring()
        if not ring:
            return False
        if lost:
            since = max(min(member.joined for member in ring), self.changed or 0.0)
            return len(ring) >= self.trainers or now - since >= self.grace
        if not self.epoch.number:
            waited = self.came is not None and now - self.came >= self.grace
            return len(ring) >= self.trainers or waited
        return self.changed is not None and now - self.changed >= self.gather

    def next_epoch(self, *, broken: bool, begin: bool = False, restored: int = 0) -> Epoch:
        """Make a new epoch of those that are there; ``begin``: with whose first parameters nothing
        is lost. Where none has trained in an epoch, they begin with those of the first that has any.
        """
        ring = self.ring()
        for member in ring:
            member.holds |= begin
        known = [m for m in ring if m.settled] or [m for m in ring if m.holds][:1]
        seats = [Seat(m.id, m.index, m.address, fresh=m not in known) for m in ring]
        self.epoch = Epoch(self.epoch.number + 1, seats, restored)
        if all(member.behind for member in ring):
            self.unled = self.epoch.number
        self.broken += broken
        self.changed = None
        self.failed = False
        return self.epoch

    def _change(self, member: Member, now: float) -> None:
        if ROLES[member.role].serves:
            self.servers_number += 1
        elif self.changed is None:
            self.changed = now
