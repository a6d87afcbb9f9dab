"""The reclamation protocol of ``ParameterVector``, model-checked exhaustively with SPIN.

``models/split_count.pml`` is the protocol that ``cpp/leashed/vector`` implements, and
``models/printed.pml`` the paper's (leashed-sgd, Algorithms 1 and 3); ``docs/reclamation.md`` explains
both and lists what these tests measure. Needs ``spin`` and ``gcc`` (``apt-get install spin gcc``).
"""

from __future__ import annotations

import re
from pathlib import Path

import model_checker
import pytest
from model_checker import Checker, Verification

ROOT = Path(__file__).resolve().parents[2]
MODELS = ROOT / "models"
DOCUMENT = ROOT / "docs" / "reclamation.md"
HEADER = ROOT / "cpp" / "leashed" / "vector" / "parameter_vector.h"

STEPS = ("pin", "release", "claim", "publish", "transfer", "recycle")


def assert_holds(checker: Checker, found: Verification) -> None:
    model_checker.assert_holds(checker, found, DOCUMENT)


@pytest.mark.parametrize("persistence", ["INF", "1", "0"])
@pytest.mark.parametrize(
    "threads",
    [
        "WRITERS=2 UPDATES=2 READERS=1",
        "WRITERS=3 UPDATES=1 READERS=0",
        pytest.param("WRITERS=3 UPDATES=1 READERS=1", marks=pytest.mark.long),
    ],
)
def test_split_count_is_safe(checker: Checker, threads: str, persistence: str) -> None:
    large = "WRITERS=3" in threads and "READERS=1" in threads
    found = checker.verify("split_count", f"{threads} PERSISTENCE={persistence}", large=large)
    assert_holds(checker, found)
    assert found.unreached["writer"] == 0
    if "READERS=0" not in threads:
        assert found.unreached == {"writer": 0, "reader": 0, "init": 0}


@pytest.mark.parametrize("persistence", ["INF", "1", "0"])
@pytest.mark.parametrize(
    "threads",
    [
        "WRITERS=2 UPDATES=2 KEEPERS=1 READERS=1",
        "WRITERS=3 UPDATES=1 KEEPERS=1 READERS=0",
    ],
)
def test_a_publisher_may_leave_t_alone(checker: Checker, threads: str, persistence: str) -> None:
    found = checker.verify("split_count", f"{threads} PERSISTENCE={persistence}")
    assert_holds(checker, found)
    assert found.unreached["writer"] == 0


def test_equal_t_does_not_mean_the_same_vector(checker: Checker) -> None:
    assert checker.verify("split_count", "WRITERS=2 UPDATES=2 COMPARE_T").errors == 0
    found = checker.verify("split_count", "WRITERS=2 UPDATES=2 KEEPERS=1 COMPARE_T")
    assert "(published+1)" in found.violated  # an update computed from another vector is published


@pytest.mark.parametrize(
    "definitions",
    [
        "WRITERS=2 UPDATES=3 READERS=0",
        pytest.param("WRITERS=2 UPDATES=3 READERS=1 KEEPERS=1", marks=pytest.mark.long),
        pytest.param("WRITERS=2 UPDATES=3 READERS=1", marks=pytest.mark.long),
        pytest.param("WRITERS=2 UPDATES=2 READERS=2", marks=pytest.mark.long),
        pytest.param("WRITERS=2 UPDATES=2 READERS=1 WORD_BITS=2", id="bitmap of several words"),
        pytest.param("WRITERS=2 UPDATES=3 SLOTS=6", id="a larger pool is never used up"),
    ],
)
def test_split_count_is_safe_in_longer_runs(checker: Checker, definitions: str) -> None:
    assert_holds(checker, checker.verify("split_count", definitions, large=True))


@pytest.mark.parametrize("persistence", ["INF", "0"])
def test_no_thread_can_repeat_a_step_for_ever(checker: Checker, persistence: str) -> None:
    definitions = f"WRITERS=2 UPDATES=2 READERS=1 WORD_BITS=2 PERSISTENCE={persistence}"
    assert_holds(checker, checker.verify("split_count", definitions, cycles=True))


@pytest.mark.parametrize(
    "threads", ["WRITERS=2 UPDATES=2", "WRITERS=3 UPDATES=2", "WRITERS=2 UPDATES=2 READERS=1"]
)
def test_one_slot_fewer_is_too_few(checker: Checker, threads: str) -> None:
    size = dict(definition.split("=") for definition in threads.split())
    slots = 2 * int(size["WRITERS"]) + int(size.get("READERS", 0)) - 1
    found = checker.verify("split_count", f"{threads} SLOTS={slots}")
    assert found.violated == "(n>0)"  # a claim meets no free slot


@pytest.mark.parametrize("threads", ["WRITERS=2 UPDATES=2", "WRITERS=3 UPDATES=1"])
def test_dropping_the_pin_before_the_cas_is_refuted(checker: Checker, threads: str) -> None:
    found = checker.verify("split_count", f"{threads} UNPIN_BEFORE_CAS")
    assert "expected[i]!=" in found.violated  # a slot comes back under a pending CAS


def test_a_release_that_does_not_recycle_is_refuted(checker: Checker) -> None:
    found = checker.verify("split_count", "WRITERS=2 UPDATES=2 RELEASE_NEVER_RECYCLES")
    assert found.violated.startswith("((n==")  # at the end more than one slot is in use


@pytest.mark.parametrize(
    "definitions",
    [
        "WRITERS=2 UPDATES=2",
        "WRITERS=2 UPDATES=2 PERSISTENCE=0",
        "WRITERS=3 UPDATES=1",
        "WRITERS=3 UPDATES=1 PERSISTENCE=0",
    ],
)
def test_printed_protocol_is_safe_while_headers_leak(checker: Checker, definitions: str) -> None:
    found = checker.verify("printed", definitions)
    assert_holds(checker, found)
    assert found.unreached == {"thread": 0, "init": 0}


@pytest.mark.parametrize("threads", ["WRITERS=2 UPDATES=1", "WRITERS=3 UPDATES=1"])
def test_printed_protocol_uses_a_freed_header(checker: Checker, threads: str) -> None:
    found = checker.verify("printed", f"{threads} FREE_HEADERS")
    assert found.violated == "allocated[latest_param]"


def test_printed_protocol_loses_a_recycled_header(checker: Checker) -> None:
    found = checker.verify("printed", "WRITERS=2 UPDATES=2 RECYCLE_HEADERS")
    assert "t[latest_param]!=" in found.violated  # one thread deleted another's theta


@pytest.mark.parametrize("step", STEPS)
def test_model_and_cpp_name_the_same_steps(step: str) -> None:
    assert re.search(rf"^inline {step}\(", (MODELS / "split_count.pml").read_text(), re.MULTILINE)
    assert re.search(rf"\b{step}\(", HEADER.read_text())
