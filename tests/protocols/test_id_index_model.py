"""How ids of a growing table are found, inserted, evicted and moved, model-checked exhaustively with
SPIN.

``docs/tables.md`` explains ``models/id_index.pml`` and lists what these tests measure.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from model_checker import MODELS, Checker, assert_holds

ROOT = Path(__file__).resolve().parents[2]
DOCUMENT = ROOT / "docs" / "tables.md"
SOURCE = ROOT / "cpp" / "leashed" / "table" / "id_index.cc"
ONE = "UPDATERS=1 LOOKS=2 CHANGES=5"
TWO_CHANGE = "UPDATERS=0 CHANGERS=2 CHANGES=6"


@pytest.mark.parametrize(
    "definitions",
    [
        ONE,
        "UPDATERS=2 LOOKS=2 CHANGES=3 IDS=1",
        TWO_CHANGE,
        "UPDATERS=1 LOOKS=1 CHANGERS=2 CHANGES=5 IDS=1",
        pytest.param("UPDATERS=2 LOOKS=1 CHANGES=4", marks=pytest.mark.long),
        pytest.param("UPDATERS=1 LOOKS=1 CHANGERS=2 CHANGES=5", marks=pytest.mark.long),
        pytest.param("UPDATERS=0 CHANGERS=3 CHANGES=5", marks=pytest.mark.long),
    ],
)
def test_a_row_is_its_ids_as_long_as_somebody_holds_it(checker: Checker, definitions: str) -> None:
    assert_holds(checker, checker.verify("id_index", definitions, large=True), DOCUMENT)


@pytest.mark.parametrize(
    ("mutation", "violated"),
    [
        ("REUSE_TOMB", "(owner[row]==id)"),
        ("NO_GRACE", "(owner[row]==id)"),
        ("ID_FIRST", "(row!=255)"),
        ("LOOK_LATE", "(owner[held]==held_id)"),
        ("FREE_SEGMENT", "(life[segment]==lived)"),
        ("EARLY", "(owner[held]==held_id)"),
        ("BUMP_FIRST", "(owner[held]==held_id)"),
        ("FULL", "(seen<3)"),
    ],
)
def test_each_step_is_needed(checker: Checker, mutation: str, violated: str) -> None:
    assert checker.verify("id_index", f"{ONE} {mutation}").violated == violated


@pytest.mark.parametrize(
    ("mutation", "violated"),
    [
        ("STALE_SAMPLE", "(ids[((current*3)+at)]==id)"),
        ("TWICE", "(ids[((current*3)+at)]==id)"),
        ("OVERFULL RESERVE=1", "(n<=1)"),
        ("UNSEEN", "(owner[row]==id)"),
    ],
)
def test_who_evicts_looks_again(checker: Checker, mutation: str, violated: str) -> None:
    assert checker.verify("id_index", f"{TWO_CHANGE} {mutation}").violated == violated


@pytest.mark.parametrize("step", ["insert", "sampled", "evict", "rebuild", "reclaim", "put"])
def test_model_and_cpp_name_the_same_steps(step: str) -> None:
    model = (MODELS / "id_index.pml").read_text()
    assert re.search(rf"^inline {step}\(", model, re.MULTILINE)
    assert re.search(rf"\b{step}\(", SOURCE.read_text())
