"""``leashed train`` on files that are read while it trains: one after another, or as a stream."""

from __future__ import annotations

import gzip
import json
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import leashed as lsh
from leashed import cli

SCHEMA = {
    "columns": {
        "clicked": {"kind": "label"},
        "price": {"kind": "number", "log": True, "missing": 0},
        "device": {"kind": "vocabulary", "words": ["phone", "tablet"]},
        "city": {"kind": "hashed"},
        "seen": {"kind": "id", "between": " "},
    },
    "separator": ";",
}


@pytest.fixture(scope="module")
def logs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("logs")
    for day in range(3):
        arguments = ["--rows", "300", "--day", str(day), "--cardinality", "50"]
        assert cli.main(["clicks", *arguments, "--output", str(folder / f"day-{day}.tsv.gz")]) == 0
    return folder


@pytest.fixture
def tables(tmp_path: Path) -> tuple[str, str]:
    """A file of CSV, and its schema."""
    random = np.random.default_rng(0)
    lines = ["clicked;price;device;city;seen;unused"]
    for i in range(200):
        clicked, price = i % 3 == 0, random.exponential(9.0)
        seen = " ".join(map(str, random.integers(0, 9, i % 4)))
        lines.append(f"{int(clicked)};{price:.2f};{'phone' if i % 2 else 'tv'};c{i % 7};{seen};x")
    (tmp_path / "rows.csv").write_text("\n".join(lines) + "\n")
    (tmp_path / "schema.json").write_text(json.dumps(SCHEMA))
    return str(tmp_path / "rows.csv"), str(tmp_path / "schema.json")


def train(*arguments: object) -> int:
    return cli.main(["train", "--model", "dlrm", "--threads", "1", *map(str, arguments)])


