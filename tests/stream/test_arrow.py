"""Columns by the Arrow C stream interface become the rows that text of them would."""

from __future__ import annotations

from decimal import Decimal
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


@pytest.mark.parametrize("kind", [pa.int32(), pa.dictionary(pa.int8(), pa.uint64())], ids=str)
@pytest.mark.parametrize(
    ("views", "offset"), [(pa.ListViewArray, pa.int32()), (pa.LargeListViewArray, pa.int64())]
)
def test_views_of_lists(kind: Any, views: Any, offset: Any):
    """Of which any may lie anywhere among the values."""
    column = views.from_arrays(
        pa.array([3, 0, 1, 4, 2], offset),
        pa.array([2, 0, 3, 0, 2], offset),
        pa.array([7, 1, 2, 7, 5], kind),
        mask=pa.array([False, False, False, True, False]),
    )
    for given in (column, column[1:], pa.chunked_array([column[2:], column[:2], column[:0]])):
        (found,) = read_ids(given, between=" ")
        lists = [row or [] for row in given.to_pylist()]
        assert found.ids.tolist() == [i for ids in lists for i in ids]
        assert found.offsets.tolist() == np.cumsum([0, *map(len, lists)]).tolist()


def test_a_column_of_nulls_alone_is_missing_everywhere():
    null = pa.nulls(4)
    assert read_ids(null, missing=7)[:, 0].tolist() == [7] * 4
    of_none = pa.DictionaryArray.from_arrays(pa.array([0, 0, None, 0]), pa.nulls(1))
    assert read_ids(of_none, missing=7)[:, 0].tolist() == [7] * 4
    for bags in (null, pa.array([[], None, [], []])):
        (found,) = read_ids(bags, between=" ")
        assert (found.ids.tolist(), found.offsets.tolist()) == ([], [0] * 5)
    (found,) = read_ids(pa.array([[None], [], [None, None], []]), between=" ", missing=7)
    assert (found.ids.tolist(), found.offsets.tolist()) == ([7] * 3, [0, 1, 1, 3, 3])
    rows = pa.table({"y": [0, 1, 0, 1], "a": null})
    filled = {**LABELLED, "a": stream.Number(missing=2.5)}
    assert stream.arrow(rows, filled).read().x[:, 0].tolist() == [2.5] * 4
    with pytest.raises(ValueError, match="row 1: a is missing, no finite number"):
        stream.arrow(rows, LABELLED).read()
    with pytest.raises(ValueError, match="row 1: y is missing"):
        stream.arrow(pa.table({"y": null, "a": [1.0] * 4}), LABELLED).read()


@pytest.mark.parametrize("threads", [1, 3])
def test_a_row_that_is_null_as_a_whole_is_bad(threads: int):
    n = 20_000
    fields = [pa.array(np.arange(n) % 2), pa.array(np.arange(n), pa.float64())]
    mask = np.arange(n) % 7 == 3
    whole = pa.StructArray.from_arrays(fields, ["y", "a"], mask=pa.array(mask))
    for rows, gone in ((whole, mask), (whole[5:], mask[5:])):
        given = pa.chunked_array([rows[:9001], rows[9001:]])
        parts = stream.arrow(given, LABELLED, bad="skip", threads=threads).parts(n)
        (data,) = parts
        left = np.flatnonzero(~gone) + n - len(rows)
        np.testing.assert_array_equal(data.x.ravel(), left.astype(np.float32))
        assert parts.counts.bad == gone.sum()
        numbers = (np.flatnonzero(gone) + 1).tolist()[:100]
        assert [bad.number for bad in parts.counts.first_bad] == numbers
        assert {bad.reason for bad in parts.counts.first_bad} == {"the row is null"}
    with pytest.raises(ValueError, match="arrow: row 4: the row is null"):
        stream.arrow(pa.chunked_array([whole]), LABELLED, threads=threads).read()


