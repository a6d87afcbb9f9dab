"""Damping of stale gradients among many workers: extreme-scale-asgd, Figure 5."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from leashed.cli import main, study
from leashed.studies.damping import DAMPING, Asked, curves
from leashed.studies.plots.damping import over_time
from leashed.studies.study import run

SMALL = Asked(workers=(5,), updates=10, warm=500, ids=100, repeats=2, lr=(0.01, 0.1))


def test_every_damping_begins_alike_and_ends_apart() -> None:
    found = list(curves(SMALL))
    assert [one.damping for one in found] == list(DAMPING)
    for one in found:
        assert one.auc.shape == (2, len(one.done))
        assert np.isfinite(one.auc).all()
        np.testing.assert_array_equal(one.auc[:, 0], found[0].auc[:, 0])
        assert one.mean_staleness == pytest.approx(5, rel=0.2)
        assert one.intervals()[-1].mean == pytest.approx(one.auc[:, -1].mean())
    ends = {one.damping: one.auc[0, -1] for one in found}
    assert ends["none"] != ends["linear"]
    # Nobody is staler than the baseline cluster's thousand workers would be.
    assert ends["none"] == ends["printed"] == ends["normalised"] == ends["normalised, trans"]
    linear = next(one for one in found if one.damping == "linear")
    assert linear.against(linear).mean == 0


def test_the_beginning_is_trained_and_is_the_same_at_every_rate() -> None:
    trained, hardly = SMALL, replace(SMALL, warm=1)
    begins = [
        {
            round(one["measured"]["auc"][0], 6)
            for one in run(asked).records
            if not one["setting"]["repeat"]
        }
        for asked in (trained, hardly)
    ]
    assert [len(each) for each in begins] == [1, 1]
    assert begins[0] != begins[1]


def test_the_rate_is_the_largest_at_which_the_fewest_workers_hold() -> None:
    asked = replace(SMALL, workers=(5, 9), repeats=1, lr=(0.1, 0.2, 0.3))

    def record(workers: int, lr: float, begin: float, end: float) -> dict:
        setting = {"repeat": 0, "workers": workers, "damping": "none", "lr": lr}
        return {"setting": setting, "measured": {"auc": [begin, 0.1, end]}}

    held = [record(5, 0.1, 0.6, 0.7), record(5, 0.2, 0.6, 0.6), record(5, 0.3, 0.6, 0.59)]
    assert asked.rate({}, held) == 0.2
    assert asked.rate({}, held[2:]) == 0.1
    crashed = [record(5, 0.2, 0.6, float("nan"))]
    assert asked.rate({}, [*held[:1], *crashed]) == 0.1
    assert {one["workers"] for one in asked.swept()} == {5}


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
    for arguments in (["--lr", "0"], ["--repeats", "3"], ["--times", "normal"], ["--short"]):
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
