"""Passes are judged on validation, and the best state is what comes of the run."""

from __future__ import annotations

import math
import os
import signal
import subprocess
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from warned import once

import leashed as lsh
from leashed import modes
from leashed.report import days as report
from leashed.training.best import Keeper
from leashed.training.days import Journal

RNG = np.random.default_rng(3)
NOISE = (RNG.normal(size=(60, 5)).astype(np.float32), RNG.integers(0, 3, 60).astype(np.int32))
OTHER = (RNG.normal(size=(50, 5)).astype(np.float32), RNG.integers(0, 3, 50).astype(np.int32))
MLP = lsh.models.mlp(5, [32], 3)
CLICKS = lsh.datasets.synthetic_clicks(1200, seed=0)
DLRM = lsh.models.dlrm(None, 4, bottom=(4,), top=(8,))
RARELY = lsh.Observe(every=1e6)  # else evaluations are those of passes alone


def train(model: Any = MLP, data: Any = NOISE, validation: Any = OTHER, **given: Any) -> Any:
    """What learns noise by heart, and so is soon as good as it gets on other noise."""
    choices: dict[str, Any] = {
        "until": lsh.until(patience=3, metric="loss", epochs=200),
        "rule": lsh.SGD(0.3),
        "batch_size": 16,
        "threads": 1,
        "observe": RARELY,
        "validation": validation,
    }
    return lsh.train(model, data, **{**choices, **given})


def of_clicks(**given: Any) -> Any:
    return train(
        DLRM,
        CLICKS.train,
        CLICKS.test,
        **{
            "rule": lsh.Adagrad(0.5),
            "until": lsh.until(patience=2, metric="auc"),
            "batch_size": 64,
            **given,
        },
    )


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"patience": 0}, "patience must be"),
        ({"patience": 2.5}, "patience must be"),
        ({"metric": "auc"}, "metric is what patience goes by; give patience too"),
        ({"patience": 2, "metric": "F1"}, "metric must be one of loss, log_loss, accuracy, auc"),
    ],
)
def test_wrong_rules(given: dict[str, Any], message: str) -> None:
    with pytest.raises((TypeError, ValueError), match=message):
        lsh.until(**given)


def test_what_cannot_be_judged() -> None:
    with pytest.raises(ValueError, match="validation, which is not given"):
        train(validation=None)
    with pytest.raises(
        ValueError, match=r"metric auc is none of .*, which are loss, log_loss, accu"
    ):
        train(until=lsh.until(patience=2, metric="auc"))
    numbers = lsh.Dataset.regression(NOISE[0], NOISE[0][:, 0].copy())
    with pytest.raises(ValueError, match="which are loss, rmse"):
        train(
            lsh.models.linear_regression(5),
            numbers,
            numbers,
            until=lsh.until(patience=2, metric="accuracy"),
        )
    for checkpoint in (lsh.Checkpoint("x", every=1.0), lsh.Checkpoint("x", updates=3)):
        with pytest.raises(ValueError, match=r"until\.patience is not for checkpoints by"):
            train(checkpoint=checkpoint)


def test_a_metric_that_is_no_number_ends_it_before_it_begins() -> None:
    x, _ = NOISE
    ones = np.ones(60, np.int32)
    data = lsh.Dataset.from_arrays(x, np.arange(60, dtype=np.int32) % 2)
    with pytest.raises(ValueError, match="metric auc of validation is no number"):
        train(
            lsh.models.logistic_regression(5),
            data,
            lsh.Dataset.from_arrays(x, ones, classes=2),
            until=lsh.until(patience=2, metric="auc"),
        )


def test_the_best_state_is_what_comes_of_the_run() -> None:
    result = train()
    assert result.reason == "patience"
    assert result.outcome == "stopped"
    losses = result.validation_loss
    best = result.best
    assert best.metric == "loss"
    assert best.value == losses.min()
    assert best.passes == losses.argmin()
    assert len(losses) == best.passes + 3 + 1 + 1  # before the first, and the end's
    whole = train(until=lsh.until(epochs=best.passes)) if best.passes else None
    if whole is not None:
        np.testing.assert_array_equal(result.parameters, whole.parameters)
    assert result.model.evaluate(lsh.Dataset.from_arrays(*OTHER)).loss == pytest.approx(best.value)
    assert result.final_loss == result.loss[best.passes]
    assert f"best {best}" in repr(result)
    again = lsh.TrainResult.from_json(result.to_json())
    assert again.best == best


