"""How the workers of a mode do an update's work together, model-checked exhaustively with SPIN.

``docs/modes.md`` explains ``models/joint_work.pml``.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from model_checker import MODELS, Checker, assert_holds

ROOT = Path(__file__).resolve().parents[2]
DOCUMENT = ROOT / "docs" / "modes.md"
HEADER = ROOT / "cpp" / "leashed" / "base" / "joint_work.h"


@pytest.mark.parametrize(
    "definitions", ["HELPERS=1 HELPS=3 WORKS=3", "HELPERS=2", "HELPERS=3 HELPS=1"]
)
def test_every_part_is_done_once_and_waited_for(checker: Checker, definitions: str) -> None:
    found = checker.verify("joint_work", definitions)
    assert_holds(checker, found, DOCUMENT)
    assert set(found.unreached.values()) <= {0}


@pytest.mark.parametrize(
    ("mutation", "violated"),
    [
        ("WORD_FIRST", "inside==0"),
        ("COUNT_LATE", "undone>0"),
        ("LOAD_AND_STORE", "done["),
        ("END_FIRST", "done["),
        ("NO_WAIT", "done["),
        ("NO_LOOK", "invalid end state"),
        ("WAKE_FIRST", "invalid end state"),
        ("NEVER_WAKE", "invalid end state"),
        ("READ_BEFORE", "what==opened"),
        ("READ_BETWEEN NO_NUMBER", "what==opened"),
    ],
)
def test_each_step_is_needed(checker: Checker, mutation: str, violated: str) -> None:
    found = checker.verify("joint_work", f"HELPERS=1 {mutation}")
    assert violated in found.violated


@pytest.mark.parametrize("mutation", ["READ_BETWEEN", "NO_NUMBER"])
def test_reading_after_the_swap_and_the_number_each_suffice(
    checker: Checker, mutation: str
) -> None:
    found = checker.verify("joint_work", f"HELPERS=2 {mutation}")
    assert (found.errors, found.complete) == (0, True)


@pytest.mark.parametrize("step", ["open", "begin", "end", "wait"])
def test_model_and_cpp_name_the_same_steps(step: str) -> None:
    model = (MODELS / "joint_work.pml").read_text()
    assert re.search(rf"^inline {step}\(", model, re.MULTILINE)
    assert re.search(rf"^//   {step} ", HEADER.read_text(), re.MULTILINE)
