"""Whatever leashed has written of a model is loaded, whole, and what else it writes is called by its
name; old calls go on working.
"""

from __future__ import annotations

import importlib
import os
import pickle
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse
from hypothesis import given, settings
from hypothesis import strategies as st
from warned import once

import leashed as lsh
from leashed import _core, datasets, models
from leashed.cli import main
from leashed.cluster import server
from leashed.files import model_file, resuming
from leashed.models import BatchNorm, Dense, Graph, Input
from leashed.sync import Position

ROOT = Path(__file__).parents[2]
SMALL = models.softmax_regression(3, 2)
X = np.random.default_rng(0).standard_normal((64, 3)).astype(np.float32)
Y = (X[:, 0] > 0).astype(np.int32)
CLICKS = datasets.synthetic_clicks(300, 1, test=50, cardinalities=[30, 40, 50])


def dlrm() -> Graph:
    return models.dlrm(50, 4, bottom=(8, 4), top=(8,), categories=3, name="dlrm")


def trained(model: Any, updates: int = 4, **given: Any) -> lsh.TrainResult:
    data: Any = CLICKS if getattr(model, "tables", ()) else (X, Y)
    given = {"rule": lsh.Adagrad(0.05), "threads": 1, "batch_size": 16, **given}
    return lsh.train(model, data, until=lsh.until(updates=updates), **given)


def gradient(*_: Any) -> float:
    return 0.0


# By kind: the format that it is in, and what writes it at a path and says where. What is loaded has
# the model's parameters, and the tables that it reads.
Writes = Callable[[Path], Any]
KINDS: dict[str, tuple[str, Writes]] = {}


def kind(name: str, of: str) -> Callable[[Writes], Writes]:
    def note(write: Writes) -> Writes:
        KINDS[name] = of, write
        return write

    return note


@kind("a network", "leashed.model")
def _(path: Path) -> Any:
    lsh.save(path, SMALL, SMALL.init(1))


@kind("a factorisation machine", "leashed.model")
def _(path: Path) -> Any:
    model = models.fm(3, 2)
    lsh.save(path, model, model.init(1))


@kind("a graph without tables", "leashed.model")
def _(path: Path) -> Any:
    model = Graph(Input(3) >> Dense(1))
    lsh.save(path, model, model.init(1))


@kind("a model that normalises", "leashed.model")
def _(path: Path) -> Any:
    model = Graph(Input(3) >> Dense(4) >> BatchNorm() >> Dense(1))
    result = trained(model)
    lsh.save(path, model, result.parameters, statistics=result.statistics)


@kind("its checkpoint", "leashed.model")
def _(path: Path) -> Any:
    trained(Graph(Input(3) >> Dense(4) >> BatchNorm() >> Dense(1)), checkpoint=path)


@kind("a network's checkpoint", "leashed.model")
def _(path: Path) -> Any:
    trained(SMALL, checkpoint=path)


@kind("what a cluster's trainer keeps", "leashed.model")
def _(path: Path) -> Any:
    def reach(state: Any) -> None:
        config = {"rule": lsh.SGD(0.1).config(), "columns": {}}
        with resuming.Checkpointer(path, SMALL, config) as checkpointer:
            checkpointer.position = lambda: Position(7, [(3, 1)], "0123")
            checkpointer.look()
            checkpointer(state)

    kept = resuming.Kept.at(SMALL.init(1)[None], 4, 4)
    reach(kept.reached)


@kind("a cluster's run", "leashed.model")
def _(path: Path) -> Any:
    path.mkdir()
    (path / "report.json").write_text("{}")
    lsh.save(path / "output.safetensors", SMALL, SMALL.init(1))


@kind("the command line's", "leashed.model")
def _(path: Path) -> Any:
    assert main(["train", "--model", "mlp", "--updates", "3", "--save", str(path)]) == 0


@kind("days of a graph without tables", "leashed.model")
def _(path: Path) -> Any:
    model = Graph(Input(3) >> Dense(1), loss="log_loss")
    lsh.continual(model, [datasets.Dataset.from_arrays(X, Y)], folder=path, threads=1)


@kind("a folder", "leashed.tables")
def _(path: Path) -> Any:
    result = trained(dlrm())
    lsh.save(path, dlrm(), result.parameters, result.tables)


@kind("its checkpoint, a folder", "leashed.tables")
def _(path: Path) -> Any:
    trained(dlrm(), checkpoint=path)


@kind("an incremental one", "leashed.tables")
def _(path: Path) -> Any:
    trained(dlrm(), checkpoint=lsh.Checkpoint(path, updates=2, incremental=True))
    assert list(path.glob("*.changes*"))


@kind("days", "leashed.tables")
def _(path: Path) -> Any:
    days = [CLICKS.train, CLICKS.test]
    lsh.continual(dlrm(), days, folder=path, threads=1, rule=lsh.Adagrad(0.05))


