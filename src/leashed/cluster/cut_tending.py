"""A member's part in cuts of the run: it comes to rest, and saves what it has to checkpoints."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path

import numpy as np

from leashed import _core
from leashed.cluster import checkpoints
from leashed.cluster.member import Member
from leashed.cluster.messages import OVER, REST, SAVED, STILL, Cut, Saved
from leashed.sync import Position

__all__ = ["ServerCuts", "TrainerCuts"]

_log = logging.getLogger(__name__)


class ServerCuts:
    """A server's: to be called with what the master says of them.

    Args:
        member: tells the master.
        run: the run's folder.
        begun: the checkpoint's folder that the run has begun with, which stays.
        save: writes what the server has to a folder, and tells which files there.
    """

    def __init__(
        self,
        member: Member,
        run: Path,
        begun: Path | None,
        save: Callable[[Path], list[Saved]],
    ) -> None:
        self._member = member
        self._run = run
        self._begun = begun
        self._save = save

    def __call__(self, cut: Cut) -> None:
        """Does what is to be done at that stage."""
        if cut.stage != SAVED:
            return
        try:
            saved = self._save(_cleared(self._run, cut, self._begun))
            own = {one.name.partition("/")[0] for one in saved}
            self._member.send_part(self._run, cut.number, sorted(own))
        except (OSError, ValueError) as error:
            _log.warning("nothing is saved of cut %d: %s", cut.number, str(error))
            self._member.cut(cut.number, STILL, failed=str(error))
        else:
            self._member.cut(cut.number, SAVED, saved)


class TrainerCuts:
    """A trainer's.

    Args:
        member: tells the master.
        name: of the trainer.
        run: the run's folder; None: nothing is saved.
        begun: as of ``ServerCuts``.
        workers: worker threads.
        leases: what workers take batches of.
        report: tells the master of batches that are used.
    """

    def __init__(
        self,
        member: Member,
        name: str,
        run: Path | None,
        begun: Path | None,
        workers: int,
        leases: _core.Leases,
        report: Callable[[], None],
    ) -> None:
        self._member = member
        self._name = name
        self._run = run
        self._begun = begun
        self._workers = workers
        self._leases = leases
        self._report = report
        self._cut: Cut | None = None
        self._reached = OVER
        self._done = 0  # the newest that was saved, or could not be

    @property
    def under_way(self) -> bool:
        """Whether there is one."""
        return self._cut is not None

    @property
    def wants(self) -> bool:
        """Whether what is trained is to be saved now."""
        cut = self._cut
        return cut is not None and cut.stage == SAVED and cut.number > self._done

    def told(self, cut: Cut, native: _core.TrainerSync | None) -> None:
        """What the master says of them."""
        if cut.stage == OVER:
            self.over(native)
            return
        if self._cut is None or cut.number != self._cut.number:
            self._reached = OVER
        self._cut = cut

    def over(self, native: _core.TrainerSync | None) -> None:
        """There is none."""
        if native is not None and self._cut is not None:
            native.hold(False)
        self._cut = None

    def tend(self, native: _core.TrainerSync | None, rows: _core.RemoteRows | None) -> None:
        """Tells the master where a stage is reached."""
        cut = self._cut
        if cut is None or self._reached >= cut.stage or cut.stage == SAVED:
            return
        if self._reached < REST:
            if self._leases.resting < self._workers:
                return
            self._report()  # what was used is told with it
        if cut.stage == STILL and native is not None:
            native.hold(True)
            if not native.at_rest:
                return
        if cut.stage == STILL and rows is not None and not rows.settled:
            return
        self._reached = cut.stage
        self._member.cut(cut.number, cut.stage)

    def save(self, put: Callable[[Path, Position], None], native: _core.TrainerSync | None) -> None:
        """Saves it: ``put`` writes what is trained to a file, with how far the run is."""
        cut = self._cut
        if cut is None or cut.stage != SAVED or cut.number == self._done:
            return
        self._done = cut.number
        try:
            if self._run is None:
                raise ValueError("this trainer has no folder of its run")
            folder = _cleared(self._run, cut, self._begun)
            folder.mkdir(parents=True, exist_ok=True)
            names = [f"{self._name}.safetensors"]
            put(folder / names[0], Position(cut.next, cut.open, self._member.welcome.run))
            beside = {} if native is None else {"states": native.states, "within": native.within}
            for name, values in beside.items():
                if (array := np.asarray(values)).size:
                    names.append(f"{self._name}.{name}")
                    checkpoints.put_array(folder / names[-1], array)
            saved = checkpoints.saved_of(folder, *names)
            self._member.send_part(self._run, cut.number, names)
        except (OSError, ValueError) as error:
            _log.warning("nothing is saved of cut %d: %s", cut.number, str(error))
            self._member.cut(cut.number, STILL, failed=str(error))
        else:
            self._reached = SAVED
            self._member.cut(cut.number, SAVED, saved)


def _cleared(run: Path, cut: Cut, begun: Path | None) -> Path:
    """The folder of a cut's checkpoint, and those are gone that are of no more use."""
    keep = [checkpoints.place(run, cut.whole)]
    if begun is not None:
        keep.append(begun)
    checkpoints.tidy(run, cut.number, keep)
    return checkpoints.place(run, cut.number)
