"""The core's part of a trainer's synchronisation, as ``leashed.sync`` describes it."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from leashed import _core
from leashed.cluster import packing
from leashed.sync import Synchroniser

__all__ = ["check_servers", "native"]


def check_servers(synchroniser: Synchroniser, servers: int) -> None:
    """That there are sync servers where the synchroniser needs some; ValueError otherwise."""
    if synchroniser.SERVERS and servers == 0:
        raise ValueError(
            f"{type(synchroniser).__name__} needs sync servers, and the run has none; start it with "
            "at least one (--sync-ps), or choose MA or BMUF"
        )


def native(
    synchroniser: Synchroniser,
    dimension: int,
    servers: int,
    workers: int,
    timeout: float,
    costs: packing.Costs = packing.BY_LENGTH,
    *,
    goes_on: bool = False,
    states: NDArray[np.float32] | None = None,
    within: NDArray[np.float64] | None = None,
) -> _core.TrainerSync:
    """What synchronises a trainer's parameters, once it has its connections.

    Args:
        synchroniser: from ``leashed.sync``.
        dimension: length of the parameters.
        servers: how many sync servers there are.
        workers: worker threads of the trainer.
        timeout: seconds for a round.
        costs: of exchanges with them, by which they share the fragments.
        goes_on: the parameters are as the servers know them, and stay as they are when it begins.
        states: what trainers that sum go on with together, float32, one behind the other.
        within: where each worker is between two rounds, float64 [workers, 4].

    Raises:
        ValueError: there is no sync server where one is needed; or numbers of ``within`` cannot be.
    """
    check_servers(synchroniser, servers)
    when = synchroniser.when
    return _core.TrainerSync(
        machine=synchroniser.choice(),
        pace=when.kind,
        starts=list(when.gaps),
        gaps=[float(gap) for gap in when.gaps.values()],
        dimension=dimension,
        owner=packing.owners(dimension, max(1, servers), costs),
        servers=servers,
        parts=synchroniser.parts,
        timeout=timeout,
        custom=synchroniser.custom(),
        workers=workers,
        compression=synchroniser.compression,
        goes_on=goes_on,
        states=states,
        within=within,
    )