@pytest.mark.parametrize("name", KINDS)
def test_what_was_trained_is_loaded_whole(name: str, tmp_path: Path) -> None:
    path = tmp_path / "written"
    KINDS[name][1](path)
    found = lsh.load(path)
    model: Any = found.model
    assert found.parameters.shape == (model.dimension,)
    assert set(found.tables) == {table.name for table in getattr(model, "tables", ())}
    assert (found.statistics is not None) == bool(getattr(model, "statistics", 0))
    ran = any(word in name for word in ("checkpoint", "keeps", "days", "incremental"))
    assert (found.updates > 0) == ran
    assert bool(found.run) == (found.updates > 0)
    assert found.exact
    data: Any = CLICKS.test if found.tables else X
    if name == "a factorisation machine":
        data = datasets.SparseDataset.from_csr(scipy.sparse.csr_array(X), Y)
    rest = (found.tables, found.statistics) if isinstance(model, Graph) else ()
    given = {"tables": rest[0] or None, "statistics": rest[1]} if rest else {}
    if not name.startswith("the command"):
        assert np.isfinite(model.predict(found.parameters, data, **given)).all()
    again = lsh.load(path, model)
    assert again.model is model
    np.testing.assert_array_equal(again.parameters, found.parameters)
    assert lsh.load(str(path)).run == found.run
    assert repr(found).startswith(f"Trained(model={model.name}, d={model.dimension:,}")


def test_a_resumed_run_has_what_is_loaded(tmp_path: Path) -> None:
    result = trained(SMALL, checkpoint=tmp_path / "run", rule=lsh.Adam(0.01))
    found = lsh.load(tmp_path / "run")
    np.testing.assert_array_equal(found.parameters, result.parameters)
    assert found.states.shape == (2, SMALL.dimension)
    assert (found.updates, found.run["batches"]) == (4, 4)
    assert found.run["rule"] == result.config["rule"]
    assert found.columns == result_columns(result)
    (model, theta), (again, copied) = found, pickle.loads(pickle.dumps(found))
    assert model == again
    np.testing.assert_array_equal(theta, copied)


def result_columns(result: lsh.TrainResult) -> Any:
    return datasets.columns.Columns.from_json(result.config["columns"])


def test_an_external_model_is_given_and_its_tables_are_made(tmp_path: Path) -> None:
    model = models.external(gradient, dimension=4, features=3, name="mine")
    lsh.save(tmp_path / "mine", model, np.ones(4))
    with pytest.raises(ValueError, match="its model is external, and no file holds a gradient"):
        lsh.load(tmp_path / "mine")
    assert lsh.load(tmp_path / "mine", model).model is model


# Files of leashed that hold nothing that was trained: what writes one, and what is said of it.
OTHERS: dict[str, tuple[str, Callable[[Path], Path | None], str]] = {
    "a record": (
        "leashed.trace LSHT",
        lambda path: trained(SMALL, observe=lsh.Observe(record=path)) and None,
        r"it is the record of a run; leashed\.replay",
    ),
    "a table": (
        "lshtable",
        trained(dlrm()).tables["c0"].save,
        r"rows of a table; .*Table\.load",
    ),
    "a snapshot": (
        "server checkpoints joining led_part led_keeping",
        lambda path: server._save(_core.SyncServer([(0, 2)]), path, "0123") and None,
        "arrays of NumPy's, as a sync server's snapshot",
    ),
    "a result": (
        "leashed.TrainResult",
        lambda path: trained(SMALL).save(path),
        r"JSON; .*TrainResult\.from_json",
    ),
    "a journal of days": (
        "leashed.days",
        lambda path: KINDS["days"][1](path.with_name("f")) or path.with_name("f") / "days.json",
        "a journal is read with the folder",
    ),
}


@pytest.mark.parametrize("name", OTHERS)
def test_what_holds_nothing_trained_is_called_by_its_name(name: str, tmp_path: Path) -> None:
    path = tmp_path / "written"
    path = OTHERS[name][1](path) or path
    with pytest.raises(ValueError, match=rf"cannot load .*{path.name}: .*{OTHERS[name][2]}"):
        lsh.load(path)


def test_a_shared_vector_is_called_by_its_name() -> None:
    message = r"a shared vector; leashed\.SharedVector\.attach"
    name = f"loaded-{os.getpid()}"
    with lsh.SharedVector.create(name, SMALL.init(1)), pytest.raises(ValueError, match=message):
        lsh.load(f"/dev/shm/leashed.{name}")


def formats() -> Iterator[str]:
    """All that files of leashed begin with, or say of themselves, as the sources have it."""
    for source in (ROOT / "src" / "leashed").rglob("*.py"):
        text = source.read_text()
        yield from re.findall(r'^_FORMAT = "(.*)"', text, re.MULTILINE)
        if "np.save(" in text:
            yield source.stem
    for source in (ROOT / "cpp" / "leashed").rglob("*.*"):
        for letters in re.findall(r"char kMagic\[\d\] = \{(.*)\};", source.read_text()):
            yield re.sub(r"[', ]", "", letters)
        yield from re.findall(r'kHeader = 0x\w+;  // "(\w+)"', source.read_text())


def test_every_format_is_known() -> None:
    known = {of for of, _ in KINDS.values()} | {"LEASHEDV"}
    known |= {word for of, *_ in OTHERS.values() for word in of.split()}
    assert set(formats()) == known, "a new kind of file: load it, or say what reads it"


