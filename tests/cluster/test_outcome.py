"""Which of the trainers' parameters are a run's model."""

from __future__ import annotations

import numpy as np
import pytest
from cluster import fakes

from leashed.cluster.outcome import long_gone, together

FOUND = {k: np.full(2, k, np.float32) for k in range(3)}
IN_STEP = {"batches_used": 9.0, "syncs": 3.0, "left_early": 0.0}
APART = {**IN_STEP, "syncs": 0.0}
EARLY = {**IN_STEP, "left_early": 1.0}
TOLD = {**EARLY, "interrupted": 1.0}


@pytest.mark.parametrize(
    ("summaries", "chosen"),
    [
        ([IN_STEP, IN_STEP, IN_STEP], [0, 1, 2]),
        ([EARLY, IN_STEP, IN_STEP], [1, 2]),
        ([APART, IN_STEP, EARLY], [1]),
        ([EARLY, EARLY, EARLY], [0, 1, 2]),
        ([TOLD, EARLY, EARLY], [1, 2]),  # all by stop rules of their own but the first
        ([APART, APART, APART], [0, 1, 2]),
        ([EARLY, APART, APART], [0]),  # these may have little more than what they began with
    ],
)
def test_who_was_in_step_at_the_end_comes_first(
    summaries: list[dict[str, float]], chosen: list[int]
) -> None:
    told = {f"trainer-{k}": each for k, each in enumerate(summaries)}
    assert list(together(FOUND, told)) == chosen


@pytest.mark.parametrize(
    ("left", "counted", "gone"),
    [
        ([10.0, None, None], [0.0, 70.0, 70.0], [0]),  # these were broken off
        ([66.0, None, None], [0.0, 70.0, 70.0], []),
        ([10.0, 70.0, None], [0.0, 0.0, 0.0], [0]),  # one after the other was told to end
        ([10.0, 12.0, None], [0.0, 0.0, 70.0], [0, 1]),
        ([None, None, None], [10.0, 70.0, 70.0], []),  # who of them has, nobody knows
    ],
)
def test_who_left_long_before_the_others_is_known(
    left: list[float | None], counted: list[float], gone: list[int]
) -> None:
    members = [
        fakes.member(k + 1, "trainer", k, left[k], {"batches_used": 9.0}, counted[k])
        for k in range(3)
    ]
    found = {k: each for k, each in FOUND.items() if left[k] is not None}
    for summary, expected in ((TOLD, gone), (IN_STEP, [])):
        told = {f"trainer-{k}": summary for k in found}
        report = {"members": members, "summaries": told}
        assert sorted(long_gone(found, report, 5.0)) == expected
