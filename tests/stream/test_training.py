"""Training on rows while they are read."""

from __future__ import annotations

import gzip
import io
import json
import math
import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from interrupting import wait_until_all_wait
from made_clicks import ROWS, clicks, shared, small
from warned import once

import leashed as lsh
from leashed import stream
from leashed.datasets import Bags, ClickDataset
from leashed.models import Dense, Graph, Input

BATCH = 16


def text_of(data: ClickDataset) -> str:
    """As CSV, to the last bit."""
    columns = data.ids if isinstance(data.ids, tuple) else tuple(data.ids.T)
    lines = [",".join(["y", *(f"I{j}" for j in range(data.numbers)), *data.names])]
    for i in range(len(data)):
        fields = [str(data.y[i]), *(repr(float(v)) for v in data.x[i])]
        for column in columns:
            if isinstance(column, Bags):
                ids = column.ids[column.offsets[i] : column.offsets[i + 1]]
                fields.append(" ".join(str(v) for v in ids))
            else:
                fields.append(str(column[i]))
        lines.append(",".join(fields))
    return "\n".join(lines) + "\n"


def columns_of(data: ClickDataset) -> dict[str, stream.Column]:
    """Words, so that it is known that ids are below ROWS."""
    words = [str(i) for i in range(ROWS - 1)]
    columns: dict[str, stream.Column] = {"y": stream.Label()}
    columns |= {f"I{j}": stream.Number(scale=None) for j in range(data.numbers)}
    several = data.ids if isinstance(data.ids, tuple) else (None,) * data.features
    columns |= {
        name: stream.Vocabulary(words, between=" " if isinstance(column, Bags) else None)
        for name, column in zip(data.names, several, strict=True)
    }
    return columns


def streamed(path: Path, data: ClickDataset, **options: Any) -> stream.Stream:
    path.write_text(text_of(data))
    return stream.csv(path, columns_of(data), **options)


def train(model: Graph, data: Any, **changes: Any) -> lsh.TrainResult:
    arguments: dict[str, Any] = {
        "until": lsh.until(epochs=1),
        "rule": lsh.Adagrad(0.1),
        "threads": 1,
        "batch_size": BATCH,
    }
    return lsh.train(model, data, **{**arguments, **changes})


def everything(result: lsh.TrainResult) -> list[Any]:
    rows = [table.lookup(np.arange(ROWS)) for table in result.tables.values()]
    return [result.parameters, *rows]


def same(one: lsh.TrainResult, other: lsh.TrainResult) -> None:
    for a, b in zip(everything(one), everything(other), strict=True):
        np.testing.assert_array_equal(a, b)


def test_batches_are_the_rows_in_order_and_the_last_is_what_is_left(tmp_path: Path):
    random = np.random.default_rng(0)
    x = random.normal(size=(75, 1))
    y = (x[:, 0] + random.normal(size=75) > 0).astype(int)
    path = tmp_path / "rows.csv"
    path.write_text("y,a\n" + "".join(f"{y[i]},{float(x[i, 0])!r}\n" for i in range(75)))
    rows = stream.csv(path, {"y": stream.Label(), "a": stream.Number(scale=None)})
    model = Graph(Input(1) >> Dense(1))
    start = model.init(0)
    result = train(model, rows, rule=lsh.SGD(0.5), init=start, until=lsh.until(epochs=2))
    w, b = (float(v) for v in start)
    xs, ys = np.tile(x[:, 0], 2), np.tile(y, 2)
    for begin in range(0, 150, BATCH):
        some = slice(begin, begin + BATCH)
        error = 1 / (1 + np.exp(-(w * xs[some] + b))) - ys[some]
        w, b = w - 0.5 * np.mean(error * xs[some]), b - 0.5 * np.mean(error)
    np.testing.assert_allclose(result.parameters, [w, b], rtol=1e-5)
    assert (result.gradients, result.examples) == (10, 150)
    assert (result.reason, result.outcome) == ("epochs", "stopped")
    assert result.config["reading"]["rows"] == 75
    assert np.isnan(result.accuracy).all()
    assert math.isfinite(result.loss[-1])


