"""Embedding servers of the core with their files and a trainer's rows, over sockets."""

from __future__ import annotations

import gc
import itertools
import secrets
import socket
import threading
import time
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from table_files import shard_of

import leashed as lsh
from leashed import _core, datasets, staleness
from leashed.cluster import keeping
from leashed.cluster.row_files import RowFiles
from leashed.models import TableSpec, tables
from leashed.training.sets import Clicks, head_of, source_of, training_of

SPREAD = -1
RULE = lsh.Adagrad(0.05)


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keeping, "_WRITING", 1e9)


def placed(specs: list[TableSpec], servers: int) -> _core.RowPlacement:
    return _core.RowPlacement(
        [(spec.rows is None, SPREAD) for spec in specs], [shard % servers for shard in range(256)]
    )


_lives = itertools.count(1)


class Life:
    """Of an embedding server, from its start to its end."""

    def __init__(
        self, folder: Path, specs: list[TableSpec], index: int = 0, servers: int = 1, **made: Any
    ) -> None:
        placement = placed(specs, servers)
        shards = {spec.name: placement.shards(i, index) for i, spec in enumerate(specs)}
        self.tables = tables.of(specs, rule=RULE, seed=3, shards=shards, **made)
        self.files = RowFiles(self.tables, folder, "0123", index, 0.0)
        self.files.restore()
        self.server = _core.RowServer(
            [table.native for table in self.tables.values()],
            list(range(len(specs))),
            placement,
            index,
            secrets.randbits(62),
            loops=1 + index,
        )
        self.files.serve(self.server)

    def kill(self) -> None:
        del self.files, self.server
        gc.collect()


def connect(rows: _core.RemoteRows, lives: list[Life], transport: str = "tcp") -> None:
    for slot, server in rows.missing(len(lives)):
        connect_one(rows, lives[server], slot, server, transport)


def connect_one(rows: _core.RemoteRows, life: Life, slot: int, server: int, transport: str) -> None:
    ours, theirs = socket.socketpair()
    adopting = threading.Thread(target=life.server.adopt, args=(theirs.detach(), True, transport))
    adopting.start()
    rows.adopt(slot, server, ours.detach(), True, transport)
    adopting.join()


class Trainer:
    """One worker whose rows are at servers."""

    def __init__(self, servers: int, updates: int, look_ahead: int) -> None:
        model = lsh.models.dlrm(50)
        self.specs = list(model.tables)
        split = datasets.synthetic_clicks(2000, seed=1, test=10, cardinalities=50)
        data = Clicks(model, split.train, "data")
        source = source_of(model, data)
        self.training = training_of(
            source,
            model.init(3),
            head_of(data),
            discipline=lsh.Sequential().choice(),
            rule=lsh.SGD(0.05).choice(),
            staleness=staleness.none().choice(),
            workers=1,
            batch_size=8,
            seed=3,
            tables=[],
        )
        self.updates = updates
        self.rows = _core.RemoteRows(
            tables=[(spec.name, spec.dim, spec.rows or 0) for spec in self.specs],
            features=source.features_of_tables,
            placement=placed(self.specs, servers),
            servers=servers,
            workers=1,
            readers=1,
            client=7,
            life=next(_lives),
            timeout=30.0,
            patience=60.0,
            look_ahead=look_ahead,
        )

    def train(self) -> dict[str, Any]:
        watch = _core.Watch(until={"updates": float(self.updates)})
        return _core.train(self.training, watch, rows=self.rows)


def test_a_placement_has_each_id_at_one_server() -> None:
    shards = [shard % 3 for shard in range(256)]
    placement = _core.RowPlacement([(False, SPREAD), (True, SPREAD), (False, 2)], shards)
    for number in (0, 1, 255, 256, 2**40 + 5, -1):  # as tables have them: the bits of 64
        assert placement.server(0, number) == shards[shard_of(number % 2**64, grows=False)]
        assert placement.server(1, number) == shards[shard_of(number % 2**64, grows=True)]
        assert placement.server(2, number) == 2
    assert placement.shards(1, 1) == [server == 1 for server in shards]
    assert not any(placement.shards(2, 1))
    assert all(placement.shards(2, 2))
    with pytest.raises(ValueError, match="shards must be 256 servers, got 3"):
        _core.RowPlacement([(False, SPREAD)], [0, 1, 2])
    with pytest.raises(ValueError, match="its number, or -1 where it is spread, got -2"):
        _core.RowPlacement([(False, -2)], shards)
    with pytest.raises(IndexError, match="no such table"):
        placement.shards(3, 0)
    with pytest.raises(IndexError, match="no such table"):
        placement.server(3, 0)


