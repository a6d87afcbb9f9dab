"""Linear models and factorisation machines on sparse rows while they are read."""

from __future__ import annotations

import dataclasses
import gzip
import io
import itertools
import math
import os
import random
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from stream.test_sparse import svmlight_lines, write
from stream.test_training import Failing, feeding

import leashed as lsh
from leashed import models, stream
from leashed.datasets import SparseDataset

FEATURES = 40  # of svmlight_lines
FIELDS = [column % 5 for column in range(FEATURES)]
BATCH = 16
MODELS: dict[str, Any] = {
    "linear_regression": models.linear_regression(FEATURES),
    "logistic_regression": models.logistic_regression(FEATURES, l2=0.01),
    "linear_svm": models.linear_svm(FEATURES),
    "softmax_regression": models.softmax_regression(FEATURES, 3),
    "fm": models.fm(FEATURES, 3, l2=0.01),
    "ffm": models.ffm(FIELDS, 2),
}
VALUES = ("1", "0.5", "-0.25", "2")


def lines_of(count: int, classes: int = 2, seed: int = 0, ones: bool = False) -> list[str]:
    """Rows, of which some have a column twice and some have none, that a model learns."""
    draw = random.Random(seed)
    lines = []
    for _ in range(count):
        columns = [draw.randint(1, FEATURES) for _ in range(draw.randrange(6))]
        entries = [(column, "1" if ones else draw.choice(VALUES)) for column in columns]
        score = sum(float(value) * (column % 7 - 3) for column, value in entries)
        label = score / 10 if classes == 0 else int(score > 0) + int(classes > 2 and score > 2)
        lines.append(" ".join([str(label), *(f"{c}:{v}" for c, v in entries)]))
    return lines


def train(model: Any, data: Any, **changes: Any) -> lsh.TrainResult:
    arguments: dict[str, Any] = {
        "until": lsh.until(epochs=1),
        "rule": lsh.SGD(0.05),
        "threads": 1,
        "batch_size": BATCH,
    }
    return lsh.train(model, data, **{**arguments, **changes})


def order_in_memory(rows: int, seed: int) -> list[int]:
    """In which order a training takes so few rows that lie in memory: each brings a column of its own,
    whose weight is the smaller the later it comes.
    """
    assert rows < 256
    whole = np.arange(rows)
    data = SparseDataset(
        np.arange(rows + 1, dtype=np.int64),
        whole.astype(np.int32),
        np.ones(rows, np.float32),
        rows,
        np.ones(rows, np.float32),
        0,
        "rows",
    )
    model = models.linear_regression(rows)
    start = np.zeros(model.dimension, np.float32)
    result = train(model, data, batch_size=1, seed=seed, rule=lsh.SGD(0.02), init=start)
    order = np.argsort(-result.parameters[:rows], kind="stable")
    assert len(set(result.parameters[:rows])) == rows
    return [int(row) for row in order]


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("ones", [False, True])
@pytest.mark.parametrize(("rows", "epochs"), [(200, 1), (192, 3)])
def test_rows_in_the_order_of_memory_train_to_the_same_bits(
    tmp_path: Path, name: str, ones: bool, rows: int, epochs: int
):
    model = MODELS[name]
    lines = lines_of(rows, model.classes, ones=ones)
    as_given = stream.libsvm(write(tmp_path / "given.svm", lines), FEATURES, classes=model.classes)
    ordered = [lines[row] for row in order_in_memory(rows, seed=5)]
    path = write(tmp_path / "ordered.svm", ordered)
    as_taken = stream.libsvm(path, FEATURES, classes=model.classes, threads=3, part_bytes=100)
    for rule in (lsh.SGD(0.05), lsh.Adagrad(0.1), lsh.Adam(0.01)):
        settings: dict[str, Any] = {"rule": rule, "seed": 5, "until": lsh.until(epochs=epochs)}
        memory = train(model, as_given.read(), **settings)
        streamed = train(model, as_taken, **settings, validation=as_given.read())
        np.testing.assert_array_equal(streamed.parameters, memory.parameters)
        assert (streamed.gradients, streamed.examples) == (memory.gradients, rows * epochs)
        expected = model.evaluate(memory.parameters, as_given.read())[1]
        if model.classes:
            assert streamed.validation_accuracy[-1] == expected


