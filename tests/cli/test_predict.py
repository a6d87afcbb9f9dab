"""``leashed train`` on sparse rows, ``leashed predict`` and ``leashed evaluate``."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import leashed as lsh
from leashed import cli, metrics
from leashed.datasets import criteo, hashed, synthetic_click_lines

ROWS = 600


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same examples in three formats."""
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
        ("ffm", "a.ffm", ["--factors", "2"]),
        ("logistic_regression", "day.tsv", ["--hash-bits", "10"]),
        ("fm", "day.tsv", ["--lr", "0.02"]),
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
    arguments = ["--model", model, "--data", str(files / file), *more, "--threads", "1"]
    arguments += ["--epochs", "30", "--discipline", "hogwild"]
    told = ["--save", str(saved), "--output", str(result)]
    assert cli.main(["train", *arguments, *told]) == 0
    trained = json.loads(result.read_text())
    assert trained["loss"][-1] < trained["loss"][0]

    values = evaluated(capsys, str(saved), "--data", str(files / file))
    assert values["examples"] == ROWS
    assert values["loss"] < trained["loss"][0]
    out = tmp_path / "said.npy"
    assert cli.main(["predict", str(saved), "--data", str(files / file), "--output", str(out)]) == 0
    said = np.load(out)
    assert said.shape == (ROWS, 2 if model == "softmax_regression" else 1)
    text = tmp_path / "said.csv"
    arguments = [str(saved), "--data", str(files / file), "--rows", "10", "--output", str(text)]
    assert cli.main(["predict", *arguments]) == 0
    lines = np.loadtxt(text, np.float32, delimiter=",", ndmin=2)
    np.testing.assert_array_equal(lines, said[:10])
    if model in ("logistic_regression", "fm", "ffm"):
        labels = [int(line[0] == "1") for line in (files / file).read_text().splitlines()]
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
        found = lsh.restore(saved)
        assert sorted(found.tables) == sorted(spec.name for spec in found.model.tables)
        rows = criteo(files / "day.tsv")
        said = found.model.predict(found.parameters, rows, found.tables)[:, 0]
        values = evaluated(capsys, str(saved), *data)
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
    assert 0.7 < values["hidden_model's_AUC"] < 0.9
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
        (["train", "--model", "fm", "--data", "{}/none"], "does not tell its format"),
        (["predict", "{}/none"], "No such file"),
        (["evaluate", "{}/a.svm"], "cannot load"),
    ],
)
def test_what_does_not_go_is_told(
    arguments: list[str], message: str, files: Path, capsys: pytest.CaptureFixture[str]
):
    assert cli.main([argument.format(files) for argument in arguments]) == 2
    assert message in capsys.readouterr().err


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
