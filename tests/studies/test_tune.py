"""Tuning: it reports what it tried, keeps to its budget, and its choice is the soonest of them."""

from __future__ import annotations

import dataclasses
import importlib
import math
import re
import shlex
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import leashed as lsh
from leashed import cli
from leashed.studies.study import differing, plain
from leashed.studies.tune import Search, Trial, trial_of
from leashed.training.problems.problem import Problem

MODEL = lsh.models.mlp(784, [32], 10)
DATA = lsh.datasets.synthetic_digits(1000, seed=0, test=100)


def test_the_choice_is_the_soonest_of_those_tried_most(monkeypatch: pytest.MonkeyPatch) -> None:
    # A budget of computing, which buys as much while others use the machine.
    clock = SimpleNamespace(monotonic=time.process_time)
    monkeypatch.setattr(importlib.import_module("leashed.studies.tune"), "time", clock)
    told: list[Trial] = []
    found = lsh.tune(
        MODEL, DATA, loss_fraction=0.5, seconds=12, threads=2, batch_sizes=(16, 64, 5000),
        progress=told.append,
    )  # fmt: skip
    assert tuple(told) == found.trials
    assert len({(t.candidate, t.seed) for t in told}) == len(told)
    assert {t.candidate.batch_size for t in told} == {16, 64}  # 5000 is more than the data
    own = [t.seconds for t in told if t.candidate == found.best]
    assert all(map(math.isfinite, own))
    assert min(own) <= found.seconds <= max(own)
    assert {t.candidate.discipline.label for t in told} >= {"SEQ", "SYNC", "ASYNC", "HOG"}


def trials_count(monkeypatch: pytest.MonkeyPatch, seconds: float = 0.25) -> None:
    """Each trial takes so long of the budget, whatever the machine is at."""
    tune = importlib.import_module("leashed.studies.tune")
    train, begun = tune.train, []

    def counted(*arguments: Any, **given: Any) -> lsh.TrainResult:
        begun.append(1)
        return train(*arguments, **given)

    monkeypatch.setattr(tune, "train", counted)
    monkeypatch.setattr(tune, "time", SimpleNamespace(monotonic=lambda: len(begun) * seconds))


def test_the_budget_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    trials_count(monkeypatch)
    told: list[Trial] = []
    lsh.tune(
        MODEL, DATA, loss_fraction=0.5, seconds=10, threads=2, batch_sizes=[16],
        progress=told.append,
    )  # fmt: skip
    assert len(told) == 40  # without a budget it goes on