def test_passes_are_counted_anew_after_a_better_one() -> None:
    keeper = Keeper(lsh.until(patience=2), MLP, {}, {}, None, ExitStack(), None)
    stops = []
    for updates, loss in enumerate([3.0, 4.0, 2.0, 2.0, 1.0, math.nan, 5.0]):
        keep, stop = keeper.judge(
            {"validation_loss": loss, "updates": updates, "seconds": 0.0}, updates > 0
        )
        if keep:
            state: Any = loss
            keeper.keep(state)
        stops.append(stop)
    assert stops == [False] * 6 + [True]
    assert keeper.best is not None
    assert keeper.best.passes == 4


def test_a_state_in_the_middle_of_a_pass_is_of_the_passes_before() -> None:
    # 60 rows in batches of 16: a pass is 4 updates at most.
    for updates, passes in ((2, 0), (6, 1)):
        until = lsh.until(patience=9, metric="loss", updates=updates)
        result = train(until=until, rule=lsh.SGD(0.01), validation=NOISE)
        assert (result.best.updates, result.best.passes) == (updates, passes)
    assert str(result.best).endswith("after pass 1")


def test_tables_are_told_as_the_best_state_has_them() -> None:
    result = of_clicks(rule=lsh.Adagrad(50.0), until=lsh.until(patience=1, metric="loss"))
    assert result.best.passes == 0
    assert result.total_updates > 0
    fresh = lsh.tables.of(DLRM.tables, rule=lsh.SGD(0.1), seed=0)  # which no id has come to
    for name, table in result.tables.items():
        rows = result.config["tables"][name]["rows"]
        assert rows == table.statistics()["rows"] == fresh[name].statistics()["rows"]


def test_errors_of_numbers() -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(60, 5)).astype(np.float32)
    train_set, test = (
        lsh.Dataset.regression(part, part[:, 0] + rng.normal(size=30).astype(np.float32))
        for part in (x[:30], x[30:])
    )
    result = train(
        lsh.models.linear_regression(5),
        train_set,
        test,
        rule=lsh.SGD(0.1),
        until=lsh.until(patience=2, metric="rmse", epochs=30),
    )
    assert result.best.passes > 0
    assert result.best.value == np.sqrt(2 * result.validation_loss).min()
    assert result.model.evaluate(test).rmse == pytest.approx(result.best.value)


DISCIPLINES = [lsh.Sequential(), lsh.Leashed(), lsh.Hogwild(), lsh.Locked(), lsh.Synchronous()]


@pytest.mark.parametrize("discipline", DISCIPLINES, ids=lambda one: one.label)
@pytest.mark.parametrize("rows", [60, 20])
def test_each_pass_is_judged_at_its_own_end(discipline: lsh.Discipline, rows: int) -> None:
    threads = 1 if isinstance(discipline, lsh.Sequential) else 3
    result = train(
        data=(NOISE[0][:rows], NOISE[1][:rows]),
        until=lsh.until(patience=1000, epochs=12),
        discipline=discipline,
        threads=threads,
    )
    batches = [math.ceil(i * rows / 16) for i in range(13)]
    if isinstance(discipline, lsh.Synchronous):  # whole steps
        batches = [math.ceil(b / threads) for b in batches]
        while batches[-1] == batches[-2]:  # what ends in the last step is judged once
            batches.pop()
    assert result.updates.tolist() == batches


def test_what_is_dropped_counts_for_its_pass() -> None:
    result = train(
        until=lsh.until(patience=1000, epochs=30),
        discipline=lsh.Leashed(persistence=0),
        threads=4,
    )
    assert len(result.updates) == 31


@pytest.mark.parametrize(
    "given",
    [
        {"discipline": lsh.Synchronous()},
        {"mode": modes.Sync()},
        {"mode": modes.GBA(6, iota=2)},
    ],
    ids=["discipline", "mode", "buffer"],
)
def test_passes_that_end_in_one_update_are_no_worse_than_each_other(given: dict[str, Any]) -> None:
    result = train(
        data=(NOISE[0][:20], NOISE[1][:20]),
        until=lsh.until(patience=1, epochs=40),
        threads=3,
        rule=lsh.SGD(0.01),
        **given,
    )
    judged = result.validation_loss[np.flatnonzero(np.diff(result.updates, prepend=-1))]
    assert result.best.updates > 1
    assert result.best.value == judged.min()


