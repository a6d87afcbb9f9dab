"""What was trained, as one object: it predicts, is judged, saved, exported and trained further."""

from __future__ import annotations

import copy
import math
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from zoo import CHOICES, MADE, trained

import leashed as lsh
from leashed import datasets, models, stream
from leashed.datasets import Bags, ClickDataset
from leashed.training.result import TrainResult

ROWS = 256


@pytest.mark.parametrize("name", [name for name in MADE if name != "external"])
def test_what_is_saved_is_all_of_it(name: str, tmp_path: Path) -> None:
    """Predictions, figures and what training on leads to; tests/training/test_zoo.py: in a process of
    its own.
    """
    found, data, test = trained(name)
    one = found.model
    path = tmp_path / "kept"
    one.save(path)
    again = lsh.load(path)
    assert again.settings["rule"] == found.config["rule"]
    assert again.columns == one.columns
    np.testing.assert_array_equal(again.predict(test), one.predict(test))
    assert again.evaluate(test) == one.evaluate(test)
    on = [each.train(data, until=lsh.until(epochs=1), **CHOICES) for each in (again, one)]
    np.testing.assert_array_equal(on[0].parameters, on[1].parameters)
    np.testing.assert_array_equal(on[0].model.predict(test), on[1].model.predict(test))


def test_running_statistics_go_on(tmp_path: Path) -> None:
    found, data, _ = trained("dlrm, normalised")
    found.model.save(tmp_path / "kept")
    for one in (found.model, lsh.load(tmp_path / "kept")):
        begun = np.array(one.statistics)
        on = one.train(data, until=lsh.until(updates=1), threads=1, batch_size=32)
        assert on.config["statistics"]["batches"] == found.config["statistics"]["batches"] + 1
        # The last of n batches has the share 0.01 / (1 - 0.99^n).
        share = 0.01 / (1 - 0.99 ** on.config["statistics"]["batches"])
        assert np.median(np.abs(on.statistics - begun) / np.abs(begun)) < 2 * share


def test_one_number_is_told_flat_and_several_are_not() -> None:
    found, _, test = trained("dlrm")
    said = found.model.predict(test)
    assert said.shape == (len(test),)
    of_model = MADE["dlrm"]()[0].predict(found.parameters, test, found.tables)
    np.testing.assert_array_equal(said, of_model[:, 0])
    assert lsh.metrics.auc(said, test.y) == lsh.metrics.auc(of_model, test.y)
    images, _, test = trained("cnn")
    assert images.model.predict(test).shape == (len(test), 10)


def test_networks_take_what_they_are_judged_on() -> None:
    found, _, test = trained("mlp")
    model = MADE["mlp"]()[0]
    said = model.predict(found.parameters, test)
    np.testing.assert_array_equal(said, model.predict(found.parameters, test.x))
    np.testing.assert_array_equal(said, found.model.predict(test.x))


@pytest.mark.parametrize("loss", ["softmax", "log_loss", "squared_error"])
def test_sparse_matrices_are_taken_as_arrays_are(loss: str) -> None:
    sparse = pytest.importorskip("scipy.sparse", reason="SciPy is not installed")
    dense = np.random.default_rng(0).normal(size=(40, 6)) * (np.arange(240).reshape(40, 6) % 3 == 0)
    x, y = sparse.csr_array(dense), dense[:, 0] > 0
    outputs = 2 if loss == "softmax" else 1
    layers = (models.Dense(4), models.Tanh(), models.Dense(outputs))
    model = models.Model((6, 1, 1), layers, "small", loss)
    kind = lsh.SparseDataset.from_csr if model.classes else lsh.SparseDataset.regression
    trained = lsh.train(model, kind(x, y), until=lsh.until(epochs=1)).model
    np.testing.assert_allclose(trained.predict(x), trained.predict(dense), rtol=1e-5)
    for targets in (y, 0 * y, 0.5 + y if model.classes == 0 else y):
        loss_of = trained.evaluate((x, targets)).loss
        assert loss_of == pytest.approx(trained.evaluate((dense, targets)).loss)
    if model.classes:
        for rows in (x, dense):
            with pytest.raises(
                ValueError, match="labels up to 7, first in row 0, but the model knows"
            ):
                trained.evaluate((rows, 0 * y + 7))


def test_it_is_judged_as_on_the_command_line() -> None:
    found, _, test = trained("dlrm")
    told = found.model.evaluate(test)
    assert told.examples == len(test)
    assert told.auc == lsh.metrics.auc(found.model.predict(test), test.y)
    assert told.accuracy is not None
    assert math.isclose(told.hidden_auc or 0.0, test.hidden_auc)
    assert "AUC" in str(told)
    assert told.to_json()["examples"] == len(test)
    found, _, test = trained("linear_regression")
    assert found.model.evaluate(test).accuracy is None
    assert found.model.evaluate((test.x, test.y)) == found.model.evaluate(test)


