"""Folders of a model and its tables: resumed to the same bits, whole at every moment, refused where
they do not fit.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from table_files import rows_in

import leashed as lsh
from leashed import Table, TrainResult, datasets
from leashed.files import folders, model_file
from leashed.models import (
    AUGRU,
    GRU,
    AttentionPool,
    AttentionScores,
    AttentionUnit,
    Concat,
    Dense,
    Embedding,
    Graph,
    Input,
    ReLU,
    TableSpec,
    Tanh,
    Zip,
)

DATA = datasets.synthetic_clicks(600, 1, test=50, cardinalities=[30, 40, 50])
RULES = [
    lsh.SGD(0.05),
    lsh.Adagrad(0.05, initial_accumulator=0.1),
    lsh.Adam(lsh.schedules.cosine(0.01, total=40)),
    lsh.SWAP(lsh.Adam(0.01), period=7),
    lsh.SWAP(lsh.Adagrad(0.05, initial_accumulator=0.1), period=9),
]


def dlrm(rows: int | None = 50, name: str = "dlrm") -> Graph:
    return lsh.models.dlrm(rows, 4, bottom=(8, 4), top=(8,), categories=3, name=name)


def run(updates: int, model: Graph | None = None, **arguments: Any) -> TrainResult:
    return lsh.train(
        dlrm() if model is None else model,
        DATA,
        **{
            "rule": lsh.Adagrad(0.05),
            "until": lsh.until(updates=updates),
            "batch_size": 16,
            "threads": 1,
            "seed": 3,
            **arguments,
        },
    )


def rows_of(table: Table, path: Path) -> dict[int, bytes]:
    table.save(path)
    return rows_in(path)


def assert_alike(a: TrainResult, b: TrainResult, scratch: Path) -> None:
    np.testing.assert_array_equal(a.parameters, b.parameters)
    assert list(a.tables) == list(b.tables)
    for name, table in a.tables.items():
        assert rows_of(table, scratch) == rows_of(b.tables[name], scratch)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "run"


@pytest.fixture
def scratch(tmp_path: Path) -> Path:
    return tmp_path / "rows"


def manifest_of(folder: Path) -> Any:
    return json.loads((folder / "manifest.json").read_text())


def named(folder: Path) -> set[str]:
    """The files that should be there."""
    manifest = manifest_of(folder)
    told = [manifest["model"], *manifest["tables"].values()]
    return {"manifest.json", *(one["file"] for one in told)}


@pytest.mark.parametrize("rows", [50, None], ids=["fixed", "growing"])
@pytest.mark.parametrize("rule", RULES, ids=lambda rule: type(rule).__name__)
def test_a_resumed_run_is_the_uninterrupted_one(
    rule: lsh.Rule, rows: int | None, folder: Path, scratch: Path
) -> None:
    model = dlrm(rows)
    whole = run(40, model, rule=rule)
    half = run(20, model, rule=rule, checkpoint=folder)
    resumed = run(40, model, rule=rule, resume=folder)
    assert_alike(resumed, whole, scratch)
    assert resumed.total_updates == 40
    assert resumed.loss[0] == half.final_loss
    assert resumed.config["resumed_at"] == 20
    assert resumed.config["resumed_exact"]


def test_tables_that_are_given_go_on_where_they_are(folder: Path, scratch: Path) -> None:
    model = dlrm(None)

    def tables() -> dict[str, Table]:
        rule = lsh.tables.RowwiseAdagrad(0.1)
        init = lsh.tables.uniform(0.1)
        return lsh.tables.of(model.tables, rule=rule, init=init, seed=9)

    whole = run(40, model, init=lsh.Init(tables=tables()))
    run(20, model, init=lsh.Init(tables=tables()), checkpoint=folder)
    given = tables()
    given["c1"].update([7], [[1, 2, 3, 4]])  # is replaced
    resumed = run(40, model, init=lsh.Init(tables=given), resume=folder, checkpoint=folder)
    assert resumed.tables["c1"] is given["c1"]
    assert_alike(resumed, whole, scratch)
    with pytest.raises(ValueError, match=r"(?s)init of table c0 was .*0.1.*; give tables with"):
        run(60, model, resume=folder)


@pytest.mark.parametrize(
    "discipline", [lsh.Sequential(), lsh.Hogwild(), lsh.Synchronous()], ids=str
)
def test_disciplines_go_on_from_each_other(
    discipline: lsh.Discipline, folder: Path, scratch: Path
) -> None:
    whole = run(30)
    run(20, discipline=discipline, checkpoint=folder)
    assert_alike(run(30, resume=folder), whole, scratch)


def test_several_threads_write_while_they_train_and_resume(folder: Path, scratch: Path) -> None:
    seen = []

    def watch(_: lsh.Progress) -> None:
        if folders.is_one(folder):
            seen.append(manifest_of(folder)["exact"])
            signal.raise_signal(signal.SIGINT)

    model = dlrm(None)
    first = run(
        1,
        model,
        until=lsh.until(seconds=60),
        threads=3,
        checkpoint=lsh.Checkpoint(folder, every=0.002),
        observe=lsh.Observe(watch, every=0.01),
    )
    assert first.reason == "interrupted"
    assert seen[0] is False
    assert manifest_of(folder)["exact"]
    assert {p.name for p in folder.iterdir()} == named(folder)
    tables = lsh.tables.of(model.tables, rule=lsh.Adagrad(0.05), seed=3)
    np.testing.assert_array_equal(lsh.load(folder, model, tables)[1], first.parameters)
    for name, table in tables.items():
        assert rows_of(table, scratch) == rows_of(first.tables[name], scratch)
    resumed = run(first.total_updates + 100, model, threads=2, resume=folder)
    assert resumed.total_updates == first.total_updates + 100


def test_what_was_written_under_way_is_told_to_be_fuzzy(folder: Path) -> None:
    class Enough(Exception):
        pass

    def stop(_: lsh.Progress) -> None:
        if folders.is_one(folder):
            raise Enough

    with pytest.raises(Enough):
        run(
            1,
            until=lsh.until(seconds=30),
            checkpoint=lsh.Checkpoint(folder, every=0.01),
            observe=lsh.Observe(stop, every=0.01),
        )
    assert not manifest_of(folder)["exact"]
    resumed = run(10**6, until=lsh.until(seconds=0.05), resume=folder, checkpoint=folder)
    assert resumed.config["resumed_exact"] is False
    assert manifest_of(folder)["exact"]


@pytest.mark.filterwarnings("ignore:the training crashed:RuntimeWarning")
def test_a_crashed_run_keeps_its_last_good_checkpoint(folder: Path) -> None:
    run(5, checkpoint=folder)
    before = manifest_of(folder)
    result = run(500, rule=lsh.SGD(1e30), checkpoint=folder)
    assert result.outcome == "crashed"
    assert manifest_of(folder) == before


FULL: dict[str, tuple[object, str]] = {
    "a table": (Table, "save"),
    "the model": (model_file, "write"),
    "the manifest": (os, "fsync"),
}


@pytest.mark.parametrize("what", FULL)
def test_a_full_disk_stops_nothing(
    what: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(5, checkpoint=folder)
    before = {p.name: p.read_bytes() for p in folder.iterdir()}

    def fail(*_: Any) -> None:
        raise OSError("no space left")

    with monkeypatch.context() as patch:
        patch.setattr(*FULL[what], fail)
        with pytest.warns(RuntimeWarning, match="no checkpoint was written.*no space left") as told:
            result = run(20, checkpoint=folder)
    assert [warning.filename for warning in told] == [__file__]
    assert result.total_updates == 20
    assert {p.name: p.read_bytes() for p in folder.iterdir()} == before
    assert run(20, resume=folder).gradients == 15


# Where a process is killed while it writes its second generation.
KILLED = {
    "the second table": """