def test_it_ends_where_no_update_is_ever_made() -> None:
    """As where one is of more gradients than there will be."""
    passes = []

    def stop(now: lsh.Progress) -> None:
        passes.append(now.updates)
        if len(passes) == 2000:
            raise KeyboardInterrupt

    with once("no update was made"):
        result = train(
            MLP,
            (NOISE[0][:16], NOISE[1][:16]),
            (OTHER[0][:8], OTHER[1][:8]),
            until=lsh.until(patience=3),
            mode=modes.BSP(10**6),
            observe=lsh.Observe(stop, every=1e6),
        )
    assert (result.reason, result.total_updates, result.best.passes) == ("patience", 0, 0)
    assert len(passes) <= 1010


def test_it_ends_where_updates_change_nothing() -> None:
    result = train(until=lsh.until(patience=3), rule=lsh.SGD(1e-30))
    assert result.reason == "patience"
    assert result.total_updates <= 5 * 4


@pytest.fixture
def scratch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "scratch"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    return folder


def test_rows_are_of_the_best_state_too(scratch: Path) -> None:
    result = of_clicks()
    assert result.reason == "patience"
    assert 0 < result.best.passes < len(result.updates) - 2
    whole = of_clicks(until=lsh.until(epochs=result.best.passes))
    np.testing.assert_array_equal(result.parameters, whole.parameters)
    # (Without what they have counted.)
    np.testing.assert_array_equal(
        result.model.predict(CLICKS.train), whole.model.predict(CLICKS.train)
    )
    assert result.model.evaluate(CLICKS.test).auc == pytest.approx(result.best.value, abs=2e-3)
    assert not any(scratch.iterdir())


@pytest.mark.parametrize("threads", [1, 3])
def test_what_is_kept_goes_with_the_run(scratch: Path, threads: int) -> None:
    seen = []

    def fail(now: lsh.Progress) -> None:
        seen.append(len(list(scratch.iterdir())))
        if now.updates > 40:
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        of_clicks(
            observe=lsh.Observe(fail, every=1e6), threads=threads, until=lsh.until(patience=50)
        )
    assert seen[-1] == 1
    assert not any(scratch.iterdir())


_KILLED = """
import os, signal
from training.test_patience import lsh, of_clicks

def kill(now):
    if now.updates > 40:
        os.kill(os.getpid(), signal.SIGKILL)

of_clicks(observe=lsh.Observe(kill, every=1e6), until=lsh.until(patience=50))
"""


def test_what_a_killed_run_kept_goes_with_the_next_one(scratch: Path) -> None:
    path = os.pathsep.join([str(Path(__file__).parents[1]), os.environ.get("PYTHONPATH", "")])
    environment = {**os.environ, "TMPDIR": str(scratch), "PYTHONPATH": path}
    ended = subprocess.run([sys.executable, "-c", _KILLED], env=environment, check=False)
    assert ended.returncode == -signal.SIGKILL
    assert len(list(scratch.iterdir())) == 1
    of_clicks()
    assert not any(scratch.iterdir())


def test_ctrl_c_returns_the_best_so_far(scratch: Path) -> None:
    passes = []

    def stop(now: lsh.Progress) -> None:
        passes.append(now.updates)
        if len(passes) == 6:
            raise KeyboardInterrupt

    result = of_clicks(
        observe=lsh.Observe(stop, every=1e6), until=lsh.until(patience=50, metric="auc")
    )
    assert result.reason == "interrupted"
    assert result.best.value == np.nanmax(result.validation_auc)
    assert result.model.evaluate(CLICKS.test).auc == pytest.approx(result.best.value, abs=2e-3)
    assert not any(scratch.iterdir())


def test_the_checkpoint_is_the_best_state_and_is_gone_on_with(tmp_path: Path) -> None:
    for name, run in (("clicks", of_clicks), ("mlp.safetensors", train)):
        path = tmp_path / name
        result = run(checkpoint=path)
        loaded = lsh.load(path)
        np.testing.assert_array_equal(loaded.parameters, result.parameters)
        assert loaded.run["updates"] == result.best.updates
        # What it is gone on with is judged first, and stays the best until there is a better one.
        resumed = run(resume=path, checkpoint=path)
        assert resumed.config["resumed_at"] == result.best.updates
        assert resumed.best.passes == 0
        assert resumed.best.value == pytest.approx(result.best.value)
        np.testing.assert_array_equal(resumed.parameters, result.parameters)


