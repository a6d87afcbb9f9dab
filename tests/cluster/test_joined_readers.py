"""Streams of files in ``cluster.join``: readers send the rows, whatever the model."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from cluster.processes import child
from cluster.test_joined_checkpoints import killed
from cluster.test_joined_tables import GROWING, RULE
from cluster.test_launched_tables import end, environment
from cluster.test_readers import BAGS, PLAIN, bag_lines, criteo_lines, plain_lines, same

import leashed as lsh
from leashed.cluster import (
    batch_wire,
    joining,
    node_servers,
    opening,
    passed_rows,
    placing,
    session,
    sources,
    trainer_session,
)
from leashed.cluster.reader import Rows
from leashed.cluster.remote_batches import _at_once, sent
from leashed.cluster.row_index import files_of, index_of
from leashed.cluster.row_parts import File
from leashed.cluster.session import Reached
from leashed.cluster.supervisor import read_report
from leashed.models import tables
from leashed.stream import criteo, csv
from leashed.training.rows_read import RowsRead

NUMBERS = {
    "y": lsh.stream.Label(),
    "a": lsh.stream.Number(scale=None),
    "b": lsh.stream.Number(scale=None),
}


def numbers(folder: Path, rows: int = 1000) -> Any:
    """A stream of numbers, of which one tells the label."""
    drawn = np.random.default_rng(3).normal(size=(rows, 2))
    lines = [f"{int(a > 0.2)},{a:.4f},{b:.4f}" for a, b in drawn]
    (folder / "n.csv").write_text("\n".join(["y,a,b", *lines]) + "\n")
    return csv(folder / "n.csv", NUMBERS)


def join(folder: Path, **given: Any) -> lsh.cluster.Cluster:
    of = {"rank": 0, "size": 1, "servers": 0, "readers": 2, **given}
    of.setdefault("look_ahead", 0 if of.get("embedding_servers") else None)
    return lsh.cluster.join(rendezvous="127.0.0.1", folder=folder, **of)


def ended(folder: Path, total: int, readers: int = 2) -> dict[str, Any]:
    report = read_report(folder / "run-0")
    assert report is not None
    assert report["state"] == "ended", report["reason"]
    ledger = report["ledger"]
    assert ledger["complete"] == ledger["total"] == total
    assert {one["index"] for one in report["members"] if one["role"] == "reader"} == set(
        range(readers)
    )
    return report


@pytest.mark.process
@pytest.mark.parametrize("of_tables", [True, False])
def test_one_trainer_has_the_bits_of_one_process(of_tables: bool, tmp_path: Path) -> None:
    if of_tables:
        (tmp_path / "a.csv").write_bytes(plain_lines(1000))
        rows: Any = csv(tmp_path / "a.csv", PLAIN)
        model: Any = lsh.models.dlrm(dim=4).shaped(rows)
        given: dict[str, Any] = {"embedding_servers": 2, "tables": GROWING}
    else:
        rows, given = numbers(tmp_path), {}
        model = lsh.models.mlp(2, [8], 2)
    how: dict[str, Any] = {
        "rule": RULE, "seed": 3, "batch_size": 32, "until": lsh.until(epochs=3),
        "discipline": lsh.Sequential(),
    }  # fmt: skip
    found = lsh.train(model, rows, cluster=join(tmp_path / "run", **given), **how)
    if of_tables:
        here = tables.of(model.tables, rule=RULE, seed=3, **GROWING)
        how["init"] = lsh.Init(model.init(3, "glorot"), here)
    alone = lsh.train(model, rows, **how)
    np.testing.assert_array_equal(found.parameters, alone.parameters)
    assert found.config["reading"] == alone.config["reading"]
    ended(tmp_path / "run", 94)
    if of_tables:
        output = lsh.load(tmp_path / "run" / "run-0" / "output")
        for name, table in alone.tables.items():
            ids = np.sort(table.ids())
            np.testing.assert_array_equal(output.tables[name].lookup(ids), table.lookup(ids))


def table_of(rows: int) -> Any:
    """A stream of a table in memory, its rows those of ``numbers``."""
    arrow = pytest.importorskip("pyarrow")
    drawn = np.random.default_rng(3).normal(size=(rows, 2))
    a, b = (np.array([f"{one:.4f}" for one in column], np.float32) for column in drawn.T)
    columns = {"y": (drawn[:, 0] > 0.2).astype(int), "a": a, "b": b}
    return lsh.stream.arrow(arrow.table(columns), NUMBERS)


@pytest.mark.process
def test_rows_of_a_table_in_memory_train_to_the_bits_of_those_of_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(passed_rows, "_PART", 128)
    how: dict[str, Any] = {
        "rule": RULE, "seed": 3, "batch_size": 32, "until": lsh.until(epochs=3),
        "discipline": lsh.Sequential(),
    }  # fmt: skip
    model = lsh.models.mlp(2, [8], 2)
    found = lsh.train(model, table_of(1000), cluster=join(tmp_path / "run", readers=1), **how)
    alone = lsh.train(model, numbers(tmp_path), **how)
    np.testing.assert_array_equal(found.parameters, alone.parameters)
    report = read_report(tmp_path / "run" / "run-0")
    assert report is not None
    assert (report["state"], report["ledger"]["complete"]) == ("ended", 94)


def test_any_rows_of_a_table_are_had_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(passed_rows, "_PART", 100)
    monkeypatch.setattr("leashed.cluster.reader._KEPT", 0)
    stream = table_of(1234)
    index = passed_rows.index_of(stream)
    assert (index.rows, len(index.parts)) == (1234, 13)
    assert index == passed_rows.index_of(table_of(1234))
    assert index.digest != passed_rows.index_of(table_of(1233)).digest
    whole = stream.open().read(None)
    drawn = np.random.default_rng(5)
    with contextlib.closing(Rows(index, passed_rows.PassedRows(stream), 1)) as rows:
        for _ in range(30):
            first, count = int(drawn.integers(1234)), int(drawn.integers(1, 400))
            end = min(first + count, 1234)
            parts = rows.read(first, end - first)
            for k in (0, 3):
                together = np.concatenate([part[k] for part in parts])
                np.testing.assert_array_equal(together, whole[k][first:end])
    given = iter([1234, 900])
    shrinks = lsh.stream.arrow(lambda: table_of(next(given))._source, NUMBERS)
    index = passed_rows.index_of(shrinks)
    with (
        contextlib.closing(Rows(index, passed_rows.PassedRows(shrinks), 1)) as rows,
        pytest.raises(ValueError, match="give what makes the same rows each time"),
    ):
        rows.read(900, 50)


def test_parts_of_a_table_have_fewer_rows_where_these_are_long(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(passed_rows, "_FIRST", 64)
    monkeypatch.setattr(passed_rows, "_BYTES", 20_000)
    arrow = pytest.importorskip("pyarrow")
    drawn = np.random.default_rng(5).normal(size=(1000, 100)).astype(np.float32)
    columns: dict[str, Any] = {f"c{k}": drawn[:, k] for k in range(100)}
    words = {"y": lsh.stream.Label(), **{name: lsh.stream.Number(scale=None) for name in columns}}
    table = arrow.table({"y": np.arange(1000) % 2, **columns})
    stream = lsh.stream.arrow(table, words)
    index = passed_rows.index_of(stream)
    assert index.rows == 1000
    assert max(part.rows for part in index.parts[1:]) * 400 <= 20_000
    with contextlib.closing(Rows(index, passed_rows.PassedRows(stream), 1)) as rows:
        for first in (950, 10, 500):
            x = np.concatenate([part[0] for part in rows.read(first, 50)])
            np.testing.assert_array_equal(x, drawn[first : first + 50])


def test_of_a_table_with_long_rows_few_are_asked_for_at_once() -> None:
    arrow = pytest.importorskip("pyarrow")
    long = [list(range(10_000))] * 50
    known = {"y": lsh.stream.Label(), "bag": lsh.stream.Id(between=" ")}
    table = arrow.table({"y": np.arange(50) % 2, "bag": long})
    index = passed_rows.index_of(lsh.stream.arrow(table, known))
    assert 8 <= _at_once(index, 8) <= batch_wire._MOST_BYTES // 80_000
    assert _at_once(passed_rows.index_of(table_of(1234)), 8) == 4096


@pytest.mark.process
def test_a_reader_of_a_node_stays_while_others_train_with_servers_of_rank_0(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = {"RANK": "1", "WORLD_SIZE": "2", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1"}
    for name, value in {**given, "MASTER_ADDR": "10.255.255.1"}.items():
        monkeypatch.setenv(name, value)
    (tmp_path / "key").write_bytes(b"k" * 32)
    (tmp_path / "key").chmod(0o600)
    trains = "import pathlib, time; time.sleep(1.5); pathlib.Path('{}').touch()"
    stayed = tmp_path / "stayed"
    words = [sys.executable, "-c", trains.format(stayed)]
    monkeypatch.setattr(joining, "_command", lambda _: lambda *_: words)
    cluster = lsh.cluster.join(
        embedding_servers=2,
        readers="nodes",
        folder=tmp_path / "own",
        key=tmp_path / "key",
        grace=0.1,
        timeout=0.1,
    )
    assert cluster.meet is not None
    stream = numbers(tmp_path)
    index = index_of(stream, None, tmp_path)
    read = RowsRead(lsh.models.dlrm().tables, [0, 1], lsh.SGD(0.1), lsh.staleness.none(), 0)
    met = cluster.meet(1, 1, 1, None, {}, read, None, sent(stream, index, 2))
    met.ended(Reached("run", None, np.zeros(1, np.float32), None))
    assert stayed.exists()


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ({"rule": "nonsense"}, "rule 'nonsense' is unknown"),
        ({"staleness": "nonsense"}, "staleness 'nonsense' is unknown"),
        ({"discipline": "nonsense"}, "discipline 'nonsense' is unknown"),
        ({"until": 3}, "until must be"),
        ({"batch_size": 0}, "batch_size must be"),
        ({"seed": -1}, "seed must be"),
    ],
)
def test_what_is_wrong_is_told_before_rows_are_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wrong: dict[str, Any], told: str
) -> None:
    monkeypatch.setattr(session.Cluster, "sending", lambda *_: pytest.fail("rows are counted"))
    cluster = join(tmp_path / "run")
    with pytest.raises((TypeError, ValueError), match=told):
        lsh.train(lsh.models.mlp(2, [8], 2), numbers(tmp_path), cluster=cluster, **wrong)


@pytest.mark.process
def test_what_is_not_said_follows_from_the_rows(tmp_path: Path) -> None:
    """Rule, batches and passes are those of one process; the second training has other files."""
    cluster = join(tmp_path / "run", embedding_servers=1, readers=1)
    for rows in (900, 1500):
        (tmp_path / "a.tsv").write_bytes(criteo_lines(rows))
        model, data = lsh.models.dlrm(dim=4, bottom=(8, 4), top=(8,)), criteo(tmp_path / "a.tsv")
        found = lsh.train(model, data, cluster=cluster, threads=1)
        alone = lsh.train(model, data, threads=1)
        same = ("rule", "batch_size", "until", "init")
        assert [found.config[name] for name in same] == [alone.config[name] for name in same]
        assert found.config["cluster"]["examples"] >= rows


CUT = """
import sys
from pathlib import Path

