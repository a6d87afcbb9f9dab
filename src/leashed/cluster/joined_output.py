"""What comes out of a run that others have started: rank 0 writes it, with the rows of all nodes."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

from leashed.base.warning import warn
from leashed.cluster import bringing, row_files, served_output
from leashed.cluster.children import saved
from leashed.cluster.keys import Key
from leashed.cluster.led_leaving import parameters_left
from leashed.cluster.supervisor import read_report
from leashed.cluster.trainer_session import Output, Reached
from leashed.models._columns import keep, kept
from leashed.training.led_mode import LedMode

__all__ = ["sees", "send", "why_failed", "write"]

_LOOK = 0.05
_REMEDY = (
    "lsh.cluster.tables_of(model, folders) puts the tables together, and lsh.save them with "
    "result.parameters"
)


def write(
    folders: Sequence[Path],
    home: Path,
    reached: Reached,
    patience: float,
    *,
    collect: bool,
    led: LedMode | None = None,
) -> Output | None:
    """What comes out of the run, where it can be written; else why not is told. ``led``: of a run by a mode, whose
    policy servers had the rows.
    """
    elsewhere = [one for one in folders if one.parent != home]
    if missing := [one for one in elsewhere if not one.exists()]:
        warn(
            f"the run's output is not written: {missing[0]} has not come; that node has it, in the folder "
            f"that was given there, under the same name; copied here, {_REMEDY}"
        )
        return None
    end = time.monotonic() + patience
    while not all(saved(one).exists() for one in elsewhere) and time.monotonic() < end:
        time.sleep(_LOOK)
    behind = [one for one in folders if not saved(one).exists()]
    try:
        if led is not None:
            reached = _beside_rows(home, reached, led)
        output = served_output.write(home, folders, reached, collect=collect)
    except (OSError, ValueError, MemoryError) as error:
        warn(
            f"the run's output is not written to {home}: {error}; what servers have saved is there"
        )
        return None
    if behind:
        warn(
            f"not all that was pushed is in {output.folder}: {', '.join(one.name for one in behind)} has not "
            f"saved its rows at the end, and they are of its last snapshot; {behind[0]}.log says why"
        )
    return output


def _beside_rows(home: Path, reached: Reached, led: LedMode) -> Reached:
    """With the parameters of the moment of the rows: others may have trained on since this rank has ended."""
    left = parameters_left(home, reached.run, led.shards, len(led.theta), 0.0)
    if left is None:
        if any(home.glob("policy-ps-*.npz")):  # else nobody has trained
            warn(
                "the parameters beside the tables are those of this trainer's end, and rows are of the run's: "
                "not all policy servers have left finite parameters; policy-ps-0.log, and those of others, in "
                f"{home} may say why"
            )
        return reached
    return reached._replace(parameters=keep(left.parameters, kept(reached.parameters)))


def sees(home: Path, reached: Reached) -> bool:
    """Whether rank 0's folder of the run can be seen here."""
    try:
        report = read_report(home)
    except (OSError, ValueError):
        return False
    return report is not None and report["run"] == reached.run


def send(home: Path, index: int, reached: Reached, address: str, key: Key, seconds: float) -> None:
    """What a node's server has saved, to rank 0; where that does not get it, this is told."""
    folder = row_files.folder_of(home, index)
    try:
        bringing.send(folder, index, reached.run, address, key, seconds)
    except OSError as error:
        warn(
            f"rank 0 has not got the rows of embedding server {index}: {error}; they are here, in {folder}; "
            f"copied to one machine with those of the others, {_REMEDY}; where rank 0's disk is lost with "
            "its part, a copy of its last checkpoint is what is left (checkpoint_every)"
        )


def why_failed(home: Path) -> str | None:
    """Why the run has failed; None: it has not."""
    try:
        report = read_report(home)
    except (OSError, ValueError):
        return None
    return str(report["reason"]) if report is not None and report["state"] == "failed" else None