save, calls = Table.save, []
def die(self, path):
    calls.append(path)
    save(self, path)
    if len(calls) == 2:
        kill()
Table.save = die""",
    "the model": "model_file.write = kill",
    "the manifest, before its name": """
replace = pathlib.Path.replace
pathlib.Path.replace = lambda a, b: kill() if b.name == "manifest.json" else replace(a, b)""",
    "the old generation's end": "folders._remove = kill",
}


@pytest.mark.process(2)
@pytest.mark.parametrize("where", KILLED)
def test_a_process_that_is_killed_leaves_one_whole_generation(
    where: str, folder: Path, scratch: Path
) -> None:
    run(20, checkpoint=folder)
    code = f"""
import os, pathlib, signal, sys
sys.path.insert(0, {str(Path(__file__).parents[1])!r})
from files.test_table_checkpoints import run
from leashed import Table
from leashed.files import folders, model_file
def kill(*_):
    os.kill(os.getpid(), signal.SIGKILL)
{KILLED[where]}
run(30, resume={str(folder)!r}, checkpoint={str(folder)!r})
"""
    ended = subprocess.run([sys.executable, "-c", code], check=False)
    assert ended.returncode == -signal.SIGKILL
    resumed = run(40, resume=folder, checkpoint=folder)
    assert resumed.config["resumed_at"] == (30 if where == "the old generation's end" else 20)
    assert_alike(resumed, run(40), scratch)
    assert {p.name for p in folder.iterdir()} == named(folder)


def test_what_a_killed_process_began_is_cleared_away(folder: Path) -> None:
    folder.mkdir()
    left = ["1.table0", "1.table1.partial-7-8", ".1.model.safetensors.7.8", ".manifest.json.7.8"]
    for name in left:
        (folder / name).touch()
    with pytest.raises(FileNotFoundError, match="no checkpoint is complete"):
        run(5, resume=folder)
    run(5, checkpoint=folder)
    assert manifest_of(folder)["generation"] == 2
    assert {p.name for p in folder.iterdir()} == named(folder)


def test_what_others_keep_in_the_folder_stays(folder: Path) -> None:
    run(5, checkpoint=folder)
    kept = {
        "3.table0.bak",
        "9.model.safetensors.orig",
        "1.table0.partial",
        ".8.model.safetensors.swp",
    }
    for name in kept:
        (folder / name).touch()
    run(7, checkpoint=folder)
    assert {p.name for p in folder.iterdir()} == named(folder) | kept
    assert manifest_of(folder)["generation"] == 2


def test_an_alarm_while_a_folder_is_read_is_no_new_generation(folder: Path) -> None:
    run(5, checkpoint=folder)
    calls = []

    def take(_: folders.Opened) -> None:
        calls.append(1)
        run(7, checkpoint=folder)
        raise TimeoutError("by a handler")

    with pytest.raises(TimeoutError, match="by a handler"):
        folders.read(folder, take)
    assert len(calls) == 1


def test_two_signals_while_a_folder_is_saved_leave_what_its_manifest_names(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second comes while it is looked up whether the first came too late."""
    put = folders.put_manifest

    def and_alarm(*_: object) -> None:
        raise TimeoutError

    def and_ctrl_c(*given: Any) -> None:
        put(*given)
        monkeypatch.setattr(folders, "manifest_of", and_alarm)
        raise KeyboardInterrupt

    model = dlrm()
    tables = lsh.tables.of(model.tables)
    with monkeypatch.context() as patch:
        patch.setattr(folders, "put_manifest", and_ctrl_c)
        with pytest.raises((KeyboardInterrupt, TimeoutError)):
            lsh.save(folder, model, model.init(), tables)
    monkeypatch.undo()
    folders.opened(folder)


