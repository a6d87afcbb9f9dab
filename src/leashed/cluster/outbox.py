"""What a master has decided and not done yet."""

from __future__ import annotations

from leashed.cluster.messages import Beat
from leashed.cluster.state import Change
from leashed.cluster.switchboard import Close, Output, Send

__all__ = ["Outbox"]


class Outbox:
    """Changes go to the disk in groups: those that are decided while one is written are the next. What
    is to be sent waits, in order, for the changes before it, since it may tell of them. Beats tell of
    nothing, and wait for no disk.

    A value: who drives it writes each ``group``, says when it is ``written``, and carries out what
    ``put`` and ``written`` give it.
    """

    def __init__(self) -> None:
        self._changes: list[Change] = []
        self._waiting: list[Send | Close] = []  # for these changes
        self._written: list[Send | Close] | None = None  # waits for the group that is written now

    def put(self, output: Output) -> list[Send | Close]:
        """Something is decided; what of it is to be carried out at once."""
        if self._written is None and not self.due and not output.changes:
            return output.actions
        beats: list[Send | Close] = []
        for action in output.actions:
            beat = isinstance(action, Send) and isinstance(action.message, Beat)
            (beats if beat else self._waiting).append(action)
        self._changes += output.changes
        return beats

    @property
    def due(self) -> bool:
        """Whether there is something to be written."""
        return bool(self._changes)

    def group(self) -> list[Change]:
        """What is to be written next; nothing, where there is nothing. None is being written."""
        if self._changes:
            self._written, self._waiting = self._waiting, []
        changes, self._changes = self._changes, []
        return changes

    def written(self) -> list[Send | Close]:
        """The group is on the disk; what is to be carried out now."""
        actions, self._written = self._written or [], None
        if not self._changes:
            actions += self._waiting
            self._waiting = []
        return actions
