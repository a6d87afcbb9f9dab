"""Columns by the Arrow C stream interface become the rows that text of them would."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from leashed import stream

pa = pytest.importorskip("pyarrow")

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
