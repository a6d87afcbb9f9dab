"""Damping of stale gradients among many workers: extreme-scale-asgd, Figure 5."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from leashed.cli import main, study
from leashed.studies.damping import DAMPING, Asked, curves
from leashed.studies.plots.damping import over_time

SMALL = Asked(workers=(5,), updates=10, rows=500, repeats=2, batch_size=8)


def test_every_damping_begins_alike_and_ends_apart() -> None:
    found = list(curves(SMALL))
    assert [one.damping for one in found] == list(DAMPING)
    for one in found:
        assert one.loss.shape == (2, len(one.seconds))
        assert one.auc.shape == (2,)
        assert np.isfinite(one.loss).all()
        np.testing.assert_array_equal(one.loss[:, 0], found[0].loss[:, 0])
        assert one.mean_staleness == pytest.approx(5, rel=0.2)
        assert one.intervals()[-1].mean == pytest.approx(one.loss[:, -1].mean())
    ends = {one.damping: one.loss[0, -1] for one in found}
    assert ends["none"] != ends["linear"]
    # Nobody is staler than the baseline cluster's thousand workers would be.
    assert ends["none"] == ends["printed"] == ends["normalised"]


def test_a_run_that_crashed_has_no_loss_from_there_on() -> None:
    padded = SMALL.padded(np.array([1.0, 2.0]))
    assert padded[:2].tolist() == [1.0, 2.0]
    assert np.isnan(padded[2:]).all()


def test_runs_that_crash_have_a_curve_and_a_figure_all_the_same() -> None:
    found = list(curves(replace(SMALL, lr=1e30)))
    assert any(one.loss.shape and np.isnan(one.auc).all() for one in found)
    assert over_time(found).axes
    nothing = replace(found[0], loss=np.full_like(found[0].loss, np.nan))
    assert over_time([nothing]).axes


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch) -> None:
    monkeypatch.setattr(
        "leashed.cli.study.given", lambda *of, given=study.given: {**given(*of), "rows": 300}
    )
    page = tmp_path / "damping.html"
    arguments = ["--damping", "--workers", "4", "--repeats", "2", "--report", str(page)]
    assert main(["bench", "staleness", *arguments]) == 0
    assert "normalised" in capsys.readouterr().out
    assert page.stat().st_size > 10_000


def test_arguments_of_the_other_kind_are_refused(capsys) -> None:
    for arguments in (["--lr", "0"], ["--repeats", "3"], ["--times", "normal"], ["--full"]):
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