IN_PLACE = (lsh.Sequential(), lsh.Locked(), lsh.Hogwild(), lsh.Hogwild(copy=False))


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("in_place", IN_PLACE, ids=lambda d: d.label)
@pytest.mark.parametrize("batch_size", [1, 16, 300])
def test_updates_in_place_have_the_bits_from_memory(
    tmp_path: Path, name: str, in_place: lsh.Discipline, batch_size: int
):
    model = dataclasses.replace(MODELS[name], l2=0.0)
    lines = lines_of(200, model.classes)
    path = write(tmp_path / "given.svm", lines)
    memory = stream.libsvm(path, FEATURES, classes=model.classes).read()
    ordered = [lines[row] for row in order_in_memory(200, seed=5)]
    path = write(tmp_path / "ordered.svm", ordered)
    rows = stream.libsvm(path, FEATURES, classes=model.classes, threads=2, part_bytes=100)
    for rule in (lsh.SGD(0.05), lsh.Adagrad(0.1)):
        settings: dict[str, Any] = {"discipline": in_place, "rule": rule, "seed": 5}
        expected = train(model, memory, **settings, batch_size=min(200, batch_size))
        found = train(model, rows, **settings, batch_size=batch_size, validation=memory)
        np.testing.assert_array_equal(found.parameters, expected.parameters)
        assert found.config["sparse_updates"]
        assert expected.config["sparse_updates"]
        assert (found.gradients, found.examples) == (expected.gradients, 200)
        assert math.isfinite(found.loss[-1])


@pytest.mark.parametrize("in_place", IN_PLACE, ids=lambda d: d.label)
def test_runs_in_place_end_and_go_on_where_they_should(tmp_path: Path, in_place: lsh.Discipline):
    rows = stream.libsvm(write(tmp_path / "rows.svm", lines_of(300)), FEATURES)
    settings: dict[str, Any] = {"discipline": in_place, "rule": lsh.Adagrad(0.05)}
    for model in (models.logistic_regression(FEATURES), models.fm(FEATURES, 3)):
        whole = train(model, rows, until=lsh.until(epochs=2), **settings)
        assert (whole.total_updates, whole.reason) == (math.ceil(600 / BATCH), "epochs")
        half = tmp_path / "half.safetensors"
        begun = train(model, rows, until=lsh.until(updates=17), checkpoint=half, **settings)
        assert (begun.total_updates, begun.reason) == (17, "updates")
        resumed = train(model, rows, until=lsh.until(epochs=2), resume=half, **settings)
        np.testing.assert_array_equal(resumed.parameters, whole.parameters)
        assert resumed.reason == "epochs"
        paused: dict[str, Any] = {"checkpoint": lsh.Checkpoint(half, updates=7), "threads": 1}
        again = train(model, rows, until=lsh.until(epochs=2), **settings, **paused)
        np.testing.assert_array_equal(again.parameters, whole.parameters)
    decaying = models.logistic_regression(FEATURES, l2=0.01)
    near = [
        train(decaying, rows, discipline=d, rule=lsh.SGD(0.05), until=lsh.until(epochs=5))
        for d in (in_place, lsh.Leashed())
    ]
    assert near[0].config["sparse_updates"]
    np.testing.assert_allclose(near[0].parameters, near[1].parameters, atol=2e-3)


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("how", [lsh.Leashed(), lsh.Hogwild()], ids=lambda d: d.label)
def test_a_batch_may_be_larger_than_the_stream(tmp_path: Path, name: str, how: lsh.Discipline):
    model = dataclasses.replace(MODELS[name], l2=0.0)
    lines = lines_of(300, model.classes)
    rows = stream.libsvm(write(tmp_path / "rows.svm", lines), FEATURES, classes=model.classes)
    whole = train(model, rows, batch_size=300, discipline=how)
    larger = train(model, rows, batch_size=2**31 - 1, threads=3, discipline=how)
    np.testing.assert_array_equal(larger.parameters, whole.parameters)
    assert (larger.gradients, larger.examples) == (1, 300)
    with pytest.raises(ValueError, match="batch_size must be at most 2147483647"):
        train(model, rows, batch_size=2**62, threads=6, discipline=how)