@pytest.mark.parametrize("kind", ["one", "bags"])
def test_it_is_the_same_whoever_reads_and_wherever_it_is_cut(tmp_path: Path, kind: str):
    model = small() if kind == "one" else shared()
    data = clicks(model, kind=kind)
    if kind == "bags":
        data = ClickDataset(
            data.x,
            tuple(Bags(f.ids, f.offsets) if isinstance(f, Bags) else f for f in data.ids),
            data.y,
            data.names,
        )
    path = tmp_path / "rows.csv"
    once = train(model, streamed(path, data))
    for options in ({"threads": 3, "part_bytes": 100}, {"threads": 1, "part_bytes": 1000}):
        same(train(model, streamed(path, data, **options)), once)
    for options in ({"shuffle": 64, "seed": 4}, {"shuffle": 1000}):
        shuffled = streamed(path, data, **options, part_bytes=300)
        same(train(model, shuffled), train(model, streamed(path, data, threads=2, **options)))
    packed = gzip.compress(path.read_bytes())
    same(train(model, stream.csv(io.BytesIO(packed), columns_of(data))), once)


@pytest.mark.parametrize("threads", [1, 3])
def test_every_discipline_trains_on_every_row(
    tmp_path: Path, discipline: lsh.Discipline, threads: int
):
    if isinstance(discipline, lsh.Sequential) and threads > 1:
        pytest.skip("one thread alone")
    model = small()
    data = clicks(model, n=405)
    rows = streamed(tmp_path / "rows.csv", data, part_bytes=500)
    result = train(
        model,
        rows,
        discipline=discipline,
        threads=threads,
        until=lsh.until(epochs=6),
        validation=data,
    )
    whole = isinstance(discipline, lsh.Synchronous)
    batches = math.ceil(6 * 405 / BATCH)
    if whole:
        batches = batches // threads * threads
    assert result.gradients == batches
    assert result.reason == "epochs"
    assert result.validation_auc[-1] > 0.8
    assert "data" in result.breakdown or result.breakdown["sampling"] >= 0


def test_without_epochs_files_are_read_again_and_what_is_read_once_ends(tmp_path: Path):
    model = small()
    data = clicks(model)
    rows = streamed(tmp_path / "rows.csv", data)
    assert train(model, rows, until=lsh.until(updates=100)).total_updates == 100
    once = stream.csv(io.BytesIO(text_of(data).encode()), columns_of(data))
    result = train(model, once, until=lsh.until(updates=100))
    assert (result.total_updates, result.reason) == (25, "epochs")
    with pytest.raises(ValueError, match="epochs must be 1"):
        train(model, once, until=lsh.until(epochs=2))


def test_a_run_goes_on_from_a_checkpoint_to_the_same_bits(tmp_path: Path):
    model = small()
    rows = streamed(tmp_path / "rows.csv", clicks(model), shuffle=50, part_bytes=200)
    whole = train(model, rows, until=lsh.until(epochs=2))
    folder = tmp_path / "half"
    train(model, rows, until=lsh.until(updates=17), checkpoint=folder)
    same(train(model, rows, until=lsh.until(epochs=2), resume=folder), whole)


@pytest.mark.parametrize("kind", ["tables", "numbers", "sparse"])
def test_a_run_goes_on_with_the_files_that_it_was_begun_with(tmp_path: Path, kind: str):
    """Copies of them too; others are refused by name."""
    model: Any = small() if kind == "tables" else Graph(Input(1) >> Dense(1))
    if kind == "sparse":
        model = lsh.models.logistic_regression(1)
    data = clicks(small())
    text = {
        "tables": text_of(data),
        "numbers": "y,a\n" + "".join(f"{k % 2},{k}\n" for k in range(10, 99)),
        "sparse": "".join(f"{k % 2} 1:{k}\n" for k in range(10, 99)),
    }[kind]
    header = "" if kind == "sparse" else text[: text.index("\n") + 1]
    names = [tmp_path / "a.txt", tmp_path / "b.txt"]
    for name in names:
        name.write_text(text)
    half = tmp_path / "half"

    def rows(paths: Any) -> Any:
        if kind == "sparse":
            return stream.libsvm(paths, 1)
        columns = {"y": stream.Label(), "a": stream.Number(scale=None)}
        return stream.csv(paths, columns_of(data) if kind == "tables" else columns)

    def resumed(paths: Any) -> lsh.TrainResult:
        return train(model, rows(paths), until=lsh.until(updates=4), resume=half)

    began = train(model, rows(names), until=lsh.until(updates=2), checkpoint=half)
    assert [Path(file["path"]).name for file in began.config["files"]] == ["a.txt", "b.txt"]
    whole = train(model, rows(names), until=lsh.until(updates=4))
    same(resumed(names), whole)
    for paths, told in (
        (names[::-1], r"file 1 of data was a\.txt of [\d,]+ bytes and is b\.txt of"),
        (names[:1], r"file 2 of data was b\.txt of [\d,]+ bytes and is none"),
        ([*names, names[0]], r"file 3 of data was none and is a\.txt of"),
    ):
        with pytest.raises(ValueError, match=told) as refused:
            resumed(paths)
        assert "begin a new run with" in str(refused.value)
    for changed in (text[: text.rindex("\n", 0, -1) + 1], text + text[len(header) :]):
        names[1].write_text(changed)
        with pytest.raises(ValueError, match=rf"and is b\.txt of {len(changed):,} bytes"):
            resumed(names)
    # A copy has another time; an open file tells nothing.
    folder = tmp_path / "copies"
    folder.mkdir()
    copies = [folder / name.name for name in names]
    for copy in copies:
        copy.write_text(text)
        os.utime(copy, ns=(0, 10**18))
    with once("a.txt and 1 more of data has been modified since "):
        same(resumed(copies), whole)
    opened: Any = io.BytesIO((text + text[len(header) :]).encode())
    again = tmp_path / "again"
    with once(" and data is of no files now: whether its rows are the same is not known"):
        same(
            train(model, rows(opened), until=lsh.until(updates=4), resume=half, checkpoint=again),
            whole,
        )
    with pytest.raises(ValueError, match=r"was b\.txt of [\d,]+ bytes and is none"):
        train(model, rows(names[:1]), until=lsh.until(updates=5), resume=again)


