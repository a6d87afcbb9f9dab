"""What the first of several policy servers leaves to the process that is started in its place: what the only one
of a run does (``led_keeping``), and a journal of all that its mode has heard, written before it acts. The others
go on meanwhile by what it had decided, so nothing of that is undone: the next process decides it once more. What
was pushed since the snapshot is lost for this server's part of the parameters, and its rows, as it is for those
behind it (``led_part_keeping``).
"""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from leashed import _core
from leashed.cluster.led_keeping import LedKeeping, Snapshot, tell_lost
from leashed.cluster.led_rows import LedRows
from leashed.cluster.messages import Kept
from leashed.cluster.serving import Place
from leashed.training.led_mode import Journal, LedMode

if TYPE_CHECKING:
    from leashed.cluster.led_commands import Commands

__all__ = ["FirstKeeping"]

_SYNC = 1.0  # seconds, at most, that a power cut may cost of the journal

_log = logging.getLogger(__name__)


class FirstKeeping(LedKeeping):
    """Of the first of several; else as ``LedKeeping``."""

    def __init__(self, led: LedMode, place: Place, rows: LedRows | None) -> None:
        super().__init__(led, place, rows)
        self._files = self._folder / "policy-ps-0.journal"
        self._synced = 0.0
        self._warned = False

    def offer(self) -> Kept | None:
        """How many batches the master was told that are done: all these are, by the journal."""
        kept = super().offer()
        return None if kept is None else Kept(kept.run, self._ever.done or 0)

    def begin(self, run: str) -> Snapshot | None:
        """As ``ServerKeeping.begin``; where there is no snapshot yet, by the journal alone."""
        if not self._ever.of(run):
            self._remove()
        return super().begin(run)

    def journal(self, then: Snapshot | None) -> Journal | None:
        """Where it is, for a server that goes on from that snapshot."""
        if self._ever.done is None and not any(path.stat().st_size for path in self._journals()):
            # (Who died before it was a server may have left none, and nobody has been told anything.)
            self._remove()
            return Journal(str(self._files), 0, 0)
        line = 0 if then is None else then.told["line"]
        return Journal(str(self._files), line, self._ever.lives - 1)

    def goes_on(
        self, then: Snapshot | None, server: _core.PolicyServer, commands: Commands
    ) -> None:
        """As of ``LedKeeping``; commands are in the journal."""
        standing = server.standing()
        passed, elapsed = self._led.passed, standing["since"]
        if then is not None:
            passed, elapsed = then.told["passed"], then.told["elapsed"]
        commands.goes_on(
            passed + standing["elapsed"] - elapsed,
            self._ever.scheduled,
            int(server.counters()["commands"]),
            standing["told"],
        )

    def known(self, done: int) -> int:
        """What ``offer`` has told, where there was anything to tell."""
        if self._ever.done is None:
            self.done(done)
        return self._ever.done or 0

    def done(self, batches: int) -> None:
        """So many are, which the master is to be told."""
        self._ever.done = batches

    def scheduled(self, commands: int) -> None:
        """So many of the mode's own it was told."""
        self._ever.scheduled = commands

    def keep(self, pushes: int, *, done: bool) -> None:
        """As of ``LedKeeping``, and the journal is on the disk."""
        super().keep(pushes, done=done)
        if time.monotonic() < self._synced + _SYNC:
            return
        assert self._server is not None, "serve() comes first"
        self._server.sync_journal()
        self._synced = time.monotonic()
        if not self._warned and (why := self._server.standing()["unwritten"]):
            self._warned = True
            _log.warning("%s; should this server die, the run ends by that", why)

    @contextlib.contextmanager
    def left(self) -> Iterator[None]:
        """As of ``ServerKeeping``."""
        with super().left():
            yield
        self._remove()

    def _began(self, then: Mapping[str, Any], *, again: bool) -> None:
        if again:
            tell_lost(then, self._undone_pushes, self._undone)

    def _was_written(self, taken: Snapshot) -> None:
        assert self._server is not None, "serve() comes first"
        super()._was_written(taken)
        self._server.kept(taken.told["line"])

    def _journals(self) -> list[Path]:
        return list(self._folder.glob(f"{self._files.name}.*"))

    def _remove(self) -> None:
        for path in self._journals():
            with contextlib.suppress(OSError):
                path.unlink()
