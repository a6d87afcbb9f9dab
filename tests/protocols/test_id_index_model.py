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
ONE = "UPDATERS=1 LOOKS=2 CHANGES=4"
SCANS = "UPDATERS=0 SCANNERS=1 LOOKS=2 CHANGES=4"
TWO_CHANGE = "UPDATERS=0 CHANGERS=2 CHANGES=6"


@pytest.mark.parametrize(
    "definitions",
    [
        ONE,
        "UPDATERS=2 LOOKS=1 CHANGES=3 IDS=1",
        SCANS,
        "UPDATERS=1 SCANNERS=1 LOOKS=1 CHANGES=3 IDS=1",
        TWO_CHANGE,
        "UPDATERS=1 LOOKS=1 CHANGERS=2 CHANGES=4 IDS=1",
        pytest.param("UPDATERS=1 LOOKS=2 CHANGES=5", marks=pytest.mark.long),
        pytest.param("UPDATERS=2 LOOKS=2 CHANGES=3 IDS=1", marks=pytest.mark.long),
        pytest.param("UPDATERS=2 LOOKS=1 CHANGES=4 IDS=1", marks=pytest.mark.long),
        pytest.param("UPDATERS=1 SCANNERS=1 LOOKS=1 CHANGES=4 IDS=1", marks=pytest.mark.long),
        pytest.param("UPDATERS=0 SCANNERS=1 LOOKS=1 CHANGERS=2 CHANGES=4", marks=pytest.mark.long),
        pytest.param("UPDATERS=1 LOOKS=1 CHANGERS=2 CHANGES=5 IDS=1", marks=pytest.mark.long),
        pytest.param("UPDATERS=0 CHANGERS=3 CHANGES=5", marks=pytest.mark.long),
    ],
)
def test_a_row_is_its_ids_as_long_as_somebody_holds_it(checker: Checker, definitions: str) -> None:
    found = checker.verify("id_index", definitions, large=True)
    assert_holds(checker, found, DOCUMENT)
    # With one look nothing is held while the next one is located.
    allowed = {"updater"} if "LOOKS=1" in definitions else set()
    assert {process for process, count in found.unreached.items() if count} <= allowed


@pytest.mark.parametrize(
    ("definitions", "violated"),
    [
        (f"{ONE} ID_FIRST", "(row!=255)"),
        (f"{ONE} UNTOLD", "(torn==0)"),
        (f"{ONE} TOLD_LATE", "(torn==0)"),
        (f"{ONE} LOADED_FIRST", "(torn==0)"),
        (f"{ONE} UNCHECKED", "(owner[held]==held_id)"),
        (f"{ONE} CHECKED_FIRST", "(owner[held]==held_id)"),
        (f"{ONE} SAME_SEGMENT", "(torn==0)"),
        (f"{ONE} HELD", "(owner[held]==held_id)"),
        (f"{ONE} EARLY", "(owner[held]==held_id)"),
        (f"{SCANS} REUSE_TOMB", "(owner[row]==id)"),
        (f"{SCANS} NO_GRACE", "(owner[row]==id)"),
        (f"{SCANS} LOOK_LATE", "(owner[row]==id)"),
        (f"{SCANS} BUMP_FIRST", "(owner[row]==id)"),
        (f"{TWO_CHANGE} STALE_SAMPLE", "(ids[((current*3)+at)]==id)"),
        (f"{TWO_CHANGE} TWICE", "(ids[((current*3)+at)]==id)"),
        (f"{TWO_CHANGE} OVERFULL RESERVE=1", "(n<=1)"),
        (f"{TWO_CHANGE} HELD_LATE", "(owner[row]==id)"),
    ],
)
def test_each_step_is_needed(checker: Checker, definitions: str, violated: str) -> None:
    assert checker.verify("id_index", definitions).violated == violated


@pytest.mark.parametrize(
    "step", ["hold", "insert", "take_row", "sampled", "evict", "rebuild", "put"]
)
def test_model_and_cpp_name_the_same_steps(step: str) -> None:
    model = (MODELS / "id_index.pml").read_text()
    assert re.search(rf"^inline {step}\(", model, re.MULTILINE)
    assert re.search(rf"\b{step}\(", SOURCE.read_text())