@pytest.mark.parametrize("updates", [16, 20])  # a whole number of runs, and not
@pytest.mark.parametrize("threads", [1, 3])
def test_rows_behind_the_last_update_in_place_are_not_waited_for(
    tmp_path: Path, updates: int, threads: int
):
    path = write(tmp_path / "rows.svm", [*lines_of(updates * BATCH), "no row"])
    limit = lsh.until(updates=updates)
    how: dict[str, Any] = {"discipline": lsh.Hogwild(), "threads": threads, "until": limit}
    result = train(MODELS["linear_svm"], stream.libsvm(path, FEATURES), **how)
    assert result.config["sparse_updates"]
    assert (result.gradients, result.reason) == (updates, "updates")


@pytest.mark.parametrize("name", MODELS)
def test_batches_are_the_rows_in_order(tmp_path: Path, name: str):
    """Beside plain NumPy: gradients of a batch's rows, one after the other."""
    model = MODELS[name]
    path = write(tmp_path / "rows.svm", lines_of(75, model.classes))
    rows = stream.libsvm(path, FEATURES, classes=model.classes)
    data = rows.read()
    theta = start = model.init(3)
    for k in range(math.ceil(2 * 75 / BATCH)):
        batch = np.arange(k * BATCH, min((k + 1) * BATCH, 150)) % 75
        ends = [data.indptr[i : i + 2] for i in batch]
        entries = np.concatenate([np.arange(*end) for end in ends]).astype(int)
        part = SparseDataset(
            np.cumsum([0, *(end[1] - end[0] for end in ends)], dtype=np.int64),
            data.indices[entries],
            data.data[entries],
            FEATURES,
            data.y[batch],
            data.classes,
            "batch",
        )
        _, gradient = model.sparse.gradient(theta, part.rows, part.y)
        theta = theta - np.float32(0.05) * gradient
    result = train(model, rows, init=start, until=lsh.until(epochs=2))
    np.testing.assert_allclose(result.parameters, theta, rtol=1e-4, atol=1e-6)
    assert (result.gradients, result.examples, result.reason) == (10, 150, "epochs")
    assert result.config["sparse"]
    assert not result.config["sparse_updates"]


@pytest.mark.filterwarnings("ignore:the training crashed:RuntimeWarning")
@pytest.mark.parametrize("name", ["logistic_regression", "fm", "ffm"])
def test_it_is_the_same_whoever_reads_and_however_it_is_packed(tmp_path: Path, name: str):
    model = MODELS[name]
    lines = svmlight_lines(500)
    path = write(tmp_path / "rows.svm", lines)
    once = train(model, stream.libsvm(path, FEATURES)).parameters
    packed = tmp_path / "rows.svm.gz"
    packed.write_bytes(gzip.compress(path.read_bytes()))
    for given, options in (
        (path, {"threads": 3, "part_bytes": 77}),
        (path, {"threads": 1, "part_bytes": 1000}),
        (packed, {"threads": 2, "part_bytes": 300}),
        (io.BytesIO(packed.read_bytes()), {}),
    ):
        again = train(model, stream.libsvm(given, FEATURES, **options))
        np.testing.assert_array_equal(again.parameters, once)
    for window in (64, 10_000):
        found = [
            train(
                model, stream.libsvm(path, FEATURES, shuffle=window, seed=4, threads=threads)
            ).parameters
            for threads in (1, 3)
        ]
        np.testing.assert_array_equal(*found)
        assert not np.array_equal(found[0], once)


