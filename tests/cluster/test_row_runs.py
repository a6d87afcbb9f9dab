"""A training whose rows are with embedding servers: what they leave, and what a restart of one loses."""

from __future__ import annotations

import contextlib
import gc
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cluster.row_server import RUN

import leashed as lsh
from leashed import _core
from leashed.cluster import keeping
from leashed.cluster.row_files import RowFiles, joined
from leashed.models import tables
from leashed.training.request import ThreadRequest

SERVERS = 2
CLIENT, LIFE = 5, 2**63 + 1
PATIENCE = 60.0
READERS = 4


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keeping, "_WRITING", 1e9)


class Crew:
    """Embedding servers in this process, each with its files, and connections with them."""

    def __init__(self, model: lsh.models.Graph, folder: Path, servers: int = SERVERS) -> None:
        self.model, self.folder, self.count = model, folder, servers
        self.placement = _core.RowPlacement(
            [(one.rows is None, -1) for one in model.tables], [k % servers for k in range(256)]
        )
        self.boots = 0
        self.servers: list[_core.RowServer] = []
        self.files: list[RowFiles] = []
        for index in range(servers):
            server, files = self.start(index)
            self.servers.append(server)
            self.files.append(files)

    def start(self, index: int) -> tuple[_core.RowServer, RowFiles]:
        shards = [self.placement.shards(t, index) for t in range(len(self.model.tables))]
        mine = tables.of(
            self.model.tables,
            rule=lsh.Adagrad(0.05),
            shards={one.name: of for one, of in zip(self.model.tables, shards, strict=True)},
        )
        files = RowFiles(mine, self.folder, RUN, index, 0.0)
        files.restore()
        numbers = [t for t, of in enumerate(shards) if any(of)]
        self.boots += 1
        server = _core.RowServer(
            [table.native for table in mine.values()], numbers, self.placement, index, self.boots
        )
        files.serve(server)
        return server, files

    def restart(self, index: int) -> None:
        """As one that was killed: what it has not saved is gone."""
        server, self.files[index] = self.start(index)
        self.servers[index] = server
        gc.collect()  # the one before, with its files

    def rows(self, workers: int, readers: int, look_ahead: int) -> _core.RemoteRows:
        specs = list(self.model.tables)
        return _core.RemoteRows(
            tables=[(one.name, one.dim, one.rows or 0) for one in specs],
            features=[specs.index(node.table) for node in self.model.readers],
            placement=self.placement,
            servers=self.count,
            workers=workers,
            readers=readers,
            client=CLIENT,
            life=LIFE,
            timeout=5.0,
            patience=PATIENCE,
            look_ahead=look_ahead,
        )

    @contextlib.contextmanager
    def tending(self, rows: _core.RemoteRows) -> Iterator[None]:
        over = threading.Event()

        def tend() -> None:
            while not over.is_set():
                for slot, index in rows.missing(self.count):
                    with contextlib.suppress(ValueError, OSError):
                        here, there = pair()
                        self.servers[index].adopt(there.detach(), False)
                        rows.adopt(slot, index, here.detach(), False)
                time.sleep(0.002)

        thread = threading.Thread(target=tend)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()

    def end(self) -> dict[str, lsh.Table]:
        for files in self.files:
            files.end()
        return joined(self.folder, self.model.tables, self.count, RUN).tables


def pair() -> tuple[socket.socket, socket.socket]:
    """Two ends of a connection over TCP."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        here = socket.create_connection(listener.getsockname())
        there, _ = listener.accept()
    return here, there


def problem() -> tuple[lsh.models.Graph, Any]:
    split = lsh.datasets.synthetic_clicks(4000, test=100, cardinalities=700, seed=1)
    return lsh.models.dlrm(rows=700, dim=4, bottom=[4], top=[8]), split


def trained(
    crew: Crew | None,
    monkeypatch: pytest.MonkeyPatch,
    *,
    look_ahead: int = 0,
    meanwhile: Any = None,
    epochs: float = 2,
) -> tuple[lsh.TrainResult, Any]:
    """Of one worker; with the crew its rows are there."""
    model, split = problem()
    told: dict[str, Any] = {}
    plain, train = ThreadRequest.training, _core.train
    with contextlib.ExitStack() as stack, monkeypatch.context() as patch:

        def training(self: ThreadRequest, *args: Any, **given: Any) -> Any:
            return plain(self, *args, **{**given, "tables": []})

        if crew is not None:
            told["rows"] = rows = crew.rows(1, READERS, look_ahead)
            stack.enter_context(crew.tending(rows))
            if meanwhile is not None:
                stack.enter_context(meanwhile)
            patch.setattr(ThreadRequest, "training", training)
            patch.setattr(
                _core, "train", lambda *given, **others: train(*given, **{**others, "rows": rows})
            )
        result = lsh.train(
            model,
            split.train,
            discipline=lsh.Sequential(),
            threads=1,
            batch_size=16,
            rule=lsh.SGD(0.05),
            init=lsh.Init(tables=tables.of(model.tables, rule=lsh.Adagrad(0.05))),
            until=lsh.until(epochs=epochs),
        )
    return result, told.get("rows")


@pytest.mark.parametrize("servers", [1, 2, 3])
def test_rows_come_out_as_of_one_process_to_the_bit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, servers: int
) -> None:
    model, _ = problem()
    crew = Crew(model, tmp_path, servers)
    result, rows = trained(crew, monkeypatch)
    alone, _ = trained(None, monkeypatch)
    np.testing.assert_array_equal(result.parameters, alone.parameters)
    whole = crew.end()
    for name, table in alone.tables.items():
        values, versions = table.lookup(table.ids(), versions=True)
        found, counted = whole[name].lookup(table.ids(), versions=True)
        np.testing.assert_array_equal(found, values)
        np.testing.assert_array_equal(counted, versions)
        assert whole[name].statistics()["steps"] == table.statistics()["steps"] == 500
    assert rows.counters()["lost"] == 0


def test_a_restart_loses_what_is_counted_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of 80,000 pushes to each server; the client's account, and the server's, are what the rows have."""
    model, _ = problem()
    crew = Crew(model, tmp_path)
    restored: list[int] = []

    @contextlib.contextmanager
    def kills() -> Iterator[None]:
        def kill() -> None:
            for victim in (1, 0):
                before = crew.servers[victim].counters()["pushes"]
                reach(crew, victim, before + 40)
                crew.files[victim].keep()
                reach(crew, victim, crew.servers[victim].counters()["pushes"] + 20)
                crew.restart(victim)
                restored.append(int(crew.files[victim].counters()["restored"]))

        thread = threading.Thread(target=kill)
        thread.start()
        try:
            yield
        finally:
            thread.join()

    _, rows = trained(crew, monkeypatch, look_ahead=1, meanwhile=kills(), epochs=320)
    counted = rows.counters()
    assert len(restored) == 2
    assert all(restored)
    assert counted["lost"] > 0
    ends = [server.counters()["pushes"] for server in crew.servers]
    assert counted["settled"] == 2 * counted["pushes"] == 2 * 80_000  # a push to each server
    assert sum(ends) == counted["settled"] - counted["lost"]
    whole = crew.end()
    assert [one.statistics()["steps"] for one in whole.values()] == [max(ends)] * len(whole)


def reach(crew: Crew, index: int, pushes: int) -> None:
    end = time.monotonic() + PATIENCE
    while crew.servers[index].counters()["pushes"] < pushes:
        assert time.monotonic() < end
        time.sleep(0.001)
