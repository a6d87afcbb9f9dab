"""Columns by the Arrow C stream interface become the rows that text of them would."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import leashed as lsh
from leashed import stream

pa = pytest.importorskip("pyarrow")

UNTIL = lsh.until(updates=40)
LABELLED: dict[str, stream.Column] = {"y": stream.Label(), "a": stream.Number()}
COLUMNS: dict[str, stream.Column] = {
    "w": stream.Weight(),
    "a": stream.Number(log=True, missing=-1),
    "item": stream.Id(offset=10, missing=3),
    "city": stream.Hashed(buckets=50),
    "number": stream.Hashed(seed=4),
    "device": stream.Vocabulary(["phone", "desktop"]),
    "seen": stream.Id(between=" "),
    "y": stream.Label(),
}


def table(n: int = 20_000) -> Any:
    draw = np.random.default_rng(0)
    missing = draw.random(n) < 0.1
    lengths = draw.integers(0, 4, n)
    seen = [draw.integers(0, 99, length).tolist() for length in lengths]
    devices = pa.array(draw.choice(["phone", "desktop", "a long name that is unknown"], n))
    return pa.table(
        {
            "y": pa.array(draw.integers(0, 2, n), pa.int8()),
            "a": pa.array(draw.integers(-2, 99, n), pa.float64(), mask=missing),
            "item": pa.array(draw.integers(-5, 2**40, n), pa.int64(), mask=missing),
            "city": pa.array(draw.choice(["Wien", "Graz", "a name of some length", "é"], n)),
            "number": pa.array(draw.integers(-9, 9, n), pa.int32()),
            "device": devices.dictionary_encode(),
            "seen": pa.array(seen, pa.list_(pa.uint32())),
            "w": pa.array(draw.random(n).astype(np.float32)),
            "other": pa.nulls(n),
        }
    )


def as_text(rows: Any) -> str:
    names = [name for name in rows.column_names if name != "other"]
    lines = [",".join(names)]
    for row in rows.select(names).to_pylist():
        fields = []
        for value in row.values():
            several = isinstance(value, list)
            fields.append(
                " ".join(map(str, value)) if several else "" if value is None else str(value)
            )
        lines.append(",".join(fields))
    return "\n".join(lines)


def same(one: Any, other: Any) -> None:
    for name in ("x", "y", "weights"):
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name))
    for a, b in zip(one.ids, other.ids, strict=True):
        if isinstance(a, np.ndarray):
            np.testing.assert_array_equal(a, b)
        else:
            np.testing.assert_array_equal(a.ids, b.ids)
            np.testing.assert_array_equal(a.offsets, b.offsets)


def test_columns_are_what_their_text_is(tmp_path: Any):
    rows = table()
    path = tmp_path / "rows.csv"
    path.write_text(as_text(rows))
    text = stream.csv(path, COLUMNS).read()
    same(stream.arrow(rows, COLUMNS).read(), text)
    sliced = pa.concat_tables([rows[:7], rows[7:9001], rows[9001:]])
    same(stream.arrow(sliced, COLUMNS, threads=3).read(), text)
    once = stream.arrow(sliced.to_reader(max_chunksize=333), COLUMNS)
    assert not once.repeatable
    same(once.read(), text)
    large = rows.cast(
        pa.schema(
            [
                pa.field(
                    f.name,
                    {"city": pa.large_string(), "seen": pa.large_list(pa.int64())}.get(
                        f.name, f.type
                    ),
                )
                for f in rows.schema
            ]
        )
    )
    same(stream.arrow(lambda: large, COLUMNS).read(), text)


WHOLE = [getattr(pa, f"{sign}int{bits}")() for sign in ("", "u") for bits in (8, 16, 32, 64)]
TEXT = [pa.string(), pa.large_string(), pa.string_view(), pa.large_binary(), pa.binary_view()]


def at_the_ends(whole: Any) -> list[int | None]:
    limits = np.iinfo(whole.to_pandas_dtype())
    return [int(limits.min), int(limits.max), None, 0, 1, 7, int(limits.max) - 1, None, 100]


def laid_out(array: Any) -> dict[str, Any]:
    """The same values in each way that Arrow has for them."""
    twice = pa.concat_arrays([array, array])
    ways = {
        "plain": array,
        "chunked": pa.chunked_array([array[:2], array[2:2], array[2:]]),
        "sliced": twice[len(array) :],
    }
    values = array.to_pylist()
    some = pa.array([None if value is None else i for i, value in enumerate(values)])
    known = pa.array([values[0] if value is None else value for value in values], array.type)
    for index in WHOLE:
        places = pa.array(range(len(array)), index)
        ways[f"{index} to null too"] = pa.DictionaryArray.from_arrays(places, array)
        ways[f"{index} or null"] = pa.DictionaryArray.from_arrays(some.cast(index), known)
        ways[f"{index} sliced"] = pa.concat_arrays([ways[f"{index} or null"]] * 2)[len(array) :]
    if array.type not in (pa.string_view(), pa.binary_view()):
        parts = [array[:4].dictionary_encode(), array[4:].dictionary_encode()]
        ways["a dictionary a chunk"] = pa.chunked_array(parts)
    return ways


def read_ids(column: Any, **options: Any) -> Any:
    n = len(column)
    rows = pa.table({"y": np.arange(n) % 2, "a": np.ones(n, np.float32), "item": column})
    columns = {**LABELLED, "item": stream.Id(**options)}
    return stream.arrow(rows, columns, threads=2).read().ids


@pytest.mark.parametrize("kind", WHOLE, ids=str)
def test_ids_of_every_whole_type(kind: Any):
    values = at_the_ends(kind)
    expected = [3 if value is None else (value + 10) % 2**64 for value in values]
    for way, column in laid_out(pa.array(values, kind)).items():
        found = read_ids(column, offset=10, missing=3)
        assert found[:, 0].tolist() == expected, way


@pytest.mark.parametrize("kind", TEXT, ids=str)
def test_ids_of_every_type_of_text(kind: Any):
    values = [-5, 2**40, None, 0, 1, 7, 2**64 - 1, None, 100]
    text = pa.array([None if value is None else str(value) for value in values])
    expected = [3 if value is None else value % 2**64 for value in values]
    for way, column in laid_out(text.cast(kind)).items():
        assert read_ids(column, missing=3)[:, 0].tolist() == expected, way


@pytest.mark.parametrize("kind", [*WHOLE, pa.dictionary(pa.int8(), pa.uint64())], ids=str)
@pytest.mark.parametrize("list_of", [pa.list_, pa.large_list], ids=["list", "large_list"])
def test_any_number_of_ids_of_every_whole_type(kind: Any, list_of: Any):
    whole = kind.value_type if hasattr(kind, "value_type") else kind
    ids = [value for value in at_the_ends(whole) if value is not None]
    rows = [ids, [], None, ids[:2], ids[3:]]
    column = pa.array(rows, list_of(kind))
    offsets = np.cumsum([0, *(len(row or ()) for row in rows)]).tolist()
    ways = {
        "plain": column,
        "chunked": pa.chunked_array([column[:1], column[1:1], column[1:]]),
        "sliced": pa.concat_arrays([column, column])[len(column) :],
    }
    for way, given in ways.items():
        (found,) = read_ids(given, between=" ")
        assert found.ids.tolist() == [i % 2**64 for row in rows for i in row or ()], way
        assert found.offsets.tolist() == offsets, way


@pytest.mark.parametrize("kind", [pa.int32(), pa.dictionary(pa.int8(), pa.uint64())], ids=str)
def test_lists_of_a_fixed_size(kind: Any):
    rows = [[1, 2, 3], None, [4, 5, 6], [7, 1, 2]]
    column = pa.array(rows, pa.list_(kind, 3))
    for given in (column, column[1:], pa.chunked_array([column[2:], column[:2], column[:0]])):
        (found,) = read_ids(given, between=" ")
        lists = [row or [] for row in given.to_pylist()]
        assert found.ids.tolist() == [i for ids in lists for i in ids]
        assert found.offsets.tolist() == np.cumsum([0, *map(len, lists)]).tolist()


@pytest.mark.parametrize(
    "kind",
    [pa.float32(), pa.date32(), pa.null(), pa.list_(pa.float32(), 2), pa.list_view(pa.int64())],
    ids=str,
)
def test_types_that_are_no_ids_are_refused_by_name(kind: Any):
    between = " " if isinstance(kind, pa.FixedSizeListType | pa.ListViewType) else None
    message = "arrow: column item is of Arrow's type .*; cast it"
    with pytest.raises(ValueError, match=message):
        read_ids(pa.nulls(3, kind), between=between)


@pytest.mark.parametrize("kind", WHOLE, ids=str)
def test_a_model_of_ids_of_every_whole_type_is_exported(kind: Any, tmp_path: Path):
    """Rows come from Arrow, and the model goes to ONNX and its rows to Arrow: the same ids."""
    onnxruntime = pytest.importorskip("onnxruntime")
    pytest.importorskip("onnx")
    values = [value for value in at_the_ends(kind) if value is not None] * 4
    column = pa.chunked_array([pa.array(values, kind), pa.array(values[:3], kind)])
    n = len(column)
    rows = pa.table({"y": np.arange(n) % 2, "a": np.ones(n, np.float32), "item": column})
    data = stream.arrow(rows, {**LABELLED, "item": stream.Id()}).read()
    spec = lsh.models.TableSpec("items", 2)
    read = lsh.models.Concat(lsh.models.Embedding(spec), lsh.models.Input(1))
    model = lsh.models.Graph(read >> lsh.models.Dense(1), loss="log_loss")
    result = lsh.train(model, data, until=UNTIL, rule=lsh.SGD(1.0), batch_size=8, threads=1)
    lsh.export.onnx(tmp_path / "m.onnx", model, result.parameters, result.tables)
    lsh.export.tables(tmp_path / "rows", result.tables)
    ids = np.asarray(column.combine_chunks()).astype(np.int64)
    session = onnxruntime.InferenceSession(tmp_path / "m.onnx", providers=["CPUExecutionProvider"])
    (found,) = session.run(None, {"ids.0": ids, "dense": data.x})
    expected = model.predict(result.parameters, data, result.tables)
    assert np.ptp(expected) > 0.001
    np.testing.assert_allclose(found, expected, rtol=1e-5)
    with pa.ipc.open_file(tmp_path / "rows" / "items.arrow") as file:
        written = file.read_all()["id"]
    assert written.type == pa.int64()
    assert written.to_pylist() == sorted({*ids.tolist(), 0, -1})  # which always have a row


def test_other_libraries_hand_over_the_same():
    polars = pytest.importorskip("polars")
    rows = table(2000)
    same(stream.arrow(polars.from_arrow(rows), COLUMNS).read(), stream.arrow(rows, COLUMNS).read())


def test_bad_rows_are_left_out_by_number_and_reason():
    rows = pa.table({"y": [0, 1, 2, 1, 0], "a": [1.0, float("nan"), 3.0, None, 5.0]})
    columns = {"y": stream.Label(), "a": stream.Number()}
    parts = stream.arrow(rows, columns, bad="skip").parts()
    (data,) = parts
    assert data.x.ravel().tolist() == [1, 5]
    assert [(bad.number, bad.reason) for bad in parts.counts.first_bad] == [
        (2, "a is nan, no finite number"),
        (3, "y is 2, no whole number from 0 to 1"),
        (4, "a is missing, no finite number"),
    ]
    with pytest.raises(ValueError, match="arrow: row 2: a is nan"):
        stream.arrow(rows, columns).read()


def test_a_column_that_cannot_be_read_is_named():
    rows = pa.table({"y": [0], "a": ["x"], "t": pa.array([0], pa.timestamp("s"))})
    for name, message in (("b", "no column b"), ("a", "column a is of"), ("t", "column t is of")):
        columns = {"y": stream.Label(), name: stream.Number()}
        with pytest.raises(ValueError, match=message):
            stream.arrow(rows, columns).read()
    with pytest.raises(TypeError, match="__arrow_c_stream__"):
        stream.arrow([1, 2], {"y": stream.Label(), "a": stream.Number()})
