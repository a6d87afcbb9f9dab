"""Who is on which of the master's connections, and what is to go out on them, after which changes."""

from __future__ import annotations

from typing import NamedTuple

from leashed.cluster.messages import FromMaster
from leashed.cluster.state import Change, State

__all__ = ["Close", "Line", "Output", "Send", "Switchboard"]


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


class Line:
    """A connection that is open: since when, and whose."""

    def __init__(self, since: float) -> None:
        self.since = since
        self.member = 0


class Switchboard:
    """A value: nothing is sent here.

    Args:
        state: of the run; ``record`` changes it.

    Attributes:
        lines: the open ones, by their number.
        of: members' connections.
        changes: not taken yet.
        actions: likewise.
    """

    def __init__(self, state: State) -> None:
        self._state = state
        self.lines: dict[int, Line] = {}
        self.of: dict[int, int] = {}
        self.changes: list[Change] = []
        self.actions: list[Send | Close] = []

    def take(self) -> Output:
        """What is to be done now, once."""
        output = Output(self.changes, self.actions)
        self.changes, self.actions = [], []
        return output

    def record(self, change: Change) -> None:
        """It has happened."""
        self._state.apply(change)
        self.changes.append(change)

    def send(self, connection: int, message: FromMaster) -> None:
        """To whoever is there."""
        self.actions.append(Send(connection, message))

    def tell(self, member: int, message: FromMaster) -> None:
        """To a member, where it has a connection."""
        if connection := self.of.get(member):
            self.send(connection, message)

    def tell_trainers(self, message: FromMaster) -> None:
        """To all that may be in an epoch."""
        for member in self._state.membership.ring():
            self.tell(member.id, message)

    def close(self, connection: int) -> int:
        """It is to be closed; whose it was, as of ``forget``."""
        self.actions.append(Close(connection))
        return self.forget(connection)

    def forget(self, connection: int) -> int:
        """It is closed; the member whose it was, or 0: none's."""
        line = self.lines.pop(connection, None)
        if line and self.of.get(line.member) == connection:
            del self.of[line.member]
            return line.member
        return 0
