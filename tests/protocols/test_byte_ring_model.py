"""How the two sides of a byte ring sleep and are woken, model-checked exhaustively with SPIN.

``docs/transport.md`` explains ``models/byte_ring.pml`` and lists what these tests measure.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from model_checker import MODELS, Checker, assert_holds

ROOT = Path(__file__).resolve().parents[2]
DOCUMENT = ROOT / "docs" / "transport.md"
HEADER = ROOT / "cpp" / "leashed" / "net" / "byte_ring.h"


@pytest.mark.parametrize(
    "definitions", ["GRAINS=1 BATCH=1", "GRAINS=2", "GRAINS=4 BATCH=3 TOTAL=9"]
)
def test_nobody_sleeps_while_there_is_something_to_do(checker: Checker, definitions: str) -> None:
    assert_holds(checker, checker.verify("byte_ring", definitions), DOCUMENT)


@pytest.mark.parametrize(
    ("mutation", "violated"),
    [
        ("RELAXED_FLAG", "invalid end state"),
        ("RELAXED_COUNT", "invalid end state"),
        ("CHECK_FIRST", "invalid end state"),
        ("FLAG_FIRST", "invalid end state"),
        ("NO_LOOK", "invalid end state"),
        ("NEVER_HALF", "invalid end state"),
        ("PUBLISH_FIRST", "=="),
        ("USED_FIRST", "=="),
    ],
)
def test_each_step_is_needed(checker: Checker, mutation: str, violated: str) -> None:
    assert violated in checker.verify("byte_ring", mutation).violated


@pytest.mark.parametrize("step", ["sleep", "wake", "publish"])
def test_model_and_cpp_name_the_same_steps(step: str) -> None:
    model = (MODELS / "byte_ring.pml").read_text()
    assert re.search(rf"^inline {step}\(", model, re.MULTILINE)
    assert re.search(rf"\b{step}\(", HEADER.read_text())