def test_without_a_trial_that_arrives_there_is_no_choice() -> None:
    with pytest.raises(RuntimeError, match="more seconds"):
        lsh.tune(MODEL, DATA, loss_fraction=1e-9, seconds=0.3, threads=1, batch_sizes=[64])


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ({"loss_fraction": 2.0}, "loss_fraction"),
        ({"seconds": 0}, "seconds"),
        ({"threads": 0}, "threads"),
        ({"batch_sizes": [5000]}, "batch_sizes"),
        ({"batch_sizes": [0]}, "batch_sizes"),
        ({"init": "bogus"}, "init"),
    ],
)
def test_wrong_arguments_are_named(arguments: dict[str, object], complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        lsh.tune(MODEL, DATA, **arguments)  # type: ignore[arg-type]


def test_the_command_prints_its_trials_and_its_choice(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    trials_count(monkeypatch, 25.0)
    arguments = ["--threads", "1", "--batch-size", "64", "--loss-fraction", "0.5"]
    status = cli.main(["tune", "--seconds", "1000", *arguments])
    lines = capsys.readouterr().out.splitlines()
    assert status == 0
    assert lines[0].endswith("(converged)") or lines[0].endswith("(diverged)")
    assert lines[-2].endswith("(median)")
    assert lines[-1].startswith("leashed train --discipline ")


LIBSVM = "".join(f"{i % 2} {1 + i % 2}:1 {3 + i % 5}:0.5\n" for i in range(100))


@pytest.mark.parametrize(
    "words",
    [
        "--model logistic_regression --l2 0.001 --rule adagrad",
        "--model fm --factors 2 --discipline leashed:persistence=1 --staleness power:k=2",
        "--model linear_svm --mode gba:m=2,iota=4 --schedule step:factor=0.5,every=100",
        "--model deepfm --evict age --discipline hogwild:copy=false",
        "--model dlrm --mode asp --rule adam:beta1=0.8",
    ],
)
def test_the_command_that_it_prints_trains_so(
    words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    trials_count(monkeypatch, 25.0)
    path = tmp_path / ("clicks.tsv" if "deepfm" in words or "dlrm" in words else "rows.svm")
    if path.suffix == ".svm":
        path.write_text(LIBSVM)
    else:
        made = ["--rows", "200", "--cardinality", "20", "--output", str(path)]
        assert cli.main(["clicks", *made]) == 0
    common = [*words.split(), "--data", str(path), "--threads", "2", "--batch-size", "8"]
    capsys.readouterr()
    assert cli.main(["tune", *common, "--seconds", "100", "--loss-fraction", "0.98"]) == 0
    found = shlex.split(capsys.readouterr().out.splitlines()[-1])
    for word in words.split():
        assert word in found
    assert found[:2] == ["leashed", "train"]
    assert cli.main([*found[1:], "--epochs", "50"]) == 0


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        ("--stream", "--stream is not for tune: .*leave it out, and --data is read into memory"),
        ("--days a b", "--days is not for tune: .*give --data one of the files"),
        ("--epochs 2", "--epochs is not for tune: a trial ends at --loss-fraction"),
        ("--updates 0", "--updates is not for tune: a trial ends at --loss-fraction"),
        ("--seconds -1", "seconds"),
        ("--threads auto", 'threads "auto" is not for tune, .*leave it out'),
        ("--mode asp --discipline hogwild", "discipline is not for runs with a mode"),
        ("--mode bogus", "--mode 'bogus' is unknown"),
        ("--rule sgd:bogus=1", "sgd has no 'bogus'"),
        ("--model fm", "--model fm takes --data FILE"),
        ("--factors 2", "--factors goes with --model"),
    ],
)
def test_what_cannot_be_tuned_is_refused_with_the_remedy(
    words: str, complaint: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(importlib.import_module("leashed.studies.tune"), "train", None)
    assert cli.main(["tune", *words.split()]) == 2
    assert re.search(complaint, capsys.readouterr().err)


def clicks() -> Problem:
    data = lsh.datasets.synthetic_clicks(64, 0, test=8, cardinalities=20).train
    return Problem(lsh.models.dlrm(20), data, None)


def test_each_trial_begins_with_tables_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    begun = []
    trials_count(monkeypatch, 25.0)
    train = importlib.import_module("leashed.studies.tune").train

    def seen(*arguments: Any, **given: Any) -> lsh.TrainResult:
        tables = given["init"].tables
        begun.extend((table, table.has_been_trained) for table in tables.values())
        return train(*arguments, **given)

    monkeypatch.setattr("leashed.studies.tune.train", seen)
    asked = Search(model="dlrm", threads=1, batch_sizes=(8,), seconds=100.0, loss_fraction=0.98)
    problem = clicks()
    records = list(asked.runs([], problem, lambda _: True, lambda _: None))
    assert len(records) > 1
    assert len({id(table) for table, _ in begun}) == len(begun) == len(records) * 26
    assert not any(trained for _, trained in begun)


def test_records_of_before_go_on_and_of_other_words_do_not() -> None:
    """Words that a search did not have then are in no record of its defaults."""
    problem = Problem(MODEL, DATA.train, None)
    before = plain(Search().conditions(problem))
    there = {"model", "loss_fraction", "threads", "seed", "init", "batch_sizes"}
    machine = {"data", "examples", "digest", "cpu", "cores", "isa", "version"}
    assert set(before) == there | machine
    for words in ({"mode": "asp"}, {"schedule": ("cosine:total=9",)}, {"rule": "adam"}):
        other = plain(Search(**words).conditions(problem))
        (name,) = words
        for one, two in ((before, other), (other, before)):
            with pytest.raises(ValueError, match=f"other conditions: {name} "):
                differing(one, two)


@pytest.mark.parametrize(
    "words", [{"mode": "gba:m=2"}, {"discipline": "leashed:persistence=3"}, {}]
)
def test_a_record_has_its_trial(words: dict[str, str]) -> None:
    problem = Problem(MODEL, DATA.train, None)
    asked = Search(threads=2, **words)  # type: ignore[arg-type]
    (setting,) = asked.left([], problem)
    measured = {"seconds": 1.0, "outcome": "converged", "elapsed": 1.0, "spent": 60.0}
    record = asked.record(setting, problem, measured)
    of = Search.of([record])
    assert dataclasses.replace(of, loss_fraction=None) == asked
    assert of.share == asked.share
    best = of.tuning([record]).best
    assert trial_of(record).candidate == best
    assert (best.mode is not None) == ("mode" in words)
    assert asked.parts([record])[0].found.rows[0][0] == str(best)  # type: ignore[union-attr]


def test_it_takes_what_train_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    trials_count(monkeypatch, 25.0)
    problem = clicks()
    found = lsh.tune(
        problem.model, problem.train, seconds=100.0, threads=1, batch_sizes=[8], loss_fraction=0.98,
        mode=lsh.modes.ASP(), rule=lsh.rules.Adam,
    )  # fmt: skip
    assert found.best.mode == lsh.modes.ASP()
    assert found.best.discipline is None
    with pytest.raises(TypeError, match="rule must make one of a step size"):
        lsh.tune(MODEL, DATA, rule=lsh.rules.Adam(0.1))  # type: ignore[arg-type]


@pytest.mark.long
def test_the_shape_of_a_model_follows_from_data() -> None:
    data = lsh.datasets.synthetic_clicks(300, 0, test=2, cardinalities=20).train
    few = lsh.datasets.ClickDataset.from_arrays(data.x[:, :2], {"one": data.ids[:, 0]}, data.y)
    found = lsh.tune(
        lsh.models.dlrm(), few, seconds=100.0, threads=1, batch_sizes=[8], loss_fraction=0.99
    )
    assert found.best.batch_size == 8
