"""What a rank starts beside its training: the master and servers, and who sees to them meanwhile."""

from __future__ import annotations

import threading
import time
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
        self._over, self._ended = threading.Event(), threading.Event()
        self._stepping = threading.Lock()
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

    def gone(self, role: str, words: str) -> str | None:
        """Why one of this role, of those that are not started again, will not come any more, in ``words``, such
        as "policy server"; None: all may, or have done what they were to, or there is to be none.
        """
        once = self._of[0]
        name = next((name for name, status in once.ended(role).items() if status), None)
        if name is None:
            return None
        who = f"{words} {name.rpartition('-')[2]}" if once.count(role) > 1 else f"the {words}"
        how = next((d.how for d in once.deaths if d.name == name), "as it was told to")
        return f"{who} has ended {how}{once.why(name)}"

    @property
    def died(self) -> bool:
        """Whether one has."""
        return any(each.deaths for each in self._of)

    def end(self, grace: float, after: str | None = None) -> None:
        """Gives them so much time to end by themselves, and ends them then. ``after``: first waits for as
        long as one of that role runs, which others may still need, and none fails.
        """
        try:
            before = self._failures(after)
            while after and self.running(after) and self._failures(after) == before:
                if not self._watcher.is_alive():
                    break
                time.sleep(_LOOK)
            for each in self._of:
                each.wait(grace)
        finally:
            with self._stepping:
                self._over.set()
            try:
                for each in self._of:
                    each.step()
            finally:
                _stop(self._of)
                self._ended.set()
                self._watcher.join()

    def _failures(self, role: str | None) -> int:
        deaths = [one for each in self._of for one in each.deaths]
        return sum(one.status > 0 and one.name.startswith(str(role)) for one in deaths)

    def _watch(self) -> None:
        while not self._over.wait(_LOOK):
            with self._stepping:
                for each in self._of if not self._over.is_set() else ():
                    each.step()
        self._ended.wait()  # whom it has started again ends with this thread (supervisor.tie)


def saved(folder: Path) -> Path:
    """What is beside an embedding server's folder once all is in it."""
    return folder.with_suffix(".saved")


def _stop(supervisors: Sequence[Supervisor]) -> None:
    if supervisors:
        try:
            supervisors[-1].__exit__(None, None, None)
        finally:
            _stop(supervisors[:-1])
