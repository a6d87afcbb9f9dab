"""A recorded run by a mode, in virtual time."""

from __future__ import annotations

import math
import os
from typing import Any

from leashed import _core
from leashed.base import checks
from leashed.simulation.virtual_time import Simulation, simulation_of
from leashed.training.options import EVALUATED_ROWS
from leashed.training.outcome import result_of, told_by
from leashed.training.recordings import AnyModel
from leashed.training.replaying import again_from, doubt
from leashed.training.sets import Streamed

__all__ = ["recorded"]


def recorded(
    trace: str | os.PathLike[str],
    model: AnyModel | None = None,
    data: Any = None,
    *,
    every: float | None = None,
) -> Simulation:
    """A run by a mode that was recorded, on threads or over several processes, in virtual time.

    The server is told what it was told then, at the moments of then, and a gradient is computed when it
    was pushed. So the mode decides what it decided, and the parameters come out bit for bit; loss and
    accuracy are known over the run's own time, without what evaluating would have cost it.

    Ctrl-C returns the state reached.

    Args:
        trace: the file, of ``leashed.Observe(record=...)``. One that a killed process has left is played as
            far as it goes.
        model, data: as of :func:`leashed.replay`.
        every: seconds of the run between two evaluations. Default: at the beginning and the end alone.

    Raises:
        TypeError, ValueError: as of :func:`leashed.replay`; or the run was by no mode, or by one whose workers
            look at each other's models.
        OSError: the file cannot be read.
    """
    if every is not None:
        checks.real("every", checks.seconds("every", every), 0.0)
    again = again_from(trace, None, model, data, [])
    found, given = again.found, again.given
    if not found.mode:
        raise ValueError(
            f"{os.fspath(trace)} is of a run without a mode, which leashed.replay makes again; virtual time "
            "plays those by modes"
        )
    instant = ("constant", {"seconds": 0.0})
    watch = _core.Watch(
        until={"rows": float(EVALUATED_ROWS)}, evaluate_every=math.inf if every is None else every
    )
    try:
        outcome = _core.simulate(
            again.training(),
            watch,
            _core.VirtualTime(
                compute=instant,
                update=instant,
                copy=instant,
                shards=found.servers.shards,
                servers_of_tables=found.servers.native,
            ),
            True,
            again.native,
            found.looks_up,
        )
    except _core.Error as error:
        raise ValueError(f"cannot play {os.fspath(trace)}: {error}") from error
    doubt(again, trace)
    streamed = given if isinstance(given, Streamed) else None
    config = {**found.config, "virtual": {"record": os.fspath(trace)}}
    if again.tables:
        config["tables"] = told_by(again.tables)
    result = result_of(
        outcome,
        float(config["batch_size"]),
        config,
        again.tables,
        streamed=streamed,
        architecture=again.model,
    )
    return simulation_of(result, outcome, config["threads"])
