"""``leashed train`` on sparse rows, ``leashed predict`` and ``leashed evaluate``."""

from __future__ import annotations

import errno
import gzip
import json
import math
import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import leashed as lsh
from leashed import cli, metrics, stream
from leashed.datasets import (
    criteo,
    hashed,
    read_libffm,
    read_svmlight,
    synthetic_click_lines,
)

ROWS = 600


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same examples in three formats, and others with schemas beside them."""
    folder = tmp_path_factory.mktemp("files")
    rng = np.random.default_rng(0)
    libsvm, libffm, values = [], [], []
    for _ in range(ROWS):
        columns = sorted(rng.choice(40, 6, replace=False))
        label = int(rng.random() < 1 / (1 + math.exp(-sum(c % 5 - 2 for c in columns))))
        libsvm.append(f"{label} " + " ".join(f"{c + 1}:1" for c in columns))
        libffm.append(f"{label} " + " ".join(f"{c // 10}:{c}:1" for c in columns))
        values.append(f"{sum(columns) / 100} " + " ".join(f"{c + 1}:1" for c in columns))
    for name, lines in (("a.svm", libsvm), ("a.ffm", libffm), ("values.libsvm", values)):
        (folder / name).write_text("\n".join(lines) + "\n")
    by_schema = {
        "rows": {
            "clicked": {"kind": "label"},
            "price": {"kind": "number", "missing": 0},
            "city": {"kind": "hashed"},
            "seen": {"kind": "id", "between": " "},
        },
        "prices": {"paid": {"kind": "target"}, "price": {"kind": "number"}},
    }
    rows, prices = ["city,clicked,price,seen"], ["price,paid"]
    for i, price in enumerate(rng.random(ROWS)):
        clicked = int(rng.random() < (0.8 if i % 7 < 3 else 0.2))
        rows.append(f"c{i % 7},{clicked},{price:.3f},{' '.join('123'[: i % 4])}")
        prices.append(f"{price:.3f},{2 * price + 1:.3f}")
    for name, lines in (("rows", rows), ("prices", prices)):
        (folder / f"{name}.csv").write_text("\n".join(lines) + "\n")
        (folder / f"{name}.json").write_text(json.dumps({"columns": by_schema[name]}))
    (folder / "day.tsv").write_bytes(b"".join(synthetic_click_lines(ROWS, 3, cardinalities=50)))
    return folder


def evaluated(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    capsys.readouterr()
    assert cli.main(["evaluate", *arguments, "--json"]) == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


@pytest.mark.parametrize(
    ("model", "file", "more"),
    [
        ("logistic_regression", "a.svm", []),
        ("linear_svm", "a.svm", ["--l2", "0.001"]),
        ("softmax_regression", "a.svm", []),
        ("linear_regression", "values.libsvm", ["--lr", "0.01"]),
        ("fm", "a.svm", ["--factors", "4"]),
        ("fm", "a.ffm", []),
        ("fm", "values.libsvm", ["--lr", "0.01", "--target", "number"]),
        ("fm", "prices.csv", ["--lr", "0.01", "--target", "number"]),
        ("ffm", "a.ffm", ["--factors", "2"]),
        ("logistic_regression", "day.tsv", ["--hash-bits", "10"]),
        ("fm", "day.tsv", ["--lr", "0.02"]),
        ("logistic_regression", "rows.csv", ["--hash-bits", "8"]),
        ("fm", "rows.csv", ["--lr", "0.02", "--bad", "skip"]),
        ("linear_regression", "prices.csv", []),
    ],
)
def test_sparse_files_from_training_to_predictions(
    model: str,
    file: str,
    more: list[str],
    files: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
):
    saved, result = tmp_path / "model.safetensors", tmp_path / "result.json"
    data = ["--data", str(files / file)]
    if file.endswith(".csv"):
        data += ["--schema", str((files / file).with_suffix(".json"))]
    arguments = ["--model", model, *data, *more, "--threads", "1"]
    arguments += ["--epochs", "30", "--discipline", "hogwild"]
    told = ["--save", str(saved), "--output", str(result)]
    assert cli.main(["train", *arguments, *told]) == 0
    trained = json.loads(result.read_text())
    assert trained["loss"][-1] < trained["loss"][0]

    values = evaluated(capsys, str(saved), *data)
    assert values["examples"] == ROWS
    assert values["loss"] < trained["loss"][0]
    out = tmp_path / "said.npy"
    assert cli.main(["predict", str(saved), *data, "--output", str(out)]) == 0
    said = np.load(out)
    assert said.shape == (ROWS, 2 if model == "softmax_regression" else 1)
    text = tmp_path / "said.csv"
    arguments = [str(saved), *data, "--rows", "10", "--output", str(text)]
    assert cli.main(["predict", *arguments]) == 0
    lines = np.loadtxt(text, np.float32, delimiter=",", ndmin=2)
    np.testing.assert_array_equal(lines, said[:10])
    if model in ("logistic_regression", "fm", "ffm") and "--target" not in more:
        lines = (files / file).read_text().splitlines()
        labels = [int(line[0] == "1") for line in lines]
        if file == "rows.csv":
            labels = [int(line.split(",")[1]) for line in lines[1:]]
        assert values["auc"] == pytest.approx(metrics.auc(said[:, 0], labels))
        assert values["auc"] > 0.6
        assert values["accuracy"] == np.mean((said[:, 0] > 0.5) == labels)


def test_a_test_file_has_the_columns_of_the_training_file(files: Path, tmp_path: Path):
    test = tmp_path / "test.svm"
    test.write_text("1 2:1\n0 3:1\n")
    out = tmp_path / "result.json"
    arguments = ["--data", str(files / "a.svm"), "--test", str(test), "--epochs", "1"]
    told = ["--model", "logistic_regression", *arguments, "--output", str(out)]
    assert cli.main(["train", *told]) == 0
    assert json.loads(out.read_text())["config"]["examples"] == ROWS


def test_models_of_clicks_come_back_with_their_tables(
    files: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    saved = tmp_path / "model"
    data = ["--data", str(files / "day.tsv")]
    for more in (
        ["--rule", "adagrad"],
        ["--rule", "adagrad", "--swap", "period=3", "--evict", "age", "--table-mib", "4"],
        ["--rule", "adam", "--staleness", "inverse", "--stage-aware", "1"],
    ):
        arguments = ["--model", "dlrm", *data, *more, "--epochs", "2", "--threads", "1"]
        assert cli.main(["train", *arguments, "--save", str(saved)]) == 0
        found = lsh.load(saved)
        assert sorted(found.tables) == sorted(spec.name for spec in found.model.tables)
        rows = criteo(files / "day.tsv")
        said = found.model.predict(found.parameters, rows, found.tables)[:, 0]
        values = evaluated(capsys, str(saved), *data)
        assert evaluated(capsys, str(saved), "--data", str(files / "da?.tsv")) == values
        assert values["auc"] == pytest.approx(metrics.auc(said, rows.y))
        assert values["loss"] == pytest.approx(metrics.log_loss(said, rows.y), rel=1e-5)
        assert cli.main(["predict", str(saved), *data, "--undo-downsampling", "0.1"]) == 0
        told = np.array(capsys.readouterr().out.split(), np.float32)
        np.testing.assert_allclose(told, metrics.undo_downsampling(said, 0.1), rtol=1e-5)


def test_generated_clicks_and_networks(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    saved = tmp_path / "model"
    arguments = ["--model", "dlrm", "--rows", "1000", "--epochs", "1", "--save", str(saved)]
    assert cli.main(["train", *arguments]) == 0
    values = evaluated(capsys, str(saved), "--rows", "2000")
    assert values["examples"] == 2000
    assert 0.7 < values["hidden_auc"] < 0.9
    network = tmp_path / "mlp.safetensors"
    assert cli.main(["train", "--model", "mlp", "--epochs", "1", "--save", str(network)]) == 0
    values = evaluated(capsys, str(network))
    assert set(values) == {"examples", "loss", "accuracy"}
    assert cli.main(["predict", str(network), "--rows", "3"]) == 0
    said = np.loadtxt(capsys.readouterr().out.splitlines(), delimiter=",")
    np.testing.assert_allclose(said.sum(1), 1, rtol=1e-5)


def test_clicks_with_histories(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    saved = tmp_path / "model"
    arguments = ["--model", "dien", "--rows", "1000", "--epochs", "1", "--save", str(saved)]
    assert cli.main(["train", *arguments]) == 0
    values = evaluated(capsys, str(saved), "--rows", "500")
    assert values["examples"] == 500


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["train", "--model", "fm"], "takes --data FILE of sparse rows"),
        (["train", "--model", "fm", "--data", "{}/a.svm", "--hash-bits", "3"], "--format criteo"),
        (["train", "--model", "fm", "--data", "{}/a.ffm", "--zero-based"], "--format libsvm"),
        (["train", "--model", "ffm", "--data", "{}/a.svm"], "which name fields"),
        (["train", "--model", "fm", "--data", "{}/a.svm", "--rows", "3"], "--rows goes with"),
        (["train", "--model", "linear_svm", "--data", "{}/a.svm", "--factors", "3"], "fm or ffm"),
        (["train", "--model", "mlp", "--l2", "0.1"], "--l2 goes with --model"),
        (["train", "--model", "dlrm", "--zero-based"], "--zero-based goes with --model"),
        (["train", "--model", "fm", "--data", "{}/rows.csv", "--format", "csv"], "takes --schema"),
        (
            ["train", "--model", "fm", "--data", "{}/a.svm", "--schema", "x", "--format", "libsvm"],
            "--schema is of --format csv",
        ),
        (["train", "--model", "fm", "--data", "{}/a.svm", "--bad", "skip"], "--bad goes with"),
        (["train", "--model", "fm", "--data", "{}/none"], "/none: No such file"),
        (["train", "--model", "dlrm", "--data", "{}/none"], "/none: No such file"),
        (["train", "--data", "{}/none"], "/none: No such file"),
        (["predict", "{}/none"], "No such file"),
        (["evaluate", "{}/a.svm"], "cannot load"),
    ],
)
def test_what_does_not_go_is_told(
    arguments: list[str], message: str, files: Path, capsys: pytest.CaptureFixture[str]
):
    assert cli.main([argument.format(files) for argument in arguments]) == 2
    assert message in capsys.readouterr().err


def test_rows_whose_probabilities_are_all_1_are_told_apart(
    files: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    (tmp_path / "far.svm").write_text("1 1:1\n0 2:1\n1 1:1\n0 2:1\n")
    far = ["--data", str(tmp_path / "far.svm")]
    linear = lsh.models.logistic_regression(2)
    fm = lsh.models.fm(2, 1)
    for model, theta in ((linear, [30, 20, 0]), (fm, [30, 0, 20, 0, 0])):
        lsh.save(tmp_path / "far.safetensors", model, np.array(theta, np.float32))
        values = evaluated(capsys, str(tmp_path / "far.safetensors"), *far)
        assert values["auc"] == 1
        assert values["normalised_entropy"] == pytest.approx(values["loss"] / math.log(2))
    saved = tmp_path / "model"
    clicks = ["--data", str(files / "day.tsv")]
    arguments = ["--model", "dlrm", *clicks, "--table-mib", "1", "--epochs", "1"]
    assert cli.main(["train", *arguments, "--save", str(saved)]) == 0
    before = evaluated(capsys, str(saved), *clicks)
    found = lsh.load(saved)
    found.parameters[-1] += 40
    found.save(saved)
    values = evaluated(capsys, str(saved), *clicks)
    assert values["auc"] == pytest.approx(before["auc"], abs=1e-4)
    assert 10 < values["normalised_entropy"] < math.inf


@pytest.mark.parametrize("model", ["dlrm", "logistic_regression"])
def test_columns_in_another_order_are_told(
    model: str, files: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    schema = json.loads((files / "rows.json").read_text())
    columns = schema["columns"]
    schema["columns"] = {name: columns[name] for name in ("clicked", "price", "seen", "city")}
    swapped = tmp_path / "swapped.json"
    swapped.write_text(json.dumps(schema))
    of, rows, run = tmp_path / "model", str(files / "rows.csv"), tmp_path / "run"
    told = ["train", "--model", model, "--data", rows, "--updates", "9", "--threads", "1"]
    told += ["--schema", str(files / "rows.json"), "--checkpoint", str(run)]
    assert cli.main([*told, "--save", str(of)]) == 0
    capsys.readouterr()
    for command in ("predict", "evaluate"):
        for model_of in (of, run):
            given = [command, str(model_of), "--data", rows, "--schema"]
            assert cli.main([*given, str(files / "rows.json")]) == 0
            said = capsys.readouterr().out
            if model == "dlrm":  # by name
                for other in ([*given, str(swapped)], given[:-1]):
                    assert cli.main(other) == 0
                    assert capsys.readouterr().out == said
                continue
            assert cli.main([*given, str(swapped)]) == 2
            out, err = capsys.readouterr()
            assert out == ""
            assert "id feature 0, counted from 0, was 'city' and is 'seen'" in err
            assert err.endswith("give them in the order city, seen\n")
    more = ["--schema", str(swapped), "--updates", "12", "--resume", str(run)]
    assert cli.main([*told, *more]) == (0 if model == "dlrm" else 2)


def test_what_is_not_finite_is_null_in_json(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    (tmp_path / "a.svm").write_text("1 1:1\n0 1:1\n")
    model = lsh.models.logistic_regression(1)
    lsh.save(tmp_path / "m", model, np.zeros(2, np.float32))
    monkeypatch.setattr(metrics, "auc", lambda *_: math.inf)
    values = evaluated(capsys, str(tmp_path / "m"), "--data", str(tmp_path / "a.svm"))
    assert values["auc"] is None


def test_predictions_are_written_whole_or_not_at_all(
    files: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    model = lsh.models.logistic_regression(40)
    lsh.save(tmp_path / "m", model, np.zeros(41, np.float32))
    out = tmp_path / "out" / "said.csv"
    out.parent.mkdir()
    out.write_text("before\n")
    arguments = [str(tmp_path / "m"), "--data", str(files / "a.svm"), "--output", str(out)]

    def full(_: object) -> Iterator[str]:
        yield "0.5\n"
        raise OSError(errno.ENOSPC, "No space left on device", str(out))

    with monkeypatch.context() as patch:
        patch.setattr("leashed.cli.predict._lines", full)
        assert cli.main(["predict", *arguments]) == 2
    assert out.read_text() == "before\n"
    assert list(out.parent.iterdir()) == [out]
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    assert cli.main(["predict", *arguments[:-1], str(pipe), "--rows", "2"]) == 0
    assert os.read(reader, 100) == b"0.5\n0.5\n"
    os.close(reader)


def test_options_that_would_do_nothing_are_refused(
    files: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    linear, clicks, grown = (tmp_path / name for name in ("linear", "clicks", "grown"))
    lsh.save(linear, lsh.models.logistic_regression(40), np.zeros(41, np.float32))
    network = lsh.models.mlp(784, [2], 10)
    lsh.save(tmp_path / "network", network, network.init())
    for folder, rows in ((clicks, 50), (grown, None)):
        model = lsh.models.dlrm(rows, 4, bottom=(4,), top=(4,), categories=2)
        tables = lsh.tables.of(model.tables, max_bytes=2**20)
        lsh.save(folder, model, model.init(), tables)
    day, svm = ["--data", str(files / "day.tsv")], ["--data", str(files / "a.svm")]
    for given, message in (
        ([str(clicks), "--zero-based"], "--zero-based does not go with generated clicks"),
        ([str(clicks), "--format", "criteo"], "--format does not go with generated clicks"),
        ([str(clicks), *day, "--seed", "0"], "--seed does not go with a file of clicks"),
        ([str(linear), *svm, "--seed", "0"], "--seed does not go with a file of the format libsvm"),
        ([str(linear), *day, "--zero-based"], "--zero-based does not go with a file of the format"),
        ([str(linear), "--data", "clicks"], "--data clicks goes with models of clicks"),
        ([str(tmp_path / "network"), "--seed", "0"], "--seed does not go with a folder of images"),
        ([str(grown)], "has tables that grow, of a file's ids; give --data FILE"),
        ([str(linear), "--data", "none"], "none: No such file or directory"),
        ([str(clicks), "--data", "none"], "none: No such file or directory"),
    ):
        for command in ("predict", "evaluate"):
            assert cli.main([command, *given]) == 2
            assert message in capsys.readouterr().err
    for rate in ("0", "1.5", "nan"):
        assert cli.main(["predict", "none", "--undo-downsampling", rate]) == 2
        assert "--undo-downsampling must be above 0 and at most 1" in capsys.readouterr().err


def test_ids_are_hashed_alike_whatever_the_rows():
    data = lsh.datasets.synthetic_histories(200, 1, test=1).train
    rows = hashed(data, 12)
    assert rows.features == 1 + 2**12
    later = hashed(data[50:], 12)
    np.testing.assert_array_equal(rows[50:].indices, later.indices)
    np.testing.assert_array_equal(rows[50:].data, later.data)
    lengths = np.diff(data.ids[3].offsets)
    np.testing.assert_array_equal(np.diff(rows.indptr), 3 + 2 * lengths + (data.x[:, 0] != 0))
    # The same id in two features is two things, and columns are used evenly.
    same = lsh.ClickDataset.from_arrays(None, np.arange(10_000)[:, None] + [0, 0], [0, 1] * 5000)
    columns = hashed(same, 10).indices.reshape(-1, 2)
    assert (columns[:, 0] == columns[:, 1]).mean() < 0.01
    counts = np.bincount(columns[:, 0], minlength=1024)
    assert counts.min() > 0
    assert counts.max() < 30
    for bits in (0, 31):
        with pytest.raises(ValueError, match="bits must be at"):
            hashed(data, bits)


def packed_in_two(path: Path, folder: Path) -> str:
    """The same rows in two files, of which one is compressed; the pattern of their names."""
    lines = path.read_bytes().splitlines(keepends=True)
    (folder / f"part-0{path.suffix}").write_bytes(b"".join(lines[:250]))
    (folder / f"part-1{path.suffix}.gz").write_bytes(gzip.compress(b"".join(lines[250:])))
    return str(folder / f"part-*{path.suffix}*")


@pytest.mark.parametrize(
    ("model", "file", "more"),
    [
        ("linear_regression", "values.libsvm", ["--lr", "0.01"]),
        ("logistic_regression", "a.svm", []),
        ("linear_svm", "a.svm", ["--l2", "0.001"]),
        ("softmax_regression", "a.svm", []),
        ("fm", "a.svm", ["--factors", "4", "--progressive"]),
        ("fm", "a.ffm", ["--test", "{}/a.ffm"]),
        ("ffm", "a.ffm", ["--factors", "2", "--rule", "adagrad", "--lr", "0.05", "--progressive"]),
    ],
)
def test_streams_from_training_to_predictions_are_as_from_memory(
    model: str,
    file: str,
    more: list[str],
    files: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
):
    pattern = packed_in_two(files / file, tmp_path)
    more = [argument.format(files) for argument in more]
    arguments = ["--model", model, *more, "--threads", "1", "--epochs", "2", "--stream"]
    told = ["--output", str(tmp_path / "result.json")]
    saved = []
    for name, data in (("whole", str(files / file)), ("parts", pattern)):
        saved.append(tmp_path / f"{name}.safetensors")
        named = ["--data", data, "--save", str(saved[-1])]
        assert cli.main(["train", *arguments, *named, *told]) == 0
    trained = json.loads((tmp_path / "result.json").read_text())
    assert trained["config"]["reading"]["rows"] == ROWS
    assert trained["examples"] == 2 * ROWS
    found = [lsh.load(path) for path in saved]
    np.testing.assert_array_equal(found[0].parameters, found[1].parameters)

    if file.endswith("ffm"):
        (rows,), fields = read_libffm(files / file)
        assert getattr(found[0].model, "fields", None) in (None, tuple(fields))
    else:
        rows = read_svmlight(files / file, regression=model == "linear_regression")
    settings: dict[str, Any] = {"until": lsh.until(epochs=2), "threads": 1, "batch_size": 64}
    rule = lsh.Adagrad(0.05) if "adagrad" in more else lsh.SGD(0.01 if "--lr" in more else 0.05)
    fields_or_columns: Any = fields if model == "ffm" else 40
    again = lsh.train(
        found[0].model,
        stream.libffm(files / file, fields_or_columns)
        if file.endswith("ffm")
        else stream.libsvm(files / file, 40, classes=rows.classes),
        rule=rule,
        **settings,
    )
    np.testing.assert_array_equal(again.parameters, found[0].parameters)

    loss, accuracy = found[0].model.evaluate(found[0].parameters, rows)
    said = found[0].model.predict(found[0].parameters, rows)
    monkeypatch.setattr("leashed.training.problems.files._PART", 100)
    values = evaluated(capsys, str(saved[0]), "--data", pattern)
    assert values["examples"] == ROWS
    assert values["loss"] == pytest.approx(loss, rel=1e-12)
    assert values.get("accuracy", 0) == pytest.approx(accuracy, rel=1e-12)
    if model in ("logistic_regression", "fm", "ffm"):
        assert values["auc"] == metrics.auc(said[:, 0], rows.y)
        assert "auc_error" not in values
        monkeypatch.setattr("leashed.training.trained._RANKED", 150)
        counted = evaluated(capsys, str(saved[0]), "--data", pattern)
        assert 0 < counted["auc_error"] < 0.01
        assert abs(counted["auc"] - values["auc"]) <= counted["auc_error"]
    for most in (ROWS, 250):
        out = tmp_path / "said.npy"
        asked = [str(saved[0]), "--data", pattern, "--rows", str(most), "--output", str(out)]
        assert cli.main(["predict", *asked]) == 0
        np.testing.assert_array_equal(np.load(out), said[:most])
    assert cli.main(["predict", str(saved[0]), "--data", pattern]) == 0
    text = np.loadtxt(capsys.readouterr().out.splitlines(), np.float32, delimiter=",", ndmin=2)
    np.testing.assert_array_equal(text, said)


def test_bad_lines_of_sparse_streams(
    files: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    lines = (files / "a.svm").read_text().splitlines()
    lines[9] = "1 41:1"
    path = tmp_path / "bad.svm"
    path.write_text("\n".join(lines))
    saved = tmp_path / "m.safetensors"
    train = ["train", "--model", "fm", "--stream", "--features", "40", "--data", str(path)]
    told = f"{path}: line 10: column 41 is beyond the 40 features"
    for command in (train, [*train, "--epochs", "3"]):
        assert cli.main(command) == 2
        assert told in capsys.readouterr().err
    out = tmp_path / "result.json"
    more = ["--bad", "skip", "--save", str(saved), "--output", str(out)]
    assert cli.main([*train, *more]) == 0
    reading = json.loads(out.read_text())["config"]["reading"]
    assert (reading["rows"], reading["bad"]) == (ROWS - 1, 1)
    for command in ("predict", "evaluate"):
        assert cli.main([command, str(saved), "--data", str(path)]) == 2
        assert told in capsys.readouterr().err
    values = evaluated(capsys, str(saved), "--data", str(path), "--bad", "skip")
    assert values["examples"] == ROWS - 1


def test_bad_lines_of_criteo_files_for_models_of_sparse_rows(
    files: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    path, saved = tmp_path / "bad.tsv", tmp_path / "m.safetensors"
    path.write_bytes(b"x\n" + (files / "day.tsv").read_bytes())
    commands = (
        ["train", "--model", "fm", "--data", str(path), "--epochs", "1", "--save", str(saved)],
        ["evaluate", str(saved), "--data", str(path)],
        ["predict", str(saved), "--data", str(path), "--output", str(tmp_path / "said.npy")],
    )
    for command in commands:
        assert cli.main([*command, "--bad", "skip"]) == 0
        assert cli.main(command) == 2
        assert "--bad skip leaves such lines out" in capsys.readouterr().err
    assert len(np.load(tmp_path / "said.npy")) == ROWS


def test_predictions_take_no_place_of_what_is_read(
    files: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    data, saved = tmp_path / "a.svm", tmp_path / "m.safetensors"
    data.write_bytes((files / "a.svm").read_bytes())
    assert cli.main(["train", "--model", "fm", "--data", str(data), "--save", str(saved)]) == 0
    for path in (data, saved):
        before = path.read_bytes()
        command = ["predict", str(saved), "--data", str(tmp_path / "a*.svm"), "--output", str(path)]
        assert cli.main(command) == 2
        assert f"--output {path} is read here; name another" in capsys.readouterr().err
        assert path.read_bytes() == before


def test_a_pipe_is_trained_on_and_predicted(
    files: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    packed = gzip.compress((files / "a.svm").read_bytes())
    pipe, saved = tmp_path / "pipe.svm.gz", tmp_path / "m.safetensors"
    os.mkfifo(pipe)
    out = tmp_path / "said.npy"
    train = ["train", "--model", "linear_svm", "--stream", "--features", "40"]
    for command in (
        [*train, "--data", str(pipe), "--save", str(saved)],
        ["predict", str(saved), "--data", str(pipe), "--output", str(out)],
    ):
        writer = threading.Thread(target=pipe.write_bytes, args=(packed,))
        writer.start()
        assert cli.main(command) == 0
        writer.join()
    assert len(np.load(out)) == ROWS
    once = ["train", "--stream", "--data", str(pipe), "--model"]
    for model, told in (("fm", "give --features N"), ("softmax_regression", "--features N")):
        capsys.readouterr()
        assert cli.main([*once, model]) == 2
        assert told in capsys.readouterr().err
    assert cli.main([*once, "softmax_regression", "--features", "40"]) == 2
    assert "give a file" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["--model", "fm", "--data", "{}/day.tsv", "--stream"],
            "--stream of a file of the format criteo goes",
        ),
        (["--model", "fm", "--stream"], "takes --data FILE of sparse rows"),
        (["--model", "mlp", "--stream"], "--stream goes with --model"),
        (["--model", "fm", "--data", "{}/a.svm", "--features", "40"], "--features goes with"),
        (["--model", "mlp", "--features", "40"], "--features goes with --model"),
        (["--model", "fm", "--data", "{}/a.svm", "--bad", "skip"], "--bad goes with --stream"),
        (["--model", "fm", "--data", "{}/no-*.svm", "--stream"], "no file matches"),
        (["--model", "fm", "--data", "{}/values.libsvm", "--stream"], "that are no labels"),
        (
            ["--model", "fm", "--data", "{}/a.svm", "--stream", "--loss", "0.1"],
            "until.loss is not for streams",
        ),
        (
            ["--model", "fm", "--data", "{}/a.svm", "--stream", "--gauc", "user"],
            "do not tell whose they are",
        ),
        (["--model", "fm", "--data", "{}", "--format", "libsvm", "--stream"], "is a folder; name"),
    ],
)
def test_what_does_not_go_on_sparse_streams_is_told(
    arguments: list[str], message: str, files: Path, capsys: pytest.CaptureFixture[str]
):
    assert cli.main(["train", *(argument.format(files) for argument in arguments)]) == 2
    assert message in capsys.readouterr().err
