"""Numbers that are standardised by running statistics, which are part of what is trained."""

from __future__ import annotations

import copy
import json
import os
import pickle
import shutil
import signal
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from stream.test_training import feeding
from warned import once

import leashed as lsh
from leashed import stream
from leashed.cli import main
from leashed.datasets import ClickDataset
from leashed.datasets.columns import UNKNOWN
from leashed.files.resuming import Checkpointer, Kept
from leashed.models._columns import kept
from leashed.training.sets import Streamed

ROWS, BATCH = 1500, 32
TOGETHER = 256  # rows after which statistics may change, at first
NUMBERS = ("price", "huge", "still", "missing", "raw")


def columns(scale: str | None = "standard") -> dict[str, Any]:
    number = {name: stream.Number(scale=scale) for name in NUMBERS}
    return {
        "clicked": stream.Label(),
        **number,
        "missing": stream.Number(missing=0.0, scale=scale),
        "raw": stream.Number(scale=None),
        "city": stream.Hashed(buckets=20),
    }


def values(rows: int = ROWS, seed: int = 1) -> tuple[Any, Any]:
    """Prices that rise, as prices do, others that are huge, or always the same, some missing."""
    random = np.random.default_rng(seed)
    x = random.normal(size=(rows, 5)) * [30.0, 2e12, 0.0, 1.0, 1.0] + [100.0, 1e15, 7.0, 3.0, 0.5]
    x[:, 0] += np.linspace(0, 50, rows)
    return x.astype(np.float32), (random.random(rows) < 1 / (1 + np.exp(-(x[:, 3] - 3)))).astype(
        int
    )


def text(rows: int = ROWS, seed: int = 1, begin: int = 0) -> str:
    x, y = values(rows, seed)
    lines = []
    for i in range(begin, rows):
        fields = [repr(float(v)) for v in x[i]]
        if i % 5 == 0:
            fields[3] = ""
        lines.append(f"{y[i]},{','.join(fields)},c{i % 13}")
    return "\n".join([",".join(["clicked", *NUMBERS, "city"]), *lines]) + "\n"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "rows.csv"
    path.write_text(text())
    return path


def model() -> Any:
    return lsh.models.dlrm(dim=4, bottom=(8, 4), top=(8,))


def train(data: Any, **changes: Any) -> Any:
    given = {
        "threads": 1,
        "batch_size": BATCH,
        "rule": lsh.Adagrad(0.05),
        "until": lsh.until(epochs=1),
        **changes,
    }
    return lsh.train(given.pop("model", None) or model(), data, **given)


def raw_of(path: Path) -> np.ndarray:
    found = stream.csv(path, columns()).read()
    assert isinstance(found, ClickDataset)
    return found.x


def moments(result: Any) -> Any:
    found = kept(result.parameters).moments
    assert found is not None
    return found


def same(one: Any, other: Any) -> None:
    np.testing.assert_array_equal(one.parameters, other.parameters)
    for name, table in one.tables.items():
        ids = np.arange(20)
        np.testing.assert_array_equal(table.lookup(ids), other.tables[name].lookup(ids))
    assert moments(one) == moments(other)


def test_a_stream_comes_to_what_its_rows_come_to(file: Path) -> None:
    result, x = train(stream.csv(file, columns())), raw_of(file).astype(np.float64)
    found = moments(result)
    assert found.rows == ROWS
    assert found.mean[4] is None
    assert found.mean[2] == 7.0
    assert found.squares[2] == 0.0
    np.testing.assert_allclose(found.mean[:4], x.mean(0)[:4], rtol=1e-12)
    np.testing.assert_allclose(np.array(found.squares[:4]) / ROWS, x.var(0)[:4], rtol=1e-9)
    standard = found.standardised(x.astype(np.float32))
    np.testing.assert_allclose(standard.mean(0)[:4], 0, atol=1e-3)
    np.testing.assert_allclose(standard.std(0)[[0, 1, 3]], 1, atol=1e-3)
    np.testing.assert_array_equal(standard[:, 4], x[:, 4].astype(np.float32))


