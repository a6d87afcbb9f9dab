"""How a process of a run ends: what it says of that, and its exit status."""

from __future__ import annotations

import errno
import logging
import os
import sys
from collections.abc import Callable

from leashed.cluster.opening import Refused
from leashed.cluster.supervisor import AGAIN, INTERRUPTED, OVER, WRONG

__all__ = ["LINE", "OverError", "explain", "logged", "status_of"]

LINE = logging.Formatter("{asctime}.{msecs:03.0f} {levelname} {message}", "%F %T", style="{")
"""What a line of a log is like."""

_MISSING = (FileNotFoundError, NotADirectoryError, IsADirectoryError, PermissionError, Refused)
_SHORT = (errno.EMFILE, errno.ENFILE, errno.ENOMEM)

_log = logging.getLogger(__name__)


class OverError(ConnectionError):
    """The run is over, and this process of it is not to be started again."""


def explain(error: BaseException) -> str:
    """An exception in a line: the file or address and the system's reason, or else its message."""
    if not isinstance(error, OSError) or not error.strerror:
        return str(error)
    return error.strerror if error.filename is None else f"{error.filename}: {error.strerror}"


def logged(name: str, work: Callable[[], int]) -> int:
    """Do it, and log the beginning and the end; with a traceback where nobody could expect that end."""
    _log.info("%s begins", name)
    try:
        found = work()
    except KeyboardInterrupt:
        _log.info("%s was told to end", name)
        raise
    except (ConnectionError, TimeoutError) as error:
        _log.error("%s has ended: %s", name, explain(error))
        raise
    except BaseException:
        _log.exception("%s failed", name)
        raise
    _log.info("%s has ended", name)
    return found


def status_of(name: str, work: Callable[[], int]) -> int:
    """Do it; the exit status. What goes wrong is told in a line on standard error."""
    try:
        return work()
    except KeyboardInterrupt:
        return INTERRUPTED
    except OverError as error:
        found, why = OVER, explain(error)
    except (ValueError, TypeError, ImportError, *_MISSING) as error:
        found, why = AGAIN if _is_short(error) else WRONG, explain(error)
    except OSError as error:
        found, why = AGAIN, explain(error)
    except MemoryError as error:
        found, why = AGAIN, f"out of memory: {error}"
    print(f"leashed: error: {name}: {why}", file=sys.stderr)
    return found


def _is_short(error: BaseException | None) -> bool:
    """Whether the system had no descriptors or no memory, whatever that became on its way."""
    while error is not None:
        if isinstance(error, OSError) and error.errno in _SHORT:
            return True
        # (Of a library that cannot be loaded there is only the text.)
        if isinstance(error, ImportError) and any(os.strerror(n) in str(error) for n in _SHORT):
            return True
        error = error.__cause__ or error.__context__
    return False
