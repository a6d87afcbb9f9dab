"""Files that one process sends to another, over a connection that is for nothing else.

sender → receiver   length, JSON: ``files``, names and sizes in their order, and what else is told of them
receiver → sender   length, JSON: the names of those that it lacks; a text: why it takes none
sender → receiver   those files, one after the other
receiver → sender   length, JSON: a text: why they are not written; empty: they are

Names are paths with "/" from a folder that each side knows by itself.
"""

from __future__ import annotations

import errno
import json
import os
import shutil
import socket
import struct
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO

from leashed.cluster.receiving import exactly

__all__ = ["answer", "head", "receive", "require_room", "send"]

_LENGTH = struct.Struct("<I")
_MOST = 1 << 24  # bytes of what is not a file
_PIECE = 1 << 20


def send(
    link: socket.socket,
    paths: Mapping[str, Path],
    told: Mapping[str, Any],
    wait: Callable[[], None] = lambda: None,
    lives: Callable[[], bool] = lambda: False,
) -> None:
    """Sends those of the files that the other side lacks; returns when it has written them.

    Args:
        link: to the other side; its timeout is for each piece.
        paths: of the files, by the names that they are sent under.
        told: of them.
        wait: returns when the other side has answered, where that may take long.
        lives: whether the other side does, though nothing moves: its disk may be slow.

    Raises:
        OSError: a file cannot be read, or is shorter by now; the connection breaks; or the other side does
            not take them, as the message tells.
    """
    sizes = {name: path.stat().st_size for name, path in paths.items()}
    _put(link, {**told, "files": list(sizes.items())})
    wait()
    lacked = _get(link)
    if isinstance(lacked, str):
        raise OSError(lacked)
    for name in lacked:
        _send(link, paths[name], sizes[name], lives)
    wait()
    if why := _get(link):
        raise OSError(why)


def _send(link: socket.socket, path: Path, size: int, lives: Callable[[], bool]) -> None:
    with path.open("rb") as file:
        while (at := file.tell()) < size:
            try:
                if link.sendfile(file, at, size - at) < size - at:
                    raise OSError(errno.EIO, "has become shorter", str(path))
            except TimeoutError:  # (the file is at what is still to be sent)
                if not lives():
                    raise


def head(link: socket.socket) -> tuple[Any, list[tuple[str, int]]]:
    """What is told of files that are to come, and their names, which lead to nowhere else, and sizes.

    Raises:
        ValueError: something else comes.
        OSError: the connection breaks.
    """
    told = _get(link)
    try:
        files = [(name, size) for name, size in told["files"]]
        good = all(_leads_below(name) and type(size) is int and size >= 0 for name, size in files)
    except (TypeError, KeyError, ValueError):
        good = False
    if not good:
        raise ValueError("something else comes than files")
    return told, files


def require_room(folder: Path, files: Sequence[tuple[str, int]], beside: int = 0) -> None:
    """OSError where the disk of a folder has no room for them, beside so many bytes that others send."""
    if sum(size for _, size in files) + beside > _free(folder):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(folder))


def receive(
    link: socket.socket,
    files: Sequence[tuple[str, int]],
    opened: Callable[[str], Any],
    comes: Callable[[int], None],
) -> None:
    """Has these sent, and written.

    Args:
        link: to the sender, behind ``head``.
        files: names and sizes of those that are lacking.
        opened: a context of the file of that name, to write to.
        comes: called with the bytes of each piece.

    Raises:
        OSError: the connection breaks, or a file cannot be written.
    """
    _put(link, [name for name, _ in files])
    for name, size in files:
        with opened(name) as file:
            _copy(link, file, size, comes)


def answer(link: socket.socket, why: str) -> None:
    """Tells the sender, who is read until it has heard it, why files are not written; empty: they are."""
    _put(link, why)
    link.shutdown(socket.SHUT_WR)
    while link.recv(_PIECE):  # else what was said might not arrive
        pass


def _copy(link: socket.socket, file: BinaryIO, size: int, comes: Callable[[int], None]) -> None:
    for first in range(0, size, _PIECE):
        comes(file.write(exactly(link, min(_PIECE, size - first))))


def _put(link: socket.socket, told: Any) -> None:
    data = json.dumps(told).encode()
    link.sendall(_LENGTH.pack(len(data)) + data)


def _get(link: socket.socket) -> Any:
    (length,) = _LENGTH.unpack(exactly(link, _LENGTH.size))
    if length > _MOST:
        raise ValueError("something else comes than files")
    return json.loads(exactly(link, length))


def _free(folder: Path) -> int:
    return shutil.disk_usage(folder).free


def _leads_below(name: Any) -> bool:
    """Whether it is a path's plain text, which leads to below where it begins."""
    if not isinstance(name, str) or "\0" in name:
        return False
    parts = PurePosixPath(name).parts
    return bool(parts) and "/".join(parts) == name and parts[0] != "/" and ".." not in parts
