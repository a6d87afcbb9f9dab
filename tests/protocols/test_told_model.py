"""Servers carry out a leader's log, and each push of workers once, over deaths, cuts and restarts,
model-checked exhaustively with SPIN.

``docs/transport.md`` explains ``models/told.pml`` and lists what these tests measure.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from model_checker import Checker, assert_holds

DOCUMENT = Path(__file__).resolve().parents[2] / "docs" / "transport.md"
STANDS_STILL = "invalid end state"
KEPT = "(held["
TWICE = "(((applied[me]&(1<<l))==0)||(batch_of[l]!=batch_of[x]))"
LEFT_OUT = "(((applied[i]|missing[i])==pushed)&&((applied[i]&missing[i])==0))"
ANOTHERS = "((l==x)&&("


@pytest.mark.parametrize(
    "definitions",
    [
        "GONES=1 KILLS=1",
        "GONES=1 CUTS=1",
        "GONES=1 RESTARTS=1",
        "F=2 GONES=1",
        "F=2 KILLS=1",
        "F=2 RESTARTS=1",
        "F=2 CUTS=1",
        "W=2 GONES=1",
        "W=2 CUTS=1",
        "W=2 Q=1 RESTARTS=1",
        "W=2 F=2",
    ],
)
def test_followers_carry_out_the_log_and_each_push_once_or_count_it(
    checker: Checker, definitions: str
) -> None:
    assert_holds(checker, checker.verify("told", definitions, large=True), DOCUMENT)


@pytest.mark.parametrize("definitions", ["F=2 GONES=1", "CUTS=1 RESTARTS=1"])
def test_nothing_goes_round_for_ever(checker: Checker, definitions: str) -> None:
    found = checker.verify("told", definitions, cycles=True)
    assert (found.errors, found.violated, found.complete) == (0, "", True)


@pytest.mark.parametrize(
    ("mutation", "violated"),
    [
        ("JOURNAL_AFTER_SEND RESTARTS=1", TWICE),
        ("JOURNAL_AFTER_GRANT W=2 Q=1 RESTARTS=1", KEPT),
        ("NO_POSITION CUTS=1", STANDS_STILL),
        ("POSITION_FIRST KILLS=1", LEFT_OUT),
        ("POSITION_LATER KILLS=1", LEFT_OUT),
        ("GONE_BY_LEASE GONES=1", STANDS_STILL),
        ("IN_ORDER GONES=1", STANDS_STILL),
        ("BY_NODE GONES=1", ANOTHERS),
        ("NO_HELLO CUTS=1", STANDS_STILL),
        ("FORGET_GONE GONES=1 KILLS=1", KEPT),
        ("KEEP_LEASES RESTARTS=1", STANDS_STILL),
    ],
)
def test_each_rule_is_needed(checker: Checker, mutation: str, violated: str) -> None:
    assert checker.verify("told", mutation).violated.startswith(violated)
