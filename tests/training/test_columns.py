"""Columns of the data: kept with what was trained on them, and compared wherever other data come."""

from __future__ import annotations

import copy
import dataclasses
import json
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import leashed as lsh
from leashed import retrieval, simulation, stream
from leashed.datasets import Bags, ClickDataset, Dataset, hashed
from leashed.files import model_file
from leashed.models import Dense, Graph, Input

ROWS = 64
ONCE = lsh.until(epochs=1)
LACKING = "lacks 'device', which the parameters were trained on"


def drawn(rows: int = ROWS) -> dict[str, np.ndarray]:
    random = np.random.default_rng(4)
    return {
        "price": random.normal(size=rows),
        "age": random.normal(size=rows),
        "advertiser": random.integers(0, 9, rows),
        "device": random.integers(0, 9, rows),
        "unread": random.integers(0, 9, rows),
        "clicked": random.integers(0, 2, rows),
    }


def clicks(
    ids: tuple[str, ...] = ("advertiser", "device"),
    numbers: tuple[str, ...] | None = ("price", "age"),
    called: dict[str, str] | None = None,
) -> ClickDataset:
    """Of these columns in this order; ``called`` what one is called here."""
    columns, names = drawn(), called or {}
    return ClickDataset.from_arrays(
        np.stack([columns[name] for name in numbers or ("price", "age")], 1),
        {names.get(name, name): columns[name] for name in ids},
        columns["clicked"],
        number_names=None if numbers is None else [names.get(name, name) for name in numbers],
    )


def streamed(
    folder: Path, ids: tuple[str, ...] = ("advertiser", "device"), name: str = "rows"
) -> stream.Stream:
    """A file whose schema has the ids in this order."""
    path, columns = folder / f"{name}.csv", drawn()
    rows = np.stack([columns[name] for name in ("clicked", "advertiser", "device")], 1)
    lines = ["clicked,advertiser,device,price,age"]
    lines += [
        ",".join(map(str, row)) + f",{p},{a}"
        for row, p, a in zip(rows.tolist(), columns["price"], columns["age"], strict=True)
    ]
    path.write_text("\n".join(lines) + "\n")
    kinds: dict[str, Any] = {"clicked": stream.Label()}
    kinds |= {name: stream.Number() for name in ("price", "age")}
    return stream.csv(path, {**kinds, **{name: stream.Hashed(buckets=9) for name in ids}})


def dlrm() -> Graph:
    return lsh.models.dlrm(9, 4, 2, bottom=(4,), top=(4,), categories=2)


def train(data: Any, **given: Any) -> lsh.TrainResult:
    given = {"until": ONCE, "threads": 1, "batch_size": 8, **given}
    return lsh.train(given.pop("model", None) or dlrm(), data, **given)


SAME = {
    "the same": clicks(),
    "one more": clicks(("advertiser", "device", "unread")),
    "one more in front": clicks(("unread", "advertiser", "device")),
    "ids in another order": clicks(("device", "advertiser")),
    "numbers in another order": clicks(numbers=("age", "price")),
    "both": clicks(("device", "unread", "advertiser"), ("age", "price")),
    "numbers without names": clicks(numbers=None),
}
RENAMED = clicks(called={"device": "browser"})


@pytest.fixture(scope="module")
def result() -> lsh.TrainResult:
    return train(clicks())


@pytest.mark.parametrize("same", SAME)
@pytest.mark.parametrize("what", ["predict", "evaluate", "logits"])
def test_columns_are_known_by_name(same: str, what: str, result: lsh.TrainResult) -> None:
    judged = getattr(dlrm(), what)
    found = judged(result.parameters, SAME[same], result.tables)
    np.testing.assert_array_equal(found, judged(result.parameters, clicks(), result.tables))


@pytest.mark.parametrize("what", ["predict", "evaluate", "logits"])
def test_one_that_is_not_there_is_named(what: str, result: lsh.TrainResult) -> None:
    judged = getattr(dlrm(), what)
    with pytest.raises(ValueError, match=LACKING) as renamed:
        judged(result.parameters, RENAMED, result.tables)
    assert str(renamed.value).endswith(
        "give each column under the name that it had then (there are 'advertiser', 'browser')"
    )
    columns = drawn()
    other = ClickDataset.from_arrays(
        np.stack([columns["price"], columns["advertiser"]], 1),
        {"age": columns["age"].astype(np.int64) & 7, "device": columns["device"]},
        columns["clicked"],
        number_names=["price", "advertiser"],
    )
    with pytest.raises(ValueError, match=r"column '(age|advertiser)' is of another kind"):
        judged(result.parameters, other, result.tables)