@pytest.mark.parametrize("kind", ["numbers", "sparse"])
def test_a_run_goes_on_with_the_order_of_rows_that_it_was_begun_with(tmp_path: Path, kind: str):
    path, half = tmp_path / "rows.txt", tmp_path / "half.safetensors"
    sparse = kind == "sparse"
    text = (f"{k % 2} 1:{k}\n" if sparse else f"{k % 2},{k}\n" for k in range(10, 99))
    path.write_text(("" if sparse else "y,a\n") + "".join(text))
    model = lsh.models.logistic_regression(1) if sparse else Graph(Input(1) >> Dense(1))

    def rows(**order: Any) -> Any:
        if sparse:
            return stream.libsvm(path, 1, **order)
        return stream.csv(path, {"y": stream.Label(), "a": stream.Number(scale=None)}, **order)

    begun = {"shuffle": 16, "seed": 1}
    train(model, rows(**begun), until=lsh.until(updates=1), checkpoint=half)
    whole = train(model, rows(**begun), until=lsh.until(updates=3))
    same(train(model, rows(**begun), until=lsh.until(updates=3), resume=half), whole)
    for order, told in (
        ({}, "shuffle of the stream was 16 and is 0"),
        ({"shuffle": 16}, "seed of the stream was 1 and is 0"),
    ):
        with pytest.raises(ValueError, match=told):
            train(model, rows(**order), until=lsh.until(updates=3), resume=half)


def test_a_bad_line_in_mid_run_is_raised_and_skipped_ones_are_told(tmp_path: Path):
    model = small()
    data = clicks(model)
    lines = text_of(data).splitlines()
    lines[200] = "1,x,0,0,1,1"
    path = tmp_path / "rows.csv"
    path.write_text("\n".join(lines))
    for threads in (1, 3):
        rows = stream.csv(path, columns_of(data), part_bytes=100)
        with pytest.raises(ValueError, match=r"rows\.csv: line 201: I0 is 'x'"):
            train(model, rows, threads=threads)
    result = train(model, stream.csv(path, columns_of(data), bad="skip"))
    reading = result.config["reading"]
    assert (reading["rows"], reading["bad"], result.examples) == (399, 1, 399)
    assert reading["first_bad"] == [[str(path), 201, "I0 is 'x', no finite number"]]


class Failing(io.RawIOBase):
    """Gives a part of some bytes, then fails."""

    def __init__(self, content: bytes, error: BaseException) -> None:
        self._file, self._error = io.BytesIO(content), error

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        count = self._file.readinto(memoryview(buffer)[:500])
        if not count:
            raise self._error
        return count


def test_what_reading_raises_in_mid_run_is_raised():
    model = small()
    data = clicks(model)
    rows = stream.csv(
        Failing(text_of(data).encode(), ConnectionResetError("gone")),
        columns_of(data),
        part_bytes=600,
    )
    with pytest.raises(ConnectionResetError, match="gone"):
        train(model, rows, threads=2)


def test_ctrl_c_ends_a_run_that_waits_for_its_rows(tmp_path: Path):
    model = small()
    data = clicks(model)
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with feeding(pipe, text_of(data).encode()):
        result = train(model, stream.csv(pipe, columns_of(data), part_bytes=500), threads=2)
    assert result.reason == "interrupted"
    assert result.gradients <= 25


