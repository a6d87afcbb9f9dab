"""What comes out of a run that somebody's program takes part in, whose tables embedding servers have had."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from leashed.base import memory
from leashed.cluster import row_files
from leashed.cluster.outcome import WITH_TABLES
from leashed.cluster.session import Output, Reached
from leashed.files import checkpoint

__all__ = ["write"]

_COLLECTED = 0.5  # of the memory that is left


def write(home: Path, folders: Sequence[Path], reached: Reached, *, collect: bool) -> Output:
    """Writes the model that a trainer has come to with the tables that all servers have saved last,
    which are joined in this process's memory.

    Args:
        home: where the folder ``output`` is written.
        folders: of each server, in their order, where it has saved its rows.
        reached: the model, with its parameters and statistics.
        collect: whether the tables are told.

    Raises:
        OSError: a server has saved nothing, or the folder cannot be written.
        ValueError: a file is damaged, or the rows are not all of the tables.
        MemoryError: the tables take more than half of the memory that is left.
    """
    described = reached.model.tables
    size = sum(
        path.stat().st_size for folder in folders for path in folder.glob("*") if path.is_file()
    )
    left = memory.available()
    if left is not None and size > _COLLECTED * left:
        raise MemoryError(
            f"they take {size / 2**30:.3g} GiB, more than {_COLLECTED:.0%} of the memory left"
        )
    tables = row_files.joined_of(folders, described, reached.run).tables
    folder = home / WITH_TABLES
    statistics = None if reached.running is None else reached.running.values
    checkpoint.save(folder, reached.model, reached.parameters, tables, statistics)
    return Output(folder, tables if collect else {})
