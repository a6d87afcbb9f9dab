"""Models that attend to histories, of files and frames whose schema says what is a history of what."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import leashed as lsh
from leashed import cli, models
from leashed.stream import Hashed, Id, Label, Number

MADE = {"din": models.din, "dien": models.dien, "ecommerce": models.ecommerce}
COLUMNS: dict[str, Any] = {
    "clicked": Label(),
    "past": Id(between=" ", history_of="item"),
    "item": Id(),
    "user": Id(),
}
GIVEN: dict[str, Any] = {"threads": 1, "batch_size": 32, "rule": "adagrad:lr=0.1"}
SMALL: dict[str, Any] = {"dim": 4, "hidden": (8,), "longest": 5}
ITEMS, ROWS = 40, 1500


def rows_of(seed: int, rows: int = ROWS) -> list[dict[str, Any]]:
    """A click is of an item whose kind, its number's parity, is that of the user's past."""
    draw = np.random.default_rng(seed)
    found = []
    for _ in range(rows):
        kind, item = int(draw.integers(2)), int(draw.integers(ITEMS))
        past = 2 * draw.integers(ITEMS // 2, size=draw.integers(6)) + kind
        clicked = bool(len(past)) and kind == item % 2
        user = int(draw.integers(30))
        found.append(
            {"past": list(map(int, past)), "user": user, "clicked": int(clicked), "item": item}
        )
    return found


def written(path: Path, rows: list[dict[str, Any]]) -> Path:
    with path.open("w", newline="") as file:
        out = csv.DictWriter(file, ["user", "past", "item", "clicked"])
        out.writeheader()
        out.writerows({**row, "past": " ".join(map(str, row["past"]))} for row in rows)
    return path


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("histories")
    schema = folder / "schema.json"
    told = {"past": {"kind": "id", "between": " ", "history_of": "item"}}
    rest = {"clicked": {"kind": "label"}, "item": {"kind": "id"}, "user": {"kind": "id"}}
    schema.write_text(json.dumps({"columns": {**rest, **told}}))
    days = {f"day{seed}": written(folder / f"day{seed}.csv", rows_of(seed)) for seed in range(2)}
    return {"schema": schema, **days}


@pytest.mark.parametrize("name", MADE)
def test_what_was_chosen_before_is_learnt(name: str, files: dict[str, Path]) -> None:
    rows = lsh.stream.csv(files["day0"], COLUMNS).read()
    test = lsh.stream.csv(files["day1"], COLUMNS).read()
    result = lsh.train(
        MADE[name](**SMALL), rows, until=lsh.until(epochs=12), validation=test, **GIVEN
    )
    assert result.validation_auc[-1] > 0.9
    graph = result.model.model
    assert graph.histories == {0: 1}
    assert {table.name for table in graph.tables if table.dim == 4} == {"c1", "c2"}


@pytest.mark.parametrize("name", MADE)
def test_it_is_saved_and_predicts_the_same(
    name: str, files: dict[str, Path], tmp_path: Path
) -> None:
    rows = lsh.stream.csv(files["day0"], COLUMNS)
    trained = lsh.train(MADE[name](**SMALL), rows, **GIVEN).model
    trained.save(tmp_path / "model")
    again = lsh.load(tmp_path / "model")
    np.testing.assert_array_equal(again.predict(files["day1"]), trained.predict(files["day1"]))


def test_lists_of_a_frame_are_the_fields_of_a_file(files: dict[str, Path]) -> None:
    pa = pytest.importorskip("pyarrow")
    frame = pa.Table.from_pylist(rows_of(0))
    of_frame = lsh.train(models.din(**SMALL), frame, columns=COLUMNS, **GIVEN)
    of_file = lsh.train(models.din(**SMALL), lsh.stream.csv(files["day0"], COLUMNS).read(), **GIVEN)
    np.testing.assert_array_equal(of_frame.parameters, of_file.parameters)


def test_what_is_shown_may_be_several_columns() -> None:
    pa = pytest.importorskip("pyarrow")
    rows = rows_of(0, 300)
    for row in rows:
        row["shop"], row["shops"] = f"s{row['item'] % 7}", [f"s{item % 7}" for item in row["past"]]
        row["price"] = row["item"] / ITEMS
    shops = {
        "shops": Hashed(buckets=50, between=" ", history_of="shop"),
        "shop": Hashed(buckets=50),
        "price": Number(),
    }
    frame = pa.Table.from_pylist(rows)
    graph = models.din(**SMALL).shaped(lsh.stream.table(frame, {**COLUMNS, **shops}).read())
    assert (graph.features, graph.histories) == (1, {0: 1, 3: 4})
    assert {table.name: table.rows for table in graph.tables} == {"c1": None, "c2": None, "c4": 50}
    lsh.train(models.din(**SMALL), frame, columns={**COLUMNS, **shops}, **GIVEN)


def test_days_train_and_predict(files: dict[str, Path], tmp_path: Path) -> None:
    days = [lsh.stream.csv(files[f"day{seed}"], COLUMNS) for seed in range(2)]
    result = lsh.continual(models.din(**SMALL), days, folder=tmp_path / "run", **GIVEN)
    assert len(result.days) == 2
    again = lsh.continual(
        models.din(**SMALL),
        [*days, lsh.stream.csv(files["day0"], COLUMNS)],
        folder=tmp_path / "run",
        **GIVEN,
    )
    assert len(again.days) == 3


def test_of_the_command_line(
    files: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = ["--model", "din", "--schema", str(files["schema"]), "--no-progress", "--threads", "1"]
    shape = ["--dim", "4", "--hidden", "8", "--attention", "8,4", "--longest", "5"]
    saved = str(tmp_path / "model")
    data = ["--data", str(files["day0"]), "--save", saved]
    assert cli.main(["train", *asked, *shape, *data]) == 0
    assert lsh.load(saved).model.tables[0].dim == 4
    told = tmp_path / "predicted"
    assert cli.main(["predict", saved, "--data", str(files["day1"]), "--output", str(told)]) == 0
    assert len(told.read_text().split()) >= ROWS
    run = ["--days", str(files["day0"]), str(files["day1"]), "--checkpoint", str(tmp_path / "run")]
    assert cli.main(["train", *asked, *shape, *run]) == 0
    capsys.readouterr()
    assert (
        cli.main(["train", "--model", "din", "--label", "clicked", "--data", str(files["day0"])])
        == 2
    )
    assert "no column of the data is that" in capsys.readouterr().err


WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "nothing": (
        {"past": Id(between=" ", history_of="shop")},
        "must name a column of one id, got 'shop'",
    ),
    "many": ({"item": Id(between=" ")}, "must name a column of one id, got 'item'"),
    "two": (
        {"more": Id(between=" ", history_of="item")},
        "'past' and 'more' are both a history of",
    ),
    "otherwise": ({"item": Hashed()}, "'past' must be told as 'item' is"),
    "offset": ({"item": Id(offset=3)}, "'past' must be told as 'item' is"),
}


@pytest.mark.parametrize("kind", WRONG)
def test_a_schema_that_cannot_be_is_told(kind: str, files: dict[str, Path]) -> None:
    columns, told = WRONG[kind]
    with pytest.raises(ValueError, match=told):
        lsh.stream.csv(files["day0"], {**COLUMNS, **columns})


def test_what_has_one_id_is_no_history() -> None:
    with pytest.raises(
        ValueError, match="history_of must be the name of a column, and goes with between"
    ):
        Id(history_of="item")
