"""Staleness among many workers, counted beside the analysis of extreme-scale-asgd."""

from __future__ import annotations

import pytest

from leashed.cli import main
from leashed.studies.stale import TIMES, count

N = 50


@pytest.mark.parametrize("times", TIMES)
def test_its_mean_is_the_number_of_workers(times: str) -> None:
    counted = count(N, times, 20_000)
    assert counted.counts.sum() == 20_000
    assert counted.counts[0] == 0
    assert counted.mean == pytest.approx(N, rel=0.05)


def test_its_variance_is_a_geometric_one_of_exponential_times_and_small_of_constant_ones() -> None:
    assert count(N, "exponential", 50_000).variance == pytest.approx(N * (N - 1), rel=0.15)
    assert count(N, "normal", 20_000).variance < 0.1 * N * N


def test_wrong_arguments(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "staleness", "--workers", "0"]) == 2
    assert "workers must be at least 1" in capsys.readouterr().err
    assert main(["bench", "staleness", "--updates", "0"]) == 2
    assert "updates must be at least 1" in capsys.readouterr().err
