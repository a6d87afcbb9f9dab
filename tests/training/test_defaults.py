"""The rule and the end of a training that is told none."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import leashed as lsh
from leashed import cli
from leashed.files.resuming import Kept
from leashed.models import DataNorm, Dense, Graph, Input, ReLU
from leashed.training import defaults
from leashed.training.days import Journal
from leashed.training.defaults import LEAST_UPDATES

CLICKS = {"name": "Adagrad", "lr": 0.02}  # of days, and of what nobody has counted
SELDOM, OFTEN = {**CLICKS, "lr": 0.01}, {**CLICKS, "lr": 0.04}
OTHERS = {"name": "SGD", "lr": 0.05}
COMMON: dict[str, Any] = {"threads": 1}


def part_of(config: dict[str, Any]) -> dict[str, Any]:
    return {name: config["rule"][name] for name in CLICKS}


@pytest.fixture(scope="module")
def data() -> lsh.datasets.ClickDataset:
    return lsh.datasets.synthetic_clicks(3 * LEAST_UPDATES - 1, 0, test=2, cardinalities=30).train


def dlrm(norm: DataNorm | None = None) -> Graph:
    return lsh.models.dlrm(30, 2, bottom=(2,), top=(2,), norm=norm)


def test_models_of_clicks_have_adagrad_and_an_epoch(data: lsh.datasets.ClickDataset) -> None:
    result = lsh.train(dlrm(), data, **COMMON)
    assert part_of(result.config) == SELDOM
    assert all(part_of({"rule": t["rule"]}) == SELDOM for t in result.config["tables"].values())
    assert result.config["batch_size"] == 2
    assert (result.reason, result.total_updates) == ("epochs", len(data) // 2 + 1)
    assert result.total_updates >= LEAST_UPDATES
    few = lsh.train(dlrm(), data[:100], **COMMON)
    assert (few.reason, few.total_updates) == ("epochs", 100)


@pytest.mark.parametrize(
    ("given", "batch_size", "updates"),
    [
        ({"batch_size": 10}, 10, 10),
        ({"until": lsh.until(epochs=3)}, 64, 5),
        ({"until": lsh.until(updates=3), "batch_size": 10}, 10, 3),
    ],
)
def test_what_is_told_is_done(
    given: dict[str, Any], batch_size: int, updates: int, data: lsh.datasets.ClickDataset
) -> None:
    told = lsh.train(dlrm(), data[:100], rule=lsh.SGD(0.1), **given, **COMMON)
    assert told.config["rule"]["name"] == "SGD"
    assert (told.config["batch_size"], told.total_updates) == (batch_size, updates)


def test_what_normalises_by_a_batch_has_one_of_several_rows(
    data: lsh.datasets.ClickDataset,
) -> None:
    result = lsh.train(dlrm(DataNorm()), data[:100], **COMMON)
    assert (result.config["batch_size"], result.total_updates) == (64, 2)
    assert lsh.train(dlrm(DataNorm()), data[:9], **COMMON).config["batch_size"] == 9


def test_of_fewer_rows_than_64_a_batch_has_all() -> None:
    few = lsh.datasets.synthetic_digits().train.head(20)
    model, until = lsh.models.mlp(784, [4], 10), lsh.until(epochs=3)
    result = lsh.train(model, few, until=until, **COMMON)
    assert (result.config["batch_size"], result.total_updates) == (20, 3)
    asp = lsh.train(model, few, until=until, mode=lsh.modes.ASP(), **COMMON)
    assert asp.config["batch_size"] == 20
    cluster = lsh.simulation.constant(2, 1.0)
    played = lsh.simulate(model, few, cluster=cluster, until=until)
    assert played.result.config["batch_size"] == 20
    lsh.simulation.measure(model, few)
    for size in (21, 64, 2**64):
        larger = lsh.train(model, few, until=until, batch_size=size, **COMMON)
        assert (larger.config["batch_size"], larger.total_updates) == (20, 3)
        again = lsh.simulate(model, few, cluster=cluster, until=until, batch_size=size)
        assert again.result.config["batch_size"] == 20


@pytest.mark.parametrize("first", [None, lsh.until(updates=5)])
def test_a_run_goes_on_with_the_batches_that_it_has(
    first: lsh.Until | None, data: lsh.datasets.ClickDataset, tmp_path: Path
) -> None:
    """Those of a run that is told no end are others than those of one that is."""
    folder, then = tmp_path / "run", None if first else lsh.until(updates=200)
    begun = lsh.train(dlrm(), data[:100], until=first, checkpoint=folder, **COMMON)
    result = lsh.train(dlrm(), data[:100], until=then, resume=folder, **COMMON)
    assert result.config["batch_size"] == begun.config["batch_size"] == (64 if first else 1)
    assert result.total_updates == (5 if first else 200)
    with pytest.raises(ValueError, match=f"batch_size was {64 if first else 1} and is 7"):
        lsh.train(dlrm(), data[:100], until=then, resume=folder, batch_size=7, **COMMON)
    with pytest.raises(ValueError, match="the number of examples in data was 100 and is 50"):
        lsh.train(dlrm(), data[:50], until=then, resume=folder, **COMMON)


def test_a_run_in_memory_goes_on_with_the_batches_that_it_has() -> None:
    digits, kept = lsh.datasets.synthetic_digits().train.head(100), Kept()
    model = lsh.models.mlp(784, [4], 10)
    for updates in (2, 4):
        until, size = lsh.until(updates=updates), 7 if updates == 2 else None
        given: dict[str, Any] = {"until": until, "checkpoint": kept, "resume": kept}
        result = lsh.train(model, digits, batch_size=size, **given, **COMMON)
        assert result.config["batch_size"] == 7
    with pytest.raises(ValueError, match="batch_size was 7 and is 14"):
        lsh.train(model, digits, batch_size=14, **given, **COMMON)


def test_days_of_few_rows_are_a_batch_each_and_others_as_they_were(
    data: lsh.datasets.ClickDataset, tmp_path: Path
) -> None:
    days = {"a": data[:40], "b": data[:128], "c": data[128:138]}
    result = lsh.continual(dlrm(), days, folder=tmp_path / "run", **COMMON)
    assert [day.updates for day in result.days] == [1, 3, 4]
    days["d"] = data[:64]
    again = {"folder": tmp_path / "run", **COMMON}
    assert lsh.continual(dlrm(), days, batch_size=64, **again).days[-1].updates == 5
    with pytest.raises(ValueError, match="batch_size was 64 and is 5"):
        lsh.continual(dlrm(), {**days, "e": data[:10]}, batch_size=5, **again)


def test_days_go_on_with_the_batches_of_the_days_before(
    data: lsh.datasets.ClickDataset, tmp_path: Path
) -> None:
    given = {"folder": tmp_path / "run", **COMMON}
    lsh.continual(dlrm(), {"a": data[:40]}, batch_size=10, **given)
    days = {"a": data[:40], "b": data[:40], "c": data[20:28]}
    result = lsh.continual(dlrm(), days, **given)
    assert [day.updates for day in result.days] == [4, 8, 9]
    short = {"batch_size": 10, "folder": tmp_path / "b", **COMMON}
    result = lsh.continual(dlrm(), [data[:40], data[20:28], data[:40]], **short)
    assert [day.updates for day in result.days] == [4, 5, 9]


@pytest.mark.parametrize(("size", "updates"), [(None, [1, 3]), (10, [4, 17])])
def test_a_day_that_was_interrupted_goes_on_with_its_batches_and_a_short_one_is_no_measure_of_the_next(
    data: lsh.datasets.ClickDataset,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    size: int | None,
    updates: list[int],
) -> None:
    def stop(*_: Any) -> None:
        raise RuntimeError("killed")

    given = {"folder": tmp_path / "run", **COMMON}
    with monkeypatch.context() as patched:
        patched.setattr(Journal, "finish", stop)
        with pytest.raises(RuntimeError, match="killed"):
            lsh.continual(dlrm(), {"a": data[:40]}, batch_size=size, **given)
    result = lsh.continual(dlrm(), {"a": data[:40], "b": data[:128]}, **given)
    assert [day.updates for day in result.days] == updates


def test_of_a_stream_it_is_a_pass(tmp_path: Path) -> None:
    path = tmp_path / "rows.tsv"
    path.write_bytes(b"".join(lsh.datasets.synthetic_click_lines(101, 0, cardinalities=20)))
    model = lsh.models.dlrm(None, 2, bottom=(2,), top=(2,))
    result = lsh.train(model, lsh.stream.criteo(path), **COMMON)
    assert part_of(result.config) == SELDOM
    assert (result.reason, result.total_updates) == ("epochs", 101)
    run = tmp_path / "run"
    lsh.continual(model, [lsh.stream.criteo(path)], folder=run, **COMMON)
    days = [lsh.stream.criteo(path)] * 2
    with pytest.raises(ValueError, match="rule was"):
        lsh.continual(model, days, folder=run, rule=lsh.SGD(0.05), **COMMON)
    lsh.continual(model, days, folder=run, rule=lsh.Adagrad(0.02), **COMMON)


def many(rows: int, ids: int) -> dict[str, Any]:
    draw = np.random.default_rng(0)
    numbers = draw.normal(size=rows)
    users = np.arange(rows) % ids
    return {
        "clicked": (numbers + np.sin(users) > 0).astype(int),
        "price": numbers,
        "user_id": users,
    }


@pytest.mark.parametrize(
    ("rows", "ids", "batch", "epochs"),
    [(6000, 50, 3, 2), (6000, 900, 3, 1), (900, 90, 1, 2), (140_000, 13_000, 64, 2)],
)
def test_rows_of_files_have_the_defaults_of_rows_in_memory(
    rows: int, ids: int, batch: int, epochs: int, tmp_path: Path
) -> None:
    pa = pytest.importorskip("pyarrow")
    frame = pa.table(many(rows, ids))
    pytest.importorskip("pyarrow.parquet").write_table(frame, tmp_path / "rows.parquet")
    pytest.importorskip("pyarrow.csv").write_csv(frame, tmp_path / "rows.csv")
    model = lsh.models.dlrm(dim=2, bottom=(2,), top=(2,))
    once = frame.to_reader()
    columns = lsh.stream.infer(frame, label="clicked")
    rule = SELDOM if epochs == 1 else OFTEN
    for data in (frame, tmp_path / "rows.parquet", tmp_path / "rows.csv"):
        config = lsh.train(model, data, label="clicked", **COMMON).config
        assert (config["batch_size"], config["until"]) == (batch, {"epochs": epochs})
        assert part_of(config) == rule
    # Which nobody can count before.
    config = lsh.train(model, lsh.stream.arrow(once, columns), **COMMON).config
    assert (config["batch_size"], config["until"]) == (64, {"epochs": 1})
    assert part_of(config) == CLICKS


def test_so_have_rows_of_numbers_alone(tmp_path: Path) -> None:
    pa = pytest.importorskip("pyarrow")
    frame = pa.table(many(6000, 10)).drop_columns("user_id")
    pytest.importorskip("pyarrow.csv").write_csv(frame, tmp_path / "rows.csv")
    model = lsh.models.dlrm(dim=2, bottom=(2,), top=(2,))
    for data in (frame, tmp_path / "rows.csv"):
        config = lsh.train(model, data, label="clicked", **COMMON).config
        assert (config["batch_size"], config["until"]) == (3, {"epochs": 1})


def test_the_command_line_counts_a_file_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, out = tmp_path / "rows.csv", tmp_path / "out.json"
    pa = pytest.importorskip("pyarrow")
    pytest.importorskip("pyarrow.csv").write_csv(pa.table(many(6000, 50)), path)
    looked, look = [], defaults._look
    monkeypatch.setattr(defaults, "_look", lambda *given: looked.append(1) or look(*given))
    given = ["--model", "wide_deep", "--data", str(path), "--label", "clicked", "--stream"]
    assert cli.main(["train", *given, "--threads", "1", "--output", str(out)]) == 0
    config = json.loads(out.read_text())["config"]
    assert (config["batch_size"], config["until"]) == (3, {"epochs": 2})
    assert part_of(config) == OFTEN
    assert len(looked) == 1


def test_of_a_long_stream_nothing_is_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "rows.csv"
    pa = pytest.importorskip("pyarrow")
    pytest.importorskip("pyarrow.csv").write_csv(pa.table(many(500, 10)), path)
    monkeypatch.setattr(defaults, "LOOKED_AT", 499)
    model = lsh.models.dlrm(dim=2, bottom=(2,), top=(2,))
    config = lsh.train(model, path, label="clicked", **COMMON).config
    assert (config["batch_size"], config["until"]) == (64, {"epochs": 1})
    monkeypatch.setattr(defaults, "LOOKED_AT", 500)
    config = lsh.train(model, path, label="clicked", **COMMON).config
    assert (config["batch_size"], config["until"]) == (1, {"epochs": 2})


def test_virtual_time_has_the_same_rule(data: lsh.datasets.ClickDataset) -> None:
    played = lsh.simulate(
        dlrm(),
        data[:100],
        cluster=lsh.simulation.exponential(2, 1.0),
        until=lsh.until(epochs=1),
        batch_size=2,
    )
    assert part_of(played.result.config) == SELDOM


def test_other_models_have_what_they_had(data: lsh.datasets.ClickDataset) -> None:
    without_tables = Graph(Input(13) >> Dense(2) >> ReLU() >> Dense(1))
    numbers = lsh.datasets.Dataset(data.x, data.y, 2)
    for model in (without_tables, lsh.models.logistic_regression(13)):
        with pytest.raises(TypeError, match=r"until must be leashed\.until"):
            lsh.train(model, numbers, **COMMON)
        result = lsh.train(model, numbers, until=lsh.until(updates=3), **COMMON)
        assert part_of(result.config) == OTHERS


@pytest.mark.parametrize(
    ("arguments", "rule", "updates"),
    [
        ([], SELDOM, 128),
        (["--lr", "0.5"], {"name": "Adagrad", "lr": 0.5}, 128),
        (["--rule", "adagrad", "--updates", "3"], {"name": "Adagrad", "lr": 0.01}, 3),
        (["--rule", "sgd", "--epochs", "2"], OTHERS, 4),
    ],
)
def test_the_command_line_has_the_same(
    arguments: list[str], rule: dict[str, Any], updates: int, tmp_path: Path
) -> None:
    out = tmp_path / "out.json"
    given = ["--model", "wide_deep", "--rows", "128", "--threads", "1", "--output", str(out)]
    assert cli.main(["train", *given, *arguments]) == 0
    told = json.loads(out.read_text())
    assert part_of(told["config"]) == rule
    assert told["total_updates"] == updates


def test_the_command_line_goes_on_with_the_batches_of_then(tmp_path: Path) -> None:
    out, run = tmp_path / "out.json", tmp_path / "run"
    given = ["--model", "wide_deep", "--rows", "128", "--threads", "1", "--output", str(out)]
    assert cli.main(["train", *given, "--checkpoint", str(run)]) == 0
    assert cli.main(["train", *given, "--resume", str(run), "--updates", "200"]) == 0
    told = json.loads(out.read_text())
    assert (told["config"]["batch_size"], told["total_updates"]) == (1, 200)


def test_the_command_line_keeps_what_others_have(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(
        "leashed.datasets.synthetic_digits",
        lambda digits=lsh.datasets.synthetic_digits: digits(n=256, seed=0),
    )
    out = tmp_path / "out.json"
    assert cli.main(["train", "--threads", "1", "--output", str(out)]) == 0
    config = json.loads(out.read_text())["config"]
    assert part_of(config) == OTHERS
    assert config["until"] == {"epochs": 10.0}
    capsys.readouterr()
    with pytest.raises(SystemExit):
        cli.main(["train", "--help"])
    told = " ".join(capsys.readouterr().out.split())
    assert "default: sgd; adagrad of models of clicks" in told
    assert "of models of clicks 0.01, 0.04 if ids come often, 0.02 of days" in told
    assert "default: --epochs 10; of models of clicks, and with --stream, one" in told
    assert "so few that the epoch makes 2,000 updates" in told


@pytest.mark.parametrize(("ids", "passes"), [(100, 2), (101, 1)])
def test_where_ids_come_often_there_are_two_epochs_of_longer_steps(ids: int, passes: int) -> None:
    """1,000 rows: ten for each of 100 ids, of which a tenth is another feature's."""
    one, other = np.arange(1000) % 90, np.arange(1000) % (ids - 90)
    bag = lsh.datasets.Bags(np.arange(1000) * 7 + 2**60, np.arange(1001))
    rows = {"one": one, "other": other + 2**60, "not read": bag}
    data = lsh.datasets.ClickDataset.from_arrays(None, rows, np.arange(1000) % 2)
    model = lsh.models.dlrm([None, None], 2, dense=0, bottom=(2,), top=(2,))
    told = {"batch_size": 100, **COMMON}
    result = lsh.train(model, data, **told)
    assert result.total_updates == 10 * passes
    assert part_of(result.config) == (OFTEN if passes == 2 else SELDOM)
    assert lsh.train(model, data, until=lsh.until(epochs=1), **told).total_updates == 10
