"""Which rows of a table that evicts are written to files of changes, model-checked exhaustively with
SPIN.

``docs/tables.md`` explains ``models/row_changes.pml`` and lists what these tests measure.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from model_checker import MODELS, Checker, assert_holds

ROOT = Path(__file__).resolve().parents[2]
DOCUMENT = ROOT / "docs" / "tables.md"
SOURCE = ROOT / "cpp" / "leashed" / "table" / "saving.cc"


@pytest.mark.parametrize(
    "definitions", ["SAVES=1", pytest.param("SAVES=2", marks=pytest.mark.long)]
)
def test_the_files_have_what_the_table_has(checker: Checker, definitions: str) -> None:
    assert_holds(checker, checker.verify("row_changes", definitions, large=True), DOCUMENT)


@pytest.mark.parametrize(
    ("mutation", "violated"),
    [
        ("NO_INCARNATION", "((at==255)||(saved_values==values[row_of[at]]))"),
        ("NOW", "((at==255)||(saved_values==values[row_of[at]]))"),
        ("NOT_SETTLED", "((at==255)||(saved_values==values[row_of[at]]))"),
        ("ONE_PASS", "(saved==(at!=255))"),
    ],
)
def test_each_step_is_needed(checker: Checker, mutation: str, violated: str) -> None:
    assert checker.verify("row_changes", mutation).violated == violated


@pytest.mark.parametrize("step", ["changed", "settle", "copy"])
def test_model_and_cpp_name_the_same_steps(step: str) -> None:
    model = (MODELS / "row_changes.pml").read_text()
    assert re.search(rf"^inline {step}\(", model, re.MULTILINE)
    assert re.search(rf"\b{step}\(", SOURCE.read_text())
