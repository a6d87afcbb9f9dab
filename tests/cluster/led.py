"""A run by a mode on threads of this process: its master, its policy servers, and readers."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from cluster import inside
from cluster.inside import PATIENCE, Run, served

from leashed.cluster import policy_server, reader
from leashed.cluster.checkpoints import Checkpoint
from leashed.cluster.led_checkpoint import going_on
from leashed.cluster.remote_batches import sent
from leashed.cluster.row_index import files_of, index_of
from leashed.cluster.session import Cluster
from leashed.cluster.table_terms import TableTerms
from leashed.training import request
from leashed.training.led_mode import SHARDS
from leashed.training.rows_read import RowsRead


class LedRun:
    """Of so many trainers, which the tests themselves are.

    Attributes:
        error: what a policy server has raised.
    """

    def __init__(
        self,
        run: Run,
        model: Any,
        data: Any,
        trainers: int,
        given: dict[str, Any],
        resume: Path | None = None,
        tables: dict[str, Any] | None = None,
        servers: int = 1,
        shards: str = SHARDS,
        readers: int = 0,
        look_ahead: int | None = None,
    ) -> None:
        unsaid = {"discipline": None, "staleness": None, "seed": 0, "rule": None}
        place = policy_server.Trainers(trainers, servers, shards, readers, look_ahead or 0)
        rows = sent(data, index_of(data, model, run.folder), readers) if readers else data
        asked = request.of(model, rows, cluster=place, **{**unsaid, **given})
        self._run = run
        self._given = (model, data, given)
        self.led = asked.led(asked.source(1))
        self._tables = None
        if self.led.tables:
            source = asked.source(1)
            read = RowsRead(
                asked.model.tables,
                source.features_of_tables,
                asked.rule,
                asked.staleness,
                asked.seed,
            )
            self._tables = TableTerms(read, servers, tables or {})
        self._resume = resume
        if resume is not None:
            self.led = going_on(self.led, Checkpoint(resume))
        self.error: OSError | ValueError | None = None
        self._servers: dict[str, Any] = {
            "policy_servers": servers,
            "shards": shards,
            "look_ahead": look_ahead,
        }
        self._threads = [threading.Thread(target=self._serve, args=(k,)) for k in range(servers)]
        if readers:
            self._servers |= {"readers": readers, "rows_in": run.folder}
            self._threads += [
                threading.Thread(target=self._read, args=(k,)) for k in range(readers)
            ]
        for thread in self._threads:
            thread.start()

    def _serve(self, index: int) -> None:
        place = replace(served(self._run._master.address, self._run.folder), resume=self._resume)
        try:
            policy_server.serve(self.led, index, place, {}, self._tables)
        except (OSError, ValueError) as error:
            self.error = error

    def _read(self, index: int) -> None:
        model, data, _ = self._given
        rows = index_of(data, model, self._run.folder)
        with contextlib.closing(reader.Rows(rows, files_of(data, model), 1)) as read:
            reader.attend(read, index, served(self._run._master.address, self._run.folder))

    def cluster(self, index: int = 0, **given: Any) -> Cluster:
        """The place of a trainer."""
        return self._run.cluster(index, **{**self._servers, "begins": self._resume, **given})

    def until_led(self) -> None:
        """Waits until who leads is a member: whoever comes later is compared with it."""
        self._run.until_joined(1)

    def report(self) -> dict[str, Any]:
        """At the end, which is waited for."""
        return self._run.report()

    def ended(self) -> None:
        """Waits for the servers to end by themselves."""
        for thread in self._threads:
            thread.join(PATIENCE)
            assert not thread.is_alive()

    def close(self) -> None:
        self._run.stop()
        self.ended()


@contextlib.contextmanager
def led(
    folder: Path,
    model: Any,
    data: Any,
    trainers: int = 1,
    *,
    checkpoint_every: float | None = None,
    resume: Path | None = None,
    tables: dict[str, Any] | None = None,
    servers: int = 1,
    shards: str = SHARDS,
    readers: int = 0,
    look_ahead: int | None = None,
    **given: Any,
) -> Iterator[LedRun]:
    """Until its end, or this one's; ``given``: of ``lsh.train``, which trainers are to give as well; ``tables``:
    settings of those that the server has; ``servers``: policy servers, of several; ``readers``: of the data,
    which are a stream of files then; ``look_ahead``: of all trainers.
    """
    size = given["batch_size"]
    examples = index_of(data, model, folder).rows if readers else len(data)
    batches = given["until"].rules(examples, size).get("batches")
    total = None if batches is None else int(batches)
    terms = {"total": total, "batch_size": size, "trainers": trainers, "policy_ps": servers}
    terms["readers"] = readers
    terms["checkpoint_every"] = checkpoint_every
    if resume is not None:
        begins = Checkpoint(resume)
        terms |= {"begun": begins.begun, "cut": begins.number}
    with inside.run(folder, model.dimension, **terms) as run:
        made = LedRun(
            run,
            model,
            data,
            trainers,
            given,
            resume,
            tables,
            servers,
            shards,
            readers,
            look_ahead,
        )
        try:
            yield made
        finally:
            made.close()
