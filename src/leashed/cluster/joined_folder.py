"""Where ranks that others have started meet on one machine: a note of rank 0's tells the others its folder."""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import stat
import tempfile
import time
from pathlib import Path

from leashed.base import leftovers
from leashed.cluster import placing

__all__ = ["counted_in", "fresh", "meeting", "publish", "published"]

_WAIT = 30.0  # seconds for rank 0 to make the folder
_LOOK = 0.05


def meeting(told_by: str, folder: str | os.PathLike[str] | None) -> Path:
    """A folder that the others find, and nobody else can enter unless it was given: that of those
    with the same launcher.
    """
    if folder is not None:
        return Path(folder)
    attempt = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
    name = f"{leftovers.PREFIX}{os.geteuid()}-{told_by.replace(' ', '')}-{os.getppid()}-{attempt}"
    path = Path(tempfile.gettempdir()) / name
    while True:
        with contextlib.suppress(FileExistsError):
            path.mkdir(mode=0o700)
        with contextlib.suppress(FileNotFoundError):  # removed as a dead run's
            about = path.lstat()
            if (
                not stat.S_ISDIR(about.st_mode)
                or about.st_uid != os.geteuid()
                or stat.S_IMODE(about.st_mode) & 0o077
            ):
                raise PermissionError(f"{path} is somebody else's; give folder, one of your own")
            if leftovers.hold(path):
                return path


def fresh(folder: str | os.PathLike[str] | None, note: Path | None) -> Path:
    """A folder without a run, for rank 0."""
    if note is not None:
        note.unlink(missing_ok=True)  # of a run before
    if folder is not None:
        base = Path(folder)
        base.mkdir(mode=0o700, parents=True, exist_ok=True)
        if any(base.glob("run-*")):
            raise FileExistsError(
                f"folder {str(base)!r} has a run already; give a new one each time (also where "
                "a launcher starts processes again: torchrun counts in TORCHELASTIC_RESTART_COUNT)"
            )
        return base
    base = leftovers.make()
    atexit.register(_remove, os.getpid(), base, note)
    return base


def _remove(pid: int, base: Path, note: Path | None) -> None:
    """At rank 0's end: what was for temporary files, but for logs of children that failed."""
    if os.getpid() != pid:
        return  # a fork of it
    (base / "key").unlink(missing_ok=True)
    leftovers.leave(base)
    if note is not None:
        note.unlink(missing_ok=True)
        leftovers.leave(note.parent)


def publish(note: Path, base: Path) -> None:
    """Tells the other ranks, as rank 0, which folder it is."""
    pid = os.getpid()
    beside = note.with_suffix(f".{pid}")
    about = {"folder": str(base.absolute()), "pid": pid, "started": _started(pid)}
    beside.write_text(json.dumps(about), encoding="utf-8")
    beside.replace(note)


def published(note: Path) -> Path:
    """The folder of a rank 0 that lives, so of this run and no earlier one."""
    end = time.monotonic() + _WAIT
    while True:
        with contextlib.suppress(FileNotFoundError):
            about = json.loads(note.read_text(encoding="utf-8"))
            if about["started"] == _started(about["pid"]):
                return Path(about["folder"])
        if time.monotonic() >= end:
            raise TimeoutError(
                f"rank 0 has not joined in {_WAIT:g} s (it tells so in {note}); are all trainers on "
                "one machine, and did rank 0 start? Else give rendezvous, key and folder"
            )
        time.sleep(_LOOK)


def _started(pid: int) -> str:
    """When a process was started, in the kernel's words; empty: it is no more."""
    try:
        words = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return ""
    return "" if words[0] in "ZX" else words[19]


def counted_in(base: Path, place: placing.Place, folder: object) -> Path:
    """Where the rows of streams are counted: by all ranks of a machine at one place, as far as they see it."""
    if base != Path() or place.rank == 0:
        return base
    if folder is not None:
        return Path(str(folder))
    own = leftovers.make()
    atexit.register(_remove, os.getpid(), own, None)
    return own
