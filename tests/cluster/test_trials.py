"""Runs of ``leashed cluster up`` to each of which one thing happens: how they end."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from cluster import trials


@pytest.mark.process
@pytest.mark.timeout(1200)  # beside other tests that start processes
def test_9_runs_end_as_they_should(tmp_path: Path) -> None:
    """``python tests/cluster/trials.py`` for 200."""
    ended = trials.attempts(9, 0, 2, tmp_path)
    wrong = "\n".join(trials.line(each) for each in ended if each.wrong)
    assert not wrong, wrong
    assert sum(each.status == 0 for each in ended) >= 4


def test_every_case_comes_to_every_synchroniser_and_a_few_differ() -> None:
    every = {
        (case, kind)
        for case in trials.CASES
        for kind in ("easgd", "ma", "bmuf")
        if not case.who.startswith(trials.SERVERS) or kind == "easgd"
    }
    whole = trials.trials(2000, random.Random(0))
    assert {(trial.case, trial.kind) for trial in whole} == every
    assert len({trial.case for trial in trials.trials(20, random.Random(0))}) == 20
