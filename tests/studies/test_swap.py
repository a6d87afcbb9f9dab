"""SWAP over days: extreme-scale-asgd, Figures 4 and 7."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from leashed.cli import main, study
from leashed.studies.swap import OPTIMIZERS, Asked, curves

SHORT = {"rows": 320, "batch_size": 16}


def shorten(monkeypatch: pytest.MonkeyPatch) -> None:
    """Days of the command's are short, too."""
    monkeypatch.setattr(
        "leashed.cli.study.given", lambda *of, given=study.given: {**given(*of), **SHORT}
    )


SMALL = Asked(days=3, rows=640, batch_size=16, repeats=2)


def test_days_follow_each_other_and_squares_do_what_the_rule_says() -> None:
    plain, swap, decayed = found = list(curves(SMALL))
    assert [one.optimizer for one in found] == list(OPTIMIZERS)
    for one in found:
        assert one.auc.shape == (2, 3)
        assert ((one.auc > 0) & (one.auc < 1)).all()
        np.testing.assert_array_equal(one.days, np.arange(1, 13) / 4)
        assert one.accumulator.shape == (2, 12)
        assert one.intervals()[0].mean == pytest.approx(one.auc[:, 0].mean())
    # Adagrad's only grow; a day of SWAP's is Adagrad's until its first period ends.
    assert (np.diff(plain.accumulator) > 0).all()
    np.testing.assert_array_equal(swap.auc[:, 0], plain.auc[:, 0])
    np.testing.assert_array_equal(swap.accumulator[:, :4], plain.accumulator[:, :4])
    assert (swap.accumulator[:, 4:] < plain.accumulator[:, 4:]).all()
    assert (decayed.accumulator[:, -1] < plain.accumulator[:, -1]).all()
    assert swap.against(plain).mean == pytest.approx((swap.auc[:, 2] - plain.auc[:, 2]).mean())


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch) -> None:
    shorten(monkeypatch)
    page = tmp_path / "swap.html"
    assert main(["bench", "swap", "--days", "2", "--repeats", "2", "--report", str(page)]) == 0
    told = capsys.readouterr().out
    for word in (*OPTIMIZERS, "day 2", "against Adagrad"):
        assert word in told
    assert page.stat().st_size > 10_000


@pytest.mark.parametrize("option", ["--lr", "--decayed-lr"])
def test_a_crash_names_the_rate(option: str, capsys, monkeypatch) -> None:
    shorten(monkeypatch)
    arguments = ["--days", "2", "--repeats", "1", option, "1e38"]
    assert main(["bench", "swap", *arguments]) == 2
    assert f"on day 1 crashed: what it trains is no longer finite; give a smaller {option}" in (
        capsys.readouterr().err
    )


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--days", "0"], "days must be at least 1"),
        (["--drift", "2"], "drift must be at most 1"),
        (["--lr", "0"], "lr must be greater than 0"),
        (["--repeats", "0"], "repeats must be at least 1"),
        (["--periods", "54"], "periods must be at most 53"),
    ],
)
def test_wrong_arguments(arguments: list[str], message: str, capsys) -> None:
    assert main(["bench", "swap", *arguments]) == 2
    assert message in capsys.readouterr().err
