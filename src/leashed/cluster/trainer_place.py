"""A trainer's place in a run: which one it is, where the others are, and how long it waits for them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias

from leashed.cluster import collectives
from leashed.cluster.opening import Key
from leashed.training.led_mode import SHARDS

__all__ = ["TRANSPORTS", "Address", "TrainerPlace", "ahead_of"]

TRANSPORTS = ("auto", "tcp", "shm")

Address: TypeAlias = "str | Callable[[], str]"


@dataclass(frozen=True)
class TrainerPlace:
    """What a training needs to know of it.

    Attributes:
        index: number of this trainer, from 0.
        trainers: how many there are.
        servers: how many sync servers.
        master: the master's address, "host:port", or what tells it.
        key: what every connection is opened with.
        host: where this trainer listens for the others.
        port: on which port there; 0: any that is free.
        transport: between processes of one machine ``"shm"`` (shared memory), ``"tcp"``, or
            ``"auto"``: shared memory where it can be had.
        backend: what ``MA``, ``BMUF`` and the like sum with; a name of
            ``leashed.cluster.collectives``.
        timeout: seconds for a round of synchronisation, and for a connection.
        grace: seconds for which a master that is away is waited for.
        results: whether the master is handed the final parameters, for the model that comes out.
        advertise: the host at which the others reach this trainer. Default: ``host``, or where that
            is 0.0.0.0 or ::, the one that this machine has towards the master.
        embedding_servers: how many hold the rows of the model's tables.
        look_ahead: of how many batches rows are asked for while one before them is computed, or with policy
            servers how many leases a thread has beside the one that it computes. None: as ``ahead_of``.
        pooling: where rows that the model reads pooled are: ``"auto"``, ``"servers"`` or ``"rows"``.
        readers: how many send the rows that are trained on.
        policy_servers: how many lead the mode by which is trained.
        shards: how its parameters are spread over several of them.
        patience: seconds for which an embedding server is waited for, a reader, and a policy server.
        folder: the run's, for the final parameters; None: the master is sent them.
        cuts: that of the run's checkpoints; None: this trainer saves nothing.
        begins: the checkpoint's folder that the run goes on from; None: it begins.
        words: what it has beside its training that all of the run must have alike, by name.
    """

    index: int
    trainers: int
    servers: int
    master: Address
    key: Key
    host: str = "127.0.0.1"
    port: int = 0
    transport: str = "auto"
    backend: str = collectives.OWN
    timeout: float = 10.0
    grace: float = 10.0
    results: bool = True
    advertise: str | None = None
    embedding_servers: int = 0
    look_ahead: int | None = None
    pooling: str = "auto"
    readers: int = 0
    policy_servers: int = 0
    shards: str = SHARDS
    patience: float = 300.0
    folder: Path | None = None
    cuts: Path | None = None
    begins: Path | None = None
    words: Mapping[str, str] = field(default_factory=dict)

    @property
    def ahead(self) -> int:
        """``look_ahead``, a number where nobody says one too."""
        return ahead_of(self.look_ahead, self.embedding_servers)


def ahead_of(given: int | None, embedding_servers: int) -> int:
    """How far a thread looks ahead; where nobody says so 1 with embedding servers, and else 0, by which a mode
    has as many workers as there are threads.
    """
    return int(embedding_servers > 0) if given is None else given
