"""The key that all processes of a run hold, and its file."""

from __future__ import annotations

import errno
import os
import secrets
import shlex
import stat
from dataclasses import dataclass, field

__all__ = ["Key", "make_key", "read_key"]

_SECRET = 32
_LONGEST_SECRET = 1024


@dataclass(frozen=True)
class Key:
    """What both sides must hold.

    Attributes:
        secret: at least 32 bytes.
        given: it comes from a file that the user named, and not one made for this run; only then
            may a ``Listener`` be reached from other machines.
    """

    secret: bytes = field(repr=False)
    given: bool


def make_key(path: str | os.PathLike[str]) -> Key:
    """Write a new key of 32 random bytes to a file that only this user can read.

    Raises:
        FileExistsError: there is a file; a key is never overwritten.
        OSError: it cannot be written.
    """
    secret = secrets.token_bytes(_SECRET)
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    except FileExistsError:
        raise FileExistsError(
            errno.EEXIST, "there is a file already, and a key is never overwritten", str(path)
        ) from None
    with os.fdopen(descriptor, "wb") as file:
        file.write(secret)
        file.flush()
        os.fsync(descriptor)
    return Key(secret, given=False)


def read_key(path: str | os.PathLike[str], *, given: bool = True) -> Key:
    """The key in a file.

    Args:
        path: the file.
        given: the user named it; False for one made for this run alone.

    Raises:
        PermissionError: others can read or write it, or it is another user's.
        ValueError: it is shorter than 32 bytes, longer than 1,024, or no file.
        OSError: it cannot be read.
    """
    name = str(path)
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except FileNotFoundError:
        make = f"(umask 077; head -c 32 /dev/urandom > {shlex.quote(name)})"
        raise FileNotFoundError(
            errno.ENOENT, f"there is no key; make one, and copy it to each machine: {make}", name
        ) from None
    try:
        about = os.fstat(descriptor)
        if not stat.S_ISREG(about.st_mode):
            raise ValueError(f"key file {name!r} must be a regular file")
        if about.st_uid != os.geteuid():
            raise PermissionError(
                errno.EACCES,
                f"key file of user {about.st_uid}, not of this one ({os.geteuid()}); copy it to a "
                "file of your own",
                name,
            )
        if about.st_mode & 0o077:
            raise PermissionError(
                errno.EACCES,
                f"key file that others can read or write (mode {about.st_mode & 0o777:04o}); "
                f"make a new one, or, if nobody has seen it: chmod 600 {name}",
                name,
            )
        secret = os.read(descriptor, _LONGEST_SECRET + 1)
    finally:
        os.close(descriptor)
    if not _SECRET <= len(secret) <= _LONGEST_SECRET:
        raise ValueError(
            f"key file {name!r} must hold {_SECRET} to {_LONGEST_SECRET} bytes, got "
            f"{'more' if len(secret) > _LONGEST_SECRET else len(secret)}; make one with make_key()"
        )
    return Key(secret, given)