@pytest.fixture(scope="module")
def beginnings(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, bytes]:
    path = tmp_path_factory.mktemp("fuzz") / "model"
    lsh.save(path, SMALL, SMALL.init(1))
    return path, path.read_bytes()


@settings(max_examples=100)
@given(
    begin=st.sampled_from([*model_file._OTHERS, b"", b"PK", b"\0" * 8]),
    rest=st.binary(max_size=40),
)
def test_no_beginning_is_taken_for_a_model(
    begin: bytes, rest: bytes, beginnings: tuple[Path, bytes]
) -> None:
    path, content = beginnings
    path.write_bytes(begin + rest + content[len(begin + rest) :])
    if begin + rest:
        with pytest.raises(ValueError, match="cannot load"):
            lsh.load(path)


@pytest.mark.parametrize("damage", ["run", "columns", "state.1.0.bias", "nested"])
def test_a_run_that_cannot_be_read_is_refused(damage: str, tmp_path: Path) -> None:
    tensors = model_file.parts(SMALL, SMALL.init(1))
    metadata = {}
    if damage.startswith("state"):
        tensors |= {"state.1.0.weight": np.ones((2, 3), np.float32)}
    else:
        name = "run" if damage == "nested" else damage
        metadata = {name: "[" * 100_000 if damage == "nested" else "5"}
    model_file.write(tmp_path / "m", SMALL, tensors, metadata)
    with pytest.raises(ValueError, match=r"cannot load .*/m: its run lacks or has a wrong "):
        lsh.load(tmp_path / "m")


def test_a_run_does_not_go_on_from_the_folder_around_its_state(tmp_path: Path) -> None:
    KINDS["days of a graph without tables"][1](tmp_path / "days")
    inside = re.escape(str(tmp_path / "days" / "state.safetensors"))
    with pytest.raises(IsADirectoryError, match=f"has no model itself; name {inside}"):
        trained(Graph(Input(3) >> Dense(1)), resume=tmp_path / "days")


OLD = "is an old name"


def test_old_calls_of_load(tmp_path: Path) -> None:
    """Two values, by unpacking and by number."""
    theta = SMALL.init(1)
    lsh.save(tmp_path / "m", SMALL, theta)
    model, parameters = lsh.load(tmp_path / "m")
    assert model == SMALL
    np.testing.assert_array_equal(parameters, theta)
    found = lsh.load(tmp_path / "m", SMALL)
    assert isinstance(found, tuple)
    assert len(found) == 2
    assert found[0] is SMALL is found[-2]
    np.testing.assert_array_equal(lsh.load(tmp_path / "m")[1], theta)
    assert [type(part).__name__ for part in found] == ["Model", "ndarray"]


def test_restore_is_an_old_name(tmp_path: Path) -> None:
    result = trained(dlrm())
    lsh.save(tmp_path / "f", dlrm(), result.parameters, result.tables)
    with once(
        "leashed.restore(path) is an old name; call leashed.load", category=DeprecationWarning
    ):
        model, parameters, tables, statistics = lsh.restore(tmp_path / "f")
    assert model.name == "dlrm"
    assert set(tables) == set(result.tables)
    assert statistics is None
    np.testing.assert_array_equal(parameters, result.parameters)
    with pytest.warns(DeprecationWarning, match=OLD):
        named = lsh.restore(tmp_path / "f")
    assert named._fields == ("model", "parameters", "tables", "statistics")
    theta = dlrm().init(1)
    model_file.write(tmp_path / "bare", dlrm(), model_file.parts(dlrm(), theta))
    message = "its model reads tables, which are not there; name the folder"
    with pytest.warns(DeprecationWarning, match=OLD), pytest.raises(ValueError, match=message):
        lsh.restore(tmp_path / "bare")
    np.testing.assert_array_equal(lsh.load(tmp_path / "bare").parameters, theta)


def test_load_statistics_is_an_old_name(tmp_path: Path) -> None:
    model = Graph(Input(3) >> Dense(4) >> BatchNorm() >> Dense(1))
    result = trained(model)
    lsh.save(tmp_path / "m", model, result.parameters, statistics=result.statistics)
    with once(
        "leashed.load_statistics(path) is an old name; call leashed.load(path).statistics",
        category=DeprecationWarning,
    ):
        statistics = lsh.load_statistics(tmp_path / "m")
    np.testing.assert_array_equal(statistics, result.statistics)
    lsh.save(tmp_path / "bare", model, result.parameters)
    message = "bare holds no statistics; its model has none, or it was saved without them"
    with pytest.warns(DeprecationWarning, match=OLD), pytest.raises(ValueError, match=message):
        lsh.load_statistics(tmp_path / "bare")


def test_paths_of_modules_that_are_no_more_lead_to_what_they_had() -> None:
    restoring = importlib.import_module("leashed.files.restoring")
    assert restoring.restore is lsh.restore
    assert restoring.Restored._fields[0] == "model"
    old = importlib.import_module("leashed.files.table_checkpoints")
    assert old.TableCheckpointer is resuming.Checkpointer
