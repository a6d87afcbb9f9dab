"""A trainer's place in the ring: made anew with each epoch, and the master told what has become of it."""

from __future__ import annotations

import logging
import socket
import threading
import time
from collections.abc import Callable, Sequence
from functools import partial

from leashed import _core
from leashed.cluster import collectives
from leashed.cluster.addressing import is_local, within
from leashed.cluster.connecting import Connecting
from leashed.cluster.meeting import Collective, Meeting, all_gather
from leashed.cluster.member import Member
from leashed.cluster.messages import Epoch
from leashed.cluster.opening import Peer, parse_address
from leashed.cluster.sum_tending import SUM

__all__ = ["RING", "Callers", "RingTending"]

RING = "ring/"
"""What a connection in a ring is for, with the epoch's number behind it."""

_EDGE = 0.3  # seconds in which a new ring is expected where one has ended
_CLOSING = 3  # times the deadline: a library meets, connects, and makes its own of that

_log = logging.getLogger(__name__)


class Callers:
    """Connections that other trainers have made to this one, until its ring takes them.

    Args:
        closing: set where none is wanted any more.

    Attributes:
        sums: takes those of workers that sum with this one's; None: there are none.
    """

    def __init__(self, closing: threading.Event) -> None:
        self._closing = closing
        self._changed = threading.Condition()
        self._arrived: dict[tuple[int, str], socket.socket] = {}
        self._epoch: Epoch | None = None
        self.sums: Callable[[socket.socket, Peer], None] | None = None

    def accept(self, link: socket.socket, peer: Peer) -> None:
        """One has come."""
        if self.sums is not None and peer.purpose.startswith(SUM):
            self.sums(link, peer)
            return
        number = peer.purpose.removeprefix(RING)
        if not peer.purpose.startswith(RING) or not number.isdigit() or self._closing.is_set():
            link.close()
            return
        with self._changed:
            if before := self._arrived.pop((int(number), peer.name), None):
                before.close()
            self._arrived[int(number), peer.name] = link
            self._changed.notify_all()

    def change_over(self, epoch: Epoch) -> None:
        """Those of older epochs are wanted no more, and nobody is to wait for any."""
        with self._changed:
            self._epoch = epoch
            for key in [key for key in self._arrived if key[0] < epoch.number]:
                self._arrived.pop(key).close()
            self._changed.notify_all()

    def wait(self, epoch: Epoch, name: str, timeout: float) -> socket.socket:
        """That of a trainer for an epoch; TimeoutError where it does not come in so many seconds, or is
        wanted no more.
        """
        key = (epoch.number, name)
        with self._changed:
            self._changed.wait_for(
                lambda: key in self._arrived or self._epoch is not epoch or self._closing.is_set(),
                timeout,
            )
            if key not in self._arrived:
                raise TimeoutError(f"{name} has not called")
            return self._arrived.pop(key)

    def wake(self) -> None:
        """Has those who wait see that it is closing."""
        with self._changed:
            self._changed.notify_all()

    def close(self) -> None:
        """Closes those that nobody has taken."""
        with self._changed:
            while self._arrived:
                self._arrived.popitem()[1].close()


