"""How workers of a mode wait and are woken, model-checked exhaustively with SPIN.

``docs/modes.md`` explains ``models/flags.pml``.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from model_checker import MODELS, Checker, assert_holds

ROOT = Path(__file__).resolve().parents[2]
DOCUMENT = ROOT / "docs" / "modes.md"
HEADER = ROOT / "cpp" / "leashed" / "base" / "flags.h"


@pytest.mark.parametrize("definitions", ["WORKERS=1 ROUNDS=3", "WORKERS=2", "WORKERS=3"])
def test_nobody_sleeps_through_a_grant_or_the_end(checker: Checker, definitions: str) -> None:
    assert_holds(checker, checker.verify("flags", definitions), DOCUMENT)


@pytest.mark.parametrize(
    ("mutation", "violated"),
    [
        ("ASK_FIRST", "invalid end state"),
        ("NO_LOOK", "invalid end state"),
        ("WAKE_FIRST", "invalid end state"),
        ("RAISE_FIRST", "=="),
        ("STOP_QUIETLY", "invalid end state"),
        ("LOWER_ALL", "invalid end state"),
    ],
)
def test_each_step_is_needed(checker: Checker, mutation: str, violated: str) -> None:
    assert violated in checker.verify("flags", f"WORKERS=2 {mutation}").violated


@pytest.mark.parametrize("step", ["raise", "wait", "lower"])
def test_model_and_cpp_name_the_same_steps(step: str) -> None:
    model = (MODELS / "flags.pml").read_text()
    assert re.search(rf"^inline {step}\(", model, re.MULTILINE)
    assert re.search(rf"\b{step}\(", HEADER.read_text())
