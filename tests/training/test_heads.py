"""Models of several labels a row: a click, and a purchase that is known of clicks alone."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from warned import once

import leashed as lsh
from leashed import metrics, stream
from leashed.datasets import ClickDataset, Dataset
from leashed.training.result import TrainResult

N = 2400
HEADS = ("clicked", "bought")
RANDOM = np.random.default_rng(3)
IDS = RANDOM.integers(0, 20, (N, 3))
X = RANDOM.normal(size=(N, 2)).astype(np.float32)
_LOGITS = np.stack([0.4 * (IDS[:, 0] - 10) + X[:, 0], 0.4 * (10 - IDS[:, 1]) + X[:, 1]], axis=1)
KNOWN = (RANDOM.random((N, 2)) < 1 / (1 + np.exp(-_LOGITS))).astype(np.float32)
Y = np.where((KNOWN[:, :1] == 0) & [False, True], np.nan, KNOWN)  # who did not click bought nothing

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


def _data(y: Any = Y, target: Any = HEADS) -> ClickDataset:
    return ClickDataset.from_arrays(X, IDS, y, target=target)


def _trained(model: Any, data: Any, epochs: int = 5, **choices: Any) -> TrainResult:
    given = {"rule": lsh.Adagrad(0.05), "until": lsh.until(epochs=epochs), "batch_size": 16}
    return lsh.train(model, data, threads=1, **{**given, **choices})


def _frame(rows: slice = slice(None)) -> Any:
    pa = pytest.importorskip("pyarrow")
    columns: dict[str, Any] = {f"item{i}_id": IDS[rows, i] for i in range(3)}
    columns |= {"a": X[rows, 0], "b": X[rows, 1]}
    for k, head in enumerate(HEADS):
        columns[head] = pa.array(Y[rows, k].astype(np.float64), from_pandas=True)
    return pa.table(columns)


def _auc(predicted: Any, y: Any, head: int) -> float:
    known = ~np.isnan(y[:, head])
    return metrics.auc(predicted[known, head], y[known, head])


@pytest.mark.parametrize("name", MODELS)
def test_heads_learn_together_what_each_learns_alone(name: str, tmp_path: Path) -> None:
    train, test = _data().split(600)
    result = _trained(MODELS[name](dim=8), train)
    model, predicted = result.model, result.model.predict(test)
    assert predicted.shape == (600, 2)
    judged = model.evaluate(test)
    for k, head in enumerate(HEADS):
        known = ~np.isnan(train.y[:, k])
        alone = ClickDataset.from_arrays(
            train.x[known], np.asarray(train.ids)[known].astype(np.int64), train.y[known, k]
        )
        tested = ClickDataset.from_arrays(X[-600:], IDS[-600:], KNOWN[-600:, k])
        reference = _trained(MODELS[name](dim=8), alone).model.predict(tested)[:, None]
        of_one = test.y[:, k : k + 1]
        together = _auc(predicted, test.y, k)
        assert together > 0.75
        assert together > _auc(reference, of_one, 0) - 0.04
        one = judged.heads[head]
        assert one.auc == pytest.approx(together, abs=1e-6)
        assert one.examples == (~np.isnan(of_one)).sum()
        assert one.normalised_entropy is not None
        assert one.normalised_entropy < 0.95
    assert judged.auc == pytest.approx(np.mean([one.auc for one in judged.heads.values()]))
    p, y = np.clip(predicted.astype(np.float64), 1e-9, 1 - 1e-9), test.y
    losses = np.where(np.isnan(y), np.nan, np.where(y == 1, -np.log(p), -np.log1p(-p)))
    assert judged.loss == pytest.approx(np.nansum(losses, axis=1).mean(), rel=1e-3)
    assert judged.accuracy is None
    told = judged.to_json()
    assert told["auc_bought"] == judged.heads["bought"].auc
    assert "AUC of clicked" in str(judged)
    model.save(tmp_path / "saved")
    loaded = lsh.load(tmp_path / "saved")
    assert loaded.columns.heads == HEADS
    assert (loaded.predict(test) == predicted).all()
    assert loaded.evaluate(test).to_json() == told
    assert "heads=clicked, bought" in repr(loaded)


@pytest.mark.parametrize("name", HISTORIES)
def test_models_of_histories_have_heads(name: str) -> None:
    told = lsh.datasets.synthetic_histories(400, 1, test=50, users=30, items=200).train
    y = np.stack([told.y, told.ids[1] % 2], axis=1)
    ids = dict(zip(told.names, told.ids, strict=True))
    data = ClickDataset.from_arrays(told.x, ids, y, target=list(HEADS))
    for target in ("click", HEADS):
        result = _trained(HISTORIES[name](dim=4, hidden=(8,), target=target), data, epochs=1)
        assert result.model.predict(data).shape == (400, 2)
    fixed = _trained(
        HISTORIES[name](30, 200, 100, dim=4, hidden=(8,), target=HEADS), data, epochs=1
    )
    assert fixed.model.columns.heads == HEADS


def test_labels_that_are_not_known_teach_nothing() -> None:
    """A head of which no label is known stays as it began; rows of a table that both read do not."""
    y = np.stack([KNOWN[:, 0], np.full(N, np.nan)], axis=1)
    y[0, 1] = 1  # one, so that there is a loss
    linear = lsh.models.Model((2, 1, 1), (lsh.models.Dense(2),), loss="binary_cross_entropy")
    data = Dataset.from_arrays(X[1:], y[1:])
    with once("no row of data has a label 'y2' that is known, so that nothing is learned of it"):
        result = _trained(linear, data, init=np.zeros(6, np.float32))
    weight = linear.unflatten(result.parameters)["0.weight"]
    assert (weight[:, 1] == 0).all()
    assert (weight[:, 0] != 0).all()
    assert np.isnan(result.heads["y2"]["auc"][-1])
    assert result.auc[-1] == result.heads["y1"]["auc"][-1]


def test_networks_take_several_labels() -> None:
    y = (X[:, [0, 1, 0]] * [1, 1, -1] > 0).astype(np.int64)
    data = Dataset.from_arrays(X, y)
    assert (data.heads, data.classes, data.y.dtype) == (("y1", "y2", "y3"), 0, np.float32)
    layers = (lsh.models.Dense(16), lsh.models.ReLU(), lsh.models.Dense(3))
    model = lsh.models.Model((2, 1, 1), layers, loss="binary_cross_entropy")
    result = _trained(model, data, epochs=20)
    predicted = result.model.predict(X)
    assert ((predicted > 0.5) == y).mean() > 0.97
    judged = result.model.evaluate((X, y))
    assert [one.auc for one in judged.heads.values()] == [
        pytest.approx(metrics.auc(predicted[:, k], y[:, k]), abs=1e-6) for k in range(3)
    ]
    with pytest.raises(ValueError, match=r"data has 3 labels a row.*softmax takes one.*argmax"):
        lsh.train(lsh.models.mlp(2, [4], 3), data, until=lsh.until(epochs=1))
    with pytest.raises(ValueError, match="data has one label a row, but the model has 3 heads"):
        lsh.train(model, (X, y[:, 0]), until=lsh.until(epochs=1))
    sparse = pytest.importorskip("scipy.sparse", reason="SciPy is not installed")
    rows = lsh.SparseDataset.from_csr(sparse.csr_array(X), y[:, 0])
    with pytest.raises(
        ValueError, match=r"data has sparse rows, .* make them dense with x\.toarray"
    ):
        lsh.train(model, rows, until=lsh.until(epochs=1))
    with pytest.raises(ValueError, match="x has sparse rows, whose labels have no names"):
        result.model.predict(sparse.csr_array(X))


@pytest.mark.parametrize("name", MODELS)
def test_onnx_has_an_output_of_each_label(name: str, tmp_path: Path) -> None:
    runtime = pytest.importorskip("onnxruntime")
    frame = _frame()
    model = _trained(MODELS[name](dim=4), frame, epochs=1, label=list(HEADS)).model
    model.export(tmp_path / "model.onnx")
    session = runtime.InferenceSession(tmp_path / "model.onnx")
    assert [one.name for one in session.get_outputs()] == ["prediction", *HEADS]
    given = {f"item{i}_id": IDS[:, i] for i in range(3)} | {"a": X[:, 0], "b": X[:, 1]}
    found = session.run(None, given)
    expected = model.predict(frame.drop_columns(list(HEADS)))
    assert np.allclose(found[0], expected, atol=1e-4)
    for k in range(2):
        assert (found[1 + k] == found[0][:, k]).all()


def test_frames_files_and_streams_tell_the_same(tmp_path: Path) -> None:
    frame = _frame()
    csv = pytest.importorskip("pyarrow.csv")
    parquet = pytest.importorskip("pyarrow.parquet")
    csv.write_csv(frame, tmp_path / "rows.csv")
    parquet.write_table(frame, tmp_path / "rows.parquet")
    model = _trained(lsh.models.dlrm(dim=4), frame, label=list(HEADS)).model
    assert model.columns.heads == HEADS
    predicted, judged = model.predict(frame), model.evaluate(frame)
    assert (model.predict(frame.drop_columns(list(HEADS))) == predicted).all()
    for path in (tmp_path / "rows.csv", tmp_path / "rows.parquet"):
        assert np.allclose(model.predict(str(path)), predicted, atol=1e-5)
        assert model.evaluate(str(path)).to_json() == pytest.approx(judged.to_json(), rel=1e-4)
        streamed = _trained(lsh.models.dlrm(dim=4), str(path), label=list(HEADS), epochs=3).model
        assert min(one.auc or 0 for one in streamed.evaluate(str(path)).heads.values()) > 0.75
    columns = stream.infer(frame, label=["bought", "clicked"])
    assert list(columns)[:2] == ["bought", "clicked"]
    columns.save(tmp_path / "schema.json")
    assert json.loads((tmp_path / "schema.json").read_text())["columns"]["bought"] == {
        "kind": "label"
    }
    rows = stream.csv(tmp_path / "rows.csv", **stream.schema(tmp_path / "schema.json"))
    assert rows.heads == ("bought", "clicked")
    read = rows.read()
    assert np.array_equal(read.y, Y[:, ::-1], equal_nan=True)
    # Labels in another order are known by name.
    assert model.evaluate(rows).to_json() == pytest.approx(judged.to_json(), rel=1e-4)
    assert model.evaluate(read).to_json() == pytest.approx(judged.to_json(), rel=1e-4)
    on = model.train(frame, until=lsh.until(epochs=1), threads=1, label=list(HEADS))
    assert on.model.columns.heads == HEADS


def test_progress_and_results_have_each_label() -> None:
    from leashed.report import facts  # noqa: PLC0415
    from leashed.training.progress import describe  # noqa: PLC0415

    train, test = _data().split(600)
    seen: list[Any] = []
    result = _trained(
        lsh.models.dlrm(dim=4),
        train,
        validation=test,
        observe=lsh.Observe(seen.append, metrics=metrics.progressive()),
    )
    judged = result.model.evaluate(test)
    for head in HEADS:
        series = result.heads[head]
        assert series["validation_auc"][-1] == pytest.approx(judged.heads[head].auc, abs=0.005)
        assert len(series["auc"]) == len(result.loss)
    means = np.mean([one["validation_auc"] for one in result.heads.values()], axis=0)
    assert np.allclose(result.validation_auc, means)
    assert "clicked 0." in describe(seen[-1])
    assert "validation AUC" in repr(result)
    assert "bought 0." in repr(result)
    assert result.metrics is not None
    total = result.metrics.total[-1]
    assert total.heads["clicked"].rows == total.rows == result.examples  # in whole batches
    known = 5 * (~np.isnan(train.y[:, 1])).sum()
    assert known <= total.heads["bought"].rows <= known + 16
    assert total.auc == pytest.approx(np.mean([one.auc for one in total.heads.values()]))
    again = TrainResult.from_json(result.to_json())
    assert again.metrics is not None
    assert again.metrics.total[-1].heads["bought"].auc == total.heads["bought"].auc
    assert (again.heads["bought"]["auc"] == result.heads["bought"]["auc"]).all()
    assert any(name == "AUC of bought" for name, _ in facts._clicks(result))


def test_patience_goes_by_one_label_or_the_mean() -> None:
    train, test = _data().split(600)
    for metric in ("auc", "auc_bought", "normalised_entropy_clicked"):
        until = lsh.until(patience=2, epochs=12, metric=metric)
        # (Judged are states at the ends of passes, and a slow machine evaluates others, too.)
        ends = lsh.Observe(every=3600)
        result = _trained(lsh.models.dlrm(dim=4), train, until=until, validation=test, observe=ends)
        assert result.best is not None
        series = (
            result.validation_auc
            if metric == "auc"
            else result.heads[metric.rpartition("_")[2]][f"validation_{metric.rpartition('_')[0]}"]
        )
        best = series.min() if metric.startswith("norm") else series.max()
        assert result.best.value == pytest.approx(best)
    with pytest.raises(ValueError, match=r"metric auc_sold is none of dlrm's.*auc_bought"):
        _trained(
            lsh.models.dlrm(dim=4),
            train,
            until=lsh.until(patience=2, metric="auc_sold"),
            validation=test,
        )
    with pytest.raises(ValueError, match="metric must be one of"):
        lsh.until(patience=2, metric="accuracy_bought")


def test_days_judge_each_label(tmp_path: Path) -> None:
    from leashed.report import days as shown  # noqa: PLC0415

    data = _data()
    given: dict[str, Any] = {"folder": tmp_path / "run", "threads": 1, "batch_size": 8}
    model = lsh.models.dlrm(dim=4)
    days = {"a": data[:1000], "b": data[1000:1600]}
    lsh.continual(model, days, **given)
    before = lsh.load(tmp_path / "run").evaluate(data[1600:])
    days = {**days, "c": data[1600:]}
    result = lsh.continual(model, days, **given)
    last = result.days[-1].yesterday
    assert isinstance(last, metrics.Values)
    for head in HEADS:
        assert last.heads[head].auc == pytest.approx(before.heads[head].auc, abs=0.005)
    assert lsh.continual(model, days, **given).days == result.days  # as the journal has them
    assert "bought 0." in shown.line(result.days[-1])
    assert {"AUC of clicked", "AUC of bought"} <= set(shown.table(result.days).header)
    with pytest.raises(ValueError, match="labels"):
        lsh.continual(model, {**days, "d": _data(Y, ("clicked", "sold"))}, **given)


def _run(*words: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "leashed", *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


def test_the_command_line_has_several_labels(tmp_path: Path) -> None:
    csv = pytest.importorskip("pyarrow.csv")
    for day in range(2):
        csv.write_csv(_frame(slice(1200 * day, 1200 * day + 1200)), tmp_path / f"day-{day}.csv")
    path, saved = tmp_path / "day-0.csv", tmp_path / "saved"
    words = ("train", "--model", "dlrm", "--label", "clicked,bought", "--threads", 1)
    done = _run(*words, "--data", path, "--no-progress", "--save", saved)
    assert done.returncode == 0, done.stderr
    judged = _run("evaluate", saved, "--data", tmp_path / "day-1.csv", "--json")
    assert {"auc", "auc_clicked", "auc_bought"} <= set(json.loads(judged.stdout))
    output = tmp_path / "predicted.csv"
    assert _run("predict", saved, "--data", path, "--output", output).returncode == 0
    assert {line.count(",") for line in output.read_text().splitlines()} == {1}
    done = _run(
        *(*words, "--days", tmp_path / "day-*.csv", "--checkpoint", tmp_path / "run"),
        *("--no-progress", "--report", tmp_path / "days.html"),
    )
    assert done.returncode == 0, done.stderr
    assert "AUC of bought" in (tmp_path / "days.html").read_text()
    done = _run(*words, "--data", path, "--target", "number")
    assert done.returncode == 2
    assert "target is 'number'" in done.stderr


def test_what_is_wrong_with_labels_is_named(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"y has 2 at index 1 of 'bought'; .* 0 or 1, or NaN"):
        ClickDataset.from_arrays(None, [[1], [2]], [[0, 1], [1, 2]], target=HEADS)
    with pytest.raises(ValueError, match=r"target must name each of the 3 columns of y, got 2"):
        ClickDataset.from_arrays(None, [[1], [2]], [[0, 1, 0], [1, 0, 1]], target=HEADS)
    with pytest.raises(ValueError, match=r"y must be of shape \[n, 2\] where target is"):
        ClickDataset.from_arrays(None, [[1], [2]], [0, 1], target=HEADS)
    with pytest.raises(ValueError, match="target has 'a' twice"):
        lsh.models.dlrm(target=("a", "a"))
    with pytest.raises(ValueError, match="target has an empty name"):
        lsh.models.dlrm(target=("", "a"))
    with pytest.raises(ValueError, match="label must name two labels at least"):
        lsh.train(lsh.models.dlrm(), _frame(), label=["clicked"])
    with pytest.raises(ValueError, match="label has 'clicked' twice"):
        lsh.train(lsh.models.dlrm(), _frame(), label=["clicked", "clicked"])
    with pytest.raises(ValueError, match="label must be a column, got 'sold'"):
        lsh.train(lsh.models.dlrm(), _frame(), label=["clicked", "sold"])
    with pytest.raises(ValueError, match=r"label 'item0_id' has .*, and a click is 0 or 1"):
        lsh.train(lsh.models.dlrm(), _frame(), label=["clicked", "item0_id"])
    with pytest.raises(ValueError, match=r"label names clicked, bought, .*target is 'number'"):
        lsh.train(lsh.models.dlrm(target="number"), _frame(), label=list(HEADS))
    with pytest.raises(ValueError, match=r"label names clicked, bought.*target is \('bought'"):
        lsh.train(lsh.models.dlrm(target=HEADS[::-1]), _frame(), label=list(HEADS))
    with pytest.raises(ValueError, match=r"2 labels a row, clicked, bought, but .* has 3 heads"):
        lsh.train(lsh.models.dlrm(target=("a", "b", "c")), _data())
    with pytest.raises(ValueError, match=r"but the loss squared_error takes one.*target=\('cl"):
        lsh.train(lsh.models.dlrm(target="number"), _data())
    with pytest.raises(ValueError, match="data has one label a row, but the model has 2 heads"):
        lsh.train(lsh.models.dlrm(target=HEADS), _data(KNOWN[:, 0], "click"))
    with pytest.raises(ValueError, match=r"of which 'bought' is Label\(classes=3\)"):
        stream.csv(
            "x.csv", {"clicked": stream.Label(), "bought": stream.Label(3), "a": stream.Id()}
        )
    with pytest.raises(ValueError, match="of which 'bought' is Target"):
        stream.csv(
            "x.csv", {"clicked": stream.Label(), "bought": stream.Target(), "a": stream.Id()}
        )
    path = tmp_path / "rows.csv"
    path.write_text("clicked,bought,item\n0,,4\n1,1,5\n1,7,5\n")
    columns = {"clicked": stream.Label(), "bought": stream.Label(), "item": stream.Id()}
    with pytest.raises(ValueError, match=r"line 4: bought is .7., not 0 or 1, nor empty"):
        stream.csv(path, columns).read()


def test_a_label_that_is_another_than_in_training_is_named() -> None:
    model = _trained(lsh.models.dlrm(dim=4), _data(), epochs=1).model
    three = ClickDataset.from_arrays(X, IDS, np.column_stack([Y, Y[:, 0]]), target=(*HEADS, "sold"))
    assert model.evaluate(three).to_json() == model.evaluate(_data()).to_json()
    with pytest.raises(ValueError, match=r"has the labels 'clicked', 'sold', without 'bought'"):
        model.evaluate(_data(Y, ("clicked", "sold")))
    with pytest.raises(ValueError, match="data has one label a row, but the model has 2 heads"):
        model.evaluate(_data(KNOWN[:, 0], "click"))


def test_a_head_without_both_labels_has_no_auc() -> None:
    y = np.column_stack([KNOWN[:, 0], np.zeros(N)])
    train, test = _data(y).split(600)
    result = _trained(lsh.models.dlrm(dim=4), train, epochs=1, validation=test)
    judged = result.model.evaluate(test)
    assert np.isnan(judged.heads["bought"].auc or 0)
    assert judged.auc == judged.heads["clicked"].auc
    assert judged.to_json()["auc_bought"] is None
    with pytest.raises(ValueError, match=r"auc_bought of validation is no number.*alike"):
        _trained(
            lsh.models.dlrm(dim=4),
            train,
            until=lsh.until(patience=2, metric="auc_bought"),
            validation=test,
        )


def test_head_metrics_are_those_of_each_head() -> None:
    logits = np.random.default_rng(1).normal(size=(N, 2)).astype(np.float32)
    counted = metrics.HeadMetrics(HEADS)
    counted.add(logits[:1000], Y[:1000])
    counted.add(logits[1000:], Y[1000:])
    found = counted.values()
    for k, head in enumerate(HEADS):
        assert found.heads[head].auc == pytest.approx(_auc(logits, Y, k), abs=0.01)
    assert found.rows == N
    with pytest.raises(ValueError, match=r"labels must have shape \[n, 2\]"):
        counted.add(logits, Y[:, 0])


def test_a_part_of_head_metrics_that_is_wrong_is_named_and_counts_nowhere() -> None:
    logits = np.zeros((N, 2), np.float32)
    counted = metrics.HeadMetrics(HEADS)
    with pytest.raises(ValueError, match=rf"weights must have one value for each score, {N}"):
        counted.add(logits, Y, weights=np.ones(N - 1))
    with pytest.raises(ValueError, match=rf"users must have one for each of the {N} rows"):
        metrics.HeadMetrics(HEADS, 10).add(logits, Y, users=np.arange(N - 1))
    with pytest.raises(ValueError, match="a label is 0, or 1"):
        counted.add(logits, Y * [1, 2])
    assert counted.values().rows == 0
    with pytest.raises(ValueError, match=r"give one label's at a time, scores\[:, 0\]"):
        metrics.auc(logits, KNOWN)


def test_names_of_the_model_are_those_of_the_data() -> None:
    for target in (HEADS[::-1], ("a", "b")):
        with pytest.raises(ValueError, match=r"data's labels are clicked, bought, and .*target is"):
            _trained(lsh.models.dlrm(dim=4, target=target), _data(), epochs=1)
    result = _trained(lsh.models.dlrm(dim=4, target=HEADS), _data(), epochs=1)
    assert result.model.columns.heads == HEADS


def test_a_label_of_which_nothing_is_known_is_named() -> None:
    y = np.column_stack([KNOWN[:, 0], np.full(N, np.nan)])
    with once(
        "no row of data has a label 'bought' that is known, so that nothing is learned of it"
    ):
        _trained(lsh.models.dlrm(dim=4), _data(y), epochs=1)
    cluster = lsh.simulation.constant(1, 1e-3)
    with once(
        "no row of data has a label 'bought' that is known, so that nothing is learned of it"
    ):
        lsh.simulate(lsh.models.dlrm(dim=4), _data(y), cluster=cluster, until=lsh.until(updates=2))


def test_names_in_a_list_are_a_target_of_files() -> None:
    found = stream.infer(_frame(), label=list(HEADS), target=list(HEADS))  # type: ignore[arg-type]
    assert tuple(found)[:2] == HEADS


def test_labels_are_not_rounded_to_what_they_must_be() -> None:
    for wrong in (1 + 1e-9, 1e-50):
        with pytest.raises(ValueError, match=r"at index 0 of 'clicked'; each of several"):
            _data(np.full((N, 2), wrong))


def test_a_label_of_which_nothing_is_known_is_judged_beside_the_others() -> None:
    model = _trained(lsh.models.dlrm(dim=4), _data(), epochs=1).model
    whole = model.evaluate(_data())
    told = model.evaluate(_data(np.column_stack([Y[:, 0], np.full(N, np.nan)]))).to_json()
    assert told["auc_clicked"] == told["auc"] == whole.heads["clicked"].auc
    assert (told["examples_bought"], told["auc_bought"], told["loss_bought"]) == (0, None, None)
    assert "auc_error_bought" not in told
    none = model.evaluate(_data(np.full((N, 2), np.nan)))
    assert np.isnan(none.auc or 0)


def test_labels_that_a_model_was_not_made_for_are_named_where_it_trains_on() -> None:
    model = _trained(lsh.models.dlrm(dim=4), _data(), epochs=1).model
    three = _data(np.column_stack([Y, Y[:, 0]]), (*HEADS, "sold"))
    with once("data's labels 'sold' are not learned: the model was made for clicked, bought"):
        on = model.train(three, until=lsh.until(epochs=1), threads=1)
    assert on.model.columns.heads == HEADS
