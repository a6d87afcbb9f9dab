"""A policy server's part in cuts of the run: it holds what its mode grants until all that workers have has
come, and of several servers the others have heard it, saves its state, and grants again once the cut is over;
the others have carried it out by then, and save theirs.
"""

from __future__ import annotations

from collections.abc import Callable

from leashed import _core
from leashed.cluster.cut_tending import ServerCuts
from leashed.cluster.member import Member
from leashed.cluster.messages import OVER, REST, SAVED, STILL, Cut

__all__ = ["LOOK", "LedCuts", "PartCuts"]

LOOK = 0.002
"""Seconds between two looks while one is under way."""


class LedCuts:
    """To be called with what the master says of cuts.

    Args:
        member: tells the master.
        server: that leads the mode.
        report: tells the master how many batches are done.
        saves: called once the server is at rest, saves what it has.
    """

    def __init__(
        self,
        member: Member,
        server: _core.PolicyServer,
        report: Callable[[], object],
        saves: ServerCuts,
    ) -> None:
        self._member = member
        self._server = server
        self._report = report
        self._saves = saves
        self._number = 0
        self._rests = False

    @property
    def under_way(self) -> bool:
        """Whether there is one."""
        return self._number > 0

    def __call__(self, cut: Cut) -> None:
        """Does what is to be done at that stage."""
        if cut.stage == OVER:
            self.over()
            return
        if cut.number != self._number:
            self._number, self._rests = cut.number, False
            self._server.hold(True)
        self.tend()
        if cut.stage == SAVED and self._rests:
            self._report()
            self._saves(cut)

    def over(self) -> None:
        """There is none, as far as is known: a master that was started again tells of one anew."""
        self._number = 0
        self._server.hold(False)

    def tend(self) -> None:
        """Tells the master once the server is at rest."""
        if not self.under_way or self._rests or not self._server.at_rest:
            return
        self._rests = True
        self._report()
        self._member.cut(self._number, STILL)


class PartCuts:
    """Of a server behind the first: to be called with what the master says of cuts.

    Args:
        member: tells the master.
        server: that follows the first.
        saves: called once both are at rest, saves what it has.
    """

    def __init__(self, member: Member, server: _core.PartServer, saves: ServerCuts) -> None:
        self._member = member
        self._server = server
        self._saves = saves
        self._number = 0
        self._stage = OVER
        self._rests = False

    @property
    def under_way(self) -> bool:
        """Whether there is one."""
        return self._number > 0

    def __call__(self, cut: Cut) -> None:
        """Does what is to be done at that stage. The first rests before anybody is to be still."""
        if cut.stage == OVER:
            self.over()
            return
        if cut.number != self._number:
            self._number, self._rests = cut.number, False
        self._stage = cut.stage
        if cut.stage == REST:
            self._member.cut(cut.number, REST)
        self.tend()
        if cut.stage == SAVED and self._rests:
            self._saves(cut)

    def over(self) -> None:
        """There is none."""
        self._number, self._stage = 0, OVER

    def tend(self) -> None:
        """Tells the master once the server has carried out all that the first has told it."""
        if self._stage < STILL or self._rests or not self._server.at_rest:
            return
        self._rests = True
        self._member.cut(self._number, STILL)
