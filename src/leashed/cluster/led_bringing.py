"""What policy servers leave at the end of a run whose master has another folder than they, as on machines of their
own: each connects to where the master was, saves, and sends it what it has saved (``bringing``).
"""

from __future__ import annotations

import logging
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from leashed.cluster import bringing
from leashed.cluster.led_rows import folder_of
from leashed.cluster.opening import Key
from leashed.cluster.serving import Place
from leashed.cluster.supervisor import name_of, read_report
from leashed.files.folders import MANIFEST

__all__ = ["ELSEWHERE", "Sending", "bring", "elsewhere"]

ELSEWHERE = "folder_elsewhere"
"""What a policy server reports of itself: whether it has another folder than the master."""

_ROLE = "policy-ps"
_LONGEST_SAVE = 600.0  # seconds

_log = logging.getLogger(__name__)


class Sending:
    """A policy server's side.

    Args:
        place: where it has its run.
        index: of the server.
        run: the run's name.
    """

    def __init__(self, place: Place, index: int, run: str) -> None:
        self._place = place
        self._index = index
        self._run = run
        self._link: socket.socket | None = None
        there = read_report(place.folder)
        self._away = there is None or there["run"] != run
        self._address = place.master if isinstance(place.master, str) else place.master()

    def counters(self) -> dict[str, float]:
        """``ELSEWHERE``."""
        return {ELSEWHERE: float(self._away)}

    def begin(self) -> None:
        """The run is over: connects, so that the files are waited for while they are written."""
        if not self._away or self._link is not None:
            return
        place = self._place
        try:
            self._link = bringing.reach(
                self._index, self._run, self._address, place.key, place.grace, _ROLE
            )
        except OSError as error:
            _log.warning("who was the master is not reached: %s", str(error))

    def end(self) -> None:
        """They are written: sends them; where they are not sent says where they are, and what to do."""
        if not self._away:
            return
        folder = folder_of(self._place.folder, self._index)
        paths = _saved(folder)
        try:
            if self._link is None:
                raise ConnectionError("the run's master does not take it")
            with self._link:
                bringing.hand_over(self._link, paths, self._place.grace, saved=False)
        except OSError as error:
            if not paths:
                return
            there = [one for one in (folder, bringing.beside(folder)) if one.exists()]
            _log.warning(
                "what this server has left is not with the run's master: %s; it is here, in %s: copy that "
                "to the folder of the master's run, and there: leashed cluster report",
                str(error),
                " and ".join(map(str, there)),
            )


def _saved(folder: Path) -> dict[str, Path]:
    """The files that a server has left, by their names in its folder, those that count last."""
    inside = sorted(folder.iterdir()) if folder.is_dir() else []
    last = [folder / MANIFEST, bringing.beside(folder)]
    each = [*(one for one in inside if one not in last), *(one for one in last if one.exists())]
    return {one.name: one for one in each}


def elsewhere(report: Mapping[str, Any]) -> dict[int, Mapping[str, Any]]:
    """The policy servers of a run that have had other folders than the master, by their index, as the report has
    the last of each.
    """
    return {
        member["index"]: member
        for member in report["members"]
        if member["role"] == _ROLE and member["counters"].get(ELSEWHERE)
    }


def bring(
    report: Mapping[str, Any],
    folder: Path,
    address: tuple[str, int],
    key: Key,
    timeout: float,
    seconds: float,
) -> None:
    """For the master's process, once the run is over: takes what policy servers elsewhere leave into its folder.
    What does not come is told.

    Args:
        report: the run's, of its end.
        folder: the master's.
        address: where it listened.
        key: the run's.
        timeout: seconds for which who sends may say nothing.
        seconds: within which they are to come.
    """
    wanted = {
        index: folder_of(folder, index)
        for index, member in elsewhere(report).items()
        if member["gone"] is None
    }
    if not wanted:
        return
    with bringing.Bringing(
        *address, key, report["run"], wanted, timeout, _ROLE, _LONGEST_SAVE, "the run's master"
    ) as brought:
        try:
            brought.wait(seconds)
        finally:  # (Who waits may be told to end.)
            missing = brought.missing()
            for index, folder_there in wanted.items():
                if folder_there in missing:
                    _log.warning("%s", _not_here(index, report, folder))


def not_here(report: Mapping[str, Any], folder: Path) -> str | None:
    """Whose parameters are in another folder than that of the run's master, and what is to be done; None:
    nobody's.
    """
    each = [
        _not_here(index, report, folder)
        for index in elsewhere(report)
        if not bringing.beside(folder_of(folder, index)).exists()
    ]
    return "; ".join(each) or None


def _not_here(index: int, report: Mapping[str, Any], folder: Path) -> str:
    name, host = name_of(_ROLE, index), elsewhere(report)[index]["address"].rpartition(":")[0]
    return (
        f"what {name} has left has not come: it is at {host}, in its folder of the run, if it lived to write it; "
        f"copy {name}.npz, and the folder {name}, where there are tables, from there to {folder}, and then: "
        "leashed cluster report"
    )
