"""Removes the name of a shared vector once nobody uses it, however its users ended.

A program of its own, which ``leashed.engine.shared`` starts apart from every terminal, session and parent:
``python -I -S _janitor.py FILE INODE``. It sleeps until the kernel grants it the lock that every
participant holds a share of.
"""

import fcntl
import os
import sys


def main(path: str, inode: int) -> None:
    """Wait and remove."""
    if os.fork():
        return  # whoever has started this waits no longer
    try:
        file = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
        if os.fstat(file).st_ino != inode:
            return  # gone already, the name is another's
        fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)  # one janitor is enough
    except OSError:
        return
    fcntl.flock(file, fcntl.LOCK_EX)
    if os.fstat(file).st_nlink:
        os.unlink(path)  # noqa: PTH108 (pathlib would be most of this program's memory)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
