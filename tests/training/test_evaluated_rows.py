"""By how many rows of the training set its loss is judged, and by which."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import leashed as lsh
from leashed import cli
from leashed.training.options import EVALUATED_ROWS

BLOCK, ROWS = 256, 40_000
MODEL = lsh.models.linear_regression(2)
GIVEN: dict[str, Any] = {"until": lsh.until(updates=2), "rule": lsh.SGD(0.0), "threads": 1}


@pytest.fixture(scope="module")
def rising() -> lsh.datasets.Dataset:
    """Targets that rise with time: of the first rows alone the loss would be another."""
    x = np.random.default_rng(0).normal(size=(ROWS, 2)).astype(np.float32)
    return lsh.datasets.Dataset(x, np.linspace(0, 10, ROWS, dtype=np.float32), 0)


def judged(result: lsh.TrainResult, data: lsh.datasets.Dataset, rows: np.ndarray) -> float:
    """The loss of these rows alone."""
    part = lsh.datasets.Dataset(data.x[rows], data.y[rows], 0)
    given = {**GIVEN, "init": result.parameters, "observe": lsh.Observe(rows=None)}
    return lsh.train(MODEL, part, **given).initial_loss


def blocks(every: int) -> np.ndarray:
    return np.flatnonzero(np.arange(ROWS) // BLOCK % every == 0)


@pytest.mark.parametrize(
    ("rows", "every"), [(None, 1), (ROWS, 1), (EVALUATED_ROWS, 3), (BLOCK, 157), (1, 157)]
)
def test_they_are_blocks_evenly_over_all(
    rows: int | None, every: int, rising: lsh.datasets.Dataset
) -> None:
    result = lsh.train(MODEL, rising, **GIVEN, observe=lsh.Observe(rows=rows))
    chosen = blocks(every)
    assert result.config["evaluated_rows"] == len(chosen) <= max(rows or ROWS, BLOCK)
    assert result.final_loss == pytest.approx(judged(result, rising, chosen), rel=1e-6)


@pytest.mark.parametrize("way", [{}, {"mode": "asp"}])
def test_by_default_they_are_few_and_tell_the_loss_of_all(
    way: dict[str, Any], rising: lsh.datasets.Dataset
) -> None:
    few = lsh.train(MODEL, rising, **GIVEN, **way)
    whole = lsh.train(MODEL, rising, **GIVEN, **way, observe=lsh.Observe(rows=None))
    assert few.config["evaluated_rows"] <= EVALUATED_ROWS < whole.config["evaluated_rows"] == ROWS
    assert few.final_loss != whole.final_loss
    assert few.final_loss == pytest.approx(whole.final_loss, rel=0.02)


def test_in_virtual_time_too(rising: lsh.datasets.Dataset) -> None:
    given = {
        "until": GIVEN["until"],
        "cluster": lsh.simulation.constant(1, 1.0),
        "rule": lsh.SGD(0.0),
    }
    played = lsh.simulate(MODEL, rising, **given, observe=lsh.Observe(rows=BLOCK)).result
    assert played.config["evaluated_rows"] == BLOCK
    threads = lsh.train(MODEL, rising, **GIVEN, observe=lsh.Observe(rows=BLOCK))
    assert played.initial_loss == threads.initial_loss


def test_a_validation_set_is_judged_whole(rising: lsh.datasets.Dataset) -> None:
    labels = (rising.y > 5).astype(np.int32)
    data = lsh.datasets.Dataset(rising.x, labels, 2)
    model = lsh.models.mlp(2, [], 2)
    given = {**GIVEN, "validation": data}
    few = lsh.train(model, data, **given, observe=lsh.Observe(rows=BLOCK))
    whole = lsh.train(model, data, **given, observe=lsh.Observe(rows=None))
    np.testing.assert_array_equal(few.validation_accuracy, whole.validation_accuracy)
    assert few.accuracy[-1] != whole.accuracy[-1] == whole.validation_accuracy[-1]


def test_stop_rules_ask_the_same_rows(rising: lsh.datasets.Dataset) -> None:
    """Of the first block the targets are 0, and so is the loss of what predicts that."""
    zero = np.zeros(MODEL.dimension, np.float32)
    given = {**GIVEN, "init": zero, "until": lsh.until(loss=1e-3, updates=2)}
    assert lsh.train(MODEL, rising, **given, observe=lsh.Observe(rows=1)).reason == "loss"
    assert lsh.train(MODEL, rising, **given).reason == "updates"


def test_wrong_numbers_are_told() -> None:
    with pytest.raises(ValueError, match=r"observe.rows must be at least 1, got 0"):
        lsh.Observe(rows=0)
    with pytest.raises(TypeError, match=r"observe.rows must be a whole number"):
        lsh.Observe(rows=0.5)  # type: ignore[arg-type]


def test_of_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    asked = ["train", "--model", "dlrm", "--rows", "20000", "--updates", "3", "--no-progress"]
    for rows, told in (
        ([], 10_016),
        (["--evaluate-rows", "all"], 20_000),
        (["--evaluate-rows", "300"], 256),
    ):
        file = tmp_path / f"{told}.json"
        assert cli.main([*asked, *rows, "--output", str(file)]) == 0
        assert lsh.TrainResult.from_json(file.read_text()).config["evaluated_rows"] == told
    capsys.readouterr()
    assert cli.main([*asked, "--evaluate-rows", "0"]) == 2
    assert "--evaluate-rows must be at least 1, got 0" in capsys.readouterr().err