@contextmanager
def feeding(pipe: Path, content: bytes) -> Iterator[None]:
    """A pipe that has this much and stays open; Ctrl-C comes when all of it was used."""
    over = threading.Event()

    def feed() -> None:
        with pipe.open("wb") as file:
            file.write(content)
            file.flush()
            wait_until_all_wait()
            os.kill(os.getpid(), signal.SIGINT)
            over.wait()

    writer = threading.Thread(target=feed)
    writer.start()
    try:
        yield
    finally:
        over.set()
        writer.join()


def test_numbers_alone_train_a_network(tmp_path: Path):
    data = lsh.datasets.synthetic_digits(n=200, test=50).train
    path = tmp_path / "digits.csv"
    names = ["y", *(f"p{j}" for j in range(data.features))]
    rows = (",".join([str(y), *map(str, x)]) for x, y in zip(data.x, data.y, strict=True))
    path.write_text("\n".join([",".join(names), *rows]))
    columns = {"y": stream.Label(10), **{name: stream.Number() for name in names[1:]}}
    digits = stream.csv(path, columns)
    np.testing.assert_array_equal(digits.read().x, data.x)
    model = lsh.models.mlp(784, [16], 10)
    result = lsh.train(model, digits, until=lsh.until(epochs=5), validation=data, threads=2)
    assert result.validation_accuracy[-1] > result.validation_accuracy[0]


@pytest.mark.parametrize("threads", [1, 3])
def test_the_loss_of_a_pass_is_the_mean_over_all_of_its_rows(tmp_path: Path, threads: int):
    rows = tmp_path / "rows.tsv"
    lines = lsh.datasets.synthetic_click_lines(3001, 0, cardinalities=50, threads=1)
    rows.write_bytes(b"".join(lines))
    model = lsh.models.dlrm(None, 4, bottom=(8, 4), top=(8,))
    for rate in (0.1, 1e-30):
        result = lsh.train(
            model,
            stream.criteo(rows),
            until=lsh.until(epochs=1),
            rule=lsh.Adagrad(rate),
            threads=threads,
            batch_size=16,
            observe=lsh.Observe(metrics=lsh.metrics.progressive()),
        )
        assert result.metrics is not None
        assert result.final_loss == pytest.approx(result.metrics.total[-1].log_loss, rel=1e-6)
        assert json.loads(result.to_json())["loss"][-1] == result.final_loss


def test_the_loss_of_several_passes_is_of_the_last_and_where_it_is_under_way_of_two(
    tmp_path: Path,
):
    rows = tmp_path / "rows.tsv"
    lines = lsh.datasets.synthetic_click_lines(1600, 0, cardinalities=50, threads=1)
    rows.write_bytes(b"".join(lines))
    model = lsh.models.dlrm(None, 4, bottom=(8, 4), top=(8,))

    def trained(**until: Any) -> lsh.TrainResult:
        return lsh.train(
            model,
            stream.criteo(rows),
            until=lsh.until(**until),
            rule=lsh.Adagrad(0.1),
            threads=1,
            batch_size=16,
            observe=lsh.Observe(metrics=lsh.metrics.progressive()),
        )

    # The sums of the losses before each update: of 100 of a pass, and a quarter of the next.
    sums = [0.0]
    for updates in (100, 200, 225):
        result = trained(updates=updates)
        assert result.metrics is not None
        sums.append(result.metrics.total[-1].log_loss * updates)
    first, second, third = np.diff(sums) / np.array([100, 100, 25])
    assert third < second < first
    assert trained(epochs=2).final_loss == pytest.approx(second, rel=1e-6)
    part = trained(updates=225).final_loss
    assert part == pytest.approx(0.75 * second + 0.25 * third, rel=1e-6)


@pytest.mark.parametrize("threads", [1, 3])
def test_a_batch_of_two_passes_counts_for_each_by_its_rows(tmp_path: Path, threads: int):
    """The parameters stand still, and rows are the harder the later they come."""
    x = np.linspace(0, 3, 100)
    path = tmp_path / "rows.csv"
    path.write_text("y,a\n" + "".join(f"0,{v!r}\n" for v in x.tolist()))
    rows = stream.csv(path, {"y": stream.Label(), "a": stream.Number(scale=None)})
    model = Graph(Input(1) >> Dense(1))
    result = train(
        model,
        rows,
        until=lsh.until(epochs=3),
        rule=lsh.SGD(1e-30),
        init=np.array([1, 0], np.float32),
        threads=threads,
        batch_size=64,
    )
    losses = np.tile(np.log1p(np.exp(x)), 3)
    # Batches end with rows 192, 256 and 300; the last pass begins with row 200.
    expected = (56 * losses[192:256].mean() + 44 * losses[256:].mean()) / 100
    assert result.final_loss == pytest.approx(expected, rel=1e-6)