def test_sparse_rows_in_place() -> None:
    sparse = pytest.importorskip("scipy.sparse")
    x = sparse.csr_matrix(np.where(RNG.random((300, 40)) < 0.2, 1.0, 0.0).astype(np.float32))
    y = RNG.integers(0, 2, 300).astype(np.int32)
    result = train(
        lsh.models.logistic_regression(40),
        (x[:200], y[:200]),
        (x[200:], y[200:]),
        discipline=lsh.Sequential(),
        until=lsh.until(patience=3, metric="auc", epochs=40),
        rule=lsh.SGD(1.0),
    )
    assert result.config["sparse_updates"]
    assert (np.diff(result.updates[:-1]) == 13).all()
    assert result.best.value == result.validation_auc.max()
    test = lsh.SparseDataset.from_csr(x[200:], y[200:])
    assert result.model.evaluate(test).auc == pytest.approx(result.best.value, abs=1e-3)


MODES = [
    modes.ASP(),
    modes.SSP(1),
    modes.BSP(3),
    modes.Sync(),
    modes.GBA(2, iota=2),
    modes.HopBW(b3=1),
    modes.SHAT(),
    modes.Ensemble(),
]


@pytest.mark.parametrize("mode", MODES, ids=lambda one: type(one).__name__)
@pytest.mark.parametrize("threads", [1, 3])
def test_modes(mode: modes.Mode, threads: int) -> None:
    if threads == 1 and isinstance(mode, modes.HopBW):
        return
    result = train(
        until=lsh.until(patience=4, epochs=60), mode=mode, threads=threads, rule=lsh.SGD(0.1)
    )
    assert result.reason in ("patience", "epochs")
    assert result.best.value == np.nanmin(result.validation_loss)
    evaluated = result.model.evaluate(lsh.Dataset.from_arrays(*OTHER)).loss
    assert evaluated == pytest.approx(result.best.value, rel=1e-5)


def test_modes_over_tables() -> None:
    result = of_clicks(mode=modes.GBA(2, iota=2), threads=2)
    assert result.reason == "patience"
    assert result.model.evaluate(CLICKS.test).auc == pytest.approx(result.best.value, abs=2e-3)


@pytest.mark.parametrize("mode", [None, modes.ASP()], ids=["discipline", "mode"])
def test_streams(tmp_path: Path, mode: modes.Mode | None) -> None:
    path = tmp_path / "rows.csv"
    rows = [",".join(["y", *(f"x{i}" for i in range(5))])]
    rows += [
        ",".join([str(y), *(f"{v:.6f}" for v in x)])
        for x, y in zip(NOISE[0], NOISE[1] % 2, strict=True)
    ]
    path.write_text("\n".join(rows) + "\n")
    columns = {"y": lsh.stream.Label(), **{f"x{i}": lsh.stream.Number() for i in range(5)}}
    stream = lsh.stream.csv(path, columns)
    result = train(
        lsh.models.mlp(5, [32], 2), stream, (OTHER[0], OTHER[1] % 2), threads=2, mode=mode
    )
    assert result.reason in ("patience", "epochs")
    assert result.best.value == np.nanmin(result.validation_loss)
    if mode is None:
        assert result.updates[:-1].tolist() == [
            math.ceil(60 * i / 16) for i in range(len(result.updates) - 1)
        ]


def numbers_of(path: Path, shift: float) -> lsh.Stream:
    rng = np.random.default_rng(1)
    x, ids = rng.normal(size=600), rng.integers(0, 8, 600)
    rows = zip((x + rng.normal(size=600) > 0).astype(int), x + shift, ids, strict=True)
    path.write_text("y,x,i\n" + "".join(f"{y},{v:.5f},{i}\n" for y, v, i in rows))
    columns = {
        "y": lsh.stream.Label(),
        "x": lsh.stream.Number(),
        "i": lsh.stream.Hashed(buckets=8),
    }
    return lsh.stream.csv(path, columns)


@pytest.mark.parametrize("mode", [None, modes.ASP()], ids=["discipline", "mode"])
def test_what_numbers_come_to_is_of_the_best_state(tmp_path: Path, mode: modes.Mode | None) -> None:
    near, far = (numbers_of(tmp_path / f"{shift}.csv", shift) for shift in (0.0, 20.0))
    test = near.read()
    choices: dict[str, Any] = {
        "until": lsh.until(patience=1, epochs=4),
        "rule": lsh.Adagrad(0.1),
        "batch_size": 64,
        "mode": mode,
        "threads": 1,
    }
    begun = train(DLRM, near, test, **choices).model
    result = begun.train(far, validation=test, observe=RARELY, **choices)
    assert result.best.passes == 0
    assert result.model.evaluate(test).loss == pytest.approx(result.best.value, rel=1e-5)
    # And so of a day that makes it no better.
    days = lsh.continual(DLRM, [near, far], folder=tmp_path / "run", validation=test, **choices)
    assert days.days[0].updates == days.days[1].updates
    loaded = lsh.load(tmp_path / "run")
    np.testing.assert_array_equal(loaded.predict(test), days.model.predict(test))