def test_a_row_is_standardised_by_the_blocks_before_it(file: Path) -> None:
    """Beside a training on rows that NumPy has standardised so."""
    x = raw_of(file)
    made = np.empty_like(x)
    ends = [TOGETHER * k for k in range(1, 6)]
    for begin, end in zip([0, *ends], [*ends, ROWS], strict=True):
        before = x[: max(begin, TOGETHER), :4].astype(np.float64)
        deviation = before.std(0)
        deviation[deviation == 0] = 1
        made[begin:end, :4] = (x[begin:end, :4] - before.mean(0)) / deviation
    made[:, 4] = x[:, 4]
    again = file.parent / "made.csv"
    lines = file.read_text().splitlines()
    rows = [
        ",".join([line.split(",")[0], *(repr(float(v)) for v in row), line.split(",")[-1]])
        for line, row in zip(lines[1:], made, strict=True)
    ]
    again.write_text("\n".join([lines[0], *rows]) + "\n")
    plain = train(stream.csv(again, columns(None)))
    one = train(stream.csv(file, columns()))
    np.testing.assert_allclose(one.parameters, plain.parameters, rtol=2e-4, atol=2e-5)
    raw = train(stream.csv(file, columns(None)), validation=None)
    assert not np.allclose(raw.parameters, plain.parameters, rtol=1e-2)


@pytest.mark.parametrize("more", [{"threads": 3}, {"part_bytes": 999}, {"shuffle": 100}])
def test_it_is_the_same_whoever_reads_and_wherever_it_is_cut(file: Path, more: Any) -> None:
    order = {name: value for name, value in more.items() if name == "shuffle"}
    one = train(stream.csv(file, columns(), **{"threads": 1, **order}))
    same(one, train(stream.csv(file, columns(), **{"threads": 4, "part_bytes": 3000, **more})))


