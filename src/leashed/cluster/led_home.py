"""Parameters that workers have who sum among themselves are to be at their policy server whenever that is kept:
they are asked for, and no round begins until they are taken.
"""

from __future__ import annotations

import time

from leashed import _core

__all__ = ["Homing"]

_LOOK = 0.002  # seconds between two looks while nothing else is done


class Homing:
    """Has them come, and go again.

    Args:
        server: where they are to be.

    Attributes:
        waits: whether they were asked for, and have not come yet.
    """

    def __init__(self, server: _core.PolicyServer) -> None:
        self._server = server
        self._looked = 0.0
        self.waits = False

    def come(self) -> bool:
        """They are to come. Whether they are there, and stay."""
        self._server.stay_home(True)  # (Who takes them for a cut meanwhile has let them go.)
        self.waits = not self._server.is_home
        self._looked = time.monotonic()
        return not self.waits

    def still(self, seconds: float) -> bool:
        """Whether they are waited for, and ``come`` was called less than so long ago."""
        return self.waits and time.monotonic() < self._looked + seconds and not self._server.is_home

    def await_(self, seconds: float) -> None:
        """Waits for them, but no longer than that, nor for a mode that can go on no more."""
        end = time.monotonic() + seconds
        while not self.come() and time.monotonic() < end and not self._server.standing()["failure"]:
            time.sleep(_LOOK)

    def go(self) -> None:
        """They are taken: rounds may begin."""
        self.waits = False
        self._server.stay_home(False)
