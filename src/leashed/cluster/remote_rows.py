"""The core's part of a trainer's rows that embedding servers hold."""

from __future__ import annotations

from leashed import _core
from leashed.base.machine import cores
from leashed.cluster.lives import SLOTS, life
from leashed.training.rows_read import RowsRead

__all__ = ["remote_rows"]

_READERS = 64  # that evaluate, at most


def remote_rows(
    read: RowsRead,
    placement: _core.RowPlacement,
    trainer: int,
    member: int,
    workers: int,
    servers: int,
    timeout: float,
    patience: float,
    look_ahead: int,
    pooling: str,
) -> _core.RemoteRows:
    """Those of a trainer, by its index, of so many workers; it has no connections yet.

    Args:
        read: which.
        placement: of their tables.
        trainer, member, workers: whose; each process is another member of its run, with a larger number.
            Where tables are apart, each of so many threads has a worker for each table.
        servers: how many embedding servers there are.
        timeout: seconds of a server's silence after which its connection is given up.
        patience: seconds for which a server is waited for.
        look_ahead: batches whose rows are asked for while one before them is computed.
        pooling: where rows that the model reads pooled are: ``"servers"``, ``"rows"`` (where they are
            read), or ``"auto"``, of each feature where it is fewer bytes.
    """
    each = len(read.tables) if read.apart else 1
    return _core.RemoteRows(
        tables=[(one.name, one.dim, one.rows or 0) for one in read.tables],
        features=list(read.features),
        placement=placement,
        servers=servers,
        workers=each * workers,
        readers=0 if read.apart else min(workers, cores(), _READERS),
        client=trainer * SLOTS,
        life=life(member),
        timeout=timeout,
        patience=patience,
        look_ahead=look_ahead,
        poolings=list(read.poolings),
        pooling=pooling,
        apart=read.apart,
    )