class RingTending:
    """Tends it.

    Args:
        connecting: makes connections.
        callers: those that others make.
        member: what the master hears this trainer by.
        backend: what trainers sum with.
        transport: as of ``Cluster``.

    Attributes:
        epoch: the newest; None: none yet, or there are sync servers instead.
    """

    def __init__(
        self, connecting: Connecting, callers: Callers, member: Member, backend: str, transport: str
    ) -> None:
        self.epoch: Epoch | None = None
        self._connecting = connecting
        self._callers = callers
        self._member = member
        self._backend = backend
        self._transport = transport
        self._forming: Epoch | None = None  # whose ring is to be made
        self._meeting = threading.Lock()  # while somebody else's collectives are made
        self._why: str | None = None  # it is not made
        self._ended_at: float | None = None
        self._broken = 0
        self._settled = 0

    def change_over(self, epoch: Epoch) -> None:
        """There is a new epoch."""
        self.epoch = epoch
        self._ended_at = None
        self._callers.change_over(epoch)
        seated = any(seat.id == self._member.id for seat in epoch.members)
        self._forming = epoch if seated else None

    def tend(self, native: _core.TrainerSync) -> bool:
        """Has the ring made, and tells the master what has become of it; whether it has ended."""
        epoch = self.epoch
        if epoch is None:
            return False
        if (form := self._forming) is not None and self._connecting.start(
            partial(self._form, native, form)
        ):
            self._forming = None
        if native.settled >= epoch.number and self._settled < epoch.number:
            self._settled = epoch.number
            self._member.settled(epoch.number)
        return bool(native.ended >= epoch.number)

    def ended(self, native: _core.TrainerSync) -> None:
        """It has, and there is more to be trained."""
        epoch = self.epoch
        # Who left together goes on in the ring that the master makes then.
        if epoch is None or native.broken < epoch.number or self._broken >= epoch.number:
            return
        now = time.monotonic()
        self._ended_at = self._ended_at or now
        if now >= self._ended_at + _EDGE:
            self._broken = epoch.number
            self._member.broken(epoch.number)

    def amiss(self, native: _core.TrainerSync) -> dict[str, str]:
        """That it is not made and why, in words, by name."""
        epoch = self._member.epoch
        if epoch is None or len(epoch.members) < 2 or native.settled >= epoch.number:
            return {}
        why = self._why or "a round has not come to its end"
        return {"ring": f"the ring of {len(epoch.members)} trainers is not made: {why}"}

    def close(self) -> None:
        """A library that connects cannot be called off, and is not to do so when all has ended."""
        if self._meeting.acquire(timeout=_CLOSING * self._connecting.timeout):
            self._meeting.release()

    def _form(self, native: _core.TrainerSync, epoch: Epoch) -> None:
        """Makes the connections of a ring, and hands them to the core."""
        seats = epoch.members
        rank = [seat.id for seat in seats].index(self._member.id)
        fresh = [seat.fresh for seat in seats]
        if len(seats) == 1:
            native.form(epoch.number, 0, fresh, -1, -1, False)
            return
        direct = self._backend == collectives.DIRECT
        ahead, behind = [(rank + 1) % len(seats)], [(rank - 1) % len(seats)]
        if direct:
            ahead, behind = list(range(rank + 1, len(seats))), list(range(rank))
        forward: list[socket.socket] = []
        backward: list[socket.socket] = []
        try:
            self._connect(epoch, ahead, behind, forward, backward)
        except Exception as error:  # noqa: BLE001 (whatever it is, the others are to know)
            for link in forward + backward:
                link.close()
            self._failed(epoch, error)
            return
        checked = not all(is_local(seats[other].address) for other in (*ahead, *behind))
        try:
            if (backend := collectives.BACKENDS[self._backend]) is not None:
                with backward[0], forward[0], self._meeting:
                    collective = self._meet(epoch, rank, backend, backward[0], forward[0])
                    native.form_over(epoch.number, rank, fresh, collective)
                return
            before, behind_this = (
                [link.detach() for link in links] for links in (backward, forward)
            )
            if direct:
                links = [*before, -1, *behind_this]
                native.form_direct(epoch.number, rank, fresh, links, checked, self._transport)
            else:
                native.form(
                    epoch.number, rank, fresh, before[0], behind_this[0], checked, self._transport
                )
        except Exception as error:  # noqa: BLE001
            self._failed(epoch, error)

    def _connect(
        self,
        epoch: Epoch,
        ahead: Sequence[int],
        behind: Sequence[int],
        forward: list[socket.socket],
        backward: list[socket.socket],
    ) -> None:
        """Calls the members of these ranks, and waits until those call: for each as long as for any, since
        those before it may have taken long.
        """
        for other in ahead:
            address = epoch.members[other].address
            forward.append(self._connecting.connect(address, f"{RING}{epoch.number}", "trainer"))
        for other in behind:
            name = within(self._connecting.run, f"trainer-{epoch.members[other].index}")
            backward.append(self._callers.wait(epoch, name, self._connecting.timeout))

    def _meet(
        self,
        epoch: Epoch,
        rank: int,
        backend: collectives.Backend,
        behind: socket.socket,
        ahead: socket.socket,
    ) -> Collective:
        """Makes somebody else's collectives, with all members of a ring."""
        seats, timeout = epoch.members, self._connecting.timeout
        if self._over(epoch):
            raise ConnectionError("it is wanted no more")
        gather = partial(all_gather, behind, ahead, rank=rank, members=len(seats), timeout=timeout)
        host, _ = parse_address(seats[rank].address)
        return backend.meet(Meeting(rank, len(seats), epoch.number, host, timeout, gather))

    def _failed(self, epoch: Epoch, error: Exception) -> None:
        if not self._over(epoch):
            self._why = str(error)
            _log.info("ring %d: %s", epoch.number, self._why)
            self._member.broken(epoch.number)

    def _over(self, epoch: Epoch) -> bool:
        """Whether its ring is wanted no more."""
        return self.epoch is not epoch or self._connecting.closing.is_set()
