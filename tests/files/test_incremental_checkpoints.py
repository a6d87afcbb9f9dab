"""Checkpoints of the rows that have changed: the same runs as with whole ones, whole at every moment."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from files.test_table_checkpoints import RULES, assert_alike, dlrm, manifest_of, rows_of, run
from hypothesis import given
from hypothesis import strategies as st
from table_files import header_in, rows_in

import leashed as lsh
from leashed import Table
from leashed.files import folders, model_file, resuming
from leashed.models import Concat, Dense, Embedding, Graph, TableSpec


def files_of(folder: Path) -> set[str]:
    manifest = manifest_of(folder)
    tables = list(manifest["tables"].values())
    told = [manifest["model"], *tables, *(c for table in tables for c in table["changes"])]
    return {"manifest.json", *(one["file"] for one in told)}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "run"


@pytest.fixture
def scratch(tmp_path: Path) -> Path:
    return tmp_path / "rows"


@pytest.fixture
def never_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    """In small tables most rows change at once."""
    monkeypatch.setattr("leashed.files.folders._MOST_OF_BASE", 1e9)


@pytest.mark.usefixtures("never_anew")
@pytest.mark.parametrize("rows", [50, None], ids=["fixed", "growing"])
@pytest.mark.parametrize("rule", RULES, ids=lambda rule: type(rule).__name__)
def test_a_run_that_resumes_from_changes_is_the_uninterrupted_one(
    rule: lsh.Rule, rows: int | None, folder: Path, scratch: Path
) -> None:
    model = dlrm(rows)
    whole = run(40, model, rule=rule)
    run(12, model, rule=rule, checkpoint=lsh.Checkpoint(folder, updates=4, incremental=True))
    assert any(table["changes"] for table in manifest_of(folder)["tables"].values())
    run(23, model, rule=rule, resume=folder, checkpoint=lsh.Checkpoint(folder, incremental=True))
    resumed = run(40, model, rule=rule, resume=folder)
    assert_alike(resumed, whole, scratch)
    assert resumed.config["resumed_exact"]
    assert {path.name for path in folder.iterdir()} == files_of(folder)


def test_a_folder_of_changes_is_restored_loaded_and_saved_over(folder: Path, scratch: Path) -> None:
    model = dlrm(None)
    result = run(9, model, checkpoint=lsh.Checkpoint(folder, updates=3, incremental=True))
    restored = lsh.load(folder)
    for name, table in result.tables.items():
        table.save(scratch)
        rows = rows_in(scratch)
        restored.tables[name].save(scratch)
        assert rows_in(scratch) == rows
    np.testing.assert_array_equal(restored.parameters, result.parameters)
    lsh.save(folder, model, result.parameters, result.tables)
    assert manifest_of(folder)["version"] == 1
    # Other changes than the folder is of are not added to it.
    run(
        12,
        model,
        init=lsh.Init(tables=result.tables),
        checkpoint=lsh.Checkpoint(folder, incremental=True),
    )
    lsh.save(folder, model, result.parameters, result.tables)
    again = run(
        15,
        model,
        init=lsh.Init(tables=result.tables),
        checkpoint=lsh.Checkpoint(folder, incremental=True),
    )
    restored = lsh.load(folder)
    for name, table in again.tables.items():
        table.save(scratch)
        rows = rows_in(scratch)
        restored.tables[name].save(scratch)
        assert rows_in(scratch) == rows


def tables_of(rows: int) -> dict[str, Table]:
    return {"t": Table(rows=rows, dim=16, rule=lsh.Adagrad(0.05))}


def change(table: Table, ids: Any) -> None:
    table.update(ids, np.ones((len(ids), 16), np.float32))


def put_model(path: Path) -> None:
    path.write_bytes(b"model")


def test_few_changes_are_few_bytes_and_many_are_all_rows_anew(folder: Path) -> None:
    tables = tables_of(20_000)
    folder.mkdir()

    def write() -> Any:
        folders.write(folder, tables, put_model, exact=True, incremental=True)
        return manifest_of(folder)["tables"]["t"]

    first = write()
    change(tables["t"], np.arange(200))
    told = write()
    assert told["file"] == first["file"]
    assert told["changes"][0]["bytes"] < 0.03 * told["bytes"]
    for _ in range(2):
        change(tables["t"], np.arange(6_000))
        assert write()["file"] == first["file"]
    change(tables["t"], np.arange(1))
    compacted = write()
    assert compacted["file"] != first["file"]
    assert compacted["changes"] == []
    assert {path.name for path in folder.iterdir()} == files_of(folder)
    for _ in range(64):
        assert write()["file"] == compacted["file"]
    assert write()["file"] != compacted["file"]


def test_after_a_failure_all_rows_are_written(folder: Path) -> None:
    tables = tables_of(100)
    folder.mkdir()
    folders.write(folder, tables, put_model, exact=True, incremental=True)
    change(tables["t"], [1, 2])

    def fails(_: Path) -> None:
        raise OSError("no space")

    with pytest.raises(OSError, match="no space"):
        folders.write(folder, tables, fails, exact=True, incremental=True)
    assert {path.name for path in folder.iterdir()} == files_of(folder)
    change(tables["t"], [3])
    folders.write(folder, tables, put_model, exact=True, incremental=True)
    again = tables_of(100)
    folders.opened(folder).load(again)
    np.testing.assert_array_equal(again["t"].lookup([1, 2, 3]), tables["t"].lookup([1, 2, 3]))


def test_after_another_file_was_loaded_all_rows_are_written(folder: Path, scratch: Path) -> None:
    tables = tables_of(100)
    folder.mkdir()
    folders.write(folder, tables, put_model, exact=True, incremental=True)
    change(tables["t"], [1, 2])
    tables["t"].save(scratch)
    tables["t"].load(scratch)
    change(tables["t"], [3])
    for _ in range(2):
        folders.write(folder, tables, put_model, exact=True, incremental=True)
    again = tables_of(100)
    folders.opened(folder).load(again)
    np.testing.assert_array_equal(again["t"].lookup([1, 2, 3]), tables["t"].lookup([1, 2, 3]))


@pytest.mark.usefixtures("never_anew")
@pytest.mark.parametrize("how", ["missing", "altered"])
def test_changes_that_are_damaged_are_refused(how: str, folder: Path) -> None:
    run(9, checkpoint=lsh.Checkpoint(folder, updates=3, incremental=True))
    told = next(t for t in manifest_of(folder)["tables"].values() if t["changes"])
    path = folder / told["changes"][0]["file"]
    if how == "missing":
        path.unlink()
    else:
        path.write_bytes(path.read_bytes()[:-1] + b"x")
    with pytest.raises(FileNotFoundError if how == "missing" else ValueError, match=path.name):
        run(12, resume=folder)


@pytest.mark.usefixtures("never_anew")
def test_tables_that_evict_are_written_as_changes(folder: Path, scratch: Path) -> None:
    def made() -> Table:
        return Table(dim=4, max_bytes=20_000, evict="age", rule=lsh.SGD(0.5), name="t")

    table = made()
    model = Graph(Embedding(TableSpec("t", 4)) >> Dense(1))
    folder.mkdir()
    draw, evicted = np.random.default_rng(0), 0

    def put_model(path: Path) -> None:
        model_file.write(path, model, model_file.parts(model, model.init()))

    for written in range(6):
        for _ in range(20):
            ids = np.unique(draw.integers(0, 2_000, 8))
            table.update(ids, draw.normal(0, 1, (len(ids), 4)))
        folders.write(folder, {"t": table}, put_model, exact=True, incremental=True)
        assert len(manifest_of(folder)["tables"]["t"]["changes"]) == written
        again = lsh.load(folder).tables["t"]
        assert rows_of(again, scratch) == rows_of(table, scratch)
        evicted += table.statistics()["evicted"]
        # One that goes on with the folder's files does so with changes too.
        table = made()
        folders.opened(folder).load({"t": table}, incremental=True)
    assert evicted > 100


KINDS: dict[str, Callable[[], Table]] = {
    "fixed": lambda: Table(rows=60, dim=3, rule=lsh.Adagrad(0.1)),
    "growing": lambda: Table(dim=3, max_bytes=2**16, rule=lsh.Adagrad(0.1)),
    "admitting": lambda: Table(dim=3, max_bytes=2**16, rule=lsh.Adagrad(0.1), admit_after=2),
    "age": lambda: Table(dim=3, max_bytes=9_000, evict="age", rule=lsh.Adagrad(0.1)),
    "norm": lambda: Table(dim=3, max_bytes=9_000, evict="norm", rule=lsh.Adagrad(0.1)),
    "age, admitting": lambda: Table(
        dim=3, max_bytes=9_000, evict="age", admit_after=2, rule=lsh.Adagrad(0.1)
    ),
    "norm, SWAP": lambda: Table(
        dim=3, max_bytes=12_000, evict="norm", rule=lsh.SWAP(lsh.Adam(0.1), period=5)
    ),
    "age, stage-aware": lambda: Table(
        dim=3,
        max_bytes=12_000,
        evict="age",
        rule=lsh.SGD(0.1),
        staleness=lsh.staleness.stage_aware(lsh.staleness.inverse()),
    ),
}
TRAINED = st.tuples(st.just("train"), st.integers(1, 12), st.integers(1, 40))
EVENTS = st.one_of(
    TRAINED,
    TRAINED,
    st.just(("new", 0, 0)),  # ids that have not been there, so that others go
    st.just(("back", 0, 0)),  # those that have gone come back
    st.just(("changes", 0, 0)),
    st.just(("changes", 0, 0)),
    st.just(("all", 0, 0)),
    st.just(("fail", 0, 0)),
    st.just(("restore", 0, 0)),
)


@pytest.mark.filterwarnings("ignore:table .* is full:RuntimeWarning")
@pytest.mark.parametrize("kind", KINDS)
@given(events=st.lists(EVENTS, max_size=30), seed=st.integers(0, 2**32), quiet=st.booleans())
def test_all_rows_and_their_changes_are_what_a_file_of_all_rows_is(
    kind: str, events: list[tuple[str, int, int]], seed: int, quiet: bool
) -> None:
    make = KINDS[kind]
    table = make()
    most = table.rows or table.statistics()["capacity"] + 8
    draw = np.random.default_rng(seed)
    fresh = most

    def train(ids: Any) -> None:
        gradients = draw.integers(-3, 4, (len(ids), 3)).astype(np.float32)
        table.update(np.asarray(ids, np.int64), gradients)

    with tempfile.TemporaryDirectory(dir="/dev/shm") as at:  # many files, each of which is flushed
        files: list[Path] = []
        made, whole, scratch = 0, Path(at) / "whole", Path(at) / "scratch"

        def content(of: Table) -> tuple[bytes, dict[int, bytes]]:
            of.save(scratch)
            return header_in(scratch), rows_in(scratch)

        def write(save: Callable[..., None]) -> None:
            nonlocal made
            made += 1
            files.append(Path(at) / str(made))
            save(files[-1], quiet=quiet)
            # Both files of the same moment.
            table.save(whole)
            from_whole, from_changes = make(), make()
            from_whole.load(whole)
            from_changes.load(files[0], files[1:])
            assert content(from_changes) == content(from_whole)
            assert rows_in(scratch) == rows_in(whole)

        train(draw.integers(0, most, most))
        write(table.save_tracked)
        for event, times, ids in [*events, ("changes", 0, 0)]:
            if event == "train":
                for _ in range(times):
                    train(draw.integers(0, most, ids))
            elif event == "new" and table.rows is None:
                fresh += 6
                for _ in range(2):  # each is admitted
                    train(np.arange(fresh - 6, fresh))
            elif event == "back" and table.rows is None:
                for one in np.setdiff1d(np.arange(most), table.ids())[:12]:
                    train([one])
            elif event == "changes" and files:
                write(table.save_changes)
            elif event == "fail" and files:
                with pytest.raises(ValueError, match="cannot be written"):
                    table.save_changes(Path(at) / "none" / "x")
                with pytest.raises(ValueError, match="save all"):
                    table.save_changes(scratch)
                files.clear()
            elif event == "restore" and files:
                table = make()
                table.load(files[0], files[1:])
                table.track()
            elif event in ("all", "changes"):
                files.clear()
                write(table.save_tracked)


def test_incremental_is_refused_where_it_would_do_nothing(folder: Path) -> None:
    digits = lsh.datasets.synthetic_digits(n=100).train
    with pytest.raises(ValueError, match=r"checkpoint\.incremental is for models that read tables"):
        lsh.train(
            lsh.models.mlp(784, (4,), 10),
            digits,
            until=lsh.until(updates=1),
            checkpoint=lsh.Checkpoint(folder, incremental=True),
        )


def test_several_threads_end_in_what_is_exact(folder: Path, scratch: Path) -> None:
    result = run(
        2_000,
        dlrm(None),
        threads=2,
        checkpoint=lsh.Checkpoint(folder, every=0.001, incremental=True),
    )
    restored = lsh.load(folder)
    assert manifest_of(folder)["exact"]
    for name, table in result.tables.items():
        table.save(scratch)
        rows = rows_in(scratch)
        restored.tables[name].save(scratch)
        assert rows_in(scratch) == rows


@pytest.mark.process
def test_killed_at_random_moments_it_loses_no_more_than_an_interval(
    folder: Path, scratch: Path
) -> None:
    every, updates = 3, 400
    code = f"""