def test_its_auc_is_of_all_pairs_and_the_models_own_as_near_as_bins_tell() -> None:
    result, _, test = trained("dlrm")
    found = result.model
    logits = found.model.logits(found.parameters, test, found.tables)
    counted = lsh.metrics.ClickMetrics()
    counted.add(logits, test.y)
    exact, near = lsh.metrics.auc(logits, test.y), counted.values()
    assert found.evaluate(test).auc == exact
    assert found.model.evaluate(found.parameters, test, found.tables).auc == near.auc
    assert abs(near.auc - exact) <= near.auc_error < 0.01


def test_the_best_items() -> None:
    found, _, test = trained("youtube_dnn")
    best = found.model.top_items(test, 3)
    expected = lsh.retrieval.retrieve(
        MADE["youtube_dnn"]()[0], found.parameters, test, found.tables, 3
    )
    np.testing.assert_array_equal(best, expected)
    with pytest.raises(TypeError, match="SampledLogits"):
        trained("dlrm")[0].model.top_items(test)


def test_of_no_row_nothing_is_predicted(tmp_path: Path) -> None:
    pa = pytest.importorskip("pyarrow")
    one = of_csv(tmp_path).model
    none = pa.table({"price": [1.0], "city": ["Lund"], "seen": ["1"], "clicked": [1]}).slice(1)
    (tmp_path / "none.csv").write_text("clicked,price,city,seen\n")
    for data in (none, none.drop_columns("clicked"), tmp_path / "none.csv"):
        said = one.predict(data)
        assert (said.shape, said.dtype) == ((0,), np.float32)
    with pytest.raises(ValueError, match="there is no row in it"):
        one.evaluate(none)
    with pytest.raises(ValueError, match="it has no column price"):
        one.predict(none.drop_columns("price"))
    images, _, test = trained("cnn")
    assert images.model.predict(test.x[:0]).shape == (0, 10)
    sparse, _, rows = trained("fm")
    csr = pytest.importorskip("scipy.sparse").csr_matrix((0, rows.features), dtype=np.float32)
    assert sparse.model.predict(csr).shape == (0,)
    with pytest.raises(ValueError, match="x has no row; pass at least one"):
        sparse.model.evaluate((csr, np.zeros(0)))


def csv(folder: Path) -> Path:
    random = np.random.default_rng(2)
    lines = ["clicked,price,city,seen"]
    for _ in range(ROWS):
        seen = " ".join(map(str, random.integers(0, 9, random.integers(0, 4))))
        city = random.choice(["Lund", "Kiruna", "Malmö"])
        lines.append(f"{random.integers(0, 2)},{random.normal():.3f},{city},{seen}")
    path = folder / "rows.csv"
    path.write_text("\n".join(lines) + "\n")
    return path


SCHEMA: dict[str, Any] = {
    "clicked": stream.Label(),
    "price": stream.Number(log=True, missing=0.0),
    "city": stream.Hashed(buckets=50),
    "seen": stream.Id(between=" "),
}


def of_csv(folder: Path, **given: Any) -> TrainResult:
    model = models.dlrm([50, None], 4, 1, bottom=(4,), top=(4,), categories=2)
    rows = stream.csv(csv(folder), SCHEMA)
    return lsh.train(model, rows, until=lsh.until(epochs=1), threads=1, batch_size=32, **given)


def test_a_stream_and_its_files_in_any_form(tmp_path: Path) -> None:
    one = of_csv(tmp_path).model
    path = tmp_path / "rows.csv"
    said = one.predict(path)
    assert said.shape == (ROWS,)
    np.testing.assert_array_equal(one.predict(stream.csv(path, SCHEMA)), said)
    np.testing.assert_array_equal(one.predict(stream.csv(path, SCHEMA).read()), said)
    one.save(tmp_path / "kept")
    again = lsh.load(tmp_path / "kept")
    assert again.columns.schema == stream.csv(path, SCHEMA).columns.schema
    np.testing.assert_array_equal(again.predict(str(path)), said)
    assert again.evaluate(path) == one.evaluate(stream.csv(path, SCHEMA))


def test_a_checkpoint_knows_how_columns_were_read(tmp_path: Path) -> None:
    one = of_csv(tmp_path, checkpoint=tmp_path / "run").model
    again = lsh.load(tmp_path / "run")
    path = tmp_path / "rows.csv"
    np.testing.assert_array_equal(again.predict(path), one.predict(path))
    assert again.updates == ROWS // 32


