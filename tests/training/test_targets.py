"""Models over tables that predict numbers, or one of several classes."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import leashed as lsh
from leashed import stream
from leashed.datasets import ClickDataset
from leashed.training import defaults

N = 1500
IDS = np.random.default_rng(1).integers(0, 20, (N, 3))
X = np.random.default_rng(2).normal(size=(N, 2)).astype(np.float32)
NUMBER = (IDS[:, 0] / 10 - 1 + X[:, 0] / 2).astype(np.float32)
CLASS = IDS[:, 0] % 4

MODELS: dict[str, Callable[..., Any]] = {
    "dlrm": lsh.models.dlrm,
    "deepfm": lsh.models.deepfm,
    "dcn": lsh.models.dcn,
    "wide_deep": lsh.models.wide_deep,
}
HISTORIES: dict[str, Callable[..., Any]] = {
    "din": lsh.models.din,
    "dien": lsh.models.dien,
    "ecommerce": lsh.models.ecommerce,
}


def _trained(model: Any, data: Any, epochs: int = 6, **choices: Any) -> Any:
    return lsh.train(
        model,
        data,
        rule=lsh.Adagrad(0.1),
        until=lsh.until(epochs=epochs),
        batch_size=32,
        threads=1,
        **choices,
    )


def _frame() -> Any:
    pa = pytest.importorskip("pyarrow")
    columns = {f"item{i}_id": IDS[:, i] for i in range(3)} | {"a": X[:, 0], "b": X[:, 1]}
    return pa.table({**columns, "price": NUMBER, "kind": CLASS})


@pytest.mark.parametrize("name", MODELS)
def test_numbers_are_learned_and_judged_as_numbers(name: str, tmp_path: Path) -> None:
    data = ClickDataset.from_arrays(X, IDS, NUMBER, target="number")
    assert (data.classes, data.y.dtype) == (0, np.float32)
    train, test = data.split(300)
    model = _trained(MODELS[name](dim=4, target="number"), train).model
    predicted, judged = model.predict(test), model.evaluate(test)
    error = predicted - test.y
    assert predicted.shape == (300,)
    assert judged.mse == pytest.approx(np.mean(error**2), rel=1e-4)
    assert judged.rmse == pytest.approx(np.sqrt(judged.mse))
    assert judged.mae == pytest.approx(np.mean(np.abs(error)), rel=1e-4)
    assert judged.r2 == pytest.approx(1 - np.mean(error**2) / np.var(test.y), rel=1e-3)
    assert judged.loss == pytest.approx(judged.mse / 2, rel=1e-4)
    assert judged.r2 > 0.8
    assert judged.accuracy is None
    assert judged.auc is None
    model.save(tmp_path / "saved")
    assert (lsh.load(tmp_path / "saved").predict(test) == predicted).all()


@pytest.mark.parametrize("target", ["classes", 4])
@pytest.mark.parametrize("name", MODELS)
def test_classes_are_learned_and_judged_as_classes(name: str, target: Any, tmp_path: Path) -> None:
    data = ClickDataset.from_arrays(X, IDS, CLASS, target=target)
    train, test = data.split(300)
    model = _trained(MODELS[name](dim=4, target=target), train).model
    predicted, judged = model.predict(test), model.evaluate(test)
    assert predicted.shape == (300, 4)
    assert np.allclose(predicted.sum(1), 1, atol=1e-5)
    assert judged.accuracy == pytest.approx(np.mean(predicted.argmax(1) == test.y))
    assert judged.accuracy > 0.8
    of_label = predicted[np.arange(300), test.y]
    assert judged.loss == pytest.approx(-np.log(of_label).mean(), rel=1e-3)
    assert judged.mse is None
    model.save(tmp_path / "saved")
    assert (lsh.load(tmp_path / "saved").predict(test) == predicted).all()


@pytest.mark.parametrize("name", HISTORIES)
@pytest.mark.parametrize("target", ["number", 3])
def test_models_of_histories_take_targets(name: str, target: Any) -> None:
    told = lsh.datasets.synthetic_histories(400, 1, test=50, users=30, items=200).train
    y = told.ids[1] % 3
    data = ClickDataset.from_arrays(
        told.x, dict(zip(told.names, told.ids, strict=True)), y, target=target
    )
    model = HISTORIES[name](dim=4, hidden=(8,), target=target)
    result = _trained(model, data, epochs=2)
    assert result.model.predict(data).shape == ((400,) if target == "number" else (400, 3))
    with pytest.raises(ValueError, match="how many classes"):
        HISTORIES[name](30, 200, target="classes")


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("target", ["number", "classes"])
def test_onnx_says_the_same(name: str, target: Any, tmp_path: Path) -> None:
    runtime = pytest.importorskip("onnxruntime")
    y = NUMBER if target == "number" else CLASS
    data = ClickDataset.from_arrays(X, IDS, y, target=target)
    model = _trained(MODELS[name](20, dim=4, target=target), data, 1).model
    model.export(tmp_path / "model.onnx")
    session = runtime.InferenceSession(tmp_path / "model.onnx")
    given = [X, *(IDS[:, i] for i in range(3))]
    names = [one.name for one in session.get_inputs()]
    assert len(names) == len(given)
    said = session.run(None, dict(zip(names, given, strict=True)))[0]
    expected = model.predict(data)
    assert np.allclose(said.reshape(expected.shape), expected, atol=1e-4)


@pytest.mark.parametrize(
    ("target", "label", "outputs"), [("number", "price", ()), ("classes", "kind", (4,))]
)
def test_a_frame_and_its_file_tell_the_same(
    target: Any, label: str, outputs: tuple[int, ...], tmp_path: Path
) -> None:
    frame = _frame()
    other = "kind" if label == "price" else "price"
    frame = frame.drop_columns([other])
    model = _trained(lsh.models.dlrm(dim=4, target=target), frame, label=label).model
    predicted = model.predict(frame.drop_columns([label]))
    assert predicted.shape == (N, *outputs)
    judged = model.evaluate(frame)
    assert (judged.r2 or judged.accuracy) > 0.7
    csv = pytest.importorskip("pyarrow.csv")
    parquet = pytest.importorskip("pyarrow.parquet")
    csv.write_csv(frame, tmp_path / "rows.csv")
    parquet.write_table(frame, tmp_path / "rows.parquet")
    for path in (tmp_path / "rows.csv", tmp_path / "rows.parquet"):
        assert np.allclose(model.predict(str(path)), predicted, atol=1e-4)
        streamed = _trained(lsh.models.dlrm(dim=4, target=target), str(path), 6, label=label).model
        again = streamed.evaluate(str(path))
        assert (
            again.r2 or again.accuracy
        ) > 0.5  # a stream's batches are larger, so it has fewer updates


def test_a_click_that_is_none_tells_what_else_there_is() -> None:
    with pytest.raises(
        ValueError, match=r'y has 7 at index 1, and a click is 0 or 1; target="number"'
    ):
        ClickDataset.from_arrays(None, [[1], [2]], [1, 7])
    with pytest.raises(
        ValueError, match=r"label 'price' has .*a click is 0 or 1; target=\"number\""
    ):
        lsh.train(lsh.models.dlrm(), _frame(), label="price")


def test_a_class_that_is_none_is_named() -> None:
    with pytest.raises(ValueError, match="label 7 at index 1, outside 0 to 4"):
        ClickDataset.from_arrays(None, [[1], [2]], [1, 7], target=5)
    with pytest.raises(ValueError, match=r"label 'kind' has 3, and a class is .* below 3"):
        lsh.train(lsh.models.dlrm(target=3), _frame(), label="kind")
    with pytest.raises(
        ValueError, match=r"label 'price' has .*, and a class is a whole number from 0;"
    ):
        lsh.train(lsh.models.dlrm(target="classes"), _frame(), label="price")
    six = ClickDataset.from_arrays(None, IDS, np.where(np.arange(N) == 9, 5, CLASS), target=6)
    with pytest.raises(ValueError, match="labels up to 5, first in row 9, but the model knows 4"):
        lsh.train(lsh.models.dlrm(categories=3, dense=0, target=4), six)


def test_a_class_of_a_file_that_is_none_is_named_with_its_line(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    path.write_text("kind,item\n0,4\n1,5\n7,5\n")
    columns = {"kind": stream.Label(5), "item": stream.Id()}
    with pytest.raises(
        ValueError, match=r"rows.csv: line 4: kind is .7., no whole number from 0 to 4"
    ):
        lsh.train(lsh.models.dlrm(target=5), stream.csv(path, columns), batch_size=1)


def test_a_model_of_another_target_is_refused() -> None:
    numbers = ClickDataset.from_arrays(X, IDS, NUMBER, target="number")
    with pytest.raises(
        ValueError, match=r'data has numbers, but the loss log_loss.*target="number"'
    ):
        lsh.train(lsh.models.dlrm(), numbers)
    clicks = ClickDataset.from_arrays(X, IDS, CLASS > 1)
    with pytest.raises(ValueError, match=r'data has labels, but the loss squared_error.*"click"'):
        lsh.train(lsh.models.dlrm(target="number"), clicks)
    with pytest.raises(ValueError, match="target must be"):
        lsh.models.dlrm(target="price")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="target must be at least 2"):
        lsh.models.dlrm(target=1)
    with pytest.raises(ValueError, match="clicks"):
        lsh.datasets.downsample(numbers, 0.5)


@pytest.mark.parametrize("loss", ["sampled_softmax", "bpr", "in_batch"])
def test_what_was_chosen_among_others_is_no_target(loss: Any) -> None:
    model = lsh.models.youtube_dnn(50, 4, (4,), loss=loss)
    assert model.target is None
    assert not defaults.is_of_clicks(model)


def _run(*words: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "leashed", *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


@pytest.mark.parametrize(
    ("word", "label", "told"),
    [
        ("number", "price", "RMSE"),
        ("classes", "kind", "accuracy"),
        ("classes=4", "kind", "accuracy"),
    ],
)
def test_the_command_line_has_targets(word: str, label: str, told: str, tmp_path: Path) -> None:
    csv = pytest.importorskip("pyarrow.csv")
    path = tmp_path / "rows.csv"
    csv.write_csv(_frame().drop_columns(["kind" if label == "price" else "price"]), path)
    saved = tmp_path / "saved"
    done = _run(
        *("train", "--model", "dlrm", "--data", path, "--label", label, "--target", word),
        *("--threads", 1, "--no-progress", "--save", saved),
    )
    assert done.returncode == 0, done.stderr
    judged = _run("evaluate", saved, "--data", path)
    assert told in judged.stdout, judged.stderr
    output = tmp_path / "predicted.csv"
    assert _run("predict", saved, "--data", path, "--output", output).returncode == 0
    assert len(output.read_text().splitlines()) >= N


def test_the_command_line_names_a_wrong_target() -> None:
    done = _run("train", "--model", "dlrm", "--target", "classes=1")
    assert done.returncode == 2
    assert "--target must be click, number, classes or classes=N" in done.stderr
    done = _run("train", "--model", "mlp", "--target", "number")
    assert done.returncode == 2
    assert "--target goes with --model dlrm" in done.stderr


@pytest.mark.parametrize(
    ("target", "label", "header"), [("number", "price", "RMSE"), ("classes", "kind", "accuracy")]
)
def test_days_of_other_targets_are_judged_as_such(
    target: Any, label: str, header: str, tmp_path: Path
) -> None:
    from leashed.report import days as shown  # noqa: PLC0415

    y = NUMBER if label == "price" else CLASS
    data = ClickDataset.from_arrays(X, IDS, y, target=target)
    model = lsh.models.dlrm(dim=4, target=target).shaped(data)
    given: dict[str, Any] = {"folder": tmp_path / "run", "rule": lsh.Adagrad(0.1), "threads": 1}
    days = {"a": data[:700], "b": data[700:1000]}
    lsh.continual(model, days, batch_size=8, **given)
    before = lsh.load(tmp_path / "run")
    result = lsh.continual(model, {**days, "c": data[1000:]}, batch_size=8, **given)
    last, expected = result.days[-1].yesterday, before.evaluate(data[1000:])
    assert result.days[0].yesterday is None
    assert np.isnan(result.days[-1].click_share)
    if target == "number":
        assert isinstance(last, lsh.metrics.Errors)
        assert (last.rmse, last.r2) == pytest.approx((expected.rmse, expected.r2))
    else:
        assert isinstance(last, lsh.metrics.Classified)
        told = (expected.accuracy, expected.loss)
        assert (last.accuracy, last.log_loss) == pytest.approx(told)
    again = lsh.continual(model, {**days, "c": data[1000:]}, batch_size=8, **given)
    assert again.days == result.days  # as the journal has them
    assert header in repr(result)
    assert header in shown.line(result.days[-1])
    table = shown.table(result.days)
    assert header in table.header
    assert "AUC" not in table.header
    with pytest.raises(ValueError, match="click_share goes with clicks"):
        lsh.continual(model, days, batch_size=8, click_share=(0, 1), **given)


def test_days_of_files_have_targets_on_the_command_line(tmp_path: Path) -> None:
    csv = pytest.importorskip("pyarrow.csv")
    frame = _frame().drop_columns(["kind"])
    for day in range(2):
        csv.write_csv(frame.slice(700 * day, 700), tmp_path / f"day-{day}.csv")
    done = _run(
        *("train", "--model", "dlrm", "--days", tmp_path / "day-*.csv", "--label", "price"),
        *("--target", "number", "--checkpoint", tmp_path / "run", "--threads", 1, "--no-progress"),
        *("--report", tmp_path / "days.html"),
    )
    assert done.returncode == 0, done.stderr
    assert "RMSE" in done.stdout
    assert "RMSE" in (tmp_path / "days.html").read_text()