def bad_rows(column: Any, kind: stream.Column) -> tuple[list[int], list[str]]:
    """The rows of such a column that are read, and why others are not."""
    n = len(column)
    rows = pa.table({"y": np.arange(n) % 2, "a": np.arange(n, dtype=np.float32), "item": column})
    parts = stream.arrow(rows, {**LABELLED, "item": kind}, bad="skip").parts()
    left = [int(value) for data in parts for value in data.x[:, 0]]
    return left, [bad.reason for bad in parts.counts.first_bad]


@pytest.mark.parametrize("kind", WHOLE, ids=str)
def test_a_place_that_a_dictionary_does_not_have_is_a_bad_row(kind: Any):
    largest = int(np.iinfo(kind.to_pandas_dtype()).max)
    places = pa.array([1, largest, 0, 2, None], kind)
    words = pa.array(["7", "8"])
    beyond = [
        f"item is at place {place} of its dictionary, which does not have it"
        for place in (largest if largest < 2**63 else -1, 2)
    ]
    column = pa.DictionaryArray.from_arrays(places, words, safe=False)
    for item in (stream.Id(missing=3), stream.Hashed(), stream.Vocabulary(["7"])):
        assert bad_rows(column, item) == ([0, 2, 4], beyond)
    numbers = pa.DictionaryArray.from_arrays(places, pa.array([0.5, 1.0]), safe=False)
    assert bad_rows(numbers, stream.Number(missing=0)) == ([0, 2, 4], beyond)
    lists = pa.ListArray.from_arrays([0, 2, 2, 3, 5], column)
    assert bad_rows(lists, stream.Id(between=" ", missing=3)) == ([1, 2], beyond)
    if np.iinfo(kind.to_pandas_dtype()).min < 0:
        below = pa.DictionaryArray.from_arrays(pa.array([0, -1], kind), words, safe=False)
        reason = "item is at place -1 of its dictionary, which does not have it"
        assert bad_rows(below, stream.Id()) == ([0], [reason])


def of_buffers(kind: Any, n: int, *buffers: Any, children: Any = None) -> Any:
    """As whatever has no checks hands them over."""
    data = [None, *(pa.py_buffer(buffer) for buffer in buffers)]
    return pa.Array.from_buffers(kind, n, data, children=children)


def test_what_lies_outside_of_its_memory_is_a_bad_row():
    lost = "item is text outside of its memory"
    for kind, dtype in ((pa.string(), "i4"), (pa.large_binary(), "i8")):
        offsets = np.array([0, 1, 2**31 - 1, 1, -5, 2, 3], dtype)
        found = bad_rows(of_buffers(kind, 6, offsets, b"789"), stream.Id())
        assert found == ([0, 5], [lost] * 4)
    view = np.zeros((5, 4), np.int32)  # length, beginning, buffer, place
    view[:, 0] = [1, -1, 13, 13, 13]
    view[0, 1] = ord("7")
    view[:, 2] = [0, 0, 0, 9, 0]
    view[:, 3] = [0, 0, 0, 0, 5]
    found = bad_rows(of_buffers(pa.string_view(), 5, view, b"1234567890123"), stream.Id())
    assert found == ([0, 2], [lost] * 3)
    outside = "item is a list outside of its values"
    ids = pa.array([5, 6, 7])
    for kind, dtype in ((pa.list_(pa.int64()), "i4"), (pa.large_list(pa.int64()), "i8")):
        offsets = np.array([0, 2, 2**31 - 1, 1, -5, 3, 3], dtype)
        found = bad_rows(of_buffers(kind, 6, offsets, children=[ids]), stream.Id(between=" "))
        assert found == ([0, 5], [outside] * 4)
    for kind, dtype in ((pa.list_view(pa.int64()), "i4"), (pa.large_list_view(pa.int64()), "i8")):
        begins = np.array([1, 3, 2, -1, 2**31 - 1], dtype)
        sizes = np.array([2, 0, 2, 1, 2**31 - 1], dtype)
        column = of_buffers(kind, 5, begins, sizes, children=[ids])
        assert bad_rows(column, stream.Id(between=" ")) == ([0, 1], [outside] * 3)


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        (pa.float16(), "float16"),
        (pa.date32(), "date32"),
        (pa.timestamp("ms", "UTC"), r"timestamp\[ms\]"),
        (pa.decimal128(9, 2), "decimal"),
        (pa.binary(4), "fixed_size_binary"),
        (pa.struct([("x", pa.int8())]), "struct"),
        (pa.list_(pa.float32(), 2), "list of float32"),
        (pa.dictionary(pa.int8(), pa.float64()), "dictionary of float64"),
    ],
    ids=str,
)
def test_types_that_are_no_ids_are_refused_by_name(kind: Any, name: str):
    message = f"arrow: column item is of Arrow's type {name}, which .*; cast it to "
    with pytest.raises(ValueError, match=message + "whole numbers or text"):
        read_ids(pa.nulls(3, kind))
    with pytest.raises(ValueError, match=message + "a list of whole numbers or of text"):
        read_ids(pa.nulls(3, kind), between=" ")