def test_frames_in_any_order_with_others_and_without_a_label(tmp_path: Path) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    reader = pytest.importorskip("pyarrow.csv")
    one = of_csv(tmp_path).model
    table = reader.read_csv(tmp_path / "rows.csv")
    seen = [[int(one) for one in row.as_py().split()] for row in table["seen"]]
    table = table.set_column(3, "seen", pyarrow.array(seen, pyarrow.list_(pyarrow.int64())))
    said = one.predict(tmp_path / "rows.csv")
    np.testing.assert_array_equal(one.predict(table), said)
    other = table.select(["seen", "city", "price"]).append_column("more", [[0] * ROWS])
    np.testing.assert_array_equal(one.predict(other), said)
    np.testing.assert_array_equal(
        one.predict({n: other[n].to_numpy() for n in other.column_names}), said
    )
    assert one.evaluate(table.select(["seen", "clicked", "city", "price"])) == one.evaluate(table)
    with pytest.raises(ValueError, match="city"):
        one.predict(table.rename_columns(["clicked", "price", "town", "seen"]))
    with pytest.raises(ValueError, match="price"):
        one.predict(table.set_column(1, "price", pyarrow.array(["dear"] * ROWS)))
    with pytest.raises(ValueError, match="clicked"):
        one.evaluate(other)


def test_a_result_without_a_model_says_so() -> None:
    found, _, test = trained("mlp")
    read = TrainResult.from_json(found.to_json(parameters=True))
    with pytest.raises(ValueError, match="was read from JSON"):
        _ = read.model
    for copied in (pickle.loads(pickle.dumps(found)), copy.deepcopy(found)):
        np.testing.assert_array_equal(copied.model.predict(test), found.model.predict(test))


def test_a_gradient_of_ones_own(tmp_path: Path) -> None:
    def gradient(*given: Any) -> float:
        given[-1][:] = 0
        return 1.0

    model = models.external(gradient, dimension=6, features=6)
    data = (np.eye(6, dtype=np.float32), np.arange(6))
    found = lsh.train(model, data, until=lsh.until(epochs=1), threads=1, batch_size=2)
    assert found.model.model is model
    found.model.save(tmp_path / "kept.safetensors")
    again = lsh.load(tmp_path / "kept.safetensors", model)
    np.testing.assert_array_equal(again.parameters, found.parameters)
    assert found.model.evaluate(data).loss == 1.0
    with pytest.raises(ValueError, match="is a copy of one with a gradient"):
        _ = pickle.loads(pickle.dumps(found)).model


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (3, "data must be a ClickDataset"),
        (np.zeros((2, 3)), "data must be a ClickDataset"),
        ("nowhere.csv", "nowhere.csv"),
    ],
)
def test_what_is_no_data_is_refused(data: Any, message: str) -> None:
    one = trained("dlrm")[0].model
    with pytest.raises((TypeError, ValueError, OSError), match=message):
        one.predict(data)
    with pytest.raises(TypeError, match="init is what was trained so far"):
        one.train(data, init="he")


def test_numbers_of_a_schema_are_as_in_the_data(tmp_path: Path) -> None:
    """In ONNX too: the logarithm, and what stands for a field that is empty, are in the model."""
    runtime = pytest.importorskip("onnxruntime")
    one = of_csv(tmp_path).model
    one.export(tmp_path / "m.onnx")
    session = runtime.InferenceSession(tmp_path / "m.onnx")
    assert {each.name for each in session.get_inputs()} == {"price", "city", "seen", "seen.lengths"}
    lines = [line.split(",") for line in (tmp_path / "rows.csv").read_text().splitlines()[1:]]
    rows = stream.csv(tmp_path / "rows.csv", SCHEMA).read()
    assert isinstance(rows, ClickDataset)
    city, seen = rows.ids
    assert isinstance(seen, Bags)
    lengths = np.diff(seen.offsets)
    places = np.zeros((len(rows), 4), np.int64)
    for row, begin, length in zip(places, seen.offsets, lengths, strict=False):
        row[:length] = seen.ids[begin : begin + length]
    inputs = {
        "price": np.array([line[1] for line in lines], np.float32),
        "city": np.asarray(city).astype(np.int64),
        "seen": places,
        "seen.lengths": lengths.astype(np.int64),
    }
    (said,) = session.run(None, inputs)
    np.testing.assert_allclose(said[:, 0], one.predict(rows), atol=1e-5)
    inputs["price"][:] = np.nan
    (said,) = session.run(None, inputs)
    (tmp_path / "rows.csv").write_text(
        "clicked,price,city,seen\n" + "".join(f"{a},,{c},{d}\n" for a, _, c, d in lines)
    )
    np.testing.assert_allclose(said[:, 0], one.predict(tmp_path / "rows.csv"), atol=1e-5)