import sys
sys.path.insert(0, {str(Path(__file__).parents[1])!r})
from pathlib import Path
from files.test_table_checkpoints import dlrm, run
folder = Path({str(folder)!r})
import leashed as lsh
run({updates}, dlrm(None), checkpoint=lsh.Checkpoint(folder, updates={every}, incremental=True),
    resume=folder if (folder / "manifest.json").exists() else None,
    observe=lsh.Observe(lambda now: print(now.updates, flush=True), every=0.001))
"""
    rng = random.Random(7)
    at = 0
    for _ in range(4):
        with subprocess.Popen(
            [sys.executable, "-c", code], stdout=subprocess.PIPE, text=True
        ) as process:
            assert process.stdout is not None
            kill_at, told = at + rng.randrange(1, 60), ""
            while line := process.stdout.readline():
                told += line
                if int(line) >= kill_at:
                    break
            process.send_signal(signal.SIGKILL)
            told += process.stdout.read()
        seen = max((int(line) for line in told.split("\n")[:-1]), default=0)
        if not folders.is_one(folder):
            assert seen <= every
            continue
        restored = lsh.load(folder)
        assert restored.tables
        reached = resuming.updates_in(folder)
        assert reached >= max(at, seen - every)
        at = reached
    resumed = run(updates, dlrm(None), resume=folder)
    assert_alike(resumed, run(updates, dlrm(None)), scratch)


GENERATIONS = """
import sys, time
import numpy as np
import leashed as lsh
from leashed.files import folders, model_file
from files.test_incremental_checkpoints import DIM, ROWS, counting

