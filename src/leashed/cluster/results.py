"""What trainers have come to, as files of the run's folder that a manifest names.

A trainer writes its own, ``results/trainer-0-DIGEST.f32``: the parameters, float32, little-endian, and
behind them the statistics that the model normalises by, if it has any. Then it tells the master how long
that is, and its digest. Where the master's folder is another machine's the file is not there: the master
asks for its bytes, and writes it. ``results/manifest.json`` names the last one of each trainer with its
size and digest, and is renamed into its place: what it does not name is none.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import re
import socket
import struct
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from leashed.base import atomic
from leashed.cluster.opening import Peer
from leashed.cluster.receiving import exactly
from leashed.cluster.roles import ROLES
from leashed.cluster.state import Terms
from leashed.files import folders

__all__ = ["FOLDER", "Result", "Results", "named"]

FOLDER = "results"

_HEAD = struct.Struct("<Q32s")  # bytes of the file, their SHA-256
_WANTED, _TAKEN = b"\0", b"\1"
_PIECE = 1 << 20  # bytes that are received at once
_AT_A_TIME = 256  # that come in
_LONGEST = 1 << 35  # bytes, where the terms do not say how many
_ROLES = [name for name, role in ROLES.items() if role.results]
_NAME = re.compile(rf"({'|'.join(_ROLES)})-\d{{1,5}}")
_UNFINISHED = re.compile(rf"\.{_NAME.pattern}-[0-9a-f]+\.f32\.\d+\.\d+")

_log = logging.getLogger(__name__)


class Result:
    """What a trainer has come to, in its memory.

    Args:
        name: the trainer's, such as ``trainer-0``.
        arrays: float32, at least one value; they are not to change as long as this one is used.

    Attributes:
        file: its name.
        told: of it: ``file``, ``bytes``, ``sha256``.
    """

    def __init__(self, name: str, *arrays: NDArray[np.float32]) -> None:
        self._parts = [
            memoryview(np.ascontiguousarray(each, "<f4").reshape(-1).data).cast("B")
            for each in arrays
            if each.size
        ]
        if not self._parts:
            raise ValueError("arrays have no values, and a result has at least one")
        digest = hashlib.sha256()
        for part in self._parts:
            digest.update(part)
        self._digest = digest.digest()
        self.told = _told(name, sum(map(len, self._parts)), self._digest)
        self.file: str = self.told["file"]

    def put(self, run: Path) -> None:
        """Writes the file to a run's folder. OSError where that cannot be."""
        (run / FOLDER).mkdir(parents=True, exist_ok=True)
        atomic.write(run / FOLDER / self.file, self._parts)

    def send(self, connection: socket.socket, wait: Callable[[], None]) -> bool:
        """Hands it to a master, which has the file or is sent its bytes: whether it has been named.

        Args:
            connection: to the master, for this.
            wait: returns when the master has answered, or cut off.
        """
        _send(connection, _HEAD.pack(self.told["bytes"], self._digest))
        wait()
        word = connection.recv(1)
        if word == _WANTED:
            for part in self._parts:
                _send(connection, part)
            wait()
            word = connection.recv(1)
        return word == _TAKEN


