"""Tables as people have them: a schema of what is there, Parquet, frames, and rows without labels."""

from __future__ import annotations

import datetime as dt
import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from warned import once

import leashed as lsh
from leashed import stream

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")
pytest.importorskip("pyarrow.csv")

# (Numbers are as large as they are.)
pytestmark = pytest.mark.filterwarnings("ignore:the loss began at")
ROWS = 1200
LEFT_OUT = ("nothing", "always", "request", "vector", "took")


def clicks(n: int = ROWS, seed: int = 0) -> Any:
    draw = np.random.default_rng(seed)
    users, items = draw.integers(0, 90, n), draw.integers(0, 60, n)
    p = 1 / (1 + np.exp(-(np.sin(users) + np.cos(items) - 1)))
    begin = dt.datetime(2024, 1, 1)
    return pa.table(
        {
            "clicked": (draw.random(n) < p).astype(np.int64),
            "user_id": users,
            "itemId": pa.array(items, pa.float64(), mask=draw.random(n) < 0.1),
            "price": pa.array(np.exp(draw.normal(3, 1, n)), mask=draw.random(n) < 0.1),
            "cost": pa.array([Decimal(i) / 100 - 1 for i in range(n)], pa.decimal128(9, 2)),
            "member": draw.random(n) < 0.5,
            "age": draw.integers(18, 80, n),
            "rooms": draw.integers(0, 4, n),
            "token": draw.integers(2**40, 2**41, 50)[draw.integers(0, 50, n)],
            "device": pa.array(draw.choice(["phone", "tablet"], n)).dictionary_encode(),
            "city": draw.choice([f"c{i}" for i in range(200)], n),
            "seen": [draw.integers(0, 60, k).tolist() for k in draw.integers(0, 4, n)],
            "tags": [draw.choice(["a", "b"], k).tolist() for k in draw.integers(0, 3, n)],
            "when": pa.array(
                [begin + dt.timedelta(minutes=11 * i) for i in range(n)], pa.timestamp("us")
            ),
            "day": [begin.date() + dt.timedelta(days=i // 100) for i in range(n)],
            "nothing": pa.nulls(n),
            "always": ["x"] * n,
            "request": [f"r{i}" for i in range(n)],
            "vector": [[1.0, 2.0]] * n,
            "took": pa.array([dt.timedelta(seconds=i) for i in range(n)]),
        }
    )


def plain(n: int = ROWS, seed: int = 0) -> Any:
    return clicks(n, seed).drop_columns(list(LEFT_OUT))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("logs")
    for i in range(3):
        pq.write_table(plain(400, i), made / f"part-{i}.parquet")
    return made


def same(a: Any, b: Any) -> None:
    np.testing.assert_array_equal(a.x, b.x)
    np.testing.assert_array_equal(a.y, b.y)
    assert a.names == b.names
    for one, other in zip(a.ids, b.ids, strict=True):
        if isinstance(one, lsh.datasets.Bags):
            np.testing.assert_array_equal(one.offsets, other.offsets)
        np.testing.assert_array_equal(getattr(one, "ids", one), getattr(other, "ids", other))


def test_each_kind_of_column_becomes_what_is_documented():
    with once("columns that are not read: nothing has no value; always is x"):
        found = stream.infer(clicks(), label="clicked")
    assert tuple(found.left_out) == LEFT_OUT
    kinds = {name: type(column).__name__ for name, column in found.items()}
    assert kinds == {
        "clicked": "Label",
        **dict.fromkeys(("user_id", "itemId"), "Id"),
        **dict.fromkeys(("price", "cost", "member", "age"), "Number"),
        "rooms": "Vocabulary",
        "token": "Id",
        "device": "Vocabulary",
        "city": "Hashed",
        "seen": "Id",
        "tags": "Hashed",
        "when.years": "Number",
        "when.weekday": "Id",
        "when.hour": "Id",
        "day.years": "Number",
        "day.weekday": "Id",
    }
    assert found["seen"].between == found["tags"].between == " "
    assert [found[name].log for name in ("price", "age", "cost")] == [True, True, False]
    assert found["device"].words == ("phone", "tablet")


def test_a_schema_goes_to_a_file_that_can_be_edited(tmp_path: Path):
    found = stream.infer(plain(), label="clicked")
    found.save(tmp_path / "schema.json")
    assert stream.schema(tmp_path / "schema.json")["columns"] == dict(found)
    told = json.loads((tmp_path / "schema.json").read_text())
    told["columns"]["price"]["missing"] = -1
    (tmp_path / "schema.json").write_text(json.dumps(told))
    rows = stream.table(plain(), tmp_path / "schema.json")
    assert rows.read().x[:, 0].min() == -1


def test_parts_of_moments():
    when = [dt.datetime(2000, 1, 1), dt.datetime(2024, 7, 7, 23, 59), None]
    for kind in (pa.timestamp("s"), pa.timestamp("ns"), pa.timestamp("us", "UTC")):
        rows = pa.table({"y": [0, 1, 0], "t": pa.array(when, kind)})
        columns = {
            "y": stream.Label(),
            "years": stream.Number(of="t", part="years", missing=9),
            "month": stream.Number(of="t", part="month", missing=-1),
            "weekday": stream.Id(of="t", part="weekday"),
            "hour": stream.Id(of="t", part="hour"),
        }
        rows = stream.arrow(rows, columns)
        assert rows.bounds == (8, 25)
        read = rows.read()
        np.testing.assert_allclose(read.x[:, 0], [-20, 4 + 188 / 365.25, 9], atol=0.01)
        assert read.x[:, 1].tolist() == [0, 6, -1]
        assert read.ids.tolist() == [[5, 0], [6, 23], [7, 24]]


def test_hours_are_of_the_columns_time_zone():
    noon = dt.datetime(2024, 7, 1, 12, tzinfo=dt.timezone.utc)
    rows = pa.table({"y": [0], "t": pa.array([noon], pa.timestamp("us", "Europe/Stockholm"))})
    columns = {"y": stream.Label(), "hour": stream.Id(of="t", part="hour")}
    assert stream.arrow(rows, columns).read().ids.tolist() == [[14]]


def test_hours_stay_in_the_zone_that_was_found():
    begin = dt.datetime(2024, 1, 1, tzinfo=dt.timezone.utc)
    when = [begin + dt.timedelta(hours=i) for i in range(30)]

    def table(kind: Any) -> Any:
        return pa.table({"y": [0, 1] * 15, "t": pa.array(when, kind)})

    stockholm = table(pa.timestamp("us", "Europe/Stockholm"))
    rows = stream.table(stockholm, label="y")
    assert stream.Id(of="t", part="hour", zone="Europe/Stockholm") in rows.schema.values()
    assert rows.read().ids[:2, -1].tolist() == [1, 2]
    other = stream.table(table(pa.timestamp("ns", "America/Lima")), rows.schema)
    same(other.read(), rows.read())
    with pytest.raises(ValueError, match="column t has no time zone"):
        stream.table(table(pa.timestamp("us")), rows.schema).read()
    with pytest.raises(ValueError, match="zone must be the name of a time zone, and goes with"):
        stream.Number(zone="UTC")


def test_parts_that_cannot_be_are_refused_by_name():
    for wrong in ({"of": "t"}, {"part": "hour"}, {"of": "t", "part": "minute"}):
        with pytest.raises(ValueError, match="part"):
            stream.Number(**wrong)
    with pytest.raises(ValueError, match="part must be one of month, weekday, hour"):
        stream.Id(of="t", part="years")
    columns = {"y": stream.Label(), "hour": stream.Id(of="t", part="hour")}
    for table, message in (
        (pa.table({"y": [0]}), "no column t, of which hour is the hour"),
        (pa.table({"y": [0], "t": [1]}), "type int64, .*cast it to a timestamp"),
    ):
        with pytest.raises(ValueError, match=message):
            stream.arrow(table, columns).read()


def test_labels():
    n = 50
    numbers = {"a": np.arange(n) * 0.5}
    for values in ([0, 1] * 25, [True, False] * 25, [0.0, 1.0] * 25):
        assert stream.infer(pa.table({"y": values, **numbers}), label="y")["y"] == stream.Label()
    target = pa.table({"y": np.arange(n), **numbers})
    assert stream.infer(target, label="y")["y"] == stream.Target()
    of_ids = target.append_column("user_id", [np.arange(n) % 7])
    assert stream.infer(of_ids, label="y")["y"] == stream.Target()
    for word, column in (
        ("number", stream.Target()),
        ("classes", stream.Label(n)),
        (60, stream.Label(60)),
    ):
        assert stream.infer(of_ids, label="y", target=word)["y"] == column
    for word, message in (
        ("click", "has 2, and a click is 0 or 1"),
        (n - 1, "has 49, and a class is"),
    ):
        with pytest.raises(ValueError, match=f"label 'y' {message}"):
            stream.infer(of_ids, label="y", target=word)
    with pytest.raises(ValueError, match="label 'y' is of type string, with no, yes; make it"):
        stream.infer(pa.table({"y": ["no", "yes"] * 25, **numbers}), label="y")
    with pytest.raises(ValueError, match="label must be a column, got 'z'; there are y, a"):
        stream.infer(target, label="z")
    with pytest.raises(ValueError, match="label 'y' has no value"):
        stream.infer(pa.table({"y": pa.nulls(n), **numbers}), label="y")
    with pytest.raises(ValueError, match="no column to learn from beside 'y': a is 1 wherever"):
        stream.infer(pa.table({"y": [0, 1] * 25, "a": [1] * n}), label="y")
    with pytest.raises(ValueError, match="label must name the column"):
        stream.table(target)


def test_of_a_model_of_numbers_all_is_numbers():
    with pytest.warns(RuntimeWarning, match="city is text, and no number"):
        found = stream.infer(clicks(), label="clicked", ids=False)
    kinds = {type(column) for name, column in found.items() if name != "clicked"}
    assert kinds == {stream.Number}
    assert {"user_id", "rooms", "when.hour"} <= set(found)


def test_parquet_is_what_the_table_is(folder: Path):
    whole = pa.concat_tables([pq.read_table(folder / f"part-{i}.parquet") for i in range(3)])
    columns = stream.infer(whole, label="clicked")
    expected = stream.arrow(whole, columns).read()
    for path in (folder, f"{folder}/part-*.parquet", sorted(folder.iterdir())):
        rows = stream.parquet(path, columns)
        assert rows.repeatable
        assert [file.name for file in rows.files] == [f"part-{i}.parquet" for i in range(3)]
        same(rows.read(), expected)
    assert [len(part) for part in rows.parts(500)] == [500, 500, 200]
    same(stream.parquet(folder, label="clicked").read(), expected)


def test_folders_named_by_keys_are_columns(tmp_path: Path):
    for shop in (3, 5):
        (tmp_path / f"shop={shop}").mkdir()
        rows = pa.table({"y": [0, 1] * 60, "a": np.arange(120) * 0.5})
        pq.write_table(rows, tmp_path / f"shop={shop}" / "0.parquet")
    read = stream.parquet(tmp_path, label="y").read()
    assert read.names == ("shop",)
    assert read.ids[::120, 0].tolist() == [3, 5] or read.ids[::120, 0].tolist() == [0, 1]


def test_what_parquet_cannot_be_is_told(folder: Path, tmp_path: Path):
    with pytest.raises(FileNotFoundError, match="no Parquet file in"):
        stream.parquet(tmp_path, label="clicked")
    with pytest.raises(ValueError, match="label must name"):
        stream.parquet(folder)
    with pytest.raises(ValueError, match="give one of them"):
        stream.parquet(folder, stream.infer(folder, label="clicked"), label="clicked")
    pq.write_table(pa.table({"y": [0], "a": [1.0]}), tmp_path / "a.parquet")
    pq.write_table(pa.table({"y": [0]}), tmp_path / "b.parquet")
    columns = {"y": stream.Label(), "a": stream.Number(missing=0)}
    with pytest.raises(ValueError, match=r"b\.parquet has no column a"):
        stream.parquet(tmp_path, columns).read()


def test_without_pyarrow_the_remedy_is_told(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(__import__("sys").modules, "pyarrow", None)
    with pytest.raises(ImportError, match=r"pip install 'leashed\[parquet\]'"):
        stream.infer("a.csv", label="y")


def text(rows: int = 300) -> str:
    lines = ["clicked;price;user;device;seen;when;word"]
    for i in range(rows):
        price = "" if i % 7 == 0 else f"{i / 4}"
        seen = " ".join(str(k) for k in range(i % 3))
        when = f"2024-01-{1 + i % 28:02}T{i % 24:02}:00:00"
        lines.append(f"{i % 2};{price};{i % 50};{['phone', 'NA'][i % 2]};{seen};{when};w{i % 90}")
    return "\n".join(lines) + "\n"


def test_csv_is_looked_at_too(tmp_path: Path):
    file = tmp_path / "clicks.csv"
    file.write_text(text())
    found = stream.infer(file, label="clicked")
    assert found.separator == ";"
    assert found["seen"] == stream.Id(between=" ")
    assert found["device"] == stream.Vocabulary(["NA", "phone"])
    assert isinstance(found["user"], stream.Id)
    found.save(tmp_path / "schema.json")
    read = stream.csv(file, **stream.schema(tmp_path / "schema.json")).read()
    same(stream.table(file, label="clicked").read(), read)
    assert isinstance(read, lsh.datasets.ClickDataset)
    assert read.names == ("user", "device", "seen", "when.weekday", "when.hour", "word")
    column = dict(zip(read.names, read.ids, strict=True))
    assert column["when.hour"].tolist() == [i % 24 for i in range(300)]
    assert np.diff(column["seen"].offsets).tolist() == [i % 3 for i in range(300)]
    # What has no parts of moments comes to the same by the reader of text.
    fewer = {name: c for name, c in found.items() if not name.startswith("when")}
    direct = stream.csv(file, fewer, separator=";").read()
    assert isinstance(direct, lsh.datasets.ClickDataset)
    np.testing.assert_array_equal(direct.x[:, 0], read.x[:, 0])
    for name, ids in zip(direct.names, direct.ids, strict=True):
        ours = column[name]
        a, b = (ids.ids, ours.ids) if isinstance(ids, lsh.datasets.Bags) else (ids, ours)
        np.testing.assert_array_equal(a, b)


def written(path: Path, lines: list[str]) -> Path:
    path.write_text("\n".join(lines) + "\n")
    return path


SPELLED = {
    "whole numbers as real ones": (["user_id"], lambda i: "" if i % 9 == 0 else f"{i % 50}.0"),
    "zeros before": (["kind"], lambda i: f"{i % 5:02}"),
    "truth of Python": (["member"], lambda i: str(i % 3 == 0)),
    "truth of others": (["member"], lambda i: str(i % 3 == 0).lower()),
    "times with a zone": (["when"], lambda i: f"2024-01-{1 + i % 28:02}T{i % 24:02}:00:00+02:00"),
}


@pytest.mark.parametrize("kind", SPELLED)
def test_text_and_what_pyarrow_reads_of_it_are_the_same(kind: str, tmp_path: Path):
    csv = pytest.importorskip("pyarrow.csv")
    (name,), value = SPELLED[kind]
    lines = [f"clicked;{name}", *(f"{i % 2};{value(i)}" for i in range(200))]
    rows = stream.table(written(tmp_path / "a.csv", lines), label="clicked")
    read = rows.read()
    assert len(np.unique(read.ids[:, 0])) > 1
    table = csv.read_csv(tmp_path / "a.csv", parse_options=csv.ParseOptions(delimiter=";"))
    same(stream.table(table, rows.schema).read(), read)


def test_a_number_that_is_real_only_far_behind(tmp_path: Path):
    lines = [f"{i % 2},{i % 97}{'.5' * (i == 50_000)},{'text' * 9}{i % 40}" for i in range(60_000)]
    file = written(tmp_path / "a.csv", ["clicked,price,word", *lines])
    assert isinstance(stream.infer(file, label="clicked")["price"], stream.Number)


def test_files_of_other_types_are_read_together(tmp_path: Path):
    y, n = [0, 1] * 100, 200
    first = {"y": y, "city": pa.nulls(n), "a": np.arange(n), "b": pa.array(y, pa.int32())}
    other = {"y": y, "city": ["Lund", "Umeå"] * 100, "a": np.arange(n) + 0.5, "b": y}
    for name, columns in (("0.pq", first), ("1.pq", other)):
        pq.write_table(pa.table(columns), tmp_path / name)
    rows = stream.table(tmp_path, label="y")
    assert isinstance(rows.schema["city"], stream.Vocabulary)
    read = rows.read()
    np.testing.assert_array_equal(np.expm1(read.x[-2:, 0]).round(3), [198.5, 199.5])
    assert read.ids[-2:, 0].tolist() == [0, 1]


@pytest.mark.parametrize("kind", [pa.string(), pa.int64()])
def test_categories_of_one_file_are_the_values_of_another(kind: Any, tmp_path: Path):
    values = pa.array([k % 9 for k in range(100)]).cast(kind)
    one, other = (
        pa.table({"y": [0, 1] * 50, "c": c}) for c in (values, values.dictionary_encode())
    )
    for order in (one, other), (other, one):
        for k, table in enumerate(order):
            pq.write_table(table, tmp_path / f"{k}.parquet")
        rows = stream.parquet(tmp_path, label="y").read()
        plain = stream.table(pa.concat_tables([one, one]), label="y").read()
        np.testing.assert_array_equal(rows.ids, plain.ids)
        np.testing.assert_array_equal(rows.x, plain.x)
        assert len(rows.y) == 200


def test_separators_are_those_of_the_file(tmp_path: Path):
    lines = ["y;a", *(f"{i % 2};{i / 4}" for i in range(200))]
    files = [str(written(tmp_path / name, lines)) for name in ("a.csv", "b.csv")]
    result = lsh.train(
        lsh.models.dlrm(), files[0], label="y", validation=files[1], threads=1, batch_size=32
    )
    assert len(result.validation_auc)
    columns = {"y": stream.Label(), "a": stream.Number()}
    assert len(stream.table(files[0], columns).read()) == 200


def test_rows_without_labels_are_not_learned_from():
    rows = stream.table(plain(), label="clicked")
    result = lsh.train(lsh.models.dlrm(dim=4), rows, threads=1)
    with pytest.raises(ValueError, match="must have labels to be trained on"):
        lsh.train(lsh.models.dlrm(dim=4), rows.unlabelled(), threads=1)
    with pytest.raises(ValueError, match="must have labels to be judged by"):
        result.model.evaluate(rows.unlabelled())
    bare = stream.table(plain().drop_columns(["clicked"]), rows.schema)
    np.testing.assert_array_equal(result.model.predict(bare), result.model.predict(rows))


def test_rows_without_labels(tmp_path: Path):
    table = plain()
    columns = stream.infer(table, label="clicked")
    rows, bare = stream.arrow(table, columns), table.drop_columns(["clicked"])
    read = stream.arrow(bare, columns).unlabelled().read()
    assert not read.y.any()
    np.testing.assert_array_equal(read.x, rows.read().x)
    np.testing.assert_array_equal(rows.unlabelled().read().x, read.x)
    with pytest.raises(ValueError, match="no column clicked"):
        stream.arrow(bare, columns).read()
    pq.write_table(bare, tmp_path / "bare.parquet")
    same(stream.parquet(tmp_path, columns).unlabelled().read(), read)
    csv = {"y": stream.Label(), "w": stream.Weight(), "a": stream.Number(), "c": stream.Hashed()}
    (tmp_path / "a.csv").write_text("a,c\n1,x\n2,y\n")
    named = stream.csv(tmp_path / "a.csv", csv).unlabelled().read()
    assert named.x[:, 0].tolist() == [1, 2]
    assert named.weights is None
    (tmp_path / "b.csv").write_text("1,x\n2,y\n")
    del csv["w"]
    for names, lines in ((["y", "a", "c"], "1,x\n2,y\n"), (["y", "a", "c"], "0,1,x\n1,2,y\n")):
        (tmp_path / "b.csv").write_text(lines)
        of_names = stream.csv(tmp_path / "b.csv", csv, names=names).unlabelled().read()
        same(of_names, named)


@pytest.mark.parametrize("header", [False, True])
def test_criteo_without_labels(tmp_path: Path, header: bool):
    apart = "," if header else "\t"
    fields = [*map(str, range(13)), *(f"{i:08x}" for i in range(26))]
    names = [*(f"I{j + 1}" for j in range(13)), *(f"C{f + 1}" for f in range(26))]
    bare, full = tmp_path / "bare", tmp_path / "full"
    bare.write_text((apart.join(names) + "\n" if header else "") + apart.join(fields) + "\n")
    full.write_text(
        (apart.join(["Label", *names]) + "\n" if header else "") + apart.join(["1", *fields]) + "\n"
    )
    read = stream.criteo(full).read()
    for path in (bare, full):
        found = stream.criteo(path).unlabelled().read()
        assert found.y.tolist() == [0]
        np.testing.assert_array_equal(found.x, read.x)
        np.testing.assert_array_equal(found.ids, read.ids)


@pytest.mark.parametrize("build", [lsh.models.dlrm, lsh.models.deepfm, lsh.models.dcn])
def test_a_table_is_trained_on(build: Any, folder: Path):
    columns = stream.infer(plain(), label="clicked")
    read = stream.arrow(plain(), columns).read()
    result = lsh.train(build(dim=4), plain(), label="clicked", threads=1, seed=3)
    model = build(dim=4).shaped(read)
    given = lsh.train(model, read, threads=1, seed=3)
    np.testing.assert_array_equal(result.parameters, given.parameters)
    p = model.predict(
        result.parameters, stream.arrow(plain(), columns).unlabelled().read(), result.tables
    )
    assert p.shape == (ROWS, 1)
    of_files = lsh.train(build(dim=4), folder, label="clicked", threads=1)
    assert of_files.config["files"]
    by_schema = lsh.train(build(dim=4), str(folder), columns=columns, threads=1)
    assert by_schema.config["columns"]["schema"]["price"]["kind"] == "number"


def test_validation_is_a_table_where_data_are():
    result = lsh.train(lsh.models.dlrm(), plain(), label="clicked", validation=plain(300, 7))
    assert len(result.validation_accuracy)
    with pytest.raises(TypeError, match="only where they are"):
        lsh.train(
            lsh.models.dlrm(), lsh.datasets.synthetic_clicks(100, 0).train, validation=plain()
        )


def test_models_of_numbers_take_tables():
    table = plain().select(["clicked", "price", "age", "rooms"])
    until = lsh.until(epochs=1)
    result = lsh.train(lsh.models.mlp(3, [4], 2), table, label="clicked", until=until)
    assert result.config["columns"]["numbers"] == ["price", "age", "rooms"]
    linear = lsh.models.linear_regression(2)
    values = plain().select(["price", "age", "cost"])
    result = lsh.train(linear, values, label="cost", until=until, rule=lsh.SGD(0.001))
    assert result.config["columns"]["schema"]["cost"]["kind"] == "target"


def test_arguments_of_tables_are_refused_elsewhere():
    data = lsh.datasets.synthetic_digits().train
    with pytest.raises(ValueError, match="label goes with data that are a DataFrame"):
        lsh.train(lsh.models.mlp(784, [4], 10), data, label="y", until=lsh.until(epochs=1))


@pytest.mark.parametrize(
    "build", [lsh.models.dlrm, lsh.models.deepfm, lsh.models.wide_deep, lsh.models.dcn]
)
@pytest.mark.parametrize("numbers", [0, 1, 3])
@pytest.mark.parametrize("ids", [0, 1, 2])
def test_shapes_follow_from_the_data(build: Any, numbers: int, ids: int):
    if not numbers and not ids:
        with pytest.raises(ValueError, match="must not both be 0"):
            build(dense=0, categories=0)
        return
    names = ["clicked", *("price", "cost", "age")[:numbers], *("user_id", "device")[:ids]]
    result = lsh.train(build(dim=8), plain().select(names), label="clicked", threads=1)
    assert np.isfinite(result.final_loss)
    assert len(result.tables) in (ids, 2 * ids)


def test_what_was_said_of_a_shape_stays():
    rows = stream.arrow(plain(), stream.infer(plain(), label="clicked"))
    model = lsh.models.dlrm(dense=5)
    with pytest.raises(ValueError, match="numbers, but the model takes 5"):
        lsh.train(model, rows)
    fixed = lsh.models.dlrm([10, 10], dense=2)
    assert fixed.shaped(rows) is fixed
    assert (lsh.models.dlrm().features, len(lsh.models.dlrm().tables)) == (13, 26)
    clicks = lsh.datasets.synthetic_clicks(100, 0).train
    model = lsh.models.dlrm()
    assert model.shaped(clicks) is model
    assert lsh.models.dlrm(dim=8).nodes[-1].inputs


def test_days_of_parquet(folder: Path, tmp_path: Path):
    columns = stream.infer(folder, label="clicked")
    days = {file.name: stream.parquet(file, columns) for file in sorted(folder.iterdir())}
    first = dict(list(days.items())[:2])
    lsh.continual(lsh.models.dlrm(), first, folder=tmp_path / "run", threads=1)
    result = lsh.continual(lsh.models.dlrm(), days, folder=tmp_path / "run", threads=1)
    assert [day.examples for day in result.days] == [400] * 3
    assert [Path(day.files[0].path).name for day in result.days] == list(days)
    assert lsh.continual(lsh.models.dlrm(), days, folder=tmp_path / "run").outcome == "done"


def test_frames_of_pandas_and_polars():
    columns = stream.infer(plain(), label="clicked")
    expected = stream.arrow(plain(), columns).read()
    polars = pytest.importorskip("polars")
    frame = polars.from_arrow(plain())
    same(stream.table(frame, columns).read(), expected)
    assert set(stream.infer(frame, label="clicked")) == set(columns)
    pandas = pytest.importorskip("pandas")
    frame = plain().to_pandas()
    assert isinstance(frame, pandas.DataFrame)
    same(stream.table(frame, columns).read(), expected)
    assert set(stream.infer(frame, label="clicked")) == set(columns)


@pytest.mark.parametrize("form", ["pandas", "polars", "pyarrow", "categories"])
def test_histories_that_are_text_are_those_of_lists_and_of_csv(form: str, tmp_path: Path) -> None:
    lists = [[1, 22], [3], None, [4, 5, 60]] * 50
    text = [None if ids is None else " ".join(map(str, ids)) for ids in lists]
    text[2] = ""
    columns = {"clicked": [0, 1, 0, 1] * 50, "seen": text}
    table = pa.table(columns)
    if form == "categories":
        given: Any = table.set_column(1, "seen", table["seen"].dictionary_encode())
    elif form == "pyarrow":
        given = table
    else:
        given = pytest.importorskip(form).DataFrame(columns)
    schema = stream.infer(given, label="clicked")
    assert schema["seen"] == stream.Id(between=" ")
    wanted = stream.table(pa.table({**columns, "seen": lists}), schema).read()
    same(stream.table(given, schema).read(), wanted)
    path = tmp_path / "clicks.csv"
    lines = [
        f"{y},{'' if ids is None else ids}\n" for y, ids in zip(*columns.values(), strict=True)
    ]
    path.write_text("clicked,seen\n" + "".join(lines))
    assert stream.infer(path, label="clicked") == schema
    same(stream.csv(path, schema).read(), wanted)


def test_a_wrong_field_beside_dates_in_csv_is_told_by_its_column(tmp_path: Path) -> None:
    path = tmp_path / "clicks.csv"
    path.write_text("clicked,when,app\n0,2024-01-01 10:00:00,True\n")
    schema = {
        "clicked": stream.Label(),
        "when.hour": stream.Id(of="when", part="hour"),
        "app": stream.Number(),
    }
    with pytest.raises(ValueError, match=r"clicks\.csv: column app: .*'True'"):
        stream.csv(path, schema).read()
    assert "'app': {'kind': 'number'}" in repr(lsh.datasets.fields.Schema(schema))


def with_nulls() -> Any:
    rows = plain()
    label = pa.array(
        [None if i in (3, 7) else v for i, v in enumerate(rows["clicked"].to_pylist())]
    )
    return rows.set_column(0, "clicked", label)


MODEL = lsh.models.dlrm(dim=4)


def test_rows_that_are_none_are_left_out_and_counted(tmp_path: Path):
    rows = with_nulls()
    one: dict[str, Any] = {"label": "clicked", "threads": 1, "until": lsh.until(epochs=1)}
    with pytest.raises(ValueError, match=r'row 4: clicked is missing.*bad="skip" leaves such rows'):
        lsh.train(MODEL, rows, **one)
    with once("2 of 1,200 rows of table are left out, the first of them 4 of table: clicked is"):
        result = lsh.train(MODEL, rows, bad="skip", **one)
    assert result.config["examples"] == ROWS - 2
    path = tmp_path / "logs.parquet"
    pq.write_table(rows, path)
    with once(f"2 of 1,200 rows of {path} are left out"):
        result = lsh.train(MODEL, path, bad="skip", **one)
    assert result.config["reading"]["bad"] == 2
    with once("2 of 1,200 rows of table are left out"):
        lsh.train(MODEL, plain(), validation=rows, bad="skip", **one)
    for wrong in ("drop", ""):
        with pytest.raises(ValueError, match=f"bad must be one of fail, skip, got '{wrong}'"):
            lsh.train(MODEL, rows, bad=wrong, **one)
    with pytest.raises(ValueError, match=r"bad goes with .*stream\.parquet\(path, bad="):
        lsh.train(MODEL, stream.parquet(path, label="clicked"), bad="skip")


def test_shuffle_of_a_path_is_that_of_a_stream(folder: Path):
    one: dict[str, Any] = {"threads": 1, "until": lsh.until(epochs=1), "seed": 5, "batch_size": 8}
    shuffled = lsh.train(MODEL, folder, label="clicked", shuffle=500, **one)
    rows = stream.parquet(folder, label="clicked", shuffle=500, seed=5)
    same = lsh.train(MODEL, rows, **one)
    np.testing.assert_array_equal(shuffled.parameters, same.parameters)
    assert shuffled.config["order"] == {"shuffle": 500, "seed": 5}
    in_order = lsh.train(MODEL, folder, label="clicked", **one)
    assert not np.array_equal(shuffled.parameters, in_order.parameters)


def test_shuffle_of_rows_in_memory_is_refused(folder: Path):
    for model, data, label in (
        (MODEL, plain(), "clicked"),
        (lsh.models.mlp(7, [4], 2), folder, "clicked"),
        (MODEL, stream.parquet(folder, label="clicked"), None),
    ):
        with pytest.raises(
            ValueError, match=r"shuffle goes with .* in an order of the seed anyway"
        ):
            lsh.train(model, data, label=label, shuffle=500)
    with pytest.raises(ValueError, match="shuffle must be"):
        lsh.train(MODEL, folder, label="clicked", shuffle=-1)


DATES = [
    ("2024-01-0{}", True),
    ("2024-01-0{} 03:04:05", True),
    ("2024-01-0{}T03:04", True),
    ("2024-01-0{} 03:04:05.123", True),
    ("2024-01-0{}T03:04:05Z", True),
    ("2024-01-0{} 03:04:05.123456789", True),
    ("2024-01-0{} 03:04:05+0200", True),
    (" 2024-01-0{}", True),
    ("2024-1-{}", False),
    ("0{}.01.2024", False),
    ("day {}", False),
]


@pytest.mark.parametrize(("form", "moment"), DATES)
def test_dates_in_text_are_dates_in_a_frame_as_in_csv(form: str, moment: bool, tmp_path: Path):
    when = [form.format(1 + i % 3) for i in range(300)]
    # (A column of which nothing is missing is told in CSV by its quotes.)
    frame = pa.table({"clicked": [i % 2 for i in range(300)], "when": when})
    pa.csv.write_csv(frame, tmp_path / "rows.csv")
    pq.write_table(frame, tmp_path / "rows.parquet")
    names, read = [], []
    dictionary = frame.set_column(1, "when", frame["when"].dictionary_encode())
    for source in (tmp_path / "rows.csv", frame, dictionary, tmp_path / "rows.parquet"):
        found = stream.infer(source, label="clicked")
        names.append(tuple(found))
        read.append(stream.table(source, dict(found)).read())
    assert all(each == names[0] for each in names)
    assert ("when.years" in names[0]) == moment
    for each in read[1:]:
        same(each, read[0])


def test_a_date_that_is_none_later_is_told():
    when = ["2024-01-01", "", None, "2024-02-02"] * 3
    frame = pa.table({"clicked": [0, 1] * 6, "when": when})
    found = stream.infer(frame, label="clicked")
    assert [*found] == ["clicked", "when.years", "when.weekday"]
    known = stream.table(frame, dict(found)).read()
    assert known.x[1] == known.x[2]
    wrong = frame.set_column(1, "when", pa.array(["2024-01-01", "soon"] * 6))
    with pytest.raises(
        ValueError, match=r"column when is read as dates in text: .*'soon'.*columns="
    ):
        stream.table(wrong, dict(found)).read()