def test_days_go_on_with_files_that_come(
    logs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run, page, out = tmp_path / "run", tmp_path / "page.html", tmp_path / "out.json"
    common = ["--checkpoint", run, "--rule", "adagrad", "--progressive"]
    assert train("--days", logs / "day-[01].tsv.gz", *common, "--checkpoint-updates", 3) == 0
    told = capsys.readouterr()
    assert told.out.splitlines()[0].startswith("day ")
    assert any("AUC" in line for line in told.err.splitlines())  # beside progress, by the clock
    kept = tmp_path / "kept"
    more = ["--report", page, "--output", out, "--save", kept, "--json-lines"]
    assert train("--days", logs / "day-*.tsv.gz", *common, *more) == 0
    told = capsys.readouterr()
    (line,) = told.out.splitlines()
    days = json.loads(out.read_text())["days"]
    assert json.loads(line) == days[2]
    assert [day["name"] for day in days] == [f"day-{k}.tsv.gz" for k in range(3)]
    assert days[0]["yesterday"] is None
    assert 0.3 < days[2]["yesterday"]["auc"] < 1
    text = page.read_text()
    assert "dlrm, day by day" in text
    assert "day-2.tsv.gz" in text
    whole = lsh.continual(
        lsh.models.dlrm(),
        {path.name: lsh.stream.criteo(path) for path in sorted(logs.glob("day-*"))},
        folder=tmp_path / "python",
        rule=lsh.Adagrad(0.01),
        threads=1,
    )
    np.testing.assert_array_equal(lsh.load(kept).parameters, whole.parameters)
    assert cli.main(["evaluate", str(kept), "--data", str(logs / "day-2.tsv.gz")]) == 0


def test_days_go_on_with_the_columns_that_they_had(
    tables: tuple[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """In whatever order a later day's schema tells them; not with others."""
    rows, schema = tables
    swapped, other = tmp_path / "swapped.json", tmp_path / "more.csv"
    columns = dict(SCHEMA["columns"])  # type: ignore[call-overload]
    city = columns.pop("city")
    swapped.write_text(json.dumps({**SCHEMA, "columns": {**columns, "city": city}}))
    renamed = tmp_path / "renamed.json"
    renamed.write_text(json.dumps({**SCHEMA, "columns": {**columns, "town": city}}))
    other.write_text(Path(rows).read_text())
    towns = tmp_path / "towns.csv"
    towns.write_text(Path(rows).read_text().replace("city", "town", 1))
    for folder in ("same", "swapped"):
        assert train("--days", rows, "--schema", schema, "--checkpoint", tmp_path / folder) == 0
    days, same = ["--days", rows, other, "--checkpoint"], tmp_path / "same"
    capsys.readouterr()
    assert train("--days", rows, towns, "--checkpoint", same, "--schema", renamed) == 2
    assert "city" in capsys.readouterr().err
    assert train(*days, same, "--schema", schema) == 0
    assert train(*days, tmp_path / "swapped", "--schema", swapped) == 0
    one, two = (lsh.load(tmp_path / folder) for folder in ("same", "swapped"))
    np.testing.assert_array_equal(one.parameters, two.parameters)


@pytest.mark.process
def test_days_by_a_mode_go_on_after_a_kill(logs: Path, tmp_path: Path) -> None:
    """With one thread to the bits of a run that nobody killed."""
    arguments = [
        "--days", str(logs / "day-*.tsv.gz"), "--rule", "adagrad", "--batch-size", "4",
        "--mode", "gba:m=3", "--checkpoint-updates", "2",
    ]  # fmt: skip
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    assert train(*arguments, "--checkpoint", whole) == 0
    state = killed / "state" / "manifest.json"
    kills = 0
    for seen in range(20):
        process = subprocess.Popen(
            [sys.executable, "-m", "leashed", "train", "--model", "dlrm", "--threads", "1",
             *arguments, "--checkpoint", str(killed)],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        before = state.read_bytes() if state.exists() else b""
        while process.poll() is None and (not state.exists() or state.read_bytes() == before):
            time.sleep(0.002)
        time.sleep(0.01 * (seen % 5))
        process.kill()
        if process.wait() == 0:
            if kills:
                break
            shutil.rmtree(killed)  # it came to its end before this test saw anything of it
            continue
        assert process.returncode == -signal.SIGKILL
        kills += 1
        if kills == 4:
            assert train(*arguments, "--checkpoint", killed) == 0
            break
    assert kills > 0
    one, other = (lsh.load(folder) for folder in (whole, killed))
    np.testing.assert_array_equal(one.parameters, other.parameters)
    for name, table in one.tables.items():
        assert sorted(table.native.ids()) == sorted(other.tables[name].native.ids())
        ids = np.array(sorted(table.native.ids()), np.uint64)
        np.testing.assert_array_equal(table.lookup(ids), other.tables[name].lookup(ids))


def test_the_folder_of_the_run_is_what_its_last_day_has_led_to(
    logs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = tmp_path / "run"
    assert train("--days", logs / "day-0.tsv.gz", "--checkpoint", run) == 0
    capsys.readouterr()
    for command in ("predict", "evaluate"):
        said = []
        for path in (run, run / "state"):
            assert cli.main([command, str(path), "--data", str(logs / "day-0.tsv.gz")]) == 0
            said.append(capsys.readouterr().out)
        assert said[0] == said[1]
    assert cli.main(["export", str(tmp_path), "--onnx", str(tmp_path / "m.onnx")]) == 2
    assert f"{tmp_path}: has no model itself; name what was saved" in capsys.readouterr().err


def test_a_line_that_is_no_row_is_told_with_the_remedy_of_the_command_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = tmp_path / "day.csv"
    log.write_text("clicked,price\n1,2\n")
    assert train("--days", log, "--checkpoint", tmp_path / "run") == 2
    assert "--bad skip leaves such lines out" in capsys.readouterr().err
    rows = tmp_path / "rows.svm"
    rows.write_text("1 1:1\n0 -1:1\n")
    assert cli.main(["train", "--model", "logistic_regression", "--data", str(rows)]) == 2
    assert "; --stream --bad skip leaves such lines out" in capsys.readouterr().err


def test_a_day_may_be_trained_in_several_passes(logs: Path, tmp_path: Path) -> None:
    updates = []
    for epochs in (1, 2):
        out = tmp_path / f"{epochs}.json"
        days = ["--days", logs / "day-0.tsv.gz", "--checkpoint", tmp_path / str(epochs)]
        assert train(*days, "--epochs", epochs, "--batch-size", 10, "--output", out) == 0
        updates.append(json.loads(out.read_text())["days"][0]["updates"])
    assert updates[1] == 2 * updates[0]


def test_passes_over_days_are_judged_on_the_test_set(
    logs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    days = ["--days", logs / "day-[01].tsv.gz", "--checkpoint", tmp_path / "run"]
    assert train(*days, "--patience", 2) == 2
    assert "--days with --patience takes --test FILE" in capsys.readouterr().err
    words = [*days, "--patience", 2, "--metric", "auc", "--test", logs / "day-2.tsv.gz"]
    assert train(*words) == 0
    criteo = lsh.stream.criteo
    python = lsh.continual(
        lsh.models.dlrm(),
        {path.name: criteo(path) for path in sorted(logs.glob("day-[01]*"))},
        folder=tmp_path / "python",
        until=lsh.until(patience=2, metric="auc"),
        validation=criteo(logs / "day-2.tsv.gz").read(),
        threads=1,
    )
    found = lsh.load(tmp_path / "run")
    np.testing.assert_array_equal(found.parameters, python.parameters)


@pytest.mark.parametrize(
    ("option", "path"),
    [
        ("--save", "run"),
        ("--save", "run/state"),
        ("--output", "run/days.json"),
        ("--report", "run/days.json"),
    ],
)
def test_what_is_saved_lies_apart_from_the_run(
    option: str, path: str, logs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "run").mkdir()
    days = ["--days", logs / "day-0.tsv.gz", "--checkpoint", tmp_path / "run"]
    assert train(*days, option, tmp_path / path) == 2
    assert "; name another" in capsys.readouterr().err
    assert not list((tmp_path / "run").iterdir())


def test_a_day_of_one_class_is_refused(
    logs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    day = tmp_path / "day-1.tsv"
    lines = gzip.decompress((logs / "day-1.tsv.gz").read_bytes()).splitlines(keepends=True)
    day.write_bytes(b"".join(b"0" + line[1:] for line in lines))
    given = ["--days", logs / "day-0.tsv.gz", day, "--checkpoint", tmp_path / "run"]
    assert train(*given, "--click-share", "0,1") == 2
    told = capsys.readouterr().err
    assert (
        "day day-1.tsv: a share of 0 of its rows has label 1, click_share takes more than 0" in told
    )
    assert train(*given, "--click-share", "0.5,1") == 2
    assert "day day-1.tsv" in capsys.readouterr().err
    with pytest.warns(RuntimeWarning, match=r"all rows of day day-1\.tsv have label 0"):
        assert train(*given) == 0
    head, _, first, second = capsys.readouterr().out.splitlines()[:4]
    assert "clicks" in head
    assert "%" in first
    assert " 0% " in second


def test_all_days_are_looked_at_before_the_first(
    logs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    damaged, days = tmp_path / "day-9.tsv", ["--days", logs / "day-0.tsv.gz"]
    damaged.write_text("no row\n")
    run = ["--checkpoint", tmp_path / "run"]
    for more, message in (
        ([damaged], "day-9.tsv: line 1"),
        (["--gauc", "C99"], "has no feature 'C99'"),
        (["--threads", "0"], "threads must be at least 1"),
    ):
        assert train(*days, *more, *run) == 2
        assert message in capsys.readouterr().err
        assert not (tmp_path / "run").exists()
    damaged.write_text("")
    with pytest.warns(RuntimeWarning, match=r"day day-9.tsv has no row, and is passed over"):
        assert train(*days, damaged, *run, "--output", tmp_path / "out.json") == 0
    assert "day-9.tsv" in capsys.readouterr().out
    assert json.loads((tmp_path / "out.json").read_text())["days"][1]["examples"] == 0


def test_a_schema_tells_what_columns_become(
    tables: tuple[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows, schema = tables
    read = ["--schema", schema, "--rule", "adagrad"]
    for how in (
        ["--data", rows],
        ["--data", rows, "--stream", "--test", rows],
        ["--days", rows, "--checkpoint", tmp_path / "run"],
    ):
        kept = tmp_path / f"kept{len(how)}"
        assert train(*how, *read, "--save", kept) == 0
        capsys.readouterr()
        data = ["--data", rows, "--schema", schema]
        assert cli.main(["evaluate", str(kept), *data, "--json"]) == 0
        assert json.loads(capsys.readouterr().out)["examples"] == 200
        assert cli.main(["predict", str(kept), *data, "--rows", "5"]) == 0
        assert len(capsys.readouterr().out.splitlines()) == 5
    kept = lsh.load(kept)
    model, found = kept.model, kept.tables
    assert [found[name].rows for name in found] == [3, None, None]
    assert model.features == 1


def test_rows_are_predicted_part_after_part(
    tables: tuple[str, str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    rows, schema = tables
    read = ["--data", rows, "--schema", schema]
    assert train(*read, "--rule", "adagrad", "--save", tmp_path / "kept") == 0
    told: list[tuple[Any, list[str]]] = []
    for part in (1000, 7):
        monkeypatch.setattr("leashed.training.problems.files._PART", part)
        capsys.readouterr()
        assert cli.main(["evaluate", str(tmp_path / "kept"), *read, "--json"]) == 0
        values = json.loads(capsys.readouterr().out)
        assert cli.main(["predict", str(tmp_path / "kept"), *read, "--rows", "150"]) == 0
        told.append((values, capsys.readouterr().out.splitlines()))
    (whole, said), (parts, said_by_parts) = told
    assert parts == pytest.approx(whole, rel=1e-6)
    assert len(said) == 150
    assert said == said_by_parts


def test_a_stream_is_read_once_and_tells_of_its_lines(
    logs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "rows.tsv"
    whole = lsh.datasets.synthetic_click_lines(200, 0, cardinalities=50, threads=1)
    path.write_bytes(b"".join(whole) + b"no row\n")
    kept = tmp_path / "kept-of-a-day"
    day = ["--data", logs / "day-0.tsv.gz", "--stream", "--rule", "adagrad", "--save", kept]
    assert train(*day) == 0
    assert cli.main(["predict", str(kept), "--data", str(path), "--rows", "3"]) == 0
    assert cli.main(["predict", str(kept), "--data", str(path)]) == 2
    capsys.readouterr()
    out = tmp_path / "out.json"
    common = ["--data", path, "--stream", "--output", out]
    assert train(*common) == 2
    assert "rows.tsv" in capsys.readouterr().err
    assert train(*common, "--bad", "skip", "--test", logs / "day-0.tsv.gz") == 0
    told = capsys.readouterr().out
    assert "200 rows read, 1 bad lines left out" in told
    result = json.loads(out.read_text())
    assert result["examples"] == 200
    assert result["config"]["reading"]["bad"] == 1
    assert 0 < result["validation_auc"][-1] < 1


REFUSED: list[tuple[list[str], str]] = [
    (["--days", "{0}"], "--days takes --checkpoint FOLDER"),
    (["--days", "{0}", "--checkpoint", "x", "--data", "y"], "--data does not go with --days"),
    (["--days", "{0}", "--checkpoint", "x", "--updates", "2"], "a day ends after so many --epochs"),
    (["--days", "{0}", "--checkpoint", "x", "--resume", "y"], "--checkpoint goes on by itself"),
    (["--days", "{0}", "--checkpoint", "x", "--stream"], "--stream goes with --data"),
    (["--days", "{0}", "--checkpoint", "x", "--model", "mlp"], "--days goes with --model dlrm"),
    (["--days", "{0}", "--checkpoint", "x", "--counting", "who"], "counting 'who' is unknown"),
    (["--days", "{0}", "--checkpoint", "x", "--model", "din"], "attends to what was chosen before"),
    (["--days", "none-*.tsv", "--checkpoint", "x"], "no file matches none-*.tsv"),
    (["--days", "{0}", "{0}", "--checkpoint", "x"], "two days are called"),
    (["--stream"], "--stream takes --data FILE"),
    (["--schema", "x"], "--schema goes with --data FILE, or --days"),
    (["--data", "{0}", "--schema", "none.json"], "none.json"),
    (["--model", "mlp", "--stream"], "--stream goes with --model"),
    (["--model", "mlp", "--bad", "skip"], "--bad goes with --model"),
    (["--click-share", "0,1"], "--click-share goes with --days"),
]


@pytest.mark.parametrize(("arguments", "message"), REFUSED)
def test_what_does_not_go_together(
    arguments: list[str],
    message: str,
    logs: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    assert train(*(one.format(logs / "day-0.tsv.gz") for one in arguments)) == 2
    assert message in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


WRONG: list[tuple[Any, str]] = [
    ([], 'it must have {"columns"'),
    ({"columns": {"a": {"kind": "text"}}}, "column 'a' must have a \"kind\", one of label"),
    ({"columns": {"a": {"kind": "id", "base": 8}}}, "column 'a': base must be 10 or 16"),
    ({"columns": {"a": {"kind": "id", "size": 8}}}, "column 'a': .*size"),
    ({"columns": {"a": {"kind": "number"}}}, "one Label"),
    ({**SCHEMA, "header": True}, "it has 'header', and may have columns, separator, names"),
]


@pytest.mark.parametrize(("told", "message"), WRONG)
def test_a_schema_that_is_none_is_told(told: Any, message: str, tmp_path: Path) -> None:
    path = tmp_path / "schema.json"
    path.write_text(json.dumps(told))
    with pytest.raises(ValueError, match=f"cannot read .*schema.json: .*{message}"):
        lsh.stream.schema(path)
    path.write_text("{")
    with pytest.raises(ValueError, match=r"cannot read .*schema\.json"):
        lsh.stream.schema(path)