def test_statistics_are_of_the_best_state() -> None:
    model = lsh.models.Graph(
        lsh.models.Input(5)
        >> lsh.models.BatchNorm()
        >> lsh.models.Dense(32)
        >> lsh.models.ReLU()
        >> lsh.models.Dense(3),
        loss="softmax",
    )
    result = train(model)
    assert 0 < result.best.passes < len(result.updates) - 2
    whole = train(model, until=lsh.until(epochs=result.best.passes))
    np.testing.assert_array_equal(result.statistics, whole.statistics)
    np.testing.assert_array_equal(result.parameters, whole.parameters)


def days(folder: Path, **given: Any) -> lsh.Continual:
    parts = [CLICKS.train.head(320), CLICKS.train.head(640)]
    choices: dict[str, Any] = {
        "until": lsh.until(patience=2, metric="auc"),
        "validation": CLICKS.test,
        "rule": lsh.Adagrad(0.5),
        "batch_size": 64,
        "threads": 1,
        "observe": RARELY,
    }
    return lsh.continual(DLRM, parts, folder=folder, **{**choices, **given})


def test_days(tmp_path: Path) -> None:
    result = days(tmp_path / "run")
    assert result.outcome == "done"
    best, after = [], None
    for day, rows in zip(result.days, (320, 640), strict=True):
        assert day.updates % (rows // 64) == (0 if after is None else after % (rows // 64))
        assert day.best is not None
        assert (day.best.metric, day.best.updates) == ("auc", day.updates)
        assert day.best.passes == (day.updates - (after or 0)) // (rows // 64)
        best.append(day.updates)
        after = day.updates
    read = Journal(tmp_path / "run" / "days.json").done
    assert read == list(result.days)
    assert "best pass" in report.table(result.days).header
    assert f"best {result.days[0].best}" in report.line(result.days[0])
    loaded = lsh.load(tmp_path / "run")
    assert loaded.run["updates"] == result.days[-1].updates
    np.testing.assert_array_equal(loaded.parameters, result.parameters)
    np.testing.assert_array_equal(loaded.predict(CLICKS.test), result.model.predict(CLICKS.test))


def test_a_day_that_was_interrupted_goes_on_from_its_best_state(tmp_path: Path) -> None:
    passes = []

    def stop(_: str, now: lsh.Progress) -> None:
        passes.append(now.validation_auc)
        if len(passes) == 4:
            raise KeyboardInterrupt

    cut = days(tmp_path / "run", observe=lsh.Observe(stop, every=1e6))
    assert cut.outcome == "interrupted"
    assert not cut.days
    assert cut.model.evaluate(CLICKS.test).auc == pytest.approx(max(passes), abs=2e-3)
    whole, again = days(tmp_path / "whole"), days(tmp_path / "run")
    assert again.outcome == "done"
    np.testing.assert_array_equal(again.parameters, whole.parameters)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"until": lsh.until(seconds=3.0)}, r"until\.seconds is not for days"),
        ({"until": 3}, "until must be"),
        ({"validation": None}, "validation, which is not given"),
        ({"checkpoint": lsh.Checkpoint(updates=3)}, r"until\.patience is not for checkpoints by"),
    ],
)
def test_what_days_do_not_take(given: dict[str, Any], message: str, tmp_path: Path) -> None:
    with pytest.raises((TypeError, ValueError), match=message):
        days(tmp_path / "run", **given)


def test_words(capsys: pytest.CaptureFixture[str]) -> None:
    from leashed.cli import main  # noqa: PLC0415

    words = "train --model dlrm --rows 2000 --lr 0.5 --threads 1 --batch-size 64 --no-progress"
    assert main([*words.split(), "--patience", "2", "--metric", "auc"]) == 0
    told = capsys.readouterr().out
    assert "stopped (patience)" in told
    assert "which was kept" in told
    assert main([*words.split(), "--metric", "auc"]) == 2
    assert "give patience too" in capsys.readouterr().err
