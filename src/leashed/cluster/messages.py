"""What a member and the master say to each other.

A member tells all of its standing again in every ``Report``, and the master answers what is out of
date in it. So a message that is lost, late or comes twice does no harm, and a master that was
restarted knows after one beat how things are.
"""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct

from leashed.cluster.packing import Costs
from leashed.cluster.roles import ROLES

__all__ = [
    "FINISHED",
    "MOST_SPANS",
    "MOST_WORDS",
    "OVER",
    "REST",
    "SAVED",
    "STILL",
    "Account",
    "Apart",
    "Beat",
    "Bye",
    "Cut",
    "Done",
    "End",
    "Epoch",
    "FromMaster",
    "Gone",
    "Join",
    "Kept",
    "Lease",
    "Placed",
    "Rejoin",
    "Report",
    "Role",
    "Rows",
    "Saved",
    "Seat",
    "Servers",
    "There",
    "ToMaster",
    "Welcome",
]

_MOST = 2**53  # whole numbers that JSON keeps exactly everywhere
MOST_SPANS = 4096
"""Of an account that a process may bring with it."""
FINISHED = "finished"
"""The reason of a ``Bye`` that confirms a last word."""
MOST_WORDS = 400
"""Letters of what a process tells in words."""

OVER, REST, STILL, SAVED = range(4)
"""Stages of a cut: there is none; workers rest; nothing that was trained is under way; all is saved."""

Role = Annotated[str, Meta(pattern=rf"\A({'|'.join(ROLES)})\Z")]
"""The name of one of ``ROLES``."""
Count = Annotated[int, Meta(ge=0, le=_MOST)]
Index = Annotated[int, Meta(ge=0, lt=1 << 16)]
Address = Annotated[str, Meta(max_length=300)]
Word = Annotated[str, Meta(min_length=1, max_length=64)]
Apart = tuple[Count, Count, Count]
"""Batches used of a lease behind one that is not: ticket, first from the lease's first, how many."""
Numbers = Annotated[dict[Word, float], Meta(max_length=256)]
Words = Annotated[dict[Word, Annotated[str, Meta(max_length=MOST_WORDS)]], Meta(max_length=64)]


class _Message(Struct, frozen=True, forbid_unknown_fields=True, tag=str.lower):
    """One message."""


class Kept(Struct, frozen=True, forbid_unknown_fields=True):
    """Parameters that outlive the process that has written them, and which batches are in them.

    Attributes:
        run: of which they are.
        next: number of the first batch that had never been granted then.
        open: spans before it that are not known to be in them, (first, count), by number.
    """

    run: Word
    next: Count
    open: Annotated[list[tuple[Count, Count]], Meta(max_length=MOST_SPANS)] = []


class Join(_Message, frozen=True):
    """A process that is no member asks to be one.

    Attributes:
        role: what it is.
        index: which one of its role; no two at a time have the same.
        address: where others reach it, "host:port"; empty where nobody needs to.
        before: what it was until it was taken for dead; its counters go on. None: it is new.
        fingerprint: what it has that all of a run must have alike, in words by name.
        summing: a trainer that sums with the others: the run's parameters are in such ones alone.
        kept: what it begins with, of a process before it; None: with initial parameters. Of who leads the
            run: how many batches are done by what it goes on from.
        returns: where who leads dies, it is started again, and goes on from what it has kept.
    """

    role: Role
    index: Index
    address: Address
    before: Rejoin | None = None
    fingerprint: Words = {}
    summing: bool = False
    kept: Kept | None = None
    returns: bool = False


class Rejoin(_Message, frozen=True):
    """A member is back, after its connection or the master was lost.

    Attributes:
        run: the run that it is of.
        id: its id there.
    """

    run: Word
    id: Count


class Saved(Struct, frozen=True, forbid_unknown_fields=True):
    """A file of a checkpoint.

    Attributes:
        name: in the checkpoint's folder.
        bytes: how many it has.
        sha256: of these, in hexadecimal digits.
    """

    name: Annotated[str, Meta(pattern=r"\A[a-z0-9-]{1,40}(/[a-z0-9.-]{1,40}|[.a-z0-9-]{0,40})\Z")]
    bytes: Count
    sha256: Annotated[str, Meta(pattern=r"\A[0-9a-f]{64}\Z")]


class There(Struct, frozen=True, forbid_unknown_fields=True):
    """What a reader has read of rows that come once.

    Attributes:
        rows: how many, so far.
        ended: there are no more.
        failed: why no more can be read; empty: they can.
    """

    rows: Count = 0
    ended: bool = False
    failed: Annotated[str, Meta(max_length=MOST_WORDS)] = ""


