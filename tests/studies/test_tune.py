"""Tuning: it reports what it tried, keeps to its budget, and its choice is the soonest of them."""

from __future__ import annotations

import importlib
import math
import time
from types import SimpleNamespace
from typing import Any

import pytest

import leashed as lsh
from leashed import cli
from leashed.studies.tune import Trial

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


def trials_count(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each trial takes a quarter of a second, whatever the machine is at."""
    tune = importlib.import_module("leashed.studies.tune")
    train, begun = tune.train, []

    def counted(*arguments: Any, **given: Any) -> lsh.TrainResult:
        begun.append(1)
        return train(*arguments, **given)

    monkeypatch.setattr(tune, "train", counted)
    monkeypatch.setattr(tune, "time", SimpleNamespace(monotonic=lambda: len(begun) / 4))


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
    trials_count(monkeypatch)
    arguments = ["--threads", "1", "--batch-size", "64", "--loss-fraction", "0.5"]
    status = cli.main(["tune", "--seconds", "10", *arguments])
    lines = capsys.readouterr().out.splitlines()
    assert status == 0
    assert lines[0].endswith("(converged)") or lines[0].endswith("(diverged)")
    assert lines[-1].endswith("(median)")
