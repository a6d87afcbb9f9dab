"""What comes out of a run that somebody's program takes part in, whose tables embedding servers have had."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from leashed.base import memory
from leashed.cluster import row_files
from leashed.cluster.outcome import WITH_TABLES
from leashed.cluster.session import Output, Reached
from leashed.files import checkpoint
from leashed.models import TableSpec
from leashed.models.external import External
from leashed.models.graphs import Graph
from leashed.models.tables import Table

__all__ = ["tables_of", "write"]

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
    joined = row_files.joined_of(folders, described, reached.run)
    tables = joined.tables
    folder = home / WITH_TABLES
    statistics = None if reached.running is None else reached.running.values
    checkpoint.save(folder, reached.model, reached.parameters, tables, statistics)
    rows = row_files.updates(joined.counters)
    return Output(folder, tables if collect else {}, reached.parameters, rows)


def tables_of(
    model: Graph | External | Sequence[TableSpec], folders: Sequence[str | os.PathLike[str]]
) -> dict[str, Table]:
    """The tables of a model from what a run's embedding servers have saved, where the run could not write
    its output: rank 0 was gone, or had not all of their folders. ``leashed.save(path, model,
    result.parameters, tables, result.statistics)`` of a trainer's result writes the rest beside them.

    Args:
        model: that was trained; or the tables of a loop of one's own, as ``Cluster.tables`` was given them.
        folders: of all servers, in any order: each one's ``embedding-ps-0``, ``embedding-ps-1``, ... of
            one run, copied to this machine. Whole files of all tables are read into memory.

    Returns:
        By name, whole, with the states of the rule.

    Raises:
        FileNotFoundError: one of the folders has no rows.
        TypeError: ``model`` reads no tables, or is none; ``folders`` is one path.
        ValueError: ``folders`` is empty; a file is damaged; they are of several runs, or their rows are
            not all of the model's tables.
    """
    given: Sequence[TableSpec] = (
        model if isinstance(model, Sequence) else checkpoint.tables_of(model)
    )
    described = [one for one in given if isinstance(one, TableSpec)]
    if not described or len(described) < len(given):
        raise TypeError(
            f"model must be one that reads tables, or a list of TableSpec, got {model!r}"
        )
    if isinstance(folders, (str, os.PathLike)):  # whose letters would be folders
        raise TypeError(f"folders must be a list, with one of each server, got {folders!r}")
    places = [Path(each) for each in folders]
    if not places:
        raise ValueError("folders must be those of all embedding servers of a run, got none")
    first = row_files.rows_of(places[0], 0)
    return row_files.joined_of(places, described, str(first.told["run"])).tables
