"""Trainings whose rows are at embedding servers, beside those of one process."""

from __future__ import annotations

import contextlib
import itertools
import secrets
import signal
import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import made_clicks
import numpy as np
import pytest

import leashed as lsh
from leashed import _core, datasets
from leashed.models import Graph, tables
from leashed.simulation import EmbeddingServers
from leashed.staleness import none
from leashed.training.sets import Clicks, head_of, source_of, training_of

SEED = 3
TIMEOUT = 20.0
_lives = itertools.count(1)


@dataclass
class Example:
    model: Graph
    data: Any
    rule: lsh.Rule = field(default_factory=lambda: lsh.Adagrad(0.05))
    given: dict[str, Any] = field(default_factory=dict)  # of tables

    def tables(self, **given: Any) -> dict[str, lsh.Table]:
        return tables.of(self.model.tables, rule=self.rule, seed=SEED, **self.given, **given)

    def clicks(self) -> Clicks:
        return Clicks(self.model, self.data, "data")

    def training(self, workers: int, of: list[lsh.Table], batch_size: int = 32) -> _core.Training:
        clicks = self.clicks()
        discipline = lsh.Sequential() if workers == 1 else lsh.Hogwild()
        return training_of(
            source_of(self.model, clicks),
            self.model.init(SEED),
            head_of(clicks),
            discipline=discipline.choice(),
            rule=lsh.SGD(0.05).choice(),
            staleness=none().choice(),
            workers=workers,
            batch_size=batch_size,
            seed=SEED,
            tables=[table.native for table in of],
        )


