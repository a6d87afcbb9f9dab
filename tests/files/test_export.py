"""What is exported says what `predict` does, in a program that has no leashed in it."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from unittest.mock import Mock

import numpy as np
import onnxruntime
import pytest
from safetensors.numpy import load_file
from warned import once

import leashed as lsh
from leashed import models
from leashed.cli import main
from leashed.models import (
    AUGRU,
    GRU,
    AttentionScores,
    BatchNorm,
    Concat,
    DataNorm,
    Dense,
    Embedding,
    Graph,
    Input,
    Product,
    Sigmoid,
    TableSpec,
    Tanh,
    Zip,
)

N = 50
SIZES = {"dim": 4, "hidden": (8,)}
HISTORIES = {"users": 30, "items": 40, "categories": 7, "longest": 6, **SIZES}


def served(path: Path, **inputs: Any) -> np.ndarray:
    (found,) = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"]).run(
        None, {name.replace("_", "."): given for name, given in inputs.items()}
    )
    return found


def drawn(model: Graph, seed: int = 0) -> tuple[np.ndarray, dict[str, lsh.Table], np.ndarray]:
    """Parameters, tables and running statistics that are not those of the beginning."""
    random = np.random.default_rng(seed)
    theta = random.normal(0, 0.5, model.dimension).astype(np.float32)
    tables = {
        spec.name: lsh.Table(
            dim=spec.dim,
            rows=spec.rows,
            max_bytes=None if spec.rows else 10**7,
            init=lsh.tables.normal(0.7) if spec.rows else lsh.tables.constant(0.25),
            number=i,
            name=spec.name,
        )
        for i, spec in enumerate(model.tables)
    }
    statistics = random.uniform(0.1, 2, model.statistics).astype(np.float32)
    return theta, tables, statistics


CLICKS = {
    "dlrm": lambda rows, norm: models.dlrm(
        rows, 4, 3, bottom=(6, 4), top=(8,), categories=4, norm=norm
    ),
    "deepfm": lambda rows, norm: models.deepfm(rows, 4, 3, (8,), categories=4, norm=norm),
    "wide_deep": lambda rows, norm: models.wide_deep(rows, 4, 3, (8,), categories=4, norm=norm),
    "dcn": lambda rows, norm: models.dcn(rows, 4, 3, 2, (8,), categories=4, norm=norm),
    "dcn-v2": lambda rows, norm: models.dcn(
        rows, 4, 3, 2, (8,), weights="matrix", categories=4, norm=norm
    ),
}


@pytest.mark.parametrize("name", CLICKS)
@pytest.mark.parametrize("norm", [None, BatchNorm(), DataNorm()], ids=["plain", "batch", "data"])
@pytest.mark.parametrize("rows", [20, None], ids=["fixed", "growing"])
def test_models_of_clicks(name, norm, rows, tmp_path):
    model = CLICKS[name](rows, norm)
    theta, tables, statistics = drawn(model)
    random = np.random.default_rng(1)
    ids = random.integers(0, 20, (N, 4))
    if rows is None:
        ids = np.where(ids < 15, ids * 2**58 - 2**61, ids)  # half of them negative
        known = ids[: N // 2]
        for f in range(4):
            for table in (t for name, t in tables.items() if name.endswith(str(f))):
                table.update(known[:, f], random.normal(0, 9, (len(known), table.dim)))
    x = random.normal(0, 1, (N, 3)).astype(np.float32)
    data = lsh.ClickDataset.from_arrays(
        x, {f"c{f}": ids[:, f] for f in range(4)}, np.zeros(N, np.int32)
    )
    path = tmp_path / "m.onnx"
    lsh.export.onnx(path, model, theta, tables, statistics)
    found = served(path, dense=x, **{f"ids_{f}": ids[:, f] for f in range(4)})
    np.testing.assert_allclose(
        found, model.predict(theta, data, tables, statistics), rtol=1e-4, atol=1e-5
    )


@pytest.mark.parametrize("name", CLICKS)
def test_nothing_is_dropped(name, tmp_path):
    model = getattr(models, name.partition("-")[0])(20, 4, 3, categories=4, dropout=0.5)
    theta, tables, statistics = drawn(model)
    random = np.random.default_rng(1)
    ids, x = random.integers(0, 20, (N, 4)), random.normal(0, 1, (N, 3)).astype(np.float32)
    columns = {f"c{f}": ids[:, f] for f in range(4)}
    data = lsh.ClickDataset.from_arrays(x, columns, np.zeros(N, np.int32))
    lsh.export.onnx(tmp_path / "m.onnx", model, theta, tables, statistics)
    found = served(tmp_path / "m.onnx", dense=x, **{f"ids_{f}": ids[:, f] for f in range(4)})
    np.testing.assert_allclose(found, model.predict(theta, data, tables), rtol=1e-4, atol=1e-5)


def histories(sequences: int) -> tuple[lsh.ClickDataset, dict[str, np.ndarray]]:
    random = np.random.default_rng(2)
    lengths = random.integers(0, 10, N)
    lengths[:3] = [0, 6, 9]  # none, just all, more than are read
    offsets = np.append(0, np.cumsum(lengths))
    columns: dict[str, Any] = {
        "user": random.integers(0, 30, N),
        "item": random.integers(0, 40, N),
        "category": random.integers(0, 7, N),
    }
    inputs: dict[str, np.ndarray] = {f"ids_{f}": given for f, given in enumerate(columns.values())}
    for s in range(sequences):
        ids = random.integers(0, 7 if s else 40, offsets[-1])
        columns[f"history{s}"] = lsh.datasets.Bags(ids, offsets)
        padded = np.full((N, 9), -7)
        padded[np.arange(9) < lengths[:, None]] = ids
        inputs |= {f"ids_{3 + s}": padded, f"lengths_{3 + s}": lengths}
    x = random.normal(0, 1, (N, 1)).astype(np.float32)
    inputs["dense"] = x
    return lsh.ClickDataset.from_arrays(x, columns, np.zeros(N, np.int32)), inputs


@pytest.mark.parametrize("name", ["din", "dien", "ecommerce"])
@pytest.mark.parametrize("norm", [None, BatchNorm()], ids=["plain", "batch"])
def test_models_of_histories(name, norm, tmp_path):
    model = getattr(models, name)(**HISTORIES, norm=norm)
    theta, tables, statistics = drawn(model)
    data, inputs = histories(2)
    path = tmp_path / "m.onnx"
    lsh.export.onnx(path, model, theta, tables, statistics)
    np.testing.assert_allclose(
        served(path, **inputs),
        model.predict(theta, data, tables, statistics),
        rtol=1e-4,
        atol=1e-5,
    )


def test_what_the_zoo_does_not_combine(tmp_path):
    items = TableSpec("items", 4, 40)
    steps = Embedding(items, "sequence", 6, feature=3)
    states = GRU(Zip(steps, steps), 5)
    scores = AttentionScores(Embedding(items, feature=1) >> Dense(5), states)
    last = AUGRU(steps, scores, 3)
    product = Product(last, Input(1) >> Dense(3) >> Tanh() >> Dense(3) >> Sigmoid())
    model = Graph(Concat(product, steps) >> Dense(4), loss="softmax")
    theta, tables, _ = drawn(model)
    data, inputs = histories(1)
    path = tmp_path / "m.onnx"
    lsh.export.onnx(path, model, theta, tables)
    wanted = {n: inputs[n] for n in ("dense", "ids_1", "ids_3", "lengths_3")}
    np.testing.assert_allclose(
        served(path, **wanted), model.predict(theta, data, tables), rtol=1e-4, atol=1e-5
    )


@pytest.mark.parametrize("pooling", ["sum", "mean", "max"])
def test_bags(pooling, tmp_path):
    items = TableSpec("items", 4, 40)
    model = Graph(Embedding(items, pooling, feature=3) >> Dense(1), loss="squared_error")
    theta, tables, _ = drawn(model)
    data, inputs = histories(1)
    columns = dict(zip(data.names, data.ids, strict=True))
    data = lsh.ClickDataset.from_arrays(None, columns, np.zeros(N, np.float32))
    path = tmp_path / "m.onnx"
    lsh.export.onnx(path, model, theta, tables, bags=[3])
    found = served(path, ids_3=inputs["ids_3"], lengths_3=inputs["lengths_3"])
    np.testing.assert_allclose(found, model.predict(theta, data, tables), rtol=1e-4, atol=1e-5)


def test_what_was_trained_on_bags_is_exported_with_them(tmp_path, capsys):
    items = TableSpec("items", 4, 40)
    read = [Embedding(items, feature=f) for f in (1, 3, 4)]
    model = Graph(Concat(*read, Embedding(items, "sequence", 3, feature=4)) >> Dense(1))
    data, inputs = histories(2)
    columns = dict(zip(data.names, data.ids, strict=True))
    data = lsh.ClickDataset.from_arrays(None, columns, np.arange(N) % 2)
    result = lsh.train(model, data, until=lsh.until(epochs=1), threads=1, batch_size=10)
    path, folder = tmp_path / "m.onnx", tmp_path / "trained"
    lsh.save(folder, model, result.parameters, result.tables)
    for found in (result, lsh.load(folder)):
        for given in ((), [4]):  # 4 is read as a sequence, and has several with or without it
            with pytest.raises(
                ValueError, match=r"features 3, counted from 0, had any number .*=\["
            ):
                lsh.export.onnx(path, model, found.parameters, found.tables, bags=given)
    assert not path.exists()
    assert main(["export", str(folder), "--onnx", str(path), "--bags", "4"]) == 2
    assert capsys.readouterr().err.endswith("was trained; give --bags 3,4\n")
    assert main(["export", str(folder), "--onnx", str(path)]) == 0  # as they had been
    read = {}
    for name, value in inputs.items():
        kind, _, feature = name.partition("_")
        if feature in ("1", "3", "4"):
            column = data.names[int(feature)]
            read[column if kind == "ids" else f"{column}.lengths"] = value
    np.testing.assert_allclose(
        served(path, **read),
        model.predict(result.parameters, data, result.tables),
        rtol=1e-4,
        atol=1e-5,
    )


def test_weights_of_ids_that_are_left_out_are_told(tmp_path):
    model = Graph(Embedding(TableSpec("items", 4, 40), feature=1) >> Dense(1))
    random = np.random.default_rng(0)
    bags = lsh.datasets.Bags(
        random.integers(0, 40, 2 * N), np.arange(N + 1) * 2, random.random(2 * N)
    )
    columns = {"user": np.arange(N), "seen": bags}
    data = lsh.ClickDataset.from_arrays(None, columns, np.arange(N) % 2)
    result = lsh.train(model, data, until=lsh.until(epochs=1), threads=1, batch_size=10)
    with once("ids of features 1, counted from 0, had weights when model graph"):
        lsh.export.onnx(tmp_path / "m.onnx", model, result.parameters, result.tables, bags=[1])


@pytest.mark.parametrize("loss", ["sampled_softmax", "bpr", "in_batch"])
def test_users_and_items_of_retrieval(loss, tmp_path):
    model = models.youtube_dnn(40, 4, (8,), history=3, chosen=1, loss=loss, dropout=0.5)
    theta, tables, _ = drawn(model)
    data, inputs = histories(1)
    columns = dict(zip(data.names, data.ids, strict=True))
    data = lsh.ClickDataset.from_arrays(None, columns, np.zeros(N, np.int32))
    lsh.export.onnx(tmp_path / "m.onnx", model, theta, tables, bags=[3])
    lsh.export.tables(tmp_path / "t.safetensors", tables)
    users = served(tmp_path / "m.onnx", ids_3=inputs["ids_3"], lengths_3=inputs["lengths_3"])
    items = load_file(tmp_path / "t.safetensors")["choices.rows"]
    best = np.argsort(-users @ items.T, axis=1, kind="stable")[:, :5]
    np.testing.assert_array_equal(best, lsh.retrieval.retrieve(model, theta, data, tables, 5))


@pytest.mark.parametrize(
    "model",
    [
        models.mlp(12, [8, 5], 3),
        models.cnn((2, 11, 12), 3),
        models.lenet(),
        models.Model(
            (1, 3, 4), (models.Conv2d(2, 2), Tanh(), Dense(5), Sigmoid(), Dense(3)), "curved"
        ),
        models.logistic_regression(12),
        models.logistic_regression(12, 3),
        models.linear_regression(12),
        models.linear_svm(12, 3),
        models.fm(12, 4),
    ],
    ids=lambda model: model.name,
)
def test_models_of_dense_rows(model, tmp_path):
    random = np.random.default_rng(3)
    theta = random.normal(0, 0.1, model.dimension).astype(np.float32)
    x = random.normal(0, 1, (N, model.features)).astype(np.float32)
    given: Any = x
    if isinstance(model, models.FactorisationMachine):
        scipy = pytest.importorskip("scipy.sparse")
        given = lsh.SparseDataset.from_csr(scipy.csr_array(x), np.zeros(N, np.int32), classes=2)
    lsh.export.onnx(tmp_path / "m.onnx", model, theta)
    np.testing.assert_allclose(
        served(tmp_path / "m.onnx", x=x),
        np.asarray(model.predict(theta, given)).reshape(N, -1),
        rtol=1e-4,
        atol=1e-5,
    )


def test_rows_of_tables(tmp_path):
    arrow = pytest.importorskip("pyarrow")
    growing = lsh.Table(dim=2, max_bytes=10**6, rule=lsh.SGD(1.0))
    growing.update([7, -5, 2**62], -np.ones((3, 2), np.float32))
    tables = {"fixed": lsh.Table(dim=3, rows=4), "growing": growing}
    lsh.export.tables(tmp_path / "t.safetensors", tables)
    lsh.export.tables(tmp_path / "t", tables)
    found = load_file(tmp_path / "t.safetensors")
    assert found["growing.ids"].tolist() == [-5, -1, 0, 7, 2**62]
    for name, table in tables.items():
        ids = found.get(f"{name}.ids", np.arange(4))
        np.testing.assert_array_equal(found[f"{name}.rows"], table.lookup(ids))
        with arrow.ipc.open_file(tmp_path / "t" / f"{name}.arrow") as file:
            told = file.read_all()
        assert told["id"].to_pylist() == ids.tolist()
        assert np.float32(told["row"].to_pylist()).tolist() == table.lookup(ids).tolist()


@pytest.fixture
def small_limit(monkeypatch):
    monkeypatch.setattr(lsh.export, "_ASIDE", 100)
    monkeypatch.setattr(lsh.export, "_LARGE", 32)


def beside(path: Path) -> set[Path]:
    return set(path.parent.glob(f"{path.name}.*.data"))


@pytest.mark.usefixtures("small_limit")
def test_large_models_have_their_constants_beside(tmp_path):
    model = models.mlp(12, [400], 3)
    theta = model.init()
    x = np.ones((2, 12), np.float32)
    path = tmp_path / "m.onnx"
    for _ in range(2):
        lsh.export.onnx(path, model, theta)
    (data,) = beside(path)
    assert path.stat().st_size < 2000 < 4 * model.dimension < data.stat().st_size
    np.testing.assert_allclose(served(path, x=x), model.predict(theta, x), rtol=1e-5)


@pytest.mark.usefixtures("small_limit")
@pytest.mark.parametrize("rows", [20, None], ids=["fixed", "growing"])
def test_tables_of_large_models_lie_beside(rows, tmp_path):
    model = CLICKS["dlrm"](rows, BatchNorm())
    theta, tables, statistics = drawn(model)
    random = np.random.default_rng(1)
    ids = random.integers(0, 20, (N, 4))
    x = random.normal(0, 1, (N, 3)).astype(np.float32)
    inputs = {"dense": x, **{f"ids_{f}": ids[:, f] for f in range(4)}}
    whole, path = tmp_path / "whole.onnx", tmp_path / "m.onnx"
    lsh.export.onnx(path, model, theta, tables, statistics)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lsh.export, "_ASIDE", 2**30)
        lsh.export.onnx(whole, model, theta, tables, statistics)
    assert len(beside(path)) == 1
    assert not beside(whole)
    np.testing.assert_array_equal(served(path, **inputs), served(whole, **inputs))


def test_ids_count_where_it_is_decided_what_lies_beside(tmp_path, monkeypatch):
    monkeypatch.setattr(lsh.export, "_ASIDE", 10_000)
    monkeypatch.setattr(lsh.export, "_LARGE", 32)
    spec = TableSpec("items", 1)
    model = Graph(Embedding(spec, feature=0) >> Dense(1), loss="squared_error")
    table = lsh.Table(dim=1, max_bytes=10**6, name="items")
    table.lookup(np.arange(2000))
    table.update(np.arange(2000) - 2**62, np.ones((2000, 1), np.float32))
    path = tmp_path / "m.onnx"
    lsh.export.onnx(path, model, model.init(), {"items": table})
    assert len(beside(path)) == 1


@pytest.mark.usefixtures("small_limit")
def test_an_export_is_replaced_whole(tmp_path, monkeypatch):
    """At each moment the model that is there reads what it did, or is the new one; a reader that
    opened the model before it was replaced still finds what that reads.
    """
    model = models.mlp(12, [400], 3)
    x = np.ones((2, 12), np.float32)
    path = tmp_path / "m.onnx"
    seen = []
    write = lsh.export.atomic.write

    def watched(to: Path, content: Any) -> None:
        if path.exists():
            seen.append(served(path, x=x))
        write(to, content)
        if path.exists():
            seen.append(served(path, x=x))

    monkeypatch.setattr(lsh.export.atomic, "write", watched)
    thetas = [model.init(seed=seed) for seed in range(3)]
    expected = [model.predict(theta, x) for theta in thetas]
    kept: list[set[Path]] = []
    for theta in thetas:
        lsh.export.onnx(path, model, theta)
        kept.append(beside(path))
    assert [len(files) for files in kept] == [1, 2, 2]
    assert kept[0] < kept[1]
    assert not kept[0] & kept[2]
    for found, k in zip(seen, [0, 0, 0, 0, 1, 1, 1, 1, 2], strict=True):
        np.testing.assert_allclose(found, expected[k], rtol=1e-5)
    others = {tmp_path / "m.onnx.data", tmp_path / "n.onnx.0123456789abcdef.data"}
    left = tmp_path / ".m.onnx.0123456789abcdef.data.77.1"  # of one that was killed
    for file in (left, *others):
        file.touch()
    monkeypatch.setattr(lsh.export, "_ASIDE", 2**30)
    for files in (1, 0):
        lsh.export.onnx(path, model, thetas[0])
        assert len(beside(path)) == files
    assert set(tmp_path.iterdir()) == {path, *others}
    np.testing.assert_allclose(served(path, x=x), expected[0], rtol=1e-5)


@pytest.mark.usefixtures("small_limit")
def test_the_name_of_what_lies_beside_tells_where_in_it_constants_are(tmp_path, monkeypatch):
    monkeypatch.setattr(lsh.export, "_LARGE", 100)
    path = tmp_path / "m.onnx"
    for features, classes in ((12, 3), (3, 12)):  # of the same floats, one after another
        model = models.mlp(features, [400], classes)
        lsh.export.onnx(path, model, np.ones(model.dimension, np.float32))
    first, second = (file.read_bytes() for file in beside(path))
    assert first != second


@pytest.mark.usefixtures("small_limit")
def test_an_export_that_fails_leaves_the_one_before(tmp_path, monkeypatch):
    model = models.mlp(12, [400], 3)
    x = np.ones((2, 12), np.float32)
    path = tmp_path / "m.onnx"
    lsh.export.onnx(path, model, model.init())
    write = lsh.export.atomic.write

    def full(to: Path, content: Any) -> None:
        if to == path:
            raise OSError(28, "No space left on device")
        write(to, content)

    monkeypatch.setattr(lsh.export.atomic, "write", full)
    with pytest.raises(OSError, match="No space"):
        lsh.export.onnx(path, model, model.init(seed=1))
    np.testing.assert_allclose(served(path, x=x), model.predict(model.init(), x), rtol=1e-5)


def test_the_command_line(tmp_path, capsys):
    model = CLICKS["dlrm"](20, None)
    theta, tables, _ = drawn(model)
    lsh.save(tmp_path / "m", model, theta, tables)
    command = ["export", str(tmp_path / "m"), "--onnx", str(tmp_path / "m.onnx")]
    assert main([*command, "--tables", str(tmp_path / "t.safetensors")]) == 0
    assert capsys.readouterr().out.split() == [
        str(tmp_path / "m.onnx"),
        str(tmp_path / "t.safetensors"),
    ]
    assert len(load_file(tmp_path / "t.safetensors")) == len(tables)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "nothing to write; give --onnx"),
        (["--tables", "t", "--bags", "1"], "--bags goes with --onnx"),
        (["--onnx", "m.onnx", "--bags", "1;2"], "--bags must be numbers"),
        (["--onnx", "m.onnx", "--bags", "9"], "bags must be features"),
        (["--onnx", "no/such/m.onnx"], "no/such"),
        (["--onnx", "m.onnx", "--tables", "no/such/t.safetensors"], "no/such"),
        (["--onnx", "m.onnx", "--tables", "no/such/t"], "no/such"),
        (["--onnx", "m.onnx", "--tables", "file"], "is a file, and Arrow files take a folder"),
        (["--onnx", "m.onnx", "--tables", "f.safetensors"], "is a folder; name a file"),
        (["--onnx", "m", "--tables", "t.safetensors"], "is a folder; name a file"),
        (["--onnx", "m.onnx", "--tables", "m.onnx"], "is what --onnx writes; name another"),
    ],
)
def test_what_the_command_line_refuses(arguments, message, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    model = CLICKS["dlrm"](20, None)
    theta, tables, _ = drawn(model)
    lsh.save(tmp_path / "m", model, theta, tables)
    (tmp_path / "file").touch()
    (tmp_path / "f.safetensors").mkdir()
    monkeypatch.setattr("leashed.cli.export.load_whole", loaded := Mock(wraps=lsh.load))
    assert main(["export", str(tmp_path / "m"), *arguments]) == 2
    assert loaded.called == ("9" in arguments)
    assert message in capsys.readouterr().err
    assert not (tmp_path / "m.onnx").exists()


def test_ids_that_no_file_holds_are_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(lsh.export, "_MOST_IDS", 7)
    model = CLICKS["dlrm"](None, None)
    theta, tables, _ = drawn(model)
    with pytest.raises(ValueError, match=r"have 8 ids .* holds 7; write rows with export.tables"):
        lsh.export.onnx(tmp_path / "m.onnx", model, theta, tables)


def test_bad_input(tmp_path):
    path = tmp_path / "m.onnx"
    mlp, dlrm = models.mlp(12, [8], 3), CLICKS["dlrm"](20, BatchNorm())
    theta, tables, statistics = drawn(dlrm)
    ffm = models.ffm([0, 1])
    with pytest.raises(ValueError, match="field-aware"):
        lsh.export.onnx(path, ffm, ffm.init())
    with pytest.raises(ValueError, match="go with graphs"):
        lsh.export.onnx(path, mlp, mlp.init(), bags=[0])
    for model in (mlp, dlrm):
        for bags in (0, "3", 1.5, None):
            with pytest.raises(
                TypeError, match=r"bags must hold features by number, such as \[0, 3\]"
            ):
                lsh.export.onnx(path, model, model.init(), bags=bags)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="bags must be a whole number, got '1'"):
        lsh.export.onnx(path, dlrm, theta, tables, statistics, bags=["1"])  # type: ignore[list-item]
    with pytest.raises(ValueError, match="statistics must be given"):
        lsh.export.onnx(path, dlrm, theta, tables)
    with pytest.raises(TypeError, match="tables must map"):
        lsh.export.onnx(path, dlrm, theta, None, statistics)
    with pytest.raises(TypeError, match="model must be"):
        lsh.export.onnx(path, "mlp", theta)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="at least one table"):
        lsh.export.tables(path, {})
    with pytest.raises(TypeError, match="must be a Table"):
        lsh.export.tables(path, {"a": theta})  # type: ignore[dict-item]
    assert not path.exists()
    (tmp_path / "f.safetensors").mkdir()
    (tmp_path / "file").touch()
    with pytest.raises(IsADirectoryError, match="name a file"):
        lsh.export.onnx(tmp_path, mlp, mlp.init())
    with pytest.raises(IsADirectoryError, match="name a file"):
        lsh.export.tables(tmp_path / "f.safetensors", tables)
    with pytest.raises(NotADirectoryError, match="Arrow files take a folder; name one"):
        lsh.export.tables(tmp_path / "file", tables)
