"""``threads="auto"`` on whatever is trained: what is tried first leaves no trace in the run."""

from __future__ import annotations

import io
import os
import signal
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import warned
from made_clicks import ROWS, clicks, shared, small
from rows_models import external, graph, python_gradient
from stream.test_training import columns_of, everything, feeding, same, streamed, text_of
from training.test_modes_on_any_data import FEATURES, LINEAR, MACHINE, rows, text

import leashed as lsh
from leashed import models, stream
from leashed.models import BatchNorm, Dense, Graph, Input, ReLU, tables
from leashed.training import request
from leashed.training import run as running

DISCIPLINES = [
    lsh.Synchronous(),
    lsh.Locked(),
    lsh.Hogwild(),
    lsh.Hogwild(copy=False),
    lsh.Leashed(),
]


@pytest.fixture(autouse=True)
def rates(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """What was tried, with one thread and with two, however many processors there are, each until
    it came to a gradient; one is taken.
    """
    found: list[float] = []

    def fastest(counts: list[int], eps: Callable[[int], float]) -> int:
        for m in counts:
            found.append(next((rate for _ in range(1000) if (rate := eps(m)) > 0), 0.0))
        return 1

    monkeypatch.setattr(request, "cores", lambda: 2)
    monkeypatch.setattr(running, "fastest", fastest)
    monkeypatch.setattr(running, "PROBE_SECONDS", 0.02)
    monkeypatch.setattr(running, "PROBE_ROWS", 100)
    return found


def train(model: Any, data: Any, **given: Any) -> lsh.TrainResult:
    settings = {"until": lsh.until(epochs=1), "rule": lsh.Adagrad(0.1), "batch_size": 16}
    return lsh.train(model, data, **{**settings, **given})


def numbers(path: Path) -> stream.Stream:
    x = np.random.default_rng(0).normal(size=(300, 4))
    lines = ["y,a,b,c,d"] + [f"{int(r.sum() > 0)}," + ",".join(map(repr, map(float, r))) for r in x]
    path.write_text("\n".join(lines) + "\n")
    columns: dict[str, Any] = {"y": stream.Label(), **dict.fromkeys("abcd", stream.Number())}
    return stream.csv(path, columns)


def dense() -> lsh.Dataset:
    x = np.random.default_rng(0).normal(size=(300, 4)).astype(np.float32)
    return lsh.Dataset.from_arrays(x, (x.sum(axis=1) > 0).astype(np.int32), 2)


def norms() -> Graph:
    return Graph(Input(4) >> Dense(6) >> BatchNorm() >> ReLU() >> Dense(1))


PROBLEMS: dict[str, Callable[[Path], tuple[Any, Any]]] = {
    "tables": lambda _: (shared(), clicks(shared(), 408, kind="weights")),
    "tables that grow": lambda _: (shared(rows=None), clicks(shared(), 408, kind="bags")),
    "graph": lambda _: (norms(), dense()),
    "external": lambda _: (external(python_gradient), clicks(graph(), 200)),
    "stream": lambda path: (models.logistic_regression(4), numbers(path)),
    "stream of clicks": lambda path: (shared(), streamed(path, clicks(shared(), 408, kind="bags"))),
    "stream of sparse rows": lambda path: (MACHINE, stream.libsvm(text(path, rows(500)), FEATURES)),
    "sparse": lambda _: (LINEAR, rows(500)),
}


@pytest.mark.parametrize("discipline", DISCIPLINES, ids=repr)
@pytest.mark.parametrize("problem", PROBLEMS)
def test_the_bits_are_those_of_the_number(
    problem: str, discipline: Any, rates: list[float], tmp_path: Path
) -> None:
    model, data = PROBLEMS[problem](tmp_path / "rows")
    alone = train(model, data, threads=1, discipline=discipline)
    result = train(model, data, threads="auto", discipline=discipline)
    assert len(rates) == 2
    assert min(rates) > 0
    assert result.config["threads"] == 1
    np.testing.assert_array_equal(result.parameters, alone.parameters)
    np.testing.assert_array_equal(result.statistics, alone.statistics)
    assert result.final_loss == alone.final_loss
    assert result.rows == alone.rows
    assert result.total_updates == alone.total_updates
    assert result.examples == alone.examples
    assert result.config.get("reading") == alone.config.get("reading")
    for name, table in result.tables.items():
        ids = table.ids()
        np.testing.assert_array_equal(ids, alone.tables[name].ids())
        np.testing.assert_array_equal(table.lookup(ids), alone.tables[name].lookup(ids))


@pytest.mark.parametrize(
    ("given", "options"),
    [
        ({"until": lsh.until(epochs=3)}, {"shuffle": 128}),
        ({"until": lsh.until(updates=70)}, {"threads": 3}),
        ({"batch_size": 1000}, {}),
        ({"batch_size": 150, "until": lsh.until(epochs=2)}, {"shuffle": 10_000}),
    ],
    ids=str,
)
def test_each_row_of_a_stream_is_trained_on_once_a_pass(
    given: dict[str, Any], options: dict[str, Any], tmp_path: Path
) -> None:
    """In windows, by batches that are larger than what is tried on, and over the ends of passes."""
    model = shared()
    data = clicks(model, 408, kind="bags")
    source = streamed(tmp_path / "rows.csv", data, part_bytes=700, **options)
    alone = train(model, source, threads=1, **given)
    result = train(model, source, threads="auto", **given)
    same(result, alone)
    assert result.examples == alone.examples
    assert result.config["reading"]["rows"] == 408


def test_so_it_is_where_rows_can_be_read_once(rates: list[float], tmp_path: Path) -> None:
    model = shared()
    data = clicks(model, 408, kind="bags")
    alone = train(model, streamed(tmp_path / "rows.csv", data), threads=1)
    file = io.BytesIO(text_of(data).encode())
    result = train(model, stream.csv(file, columns_of(data), part_bytes=700), threads="auto")
    same(result, alone)
    assert min(rates) > 0
    assert result.config["reading"]["rows"] == 408
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    writer = threading.Thread(target=pipe.write_bytes, args=(text_of(data).encode(),))
    writer.start()
    result = train(model, stream.csv(pipe, columns_of(data), part_bytes=700), threads="auto")
    writer.join()
    same(result, alone)
    assert result.config["reading"]["rows"] == 408


@pytest.mark.parametrize("shuffle", [0, 64])
def test_a_run_that_goes_on_tries_the_rows_that_are_left(
    shuffle: int, rates: list[float], tmp_path: Path
) -> None:
    model = shared()
    data = clicks(model, 408, kind="bags")
    source = streamed(tmp_path / "rows.csv", data, part_bytes=700, shuffle=shuffle)
    alone = train(model, source, threads=1, until=lsh.until(epochs=2))
    train(model, source, threads=1, until=lsh.until(updates=19), checkpoint=tmp_path / "kept")
    result = train(
        model, source, threads="auto", until=lsh.until(epochs=2), resume=tmp_path / "kept"
    )
    same(result, alone)
    assert min(rates) > 0


@pytest.mark.parametrize(
    ("lines", "message"), [([], "no row"), (["1 7:x"], "line 1"), (["1 1:1"] * 50 + ["x"], "51")]
)
def test_what_is_wrong_with_a_stream_is_told_as_ever(
    lines: list[str], message: str, tmp_path: Path
) -> None:
    path = tmp_path / "rows.svm"
    path.write_text("\n".join(lines) + "\n")
    for threads in (1, "auto"):
        with pytest.raises(ValueError, match=message):
            train(LINEAR, stream.libsvm(path, FEATURES), threads=threads)
    if len(lines) > 1:  # which these updates do not come to
        source = stream.libsvm(path, FEATURES)
        assert train(LINEAR, source, threads="auto", until=lsh.until(updates=2)).total_updates == 2


def test_tables_that_are_given_are_not_tried_on() -> None:
    model = shared()
    data = clicks(model, 408, kind="bags")
    runs = []
    for threads in (1, "auto"):
        given = tables.of(model.tables, rule=lsh.Adagrad(0.1), seed=7)
        runs.append(train(model, data, threads=threads, init=lsh.Init(tables=given)))
        assert runs[-1].tables == given
    same(*runs)
    first, second = ([t.statistics() for t in run.tables.values()] for run in runs)
    for one, other in zip(first, second, strict=True):
        assert {**one, "scratch": 0} == {**other, "scratch": 0}


@pytest.mark.parametrize(
    "table",
    [
        lsh.Table(dim=8, rows=50, rule=lsh.Adam(0.1), versions=False),
        lsh.Table(dim=8, rows=10_000_000, rule=lsh.SGD(0.1), versions=False),
        lsh.Table(dim=300_000, rows=400),
        lsh.Table(dim=8, max_bytes=2**26, admit_after=2, rule=tables.RowwiseAdagrad(0.1)),
        lsh.Table(dim=8, max_bytes=2**18, evict="norm", staleness=lsh.staleness.inverse()),
    ],
    ids=repr,
)
def test_a_small_table_has_rows_that_are_alike(table: lsh.Table) -> None:
    tried = table.small()
    assert (tried.dim, tried.rule, tried.staleness) == (table.dim, table.rule, table.staleness)
    assert (tried.init, tried.admit_after) == (table.init, table.admit_after)
    told, whole = tried.statistics(), table.statistics()
    assert told["most_bytes"] <= max(2**24, 256 * told["bytes_per_row"])
    assert told["most_bytes"] <= whole["most_bytes"]
    assert tried.rows is None or tried.rows == table.rows
    if table.rows is None:
        assert tried.update([5, 2**40], np.ones((2, 8))).refused == 0
    assert whole["steps"] == 0


def test_a_model_of_large_tables_is_tried_on_small_ones(rates: list[float]) -> None:
    model = small(rows=2_000_000)
    result = train(model, clicks(model, 400, rows=2_000_000), threads="auto")
    assert min(rates) > 0
    assert result.rows["refused"] == 0


def test_ctrl_c_ends_a_trial_and_says_what_is_gone(
    rates: list[float], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    model = shared()
    data = clicks(model, 408, kind="bags")

    def interrupted(counts: list[int], eps: Callable[[int], float]) -> int:
        rates.append(eps(counts[0]))
        signal.raise_signal(signal.SIGINT)
        return 1

    monkeypatch.setattr(running, "fastest", interrupted)
    file = io.BytesIO(text_of(data).encode())
    once = stream.csv(file, columns_of(data), part_bytes=10**6)
    with warned.once("were read, and none was trained on"):
        result = train(model, once, threads="auto")
    assert (result.reason, result.total_updates) == ("interrupted", 0)
    again = streamed(tmp_path / "rows.csv", data)
    result = train(model, again, threads="auto")
    assert (result.reason, result.total_updates) == ("interrupted", 0)
    np.testing.assert_array_equal(result.parameters, model.init(0, "glorot"))
    assert len(rates) == 2
    assert train(model, again, threads=1).config["reading"]["rows"] == 408


def test_ctrl_c_ends_waiting_for_the_rows_to_try(tmp_path: Path) -> None:
    """Of a pipe that stays open and gives fewer."""
    lines = text(tmp_path / "rows.svm", rows(20)).read_bytes()
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with feeding(pipe, lines), warned.once("were read, and none was trained on"):
        result = train(LINEAR, stream.libsvm(pipe, FEATURES, part_bytes=200), threads="auto")
    assert result.reason == "interrupted"


def test_what_was_tried_is_not_what_comes_out(rates: list[float]) -> None:
    """With as many threads as there are, on tables: it learns."""
    model = small()
    data = clicks(model, 4000)
    result = train(model, data, threads="auto", until=lsh.until(epochs=3))
    assert result.final_loss < result.initial_loss
    assert len(everything(result)) == 3
    assert all(len(table.ids()) == ROWS for table in result.tables.values())
    assert min(rates) > 0
