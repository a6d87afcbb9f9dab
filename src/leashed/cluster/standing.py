"""How things stand with one member: what it tells the master, and what it makes of the answers.

A value: no sockets, threads or clocks.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

from leashed.cluster.messages import (
    OVER,
    Account,
    Apart,
    Bye,
    Cut,
    Done,
    End,
    Epoch,
    FromMaster,
    Gone,
    Join,
    Kept,
    Lease,
    Rejoin,
    Report,
    Role,
    Rows,
    Saved,
    Servers,
    There,
    Welcome,
)

__all__ = ["News", "Standing"]

# What is new to the member, of all that the master says (again).
News = Welcome | Cut | Lease | Servers | Epoch | Rows | End | Bye


class Standing:
    """One member's.

    Args:
        role: what it is.
        index: which one of its role.
        address: where others reach it.
        fingerprint: what it has that all of a run must have alike.
        summing: as of ``Join``.
        kept: likewise.

    Attributes:
        role, index, address: these.
        welcome: of the master; None where it is no member (yet, or any more).
        epoch: the newest; None before the first.
        servers: the newest.
        ended: there are no more batches.
        account: how far the run is; None: not known yet.
        asks: it wants to know.
        left: it takes no more part in epochs.
        apart: batches used behind others that it will not use, once it has left.
        summary: its last word; None as long as it is not done.
        trouble: what keeps it from being in step with the others.
        kept: of which account its parameters are; None: of none.
        over: why it is to say nothing more; None: it is not.
        refused: why it is no member, as the master said last.
        cut: the newest that it knows of and is not over, and the stage that it has reached.
        saved: its files of that.
        cut_failed: why it cannot save; empty: it can.
        there: of a reader whose rows come once, what it has read.
    """

    def __init__(
        self,
        role: Role,
        index: int,
        address: str,
        fingerprint: Mapping[str, str] | None = None,
        *,
        summing: bool = False,
        kept: Kept | None = None,
        returns: bool = False,
    ) -> None:
        self.role: Role = role
        self.index = index
        self.address = address
        self._fingerprint = dict(fingerprint or {})
        self._summing = summing
        self.kept = kept
        self._returns = returns
        self.welcome: Welcome | None = None
        self.epoch: Epoch | None = None
        self.servers: Servers | None = None
        self.ended = False
        self.account: Account | None = None
        self.asks = False
        self.left = False
        self.apart: list[Apart] = []
        self.summary: dict[str, float] | None = None
        self.trouble = ""
        self.over: str | None = None
        self.refused = ""
        self.cut = (0, OVER)
        self.saved: list[Saved] = []
        self.cut_failed = ""
        self.there: There | None = None
        self._cut: Cut | None = None  # as it was told
        self._was = (0, "")  # the last id, and of which run
        self._settled = 0
        self._broken = 0
        self._want = 0
        self._batches = 0
        self._used: dict[int, int] = {}
        self._metrics: dict[str, float] = {}

    def hello(self) -> Join | Rejoin:
        """The first word on a new connection."""
        if self.welcome:
            return Rejoin(self.welcome.run, self.welcome.id)
        number, run = self._was
        before = Rejoin(run, number) if number else None
        return Join(
            self.role,
            self.index,
            self.address,
            before,
            self._fingerprint,
            self._summing,
            self.kept,
            self._returns,
        )

    def report(self) -> Report:
        """All of it."""
        return Report(
            self.epoch.number if self.epoch else 0,
            self.servers.number if self.servers else 0,
            self.ended,
            self._settled,
            self._broken,
            self.asks,
            self.left,
            [(ticket, used) for ticket, used in self._used.items() if used],
            self.apart,
            self._want,
            self._batches,
            self._metrics,
            self.summary,
            self.trouble,
            self.cut,
            self.saved,
            self.cut_failed,
            self.there,
        )

    def hear(self, message: FromMaster) -> News | None:
        """What of the message is new to the member, if anything."""
        if isinstance(message, Welcome):
            return self._welcomed(message)
        if isinstance(message, Gone):
            self.welcome, self.refused = None, message.reason
        elif isinstance(message, Bye):
            first, self.over = self.over is None, message.reason
            return message if first else None
        elif self.welcome is None:
            return None  # meant for who it was before
        elif isinstance(message, Done):
            for ticket in message.tickets:
                self._used.pop(ticket, None)
        elif isinstance(message, Lease):
            if self._batches and message.want == self._want:
                self._batches = 0
                self._used[message.ticket] = 0
                return message
        elif isinstance(message, Epoch):
            if self.epoch is None or message.number > self.epoch.number:
                self.epoch = message
                if self._begins_anew(message):
                    self.account = None  # of parameters that it has no longer
                return message
        elif isinstance(message, Cut):
            return self._told_of_cut(message)
        elif isinstance(message, Account):
            known, least = self.account, self.epoch.restored if self.epoch else 0
            if message.restored >= least and (
                known is None or (message.restored, message.used) > (known.restored, known.used)
            ):
                self.account = message
        elif isinstance(message, Servers):
            if self.servers is None or message.number > self.servers.number:
                self.servers = message
                return message
        elif isinstance(message, Rows):
            return message
        elif isinstance(message, End) and not self.ended:
            self.ended = True
            return message
        return None

    def want(self, batches: int) -> None:
        """Ask for a lease; where it has asked already: for so many batches."""
        if not self._batches:
            self._want += 1
        self._batches = batches

    def tell(self, metrics: Mapping[str, float], used: Iterable[tuple[int, int]]) -> None:
        """The newest counters (those that are not finite are left out), and batches used of leases:
        (ticket, how many from the first). Those of leases that it does not hold are ignored.
        """
        self._metrics = {k: float(v) for k, v in metrics.items() if math.isfinite(v)}
        for ticket, count in used:
            if ticket in self._used:
                self._used[ticket] = max(self._used[ticket], count)

    def settled(self, epoch: int) -> None:
        """It has trained in an epoch."""
        self._settled = max(self._settled, epoch)

    def broken(self, epoch: int) -> None:
        """A round of an epoch has failed."""
        self._broken = max(self._broken, epoch)

    def cut_reached(self, number: int, stage: int, saved: Iterable[Saved], failed: str) -> None:
        """How far it is in that cut, unless there is another by now."""
        if number == self.cut[0]:
            self.cut, self.saved, self.cut_failed = (number, stage), list(saved), failed

    def _told_of_cut(self, cut: Cut) -> Cut | None:
        known = self._cut
        if known is not None and (cut.number, cut.stage) == (known.number, known.stage):
            return None
        self._cut = cut
        if cut.stage == OVER:
            self.cut, self.saved, self.cut_failed = (0, OVER), [], ""
        elif cut.number != self.cut[0]:
            self.cut, self.saved, self.cut_failed = (cut.number, OVER), [], ""
        return cut

    def _begins_anew(self, epoch: Epoch) -> bool:
        """With what others have: the run has gone back, or what is summed it takes from one of them. What
        a master from before has told may be more than that is of.
        """
        mine = [seat for seat in epoch.members if self.welcome and seat.id == self.welcome.id]
        fresh = self._summing and any(seat.fresh for seat in mine)
        return fresh or (self.account is not None and self.account.restored < epoch.restored)

    def _welcomed(self, welcome: Welcome) -> Welcome | None:
        if welcome.run == self._was[1] and welcome.id < self._was[0]:
            return None  # that it was before; ids ascend
        before, self.welcome = self._was, welcome
        self._was = welcome.id, welcome.run
        if before == self._was:
            return None
        # A new member: it is told everything anew. What it held as another is not its own any more;
        # it tells once what it has used of it, so that this is known.
        self.epoch, self.servers, self.ended = None, None, False
        self.cut, self.saved, self.cut_failed, self._cut = (0, OVER), [], "", None
        self._settled = self._broken = 0
        if before[1] != welcome.run:
            self._used.clear()
        return welcome