def test_files_of_fields_train_field_aware_machines(tmp_path: Path):
    lines = [
        re.sub(r"(\d+):", lambda entry: f"{FIELDS[int(entry[1]) - 1]}:{int(entry[1]) - 1}:", line)
        for line in lines_of(300)
    ]
    path = write(tmp_path / "rows.ffm", lines)
    plain = write(tmp_path / "rows.svm", lines_of(300))
    model = MODELS["ffm"]
    expected = train(model, stream.libsvm(plain, FEATURES)).parameters
    for fields in (FIELDS, FEATURES, np.int64(FEATURES)):
        rows = stream.libffm(path, fields)
        np.testing.assert_array_equal(train(model, rows).parameters, expected)
    others = [0, *FIELDS[1:-1], 7]
    with pytest.raises(ValueError, match="columns of other fields than model ffm"):
        train(model, stream.libffm(path, others))
    expected = train(MODELS["fm"], stream.libsvm(plain, FEATURES)).parameters
    result = train(MODELS["fm"], stream.libffm(path, FEATURES))
    np.testing.assert_array_equal(result.parameters, expected)


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("name", ["logistic_regression", "fm"])
def test_every_discipline_trains_on_every_row(
    tmp_path: Path, discipline: lsh.Discipline, threads: int, name: str
):
    if isinstance(discipline, lsh.Sequential) and threads > 1:
        pytest.skip("one thread alone")
    path = write(tmp_path / "rows.svm", lines_of(405))
    rows = stream.libsvm(path, FEATURES, part_bytes=500)
    result = train(
        MODELS[name],
        rows,
        discipline=discipline,
        threads=threads,
        rule=lsh.SGD(0.2),
        until=lsh.until(epochs=20),
        validation=rows.read(),
        observe=lsh.Observe(metrics=lsh.metrics.progressive()),
    )
    batches = math.ceil(20 * 405 / BATCH)
    if isinstance(discipline, lsh.Synchronous):
        batches = batches // threads * threads
    assert (result.gradients, result.reason) == (batches, "epochs")
    assert result.validation_auc[-1] > 0.85
    assert np.isnan(result.accuracy).all()
    assert math.isfinite(result.loss[-1])
    assert result.metrics.total[-1].rows == result.examples


def test_metrics_before_training_are_those_from_memory(tmp_path: Path):
    lines = lines_of(200)
    ordered = [lines[row] for row in order_in_memory(200, seed=0)]
    rows = stream.libsvm(write(tmp_path / "rows.svm", ordered), FEATURES)
    memory = stream.libsvm(write(tmp_path / "given.svm", lines), FEATURES).read()
    for model in (MODELS["logistic_regression"], MODELS["fm"], MODELS["ffm"]):
        found = [
            train(
                model,
                data,
                observe=lsh.Observe(metrics=lsh.metrics.progressive()),
                rule=lsh.Adam(0.01),
            )
            for data in (memory, rows)
        ]
        assert found[0].metrics.total[-1] == pytest.approx(found[1].metrics.total[-1], nan_ok=True)
        plain = train(model, rows, rule=lsh.Adam(0.01))
        np.testing.assert_array_equal(plain.parameters, found[1].parameters)
    with pytest.raises(TypeError, match=r"gauc is not for .*sparse rows do not tell"):
        train(model, rows, observe=lsh.Observe(metrics=lsh.metrics.progressive(gauc="user")))


@pytest.mark.parametrize("how", [lsh.Hogwild(), lsh.Locked()], ids=["in place", "locked"])
@pytest.mark.parametrize("threads", [1, 3])
def test_the_loss_of_a_pass_is_the_mean_over_all_of_its_rows(
    tmp_path: Path, how: lsh.Discipline, threads: int
):
    rows = stream.libsvm(write(tmp_path / "rows.svm", lines_of(5003)), FEATURES)
    result = train(
        models.logistic_regression(FEATURES),
        rows,
        discipline=how,
        threads=threads,
        rule=lsh.Adagrad(0.1),
        observe=lsh.Observe(metrics=lsh.metrics.progressive()),
    )
    assert result.config["sparse_updates"]
    assert result.metrics is not None
    assert result.final_loss == pytest.approx(result.metrics.total[-1].log_loss, rel=1e-6)


@pytest.mark.parametrize("batch_size", [1, 16, 150])
@pytest.mark.parametrize("threads", [1, 3])
def test_a_run_in_place_that_a_pass_ends_in_counts_for_both(
    tmp_path: Path, batch_size: int, threads: int
):
    """The parameters stand still, and rows are the harder the later they come."""
    x = np.linspace(0, 3, 100)
    path = write(tmp_path / "rows.svm", [f"0 1:{v!r}" for v in x.tolist()])
    model = models.logistic_regression(FEATURES)
    init = np.zeros(model.dimension, np.float32)
    init[0] = 1
    result = train(
        model,
        stream.libsvm(path, FEATURES),
        until=lsh.until(epochs=3),
        rule=lsh.SGD(1e-30),
        init=init,
        discipline=lsh.Hogwild(),
        threads=threads,
        batch_size=batch_size,
    )
    assert result.config["sparse_updates"]
    losses = np.tile(np.log1p(np.exp(x)), 3)
    for begin in range(0, 300, batch_size):
        batch = losses[begin : begin + batch_size]
        batch[:] = batch.mean()
    assert result.final_loss == pytest.approx(losses[200:].mean(), rel=1e-6)


