"""What policy servers leave at their end, however that comes: the parameters that they have, in a file each,
and rows of tables. Where nobody has handed in anything a run has come to that (``reached``).
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from leashed.base import atomic
from leashed.cluster.led_bringing import Sending
from leashed.cluster.led_rows import TOLD, LedRows, last
from leashed.cluster.member import Member

__all__ = ["Holds", "Left", "forget", "leaving", "parameters_left", "telling"]

_WORD = 1.0  # seconds in which a master that is told to end as well says so
_ENDS = 10.0  # in which one that hears of a failure ends the run, whatever its disk does

_log = logging.getLogger(__name__)


class Holds(Protocol):
    """What the core's policy servers have of it."""

    @property
    def parameters(self) -> NDArray[np.float32]:
        """A copy."""

    def standing(self) -> dict[str, Any]:
        """``updates``: how many there are; ``reduced``: how many of them workers alone have."""

    def counters(self) -> dict[str, Any]:
        """``pushes``: that have come."""

    def quiet(self, f: Callable[[], None], /) -> None:
        """Calls it while nobody is served."""


class Left(NamedTuple):
    """What policy servers have left.

    Attributes:
        parameters: of all of them.
        updates: that those of each have, in their order.
        reduced: updates that workers alone had.
        failed: why one of them has failed; empty: none has.
    """

    parameters: NDArray[np.float32]
    updates: list[int]
    reduced: int
    failed: str = ""

    def __str__(self) -> str:
        told = "what the policy server had at its end"
        if self.failed:
            told = f"what the policy server had when it failed ({self.failed})"
        least, most = min(self.updates), max(self.updates)
        if least < most:
            told += f", of {least:,} to {most:,} updates"
        return f"{told}, without {self.reduced:,} updates of workers" if self.reduced else told


@contextlib.contextmanager
def leaving(
    folder: Path,
    index: int,
    member: Member,
    server: Holds,
    rows: LedRows | None,
    sending: Sending | None = None,
) -> Iterator[None]:
    """Writes all that a policy server has behind what is done within, however that ends, and brings it to the
    master's folder, where that is another.

    Args:
        folder: of the run.
        index: of the server.
        member: its side of the connection to the master.
        server: has the parameters.
        rows: of tables. None: there are none.
        sending: brings it. None: the folder is the master's.

    Raises:
        OSError: rows cannot be written; where something else is raised within, that is, and this is
            logged.
    """
    run = member.welcome.run
    failed = ""

    def put() -> None:
        found: list[tuple[dict[str, Any], NDArray[np.float32]]] = []
        server.quiet(lambda: found.append((server.standing(), server.parameters)))
        ((standing, parameters),) = found
        reduced = standing.get("reduced", 0)
        updates = standing["updates"] - reduced
        if not updates:  # another one may have had what was trained
            return
        try:
            with atomic.opened(_place(folder, index)) as file:
                np.savez(
                    file,
                    run=np.array(run),
                    parameters=parameters,
                    updates=np.array(updates),
                    reduced=np.array(reduced),
                    failed=np.array(failed),
                )
        except OSError as error:
            _log.error("the parameters are not saved: %s", str(error))

    try:
        with _behind(put) if rows is None else rows.kept(run, server, put):
            try:
                yield
            except Exception as error:
                if member.state == "joined":
                    failed = _why(error)
                    if _told(member, failed) and sending is not None:  # who takes what is left
                        sending.begin()
                raise
            if sending is not None:
                sending.begin()
    except KeyboardInterrupt:
        # Without who leads a run fails: a master that is told to end as well is to end it first.
        if member.wait(_WORD) and sending is not None:
            sending.begin()
        raise
    finally:
        if sending is not None:
            sending.end()


@contextlib.contextmanager
def telling(member: Member) -> Iterator[None]:
    """Tells the master why what is done within has failed, also before there is anything to leave: it ends the
    run by that.
    """
    try:
        yield
    except Exception as error:
        if member.state == "joined":
            _told(member, _why(error))
        raise


def forget(folder: Path, index: int) -> None:
    """What a process of this server before this one has left is of a moment to which nobody goes back."""
    _place(folder, index).unlink(missing_ok=True)


def parameters_left(
    folder: Path, run: str, spans: Sequence[Sequence[tuple[int, int]]], dimension: int, since: float
) -> Left | None:
    """What all policy servers of a run have left; None: one has left nothing, or no finite numbers.

    Args:
        folder: of the run.
        run: its name.
        spans: of several servers what each has, as [begin, end) of the vector. Empty: one has all.
        dimension: of the vector.
        since: seconds since 1970: what was not written after that is none.

    Raises:
        OSError: a file cannot be read.
        ValueError: one is damaged.
    """
    found = np.zeros(dimension, np.float32)
    updates, reduced, failed = [], 0, []
    for index, mine in enumerate(spans or [[(0, dimension)]]):
        path = _place(folder, index)
        if not path.exists() or path.stat().st_mtime <= since:
            return None
        with np.load(path, allow_pickle=False) as left:
            if str(left["run"]) != run:
                return None
            part = left["parameters"]
            updates.append(int(left["updates"]))
            reduced += int(left["reduced"])
            if why := str(left["failed"]):
                failed.append(why if len(spans) <= 1 else f"policy server {index}: {why}")
        if len(part) != sum(end - begin for begin, end in mine):
            raise ValueError(f"{path} has {len(part)} parameters, which are those of another model")
        at = 0
        for begin, end in mine:
            found[begin:end] = part[at : at + end - begin]
            at += end - begin
    if not np.isfinite(found).all():
        return None
    return Left(found, updates, reduced, "; ".join(failed))


def _why(error: Exception) -> str:
    return str(error) or type(error).__name__


def _told(member: Member, why: str) -> bool:
    """Whether the master has ended the run by it."""
    member.troubled(why)
    return member.wait(_ENDS)


def _place(folder: Path, index: int) -> Path:
    return folder / f"policy-ps-{index}.npz"


@contextlib.contextmanager
def _behind(put: Callable[[], None]) -> Iterator[None]:
    unsaved = f"the parameters are not saved: {TOLD}"
    try:
        yield
    except BaseException as ended:
        last(put, unsaved, told=isinstance(ended, KeyboardInterrupt))
        raise
    last(put, unsaved, told=False)
