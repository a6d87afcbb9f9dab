"""A trainer's connections to the others of its run: each is made by a thread of its own."""

from __future__ import annotations

import logging
import socket
import threading
from collections.abc import Callable

from leashed.cluster.addressing import within
from leashed.cluster.opening import Key, connect

__all__ = ["Connecting"]

_MOST = 16  # threads that make connections

_log = logging.getLogger(__name__)


class Connecting:
    """Makes connections.

    Args:
        name: of this trainer, such as "trainer-3".
        run: which it is of.
        key: what a connection is opened with.
        timeout: seconds that one may take.
        closing: set where none is wanted any more.

    Attributes:
        run, timeout, closing: these.
    """

    def __init__(
        self, name: str, run: str, key: Key, timeout: float, closing: threading.Event
    ) -> None:
        self.run = run
        self.timeout = timeout
        self.closing = closing
        self._name = name
        self._key = key
        self._places = threading.BoundedSemaphore(_MOST)

    def connect(self, address: str, purpose: str, expected: str) -> socket.socket:
        """A connection to a process of the run, whose role is as expected.

        Raises:
            OSError: it is not reached, or is none such.
        """
        return connect(
            address,
            self._key,
            role="trainer",
            name=within(self.run, self._name),
            purpose=purpose,
            deadline=self.timeout,
            expected=expected,
        )

    def start(self, work: Callable[[], None]) -> bool:
        """Has a thread do it; False: not now, as too many are at work, or none can be started."""
        if not self._places.acquire(blocking=False):
            return False

        def do() -> None:
            try:
                work()
            finally:
                self._places.release()

        try:
            # No daemon: one that comes back from the core when the interpreter is gone would abort
            # the process. What it waits for has a deadline.
            threading.Thread(target=do, name="leashed-connecting", daemon=False).start()
        except RuntimeError as error:
            self._places.release()
            _log.warning("no thread to connect with: %s", str(error))
            return False
        return True