def test_a_run_that_is_resumed_has_the_same_bits(file: Path, tmp_path: Path) -> None:
    whole = train(stream.csv(file, columns()), until=lsh.until(epochs=2))
    saved = tmp_path / "saved"
    for updates in (3, 20, 60):  # within the first block, between blocks, in the second pass
        first = train(
            stream.csv(file, columns()), until=lsh.until(updates=updates), checkpoint=saved
        )
        assert first.total_updates == updates
        loaded = lsh.load(saved)
        assert loaded.columns.moments == moments(first)
        assert moments(first).rows == max(
            TOGETHER, min(updates * BATCH // TOGETHER * TOGETHER, ROWS if updates > 46 else 1280)
        )
        test = stream.csv(file, columns()).read()
        np.testing.assert_array_equal(loaded.predict(test), first.model.predict(test))
        rest = train(stream.csv(file, columns()), until=lsh.until(epochs=2), resume=saved)
        same(whole, rest)


def test_checkpoints_meanwhile_are_of_their_moment(
    file: Path, tmp_path: Path, monkeypatch: Any
) -> None:
    saved = tmp_path / "saved"
    put = Checkpointer._put

    def put_and_keep(self: Checkpointer, reached: Any) -> None:
        put(self, reached)
        shutil.copytree(saved, tmp_path / f"at-{reached.training.updates}")

    monkeypatch.setattr(Checkpointer, "_put", put_and_keep)
    every = lsh.Checkpoint(saved, updates=20)
    whole = train(stream.csv(file, columns()), checkpoint=every)
    monkeypatch.undo()
    for at, rows in ((20, 512), (40, 1280)):
        meanwhile = tmp_path / f"at-{at}"
        found = lsh.load(meanwhile)
        assert found.columns.moments is not None
        assert (found.updates, found.columns.moments.rows) == (at, rows)
        same(whole, train(stream.csv(file, columns()), resume=meanwhile))


def test_data_in_memory_are_standardised_by_all_their_rows(file: Path, tmp_path: Path) -> None:
    rows = stream.csv(file, columns()).read()
    whole = train(rows, until=lsh.until(epochs=2))
    assert moments(whole).rows == ROWS
    x = moments(whole).standardised(rows.x)
    plain = ClickDataset.from_arrays(x, rows.ids, rows.y)
    ready = train(plain, until=lsh.until(epochs=2), model=model().shaped(rows))
    np.testing.assert_array_equal(whole.parameters, ready.parameters)
    assert kept(ready.parameters).moments is None
    saved = tmp_path / "saved"
    train(rows, until=lsh.until(epochs=1), checkpoint=saved)
    same(whole, train(rows, until=lsh.until(epochs=2), resume=saved))
    np.testing.assert_array_equal(whole.loss[-1:], ready.loss[-1:])


def test_arrays_stay_as_they_are() -> None:
    x, y = values()
    data = ClickDataset.from_arrays(
        x[:, 3:], np.arange(ROWS)[:, None] % 20, y, number_names=["a", "b"]
    )
    assert kept(train(data).parameters).moments is None


def test_numbers_that_are_told_to_stay_do(file: Path) -> None:
    result = train(stream.csv(file, columns(None)))
    assert kept(result.parameters).moments is None
    assert "numbers_begun" not in result.config


@pytest.mark.parametrize("kind", ["file", "rows", "frame"])
def test_what_is_trained_takes_numbers_as_they_stand(file: Path, tmp_path: Path, kind: str) -> None:
    pandas = pytest.importorskip("pandas")
    result = train(stream.csv(file, columns()))
    rows = stream.csv(file, columns()).read()
    said = result.model.predict(rows)
    other = {"rows": rows, "file": file, "frame": pandas.read_csv(file)}[kind]
    result.model.save(tmp_path / "saved")
    loaded = lsh.load(tmp_path / "saved")
    np.testing.assert_array_equal(loaded.predict(other), said)
    graph = result.model.model
    np.testing.assert_array_equal(graph.predict(result.parameters, rows, result.tables)[:, 0], said)
    assert loaded.evaluate(rows) == result.model.evaluate(rows)
    shuffled = stream.csv(file, dict(reversed(columns().items()))).read()
    np.testing.assert_array_equal(loaded.predict(shuffled), said)


def test_copies_and_models_without_tables_know_them(file: Path) -> None:
    numbers = {name: column for name, column in columns().items() if name != "city"}
    graph = lsh.models.Graph(lsh.models.Input(5) >> lsh.models.Dense(1))
    result = train(stream.csv(file, numbers), model=graph, until=lsh.until(epochs=1))
    rows = stream.csv(file, numbers).read()
    said = result.model.predict(rows)
    assert moments(result).rows == ROWS
    for other in (copy.deepcopy(result.model), pickle.loads(pickle.dumps(result.model))):
        np.testing.assert_array_equal(other.predict(rows), said)
    np.testing.assert_array_equal(result.model.predict(rows.x), said)
    kept_in_memory = Kept()
    train(rows, model=graph, until=lsh.until(epochs=1), checkpoint=kept_in_memory)
    on = {"checkpoint": kept_in_memory, "resume": kept_in_memory}
    two = train(rows, model=graph, until=lsh.until(epochs=2), **on)
    same(two, train(rows, model=graph, until=lsh.until(epochs=2)))


@pytest.mark.parametrize(
    "copied",
    [
        lambda theta: theta.copy(),
        copy.copy,
        copy.deepcopy,
        lambda theta: pickle.loads(pickle.dumps(theta)),
        lambda theta: (theta + theta) / 2,
        lambda theta: theta * np.float64(1.0),  # of float64
    ],
)
def test_copies_of_the_array_know_them(file: Path, tmp_path: Path, copied: Any) -> None:
    result, rows = train(stream.csv(file, columns())), stream.csv(file, columns()).read()
    theta = copied(result.parameters)
    assert kept(theta) == kept(result.parameters)
    lsh.save(tmp_path / "saved", result.model.model, theta, result.tables)
    np.testing.assert_array_equal(
        lsh.load(tmp_path / "saved").predict(rows), result.model.predict(rows)
    )


def test_parts_and_sums_are_of_no_columns(file: Path) -> None:
    theta = train(stream.csv(file, columns())).parameters
    assert kept(theta[1:]) == kept(theta > 0) == kept(np.array(theta)) == UNKNOWN
    assert type(theta.sum()) is np.float32


def test_a_plain_array_is_warned_of(file: Path) -> None:
    result, rows = train(stream.csv(file, columns())), stream.csv(file, columns()).read()
    copied = np.array(result.parameters)
    with once("numbers are read as they are"):
        result.model.model.predict(copied, rows, result.tables)
    plain = stream.csv(file, columns(None)).read()
    result.model.model.predict(copied, plain, result.tables)


def test_onnx_standardises_too(file: Path, tmp_path: Path) -> None:
    runtime = pytest.importorskip("onnxruntime")
    result = train(stream.csv(file, columns()))
    rows = stream.csv(file, columns()).read()
    result.model.export(tmp_path / "model.onnx")
    session = runtime.InferenceSession(tmp_path / "model.onnx")
    given = {name: rows.x[:, j] for j, name in enumerate(rows.number_names)}
    given["city"] = rows.ids[:, 0].astype(np.int64)
    (found,) = session.run(None, given)
    np.testing.assert_allclose(found[:, 0], result.model.predict(rows), atol=1e-6)


def test_validation_is_standardised_by_what_the_stream_has_come_to(file: Path) -> None:
    rows = stream.csv(file, columns()).read()
    result = train(stream.csv(file, columns()), validation=rows)
    found = result.model.evaluate(rows)
    assert result.validation_auc[-1] == pytest.approx(found.auc, abs=1e-3)


def test_the_best_state_has_the_statistics_of_its_moment(file: Path, tmp_path: Path) -> None:
    """Where no pass is better, what the run began with, also in what is trained on from it."""
    rows = stream.csv(file, columns()).read()
    result = train(
        stream.csv(file, columns()),
        validation=rows,
        until=lsh.until(patience=1, epochs=2),
        rule=lsh.Adagrad(30.0),
        checkpoint=tmp_path / "saved",
    )
    assert result.best.passes == 0
    assert moments(result).rows == TOGETHER
    assert moments(result) == lsh.load(tmp_path / "saved").columns.moments
    assert result.model.evaluate(rows).loss == pytest.approx(result.best.value, rel=1e-6)
    better = train(
        stream.csv(file, columns()), validation=rows, until=lsh.until(patience=1, epochs=2)
    )
    assert better.best.passes > 0
    assert moments(better).rows == ROWS


def test_validation_waits_for_rows_that_come_late(file: Path, tmp_path: Path) -> None:
    rows = stream.csv(file, columns()).read()
    pipe, lines = tmp_path / "pipe", file.read_bytes()

    def write() -> None:
        with pipe.open("wb") as out:
            out.write(lines[:2000])  # fewer rows than have to come
            out.flush()
            time.sleep(1.3)
            out.write(lines[2000:])

    os.mkfifo(pipe)
    writer = threading.Thread(target=write)
    writer.start()
    found = train(stream.csv(pipe, columns()), validation=rows)
    writer.join()
    ready = train(stream.csv(file, columns()), validation=rows)
    assert found.validation_loss[0] == ready.validation_loss[0]
    assert found.validation_auc[0] != 0.5  # as it is of rows whose numbers all stand at their means
    same(found, ready)


@pytest.mark.parametrize("until", [{"epochs": 1}, {"epochs": 1, "patience": 2}])
def test_ctrl_c_ends_waiting_for_the_first_rows(file: Path, tmp_path: Path, until: Any) -> None:
    """What it began with is what comes of it."""
    rows = stream.csv(file, columns()).read()
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    given = {"validation": rows, "seed": 3, "until": lsh.until(**until)}
    with (
        feeding(pipe, file.read_bytes()[:2000]),
        once("were read, and none was trained on"),
    ):
        result = train(stream.csv(pipe, columns()), **given)
    assert (result.reason, result.total_updates, result.best) == ("interrupted", 0, None)
    assert np.isnan(result.validation_loss).all()
    np.testing.assert_array_equal(result.parameters, model().shaped(rows).init(3, "glorot"))
    assert moments(result).rows == 0


def test_ctrl_c_ends_waiting_for_a_day_s_first_rows(
    file: Path, tmp_path: Path, monkeypatch: Any
) -> None:
    """With the others it goes on as if nothing had been."""

    def stop(*_: Any) -> None:
        signal.raise_signal(signal.SIGINT)

    given = {"validation": stream.csv(file, columns()).read(), "folder": tmp_path / "days"}
    days = {name: stream.csv(file, columns()) for name in ("first", "second")}
    for done in (0, 1):
        if done:
            lsh.continual(model(), {"first": days["first"]}, **given, batch_size=BATCH)
        with monkeypatch.context() as patched:
            patched.setattr(Streamed, "head", stop)
            cut = lsh.continual(model(), days, **given, batch_size=BATCH)
        assert (cut.outcome, len(cut.days)) == ("interrupted", done)
        assert moments(cut).rows == (ROWS if done else 0)
    whole = lsh.continual(model(), days, **given, batch_size=BATCH)
    assert whole.outcome == "done"
    assert moments(whole).rows == 2 * ROWS


def test_days_go_on_and_a_resumed_day_has_the_same_bits(tmp_path: Path) -> None:
    files = []
    for day in range(3):
        files.append(tmp_path / f"day-{day}.csv")
        files[-1].write_text(text(700 + day, seed=day))
    days = {file.name: stream.csv(file, columns()) for file in files}
    given = {"rule": lsh.Adagrad(0.05), "threads": 1, "batch_size": BATCH}
    whole = lsh.continual(model(), days, folder=tmp_path / "whole", **given)
    x = np.concatenate([raw_of(file) for file in files]).astype(np.float64)
    found = moments(whole)
    assert found.rows == len(x)
    np.testing.assert_allclose(found.mean[:4], x.mean(0)[:4], rtol=1e-12)
    assert all(day.yesterday.auc > 0 for day in whole.days[1:])
    apart = tmp_path / "apart"
    for some in (1, 2, 3):
        part = lsh.continual(model(), dict(list(days.items())[:some]), folder=apart, **given)
    same(whole, part)
    x = stream.csv(files[0], columns()).read()
    np.testing.assert_array_equal(
        lsh.load(apart).predict(x), lsh.load(tmp_path / "whole").predict(x)
    )


def test_training_on_goes_on_from_what_rows_came_to(file: Path, tmp_path: Path) -> None:
    more = tmp_path / "more.csv"
    more.write_text(text(900, seed=5))
    first = train(stream.csv(file, columns()))
    on = first.model.train(stream.csv(more, columns()), threads=1, batch_size=BATCH)
    assert moments(on).rows == ROWS + 900
    raw = train(stream.csv(file, columns(None)))
    on = raw.model.train(stream.csv(more, columns()), threads=1, batch_size=BATCH)
    assert kept(on.parameters).moments is None  # as it was begun


def test_a_replay_makes_the_same(file: Path, tmp_path: Path) -> None:
    record = tmp_path / "run.trace"
    result = train(
        stream.csv(file, columns()), observe=lsh.Observe(record=record), discipline=lsh.Sequential()
    )
    again = lsh.replay(record, result.model.model, stream.csv(file, columns()))
    np.testing.assert_array_equal(again.parameters, result.parameters)
    assert kept(again.parameters).moments == moments(result)
    rows = stream.csv(file, columns()).read()
    result = train(rows, observe=lsh.Observe(record=record), discipline=lsh.Sequential())
    again = lsh.replay(record, result.model.model, rows)
    np.testing.assert_array_equal(again.parameters, result.parameters)


def test_modes_and_virtual_time_have_them(file: Path, tmp_path: Path) -> None:
    whole = train(stream.csv(file, columns()), mode=lsh.modes.BSP())
    assert moments(whole).rows == ROWS
    saved = tmp_path / "saved"
    train(
        stream.csv(file, columns()),
        mode=lsh.modes.BSP(),
        until=lsh.until(updates=20),
        checkpoint=saved,
    )
    same(whole, train(stream.csv(file, columns()), mode=lsh.modes.BSP(), resume=saved))
    played = lsh.simulate(
        model().shaped(stream.csv(file, columns())),
        stream.csv(file, columns()),
        cluster=lsh.simulation.constant(1, 1.0),
        until=lsh.until(epochs=1),
        batch_size=BATCH,
        rule=lsh.Adagrad(0.05),
    )
    same(train(stream.csv(file, columns())), played.result)


@pytest.mark.parametrize("patience", [None, 1])
def test_a_mode_s_checkpoint_is_of_the_moment_at_which_it_ended(
    file: Path, tmp_path: Path, patience: int | None
) -> None:
    """Of rows that are no whole number of batches."""
    result = train(
        stream.csv(file, columns()),
        mode=lsh.modes.BSP(),
        validation=stream.csv(file, columns()).read(),
        until=lsh.until(epochs=1, patience=patience),
        checkpoint=tmp_path / "saved",
    )
    assert moments(result).rows == ROWS
    assert lsh.load(tmp_path / "saved").columns.moments == moments(result)


def test_few_rows_stand_for_themselves(tmp_path: Path) -> None:
    path = tmp_path / "few.csv"
    path.write_text(text(3))
    assert moments(train(stream.csv(path, columns()), batch_size=2)).rows == 3
    broken = tmp_path / "broken.csv"
    broken.write_text("\n".join([*text(9).splitlines()[:8], "x"]) + "\n")
    with pytest.raises(ValueError, match="line 9"):
        train(stream.csv(broken, columns()))


def test_a_schema_of_json_has_it(file: Path, tmp_path: Path) -> None:
    told = {
        "clicked": {"kind": "label"},
        "price": {"kind": "number"},
        "huge": {"kind": "number", "scale": None},
        "city": {"kind": "hashed", "buckets": 20},
    }
    (tmp_path / "schema.json").write_text(json.dumps({"columns": told}))
    saved = tmp_path / "saved"
    words = [
        "train",
        "--model",
        "dlrm",
        "--data",
        str(file),
        "--schema",
        str(tmp_path / "schema.json"),
    ]
    assert main([*words, "--stream", "--save", str(saved), "--threads", "1"]) == 0
    found = lsh.load(saved).columns
    assert found.moments is not None
    assert found.moments.which == [True, False]
    assert found.schema is not None
    assert found.schema.to_json()["huge"] == {"kind": "number", "scale": None}
    assert main(["predict", str(saved), "--data", str(file)]) == 0


def test_another_scale_is_refused() -> None:
    with pytest.raises(ValueError, match='scale must be "standard" or None'):
        stream.Number(scale="robust")