def damage(content: bytes) -> bytes:
    return content[:-20] + bytes([content[-20] ^ 1]) + content[-19:]


@pytest.mark.parametrize("file", ["manifest.json", "1.model.safetensors", "1.table0", "1.table2"])
@pytest.mark.parametrize("how", ["missing", "cut", "altered"])
def test_a_damaged_folder_is_refused_and_changes_nothing(
    file: str, how: str, folder: Path, scratch: Path
) -> None:
    model = dlrm()
    run(5, model, checkpoint=folder)
    path = folder / file
    content = path.read_bytes()
    if how == "missing":
        path.unlink()
    else:
        path.write_bytes(content[:-9] if how == "cut" else damage(content))
    given = lsh.tables.of(model.tables, rule=lsh.Adagrad(0.05), seed=3)
    before = [rows_of(table, scratch) for table in given.values()]
    with pytest.raises((ValueError, FileNotFoundError), match=file):
        run(10, model, resume=folder, init=lsh.Init(tables=given))
    with pytest.raises((ValueError, FileNotFoundError), match=file):
        lsh.load(folder, model, given)
    assert [rows_of(table, scratch) for table in given.values()] == before


def test_a_newer_folder_is_refused(folder: Path) -> None:
    run(5, checkpoint=folder)
    manifest = manifest_of(folder)
    (folder / "manifest.json").write_text(json.dumps({**manifest, "version": 3}))
    with pytest.raises(ValueError, match="format version is 3, this release reads 1 to 2; upgrade"):
        run(10, resume=folder)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"rule": lsh.Adagrad(0.1)}, r"rule was Adagrad\(lr=0.05\) and is Adagrad\(lr=0.1\)"),
        ({"rule": lsh.Adam(0.05)}, r"rule was Adagrad\(lr=0.05\) and is Adam\(lr=0.05\)"),
        ({"seed": 4}, "seed was 3 and is 4"),
        ({"batch_size": 8}, "batch_size was 16 and is 8"),
        ({"staleness": lsh.staleness.inverse()}, "staleness was"),
        ({"model": dlrm(60)}, "another model"),
        ({"model": dlrm(name="other")}, "another model"),
        ({"model": lsh.models.deepfm(50, 4, categories=3)}, "another model"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_another_run_is_not_continued(changed: dict[str, Any], message: str, folder: Path) -> None:
    run(5, checkpoint=folder)
    with pytest.raises(ValueError, match=rf"(?s)cannot resume .*: .*{message}"):
        run(10, resume=folder, **changed)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"admit_after": 2}, "admit_after of table c0 was 1 and is 2"),
        ({"evict": "age"}, "evict of table c0 was None and is age"),
        ({"max_bytes": 2**20}, r"max_bytes of table c0 was \d+ and is 1048576"),
        ({"rule": lsh.Adagrad(0.06)}, "rule of table c0 was .*0.05.* and is .*0.06"),
        ({"seed": 4}, "seed of table c0 was 3 and is 4"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_other_tables_are_not_continued(
    changed: dict[str, Any], message: str, folder: Path, scratch: Path
) -> None:
    model = dlrm(None)
    run(5, model, checkpoint=folder)
    given = lsh.tables.of(model.tables, **{"rule": lsh.Adagrad(0.05), "seed": 3, **changed})
    before = [rows_of(table, scratch) for table in given.values()]
    with pytest.raises(ValueError, match=message):
        run(10, model, resume=folder, init=lsh.Init(tables=given))
    assert [rows_of(table, scratch) for table in given.values()] == before


@pytest.mark.parametrize(("was", "now"), [(0.1, 0.0), (0.0, 0.1), (0.1, 0.2)])
def test_tables_of_other_weight_decay_are_not_continued(
    was: float, now: float, folder: Path
) -> None:
    def tables(decay: float) -> lsh.Init:
        made = lsh.tables.of(dlrm().tables, rule=lsh.Adagrad(0.05), seed=3, weight_decay=decay)
        return lsh.Init(tables=made)

    run(5, checkpoint=folder, init=tables(was))
    with pytest.raises(ValueError, match=f"weight_decay of table c0 was {was} and is {now}"):
        run(10, resume=folder, init=tables(now))
    run(10, resume=folder, init=tables(was))


def test_places_that_are_no_folder_of_a_run_are_told(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="no checkpoint is complete"):
        run(5, resume=folder)
    (tmp_path / "file").touch()
    with pytest.raises(ValueError, match="it is a file; name the folder with the tables"):
        run(5, resume=tmp_path / "file")
    with pytest.raises(NotADirectoryError, match="takes a folder"):
        run(5, checkpoint=tmp_path / "file")
    with pytest.raises(FileExistsError, match="has file in it and is no checkpoint"):
        run(5, checkpoint=tmp_path)
    with pytest.raises(FileNotFoundError, match="its folder does not exist"):
        run(5, checkpoint=tmp_path / "none" / "run")
    for name in ("checkpoint", "resume"):
        with pytest.raises(TypeError, match=f"{name} in memory holds no rows"):
            run(5, **{name: lsh.resuming.Kept()})


def shared() -> Graph:
    table = TableSpec("items", 3, 60)
    x = Input(13) >> Dense(5, bias=False)
    seen = Embedding(table, "sequence", length=2, feature=1)
    return Graph(
        Concat(x, Embedding(table, "mean", feature=0), seen, x >> ReLU()) >> Dense(1),
        name="shared",
        l2=0.01,
    )


def histories() -> Graph:
    table, other = TableSpec("items", 3, 60), TableSpec("other", 2, 60)
    item = Concat(Embedding(table, feature=0), Embedding(other, feature=1))
    sequences = (Embedding(t, "sequence", 2, feature=1 + i) for i, t in enumerate((table, other)))
    history = Zip(*sequences)
    states = GRU(history, 4)
    scores = AttentionScores(item >> Dense(4, bias=False), states)
    unit = AttentionUnit(item, history, (3, 2), softmax=True)
    joined = Concat(Input(13), item, AttentionPool(unit, history), AUGRU(states, scores, 3))
    return Graph(joined >> Dense(1), name="histories")


GRAPHS: dict[str, Callable[[], Graph]] = {
    "dlrm": dlrm,
    "deepfm": lambda: lsh.models.deepfm(50, 4, categories=3),
    "dcn": lambda: lsh.models.dcn(None, 4, categories=3),
    "wide_deep": lambda: lsh.models.wide_deep([50, None, 50], 4),
    "shared": shared,
    "histories": histories,
}


@pytest.mark.filterwarnings("ignore:model .* reads .* as sequence:RuntimeWarning")
@pytest.mark.parametrize("name", GRAPHS)
def test_a_graph_and_its_tables_survive_a_round_trip(name: str, folder: Path) -> None:
    model = GRAPHS[name]()
    result = run(10, model)
    lsh.save(folder, model, result.parameters, result.tables)
    found, theta = lsh.load(folder)
    assert isinstance(found, Graph)
    assert (found.name, found.loss, found.l2) == (model.name, model.loss, model.l2)
    tables = lsh.tables.of(found.tables, rule=lsh.Adagrad(0.01), seed=3)
    assert lsh.load(folder, model, tables)[0] is model
    np.testing.assert_array_equal(
        found.predict(theta, DATA.test, tables),
        model.predict(result.parameters, DATA.test, result.tables),
    )
    with pytest.raises(ValueError, match="parameters but no run"):
        run(20, model, resume=folder)
    with pytest.raises(ValueError, match="another model"):
        lsh.load(folder, dlrm(55))


def test_each_file_is_read_once_to_restore(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    result = run(5)
    lsh.save(folder, dlrm(), result.parameters, result.tables)
    read: list[Any] = []
    for module, name in ((model_file, "read"), (folders.Opened, "check")):
        real = getattr(module, name)

        def once(path: Any, real: Any = real, name: str = name) -> Any:
            read.append(name)
            return real(path)

        monkeypatch.setattr(module, name, once)
    found = lsh.load(folder)
    np.testing.assert_array_equal(found.parameters, result.parameters)
    assert sorted(read) == ["check", "read"]


def test_parameters_are_not_saved_without_the_rows_that_go_with_them(tmp_path: Path) -> None:
    model, path = dlrm(), tmp_path / "model.safetensors"
    theta = model.init(2)
    with pytest.raises(ValueError, match=r"tables must be given.*leashed\.save\(folder, model, "):
        lsh.save(path, model, theta)
    assert not path.exists()


def test_a_result_with_tables_is_not_saved_without_their_rows(tmp_path: Path) -> None:
    result = run(5)
    path = tmp_path / "result.json"
    with pytest.raises(
        ValueError, match=r"leashed\.save\(folder, model, result\.parameters, result"
    ):
        result.save(path)
    with pytest.raises(ValueError, match="rows no JSON holds"):
        result.to_json(parameters=True)
    assert not path.exists()
    TrainResult.from_json(result.to_json()).save(path)  # what was measured


@pytest.mark.parametrize(
    "given", [{}, {"model": dlrm()}, {"tables": None}], ids=["alone", "model", "tables"]
)
def test_a_folder_is_read_with_its_rows(given: dict[str, Any], folder: Path) -> None:
    result = run(5, checkpoint=folder)
    if "tables" in given:
        given = {"tables": lsh.tables.of(dlrm().tables, rule=lsh.Adagrad(0.01), seed=3)}
    found = lsh.load(folder, **given)
    assert given.get("model") in (None, found.model)
    assert all(found.tables[name] is table for name, table in given.get("tables", {}).items())
    np.testing.assert_array_equal(
        found.model.predict(found.parameters, DATA.test, found.tables),
        dlrm().predict(result.parameters, DATA.test, result.tables),
    )
    assert (found.updates, found.exact, found.run["batches"]) == (5, True, 5)
    assert found.run["rule"] == result.config["rule"]
    assert found.states.shape == (1, len(found.parameters))


@pytest.mark.parametrize("how", ["train", "simulate"])
def test_parameters_to_begin_with_come_with_their_rows(how: str) -> None:
    theta, played = dlrm().init(1), lsh.simulation.constant(1, 1.0)

    def begun(init: Any) -> Any:
        if how == "train":
            return run(5, init=init)
        until = lsh.until(updates=5)
        return lsh.simulate(dlrm(), DATA, cluster=played, until=until, init=init)

    with pytest.raises(ValueError, match=r"Init\(parameters, result\.tables\) .*tables\.of\("):
        begun(theta)
    begun(lsh.Init(theta, lsh.tables.of(dlrm().tables, rule=lsh.Adagrad(0.05), seed=3)))


def test_a_file_of_a_graph_s_parameters_alone_is_read(tmp_path: Path) -> None:
    """As ``save`` without tables wrote it before."""
    model, path = dlrm(), tmp_path / "model.safetensors"
    theta = model.init(2)
    model_file.write(path, model, model_file.parts(model, theta))
    found, loaded = lsh.load(path, model)
    assert found is model
    np.testing.assert_array_equal(loaded, theta)
    tables = lsh.tables.of(model.tables)
    with pytest.raises(ValueError, match="it is a file; name the folder"):
        lsh.load(path, model, tables)
    with pytest.raises(ValueError, match="tables must be"):
        lsh.save(tmp_path / "folder", model, theta, {"c0": tables["c0"]})
    assert [p.name for p in tmp_path.iterdir()] == [path.name]


GRAPH = {
    "tables": [{"name": "c", "dim": 4, "rows": 9}],
    "nodes": [
        {"kind": "Input", "features": 2, "inputs": []},
        {"kind": "Dense", "outputs": 1, "bias": True, "inputs": [0]},
    ],
}


@pytest.mark.parametrize(
    "wrong",
    [
        {"nodes": []},
        {"nodes": None},
        {"nodes": [{"kind": "Input", "features": 2}]},
        {"nodes": [{"kind": "Input", "features": 2, "inputs": [0]}]},
        {"nodes": [{"kind": "Applied", "inputs": []}]},
        {"nodes": [{"kind": ["Sum"], "inputs": []}]},
        {"nodes": [GRAPH["nodes"][0], {"kind": "Dense", "outputs": 1, "inputs": [1]}]},
        {"nodes": [GRAPH["nodes"][0], {"kind": "Dense", "outputs": 1, "inputs": [-1]}]},
        {"nodes": [GRAPH["nodes"][0], {"kind": "Dense", "outputs": 1, "inputs": ["0"]}]},
        {"nodes": [GRAPH["nodes"][0], {"kind": "Dense", "outputs": 1, "inputs": [0, 0]}]},
        {"nodes": [{"kind": "Embedding", "table": 1, "inputs": []}]},
        {"nodes": [{"kind": "Embedding", "table": 0, "pooling": "none", "inputs": []}]},
        {"tables": [{"name": "c"}]},
        {"tables": None},
    ],
    ids=str,
)  # fmt: skip
def test_a_damaged_description_of_a_graph_is_refused(wrong: dict[str, Any], tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    model = Graph(Input(2) >> Dense(1))
    lsh.save(path, model, model.init())
    content = path.read_bytes()
    length = int.from_bytes(content[:8], "little")
    header = json.loads(content[8 : 8 + length])
    header["__metadata__"]["graph"] = json.dumps({**GRAPH, **wrong})
    text = json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + content[8 + length :])
    with pytest.raises(ValueError, match=f"cannot load .*{path.name}"):
        lsh.load(path)


def test_a_graph_without_tables_has_a_file_for_a_checkpoint(tmp_path: Path) -> None:
    model, path = Graph(Input(3) >> Dense(4) >> Tanh() >> Dense(1)), tmp_path / "run"
    x = np.random.default_rng(0).standard_normal((100, 3)).astype(np.float32)

    def trained(updates: int, **arguments: Any) -> TrainResult:
        data = (x, (x.sum(axis=1) > 0).astype(int))
        return lsh.train(model, data, threads=1, until=lsh.until(updates=updates), **arguments)

    whole = trained(40)
    trained(20, checkpoint=path)
    np.testing.assert_array_equal(trained(40, resume=path).parameters, whole.parameters)
