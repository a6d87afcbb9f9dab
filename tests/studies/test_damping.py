"""Damping of stale gradients among many workers: extreme-scale-asgd, Figure 5."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from leashed.cli import main, study
from leashed.studies.damping import DAMPING, Asked, Curve, curves
from leashed.studies.plots.damping import over_time

SMALL = Asked(workers=(5,), updates=10, warm=500, ids=100, repeats=2, lr=(0.01, 0.1))


def test_every_damping_begins_alike_and_ends_apart() -> None:
    every = list(curves(SMALL))
    assert [(one.rate, one.damping) for one in every] == [
        (rate, damping) for rate in SMALL.lr for damping in DAMPING
    ]
    found = every[: len(DAMPING)]
    for one in every:
        assert one.auc.shape == (2, len(one.done))
        assert np.isfinite(one.auc).all()
        np.testing.assert_array_equal(one.auc[:, 0], found[0].auc[:, 0])
        assert one.mean_staleness == pytest.approx(5, rel=0.2)
        assert one.intervals()[-1].mean == pytest.approx(one.auc[:, -1].mean())
        assert one.gained().mean == pytest.approx((one.auc[:, -1] - one.auc[:, 0]).mean())
    ends = {one.damping: one.auc[0, -1] for one in found}
    assert ends["none"] != ends["linear"]
    # Nobody is staler than the baseline cluster's thousand workers would be.
    assert ends["none"] == ends["printed"] == ends["normalised"] == ends["normalised, trans"]
    linear = next(one for one in found if one.damping == "linear")
    assert linear.against(linear).mean == 0


def test_the_beginning_is_trained() -> None:
    begins = [next(curves(replace(SMALL, warm=warm))).auc[0, 0] for warm in (500, 1)]
    assert begins[0] != begins[1]


def test_the_fewest_workers_hold_where_they_do_not_end_below_their_beginning() -> None:
    def curve(workers: int, rate: float, *ends: float, damping: str = "none") -> Curve:
        return Curve(workers, damping, rate, np.array([[0.6, end] for end in ends]), 5.0)

    asked = replace(SMALL, workers=(5, 9))
    found = [
        curve(5, 0.1, 0.7, 0.7),
        curve(5, 0.2, 0.55, 0.65),
        curve(5, 0.3, 0.5, 0.501),
        curve(5, 0.4, math.nan, 0.7),
        curve(5, 0.5, 0.7, 0.7, damping="linear"),
        curve(9, 0.6, 0.7, 0.7),
    ]
    assert asked.held(found) == [0.1, 0.2]
    table = str(asked.table([*found[:1], curve(9, 0.1, 0.65, 0.65)]))
    assert "-0.0500 ± 0.0000" in table


def test_runs_that_crash_have_a_curve_and_a_figure_all_the_same() -> None:
    found = list(curves(replace(SMALL, lr=(1e30,))))
    assert any(np.isnan(one.auc[:, -1]).all() for one in found)
    assert over_time(found).axes
    nothing = replace(found[0], auc=np.full_like(found[0].auc, np.nan))
    assert over_time([nothing]).axes


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch) -> None:
    monkeypatch.setattr(
        "leashed.cli.study.given",
        lambda *of, given=study.given: {**given(*of), "warm": 300, "updates": 3, "ids": 100},
    )
    page = tmp_path / "damping.html"
    arguments = ["--damping", "--workers", "4", "--repeats", "2", "--report", str(page)]
    assert main(["bench", "staleness", *arguments]) == 0
    assert "normalised" in capsys.readouterr().out
    assert page.stat().st_size > 10_000


def test_arguments_of_the_other_kind_are_refused(capsys) -> None:
    for arguments in (["--lr", "0"], ["--repeats", "3"], ["--times", "normal"]):
        assert main(["bench", "staleness", *arguments]) == 2
        assert f"{arguments[0]} goes with --damping" in capsys.readouterr().err
    assert main(["bench", "staleness", "--damping", "--updates", "5"]) == 2
    assert "--updates does not go with --damping" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--repeats", "0"], "repeats must be at least 1"),
        (["--lr", "0"], "lr must be greater than 0"),
        (["--workers", "0"], "workers must be at least 1"),
    ],
)
def test_wrong_arguments(arguments: list[str], message: str, capsys) -> None:
    assert main(["bench", "staleness", "--damping", *arguments]) == 2
    assert message in capsys.readouterr().err
