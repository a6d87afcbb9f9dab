"""Ctrl-C for tests that also hold where others keep the processors busy."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def interrupt_after(seconds: float) -> Iterator[None]:
    """KeyboardInterrupt, once, when this process has computed for so long.

    A timer of the wall's clock may ring before the work has begun, or behind its end; this one
    rings at the same place of the work however slowly that goes.
    """
    before = signal.signal(signal.SIGVTALRM, signal.default_int_handler)
    signal.setitimer(signal.ITIMER_VIRTUAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)


def wait_until_all_wait() -> None:
    """Returns when this process has computed nothing for a while: all its threads wait."""
    computed = -1.0
    while time.process_time() - computed > 0.02:
        computed = time.process_time()
        time.sleep(0.5)