def test_a_server_is_made_of_the_tables_that_it_has_rows_of() -> None:
    specs = [TableSpec("a", rows=10, dim=2), TableSpec("b", rows=10, dim=2)]
    made = [table.native for table in tables.of(specs, rule=RULE, seed=3).values()]
    placement = placed(specs, 1)
    with pytest.raises(ValueError, match="those of which the placement gives rows to server 0"):
        _core.RowServer(made, [0], placement, 0, 1)
    with pytest.raises(ValueError, match="server 1"):
        _core.RowServer(made, [0, 1], placement, 1, 1)


def test_what_runs_in_a_quiet_moment_may_ask_the_server_and_may_fail() -> None:
    specs = [TableSpec("a", rows=10, dim=2)]
    made = [table.native for table in tables.of(specs, rule=RULE, seed=3).values()]
    server = _core.RowServer(made, [0], placed(specs, 1), 0, 1)
    server.restore([(4, 5, 6, 1, 4, 64), (2, 3, 1, 0, 1, 8)], 7)
    found: list[Any] = []
    server.quiet(lambda: found.append((server.applied(), server.counters()["pushes"])))
    assert found == [([(2, 3, 1, 0, 1, 8), (4, 5, 6, 1, 4, 64)], 7)]

    def fails() -> None:
        raise OSError("no space left")

    with pytest.raises(OSError, match="no space left"):
        server.quiet(fails)
    server.expire()
    with pytest.raises(ValueError, match="clients have come already"):
        server.restore([], 0)


@pytest.mark.parametrize("look_ahead", [0, 1])
@pytest.mark.parametrize("transport", ["tcp", "shm"])
def test_cuts_hide_nothing(tmp_path: Path, look_ahead: int, transport: str) -> None:
    """What became of each row's gradient is told once, as the tables have it, whatever is cut off."""
    seeds = range(look_ahead, look_ahead + 20)  # until a push was said again: a matter of moments
    assert any(_repeated(tmp_path / str(seed), look_ahead, transport, seed) for seed in seeds)


def _repeated(folder: Path, look_ahead: int, transport: str, seed: int) -> int:
    """How many pushes were said again, of a training whose connections are cut."""
    folder.mkdir()
    servers, updates = 2, 1000
    trainer = Trainer(servers, updates, look_ahead)
    lives = [Life(folder, trainer.specs, index, servers) for index in range(servers)]
    random = np.random.default_rng(seed)
    with ThreadPoolExecutor(1) as pool:
        connect(trainer.rows, lives, transport)
        training: Future[dict[str, Any]] = pool.submit(trainer.train)
        while not training.done():  # a connection in place of the one that there is
            server = int(random.integers(servers))
            connect_one(trainer.rows, lives[server], 0, server, transport)
    told = trainer.rows.counters()
    assert told["settled"] == servers * updates
    assert told["lost"] == told["unsettled"] == 0
    assert [life.server.counters()["pushes"] for life in lives] == [updates] * servers
    rows = training.result()["rows"]
    for what in ("applied", "staleness"):
        of = [table.statistics()[what] for life in lives for table in life.tables.values()]
        assert rows[what] == sum(of), what
    return sum(life.server.counters()["repeated"] for life in lives)


@pytest.mark.parametrize("look_ahead", [0, 1])
@pytest.mark.parametrize("transport", ["tcp", "shm"])
def test_pushes_are_lost_as_told_by_servers_that_are_killed(
    tmp_path: Path, look_ahead: int, transport: str
) -> None:
    """What a trainer has settled and not lost is what the servers have, to the push."""
    servers, updates, kills = 2, 5000, 4
    trainer = Trainer(servers, updates, look_ahead)
    lives = [Life(tmp_path, trainer.specs, index, servers) for index in range(servers)]

    def kill(index: int, *, saves: bool) -> None:
        if saves:
            lives[index].files.keep()
        lives[index].kill()
        lives[index] = Life(tmp_path, trainer.specs, index, servers)

    killed = before = 0
    with ThreadPoolExecutor(1) as pool:
        connect(trainer.rows, lives, transport)
        training: Future[dict[str, Any]] = pool.submit(trainer.train)
        while not training.done():
            connect(trainer.rows, lives, transport)
            begun = trainer.rows.counters()["pushes"]
            # (Who has ended does not hear of what is lost then.)
            if killed < kills and before + 200 <= begun < updates * 3 // 4:
                index = killed // 2  # each is killed twice in a row, with one snapshot
                saves = killed % 2 == 0
                lives[1 - index].server.quiet(partial(kill, index, saves=saves))  # nobody goes on
                killed, before = killed + 1, begun
            time.sleep(0.0005)
    assert training.result()["updates"] == updates
    assert killed == kills
    told = trainer.rows.counters()
    assert told["pushes"] == updates
    assert told["unsettled"] == told["not_finite"] == told["expired"] == 0
    has = [life.server.counters()["pushes"] for life in lives]
    assert told["settled"] == servers * updates
    assert told["settled"] - told["lost"] == sum(has)
    assert told["lost"] > 100 * servers
    for life in lives:
        ((client, *_),) = life.server.applied()
        assert client == 7