def test_the_loss_of_a_run_that_is_resumed_is_of_the_rows_from_there_on(tmp_path: Path):
    model = small()
    rows = streamed(tmp_path / "rows.csv", clicks(model))
    folder = tmp_path / "half"
    counts = lsh.metrics.progressive()
    train(model, rows, until=lsh.until(updates=17), checkpoint=folder)
    rest = train(model, rows, resume=folder, observe=lsh.Observe(metrics=counts))
    assert rest.metrics is not None
    assert rest.final_loss == pytest.approx(rest.metrics.total[-1].log_loss, rel=1e-6)
    whole = train(model, rows, until=lsh.until(epochs=2))
    second = train(model, rows, until=lsh.until(epochs=2), resume=folder)
    assert second.final_loss == pytest.approx(whole.final_loss, rel=1e-6)


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("kept", [2**20, 150])
def test_users_tell_gauc_as_from_memory(tmp_path: Path, threads: int, kept: int):
    model = small()
    data = clicks(model)
    users = np.random.default_rng(1).integers(0, ROWS - 1, (len(data), 1))
    data = ClickDataset.from_arrays(data.x, np.hstack([data.ids, users]), data.y)
    rows = streamed(tmp_path / "rows.csv", data)
    found = [
        train(
            model,
            source,
            rule=lsh.SGD(1e-30),  # so that a batch is scored alike, whichever came before it
            threads=threads,
            observe=lsh.Observe(metrics=lsh.metrics.progressive(gauc="C3", kept=kept)),
        ).metrics.total[-1]
        for source in (rows.read(), rows)
    ]
    assert found[0].rows == found[1].rows == len(data)
    assert found[0].users == found[1].users > 0
    assert (found[0].user_share == 1) == (kept > len(data))
    assert found[0].gauc == found[1].gauc
    assert found[0].auc == found[1].auc
    plain = train(model, rows)
    same(plain, train(model, rows, observe=lsh.Observe(metrics=lsh.metrics.progressive(gauc="C3"))))


def test_whose_rows_of_a_stream_are_is_told_by_a_feature_of_one_id(tmp_path: Path):
    model = shared()
    data = clicks(model, kind="bags")
    rows = streamed(tmp_path / "rows.csv", data)
    for gauc, error, message in (
        ("C9", ValueError, "has no feature 'C9'; choose one of C1"),
        (data.names[-1], TypeError, "any number of ids"),
        (np.zeros(len(data), np.int64), TypeError, "gauc must name a feature of the stream"),
    ):
        with pytest.raises(error, match=message):
            train(model, rows, observe=lsh.Observe(metrics=lsh.metrics.progressive(gauc=gauc)))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"until": lsh.until(loss=0.1)}, "until.loss is not for streams"),
        ({"until": lsh.until(loss_fraction=0.1)}, "until.loss_fraction is not for streams"),
        ({"until": lsh.until(epochs=1.5)}, "until.epochs must be whole"),
    ],
)
def test_what_streams_cannot_is_said(tmp_path: Path, changes: dict[str, Any], message: str):
    model = small()
    rows = streamed(tmp_path / "rows.csv", clicks(model))
    with pytest.raises((ValueError, TypeError), match=message):
        train(model, rows, **changes)


def test_a_stream_that_does_not_fit_is_refused(tmp_path: Path):
    data = clicks(small())
    rows = streamed(tmp_path / "rows.csv", data)
    with pytest.raises(ValueError, match="has 3 numbers, but the model takes 4"):
        train(lsh.models.dlrm(ROWS, 8, 4, bottom=(8,), top=(8,), categories=2), rows)
    with pytest.raises(ValueError, match="2 features that are ids, but the model reads number 2"):
        train(lsh.models.dlrm(ROWS, 8, 3, bottom=(8,), top=(8,), categories=3), rows)
    with pytest.raises(ValueError, match=r"ids up to 11, outside 0 to 4 .*stream.Hashed"):
        train(lsh.models.dlrm(5, 8, 3, bottom=(8,), top=(8,), categories=2), rows)
