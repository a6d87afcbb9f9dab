"""Days that are trained on one after another: what is told of them, where a run goes on, and what is
refused.
"""

from __future__ import annotations

import dataclasses
import json
import math
import os
import signal
import subprocess
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from continual_kills import write_days
from table_files import rows_in
from warned import once

import leashed as lsh
from leashed.base.table import found
from leashed.files import folders
from leashed.models import BatchNorm, DataNorm, Dense, Graph, Input
from leashed.report import days as report
from leashed.training.days import Journal

BATCH = 16
COMMON: dict[str, Any] = {"rule": lsh.Adam(0.01), "threads": 1, "batch_size": BATCH}
KILLS = Path(__file__).parents[1] / "continual_kills.py"


def dlrm(**settings: Any) -> Graph:
    return lsh.models.dlrm(None, 4, bottom=(8, 4), top=(8,), **settings)


@pytest.fixture(scope="module")
def paths(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Three days, of 320, 327 and 334 rows: the first is whole batches."""
    return write_days(tmp_path_factory.mktemp("days"), 3, 320)


def days_of(paths: list[Path]) -> dict[str, lsh.stream.Stream]:
    return {path.name: lsh.stream.criteo(path) for path in paths}


def as_they_are(paths: Any) -> lsh.stream.Stream:
    """Criteo's rows, with numbers that a day's beginning does not scale anew."""
    columns = {
        name: dataclasses.replace(column, scale=None)
        if isinstance(column, lsh.stream.Number)
        else column
        for name, column in lsh.stream.criteo(paths).schema.items()
    }
    return lsh.stream.csv(paths, columns, separator="\t", names=tuple(columns))


def run(paths: list[Path], folder: Path, **given: Any) -> lsh.Continual:
    model = given.pop("model", None)
    return lsh.continual(
        dlrm() if model is None else model, days_of(paths), folder=folder, **{**COMMON, **given}
    )


def rows_of(tables: dict[str, lsh.Table], scratch: Path) -> list[Any]:
    found = []
    for table in tables.values():
        table.save(scratch)
        found.append(rows_in(scratch))
    return found


@pytest.mark.parametrize("norm", [None, DataNorm()], ids=["plain", "data norm"])
def test_two_days_are_one_pass_over_both(norm: Any, paths: list[Path], tmp_path: Path) -> None:
    model = dlrm(norm=norm)
    both = lsh.train(model, as_they_are(paths[:2]), until=lsh.until(epochs=1), **COMMON)
    result = lsh.continual(
        model,
        [as_they_are(path) for path in paths[:2]],
        folder=tmp_path / "run",
        checkpoint=lsh.Checkpoint(updates=7),
        **COMMON,
    )
    np.testing.assert_array_equal(result.parameters, both.parameters)
    np.testing.assert_array_equal(result.statistics, both.statistics)
    assert rows_of(result.tables, tmp_path / "rows") == rows_of(both.tables, tmp_path / "rows")
    assert [day.updates for day in result.days] == [20, 41]
    assert [day.examples for day in result.days] == [320, 327]


def test_each_day_is_predicted_by_the_model_of_the_day_before(
    paths: list[Path], tmp_path: Path
) -> None:
    model = dlrm()
    told = run(
        paths, tmp_path / "run", model=model, observe=lsh.Observe(metrics=lsh.metrics.progressive())
    ).days
    assert told[0].yesterday is None
    for k in (1, 2):
        before = run(paths[:k], tmp_path / f"until{k}", model=model)
        data = lsh.datasets.criteo(paths[k])
        found = model.evaluate(before.parameters, data, before.tables)
        scored = told[k].yesterday
        assert scored is not None
        assert scored.rows == len(data)
        assert scored.auc == pytest.approx(found.auc)
        assert scored.log_loss == pytest.approx(found.loss, rel=1e-6)
        assert scored.normalised_entropy == pytest.approx(found.normalised_entropy, rel=1e-6)
        assert told[k].progressive is not None
        assert told[k].progressive.rows == len(data)
    tables = run(paths, tmp_path / "run", model=model).tables
    assert told[2].rows == sum(map(len, rows_of(tables, tmp_path / "rows")))


def test_settings_are_those_of_the_last_training(paths: list[Path], tmp_path: Path) -> None:
    trained = run(paths[:2], tmp_path / "run")
    assert trained.settings["rule"]["name"] == "Adam"
    assert trained.settings["batch_size"] == BATCH
    assert trained.model.settings == trained.settings
    again = run(paths[:2], tmp_path / "run")  # which trains nothing
    for name in ("rule", "batch_size", "data", "until"):
        assert again.settings[name] == trained.settings[name]
    trained.model.save(tmp_path / "kept")
    assert lsh.load(tmp_path / "kept").settings["rule"] == trained.settings["rule"]


def test_a_day_may_be_trained_in_several_passes(paths: list[Path], tmp_path: Path) -> None:
    one, two = (
        run(paths[:1], tmp_path / str(n), until=lsh.until(epochs=n)).days[0] for n in (1, 2)
    )
    assert (one.updates, two.updates) == (20, 40)
    assert one.best is two.best is None


def test_a_day_keeps_what_those_who_looked_on_found(paths: list[Path], tmp_path: Path) -> None:
    told = run(paths, tmp_path, observe=lsh.Observe(counting=["gradient_norms"])).days
    assert all(0 < d.observed["gradient_norm"] <= d.observed["largest_gradient_norm"] for d in told)
    assert run(paths, tmp_path).days == told
    header, rows = report.table(told)
    assert header[-2:] == ["gradient norm", "largest gradient norm"]
    assert rows[0][-2:] == [found(value) for value in told[0].observed.values()]
    others = report.table([dataclasses.replace(told[0], observed={}), told[1]])
    assert others.rows[0][-2:] == ["–", "–"]
    assert f"gradient_norm {found(told[1].observed['gradient_norm'])}" in report.line(told[1])


def test_it_goes_on_with_days_that_come(paths: list[Path], tmp_path: Path) -> None:
    whole = run(paths, tmp_path / "whole")
    finished: list[str] = []
    for some in (paths[:1], paths[:2], paths[:2], paths[2:]):  # those done may be left out
        later = run(some, tmp_path / "run", finished=lambda day: finished.append(day.name))
    assert finished == [path.name for path in paths]
    assert later.outcome == whole.outcome == "done"
    assert [day.yesterday for day in later.days] == [day.yesterday for day in whole.days]
    np.testing.assert_array_equal(later.parameters, whole.parameters)
    assert rows_of(later.tables, tmp_path / "rows") == rows_of(whole.tables, tmp_path / "rows")


def test_days_in_memory_and_made_when_they_are_due(tmp_path: Path) -> None:
    train, _ = lsh.datasets.synthetic_clicks(900, 0, test=10, days=3, cardinalities=50)
    parts = [train[:300], train[300:600], train[600:]]
    made: list[int] = []

    def maker(k: int) -> Any:
        return lambda: (made.append(k), parts[k])[1]

    model = lsh.models.dlrm(50, 4, bottom=(8, 4), top=(8,))
    metrics = lsh.metrics.progressive(gauc=train.names[0])
    given = {"folder": tmp_path / "run", **COMMON, "observe": lsh.Observe(metrics=metrics)}
    lsh.continual(model, [maker(0), maker(1)], **given)
    result = lsh.continual(model, (maker(k) for k in range(3)), **given)
    assert made == [0, 1, 2]
    assert [day.name for day in result.days] == ["0", "1", "2"]
    assert result.days[2].yesterday is not None
    assert result.days[2].yesterday.users > 0
    assert result.days[2].progressive is not None
    assert result.days[2].progressive.users > 0


def test_several_threads(paths: list[Path], tmp_path: Path) -> None:
    result = run(paths, tmp_path / "run", threads=3, checkpoint=lsh.Checkpoint(updates=5))
    assert [day.examples for day in result.days] == [320, 327, 334]
    assert result.days[-1].updates == 62


@pytest.mark.process(1)
@pytest.mark.parametrize(
    "options",
    [["--stream"], ["--incremental"], ["--stream", "--incremental"]],
    ids=lambda options: "-".join(option.strip("-") for option in options),
)
def test_kills_at_random_moments_change_no_bit(options: list[str]) -> None:
    command = [sys.executable, KILLS, "--kills", "4", "--rows", "400", *options]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)
    assert ended.returncode == 0, ended.stderr
    assert "the same bits" in ended.stdout


@pytest.mark.process
def test_kills_between_steps_of_writing_change_no_bit_and_leave_no_file() -> None:
    options = ["--days", "2", "--kills", "7", "--rows", "330", "--stream", "--incremental"]
    command = [sys.executable, KILLS, "--steps", *options]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)
    assert ended.returncode == 0, ended.stderr
    assert "the same bits" in ended.stdout


def test_what_a_killed_process_was_writing_goes(
    paths: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "run"
    folder.mkdir()
    left = [folder / ".days.json.17.1234", folder / ".state.safetensors.17.1234"]
    for done in (paths[:1], paths[:2]):
        for path in left:
            path.touch()
        die_before_the_journal_s_line(monkeypatch, done, folder)
        for path in left:
            path.touch()
        run(done, folder)
        assert {path.name for path in folder.iterdir()} == {"days.json", "state"}


def test_ctrl_c_keeps_what_was_reached(paths: list[Path], tmp_path: Path) -> None:
    folder = tmp_path / "run"
    begun = False

    def stop(name: str, now: lsh.Progress) -> None:
        nonlocal begun
        if name == paths[1].name and now.updates > 20 and not begun:
            begun = True
            os.kill(os.getpid(), signal.SIGINT)

    cut = run(paths, folder, observe=lsh.Observe(stop, every=0.001))
    if begun:
        assert cut.outcome == "interrupted"
        assert len(cut.days) == 1
    again = run(paths, folder)
    assert again.outcome == "done"
    np.testing.assert_array_equal(again.parameters, run(paths, tmp_path / "whole").parameters)


@pytest.mark.parametrize("made_before", [False, True])
def test_ctrl_c_while_a_day_is_looked_at_keeps_what_was_reached(
    made_before: bool, paths: list[Path], tmp_path: Path
) -> None:
    def interrupting() -> Any:
        signal.raise_signal(signal.SIGINT)

    model = dlrm()
    days: dict[str, Any] = {paths[0].name: lsh.stream.criteo(paths[0])} if made_before else {}
    cut = lsh.continual(model, {**days, "second": interrupting}, folder=tmp_path / "run", **COMMON)
    assert cut.outcome == "interrupted"
    assert [day.name for day in cut.days] == list(days)
    expected = (
        run(paths[:1], tmp_path / "whole", model=model).parameters if made_before else model.init(0)
    )
    np.testing.assert_array_equal(cut.parameters, expected)


@pytest.mark.filterwarnings("ignore:the training crashed:RuntimeWarning")
def test_a_crash_leaves_the_state_of_before(paths: list[Path], tmp_path: Path) -> None:
    given = {"rule": lsh.SGD(lsh.schedules.step(0.01, every=25, factor=1e30))}
    first = run(paths[:1], tmp_path / "run", **given)
    result = run(paths, tmp_path / "run", **given)
    assert result.outcome == "crashed"
    assert len(result.days) == 1
    np.testing.assert_array_equal(result.parameters, first.parameters)
    assert rows_of(result.tables, tmp_path / "rows") == rows_of(first.tables, tmp_path / "rows")


def test_a_day_whose_end_cannot_be_written_is_not_done(
    paths: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(paths[:1], tmp_path / "run")

    def fail(*_: Any, **__: Any) -> None:
        raise OSError("no space left")

    with monkeypatch.context() as patch:
        patch.setattr(folders, "write", fail)
        with (
            pytest.warns(RuntimeWarning, match="no checkpoint was written"),
            pytest.raises(OSError, match="its end could not be written; call again"),
        ):
            run(paths, tmp_path / "run")
    result = run(paths, tmp_path / "run")
    np.testing.assert_array_equal(result.parameters, run(paths, tmp_path / "whole").parameters)


def test_what_no_day_can_be_told_from_is_refused(paths: list[Path], tmp_path: Path) -> None:
    folder = tmp_path / "run"
    days = days_of(paths)
    model = dlrm()

    def refused(error: type[Exception], message: str, *arguments: Any, **given: Any) -> None:
        with pytest.raises(error, match=message):
            lsh.continual(*arguments, **{"folder": folder, **COMMON, **given})

    refused(TypeError, "days must be several", model, lsh.stream.criteo(paths[0]))
    refused(TypeError, "days must be streams or data sets", model, ["day-0.tsv"])
    refused(ValueError, "days must be one at least", model, [])
    with paths[0].open("rb") as file:
        refused(ValueError, "can be read once", model, [lsh.stream.criteo(file)])
    refused(TypeError, "model must be a graph", lsh.models.mlp(2, [2], 2), days)
    margins = Graph(lsh.models.Input(13) >> lsh.models.Dense(1), loss="hinge")
    refused(ValueError, "model must have one output and the loss log_loss", margins, days)
    users = lsh.metrics.progressive(gauc=np.zeros(3, np.int64))
    refused(TypeError, "gauc must name a feature", model, days, observe=lsh.Observe(metrics=users))
    refused(FileExistsError, "no days.json; name a new one", model, days, folder=paths[0].parent)
    refused(NotADirectoryError, "is a file", model, days, folder=paths[0])
    assert not folder.exists()


def test_another_run_in_the_folder_is_refused(paths: list[Path], tmp_path: Path) -> None:
    folder = tmp_path / "run"

    class Enough(Exception):
        pass

    def stop(_: str, now: lsh.Progress) -> None:
        if now.updates > 25:
            raise Enough

    run(paths[:1], folder)
    with pytest.raises(ValueError, match="rule was"):
        run(paths, folder, rule=lsh.Adam(0.02))
    with pytest.raises(Enough):
        run(
            paths,
            folder,
            observe=lsh.Observe(stop, every=0.001),
            checkpoint=lsh.Checkpoint(updates=2),
        )
    with pytest.raises(
        ValueError, match=r"day day-1.tsv is under way .* before day-2.tsv; give it"
    ):
        run([paths[0], paths[2]], folder)
    journal = folder / "days.json"
    text = journal.read_text()
    for damaged, message in (
        (text[:-20], "cannot read .*days.json"),
        (
            text.replace('"version": 2', '"version": 3'),
            "version is 3, this release reads up to 2; upgrade",
        ),
        (text.replace('"today"', '"tomorrow"'), "it lacks 'today'"),
        (text.replace('"begun_at": 20', '"begun_at": 300'), "use a whole copy of the folder"),
    ):
        journal.write_text(damaged)
        with pytest.raises(ValueError, match=message):
            run(paths, folder)
    journal.write_text(text)
    (folder / "state").rename(folder / "elsewhere")
    with pytest.raises(
        ValueError, match=r"has 0 updates, but day day-1.tsv began at 20; use a whole"
    ):
        run(paths, folder)
    (folder / "elsewhere").rename(folder / "state")
    assert run(paths, folder).outcome == "done"
    (folder / "state").rename(folder / "elsewhere")
    with pytest.raises(ValueError, match="use a whole copy of the folder"):
        run(paths, folder)


def another_schema(path: Path) -> lsh.stream.Stream:
    path.write_text("y;x\n1;2\n")
    columns = {"y": lsh.stream.Label(), "x": lsh.stream.Number()}
    return lsh.stream.csv(path, columns, separator=";")


def gone(path: Path) -> lsh.stream.Stream:
    path.touch()
    stream = lsh.stream.criteo(path)
    path.unlink()
    return stream


def second_gone(path: Path) -> lsh.stream.Stream:
    path.touch()
    first = path.with_name("first.tsv")
    first.write_bytes(
        b"".join(lsh.datasets.synthetic_click_lines(20, 3, cardinalities=9, threads=1))
    )
    stream = lsh.stream.criteo([first, path])
    path.unlink()
    return stream


def damaged(path: Path) -> lsh.stream.Stream:
    path.write_text("no row\n")
    return lsh.stream.criteo(path)


@pytest.mark.parametrize(
    ("made", "message"),
    [
        (another_schema, "day last: data lacks 'I1', 'I2'"),
        (gone, "No such file.*last.tsv"),
        (second_gone, "No such file.*last.tsv"),
        (damaged, "last.tsv: line 1: 1 fields"),
        (str, "day last is str"),
    ],
    ids=["schema", "gone", "one of two gone", "damaged", "none"],
)
@pytest.mark.parametrize("done", [0, 1])
def test_days_are_looked_at_before_the_first_is_scored_or_trained(
    done: int, made: Callable[[Path], Any], message: str, paths: list[Path], tmp_path: Path
) -> None:
    folder = tmp_path / "run"
    if done:
        run(paths[:1], folder)
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    days = {**days_of(paths), "last": made(tmp_path / "last.tsv")}
    with pytest.raises((TypeError, ValueError, OSError), match=message):
        lsh.continual(dlrm(), days, folder=folder, **COMMON)
    assert {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()} == before
    assert folder.exists() == bool(done)
    assert [day.examples for day in run(paths, folder).days] == [320, 327, 334]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"rule": lsh.Adam(0.02)}, "rule was"),
        ({"seed": 1}, "seed was 0 and is 1"),
        ({"batch_size": 8}, "batch_size was"),
        ({"batch_size": 0}, "batch_size must be at least 1"),
        ({"model": dlrm(norm=DataNorm())}, "another model"),
        ({"threads": 0}, "threads must be at least 1"),
        ({"threads": "auto"}, "threads"),
        ({"discipline": 3}, "discipline"),
        ({"staleness": 3}, "staleness"),
        ({"init": "she"}, "init"),
        ({"checkpoint": lsh.Checkpoint(updates=3, every=2.0)}, "give one"),
        ({"checkpoint": lsh.Checkpoint("elsewhere")}, "checkpoint.path must be left out"),
        ({"observe": 3}, "observe must be"),
        ({"observe": lsh.Observe(record="trace")}, "observe.record is of one training"),
        ({"init": np.zeros(3)}, "init must be by name"),
        ({"finished": 3}, "finished must be callable"),
        ({"observe": lsh.Observe(metrics=lsh.metrics.progressive(gauc="C99"))}, "no feature 'C99'"),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, dict) else "",
)
def test_a_refusal_comes_before_a_day_is_scored_and_costs_nothing(
    given: dict[str, Any],
    message: str,
    paths: list[Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    folder = tmp_path / "run"
    run(paths[:1], folder)
    journal = (folder / "days.json").read_bytes()
    with monkeypatch.context() as patch:
        patch.setattr(Graph, "logits", None)
        with pytest.raises((TypeError, ValueError), match=message):
            run(paths, folder, **given)
    assert (folder / "days.json").read_bytes() == journal


def test_a_day_made_when_it_is_due_is_looked_at_before_it_is_scored(
    paths: list[Path], tmp_path: Path
) -> None:
    days = {
        "0": lsh.stream.criteo(paths[0]),
        "1": lambda: another_schema(tmp_path / "rows.csv"),
        "2": lsh.stream.criteo(paths[2]),
    }
    with pytest.raises(ValueError, match="day 1: data lacks 'I1', 'I2'"):
        lsh.continual(dlrm(), days, folder=tmp_path / "run", **COMMON)
    journal = Journal(tmp_path / "run" / "days.json")
    assert [day.name for day in journal.done] == ["0"]
    assert journal.today is None


@pytest.mark.parametrize("how", ["stream", "bad lines", "memory"])
def test_a_day_without_a_row_is_passed_over(how: str, paths: list[Path], tmp_path: Path) -> None:
    empty = tmp_path / "empty.tsv"
    empty.write_text("no row\n" if how == "bad lines" else "")

    def nothing() -> Any:
        if how == "memory":
            return lambda: lsh.datasets.criteo(empty)
        return lsh.stream.criteo(empty, bad="skip")

    first, *others = days_of(paths).items()
    days = dict([("a", nothing()), first, ("b", nothing()), *others, ("c", nothing())])
    folder, told = tmp_path / "run", []

    def finished(day: lsh.Day) -> None:
        told.append(day.name)

    with once("day a has no row, and is passed over"):
        begun = lsh.continual(dlrm(), {"a": nothing()}, folder=folder, **COMMON)
    np.testing.assert_array_equal(begun.parameters, dlrm().init(0))
    with once("day b has no row", "day c has no row"):
        result = lsh.continual(dlrm(), days, folder=folder, **COMMON, finished=finished)
    assert [day.examples for day in result.days] == [0, 320, 0, 327, 334, 0]
    assert [day.updates for day in result.days] == [0, 20, 20, 41, 62, 62]
    bad = int(how == "bad lines")
    assert [day.bad for day in result.days] == [bad, 0, bad, 0, 0, bad]
    for day in (result.days[0], result.days[2], result.days[5]):
        assert math.isnan(day.loss)
        assert math.isnan(day.eps)
        assert day.yesterday is None
    assert result.days[2].rows == result.days[1].rows
    assert result.days[5].rows == result.days[4].rows
    whole = run(paths, tmp_path / "whole")
    np.testing.assert_array_equal(result.parameters, whole.parameters)
    assert rows_of(result.tables, tmp_path / "rows") == rows_of(whole.tables, tmp_path / "rows")
    scored = [day.yesterday for day in result.days if day.examples]
    assert scored == [day.yesterday for day in whole.days]
    assert told == [day.name for day in result.days[1:]]
    again = lsh.continual(dlrm(), days, folder=folder, **COMMON)
    np.testing.assert_array_equal(again.parameters, whole.parameters)


def test_a_day_under_way_that_has_lost_its_rows_is_refused(
    paths: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, day = tmp_path / "run", tmp_path / "day.tsv"
    day.write_bytes(paths[0].read_bytes())
    die_before_the_journal_s_line(monkeypatch, [day], folder)
    day.write_text("")
    with pytest.raises(ValueError, match=r"day day.tsv is under way .* has no row any more"):
        run([day], folder)


class Killed(Exception):
    pass


def die_before_the_journal_s_line(
    monkeypatch: pytest.MonkeyPatch, paths: list[Path], folder: Path, **given: Any
) -> None:
    """The last of the days is trained on, and its state written."""
    finish = Journal.finish

    def die(journal: Journal, day: Any) -> None:
        if day.name == paths[-1].name:
            raise Killed
        finish(journal, day)

    with monkeypatch.context() as patch:
        patch.setattr(Journal, "finish", die)
        with pytest.raises(Killed):
            run(paths, folder, **given)


@pytest.mark.parametrize("updates", [None, 7])
def test_after_a_kill_before_the_journal_s_line_what_was_not_measured_is_null(
    updates: int | None, paths: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, given = tmp_path / "run", {"checkpoint": lsh.Checkpoint(updates=updates)}
    die_before_the_journal_s_line(monkeypatch, paths[:2], folder, **given)
    result = run(paths, folder, **given)
    whole = run(paths, tmp_path / "whole", **given)
    written = json.loads((folder / "days.json").read_text())["done"]
    assert written[1]["loss"] is None
    assert written[1]["eps"] is None
    assert [day["examples"] for day in written] == [320, 327, 334]
    assert "EPS" not in report.line(result.days[1])
    for day in (written[0], written[2]):
        assert day["loss"] > 0
        assert day["eps"] > 0
    assert [day.yesterday for day in result.days] == [day.yesterday for day in whole.days]
    assert [day.rows for day in result.days] == [day.rows for day in whole.days]
    np.testing.assert_array_equal(result.parameters, whole.parameters)
    assert rows_of(result.tables, tmp_path / "rows") == rows_of(whole.tables, tmp_path / "rows")


def of_one_class(path: Path, label: int) -> Path:
    lines = path.read_text().splitlines()
    path.write_text("".join(f"{label}{line[1:]}\n" for line in lines))
    return path


@pytest.mark.parametrize("label", [0, 1])
@pytest.mark.parametrize("at", [0, 1])
def test_a_day_of_one_class_is_told_of_once(label: int, at: int, tmp_path: Path) -> None:
    paths = write_days(tmp_path, 3, 320)
    of_one_class(paths[at], label)
    with once(f"all rows of day day-{at}.tsv have label {label}, and a model") as warned:
        result = run(paths, tmp_path / "run")
    assert "--click-share 0,1" in str(warned[0].message)
    labels = [lsh.datasets.criteo(path).y for path in paths]
    assert [day.click_share for day in result.days] == pytest.approx([y.mean() for y in labels])
    run(paths, tmp_path / "run")  # (a warning would be an error)


@pytest.mark.parametrize("label", [0, 1])
@pytest.mark.parametrize("at", [0, 1])
def test_a_day_of_one_class_is_refused_before_it_is_trained_on(
    label: int, at: int, paths: list[Path], tmp_path: Path
) -> None:
    whole = run(paths, tmp_path / "whole")
    wrong = write_days(tmp_path, 3, 320)
    folder = tmp_path / "run"
    of_one_class(wrong[at], label)
    message = f"day day-{at}.tsv: a share of {label} of its rows has label 1, click_share takes more than 0 "
    for _ in range(2):
        with pytest.raises(ValueError, match=message):
            run(wrong, folder, click_share=(0, 1))
    journal = Journal(folder / "days.json")
    assert [day.name for day in journal.done] == [path.name for path in wrong[:at]]
    assert journal.today is None
    wrong[at].write_bytes(paths[at].read_bytes())  # mended
    result = run(wrong, folder, click_share=(0, 1))
    np.testing.assert_array_equal(result.parameters, whole.parameters)
    assert [day.yesterday for day in result.days] == [day.yesterday for day in whole.days]


def test_a_bound_of_clicks_is_of_what_rows_weigh(tmp_path: Path) -> None:
    train, _ = lsh.datasets.synthetic_clicks(300, 0, test=10, cardinalities=50)
    weights = np.where(train.y == 1, 1.0, 50.0)
    data = lsh.datasets.ClickDataset.from_arrays(train.x, train.ids, train.y, weights=weights)
    share = float(weights[train.y == 1].sum() / weights.sum())
    model = lsh.models.dlrm(50, 4, bottom=(8, 4), top=(8,))
    given: dict[str, Any] = {"folder": tmp_path / "run", **COMMON}
    with pytest.raises(ValueError, match=r"takes more than 0\.2 and less than 0\.5"):
        lsh.continual(model, [data], click_share=(0.2, 0.5), **given)
    result = lsh.continual(model, [data], click_share=(0.5 * share, 2 * share), **given)
    assert result.days[0].click_share == pytest.approx(share)
    for wrong, error in (((0.5, 0.5), ValueError), ((-0.1, 1), ValueError), (0.5, TypeError)):
        with pytest.raises(error, match="click_share must"):
            lsh.continual(model, [data], click_share=wrong, **given)  # type: ignore[arg-type]


def test_a_day_of_which_more_came_is_told_of_once(tmp_path: Path) -> None:
    paths, folder = write_days(tmp_path, 3, 320), tmp_path / "run"
    wholes = [path.read_bytes() for path in paths]
    for path, content in zip(paths, wholes, strict=True):
        path.write_bytes(b"".join(content.splitlines(keepends=True)[:100]))
    run(paths[:2], folder)
    for path, content in zip(paths, wholes, strict=True):
        path.write_bytes(content)
    with once("the files of day day-0.tsv and 1 more have been written to") as warned:
        result = run(paths, folder)
    assert "give these as a day of their own, or train anew" in str(warned[0].message)
    assert [day.changed for day in result.days] == [True, True, False]
    assert [day.examples for day in result.days] == [100, 100, 334]
    assert result.days[2].files[0].bytes == len(wholes[2])
    paths[1].unlink()
    run(paths[:1], folder)
    moved = tmp_path / "moved"
    moved.mkdir()
    paths[2].rename(moved / paths[2].name)
    run([moved / paths[2].name], folder)


@pytest.mark.parametrize("how", ["same bytes", "made when due", "another file", "empty"])
def test_whatever_comes_of_a_day_that_is_done(how: str, tmp_path: Path) -> None:
    path, more = tmp_path / "a-0.tsv", tmp_path / "a-1.tsv"
    content = write_days(tmp_path, 1, 320)[0].read_bytes()
    path.write_bytes(b"" if how == "empty" else content)

    def day() -> Any:
        if how == "made when due":
            return lambda: lsh.stream.criteo(path)
        return lsh.stream.criteo(str(tmp_path / "a-*.tsv"))

    given: dict[str, Any] = {"folder": tmp_path / "run", **COMMON}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        lsh.continual(dlrm(), {"a": day()}, **given)
    if how == "another file":
        more.write_bytes(content)
    elif how == "same bytes":
        os.utime(path, ns=(0, 10**18))
    else:
        path.write_bytes(content + content)
    with pytest.warns(RuntimeWarning, match="the files of day a have been written to"):
        lsh.continual(dlrm(), {"a": day()}, **given)


def test_a_day_of_which_more_comes_while_it_is_trained_on_is_told_of(tmp_path: Path) -> None:
    (path,) = write_days(tmp_path, 1, 320)

    def append(_: str, now: lsh.Progress) -> None:
        assert now.updates >= 0
        with path.open("ab") as file:
            file.write(b"1" + b"\t" * 39 + b"\n")

    with once("the files of day day-0.tsv have been written to since they were read"):
        result = run([path], tmp_path / "run", observe=append)
    assert result.days[0].changed
    run([path], tmp_path / "run")


def test_a_day_whose_files_changed_before_its_first_update_is_begun_anew(
    paths: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine, folder = write_days(tmp_path, 2, 320), tmp_path / "run"
    run(mine[:1], folder)
    whole = mine[1].read_bytes()
    mine[1].write_bytes(b"".join(whole.splitlines(keepends=True)[:50]))

    def die(*_: Any, **__: Any) -> None:
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr("leashed.training.continual.train", die)
        with pytest.raises(Killed):
            run(mine, folder)
    mine[1].write_bytes(whole)
    result = run(mine, folder)
    assert result.days[1].yesterday == run(paths[:2], tmp_path / "whole").days[1].yesterday
    assert result.days[1].examples == 327


def test_a_journal_of_before_is_read(paths: list[Path], tmp_path: Path) -> None:
    folder = tmp_path / "run"
    run(paths[:1], folder)
    journal = folder / "days.json"
    told = json.loads(journal.read_text())
    for name in ("click_share", "files", "changed"):
        del told["done"][0][name]
    journal.write_text(json.dumps({**told, "version": 1}))
    result = run(paths, folder)
    assert [day.examples for day in result.days] == [320, 327, 334]
    assert math.isnan(result.days[0].click_share)
    assert result.days[0].files == ()


def test_the_loss_of_a_day_is_the_mean_over_its_rows(paths: list[Path], tmp_path: Path) -> None:
    result = run(paths, tmp_path / "run", observe=lsh.Observe(metrics=lsh.metrics.progressive()))
    for day in result.days:
        assert day.progressive is not None
        assert day.loss == pytest.approx(day.progressive.log_loss, rel=1e-6)
    written = json.loads((tmp_path / "run" / "days.json").read_text())["done"]
    assert [day["loss"] for day in written] == [day.loss for day in result.days]
    assert [day["loss"] for day in result.config()["days"]] == [day.loss for day in result.days]


def test_a_journal_tells_what_is_not_finite(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "days.json")
    nan = float("nan")
    values = lsh.metrics.Values(3, nan, nan, 0.5, nan, 1.0)
    day = lsh.Day("a", "clicks", 3, 0, 1, nan, values, None, 0.1, 30.0, 0)
    journal.finish(day)
    (again,) = Journal(tmp_path / "days.json").done
    assert repr(again) == repr(day)


def numbers(folder: Path, *days: str) -> dict[str, lsh.stream.Stream]:
    """Days of rows "label,number,number"."""
    number = lsh.stream.Number(scale=None)
    columns = {"y": lsh.stream.Label(), "a": number, "b": number}
    made = {}
    for k, rows in enumerate(days):
        path = folder / f"day{k}.csv"
        if not path.exists():
            path.write_text("y,a,b\n" + rows)
        made[path.name] = lsh.stream.csv(path, columns)
    return made


def test_a_day_that_is_a_frame_is_refused_with_the_remedy(tmp_path: Path) -> None:
    frame = pytest.importorskip("pyarrow").table({"clicked": [0, 1], "user_id": [1, 2]})
    with pytest.raises(TypeError, match=r"day a is Table; give leashed\.stream\.table\(day, col"):
        lsh.continual(dlrm(), {"a": frame}, folder=tmp_path / "run", **COMMON)


def test_a_day_whose_squares_leave_the_range_of_floats_is_got_past(tmp_path: Path) -> None:
    """Of a gradient of 10²⁰ the square is infinite; parameters are not."""
    rows = "".join(f"{k % 2},{k % 7 - 3},{1e20 * (k % 2)}\n" for k in range(64))
    model = Graph(Input(2) >> Dense(1))
    given: dict[str, Any] = {**COMMON, "rule": lsh.Adagrad(0.05), "folder": tmp_path / "run"}
    with once("1 of 3 parameters of graph stand still"):
        result = lsh.continual(model, numbers(tmp_path, rows, rows), **given)
    assert result.outcome == "done"
    assert [day.updates for day in result.days] == [4, 8]
    result = lsh.continual(model, numbers(tmp_path, rows, rows, rows), **given)
    assert [day.updates for day in result.days] == [4, 8, 12]


def test_a_day_whose_last_update_is_infinite_has_crashed(tmp_path: Path) -> None:
    """Of a stream nobody evaluates what it leads to."""
    model = Graph(Input(2) >> Dense(1))
    given: dict[str, Any] = {**COMMON, "rule": lsh.SGD(3e38), "folder": tmp_path / "run"}
    days = numbers(tmp_path, "", "1,4,4\n" * 16)
    with pytest.warns(RuntimeWarning) as told:
        result = lsh.continual(model, days, **given)
    assert any("parameters are not finite" in str(one.message) for one in told)
    assert result.outcome == "crashed"
    assert [day.name for day in result.days] == ["day0.csv"]


def test_a_day_without_a_batch_to_normalise_by_is_got_past(tmp_path: Path) -> None:
    """An infinite variance is left out of the running statistics."""
    model = Graph(Input(2) >> BatchNorm() >> Dense(1))
    rows = "".join(f"{k % 2},{k % 7 - 3},{3e25 * k}\n" for k in range(64))
    tame = "".join(f"{k % 2},{k % 7 - 3},{k % 3}\n" for k in range(64))
    result = lsh.continual(
        model, numbers(tmp_path, rows, tame, tame), folder=tmp_path / "run", **COMMON
    )
    assert result.outcome == "done"
    assert [day.yesterday is None for day in result.days] == [True, True, False]