@dataclass
class Servers:
    """Of one example's tables, in threads of this process."""

    example: Example
    count: int
    whole: bool = False  # each table is at one server
    transport: str = "tcp"
    loops: int = 1

    def __post_init__(self) -> None:
        specs = list(self.example.model.tables)
        self.names = [spec.name for spec in specs]
        self.placement = _core.RowPlacement(
            [
                (spec.rows is None, i % self.count if self.whole else -1)
                for i, spec in enumerate(specs)
            ],
            [shard % self.count for shard in range(256)],
        )
        self.tables, self.natives = [], []
        for server in range(self.count):
            shards = {name: self.placement.shards(i, server) for i, name in enumerate(self.names)}
            mine = self.example.tables(shards=shards)
            numbers = [i for i, name in enumerate(self.names) if name in mine]
            self.tables.append(mine)
            self.natives.append(
                _core.RowServer(
                    [mine[self.names[i]].native for i in numbers],
                    numbers,
                    self.placement,
                    server,
                    secrets.randbits(62),
                    self.loops,
                )
            )

    def rows(
        self, workers: int, look_ahead: int, pooling: str = "auto", patience: float = TIMEOUT
    ) -> _core.RemoteRows:
        return _core.RemoteRows(
            tables=[(spec.name, spec.dim, spec.rows or 0) for spec in self.example.model.tables],
            features=source_of(self.example.model, self.example.clicks()).features_of_tables,
            placement=self.placement,
            servers=self.count,
            workers=workers,
            readers=2,
            client=0,
            life=next(_lives),
            timeout=patience,
            patience=patience,
            look_ahead=look_ahead,
            poolings=self.example.model.poolings,
            pooling=pooling,
        )

    def join(self, rows: _core.RemoteRows) -> None:
        with ThreadPoolExecutor(1) as pool, socket.create_server(("127.0.0.1", 0)) as listening:
            for slot, server in rows.missing(self.count):
                ours = socket.create_connection(listening.getsockname())
                theirs, _ = listening.accept()
                for end in (ours, theirs):
                    end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                native = self.natives[server]
                adopted = pool.submit(native.adopt, theirs.detach(), False, self.transport)
                assert rows.adopt(slot, server, ours.detach(), False, self.transport, TIMEOUT)
                adopted.result()

    def train(
        self,
        workers: int = 1,
        look_ahead: int = 0,
        updates: int = 40,
        batch_size: int = 32,
        pooling: str = "auto",
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """What the training tells, and what its rows have counted."""
        rows = self.rows(workers, look_ahead, pooling)
        self.join(rows)
        training = self.example.training(workers, [], batch_size)
        outcome = _core.train(training, watch(updates), rows=rows)
        return outcome, rows.counters()

    def lookup(self, name: str, ids: Any) -> Any:
        """The values of rows, and how often each was updated."""
        number = self.names.index(name)
        at = np.array([self.placement.server(number, int(i)) for i in ids])
        values = np.empty((len(ids), self.example.model.tables[number].dim), np.float32)
        for server in np.unique(at):
            mine = at == server
            values[mine] = self.tables[server][name].lookup(ids[mine])
        return values


def watch(updates: float) -> _core.Watch:
    return _core.Watch(until={"updates": float(updates)})


def ids_of(table: lsh.Table) -> Any:
    return np.asarray(table.ids(), np.int64)


def clicks(cardinality: int = 300) -> Any:
    return datasets.synthetic_clicks(2000, seed=1, test=10, cardinalities=cardinality).train


def histories() -> Any:
    return datasets.synthetic_histories(1500, test=100).train


GROWING = {"max_bytes": 1 << 24}
EXAMPLES = {
    "dlrm": lambda: Example(lsh.models.dlrm(300), clicks()),
    "dlrm of dim 10": lambda: Example(lsh.models.dlrm(300, 10), clicks()),
    "growing": lambda: Example(lsh.models.dlrm(None), clicks(), given=GROWING),
    "growing, admitted after 3": lambda: Example(
        lsh.models.dlrm(None), clicks(), given={**GROWING, "admit_after": 3}
    ),
    "din": lambda: Example(lsh.models.din(categories=None), histories(), given=GROWING),
    "shared": lambda: _shared("one"),
    "shared, empty bags": lambda: _shared("bags"),
    "shared, weights": lambda: _shared("weights"),
    "sgd": lambda: _shared("bags", lsh.SGD(0.1)),
    "adam": lambda: _shared("bags", lsh.Adam(0.01)),
    "rmsprop": lambda: _shared("bags", lsh.RMSprop(0.01)),
    "swap": lambda: _shared("bags", lsh.SWAP(lsh.Adagrad(0.05), period=7)),
}


def _shared(kind: str, rule: lsh.Rule | None = None) -> Example:
    graph = made_clicks.shared()
    return Example(graph, made_clicks.clicks(graph, kind=kind), rule or lsh.Adagrad(0.05))


def same_bits(example: Example, servers: Servers, outcome: dict[str, Any], updates: int) -> None:
    local = example.tables()
    alone = _core.train(example.training(1, list(local.values())), watch(updates))
    assert np.array_equal(alone["parameters"], outcome["parameters"])
    for name, table in local.items():
        ids = ids_of(table)
        assert np.array_equal(table.lookup(ids), servers.lookup(name, ids)), name
        there = [set(ids_of(each[name])) for each in servers.tables if name in each]
        assert set.union(*there) == set(ids)
    assert alone["rows"]["applied"] == outcome["rows"]["applied"]
    assert outcome["rows"]["staleness"] == 0


@pytest.mark.parametrize("name", EXAMPLES)
def test_one_worker_has_the_bits_of_one_process(name: str) -> None:
    example = EXAMPLES[name]()
    servers = Servers(example, 2)
    outcome, counted = servers.train()
    same_bits(example, servers, outcome, 40)
    assert counted["pushes"] == 40
    assert counted["settled"] == 80
    assert counted["lost"] == counted["unsettled"] == counted["cuts"] == 0


FULL = {
    "full": {},
    "full, admitted after 2": {"admit_after": 2},
    "full, by SWAP": {"rule": lsh.SWAP(lsh.Adam(0.01), period=5)},
}
EVICTING = {
    "by age": {"evict": "age"},
    "by norm": {"evict": "norm"},
    "by age, admitted after 3": {"evict": "age", "admit_after": 3},
    "by norm, by SWAP": {"evict": "norm", "rule": lsh.SWAP(lsh.Adagrad(0.05), period=7)},
}
COUNTED = (
    "rows", "capacity", "asked", "found", "admitted", "evicted", "applied", "late", "excluded",
    "unadmitted", "deferred", "refused", "staleness", "stalest",
)  # fmt: skip


def at_limits(given: dict[str, Any]) -> Example:
    """Of tables with room for a part of the ids."""
    given = {"max_bytes": 20_000, **given}
    rule = given.pop("rule", lsh.Adagrad(0.05))
    return Example(lsh.models.dlrm(None), clicks(2000), rule, given)


def statistics(of: dict[str, lsh.Table]) -> dict[str, int]:
    told = [table.statistics() for table in of.values()]
    return {name: sum(each[name] for each in told) for name in COUNTED}


@pytest.mark.parametrize("name", FULL)
def test_tables_that_are_full_have_the_bits_and_counts_of_one_process(name: str) -> None:
    """At one server, which has as much room: the same ids are refused a row."""
    example = at_limits(FULL[name])
    servers = Servers(example, 1)
    outcome, _ = servers.train(updates=150)
    same_bits(example, servers, outcome, 150)
    local = example.tables()
    _core.train(example.training(1, list(local.values())), watch(150))
    for each, table in local.items():
        ids, there = ids_of(table), servers.tables[0][each]
        versions = [of.lookup(ids, versions=True)[1] for of in (table, there)]
        np.testing.assert_array_equal(*versions)
    counted = statistics(local)
    assert statistics(servers.tables[0]) == counted
    assert counted["refused"] > 500
    assert (counted["unadmitted"] > 500) == ("admit_after" in FULL[name])


@pytest.mark.parametrize("name", EVICTING)
def test_tables_that_evict_at_a_server_do_so_as_in_one_process(name: str) -> None:
    """Not to the bit, as there the next batch's rows are found, and kept, while one is computed."""
    example = at_limits(EVICTING[name])
    first, again = Servers(example, 1), Servers(example, 1)
    outcome, counted = first.train(updates=150)
    assert np.array_equal(outcome["parameters"], again.train(updates=150)[0]["parameters"])
    local = example.tables()
    _core.train(example.training(1, list(local.values())), watch(150))
    alone, told = statistics(local), statistics(first.tables[0])
    assert counted["settled"] == 150
    assert told["asked"] == alone["asked"]
    assert told["evicted"] > 500
    unadmitted = alone["unadmitted"] > 0
    assert unadmitted == ("admit_after" in EVICTING[name])
    for what in ("rows", "admitted", "evicted", "applied", "unadmitted"):
        assert told[what] == pytest.approx(alone[what], rel=0.05), what
    assert told["refused"] + told["deferred"] + told["late"] < 0.01 * told["asked"]
    assert told["staleness"] == alone["staleness"] == 0


def test_tables_evict_while_others_look_up() -> None:
    """With two workers, that evaluate too: each id of a push has made an update, or is counted."""
    example = at_limits({"evict": "age"})
    servers = Servers(example, 2, loops=2)
    rows = servers.rows(2, 1)
    servers.join(rows)
    until = _core.Watch(until={"updates": 300.0, "loss": 0.0001}, evaluate_every=0.002)
    outcome = _core.train(example.training(2, []), until, rows=rows)
    told = rows.counters()
    assert told["reads"] > 0
    assert told["settled"] == 2 * outcome["updates"]
    counted = [statistics(each) for each in servers.tables]
    for each, native in zip(counted, servers.natives, strict=True):
        assert each["evicted"] > 500
        without = each["late"] + each["unadmitted"] + each["deferred"] + each["refused"]
        assert each["applied"] + without == native.counters()["pushed"]
    for name in servers.names:  # whoever has a row has it once, at its own server
        there = [set(ids_of(each[name])) - {0, -1} for each in servers.tables]
        assert not set.intersection(*there)


@pytest.mark.parametrize("transport", ["tcp", "shm"])
@pytest.mark.parametrize(("count", "whole"), [(1, False), (2, True), (3, False), (3, True)])
def test_any_number_of_servers_has_the_bits(count: int, whole: bool, transport: str) -> None:
    example = EXAMPLES["dlrm"]()
    servers = Servers(example, count, whole, transport)
    outcome, _ = servers.train()
    same_bits(example, servers, outcome, 40)


@pytest.mark.parametrize("name", ["dlrm", "adam", "growing"])
def test_with_several_loops_too(name: str) -> None:
    example = EXAMPLES[name]()
    servers = Servers(example, 2, loops=3)
    outcome, _ = servers.train()
    same_bits(example, servers, outcome, 40)


@pytest.mark.parametrize(
    ("workers", "loops", "look_ahead"),
    [(1, 1, 1), (2, 1, 1), (4, 3, 1), (1, 1, 2), (3, 1, 2), (2, 1, _core.MOST_AHEAD)],
)
def test_all_pushes_with_a_look_ahead_are_in_the_rows(
    workers: int, loops: int, look_ahead: int
) -> None:
    example = EXAMPLES["dlrm"]()
    servers = Servers(example, 2, loops=loops)
    outcome, counted = servers.train(workers, look_ahead=look_ahead, updates=200)
    assert outcome["updates"] == counted["pushes"] == 200
    assert counted["settled"] == 400
    told = [native.counters() for native in servers.natives]
    assert [each["pushes"] for each in told] == [200, 200]
    # Each row of a push is one update, whose staleness its server tells.
    assert outcome["rows"]["applied"] == sum(each["pushed"] for each in told)
    assert outcome["rows"]["staleness"] > 0
    assert counted["lookups"] <= 200 + (0 if workers == 1 else workers * look_ahead)
    assert counted["rows"] >= outcome["rows"]["applied"]
    assert sum(each["expired"] for each in told) == 0


def test_one_worker_reads_rows_as_many_batches_old_as_it_looks_ahead() -> None:
    """Batches of the same ids, so that each row of one is in all of them."""
    graph = lsh.models.dlrm([1] * 26)
    data = datasets.synthetic_clicks(2000, seed=1, test=10, cardinalities=1).train
    for look_ahead in range(_core.MOST_AHEAD + 1):
        outcome, _ = Servers(Example(graph, data), 2).train(look_ahead=look_ahead)
        rows = outcome["rows"]
        assert rows["stalest"] == look_ahead
        assert rows["applied"] == 40 * 26
        assert rows["staleness"] == 26 * (40 * look_ahead - look_ahead * (look_ahead + 1) // 2)


def test_batches_of_thousands_go_ahead() -> None:
    servers = Servers(EXAMPLES["dlrm"](), 2)
    outcome, counted = servers.train(look_ahead=1, updates=6, batch_size=1500)
    assert outcome["updates"] == 6
    assert counted["bytes_out"] + counted["bytes_in"] < 1.2 * counted["least_bytes"]


@pytest.mark.parametrize(
    ("name", "count", "whole"),
    [("dlrm", 1, True), ("dlrm", 2, True), ("dlrm", 30, False), ("shared", 5, False)],
)
def test_bytes_are_those_that_virtual_time_counts(name: str, count: int, whole: bool) -> None:
    example = EXAMPLES[name]()
    _, counted = Servers(example, count, whole=whole).train(pooling="rows")
    crew = lsh.simulation.constant(1, 0.01)
    played = lsh.simulate(
        example.model,
        example.data,
        cluster=crew.trainers(1, rows=EmbeddingServers(count, look_ahead=0)),
        batch_size=32,
        seed=SEED,
        discipline=lsh.Hogwild(),
        rule=example.rule,
        until=lsh.until(updates=40),
    ).trainers
    assert played is not None
    hello, welcome = 24, 40  # and a probe, and headers of frames
    assert counted["bytes_in"] == played.row_bytes_in + count * (41 + 40 + welcome)
    assert counted["bytes_out"] == played.row_bytes_out + count * (41 + 40 + hello)


def test_losses_are_those_of_one_process() -> None:
    example = EXAMPLES["dlrm"]()
    servers = Servers(example, 2)
    rows = servers.rows(1, 0)
    servers.join(rows)
    until = _core.Watch(until={"updates": 40.0, "loss": 0.01}, evaluate_every=0.001)
    outcome = _core.train(example.training(1, []), until, rows=rows)
    local = list(example.tables().values())
    until = _core.Watch(until={"updates": 40.0, "loss": 0.01}, evaluate_every=0.001)
    alone = _core.train(example.training(1, local), until)
    assert outcome["evaluations"][-1]["loss"] == alone["evaluations"][-1]["loss"]
    assert rows.counters()["reads"] > 0


@contextlib.contextmanager
def _never_answers() -> Iterator[socket.socket]:
    ours, theirs = socket.socketpair()
    with theirs:
        yield ours


@contextlib.contextmanager
def standing_still(server: _core.RowServer) -> Iterator[None]:
    """It answers nobody."""
    held, over = threading.Event(), threading.Event()

    def hold() -> None:
        held.set()
        over.wait()

    thread = threading.Thread(target=server.quiet, args=(hold,))
    thread.start()
    held.wait()
    try:
        yield
    finally:
        over.set()
        thread.join()


@pytest.mark.parametrize("why", ["seconds", "a signal", "the session"])
def test_whoever_waits_for_a_server_goes_on_when_the_run_is_over(why: str) -> None:
    servers = Servers(EXAMPLES["dlrm"](), 2)
    rows = servers.rows(2, 1, patience=120.0)
    servers.join(rows)
    training = servers.example.training(2, [])
    until = {"seconds": 0.5 if why == "seconds" else 1000.0}
    with standing_still(servers.natives[1]):
        if why == "a signal":
            threading.Timer(0.5, signal.raise_signal, (signal.SIGINT,)).start()
        elif why == "the session":
            threading.Timer(0.5, rows.forsake).start()
        outcome = _core.train(training, _core.Watch(until=until), rows=rows)
    assert outcome["reason"] == ("seconds" if why == "seconds" else "interrupted")
    assert outcome["updates"] == 0
    assert rows.counters()["pushes"] == 0


@pytest.mark.parametrize("which", ["first", "last"])
def test_an_evaluation_that_waits_for_a_server_ends_when_the_run_is_over(which: str) -> None:
    """With what was trained, and not with an error."""
    servers = Servers(EXAMPLES["dlrm"](), 2)
    rows = servers.rows(2, 1, patience=20.0)
    servers.join(rows)
    training = servers.example.training(2, [])
    with contextlib.ExitStack() as stack:
        stands: list[bool] = []

        def stand(*_: object) -> None:
            if not stands:
                stack.enter_context(standing_still(servers.natives[1]))
                stands.append(True)
                # When the training has ended, where it had begun.
                threading.Timer(1.0, rows.forsake).start()

        if which == "first":
            stand()
        until = {"seconds": 0.1}
        watch = _core.Watch(until=until, evaluate_every=1e6, progress=stand)
        outcome = _core.train(training, watch, rows=rows)
    assert outcome["reason"] == "interrupted"
    assert len(outcome["evaluations"]) == 1
    assert np.isfinite(outcome["evaluations"][0]["loss"]) == (which == "last")


def test_a_server_that_never_answers_is_named() -> None:
    example = EXAMPLES["shared"]()
    servers = Servers(example, 2)
    rows = _core.RemoteRows(
        tables=[(spec.name, spec.dim, spec.rows or 0) for spec in example.model.tables],
        features=source_of(example.model, example.clicks()).features_of_tables,
        placement=servers.placement,
        servers=2,
        workers=1,
        readers=1,
        client=0,
        life=1,
        timeout=0.2,
        patience=0.5,
    )
    ours, theirs = socket.socketpair()
    servers.natives[0].adopt(theirs.detach(), True)
    assert rows.adopt(0, 0, ours.detach(), True)
    with _never_answers() as silent:
        rows.adopt(0, 1, silent.detach(), True)
        with pytest.raises(_core.Error, match=r"embedding server 1 .*patience"):
            _core.train(example.training(1, []), watch(5), rows=rows)


def test_a_server_that_is_expected_is_waited_for_beyond_patience() -> None:
    example = EXAMPLES["shared"]()
    servers = Servers(example, 1)
    rows = servers.rows(1, 0, patience=0.5)

    def comes() -> None:
        for _ in range(30):
            rows.expect()
            time.sleep(0.05)
        servers.join(rows)

    thread = threading.Thread(target=comes)
    thread.start()
    outcome = _core.train(example.training(1, []), watch(5), rows=rows)
    thread.join()
    assert outcome["updates"] == 5


def test_rows_of_other_tables_and_disciplines_in_lockstep_are_refused() -> None:
    example = EXAMPLES["dlrm"]()
    other = Servers(EXAMPLES["shared"](), 1).rows(1, 0)
    with pytest.raises(ValueError, match="rows must be of the"):
        _core.train(example.training(1, []), watch(1), rows=other)
    few = Servers(example, 1).rows(1, 0)
    with pytest.raises(ValueError, match="of 2 workers"):
        _core.train(example.training(2, []), watch(1), rows=few)
    with pytest.raises(_core.Error, match="look_ahead must be at most 5 batches, got 6"):
        Servers(example, 1).rows(1, 6)


@pytest.mark.parametrize("workers", [1, 2])
def test_an_interrupted_training_ends_while_a_server_is_away(workers: int) -> None:
    example = EXAMPLES["shared"]()
    rows = Servers(example, 1).rows(workers, 0)
    begin = time.monotonic()
    threading.Timer(0.3, signal.raise_signal, (signal.SIGINT,)).start()
    outcome = _core.train(example.training(workers, []), watch(5), rows=rows)
    assert outcome["reason"] == "interrupted"
    assert time.monotonic() - begin < TIMEOUT
