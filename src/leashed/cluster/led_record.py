"""The record of a run by a mode, which its policy server writes: of several the first, for all of them. At its
end the others are asked what they have of all that it has heard: their part, which pushes they had no part of,
and digests of their rows.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Protocol

from leashed import _core
from leashed.cluster.led_rows import LedRows
from leashed.training.led_mode import LedMode

__all__ = ["Serves", "end", "rest", "told_of"]

_PATIENCE = 30.0  # seconds for digests of all rows
_LOOK = 0.02

_log = logging.getLogger(__name__)


class Serves(Protocol):
    """What a policy server has of it."""

    def quiet(self, f: Callable[[], None], /) -> None:
        """Calls it while nobody is served."""


def end(server: _core.PolicyServer, led: LedMode) -> None:
    """The record ends here, if there is one; the log tells why it ended before."""
    if led.record is None:
        return
    why: str | None = None

    def ended() -> bool:
        nonlocal why
        why = server.end_record(waits=True)
        return why is not None

    try:
        if not _until(ended):
            why = server.end_record(waits=False)
    except KeyboardInterrupt:
        _log.warning("the record in %s has no end: this was told to end before", led.record[0])
        raise
    if why:
        _log.warning("the record in %s ends before the run: %s", led.record[0], why)


def rest(server: _core.PartServer, led: LedMode, tend: Callable[[], None]) -> None:
    """Of one behind the first: waits until that has what its record needs, if there is one; ``tend`` is
    called meanwhile.
    """

    def known() -> bool:
        tend()
        return server.end_known

    if led.record is not None and not _until(known):
        _log.warning(
            "policy server 0 has not said for %g s that it has what the record in %s needs of this one: its log "
            "tells whether the record has an end",
            _PATIENCE,
            led.record[0],
        )


def told_of(rows: LedRows, server: Serves, led: LedMode) -> dict[str, float]:
    """What is told of rows; of a recorded run while nobody is served, since no id gets a row in a part of a
    table that is being counted.
    """
    if led.record is None:
        return rows.report()
    found: list[dict[str, float]] = []
    server.quiet(lambda: found.append(rows.report()))
    return found[0]


def _until(there: Callable[[], bool]) -> bool:
    given_up = time.monotonic() + _PATIENCE
    while not there():
        if time.monotonic() >= given_up:
            return False
        time.sleep(_LOOK)
    return True
