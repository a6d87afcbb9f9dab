"""What a trainer's pushes come to at an embedding server that is cut off, killed and started again,
model-checked exhaustively with SPIN.

``docs/transport.md`` explains ``models/row_tickets.pml`` and lists what these tests measure.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from model_checker import Checker, assert_holds

DOCUMENT = Path(__file__).resolve().parents[2] / "docs" / "transport.md"
ACCOUNT = "(((((rows[l]&(1<<k))!=0)+((lost[l]&(1<<k))!=0))+((left[l]&(1<<k))!=0))==1)"


@pytest.mark.parametrize(
    "definitions", ["P=3 LIVES=2 CUTS=1 KILLS=1 OUTS=1", "P=4 LIVES=2 CUTS=2 KILLS=2 OUTS=0"]
)
def test_no_push_is_applied_twice_and_the_account_is_what_the_rows_have(
    checker: Checker, definitions: str
) -> None:
    assert_holds(checker, checker.verify("row_tickets", definitions, large=True), DOCUMENT)


@pytest.mark.parametrize(
    "mutation",
    ["BLIND", "NO_LIFE", "NUMBER_LATER", "NUMBER_FIRST", "ANSWER_FIRST", "FORGET", "FORGET_OUTS"],
)
def test_each_rule_is_needed(checker: Checker, mutation: str) -> None:
    assert checker.verify("row_tickets", mutation).violated == ACCOUNT
