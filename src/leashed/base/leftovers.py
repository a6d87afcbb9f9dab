"""Temporary folders, and what is left of those whose processes were killed.

In each lies a file on which whoever uses the folder has a lock, of which the kernel tells when that is gone:
a process that is killed can clean up nothing. A folder without that file is nobody's to remove.
"""

from __future__ import annotations

import contextlib
import fcntl
import logging
import os
import shutil
import stat
import tempfile
from pathlib import Path

__all__ = ["PREFIX", "hold", "leave", "make", "remove_stale"]

PREFIX = "leashed-"
"""Of all their names."""

_LOCK = "in-use"

_held: dict[Path, int] = {}  # by this process: the descriptors with the locks

_log = logging.getLogger(__name__)


def make() -> Path:
    """A new one, for this user alone, which this process uses. What others have left is removed.

    Raises:
        OSError: none can be made.
    """
    remove_stale()
    while not hold(folder := Path(tempfile.mkdtemp(prefix=PREFIX))):
        pass
    return folder


def hold(folder: Path) -> bool:
    """Use a folder, together with others or not, until this process ends or ``leave`` is called; False:
    it has just been removed as nobody's, and is to be made anew.
    """
    path = folder / _LOCK
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    except FileNotFoundError:
        return False
    fcntl.flock(descriptor, fcntl.LOCK_SH)  # waits for who removes it
    if not _is(path, descriptor):
        os.close(descriptor)
        return False
    before = _held.pop(folder, None)
    _held[folder] = descriptor
    if before is not None:
        os.close(before)
    return True


def leave(folder: Path) -> None:
    """Use it no more. It goes if nothing else is in it; what else is there is kept, for somebody to see."""
    (folder / _LOCK).unlink(missing_ok=True)
    with contextlib.suppress(OSError):
        folder.rmdir()
    if (descriptor := _held.pop(folder, None)) is not None:
        os.close(descriptor)


def remove_stale() -> list[Path]:
    """Remove this user's folders that nobody uses any more, since those who did were killed.

    Returns:
        Those that were removed.
    """
    removed = [
        folder
        for folder in sorted(Path(tempfile.gettempdir()).glob(f"{PREFIX}*"))
        if _remove(folder)
    ]
    for folder in removed:
        _log.info("removed %s, left by a process that was killed", folder)
    return removed


def _remove(folder: Path) -> bool:
    """Whether it was to be removed, and was."""
    path = folder / _LOCK
    try:
        about = folder.lstat()
        if not stat.S_ISDIR(about.st_mode) or about.st_uid != os.geteuid():
            return False
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if not _is(path, descriptor):
            return False
        for each in folder.iterdir():
            if each.name == _LOCK:
                continue
            if each.is_dir() and not each.is_symlink():
                shutil.rmtree(each)
            else:
                each.unlink()
        # Last, so that who comes meanwhile waits for the lock, and sees that it is of no file any more.
        path.unlink()
        folder.rmdir()
    except OSError:  # such as that others use it
        return False
    finally:
        os.close(descriptor)
    return True


def _is(path: Path, descriptor: int) -> bool:
    try:
        return os.path.samestat(path.lstat(), os.fstat(descriptor))
    except FileNotFoundError:
        return False
