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
        pytest.param("UPDATERS=2 LOOKS=1 CHANGES=4", marks=pytest.mark.long),
        pytest.param("UPDATERS=1 SCANNERS=1 LOOKS=1 CHANGES=4", marks=pytest.mark.long),
        pytest.param("UPDATERS=0 SCANNERS=1 LOOKS=1 CHANGERS=2 CHANGES=4", marks=pytest.mark.long),
        pytest.param("UPDATERS=1 LOOKS=1 CHANGERS=2 CHANGES=5", marks=pytest.mark.long),
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
    ("mutation", "violated"),
    [
        ("ID_FIRST", "(row!=255)"),
        ("FULL SLOTS=2", "(seen<2)"),
        ("FREE_SEGMENT", "(life[segment]==lived)"),
        ("LOADED_FIRST", "(life[segment]==lived)"),
        ("UNCHECKED", "(owner[held]==held_id)"),
        ("CHECKED_FIRST", "(owner[held]==held_id)"),
        ("SAME_SEGMENT", "(owner[held]==held_id)"),
        ("HELD", "(owner[held]==held_id)"),
        ("EARLY", "(owner[held]==held_id)"),
    ],
)
def test_each_step_is_needed(checker: Checker, mutation: str, violated: str) -> None:
    assert checker.verify("id_index", f"{ONE} {mutation}").violated == violated


@pytest.mark.parametrize(
    ("mutation", "violated"),
    [
        ("REUSE_TOMB", "(owner[row]==id)"),
        ("NO_GRACE", "(owner[row]==id)"),
        ("LOOK_LATE", "(owner[row]==id)"),
        ("BUMP_FIRST", "(owner[row]==id)"),
    ],
)
def test_who_reads_and_holds_nothing_is_waited_for(
    checker: Checker, mutation: str, violated: str
) -> None:
    assert checker.verify("id_index", f"{SCANS} {mutation}").violated == violated


@pytest.mark.parametrize(
    ("mutation", "violated"),
    [
        ("STALE_SAMPLE", "(ids[((current*3)+at)]==id)"),
        ("TWICE", "(ids[((current*3)+at)]==id)"),
        ("OVERFULL RESERVE=1", "(n<=1)"),
        ("HELD_LATE", "(owner[row]==id)"),
    ],
)
def test_who_evicts_looks_again_and_who_inserts_holds(
    checker: Checker, mutation: str, violated: str
) -> None:
    assert checker.verify("id_index", f"{TWO_CHANGE} {mutation}").violated == violated


@pytest.mark.parametrize(
    "step", ["hold", "insert", "take_row", "sampled", "evict", "rebuild", "reclaim", "put"]
)
def test_model_and_cpp_name_the_same_steps(step: str) -> None:
    model = (MODELS / "id_index.pml").read_text()
    assert re.search(rf"^inline {step}\(", model, re.MULTILINE)
    assert re.search(rf"\b{step}\(", SOURCE.read_text())
