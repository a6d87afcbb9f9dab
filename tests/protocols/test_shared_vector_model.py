"""The protocol of ``SharedVector``, model-checked exhaustively with SPIN: a process may be killed
before any instruction.

``docs/shared_memory.md`` explains ``models/shared_vector.pml`` and lists what these tests measure.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from model_checker import MODELS, Checker, assert_holds

ROOT = Path(__file__).resolve().parents[2]
DOCUMENT = ROOT / "docs" / "shared_memory.md"
HEADER = ROOT / "cpp" / "leashed" / "vector" / "shared_vector.h"

STEPS = ("join", "pin", "release", "claim", "publish", "recycle", "clear", "reap")


@pytest.mark.parametrize(
    "definitions",
    [
        "KILLS=0",
        "KILLS=1",
        "KILLS=1 UPDATES=2 READERS=1",
        "KILLS=1 UPDATES=2 READERS=1 VICTIMS=2",
    ],
)
def test_a_kill_at_any_step_does_no_harm(checker: Checker, definitions: str) -> None:
    assert_holds(checker, checker.verify("shared_vector", definitions), DOCUMENT)


def test_a_newcomer_takes_the_dead_ones_place(checker: Checker) -> None:
    found = checker.verify("shared_vector", "KILLS=1 PROCESSES=3 READERS=1")
    assert_holds(checker, found, DOCUMENT)


def test_no_process_can_repeat_a_step_for_ever(checker: Checker) -> None:
    found = checker.verify("shared_vector", "KILLS=0", cycles=True)
    assert_holds(checker, found, DOCUMENT)


@pytest.mark.parametrize(
    ("mutation", "violated"),
    [
        ("SLOTS=3 KILLS=0 UPDATES=2", "(word_slot>0)"),  # a claim meets no free slot
        ("PIN_UNCHECKED KILLS=0 UPDATES=2 READERS=1", "pinned[i]!="),
        ("CLAIM_UNCHECKED KILLS=0", "P.slot!="),
        ("RECYCLE_BEFORE_PUBLISH KILLS=0", "P.slot!="),
        ("CLEAR_WITHOUT_SEAT PROCESSES=4 READERS=1", "claimed[new]=="),
    ],
)
def test_each_step_is_needed(checker: Checker, mutation: str, violated: str) -> None:
    assert violated in checker.verify("shared_vector", mutation).violated


@pytest.mark.parametrize("step", STEPS)
def test_model_and_cpp_name_the_same_steps(step: str) -> None:
    assert re.search(rf"^inline {step}\(", (MODELS / "shared_vector.pml").read_text(), re.MULTILINE)
    assert re.search(rf"\b{step}\(", HEADER.read_text())
