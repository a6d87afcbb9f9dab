"""How a training goes over from a parameter server to all-reduce and back while workers die,
model-checked exhaustively with SPIN.

``docs/transport.md`` explains ``models/ar_ps.pml`` and lists what these tests measure.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from model_checker import Checker, assert_holds

DOCUMENT = Path(__file__).resolve().parents[2] / "docs" / "transport.md"
STANDS_STILL = "invalid end state"


@pytest.mark.parametrize("definitions", ["START=0", "START=1"])
def test_no_batch_is_applied_twice_and_replicas_of_a_version_are_alike(
    checker: Checker, definitions: str
) -> None:
    assert_holds(checker, checker.verify("ar_ps", definitions, large=True), DOCUMENT)


@pytest.mark.parametrize("definitions", ["Q=2 START=0", "Q=2 START=1"])
def test_nothing_goes_round_for_ever(checker: Checker, definitions: str) -> None:
    found = checker.verify("ar_ps", definitions, cycles=True, large=True)
    assert (found.errors, found.violated, found.complete) == (0, "", True)


@pytest.mark.parametrize(
    ("mutation", "violated"),
    [
        ("OWN_COMMIT", "(mask[me]==mask_at[v])"),
        ("NO_EPOCH", "( !(of_ar)||((s& ~(parts))==0))"),
        ("OLD_VOTE", "((x==log_ver)&&(y==log_mask))"),
        ("VOTE_EARLY", "( !(of_ar)||((s& ~(parts))==0))"),
        ("BY_BATCH", "((s&wrong)==0)"),
        ("ANY_HOLDER START=1", STANDS_STILL),
        ("NO_VERSION", "((x==log_ver)&&(y==log_mask))"),
        ("BY_LEASE", STANDS_STILL),
    ],
)
def test_each_rule_is_needed(checker: Checker, mutation: str, violated: str) -> None:
    assert checker.verify("ar_ps", mutation).violated == violated
