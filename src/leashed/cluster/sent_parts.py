"""Parts of checkpoints that members have written where the master does not see them, sent to it before its
manifest makes them one: those files that it has not got with the newest whole one.
"""

from __future__ import annotations

import contextlib
import logging
import os
import socket
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import IO, Any

from leashed.base import atomic
from leashed.cluster import sent_files
from leashed.cluster.checkpoints import place, tidy
from leashed.cluster.opening import Peer
from leashed.cluster.roles import ROLES
from leashed.files import folders

__all__ = ["PURPOSE", "Parts", "send"]

PURPOSE = "checkpoint"
"""Of connections that are for one part of a checkpoint."""

_log = logging.getLogger(__name__)


def send(
    link: socket.socket,
    run: Path,
    number: int,
    own: Sequence[str],
    wait: Callable[[], None],
    lives: Callable[[], bool],
) -> None:
    """Has the master have a member's part of that cut, by files of it or folders; the last two are as of
    ``sent_files.send``.

    Raises:
        OSError: it has not got it; the message says why.
    """
    folder = place(run, number)
    paths = [path for name in own for path in _below(folder / name)]
    modified = [(str(path.relative_to(folder)), path.stat().st_mtime_ns) for path in paths]
    told = {"cut": number, "modified": modified}
    sent_files.send(link, {name: folder / name for name, _ in modified}, told, wait, lives)


def _below(path: Path) -> list[Path]:
    """The files of a folder, its manifest last; of a file itself."""
    if not path.is_dir():
        return [path]
    return sorted(path.iterdir(), key=lambda each: (each.name == folders.MANIFEST, each.name))


class Parts:
    """The master's side, a thread for each connection.

    Args:
        run: the folder of the run's checkpoints.
        timeout: seconds for which a sender may say nothing.
        begun: the checkpoint's folder that the run has begun with, which stays.
    """

    def __init__(self, run: Path, timeout: float, begun: Path | None = None) -> None:
        self._run = run
        self._timeout = timeout
        self._begun = [] if begun is None else [begun]
        self._open: dict[str, socket.socket] = {}  # by who sends
        self._coming: dict[socket.socket, int] = {}  # bytes that each is still to send
        self._closed = False
        self._lock = threading.Lock()

    def take(self, connection: socket.socket, peer: Peer, number: int, whole: int) -> None:
        """Takes in what lacks of a member's part of that cut, which is under way; 0: none is. ``whole``: the
        cut of the newest checkpoint, whose files are taken where they are the same; what there is of others
        goes, to make room.
        """
        role, _, index = peer.name.rpartition("-")
        saves = role in ROLES and ROLES[role].saves and index.isdecimal()
        with self._lock:
            good = number > 0 and saves and role == peer.role and not self._closed
            if good:
                if before := self._open.get(peer.name):  # it has given that up
                    _cut_off(before)
                self._open[peer.name] = connection
        if not good:
            _log.warning("files of %r are refused: there is no cut of which it has any", peer.name)
            connection.close()
            return
        threading.Thread(
            target=self._take,
            args=(connection, peer.name, number, whole),
            name="leashed-part",
            daemon=True,
        ).start()

    def over(self) -> None:
        """That cut is: who still sends is cut off, and goes on with its work."""
        with self._lock:
            for connection in self._open.values():
                _cut_off(connection)
            self._open.clear()

    def close(self) -> None:
        """The run is over."""
        with self._lock:
            self._closed = True
        self.over()

    def _take(self, connection: socket.socket, who: str, number: int, whole: int) -> None:
        connection.settimeout(self._timeout)
        try:
            self._receive(connection, who, number, whole)
            why = ""
        except (OSError, ValueError, TypeError, KeyError, RecursionError) as error:
            why = f"the master does not have its files: {error}"
            if self._open.get(who) is connection:  # else it was cut off
                _log.warning("of %s in cut %d: %s", who, number, why)
        with contextlib.suppress(OSError):
            sent_files.answer(connection, why)
        with self._lock:
            if self._open.get(who) is connection:
                del self._open[who]
            connection.close()

    def _receive(self, connection: socket.socket, who: str, number: int, whole: int) -> None:
        told, files = sent_files.head(connection)
        if told["cut"] != number:
            raise ValueError("that cut is over")
        if not all(name.startswith((f"{who}.", f"{who}/")) for name, _ in files):
            raise ValueError("they are not its own")
        modified = _times(told["modified"])
        before, folder = place(self._run, whole), place(self._run, number)
        tidy(self._run, number, [before, *self._begun])
        lacking = []
        for name, size in files:
            path, about = folder / name, (size, modified[name])
            if _about(path) == about:
                continue
            path.parent.mkdir(parents=True, exist_ok=True)
            if _about(before / name) == about:
                path.unlink(missing_ok=True)
                folders.link(before / name, path)
            else:
                lacking.append((name, size))
        with self._room(connection, lacking):
            sent_files.receive(
                connection,
                lacking,
                lambda name: _opened(folder / name, modified[name]),
                partial(self._comes, connection),
            )

    @contextlib.contextmanager
    def _room(self, connection: socket.socket, files: Sequence[tuple[str, int]]) -> Iterator[None]:
        """OSError where there is none for them beside what others send."""
        with self._lock:
            sent_files.require_room(self._run, files, sum(self._coming.values()))
            self._coming[connection] = sum(size for _, size in files)
        try:
            yield
        finally:
            with self._lock:
                del self._coming[connection]

    def _comes(self, connection: socket.socket, count: int) -> None:
        with self._lock:
            self._coming[connection] -= count


def _times(told: Any) -> Mapping[str, int]:
    """When files were written, in nanoseconds, by name.

    Raises:
        ValueError: something else is told.
    """
    times = dict(told)
    if not all(type(each) is int and 0 <= each < 1 << 63 for each in times.values()):
        raise ValueError("something else comes than when files were written")
    return times


@contextlib.contextmanager
def _opened(path: Path, modified: int) -> Iterator[IO[bytes]]:
    """A file that is to be written, of that time."""
    with atomic.opened(path) as file:
        yield file
    os.utime(path, ns=(modified, modified))


def _about(path: Path) -> tuple[int, int] | None:
    """Bytes and time of a file, by which it is the same as the sender's; None: there is none."""
    try:
        about = path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return None
    return about.st_size, about.st_mtime_ns


def _cut_off(connection: socket.socket) -> None:
    with contextlib.suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)