def test_data_without_names_are_compared_with_nothing(result: lsh.TrainResult) -> None:
    columns = drawn()
    ids = np.stack([columns["device"], columns["advertiser"]], 1)
    x = np.stack([columns["price"], columns["age"]], 1)
    plain = ClickDataset.from_arrays(x, ids, columns["clicked"])
    assert plain.names == ("C1", "C2")
    dlrm().predict(result.parameters, plain, result.tables)
    unnamed = train(plain)
    assert unnamed.config["columns"] == {}
    dlrm().predict(unnamed.parameters, clicks(), unnamed.tables)


def test_names_of_nothing_but_places_are_compared_where_they_were_given() -> None:
    columns = drawn()
    ids = np.stack([columns["advertiser"], columns["device"]], 1)
    named = ClickDataset.from_arrays(None, ids, columns["clicked"], names=["C1", "C2"])
    other = ClickDataset.from_arrays(None, ids[:, ::-1], columns["clicked"], names=["C2", "C1"])
    model = Graph(lsh.models.Concat(*map(lsh.models.Embedding, specs())) >> Dense(1))
    found = train(named, model=model)
    judged = model.evaluate(found.parameters, other, found.tables)
    assert judged == model.evaluate(found.parameters, named, found.tables)


def specs() -> list[lsh.models.TableSpec]:
    return [lsh.models.TableSpec(name, 2, 9) for name in ("a", "b")]


@pytest.mark.parametrize("same", SAME)
def test_validation_is_put_in_the_order_of_the_data(same: str, tmp_path: Path) -> None:
    for data in (clicks(), streamed(tmp_path)):
        aucs = [train(data, validation=v).validation_auc[-1] for v in (SAME[same], clicks())]
        assert aucs[0] == aucs[1]


def test_validation_that_lacks_a_column_is_refused(tmp_path: Path) -> None:
    for data in (clicks(), streamed(tmp_path)):
        with pytest.raises(ValueError, match=f"validation {LACKING}"):
            train(data, validation=RENAMED)


@pytest.mark.parametrize("same", SAME)
def test_training_goes_on_by_name(same: str, result: lsh.TrainResult) -> None:
    def begun(data: ClickDataset) -> lsh.TrainResult:
        tables = lsh.tables.of(dlrm().tables, seed=3)
        return train(data, init=lsh.Init(result.parameters, tables=tables))

    np.testing.assert_array_equal(begun(SAME[same]).parameters, begun(clicks()).parameters)
    with pytest.raises(ValueError, match=f"data {LACKING}"):
        begun(RENAMED)


def test_a_simulation_goes_on_by_name(result: lsh.TrainResult) -> None:
    def begun(data: ClickDataset) -> lsh.TrainResult:
        tables = lsh.tables.of(dlrm().tables, seed=3)
        init = lsh.Init(result.parameters, tables=tables)
        cluster = simulation.constant(2, 1.0)
        return lsh.simulate(dlrm(), data, cluster=cluster, until=ONCE, init=init).result

    found = begun(SAME["both"])
    np.testing.assert_array_equal(found.parameters, begun(clicks()).parameters)
    with pytest.raises(ValueError, match=LACKING):
        begun(RENAMED)
    with pytest.raises(ValueError, match=LACKING):
        dlrm().predict(found.parameters, RENAMED, found.tables)


def test_a_plain_array_of_parameters_is_of_no_columns(result: lsh.TrainResult) -> None:
    """Deliberately: who wants other columns in their place makes one."""
    tables = lsh.tables.of(dlrm().tables)
    init = lsh.Init(np.array(result.parameters), tables=tables)
    begun = train(SAME["ids in another order"], init=init)
    assert begun.config["columns"]["ids"] == ["device", "advertiser"]


COPIES: dict[str, Callable[[lsh.TrainResult], lsh.TrainResult]] = {
    "json": lambda r: lsh.TrainResult.from_json(r.to_json(parameters=True)),
    "pickle": lambda r: pickle.loads(pickle.dumps(r)),
    "deepcopy": copy.deepcopy,
    "replace": lambda r: dataclasses.replace(r, parameters=r.parameters.copy()),
}