@pytest.mark.parametrize("name", MODELS)
def test_a_run_goes_on_from_a_checkpoint_to_the_same_bits(tmp_path: Path, name: str):
    model = MODELS[name]
    path = write(tmp_path / "rows.svm", lines_of(300, model.classes))
    rows = stream.libsvm(path, FEATURES, classes=model.classes, shuffle=50)
    settings: dict[str, Any] = {"rule": lsh.Adagrad(0.05)}
    whole = train(model, rows, until=lsh.until(epochs=2), **settings)
    half = tmp_path / "half.safetensors"
    train(model, rows, until=lsh.until(updates=17), checkpoint=half, **settings)
    resumed = train(model, rows, until=lsh.until(epochs=2), resume=half, **settings)
    np.testing.assert_array_equal(resumed.parameters, whole.parameters)
    with pytest.raises(ValueError, match="number of examples"):
        train(model, rows.read(), until=lsh.until(epochs=2), resume=half, **settings)


def test_bad_lines_are_told_by_file_and_number(tmp_path: Path):
    lines = lines_of(400)
    lines[200] = f"1 {FEATURES + 1}:1"
    path = write(tmp_path / "rows.svm", lines)
    for threads, how in itertools.product((1, 3), (lsh.Leashed(), lsh.Hogwild())):
        rows = stream.libsvm(path, FEATURES, part_bytes=100)
        message = rf"rows\.svm: line 201: column {FEATURES + 1} is beyond the {FEATURES} features"
        with pytest.raises(ValueError, match=message):
            train(MODELS["fm"], rows, threads=threads, discipline=how)
    result = train(MODELS["fm"], stream.libsvm(path, FEATURES, bad="skip"))
    reading = result.config["reading"]
    assert (reading["rows"], reading["bad"], result.examples) == (399, 1, 399)
    assert reading["first_bad"][0][:2] == [str(path), 201]


def test_what_is_read_once_ends_a_run_and_what_reading_raises_is_raised(tmp_path: Path):
    path = write(tmp_path / "rows.svm", lines_of(400))
    model = MODELS["linear_svm"]
    assert train(model, stream.libsvm(path, FEATURES), until=lsh.until(updates=70)).gradients == 70
    once = stream.libsvm(io.BytesIO(path.read_bytes()), FEATURES)
    result = train(model, once, until=lsh.until(updates=70))
    assert (result.gradients, result.reason) == (25, "epochs")
    with pytest.raises(ValueError, match="epochs must be 1"):
        train(model, once, until=lsh.until(epochs=2))
    failing = Failing(path.read_bytes(), ConnectionResetError("gone"))
    with pytest.raises(ConnectionResetError, match="gone"):
        train(model, stream.libsvm(failing, FEATURES, part_bytes=600), threads=2)


@pytest.mark.parametrize("how", [lsh.Leashed(), lsh.Hogwild()], ids=lambda d: d.label)
def test_ctrl_c_ends_a_run_that_waits_for_its_rows(tmp_path: Path, how: lsh.Discipline):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    text = "\n".join([*lines_of(400), ""]).encode()
    with feeding(pipe, text):
        rows = stream.libsvm(pipe, FEATURES, part_bytes=500)
        result = train(models.fm(FEATURES), rows, threads=2, discipline=how)
    assert result.reason == "interrupted"
    assert result.gradients <= 25


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"until": lsh.until(loss=0.1)}, "until.loss is not for streams"),
        ({"until": lsh.until(epochs=1.5)}, "until.epochs must be whole"),
    ],
)
def test_what_streams_cannot_is_said(tmp_path: Path, changes: dict[str, Any], message: str):
    rows = stream.libsvm(write(tmp_path / "rows.svm", lines_of(50)), FEATURES)
    with pytest.raises(ValueError, match=message):
        train(MODELS["fm"], rows, **changes)


