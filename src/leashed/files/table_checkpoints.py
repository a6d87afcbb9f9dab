"""Checkpoints of runs whose model reads tables: folders that a run goes on from, rows and all."""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import partial
from typing import Any

from leashed import _core
from leashed.files import checkpoint, folders, resuming
from leashed.models.external import External
from leashed.models.graphs import Graph
from leashed.models.tables import Table

__all__ = ["TableCheckpointer", "resume"]


class TableCheckpointer(resuming.Checkpointer):
    """As ``Checkpointer``, of a folder: rows are written while workers go on changing them.

    Args:
        path: the folder; made where it is not there.
        model: what is trained.
        config: what ``leashed.train`` was asked for, as JSON's own types.
        tables: those that the model reads, by name.
        paused: as of ``Checkpointer``; what is written then is exact.
        incremental: whether of rows only those are written that have changed.

    Attributes:
        last_update: where all workers have ended, the updates they made; None before.

    Raises:
        OSError: the folder could not be written, or has something else in it.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        model: Graph | External,
        config: dict[str, Any],
        tables: Mapping[str, Table],
        *,
        paused: bool = False,
        incremental: bool = False,
    ) -> None:
        self._tables = tables
        self._incremental = incremental
        self._written: int | None = None
        self.last_update: int | None = None
        super().__init__(path, model, config, paused=paused)

    def _prepare(self) -> None:
        folders.prepare(self._path)

    def _put(self, reached: resuming.Reached) -> None:
        self._written = None
        told = self._contents(reached)
        folders.write(
            self._path,
            self._tables,
            lambda file: checkpoint.write(file, self._model, *told),
            exact=self._paused,
            incremental=self._incremental,
        )
        self._written = reached.training.updates

    def _end(self) -> None:
        # The last state is handed over when no worker is left, so its tables are of that moment.
        if self._written is not None and self._written == self.last_update:
            self._thread.submit(self._try, partial(folders.mark_exact, self._path))


def resume(
    path: str | os.PathLike[str],
    model: Graph | External,
    config: dict[str, Any],
    tables: Mapping[str, Table],
    *,
    other_data: bool = False,
    any_files: bool = False,
) -> tuple[_core.Resumption, folders.Opened]:
    """What a folder of a run of that model, configuration and tables holds, as ``resuming.resume``
    has it; no table has changed.

    Raises:
        OSError: a file is missing or cannot be read.
        ValueError: one is damaged, or of another run, model or tables.
    """
    folder = folders.opened(path)
    resumption, _ = resuming.resume(
        folder.model, model, config, other_data=other_data, any_files=any_files
    )
    folder.require(tables, same_rule=True)
    return resumption, folder