@pytest.mark.parametrize("copied", COPIES)
def test_results_keep_them_in_every_form(copied: str) -> None:
    data = Dataset.from_arrays(np.eye(4)[:, :2], [0, 1, 0, 1], names=["a", "b"])
    other = Dataset.from_arrays(np.eye(4)[:, :2], [0, 1, 0, 1], names=["b", "c"])
    model = lsh.models.mlp(2, [3], 2)
    made = COPIES[copied](train(data, model=model, batch_size=2))
    assert model.evaluate(made.parameters, data)
    with pytest.raises(ValueError, match="data lacks 'a'"):
        model.evaluate(made.parameters, other)


@pytest.fixture(params=["checkpoint", "save", "saved again"])
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """What was written of a training, in each way."""
    path = tmp_path / "kept"
    found = train(clicks(), checkpoint=path if request.param == "checkpoint" else None)
    if request.param != "checkpoint":
        lsh.save(path, dlrm(), found.parameters, found.tables)
    if request.param == "saved again":
        kept = lsh.load(path)
        model, theta, tables = kept.model, kept.parameters, kept.tables
        path = tmp_path / "again"
        lsh.save(path, model, theta, tables)
    return path


def test_files_keep_them(folder: Path) -> None:
    kept = lsh.load(folder)
    model, theta, tables = kept.model, kept.parameters, kept.tables
    said = model.predict(theta, clicks(), tables)
    np.testing.assert_array_equal(model.predict(theta, SAME["both"], tables), said)
    _, loaded = lsh.load(folder, dlrm(), tables)
    with pytest.raises(ValueError, match=LACKING):
        dlrm().predict(loaded, RENAMED, tables)


