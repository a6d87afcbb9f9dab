"""What a rank starts beside its training: the master and servers, and who sees to them meanwhile."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from leashed.cluster.supervisor import Supervisor

__all__ = ["Children", "saved"]

_RESTARTS = 10
_LOOK = 0.05  # seconds


class Children:
    """Processes that run until ``end``; who dies is told at once.

    Args:
        home: their folder.
        command: what starts one.
        once: role and index of those that are not started again.
        again: of those that are, where they die.
    """

    def __init__(
        self,
        home: Path,
        command: Callable[[str, int], Sequence[str]],
        once: Iterable[tuple[str, int]],
        again: Iterable[tuple[str, int]],
    ) -> None:
        self._of = [Supervisor(once, command, home), Supervisor(again, command, home, _RESTARTS)]
        started: list[Supervisor] = []
        try:
            for each in self._of:
                started.append(each.__enter__())
        except BaseException:
            _stop(started)
            raise
        self._over = threading.Event()
        self._watcher = threading.Thread(target=self._watch, name="leashed-children", daemon=True)
        self._watcher.start()

    def running(self, role: str) -> bool:
        """Whether a process of this role runs."""
        return any(each.running(role) for each in self._of)

    def statuses(self, role: str) -> list[int]:
        """With what those of this role have ended for good."""
        return [status for each in self._of for status in each.statuses(role)]

    def why(self, name: str) -> str:
        """As of ``Supervisor``, of one that is not started again."""
        return self._of[0].why(name)

    @property
    def died(self) -> bool:
        """Whether one has."""
        return any(each.deaths for each in self._of)

    def end(self, grace: float) -> None:
        """Gives them so much time to end by themselves, and ends them then."""
        try:
            for each in self._of:
                each.wait(grace)
            self._over.set()
            self._watcher.join()
            for each in self._of:
                each.step()
        finally:
            self._over.set()
            _stop(self._of)

    def _watch(self) -> None:
        while not self._over.wait(_LOOK):
            for each in self._of:
                each.step()


def saved(folder: Path) -> Path:
    """What is beside an embedding server's folder once all is in it."""
    return folder.with_suffix(".saved")


def _stop(supervisors: Sequence[Supervisor]) -> None:
    if supervisors:
        try:
            supervisors[-1].__exit__(None, None, None)
        finally:
            _stop(supervisors[:-1])