folders._MOST_CHANGES, folders._MOST_OF_BASE = 2, 1e9
folder, incremental = folders.Path(sys.argv[1]), sys.argv[2] == "incremental"
model = counting()
tables = lsh.tables.of(model.tables, rule=lsh.SGD(1.0))
folder.mkdir()
number = 0
while True:
    theta = np.full(model.dimension, number, np.float32)
    tensors = model_file.parts(model, theta)
    folders.write(
        folder,
        tables,
        lambda file: model_file.write(file, model, tensors),
        exact=True,
        incremental=incremental,
    )
    for table in tables.values():
        table.update(np.arange(ROWS), np.full((ROWS, DIM), -1, np.float32))
    number += 1
    time.sleep(0.005)  # who reads finds a generation that is there for a while
"""
ROWS, DIM = 50, 4


def counting() -> Graph:
    return Graph(
        Concat(Embedding(TableSpec("a", DIM, ROWS)), Embedding(TableSpec("b", DIM, ROWS)))
        >> Dense(1)
    )


@pytest.mark.process
@pytest.mark.parametrize("how", ["incremental", "whole"])
def test_who_reads_while_generations_come_gets_one_of_them(how: str, folder: Path) -> None:
    """In generation k every parameter is k, and every row is k above its beginning."""
    model = counting()
    began = {
        name: table.lookup(np.arange(ROWS)) for name, table in lsh.tables.of(model.tables).items()
    }
    writer = subprocess.Popen(
        [sys.executable, "-c", GENERATIONS, str(folder), how], cwd=Path(__file__).parents[1]
    )
    seen: set[float] = set()

    def check(parameters: Any, tables: dict[str, Table]) -> None:
        number = float(parameters[0])
        assert (parameters == number).all()
        for name, table in tables.items():
            above = table.lookup(np.arange(ROWS)) - began[name]
            np.testing.assert_allclose(above, number, atol=1e-3)
        seen.add(number)

    try:
        while not folders.is_one(folder):
            assert writer.poll() is None
            time.sleep(0.01)
        given = lsh.tables.of(model.tables, rule=lsh.SGD(1.0))
        while len(seen) < 40:
            assert writer.poll() is None
            restored = lsh.load(folder)
            check(restored.parameters, restored.tables)
            _, theta = lsh.load(folder, model, given)
            check(theta, given)
    finally:
        writer.kill()
        writer.wait()


def test_a_folder_that_changes_faster_than_it_is_read_is_told(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = counting()
    tables = lsh.tables.of(model.tables, rule=lsh.SGD(1.0))
    theta = model.init(0)
    lsh.save(folder, model, theta, tables)
    real, tries = folders.Opened.check, 0

    def moved(opened: folders.Opened) -> None:
        nonlocal tries
        tries += 1
        lsh.save(folder, model, theta, tables)
        real(opened)

    monkeypatch.setattr(folders.Opened, "check", moved)
    with pytest.raises(OSError, match="a new checkpoint took its place each of the 100 times"):
        lsh.load(folder)
    assert tries == 100


@pytest.mark.usefixtures("never_anew")
@pytest.mark.parametrize("when", ["before the manifest is there", "before rows are saved"])
def test_changes_that_somebody_else_saves_meanwhile_are_in_the_next_checkpoint(
    when: str, folder: Path, scratch: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def made() -> Table:
        return Table(rows=20, dim=4, rule=lsh.SGD(1.0))

    table, again = made(), made()

    def change(row: int) -> None:
        table.update([row], np.ones((1, 4)))

    def by_hand() -> None:
        change(5)
        table.save_changes(scratch)

    def write(then: Callable[[], None] = lambda: None) -> None:
        def put(path: Path) -> None:
            path.write_text("a model")
            then()

        folders.write(folder, {"t": table}, put, exact=True, incremental=True)

    folders.prepare(folder)
    write()
    change(3)
    if when == "before the manifest is there":
        write(by_hand)
    else:
        with monkeypatch.context() as patched:
            patched.setattr(folders, "_are_many", lambda *_: by_hand())
            write()
    change(7)
    write()
    opened = folders.opened(folder)
    opened.load({"t": again})
    np.testing.assert_array_equal(again.lookup(range(20)), table.lookup(range(20)))
    assert {path.name for path in folder.iterdir()} == files_of(folder)
    change(9)
    write()  # and goes on with changes
    assert manifest_of(folder)["tables"]["t"]["changes"]
