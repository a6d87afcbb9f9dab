"""Of which account of the run a trainer's parameters are, and whether it is in step with the others."""

from __future__ import annotations

import time
from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from leashed import _core
from leashed.cluster.member import Member
from leashed.cluster.messages import MOST_SPANS, Account, Epoch, Kept
from leashed.sync import Position, When

__all__ = ["AccountTending", "Progress", "account_of", "kept_of", "overdue"]

_MOST_HEARD = 256  # accounts that are kept, at most, where there is no round for long
_HEARING = 0.05  # seconds, at least, before a round from when what is heard is in it


class AccountTending:
    """Finds that out, as rounds go by.

    Args:
        member: what the master is heard by.
        left: what it begins with, of a process before it.
        resumed: where the run goes on from a checkpoint.
        total: batches of the whole run; None: endless.
        sums: whether trainers sum with each other.
        parts: of rounds until the whole vector has been in one.
        when: rounds take place.
        workers: worker threads.
        timeout: seconds for a round.
        within: where workers were in the checkpoint that the run goes on from, of iterations first, [n, 4]:
            gaps between rounds are as of these. None: they begin.
    """

    def __init__(
        self,
        member: Member,
        left: Position | None,
        resumed: Position | None,
        *,
        total: int | None,
        sums: bool,
        parts: int,
        when: When,
        workers: int,
        timeout: float,
        within: NDArray[np.float64] | None = None,
    ) -> None:
        self._member = member
        self._resumed = resumed
        self._total = total
        self._sums = sums
        self._parts = parts
        self._when = when
        self._workers = workers
        self._timeout = timeout
        self._before = 0 if within is None else int(within[:, 0].mean()) * workers
        self._progress = Progress(account_of(left), parts=parts)
        self._taken = 0
        self._alone = False  # in the ring that this trainer is in, or was in last
        self._in_step = time.monotonic()  # when nothing was trained since the newest round, last

    def position(self, native: _core.TrainerSync | None, told_end: bool) -> Position:
        """How far the run is, of which the parameters here are.

        Args:
            native: the core's part.
            told_end: whether all batches are complete.
        """
        # Heard before it is seen who is there: who comes later has nothing in it.
        run, account = self._member.welcome.run, self._member.account
        together = self._together(native)
        whole = not together or native is None or (native.left and native.broken < native.ended)
        if told_end and self._total is not None and whole:
            return Position(self._total, run=run)
        if together:
            account = self._progress.account
        if account is None:
            return self._resumed or Position(run=run)
        return Position(account.next, account.open, run)

    def follow(self, native: _core.TrainerSync, epoch: Epoch | None, batches: int) -> None:
        """To be told often how it stands.

        Args:
            native: the core's part.
            epoch: the newest whose ring is made here.
            batches: that this trainer has used.
        """
        counted = native.counters()
        self._together(native)  # to be known when it has left
        if self._sums and epoch is not None and native.settled >= epoch.number > self._taken:
            self._taken = epoch.number
            self._progress.begins_anew()
            if any(seat.id == self._member.id and seat.fresh for seat in epoch.members):
                # They are somebody else's.
                self._progress = Progress(None, batches, self._parts)
                self._member.keeps(None)
        if self._progress(batches, self._member.account, counted) and self._sums:
            self._member.keeps(kept_of(self._member.welcome.run, self._progress.account))
        if batches == self._progress.batches:
            self._in_step = time.monotonic()

    def unsynced(self, batches: int) -> int:
        """How many of them were used since the newest round."""
        return batches - self._progress.batches

    def overdue(self, batches: int) -> float:
        """For how many seconds this trainer has trained without a round that was due."""
        since = time.monotonic() - self._in_step
        unsynced = self.unsynced(batches)
        return overdue(
            self._when, self._workers, self._timeout, self._before + batches, unsynced, since
        )

    def _together(self, native: _core.TrainerSync | None) -> bool:
        """Whether what other trainers use comes to the parameters here by rounds alone; of who has
        left, whether it did.
        """
        epoch = self._member.epoch
        if native is not None and epoch is not None:
            ids = [seat.id for seat in epoch.members]
            if self._member.id in ids:  # and the round is over in which the others have left
                self._alone = len(ids) == 1 and native.settled >= epoch.number
        return self._sums and not self._alone


class Progress:
    """Of which account of the run parameters are that are summed with others: one that was heard
    before the newest round began, since of what others have used since then nothing is in them. In
    parts: before the newest so many did.

    Attributes:
        account: that; None: of none yet.
        batches: that this trainer had used when the newest round was seen.
    """

    def __init__(self, account: Account | None, batches: int = 0, parts: int = 1) -> None:
        self.account = account
        self.batches = batches
        self._parts = parts
        # How many rounds there were before those that were seen next, and when none of these had begun.
        self._rounds: list[tuple[float, float]] = []
        self._heard: list[tuple[float, Account]] = []  # newest last
        self._syncs: float | None = None
        self._seconds = 0.0

    def __call__(self, batches: int, account: Account | None, counted: Mapping[str, float]) -> bool:
        """To be told often; whether there was a round."""
        now, syncs, seconds = time.monotonic(), counted["syncs"], counted["seconds"]
        if account is not None and (not self._heard or self._heard[-1][1] is not account):
            self._heard.append((now, account))
            if len(self._heard) > _MOST_HEARD:  # an older one than might be is never wrong
                del self._heard[1 : _MOST_HEARD // 2 : 2]
        if self._syncs is None:
            self._syncs, self._seconds = syncs, seconds
        if syncs == self._syncs:
            return False
        self.batches = batches
        self._rounds.append((self._syncs, now - (seconds - self._seconds) - _HEARING))
        while len(self._rounds) > 1 and self._rounds[1][0] <= syncs - self._parts:
            del self._rounds[0]
        first, began = self._rounds[0]
        before = [each for at, each in self._heard if at <= began]
        if before and first <= syncs - self._parts:
            self.account = before[-1]
            del self._heard[: len(before) - 1]
        self._syncs, self._seconds = syncs, seconds
        return True

    def begins_anew(self) -> None:
        """The next round is of the first part."""
        self._rounds.clear()


def overdue(
    when: When, workers: int, timeout: float, batches: int, unsynced: int, seconds: float
) -> float:
    """For how many seconds a trainer has trained without a round; 0 where by then two, which may take
    ``timeout`` each, were not due.

    Args:
        when: rounds take place.
        workers: worker threads.
        timeout: seconds for a round.
        batches: trained so far, also before the run.
        unsynced: those since the newest round.
        seconds: since the first of these, or more.
    """
    gaps = [gap for start, gap in when.gaps.items() if start <= batches // workers]
    gap = gaps[-1] if gaps else 0
    steps, pause = (1, gap) if when.kind == "seconds" else (max(1, gap), 0)
    due = unsynced >= 2 * steps * workers and seconds >= 2 * (pause + timeout)
    return seconds if due else 0.0


def account_of(left: Position | None) -> Account | None:
    """As messages have it."""
    return None if left is None else Account(left.batches, [(a, b) for a, b in left.open])


def kept_of(run: str, account: Account | None) -> Kept | None:
    """What is told of it; None where it cannot be, and so counts as nothing."""
    if account is None or not run or len(account.open) > MOST_SPANS:
        return None
    return Kept(run, account.next, account.open)