class Report(_Message, frozen=True):
    """All of a member's standing; also its heartbeat.

    Attributes:
        epoch: the newest epoch that it knows of.
        servers: the newest ``Servers`` that it knows of.
        ended: it knows that there are no more batches.
        settled: the newest epoch in which it has trained, so holds what others may take from it.
        broken: the newest epoch of which a round failed there.
        asks: it wants to know how far the run is.
        left: it takes no more part in epochs and has no use for its leases.
        used: batches used of each lease that it holds: (ticket, how many from the first).
        apart: what else it has used of them, ascending in each; for who has left.
        want: number of its request for a lease; 0 for none.
        batches: how many it wants.
        metrics: its counters.
        summary: its last word; None as long as it is not done.
        trouble: what keeps it from being in step with the others; empty: nothing that it knows of.
        cut: the newest cut that it knows of, and the stage that it has reached; (0, 0) where that is
            over.
        saved: its files of that, once it has saved.
        cut_failed: why it cannot; empty: it can.
        there: of a reader whose rows come once, what it has read; None: of nobody else.
    """

    epoch: Count = 0
    servers: Count = 0
    ended: bool = False
    settled: Count = 0
    broken: Count = 0
    asks: bool = False
    left: bool = False
    used: Annotated[list[tuple[Count, Count]], Meta(max_length=4096)] = []
    apart: Annotated[list[Apart], Meta(max_length=4096)] = []
    want: Count = 0
    batches: Annotated[int, Meta(ge=0, lt=1 << 32)] = 0
    metrics: Numbers = {}
    summary: Numbers | None = None
    trouble: Annotated[str, Meta(max_length=MOST_WORDS)] = ""
    cut: tuple[Count, Annotated[int, Meta(ge=OVER, le=SAVED)]] = (0, OVER)
    saved: Annotated[list[Saved], Meta(max_length=16)] = []
    cut_failed: Annotated[str, Meta(max_length=MOST_WORDS)] = ""
    there: There | None = None


class Beat(_Message, frozen=True):
    """Who says so is alive: the master, or a member that cannot report."""


ToMaster = Join | Rejoin | Report | Beat


class Account(_Message, frozen=True):
    """Which batches of the run are used, as far as the master knows.

    Attributes:
        next: number of the first that was never granted.
        open: spans before it that are not known to be used, (first, count), by number.
        restored: how often the run has gone back to an account before.
    """

    next: Count = 0
    open: list[tuple[Count, Count]] = []
    restored: int = 0

    @property
    def used(self) -> int:
        """How many."""
        return self.next - sum(count for _, count in self.open)


class Placed(Struct, frozen=True, forbid_unknown_fields=True):
    """By what servers of one role share what they hold (``packing``).

    Attributes:
        servers: how many they are.
        costs: of what is exchanged with them, as profiled.
        batch_size: of the run.
        room: bytes that each of them has for what it holds; None: as many as are needed.
    """

    servers: int
    costs: Costs
    batch_size: int = 1
    room: float | None = None


class Welcome(_Message, frozen=True):
    """The process is a member (still, after ``Rejoin``).

    Attributes:
        run: the run.
        id: its id there; a new one for every ``Join``.
        beat: seconds between two reports.
        timeout: seconds of silence after which a member counts as dead.
        placed: what servers hold, by role; all derive from it the same.
        begins: nobody has trained yet.
        rows: that there are, where that was not known at the beginning; None: it is not yet, or was.
    """

    run: str
    id: int
    beat: float
    timeout: float
    placed: dict[Role, Placed] = {}
    begins: bool = False
    rows: int | None = None


class Rows(_Message, frozen=True):
    """How many there are, which was not known: no batch that was granted before has any behind them.

    Attributes:
        rows: so many.
    """

    rows: int


class Gone(_Message, frozen=True):
    """The process is no member (any more). It may join.

    Attributes:
        reason: why.
        unlike: it cannot, being another thing than the run.
    """

    reason: str
    unlike: bool = False


class Lease(_Message, frozen=True):
    """The member is to train these batches: ``first``, …, ``first + count - 1``.

    Attributes:
        ticket: the lease's name in reports.
        first: number of its first batch.
        count: how many batches.
        batch_size: examples of each.
        want: the request that this answers.
    """

    ticket: int
    first: int
    count: int
    batch_size: int
    want: int


class Done(_Message, frozen=True):
    """The member need not report these leases any more: they are complete, or not its own.

    Attributes:
        tickets: the leases.
    """

    tickets: list[int]


class Servers(_Message, frozen=True):
    """The servers that are alive.

    Attributes:
        number: rises with each change.
        addresses: "host:port" by index, by role: one for each that serves.
    """

    number: int
    addresses: dict[Role, dict[int, str]]


class Seat(Struct, frozen=True, forbid_unknown_fields=True):
    """A trainer's place in an epoch.

    Attributes:
        id: the member.
        index: the trainer's.
        address: where its ring is reached.
        fresh: it takes θ and state from the first that is not, with whom it has not been together.
    """

    id: int
    index: int
    address: str
    fresh: bool


class Epoch(_Message, frozen=True):
    """Who is in the ring from now on.

    Attributes:
        number: rises with each epoch.
        members: in the ring's order.
        restored: how often the run has gone back to an account before.
    """

    number: int
    members: list[Seat]
    restored: int = 0


class Cut(_Message, frozen=True):
    """The run is brought to a cut, of which a checkpoint is.

    Attributes:
        number: of the cut; rises.
        stage: that the member is to reach; ``OVER``: it is over.
        next: number of the first batch that was never granted; where all are to save.
        open: spans before it that are not used, (first, count), by number.
        whole: the newest one of which there is a whole checkpoint; 0: none.
    """

    number: int
    stage: int
    next: int = 0
    open: list[tuple[int, int]] = []
    whole: int = 0


class End(_Message, frozen=True):
    """All batches are complete.

    Attributes:
        reason: in words.
    """

    reason: str


class Bye(_Message, frozen=True):
    """The member's last word has arrived, or the run is over.

    Attributes:
        reason: in words.
    """

    reason: str


FromMaster = (
    Account | Cut | Welcome | Gone | Lease | Done | Servers | Epoch | Rows | End | Bye | Beat
)