def test_one_id_a_row_and_any_number_of_them_are_told_apart():
    with pytest.raises(ValueError, match=r"type list of int64, .*; give its column between="):
        read_ids(pa.array([[1], [2, 3]]))
    with pytest.raises(ValueError, match=r"type int64, .*; give its column no between="):
        read_ids(pa.array([1, 2]), between=" ")


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
    types = "column {} is of Arrow's type {}, .*; cast it to whole or real numbers"
    for name, message in (
        ("b", "no column b"),
        ("a", types.format("a", "string")),
        ("t", types.format("t", r"timestamp\[s\]")),
    ):
        columns = {"y": stream.Label(), name: stream.Number()}
        with pytest.raises(ValueError, match=message):
            stream.arrow(rows, columns).read()
    with pytest.raises(TypeError, match="__arrow_c_stream__"):
        stream.arrow([1, 2], {"y": stream.Label(), "a": stream.Number()})


def test_whole_numbers_kept_as_real_ones_are_ids():
    """As pandas keeps them where some are missing."""
    floats = pa.array([7.0, None, float("nan"), -1.0, 2.0**53 - 1], pa.float64())
    assert read_ids(floats, missing=9)[:, 0].tolist() == [7, 9, 9, 2**64 - 1, 2**53 - 1]
    rows = pa.table({"y": [1, 0, 1], "item": pa.array([1.5, 1.0, 2.0**53], pa.float64())})
    columns = {"y": stream.Label(), "item": stream.Id()}
    parts = stream.arrow(rows, columns, bad="skip").parts()
    assert next(parts).ids.tolist() == [[1]]
    assert [bad.number for bad in parts.counts.first_bad] == [1, 3]


@pytest.mark.parametrize(
    "kind",
    [
        *(pa.decimal128(9, 2), pa.decimal128(38, 2)),
        *(getattr(pa, f"decimal{n}")(7, 2) for n in (32, 64) if hasattr(pa, f"decimal{n}")),
    ],
    ids=str,
)
def test_decimals_are_numbers(kind: Any):
    values = [Decimal("12.50"), None, Decimal("-0.25"), Decimal("99999.99")]
    rows = pa.table({"y": [1, 0, 1, 0], "price": pa.array(values, kind)})
    columns = {"y": stream.Label(), "price": stream.Number(missing=3)}
    read = stream.arrow(rows, columns).read()
    np.testing.assert_array_equal(read.x[:, 0], np.float32([12.5, 3, -0.25, 99999.99]))


def test_nan_is_missing_where_something_stands_for_it():
    rows = pa.table({"y": [1, 0], "a": pa.array([float("nan"), 2.0], pa.float64())})
    read = stream.arrow(rows, {"y": stream.Label(), "a": stream.Number(missing=5)}).read()
    assert read.x[:, 0].tolist() == [5, 2]
