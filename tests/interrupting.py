"""Ctrl-C for tests that also hold where others keep the processors busy."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest


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


def require_an_early_end(work: Callable[[], object]) -> None:
    """That KeyboardInterrupt ends native work while it computes: measured by what it computes, and
    not by Python's raising it once the work is through.
    """
    began = time.process_time()
    work()
    whole = time.process_time() - began
    assert whole > 0.1, "too short to be interrupted within it"
    began = time.process_time()
    with pytest.raises(KeyboardInterrupt), interrupt_after(whole / 10):
        work()
    assert time.process_time() - began < 0.7 * whole


def wait_until_all_wait() -> None:
    """Returns when this process has computed nothing for a while: all its threads wait."""
    computed, quiet = -1.0, 0
    while quiet < 3:  # a starved process, too, computes nothing for a while
        quiet = quiet + 1 if time.process_time() - computed <= 0.02 else 0
        computed = time.process_time()
        time.sleep(0.3)
