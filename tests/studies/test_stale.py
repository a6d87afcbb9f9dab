"""Staleness among many workers, counted beside the analysis of extreme-scale-asgd."""

from __future__ import annotations

import pytest

from leashed.cli import main
from leashed.studies.stale import PAPER, TIMES, Counting, count, shares

N = 50


@pytest.mark.parametrize("times", TIMES)
def test_its_mean_is_the_number_of_workers(times: str) -> None:
    counted = count(N, times, 20_000)
    assert counted.counts.sum() == 20_000
    assert counted.counts[0] == 0
    assert counted.mean == pytest.approx(N, rel=0.05)


@pytest.mark.parametrize("times", TIMES)
@pytest.mark.parametrize("share", [0.3, 0.875])
def test_its_mean_is_that_of_the_share_of_a_cycle_between_pull_and_push(
    times: str, share: float
) -> None:
    counted = count(N, times, 20_000, share=share)
    assert counted.mean == pytest.approx(1 + share * (N - 1), rel=0.05)


def test_the_papers_means_are_shares_of_a_cycle() -> None:
    assert shares(7) == [1.0]
    for workers, (mean, _) in PAPER.items():
        whole, own = shares(workers)
        assert whole == 1.0
        assert 1 + own * (workers - 1) == pytest.approx(mean, abs=0.2)
    asked = Counting((1000, 7)).settings()
    assert len(asked) == 3 * len(TIMES)
    assert len({tuple(one.values()) for one in asked}) == len(asked)


def test_its_variance_is_a_geometric_one_of_exponential_times_and_small_of_constant_ones() -> None:
    assert count(N, "exponential", 50_000).variance == pytest.approx(N * (N - 1), rel=0.15)
    assert count(N, "normal", 20_000).variance < 0.1 * N * N


def test_wrong_arguments(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "staleness", "--workers", "0"]) == 2
    assert "workers must be at least 1" in capsys.readouterr().err
    assert main(["bench", "staleness", "--updates", "0"]) == 2
    assert "updates must be at least 1" in capsys.readouterr().err
