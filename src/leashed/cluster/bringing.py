"""What servers have saved in folders that the run's end does not see, brought to where that is: rows of embedding
servers to rank 0's, and all that policy servers leave to the master's (``led_bringing``).

Whoever has them connects to where the run's master was, as soon as that has ended and rank 0, or the master's
process, listens there in its place, and sends the files (``sent_files``), told whether all was saved.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import shutil
import socket
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from leashed.base.closing import Closing
from leashed.cluster import sent_files
from leashed.cluster.addressing import within
from leashed.cluster.children import saved
from leashed.cluster.opening import Key, Listener, Peer, connect
from leashed.cluster.supervisor import name_of
from leashed.files.folders import MANIFEST

__all__ = ["Bringing", "beside", "hand_over", "reach", "send"]

_ROLE, _PURPOSE, _HERE = "embedding-ps", "rows", "rank-0"
_LOOK = 0.05  # seconds


def beside(folder: Path) -> Path:
    """The file of parameters that a server leaves beside its folder of rows, if it leaves any."""
    return folder.with_suffix(".npz")


_log = logging.getLogger(__name__)


def send(folder: Path, index: int, run: str, address: str, key: Key, seconds: float) -> None:
    """Sends what an embedding server has saved in its folder to rank 0, once that listens.

    Args:
        folder: the server's.
        index: which server it is.
        run: the run's name.
        address: where rank 0 listens.
        key: what connections are opened with.
        seconds: for which rank 0 may be away, and say nothing.

    Raises:
        OSError: the server has saved nothing, rank 0 does not come, or cannot write the files.
    """
    names = [*sorted(path.name for path in folder.iterdir() if path.name != MANIFEST), MANIFEST]
    with reach(index, run, address, key, seconds) as link:
        hand_over(
            link, {name: folder / name for name in names}, seconds, saved=saved(folder).exists()
        )


def reach(
    index: int, run: str, address: str, key: Key, seconds: float, role: str = _ROLE
) -> socket.socket:
    """A connection to who listens where a run's master was, for a server of that role; others as of ``send``.

    Raises:
        OSError: nobody comes.
    """
    end = time.monotonic() + seconds
    while True:
        try:
            return connect(
                address,
                key,
                role=role,
                name=within(run, name_of(role, index)),
                purpose=_PURPOSE,
                deadline=max(end - time.monotonic(), _LOOK),
                expected=_HERE,
            )
        except OSError:
            if time.monotonic() >= end:
                raise
            time.sleep(_LOOK)


def hand_over(
    link: socket.socket, paths: Mapping[str, Path], seconds: float, *, saved: bool
) -> None:
    """Sends the files over it, by their names in the server's folder; ``saved``: whether they are all.

    Raises:
        OSError: nothing moves for so many seconds, or the other side cannot write them.
    """
    link.settimeout(seconds)
    sent_files.send(link, paths, {"saved": saved})


class Bringing(Closing):
    """The side of rank 0, or of the master's process: listens where the master was, from when that has ended.

    Args:
        host: the address to listen on.
        port: the master's.
        key: what connections are opened with.
        run: the run's name.
        wanted: where the files of which server are put.
        timeout: seconds for which a sender may say nothing.
        role: of the servers.
        saving: seconds in which one that has come is to have written what it sends. Default: ``timeout``.
        called: who this is, in words.
    """

    def __init__(
        self,
        host: str,
        port: int,
        key: Key,
        run: str,
        wanted: Mapping[int, Path],
        timeout: float,
        role: str = _ROLE,
        saving: float | None = None,
        called: str = "rank 0",
    ) -> None:
        self._wanted = {within(run, name_of(role, k)): folder for k, folder in wanted.items()}
        self._timeout = timeout
        self._role = role
        self._saving = timeout if saving is None else saving
        self._called = called
        self._closing = threading.Event()
        self._lock = threading.Lock()
        self._coming: set[str] = set()  # who sends, or has sent
        self._came: set[str] = set()  # who has
        self._heard = time.monotonic()  # when something has come last
        self._listener: Listener | None = None
        self._why = ""  # nobody listens
        self._thread = threading.Thread(
            target=self._listen, args=(host, port, key), name="leashed-bringing", daemon=True
        )
        self._thread.start()

    def wait(self, seconds: float) -> list[Path]:
        """Until all is there, while something comes, and for so long where nothing does; the folders that
        are not.
        """
        begun = time.monotonic()
        while missing := self.missing():
            coming = bool(self._coming - self._came)
            if not coming and time.monotonic() >= max(begun, self._heard) + seconds:
                if self._listener is None and self._why:
                    _log.warning("what others have saved could not be brought here: %s", self._why)
                break
            time.sleep(_LOOK)
        return missing

    def close(self) -> None:
        """Listens no more."""
        self._closing.set()
        self._thread.join()
        if self._listener is not None:
            self._listener.close()

    def missing(self) -> list[Path]:
        """The folders that are not there, or not wholly."""

        def there(name: str, folder: Path) -> bool:
            if name in self._coming:  # (One of its files may be in its place, and others not.)
                return name in self._came
            return folder.exists() or beside(folder).exists()

        return [folder for name, folder in self._wanted.items() if not there(name, folder)]

    def _listen(self, host: str, port: int, key: Key) -> None:
        while not self._closing.wait(_LOOK):
            try:
                self._listener = Listener(host, port, key, _HERE, self._accept)
            except OSError as error:
                self._why = str(error)
                if error.errno == errno.EADDRINUSE:
                    self._why = f"somebody else has port {port} since the master's end; give rendezvous another"
            else:
                return

    def _accept(self, link: socket.socket, peer: Peer) -> None:
        folder = self._wanted.get(peer.name)
        if (peer.role, peer.purpose) != (self._role, _PURPOSE) or folder is None:
            link.close()
            return
        with self._lock:
            twice = peer.name in self._coming
            self._coming.add(peer.name)
        if twice:
            _log.warning("%s at %s is refused: its rows come already", peer.name, peer.address)
            link.close()
            return
        threading.Thread(target=self._take, args=(link, peer, folder), daemon=True).start()

    def _take(self, link: socket.socket, peer: Peer, folder: Path) -> None:
        with link:
            try:
                link.settimeout(self._saving)
                told, files = sent_files.head(link)
                link.settimeout(self._timeout)
                _receive(link, told, files, folder, self._comes)
                why = ""
            except (OSError, ValueError, RecursionError) as error:
                _log.warning(
                    "the rows of %s at %s are not here: %s", peer.name, peer.address, str(error)
                )
                why = f"{self._called} does not write them to {folder}: {error}"
                with self._lock:  # it may try again
                    self._coming.discard(peer.name)
            with contextlib.suppress(OSError):
                sent_files.answer(link, why)
            if not why:  # (Who waits for it may end this process.)
                with self._lock:
                    self._came.add(peer.name)

    def _comes(self, _: int) -> None:
        self._heard = time.monotonic()


def _receive(
    link: socket.socket,
    told: Any,
    files: list[tuple[str, int]],
    folder: Path,
    comes: Callable[[int], None],
) -> None:
    """Puts into the folder, and beside it, what a sender has told, all of it or nothing; ``comes`` is called
    with each piece.
    """
    if not isinstance(told.get("saved"), bool) or any("/" in name for name, _ in files):
        raise ValueError("something else comes than rows")
    folder.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    sent_files.require_room(folder.parent, files)
    coming = folder.with_suffix(".coming")
    shutil.rmtree(coming, ignore_errors=True)
    coming.mkdir(mode=0o700)
    try:
        sent_files.receive(link, files, lambda name: (coming / name).open("wb"), comes)
        if told["saved"]:
            saved(folder).touch()
        with contextlib.suppress(FileNotFoundError):
            (coming / beside(folder).name).rename(beside(folder))
        if any(coming.iterdir()):
            coming.rename(folder)
        else:
            coming.rmdir()
    except BaseException:  # (a disk that is full has room again)
        shutil.rmtree(coming, ignore_errors=True)
        raise
