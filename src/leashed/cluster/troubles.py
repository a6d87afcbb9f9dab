"""What keeps a trainer from being in step with the others, told at once."""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from leashed.base.warning import warn

__all__ = ["TRAINERS", "Troubles"]

TRAINERS = "trainers"
"""The name of the trouble that is told without waiting whether it lasts."""

_log = logging.getLogger(__name__)


class Troubles:
    """Says what is amiss, each time, and when that is over.

    Args:
        name: of this trainer.
        timeout: seconds for which something must have been amiss.
        tell: called with all that is by now, in words; empty: nothing.
    """

    def __init__(self, name: str, timeout: float, tell: Callable[[str], None]) -> None:
        self._name = name
        self._timeout = timeout
        self._tell = tell
        self._now: dict[str, _Trouble] = {}  # by what is amiss
        self._outages: Counter[str] = Counter()  # that were told, likewise
        self._told = ""

    def look(self, amiss: Mapping[str, str]) -> None:
        """To be told often: what is, in words by name."""
        now = time.monotonic()
        self._now = {
            name: self._now.get(name, _Trouble(now)).becomes(why, now)
            for name, why in amiss.items()
        }
        lasting = {
            name: each
            for name, each in self._now.items()
            if name == TRAINERS or now - each.since >= self._timeout
        }
        for name, each in lasting.items():
            # (What gives way to another reason, as where it ends, is no news yet.)
            if each.told and (each.told == each.why or now - each.changed < self._timeout):
                continue
            self._outages[name] += not each.told
            each.told = each.why
            # Python says the same text but once.
            again = f" (time {self._outages[name]})" if self._outages[name] > 1 else ""
            try:
                warn(f"{self._name} trains, and is not in step with all others{again}: {each.why}")
            except RuntimeWarning as text:
                # It is made an error, which is not to be one of this thread, that ends it. (Of an
                # error that is logged only the words: who keeps its record would keep what was
                # there where it arose, connections too.)
                _log.warning("%s", str(text))
        if not lasting and self._told:
            _log.info("%s is in step with the others again", self._name)
        if (trouble := "; ".join(each.why for each in lasting.values())) != self._told:
            self._told = trouble
            self._tell(trouble)


@dataclass
class _Trouble:
    """What keeps a trainer from being in step.

    Attributes:
        since: when that began.
        why: in words, by now.
        changed: since when it has been so.
        told: of which words; empty: it was not.
    """

    since: float
    why: str = ""
    changed: float = 0.0
    told: str = ""

    def becomes(self, why: str, now: float) -> _Trouble:
        """It goes on, for this reason."""
        if why != self.why:
            self.why, self.changed = why, now
        return self
