"""What a mode is told of itself, by the schedule that it was given (``Switching``'s ``at``)."""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING

from leashed.cluster.commanding import Commanded
from leashed.training.led_mode import LedMode

if TYPE_CHECKING:
    from leashed import _core

__all__ = ["Commands"]


class Commands:
    """What the mode is told of itself, each once its time has come since the first grant.

    Args:
        led: the mode.
        commanded: tells it.

    Attributes:
        left: what is still to be told.
        told: how many were.
    """

    def __init__(self, led: LedMode, commanded: Commanded) -> None:
        self._commanded = commanded
        self._before = led.passed
        self.told = 0
        self.left = [one for one in sorted(led.commands) if one[0] > led.passed or not led.passed]
        self._began = math.nan

    def goes_on(self, passed: float, told: int, count: int, last: int) -> None:
        """The server was started again: so many seconds have passed, so many of these were told, and with
        others ``count``, the last of them ``last``.
        """
        self._before, self.told = passed, told
        del self.left[:told]
        self._commanded.goes_on(count, last)

    @property
    def passed(self) -> float:
        """Seconds since the first grant, with those before the run went on."""
        return self._before + (0.0 if math.isnan(self._began) else time.monotonic() - self._began)

    @property
    def reached(self) -> float:
        """Likewise, for who goes on from there, and is told what comes behind that: before all that is left,
        also where it has come due since the last look.
        """
        return min([self.passed, *(math.nextafter(seconds, 0.0) for seconds, _ in self.left)])

    def tell(self, server: _core.PolicyServer, *, began: bool) -> None:
        """Whatever is due; ``began``: whether there has been a grant."""
        if math.isnan(self._began) and began:
            self._began = time.monotonic()
        while began and self.left and self.passed >= self.left[0][0]:
            _, argument = self.left.pop(0)
            self._commanded.tell(server, argument, "its own schedule", again=True)
            self.told += 1
