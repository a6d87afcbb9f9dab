"""Columns shuffled, renamed, missing, of another type, in whatever form data come: the same numbers, or
one error that names the column.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import leashed as lsh
from leashed import stream

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")

ROWS = 48
Table = dict[str, list[Any]]
SCHEMA: dict[str, Any] = {
    "clicked": stream.Label(),
    "price": stream.Number(log=True, missing=0.5),
    "age": stream.Number(),
    "user": stream.Id(),
    "device": stream.Vocabulary(["phone", "tablet"]),
    "seen": stream.Id(between=" "),
}


def rows() -> Table:
    draw = np.random.default_rng(0)
    return {
        "clicked": draw.integers(0, 2, ROWS).tolist(),
        "price": [None, *np.exp(draw.normal(2, 1, ROWS - 1)).tolist()],
        "age": draw.normal(size=ROWS).tolist(),
        "user": (draw.integers(0, 9, ROWS) + 2**40).tolist(),
        "device": draw.choice(["phone", "tablet", "fridge"], ROWS).tolist(),
        "seen": [draw.integers(0, 9, k).tolist() for k in draw.integers(0, 4, ROWS)],
    }


def renamed(table: Any) -> Any:
    return {{"price": "cost"}.get(name, name): values for name, values in table.items()}


# What becomes of the columns, and what an error says of it; None: they come to the same numbers.
CHANGES: dict[str, tuple[Callable[[Any], Any], str | None]] = {
    "as they were": (dict, None),
    "shuffled": (lambda t: dict(reversed(t.items())), None),
    "others beside": (lambda t: {"more": t["age"], **t, "rest": t["age"]}, None),
    "renamed": (renamed, "price"),
    "missing": (lambda t: {name: v for name, v in t.items() if name != "device"}, "device"),
    "of another type": (lambda t: {**t, "user": [f"u{i}" for i in range(ROWS)]}, "user"),
    "a number as text": (lambda t: {**t, "age": ["old"] * ROWS}, "age"),
}


def of_parquet(table: Table, folder: Path) -> Path:
    pq.write_table(pa.table(table), folder / "rows.parquet")
    return folder / "rows.parquet"


def of_csv(table: Table, folder: Path) -> Path:
    def text(value: Any) -> str:
        told = " ".join(map(str, value)) if isinstance(value, list) else str(value)
        return "" if value is None else told

    lines = [
        ";".join(table),
        *(";".join(map(text, row)) for row in zip(*table.values(), strict=True)),
    ]
    (folder / "rows.csv").write_text("\n".join(lines) + "\n")
    return folder / "rows.csv"


def frame(module: str) -> Callable[[Table, Path], Any]:
    return lambda table, _: pytest.importorskip(module).DataFrame(table)


def arrays(table: Table, _: Path) -> dict[str, Any]:
    """A dict of arrays, but of lists of any length."""
    return {name: v if name == "seen" else np.array(v) for name, v in table.items()} | {
        name: np.array(v, float) for name, v in table.items() if None in v
    }


SOURCES: dict[str, Callable[[Table, Path], Any]] = {
    "pandas": frame("pandas"),
    "polars": frame("polars"),
    "arrow": lambda table, _: pa.table(table),
    "arrays": arrays,
    "parquet": of_parquet,
    "csv": of_csv,
    "stream": lambda table, folder: stream.table(of_parquet(table, folder), SCHEMA),
}


def begun() -> lsh.TrainResult:
    data = stream.arrow(pa.table(rows()), SCHEMA).read()
    return lsh.train(lsh.models.deepfm(dim=2, hidden=(4,)), data, threads=1, batch_size=8)


@pytest.fixture(scope="module")
def model() -> Any:
    return begun().model


def compare(change: str, made: Callable[[], Any], expected: Any) -> None:
    names = CHANGES[change][1]
    if names is None:
        np.testing.assert_array_equal(made(), expected)
        return
    with pytest.raises(ValueError, match=rf"\b{names}\b") as told:
        made()
    assert "Traceback" not in str(told.value)


@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("change", CHANGES)
def test_predictions_and_figures(change: str, source: str, model: Any, tmp_path: Path) -> None:
    expected = model.predict(pa.table(rows()))
    data = SOURCES[source](CHANGES[change][0](rows()), tmp_path)
    compare(change, lambda: model.predict(data), expected)
    figures = vars(model.evaluate(pa.table(rows())))
    compare(change, lambda: [*vars(model.evaluate(data)).values()], [*figures.values()])


@pytest.mark.parametrize("source", ["arrow", "parquet", "csv", "stream"])
@pytest.mark.parametrize("change", CHANGES)
def test_training_on(change: str, source: str, tmp_path: Path) -> None:
    def on(table: Table) -> Any:
        data = SOURCES[source](table, tmp_path)
        return begun().model.train(data, threads=1, batch_size=8).parameters

    expected = on(rows())
    compare(change, lambda: on(CHANGES[change][0](rows())), expected)


def schema_of(change: str) -> dict[str, Any]:
    """What the columns become on a day on which somebody has written another schema."""
    if change == "of another type":
        return {**SCHEMA, "user": stream.Hashed()}
    if change == "a number as text":
        return {**SCHEMA, "age": stream.Hashed()}
    made = CHANGES[change][0](SCHEMA)
    return {name: stream.Number() if name in ("more", "rest") else v for name, v in made.items()}


@pytest.mark.parametrize("read", [False, True], ids=["stream", "in memory"])
@pytest.mark.parametrize("change", CHANGES)
def test_the_next_day(change: str, read: bool, tmp_path: Path) -> None:
    def ended(change: str) -> Any:
        graph, table = lsh.models.deepfm(dim=2, hidden=(4,)), pa.table(CHANGES[change][0](rows()))
        days = [stream.arrow(pa.table(rows()), SCHEMA), stream.arrow(table, schema_of(change))]
        given: list[Any] = [day.read() for day in days] if read else days
        run = lsh.continual(graph, given, folder=tmp_path / change, threads=1, batch_size=8)
        return run.parameters

    compare(change, lambda: ended(change), ended("as they were"))


@pytest.mark.parametrize("change", CHANGES)
def test_onnx(change: str, model: Any, tmp_path: Path) -> None:
    runtime = pytest.importorskip("onnxruntime")
    model.export(tmp_path / "model.onnx")
    session = runtime.InferenceSession(tmp_path / "model.onnx")
    table = rows()
    lengths = np.array([len(row) for row in table["seen"]])
    inputs = {
        "price": np.array(table["price"], np.float32),
        "age": np.array(table["age"], np.float32),
        "user": np.array(table["user"]),
        "device": np.array([{"phone": 0, "tablet": 1}.get(word, 2) for word in table["device"]]),
        "seen": np.array([[*row, 0, 0, 0, 0][:4] for row in table["seen"]]),
        "seen.lengths": lengths,
    }
    made = {name: np.asarray(v) for name, v in CHANGES[change][0](inputs).items() if name in inputs}
    names = CHANGES[change][1]
    if names is None:
        (said,) = session.run(None, made)
        np.testing.assert_allclose(said[:, 0], model.predict(pa.table(table)), atol=1e-5)
        return
    with pytest.raises(Exception, match=rf"\b{names}\b|input data type"):
        session.run(None, made)