from cluster.test_joined_readers import fed

fed(Path(sys.argv[1]), **eval(sys.argv[2]))
"""


def fed(folder: Path, resume: Any = None, **given: Any) -> Any:
    """One trainer with one thread, of the file beside the folder, with checkpoints of the run."""
    rows = csv(folder.parent / "n.csv", NUMBERS)
    cluster = join(folder, checkpoint_every=0.2, **given)
    how: dict[str, Any] = {"rule": RULE, "seed": 3, "batch_size": 20, "discipline": "sequential"}
    until = lsh.until(epochs=150)
    return lsh.train(
        lsh.models.mlp(2, [8], 2), rows, cluster=cluster, resume=resume, until=until, **how
    )


@pytest.mark.process
def test_a_run_that_was_killed_goes_on_to_the_bits_of_one_that_was_not(tmp_path: Path) -> None:
    """With another number of readers."""
    numbers(tmp_path)
    whole = fed(tmp_path / "whole")
    run = killed(tmp_path / "killed", CUT)
    other = fed(tmp_path / "other", resume=run, readers=1)
    np.testing.assert_array_equal(other.parameters, whole.parameters)
    assert 0 < other.config["cluster"]["batches_used"] < 7500


@pytest.mark.process
def test_nobody_of_a_run_that_was_complete_is_told_to_have_trained_alone(tmp_path: Path) -> None:
    numbers(tmp_path)
    fed(tmp_path / "first", sync="ma")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        found = fed(tmp_path / "second", tmp_path / "first" / "run-0", sync="ma", size=2, grace=0.5)
    assert found.config["cluster"]["batches_used"] == 0
    assert not [one for one in caught if "never synchronised" in str(one.message)]


PROGRAM = """
import json, sys
from pathlib import Path
import leashed as lsh
from cluster.test_joined_readers import NUMBERS, table_of
folder, given = sys.argv[1], json.loads(sys.argv[2])
cluster = lsh.cluster.join(folder=folder, **given)
rows = table_of(1000) if given["readers"] == 1 else lsh.stream.csv(Path(folder).parent / "n.csv", NUMBERS)
result = lsh.train(
    lsh.models.mlp(2, [8], 2), rows, rule="sgd:lr=0.1", batch_size=20, until=lsh.until(epochs=40), threads=1,
    cluster=cluster,
)
told = result.config["cluster"]
accuracy = lsh.models.mlp(2, [8], 2).evaluate(result.parameters, rows.read())[1]
Path(folder, f"told-{cluster.index}").write_text(json.dumps({**told, "accuracy": accuracy}))
"""


@pytest.mark.process
@pytest.mark.parametrize("sync", ["easgd", "ma", "of a table"])
def test_trainers_without_tables_share_a_stream(sync: str, tmp_path: Path) -> None:
    numbers(tmp_path)
    (tmp_path / "program.py").write_text(PROGRAM)
    folder = tmp_path / "run"
    folder.mkdir()
    given = {"sync": "ma" if " " in sync else sync, "servers": int(sync == "easgd")}
    given["readers"] = 1 if " " in sync else 2
    end(
        *(
            subprocess.Popen(
                [sys.executable, tmp_path / "program.py", folder, json.dumps(given)],
                env=environment(RANK=rank, WORLD_SIZE=2, LOCAL_RANK=rank, LOCAL_WORLD_SIZE=2,
                                MASTER_ADDR="127.0.0.1", MASTER_PORT=29500),
                stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            )
            for rank in range(2)
        )
    )  # fmt: skip
    ended(folder, 2000, given["readers"])
    told = [json.loads((folder / f"told-{rank}").read_text()) for rank in range(2)]
    assert sum(one["batches_used"] for one in told) == 2000
    assert all(one["rows_received"] >= 20 * one["batches_used"] for one in told)
    assert min(one["accuracy"] for one in told) > 0.9


@pytest.mark.process
def test_a_reader_that_is_killed_is_started_again(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    home = tmp_path / "run" / "run-0"
    killed = threading.Event()

    def kill() -> None:
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline and not killed.is_set():
            report = read_report(home)
            pid = child(home, "reader", 0)
            if report is not None and pid is not None and report["ledger"]["complete"] > 50:
                os.kill(pid, signal.SIGKILL)
                killed.set()
            time.sleep(0.01)

    killer = threading.Thread(target=kill)
    killer.start()
    lsh.train(
        lsh.models.mlp(2, [8], 2), numbers(tmp_path), rule=RULE, threads=1, batch_size=20,
        until=lsh.until(epochs=2000, seconds=6), cluster=join(tmp_path / "run", readers=1),
    )  # fmt: skip
    killer.join()
    assert killed.is_set()
    assert "reader-0 ended by SIGKILL, and is started again" in capfd.readouterr().err
    report = read_report(home)
    assert report is not None
    assert len([one for one in report["members"] if one["role"] == "reader"]) == 2


@pytest.mark.process
def test_a_program_may_go_to_another_folder_before_it_trains(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows, model = numbers(tmp_path), lsh.models.mlp(2, [8], 2)
    monkeypatch.chdir(tmp_path)
    cluster = join(Path("run"), readers=1)
    (tmp_path / "other").mkdir()
    monkeypatch.chdir(tmp_path / "other")
    lsh.train(
        model, rows, threads=1, batch_size=20, rule=RULE, until=lsh.until(epochs=2), cluster=cluster
    )
    ended(tmp_path / "run", 100, 1)


def in_parquet(path: Path) -> Any:
    arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    columns = {"y": [0, 1] * 10, "a": [0.5] * 20, "b": [1.0] * 20}
    path = path.with_suffix(".parquet")
    parquet.write_table(arrow.table(columns), path)
    return lsh.stream.parquet(path, NUMBERS)


FM = lsh.models.fm(9)
MADE: dict[str, Callable[[Path], Any]] = {
    "criteo": lambda path: criteo(path, bad="skip"),
    "bags": lambda path: csv(path, BAGS),
    "without a header": lambda path: csv(path, BAGS, names=list(BAGS), separator=";"),
    "parquet": in_parquet,
    "libsvm": lambda path: lsh.stream.libsvm(path, 9, zero_based=True),
    "libffm": lambda path: lsh.stream.libffm(path, [0, 0, 1, 1, 1], bad="skip"),
}
LINES = {
    "without a header": b"1;2;3;4 5;1\n",
    "criteo": criteo_lines(30),
    "libsvm": b"1 3:1\n",
    "libffm": b"1 1:4:1\n",
}


@pytest.mark.parametrize("kind", MADE)
def test_a_reader_is_told_all_of_a_stream(kind: str, tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(LINES.get(kind, bag_lines(60)))
    stream = MADE[kind](path)
    model = FM if kind == "libsvm" else None
    given = sent(stream, index_of(stream, model, tmp_path / "run"), 2)
    if kind.startswith("lib"):
        given.open(distinct_columns=model is FM)
    found = sources.from_json(json.loads(json.dumps(sources.to_json(given))))
    known = files_of(stream, model)
    assert type(found) is type(known)
    assert json.dumps(found.told) == json.dumps(known.told)
    first = File.of(stream.files[0])
    of = known.count([first])
    assert found.count([first]) == of
    arrays = [
        each.parse(of.files[0], each.open(0, of.files[0]), of.parts[0]).arrays
        for each in (found, known)
    ]
    same(*arrays)


def test_what_does_not_go_together_is_refused_by_name(tmp_path: Path) -> None:
    wrong: list[tuple[dict[str, Any], str]] = [
        ({"readers": -1}, "readers must be at least 0"),
        ({"readers": "all"}, 'readers must be a number or "nodes"'),
        ({"readers": "nodes"}, "ranks a node has; give readers a number"),
    ]
    for given, told in wrong:
        with pytest.raises(ValueError, match=told):
            join(tmp_path / "run", **given)
    rows, model, how = numbers(tmp_path), lsh.models.mlp(2, [8], 2), {"until": lsh.until(epochs=1)}
    with pytest.raises(ValueError, match=r"start readers \(lsh\.cluster\.join\(readers=1\)"):
        lsh.train(model, rows, cluster=join(tmp_path / "0", readers=0), **how)
    cluster = join(tmp_path / "1")
    with pytest.raises(ValueError, match=r"readers is for streams; .* leashed\.stream\.csv"):
        lsh.train(model, rows.read(), cluster=cluster, **how)
    with pytest.raises(ValueError, match="leave shuffle out"):
        lsh.train(model, csv(tmp_path / "n.csv", NUMBERS, shuffle=10), cluster=cluster, **how)
    mine = r"objects of this process, which no other has: .* stream\.read\(\), without readers"
    with (tmp_path / "n.csv").open("rb") as file, pytest.raises(ValueError, match=mine):
        lsh.train(model, csv(file, NUMBERS), cluster=cluster, **how)
    arrow = pytest.importorskip("pyarrow")
    table = arrow.table({"y": [0, 1], "a": [0.5, 1.0], "b": [1.0, 0.0]})
    for source, told in (
        (table, "readers must be 1 for arrow, whose rows"),
        (table.to_reader(), mine),
    ):
        with pytest.raises(ValueError, match=told):
            lsh.train(model, lsh.stream.arrow(source, NUMBERS), cluster=cluster, **how)
    assert not list(tmp_path.glob("*/run-*"))


@pytest.mark.parametrize("reads", ["rows", "a checkpoint", "nothing"])
def test_rank_0_may_read_as_long_as_patience_before_it_begins(
    reads: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Others join no sooner: a large checkpoint is compared with its checksums first."""

    class Asked(Exception):
        """For how long to join."""

    def member(*_: Any, deadline: float, **__: Any) -> None:
        raise Asked(deadline)

    def whole(_: Path) -> Any:
        return SimpleNamespace(told={"run": "a"}, number=1, require=lambda *_, **__: None)

    monkeypatch.setattr(trainer_session, "Member", member)
    monkeypatch.setattr(session, "Checkpoint", whole)
    cluster = session.Cluster(
        1, 2, 0, "", key=opening.Key(bytes(32), given=False), patience=400.0, readers=1,
        meet=lambda *_: session.Met("127.0.0.1:9", lambda _: None, None),
        begins=Path("7") if reads == "a checkpoint" else None,
    )  # fmt: skip
    given: Any = (
        {"sent": SimpleNamespace(index=SimpleNamespace(once=False))} if reads == "rows" else {}
    )
    how: Any = {"total": 9, "batch_size": 4, "workers": 1, "lockstep": False}
    with pytest.raises(Asked) as found:
        cluster.session(3, None, **how, **given)
    assert found.value.args == (30.0 if reads == "nothing" else 400.0,)


def test_the_first_rank_of_each_node_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"RANK": 3, "WORLD_SIZE": 4, "LOCAL_RANK": 1, "LOCAL_WORLD_SIZE": 2}.items():
        monkeypatch.setenv(name, str(value))
    monkeypatch.setenv("MASTER_ADDR", "127.0.0.1")
    place = placing.find(os.environ, rank=None, size=None, rendezvous=None)
    assert node_servers.placed("readers", "nodes", "reader", place, "f") == (2, [])
    monkeypatch.setenv("RANK", "2")
    monkeypatch.setenv("LOCAL_RANK", "0")
    place = placing.find(os.environ, rank=None, size=None, rendezvous=None)
    found = node_servers.placed("readers", "nodes", "reader", place, "f")
    assert found == (2, [("reader", 1)])
