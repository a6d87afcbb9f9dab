"""Where the persistence bound pays, in small."""

from __future__ import annotations

import dataclasses
import json
import math

import numpy as np
import pytest

import leashed as lsh
from leashed.cli import main
from leashed.studies.persistence import ALGORITHMS, Asked, Cell, cells

pytest.importorskip("matplotlib")

from leashed.studies.plots import persistence

DATA = lsh.datasets.synthetic_digits(300, seed=0, test=32)
SMALL = Asked(threads=(4,), ratio=(30.0, 3.0), repeats=1, cap=8.0, batch_size=16)


@pytest.fixture(scope="module")
def found() -> list[Cell]:
    return cells(SMALL.all(DATA))


def of(found: list[Cell], algorithm: str, ratio: float) -> Cell:
    return next(one for one in found if (one.algorithm, one.ratio) == (algorithm, ratio))


def test_the_limit_of_a_run_is_counted_in_gradients_times(found: list[Cell]) -> None:
    assert [(one.ratio, one.algorithm) for one in found] == [
        (ratio, name) for ratio in SMALL.ratio for name in ALGORITHMS
    ]
    for one in found:
        assert one.runs[0].seconds[-1] == pytest.approx(8.0, abs=0.01)


def test_a_bound_lowers_staleness_the_more_the_dearer_an_update_is(found: list[Cell]) -> None:
    for ratio in SMALL.ratio:
        free, one, none = (of(found, f"LSH_ps{bound}", ratio).runs[0] for bound in ("∞", "1", "0"))
        assert none.staleness < one.staleness < free.staleness
        assert none.dropped > one.dropped > free.dropped == 0.0
        assert none.interval > free.interval
    assert of(found, "LSH_ps0", 3.0).runs[0].dropped > of(found, "LSH_ps0", 30.0).runs[0].dropped


def test_what_a_cell_says_of_its_runs(found: list[Cell]) -> None:
    run = dataclasses.replace(found[0].runs[0], half=3.0, updates=12.0, least=0.5, last=0.5)
    never = dataclasses.replace(run, half=math.nan, updates=math.nan, least=0.8, last=math.nan)
    cell = dataclasses.replace(found[0], runs=(run, never, never))
    assert cell.reached == [3.0]
    assert math.isinf(cell.median)
    assert cell.least == pytest.approx(0.7)
    assert cell.row()[4] == "1/3"
    assert cell.row()[9] == "2"


def test_a_run_that_crashed_is_counted_when_it_is_read_again() -> None:
    wild = dataclasses.replace(SMALL, ratio=(30.0,), lr=(1e20,))
    for one in cells(json.loads(json.dumps(wild.all(DATA)))):
        assert one.row()[9] == "1"
        assert one.row()[8] == "–"


def test_figures_have_a_line_for_each_algorithm(found: list[Cell]) -> None:
    figure = persistence.paying(found)
    (axes,) = figure.axes
    assert len(axes.lines) == len(ALGORITHMS)
    assert all(np.isfinite(line.get_ydata()).all() for line in axes.lines)
    assert len(persistence.over_time(found).axes) == len(SMALL.ratio)


def test_wrong_arguments(capsys: pytest.CaptureFixture[str]) -> None:
    for words, complaint in [
        (["--threads", "0"], "threads must be at least 1"),
        (["--ratio", "0"], "ratio must be greater than 0"),
        (["--lr", "0"], "lr must be"),
        (["--cap", "0"], "cap must be greater than 0"),
    ]:
        assert main(["bench", "persistence", *words]) == 2
        assert complaint in capsys.readouterr().err
