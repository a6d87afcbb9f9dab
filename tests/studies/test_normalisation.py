"""Normalisation among many workers: extreme-scale-asgd, Figure 6."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from leashed.cli import main, study
from leashed.studies.normalisation import ARMS, Asked, curves
from leashed.studies.plots.normalisation import over_time

SMALL = Asked(workers=(4,), updates=6, rows=500, repeats=2, batch_size=8)


def test_arms_differ_by_what_they_normalise() -> None:
    found = {one.arm: one for one in curves(SMALL)}
    assert list(found) == list(ARMS)
    for one in found.values():
        assert one.auc.shape == (2, len(one.seconds))
        assert ((one.auc > 0) & (one.auc < 1)).all()
        assert one.intervals()[-1].mean == pytest.approx(one.auc[:, -1].mean())
        assert 0 <= one.near_zero <= 1
    plain, data = found["staleness"], found["staleness + data"]
    # Nobody is staler than the baseline cluster's thousand workers would be.
    np.testing.assert_array_equal(found["none"].auc, plain.auc)
    np.testing.assert_array_equal(found["data alone (ours)"].auc, data.auc)
    assert (data.auc[:, 0] != plain.auc[:, 0]).all()
    assert (found["staleness + batch (ours)"].auc[:, -1] != data.auc[:, -1]).all()
    assert plain.near_zero == 0
    assert data.against(plain).mean == pytest.approx((data.auc[:, -1] - plain.auc[:, -1]).mean())


def test_runs_that_crash_have_a_curve_and_a_figure_all_the_same() -> None:
    found = list(curves(replace(SMALL, lr=1e30)))
    assert any(np.isnan(one.auc[:, -1]).all() for one in found)
    assert over_time(found).axes
    nothing = replace(found[0], auc=np.full_like(found[0].auc, np.nan))
    assert over_time([nothing]).axes


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch) -> None:
    monkeypatch.setattr(
        "leashed.cli.study.given",
        lambda *of, given=study.given: {**given(*of), "rows": 300, "updates": 4},
    )
    page = tmp_path / "normalisation.html"
    arguments = ["--workers", "3,5", "--batch-size", "8", "--repeats", "2", "--report", str(page)]
    assert main(["bench", "normalisation", *arguments]) == 0
    told = capsys.readouterr().out
    for word in (*ARMS, "means near 0", "one running average"):
        assert word in told
    assert page.stat().st_size > 10_000


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--workers", "0"], "workers must be at least 1"),
        (["--batch-size", "1"], "batch_size must be at least 2"),
        (["--lr", "0"], "lr must be greater than 0"),
        (["--repeats", "0"], "repeats must be at least 1"),
    ],
)
def test_wrong_arguments(arguments: list[str], message: str, capsys) -> None:
    assert main(["bench", "normalisation", *arguments]) == 2
    assert message in capsys.readouterr().err