def test_a_frame_is_read_as_then_or_refused() -> None:
    pyarrow = pytest.importorskip("pyarrow")
    random = np.random.default_rng(3)
    columns = {name: random.normal(20, 9, ROWS) for name in ("a", "b")}
    table = pyarrow.table({**columns, "y": random.integers(0, 2, ROWS)})
    found = lsh.train(
        models.mlp(2, [3], 2), table, label="y", threads=1, batch_size=8, until=lsh.until(epochs=1)
    )
    x, y = table.select(["b", "a"]), table["y"].to_numpy()
    with pytest.raises(ValueError, match="is a table as it is"):
        found.model.evaluate((x, y))
    with pytest.raises(ValueError, match="is a table as it is"):
        found.model.model.predict(found.parameters, x)
    # Without a schema tables are of numbers, and known by name.
    plain = lsh.train(
        models.mlp(2, [3], 2), (x, y), threads=1, batch_size=8, until=lsh.until(epochs=1)
    )
    assert plain.config["columns"]["numbers"] == ["b", "a"]
    said = plain.model.predict(np.stack([columns["b"], columns["a"]], 1))
    for given in (table, x, columns, x.to_batches()[0]):
        np.testing.assert_array_equal(plain.model.predict(given), said)
    with pytest.raises(ValueError, match="has column 'a' more than once"):
        plain.model.predict(x.rename_columns(["a", "a"]))
    with pytest.raises(TypeError, match="got Split"):
        plain.model.evaluate(datasets.synthetic_digits(20, test=20))


def test_training_on_keeps_shape_and_schema() -> None:
    pyarrow = pytest.importorskip("pyarrow")

    def table(seed: int) -> Any:
        random = np.random.default_rng(seed)
        words, price = random.choice(["x", "z"], ROWS), random.normal(30, 9, ROWS)
        return pyarrow.table({"y": random.integers(0, 2, ROWS), "word": words, "price": price})

    one = lsh.train(models.dlrm(dim=4), table(0), label="y", threads=1, batch_size=32).model
    choices = {"threads": 1, "batch_size": 32}
    on = one.train(table(1), label="y", validation=table(2), **choices)
    assert on.config["columns"]["schema"] == one.settings["columns"]["schema"]
    with pytest.raises(ValueError, match="label was 'y' and is 'price'"):
        one.train(table(1), label="price", **choices)
    rows = stream.table(table(1), one.columns.schema.columns).read()
    assert isinstance(rows, ClickDataset)
    bare = ClickDataset.from_arrays(rows.x, {"word": rows.ids[:, 0]}, rows.y)
    assert one.train(bare, **choices).architecture.tables == one.model.tables


@pytest.mark.parametrize("name", ["user", "prediction", "dense"])
def test_columns_of_any_name_are_exported_or_refused(name: str, tmp_path: Path) -> None:
    pytest.importorskip("onnx")
    random = np.random.default_rng(0)
    ids = {name: random.integers(0, 9, ROWS)}
    x, y = random.normal(size=(ROWS, 2)), random.integers(0, 2, ROWS)
    data = ClickDataset.from_arrays(x, ids, y)
    one = lsh.train(models.dlrm(10, dim=4), data, threads=1, batch_size=32).model
    if name == "user":
        one.export(tmp_path / "m.onnx")
        return
    with pytest.raises(ValueError, match=f"called '{name}'.*rename"):
        one.export(tmp_path / "m.onnx")


def test_exports(tmp_path: Path) -> None:
    runtime = pytest.importorskip("onnxruntime")
    found, _, test = trained("dlrm")
    found.model.export(tmp_path / "m.onnx")
    session = runtime.InferenceSession(tmp_path / "m.onnx")
    ids = {name: test.ids[:, f].astype(np.int64) for f, name in enumerate(test.names)}
    (said,) = session.run(None, {"dense": test.x, **ids})
    np.testing.assert_allclose(said[:, 0], found.model.predict(test), atol=1e-5)
    found.model.export(tmp_path / "rows.safetensors")
    found.model.export(tmp_path / "rows")
    assert list((tmp_path / "rows").iterdir())
    with pytest.raises(ValueError, match=r"must end in \.onnx"):
        trained("mlp")[0].model.export(tmp_path / "m.bin")