def test_files_of_before_are_read(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = lsh.load(folder)
    model, theta, tables = kept.model, kept.parameters, kept.tables
    monkeypatch.setattr(model_file, "columns_told", lambda _: {})
    lsh.save(folder, model, theta, tables)
    kept = lsh.load(folder)
    theta, tables = kept.parameters, kept.tables
    dlrm().predict(theta, RENAMED, tables)


@pytest.mark.parametrize("same", SAME)
def test_a_run_goes_on_by_name(same: str, tmp_path: Path) -> None:
    path = tmp_path / "run"
    train(clicks(), checkpoint=path)
    with pytest.raises(ValueError, match=LACKING):
        train(RENAMED, resume=path, until=lsh.until(epochs=2))
    found = [train(d, resume=path, until=lsh.until(epochs=2)) for d in (SAME[same], clicks())]
    np.testing.assert_array_equal(found[0].parameters, found[1].parameters)


def test_a_run_that_goes_on_without_names_keeps_those_of_before(tmp_path: Path) -> None:
    path, again = tmp_path / "run", lsh.until(epochs=2)
    train(clicks(), checkpoint=path)
    columns = drawn()
    ids = np.stack([columns["advertiser"], columns["device"]], 1)
    x = np.stack([columns["price"], columns["age"]], 1)
    plain = ClickDataset.from_arrays(x, ids, columns["clicked"])
    found = train(plain, resume=path, checkpoint=path, until=again)
    assert found.config["columns"]["ids"] == ["advertiser", "device"]
    with pytest.raises(ValueError, match=LACKING):
        train(RENAMED, resume=path, until=lsh.until(epochs=3))


def test_a_file_of_dense_data_keeps_them_too(tmp_path: Path) -> None:
    model, path = lsh.models.linear_regression(2), tmp_path / "run.safetensors"
    random = np.random.default_rng(0)
    x, y = random.normal(size=(20, 2)), random.normal(size=20)
    data = Dataset.regression(x, y, names=["price", "age"])
    other = Dataset.regression(x[:, ::-1], y, names=["age", "price"])
    train(data, model=model, checkpoint=path)
    on = [train(d, model=model, resume=path, until=lsh.until(epochs=2)) for d in (data, other)]
    np.testing.assert_array_equal(on[0].parameters, on[1].parameters)
    _, theta = lsh.load(path)
    assert model.evaluate(theta, other) == model.evaluate(theta, data)
    with pytest.raises(ValueError, match="data lacks 'age'"):
        model.evaluate(theta, Dataset.regression(x, y, names=["price", "years"]))


class Frame:
    """What is read of pandas' and polars' data frames."""

    def __init__(self, **columns: Any) -> None:
        self.columns, self._columns = list(columns), columns

    def __array__(self, dtype: Any = None, copy: Any = None) -> np.ndarray:
        return np.stack([np.asarray(c, dtype) for c in self._columns.values()], 1)

    def __getitem__(self, names: list[str]) -> Frame:
        return Frame(**{name: self._columns[name] for name in names})


def test_data_frames_tell_their_names() -> None:
    columns = drawn()
    x = Frame(price=columns["price"], age=columns["age"])
    model = lsh.models.logistic_regression(2)
    found = train((x, columns["clicked"]), model=model)
    assert found.config["columns"] == {"numbers": ["price", "age"]}
    said = model.predict(found.parameters, x)
    np.testing.assert_array_equal(model.predict(found.parameters, np.asarray(x)), said)
    other = Frame(device=columns["device"], age=columns["age"], price=columns["price"])
    np.testing.assert_array_equal(model.predict(found.parameters, other), said)
    with pytest.raises(ValueError, match="x lacks 'age'"):
        model.predict(found.parameters, Frame(years=columns["age"], price=columns["price"]))
    ids = Frame(advertiser=columns["advertiser"], device=columns["device"])
    data = ClickDataset.from_arrays(x, ids, columns["clicked"])
    assert (data.names, data.number_names) == (("advertiser", "device"), ("price", "age"))
    numbered = Frame()
    numbered.columns, numbered._columns = [0, 1], x._columns
    assert Dataset.from_arrays(numbered, columns["clicked"]).names is None


def test_streams_and_data_in_memory_are_one(tmp_path: Path) -> None:
    found = train(streamed(tmp_path), rule=lsh.Adagrad(0.01))
    data = streamed(tmp_path).read()
    said = dlrm().predict(found.parameters, data, found.tables)
    swapped = streamed(tmp_path, ("device", "advertiser"), "swapped")
    np.testing.assert_array_equal(
        dlrm().predict(found.parameters, swapped.read(), found.tables), said
    )

    def on(rows: stream.Stream) -> lsh.TrainResult:
        tables = lsh.tables.of(dlrm().tables, seed=3)
        return train(rows, init=lsh.Init(found.parameters, tables=tables))

    np.testing.assert_array_equal(on(swapped).parameters, on(streamed(tmp_path)).parameters)


def test_what_a_column_became_is_compared(tmp_path: Path) -> None:
    found = train(streamed(tmp_path))
    kinds: dict[str, Any] = {"clicked": stream.Label(), "price": stream.Number(log=True)}
    kinds |= {"age": stream.Number()}
    kinds |= {name: stream.Hashed(buckets=9) for name in ("advertiser", "device")}
    other = stream.csv(tmp_path / "rows.csv", kinds).read()
    with pytest.raises(ValueError, match=r"'price' is read as Number\(log=True.* as it was then"):
        dlrm().predict(found.parameters, other, found.tables)


def test_a_graph_without_tables(tmp_path: Path) -> None:
    model = Graph(Input(2) >> Dense(1))
    kinds: dict[str, Any] = {"y": stream.Label(), "a": stream.Number(), "b": stream.Number()}
    path = tmp_path / "rows.csv"
    path.write_text("y,a,b\n" + "1,0,1\n0,1,0\n" * 9)
    found = train(stream.csv(path, kinds), model=model)
    swapped = stream.csv(path, {name: kinds[name] for name in ("y", "b", "a")}).read()
    same = stream.csv(path, kinds).read()
    assert model.evaluate(found.parameters, swapped) == model.evaluate(found.parameters, same)
    for said in (model.logits, model.predict):
        np.testing.assert_array_equal(said(found.parameters, swapped), said(found.parameters, same))


def test_hashed_rows_know_the_columns_that_went_into_them() -> None:
    model = lsh.models.logistic_regression(2 + 2**4)
    found = train(hashed(clicks(), 4), model=model, discipline=lsh.Sequential())
    for other in (clicks(("device", "advertiser")), clicks(("advertiser", "device", "unread"))):
        for judged in (model.evaluate, model.predict):
            with pytest.raises(ValueError, match="columns are not those"):
                judged(found.parameters, hashed(other, 4).head(3))
    machine = lsh.models.fm(2 + 2**4, 2)
    found = train(hashed(clicks(), 4), model=machine, discipline=lsh.Sequential())
    for judged in (machine.evaluate, machine.predict):
        with pytest.raises(ValueError, match="columns are not those"):
            judged(found.parameters, hashed(SAME["ids in another order"], 4))


def test_external_models() -> None:
    def gradient(*given: Any) -> float:
        given[-1][:] = 0
        return 1.0

    def logits(theta: Any, x: Any, *_: Any) -> Any:
        return x @ theta

    model = lsh.models.external(gradient, dimension=2, features=2, ids=specs(), logits=logits)
    found = train(clicks(), model=model)
    said = model.predict(found.parameters, clicks(), found.tables)
    for same in SAME.values():
        np.testing.assert_array_equal(model.predict(found.parameters, same, found.tables), said)
    for judged in (model.evaluate, model.predict):
        with pytest.raises(ValueError, match=LACKING):
            judged(found.parameters, RENAMED, found.tables)


def test_retrieval() -> None:
    random = np.random.default_rng(0)
    lengths = random.integers(3, 6, 30)
    items = Bags(random.integers(0, 20, lengths.sum()), np.append(0, np.cumsum(lengths)))
    split = lsh.datasets.next_items(items)
    model = lsh.models.youtube_dnn(20, 4, (), negatives=5)
    found = train(split, model=model)
    for judged in (retrieval.evaluate, retrieval.retrieve, retrieval.user_vectors):
        judged(model, found.parameters, split.test, found.tables)
        other = dataclasses.replace(split.test, names=("seen", "chosen"))
        with pytest.raises(ValueError, match="lacks 'history'"):
            judged(model, found.parameters, other, found.tables)
    other = dataclasses.replace(split.test, names=("history", "bought"))
    with pytest.raises(ValueError, match="lacks 'chosen'"):
        retrieval.evaluate(model, found.parameters, other, found.tables)


def test_days(tmp_path: Path) -> None:
    def days(*given: ClickDataset) -> lsh.Continual:
        return lsh.continual(dlrm(), list(given), folder=tmp_path / "run", threads=1, batch_size=8)

    with pytest.raises(ValueError, match=f"day 1: data {LACKING}"):
        days(clicks(), RENAMED)
    found = days(clicks())
    with pytest.raises(ValueError, match=LACKING):
        days(clicks(), RENAMED)
    assert json.loads((tmp_path / "run" / "days.json").read_text())["today"] is None
    with pytest.raises(ValueError, match=LACKING):
        dlrm().predict(found.parameters, RENAMED, found.tables)
    with pytest.raises(ValueError, match=LACKING):  # made when its turn has come
        days(clicks(), lambda: RENAMED)  # type: ignore[arg-type]
    by_name, same = days(clicks(), SAME["both"]), tmp_path / "same"
    other = lsh.continual(dlrm(), [clicks(), clicks()], folder=same, threads=1, batch_size=8)
    np.testing.assert_array_equal(by_name.parameters, other.parameters)
    assert [day.yesterday for day in by_name.days] == [day.yesterday for day in other.days]


def test_a_record_is_made_again_with_the_same_columns_only(tmp_path: Path) -> None:
    trace, model = tmp_path / "run.trace", lsh.models.mlp(2, [3], 2)
    x, y = np.random.default_rng(0).normal(size=(20, 2)), np.arange(20) % 2
    data = Dataset.from_arrays(x, y, names=["a", "b"])
    train(data, model=model, observe=lsh.Observe(record=trace))
    made = lsh.replay(trace, data=data)
    by_name = lsh.replay(trace, data=Dataset.from_arrays(x[:, ::-1], y, names=["b", "a"]))
    np.testing.assert_array_equal(by_name.parameters, made.parameters)
    with pytest.raises(ValueError, match="its data was"):  # other values under these names
        lsh.replay(trace, data=Dataset.from_arrays(x, y, names=["b", "a"]))
    with pytest.raises(ValueError, match="data lacks 'a'"):
        model.evaluate(made.parameters, Dataset.from_arrays(x, y, names=["b", "c"]))


def test_by_a_mode() -> None:
    found = train(clicks(), mode=lsh.modes.ASP())
    with pytest.raises(ValueError, match=LACKING):
        dlrm().predict(found.parameters, RENAMED, found.tables)


def test_names_that_are_none_are_refused() -> None:
    x, y = np.eye(4)[:, :2], [0, 1, 0, 1]
    for names in (["a"], ["a", "a"], "ab", ["a", 1], 7):
        with pytest.raises((TypeError, ValueError), match="names must be"):
            Dataset.from_arrays(x, y, names=names)  # type: ignore[arg-type]
        with pytest.raises((TypeError, ValueError), match="number_names must be"):
            ClickDataset.from_arrays(x, {"id": [0, 1, 2, 3]}, y, number_names=names)  # type: ignore[arg-type]


def test_names_may_be_an_array() -> None:
    data = Dataset.from_arrays(np.eye(2), [0, 1], names=np.array(["a", "b"]))
    assert data.names == ("a", "b")