def test_a_stream_that_does_not_fit_is_refused(tmp_path: Path):
    path = write(tmp_path / "rows.svm", lines_of(50))
    rows = stream.libsvm(path, FEATURES)
    dense = lsh.Dataset(np.ones((4, FEATURES), np.float32), np.zeros(4, np.int32), 2)
    for model, data, more, message in (
        (models.fm(FEATURES + 1), rows, {}, "has 40 features, but the model takes 41"),
        (models.lenet(), rows, {}, "cannot take sparse rows"),
        (models.dlrm(5, 8, 3, bottom=(8,), top=(8,), categories=2), rows, {}, "sparse rows"),
        (models.linear_regression(FEATURES), rows, {}, "classes=0 and classes=2 make the one"),
        (models.fm(FEATURES), stream.libsvm(path, FEATURES, classes=3), {}, "labels up to 2"),
        (models.fm(FEATURES), rows, {"validation": rows}, "validation must be in memory"),
        (models.fm(FEATURES), rows, {"validation": dense}, "validation must be sparse where"),
    ):
        with pytest.raises((TypeError, ValueError), match=message):
            train(model, data, **more)
    table = tmp_path / "rows.csv"
    table.write_text("y,a\n1,2\n")
    numbers = stream.csv(table, {"y": stream.Label(), "a": stream.Number()})
    with pytest.raises(ValueError, match="takes sparse rows alone"):
        train(models.fm(1), numbers)
    outside = models.external(lambda *_: 0.0, dimension=1, features=FEATURES)
    with pytest.raises(TypeError, match=r"in memory for external models; stream\.read\(\)"):
        train(outside, rows)


def test_files_tell_what_has_to_be_said_of_them(tmp_path: Path):
    path = write(tmp_path / "rows.svm", ["1 3:1", "x", "-1 7:2 1:1", "# nothing", "+1"])
    assert stream.scan_libsvm(path) == (3, 7, 2, None)
    assert stream.scan_libsvm(path, zero_based=True).features == 8
    assert stream.scan_libsvm(write(tmp_path / "three.svm", ["0 1:1", "2 2:1"])).classes == 3
    assert stream.scan_libsvm(write(tmp_path / "values.svm", ["0.5 1:1", "2 2:1"])).classes == 0
    most = write(tmp_path / "most.svm", ["0", "16777215"])
    assert stream.scan_libsvm(most).classes == 2**24
    for beyond in ("16777217", "3000000000"):
        assert stream.scan_libsvm(write(tmp_path / "beyond.svm", ["0", beyond])).classes == 0
    assert stream.scan_libsvm(write(tmp_path / "none.svm", ["1", "0"])).features == 1
    for name, lines in (("a.ffm", ["1 2:0:1 0:5:1"]), ("b.ffm", ["0 1:3:1 2:0:2", "0 9"])):
        write(tmp_path / name, lines)
    found = stream.scan_libffm([tmp_path / "a.ffm", tmp_path / "b.ffm"])
    assert found.fields is not None
    assert found.fields.dtype == np.int32
    assert (found.fields.tolist(), found[:3]) == ([2, 0, 0, 1, 0, 0], (2, 6, 2))
    with pytest.raises(ValueError, match="can be read once only"):
        stream.scan_libsvm(io.BytesIO(path.read_bytes()))
    with pytest.raises(ValueError, match="no row"):
        stream.scan_libsvm(write(tmp_path / "empty.svm", ["# nothing"]))
    with pytest.raises(TypeError, match="zero_based"):
        stream.scan_libsvm(path, zero_based=1)  # type: ignore[arg-type]
    with pytest.raises(FileNotFoundError):
        stream.scan_libffm(tmp_path / "no.ffm")


@pytest.mark.parametrize("name", MODELS)
def test_a_batch_larger_than_memory_is_all_rows_that_come(tmp_path: Path, name: str):
    model = MODELS[name]
    rows = stream.libsvm(
        write(tmp_path / "rows.svm", lines_of(50, model.classes)), FEATURES, classes=model.classes
    )
    for discipline in (lsh.Sequential(), lsh.Leashed()):
        fitting = train(model, rows, batch_size=50, discipline=discipline)
        largest = train(model, rows, batch_size=2**31 - 1, discipline=discipline)
        np.testing.assert_array_equal(largest.parameters, fitting.parameters)


@pytest.mark.parametrize("batch_size", [2**31, 2**62, 2**64])
def test_a_batch_whose_size_the_core_cannot_count_is_refused(tmp_path: Path, batch_size: int):
    rows = stream.libsvm(write(tmp_path / "rows.svm", lines_of(50)), FEATURES)
    with pytest.raises(ValueError, match=rf"batch_size must be at most {2**31 - 1}, got"):
        train(MODELS["logistic_regression"], rows, batch_size=batch_size)
