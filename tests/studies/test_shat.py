"""SHAT's experiments in virtual time, in small."""

from __future__ import annotations

import dataclasses
import math
from pathlib import Path

import numpy as np
import pytest

from leashed import datasets
from leashed.cli import main
from leashed.studies.shat import CLUSTERS, HETEROGENEOUS, METHODS, Asked, best, settings, train_all

DATA = datasets.synthetic_digits(320, test=100)
ASKED = Asked(
    workers=(2, 4),
    slowed=4,
    epochs=1.0,
    repeats=1,
    lr=(0.0001,),
    model="lenet",
    batch_size=16,
    evaluations=3,
)


@pytest.fixture(scope="module")
def runs():
    return list(train_all(ASKED, DATA))


def test_every_setting_is_run_in_order_and_to_its_end(runs):
    asked = settings(ASKED)
    assert len(asked) == 2 * len(METHODS) + (len(CLUSTERS) - 1) * len(HETEROGENEOUS)
    assert [(run.method, run.cluster, run.workers, run.lr, run.seed) for run in runs] == [
        dataclasses.astuple(one) for one in asked
    ]
    for run in runs:
        assert run.epochs[-1] == pytest.approx(1.0)
        assert len(run.seconds) == len(run.epochs) == len(run.over_time) >= 3
        assert 0.0 <= run.accuracy <= 1.0


def test_the_weight_is_eq_4s_of_what_was_counted(runs):
    found = {(run.method, run.workers): run for run in runs if run.cluster == "HO"}
    assert found["ASP", 4].alpha == found["AR-SGD", 4].alpha == 1.0
    assert found["ENSEMBLE", 4].alpha == 0.0
    assert found["SHAT", 2].alpha == found["SHAT, log₂", 2].alpha == 0.0
    # c is 3 with equal workers, but for their first pushes.
    assert 0.0 < found["SHAT", 4].alpha <= 1 - (4 / 3) / math.log(4) + 0.05
    for method in ("SHAT, log₂", "SHAT-root"):
        assert 0.2 < found[method, 4].alpha <= 1 - (4 / 3) / 2 + 0.05
    for run in found.values():
        assert run.rho == pytest.approx(run.alpha / (run.lr * run.workers))


def test_shat_of_two_is_an_ensemble_beside_a_server(runs):
    found = {(run.method, run.workers): run for run in runs if run.cluster == "HO"}
    shat, ensemble = found["SHAT", 2], found["ENSEMBLE", 2]
    assert shat.own_accuracy == ensemble.own_accuracy
    assert shat.elapsed == ensemble.elapsed
    assert shat.distance > 0.0
    assert math.isnan(found["ASP", 2].distance)


def test_a_slow_worker_holds_nobody_up(runs):
    found = {(run.method, run.cluster): run for run in runs if run.workers == 4}
    for method in HETEROGENEOUS:
        alone = found[method, "HO"].elapsed
        assert alone < found[method, "HE0"].elapsed < 2 * alone


def test_the_same_seed_gives_the_same_runs_however_many_threads_there_are(runs):
    again = list(train_all(dataclasses.replace(ASKED, workers=(4,)), DATA))
    for one in again:
        same = next(
            run
            for run in runs
            if (run.method, run.cluster, run.workers) == (one.method, one.cluster, one.workers)
        )
        assert np.array_equal(one.over_time, same.over_time)
        assert one.alpha == same.alpha


def test_each_method_is_told_at_the_step_that_is_best_for_it(runs):
    swept = [
        dataclasses.replace(run, lr=lr, accuracy=accuracy)
        for run in runs
        for lr, good, accuracy in [(0.1, "ASP", 0.9), (0.2, "SHAT", 0.9), (0.3, "", math.nan)]
        for accuracy in [accuracy if run.method == good or not good else 0.2]
    ]
    found = best(swept)
    assert {run.lr for run in found if run.method == "ASP"} == {0.1}
    assert {run.lr for run in found if run.method == "SHAT"} == {0.2}
    assert len(found) == len(runs)


def test_with_batch_normalisation_a_run_is_judged_by_all_test_examples():
    few = dataclasses.replace(ASKED, workers=(2,), model="normed", lr=(0.003,), epochs=4.0)
    chosen = [run for run in train_all(few, DATA) if (run.workers, run.cluster) == (2, "HO")]
    assert [run.method for run in chosen] == list(METHODS)
    for run in chosen:
        assert run.over_time[-1] > run.over_time[0]
        if run.method not in ("ENSEMBLE", "SHAT", "SHAT, log₂"):  # whose server is nobody's model
            assert run.accuracy == pytest.approx(run.over_time[-1], abs=0.1)
    assert max(run.accuracy for run in chosen) > 0.5


def test_a_run_that_meets_nan_is_told(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("leashed.cli.study.load_data", lambda _: DATA)
    page = tmp_path / "shat.html"
    arguments = ["--workers", "2", "--epochs", "0.2", "--repeats", "2", "--lr", "1e9"]
    assert main(["bench", "shat", *arguments, "--batch-size", "16", "--report", str(page)]) == 0
    assert "(2 crashed)" in capsys.readouterr().out
    assert "Figure 6" in page.read_text()


def test_wrong_arguments(capsys: pytest.CaptureFixture[str]) -> None:
    for words, complaint in [
        (["--workers", "1"], "workers must be at least 2"),
        (["--epochs", "0"], "epochs must be greater than 0"),
        (["--repeats", "0"], "repeats must be at least 1"),
        (["--lr", "0"], "lr must be greater than 0"),
        (["--batch-size", "0"], "batch_size must be at least 1"),
    ]:
        assert main(["bench", "shat", *words]) == 2
        assert complaint in capsys.readouterr().err