class Results:
    """The master's side: takes results in, each on a thread of its own, and names them.

    Args:
        run: the run's folder.
        name: the run's name. What is there of another run is none.
        terms: of the run.

    Raises:
        OSError: the manifest cannot be read.
        ValueError: it is damaged.
    """

    def __init__(self, run: Path, name: str, terms: Terms) -> None:
        self._folder = run / FOLDER
        self._run = name
        self._terms = terms
        self._named = _named(self._folder, name)
        self._open: set[socket.socket] = set()
        self._closed = False
        self._lock = threading.Lock()  # of what is open
        self._naming = threading.Lock()  # of what is named, while the disk is waited for
        for left in self._folder.glob(".*"):
            if _UNFINISHED.fullmatch(left.name):
                left.unlink(missing_ok=True)

    @property
    def names(self) -> list[str]:
        """Of the trainers that have one."""
        return sorted(self._named)

    def take(self, connection: socket.socket, peer: Peer) -> None:
        """Begin to take one in; the connection is this one's from now on."""
        why = ""
        if not _NAME.fullmatch(peer.name):
            why = f"it is no {' or '.join(_ROLES)}, and has none"
        with self._lock:
            if len(self._open) >= _AT_A_TIME:
                why = f"more than {_AT_A_TIME} come in at a time"
            elif not why and not self._closed:
                self._open.add(connection)
        if connection not in self._open:
            _log.warning("the result of %r is refused: %s", peer.name, why or "the run is over")
            connection.close()
            return
        threading.Thread(
            target=self._receive, args=(connection, peer.name), name="leashed-result", daemon=True
        ).start()

    def put(self, name: str, told: dict[str, Any]) -> None:
        """Names a file that is in the folder, in place of what that trainer had, which goes.

        Raises:
            OSError: the manifest cannot be written; then what it had stays.
        """
        with self._naming:
            named = {**self._named, name: told}
            folders.put_manifest(
                self._folder,
                {"format": folders.RESULTS, "version": 1, "run": self._run, "results": named},
            )
            self._named = named
            for path in self._folder.glob(f"{name}-*.f32"):
                if path.name != told["file"]:
                    path.unlink(missing_ok=True)

    def close(self) -> None:
        """Cut off those that are still coming in."""
        with self._lock:
            self._closed = True
            for connection in self._open:
                with contextlib.suppress(OSError):
                    connection.shutdown(socket.SHUT_RDWR)

    def _receive(self, connection: socket.socket, name: str) -> None:
        try:
            connection.settimeout(self._terms.timeout)
            size, digest = _HEAD.unpack(exactly(connection, _HEAD.size))
            self._check(size)
            told = _told(name, size, digest)
            path = self._folder / told["file"]
            if not _is_whole(path, told):
                connection.sendall(_WANTED)
                self._folder.mkdir(parents=True, exist_ok=True)
                _write(connection, path, size, digest)
            self.put(name, told)
            connection.sendall(_TAKEN)
        except (OSError, ValueError) as error:
            _log.warning("the result of %s is refused: %s", name, str(error))
        finally:
            with self._lock:
                self._open.discard(connection)
            connection.close()

    def _check(self, size: int) -> None:
        """ValueError where a result of this run does not have so many bytes."""
        terms = self._terms
        if terms.parameters is None:
            fits = 0 < size <= _LONGEST and size % 4 == 0
        else:
            fits = size in (4 * terms.parameters, 4 * (terms.parameters + terms.statistics))
        if not fits:
            raise ValueError(
                f"it has {size / 4:g} parameters, and not {terms.parameters or 'that many'}"
            )


def named(run: Path, name: str) -> dict[str, Path]:
    """The files of what trainers have handed in, by their names.

    Args:
        run: the run's folder.
        name: the run's name. What is there of another run is none.

    Raises:
        FileNotFoundError: one that the manifest names is missing.
        ValueError: one is not what the manifest says, or that is damaged.
    """
    folder, found = run / FOLDER, {}
    for trainer, told in _named(folder, name).items():
        found[trainer] = folder / told["file"]
        folders.require_whole(found[trainer], told)
    return found


def _named(folder: Path, run: str) -> dict[str, dict[str, Any]]:
    """What the manifest says; nothing where there is none, or of another run."""
    try:
        manifest = folders.manifest_of(folder, folders.RESULTS)
    except FileNotFoundError:
        return {}
    return dict(manifest["results"]) if manifest["run"] == run else {}


def _told(name: str, size: int, digest: bytes) -> dict[str, Any]:
    """What the manifest says of a file."""
    sha256 = digest.hex()
    return {"file": f"{name}-{sha256[:16]}.f32", "bytes": size, "sha256": sha256}


def _is_whole(path: Path, told: dict[str, Any]) -> bool:
    try:
        folders.require_whole(path, told)
    except (FileNotFoundError, ValueError):
        return False
    return True


def _send(connection: socket.socket, data: bytes | memoryview) -> None:
    view = memoryview(data)
    while view:  # (sendall has one deadline for all of it)
        view = view[connection.send(view) :]


def _write(connection: socket.socket, path: Path, size: int, digest: bytes) -> None:
    """Into a file what comes; ValueError where it is not what was said."""
    left, found = size, hashlib.sha256()
    with atomic.opened(path) as file:
        while left:
            data = exactly(connection, min(left, _PIECE))
            left -= len(data)
            found.update(data)
            file.write(data)
        if found.digest() != digest:
            raise ValueError("its digest is another")
