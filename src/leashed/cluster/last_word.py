"""What a trainer says at its end: its last word, and its result, which the master is to have."""

from __future__ import annotations

import logging
import math
import time

import numpy as np
from numpy.typing import NDArray

from leashed.base.warning import warn
from leashed.cluster.member import Member
from leashed.cluster.results import Result
from leashed.cluster.trainer_place import TrainerPlace
from leashed.models._running import Running

__all__ = ["LastWord"]

_LOOK = 0.1  # seconds between two looks whether the master has confirmed it
_AGAIN = 0.2  # seconds before the result is sent again

_log = logging.getLogger(__name__)


class LastWord:
    """A trainer's.

    Args:
        name: the trainer's, such as ``trainer-0``.
        place: its place in the run.
        member: its side of the connection to the master.
        holds: whether it has what comes out though it has trained no batch: rows that servers hold.

    Attributes:
        cut_short: why the run ended before its batches and this trainer's training did; None: it did not.
        lost: whether the master has not heard of this training's end.
    """

    def __init__(
        self, name: str, place: TrainerPlace, member: Member, *, holds: bool = False
    ) -> None:
        self._name = name
        self._holds = holds
        self._place = place
        self._member = member
        self.cut_short: str | None = None
        self.lost = False

    def say(
        self, counted: dict[str, float], parameters: NDArray[np.float32], statistics: Running | None
    ) -> dict[str, float]:
        """Says it, and hands the parameters in, unless they are not finite.

        Args:
            counted: what was, by name; numbers that are not finite are left out.
            parameters: float32 [d].
            statistics: running ones, which follow the parameters; None: there are none.

        Returns:
            All that was said.
        """
        if statistics is not None:
            counted["statistics_batches"] = float(statistics.batches)
            counted["statistics_near_zero"] = float(statistics.near_zero)
        summary = {name: value for name, value in counted.items() if math.isfinite(value)}
        # (Who came when all was done has nothing of its own, and maybe gave its result before.)
        trained = self._holds or summary["batches_used"] or summary.get("updates")
        finite = bool(np.isfinite(parameters).all())
        summary["crashed"] = float(not finite or summary.get("crashed", 0.0) > 0)
        result = None
        if trained and finite:
            behind = () if statistics is None else (statistics.values,)
            result = Result(self._name, parameters, *behind)
        summary["handed_in"] = float(result is not None)
        summary["cut_short"] = float(self.cut_short is not None)
        if self._member.state == "lost" and not self.lost:
            self._lose("the master is away")
        if not self.lost:
            self.hand_in(result, summary)
        return summary

    def hand_in(self, result: Result | None, summary: dict[str, float]) -> None:
        """The result, if there is one that is wanted, and behind it the last word."""
        if result is not None and self._place.results:
            self.put(result)
            try:
                if not self.send(result):
                    summary["handed_in"] = 0.0
                    why = "the run was over before its parameters were handed in"
                    self.cut_short = self.cut_short or why
            except OSError as error:
                self._lose(f"its result cannot be handed in: {error}")
                return
        self._member.finish(summary)
        while not self._member.wait(_LOOK):
            if self._member.state == "lost":
                self._lose("the master has not confirmed that this one ended")
                return

    def put(self, result: Result) -> None:
        """Writes it, for the master to find; which is sent it where it does not."""
        if self._place.folder is None:
            return
        try:
            result.put(self._place.folder)
        except OSError as error:
            _log.warning(
                "the result goes to the master alone, as it cannot be written: %s", str(error)
            )

    def send(self, result: Result) -> bool:
        """Whether the master has it; not where the run is over. A master that is away is waited for, as
        long as ``grace`` says; then OSError.
        """
        end, told = math.inf, ""  # as of the first attempt that fails, however long it took
        while self._member.state != "over":  # then nobody takes it any more
            try:
                self._member.send_result(result)
            except OSError as error:
                end = min(end, time.monotonic() + self._place.grace)
                if time.monotonic() >= end:
                    raise
                if told != (told := str(error)):
                    _log.info("the result is not out yet: %s", str(error))
                time.sleep(_AGAIN)
            else:
                return True
        return False

    def remark(self, summary: dict[str, float]) -> None:
        """Warns of what ``summary`` has, which was said: that it trained alone, was cut short, or was
        synchronised without some of the parameters.
        """
        # (Who goes on from a checkpoint of which all batches are used has its parameters, and none of its own.)
        alone = summary["batches_used"] and summary.get("syncs") == 0
        if alone and self._place.trainers > 1:
            warn(
                f"{self._name} was never synchronised with the other trainers: these parameters are of "
                "its own batches alone; the report of the run says so too"
            )
        if self.cut_short is not None:
            warn(
                f"the run ended before its training did ({self.cut_short}); these are the parameters "
                "that this trainer has reached"
            )
        partial, rounds = summary.get("sync_partial", 0.0), summary.get("syncs", 0.0)
        if 2 * partial > rounds:
            warn(
                f"{partial:,.0f} of {rounds:,.0f} synchronisations came to their end, after timeout="
                f"{self._place.timeout:g} s, without some of the parameters, of which some wait for "
                f"{summary['sync_lag']:,.0f} by now; a longer timeout, compression, or parts of them "
                "in turn (parts=) are for slow links"
            )

    def _lose(self, why: str) -> None:
        self.lost = True
        self.cut_short = self.cut_short or why
