"""The reclamation protocol of ``ParameterVector``, model-checked exhaustively with SPIN.

``models/split_count.pml`` is the protocol that ``cpp/leashed/vector`` implements, and
``models/printed.pml`` the paper's (leashed-sgd, Algorithms 1 and 3); ``docs/reclamation.md`` explains
both and lists what these tests measure. Needs ``spin`` and ``gcc`` (``apt-get install spin gcc``).
"""

from __future__ import annotations

import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
MODELS = ROOT / "models"
DOCUMENT = ROOT / "docs" / "reclamation.md"
HEADER = ROOT / "cpp" / "leashed" / "vector" / "parameter_vector.h"

STEPS = ("pin", "release", "claim", "publish", "transfer", "recycle")
DOCUMENTED_SPIN = "6.5.2"  # another version may count states differently


@dataclass(frozen=True)
class Verification:
    """What SPIN says of one model.

    states: states stored. errors: 0, or 1 for the first error, where the search stops.
    violated: the first error's assertion or kind, empty without one. complete: the whole state
    space was searched. unreached: statements never executed, by process.
    """

    states: int
    errors: int
    violated: str
    complete: bool
    unreached: dict[str, int]


class Checker:
    """Runs SPIN on a model, in a folder that takes what it writes."""

    def __init__(self, folder: Path) -> None:
        for tool in ("spin", "gcc"):
            if shutil.which(tool) is None:
                pytest.fail(f"{tool} is missing; remedy: apt-get install {tool}", pytrace=False)
        self.folder = folder
        self.version = self._run("spin", "-V")

    def _run(self, *command: str) -> str:
        done = subprocess.run(command, check=False, cwd=self.folder, capture_output=True, text=True)
        assert done.returncode == 0, f"{' '.join(command)}\n{done.stdout}{done.stderr}"
        return done.stdout

    def verify(self, model: str, definitions: str, *, cycles: bool = False) -> Verification:
        """Search ``models/<model>.pml`` with ``definitions`` ("WRITERS=2 UPDATES=1 ...").

        Assertions and deadlocks by default; with ``cycles``, non-progress cycles as well.
        """
        flags = [f"-D{definition}" for definition in definitions.split()]
        self._run("spin", *flags, "-a", str(MODELS / f"{model}.pml"))
        mode = "-DNP" if cycles else "-DSAFETY"
        self._run("gcc", "-w", "-O1", mode, "-DCOLLAPSE", "-DMEMLIM=2000", "-o", "pan", "pan.c")
        output = self._run("./pan", "-m10000", *(["-l"] if cycles else []))
        assert "max search depth too small" not in output, output
        return _parse(output)


def _parse(output: str) -> Verification:
    def number(pattern: str) -> int:
        found = re.search(pattern, output)
        assert found, output
        return int(float(found[1]))

    violated = re.search(
        r"^pan:\d+: (?:assertion violated )?(.*) \(at depth \d+\)", output, re.MULTILINE
    )
    unreached = re.findall(r"unreached in (?:proctype )?(\w+)\n(?:.*\n)*?\t\((\d+) of", output)
    return Verification(
        states=number(r"([\d.e+]+) states, stored"),
        errors=number(r"errors: (\d+)"),
        violated=violated[1] if violated else "",
        complete="Search not completed" not in output,
        unreached={process: int(count) for process, count in unreached},
    )


@pytest.fixture
def checker(tmp_path: Path) -> Checker:
    return Checker(tmp_path)


def assert_holds(checker: Checker, found: Verification) -> None:
    """No error in the whole state space, and the document has the number of states."""
    assert (found.errors, found.violated, found.complete) == (0, "", True)
    if DOCUMENTED_SPIN in checker.version:
        states = f"{found.states:,}"
        assert states in DOCUMENT.read_text(), f"{DOCUMENT} lacks the measured {states} states"


@pytest.mark.parametrize("persistence", ["INF", "1", "0"])
@pytest.mark.parametrize(
    "threads",
    [
        "WRITERS=2 UPDATES=2 READERS=1",
        "WRITERS=3 UPDATES=1 READERS=0",
        "WRITERS=3 UPDATES=1 READERS=1",
    ],
)
def test_split_count_is_safe(checker: Checker, threads: str, persistence: str) -> None:
    found = checker.verify("split_count", f"{threads} PERSISTENCE={persistence}")
    assert_holds(checker, found)
    assert found.unreached["writer"] == 0
    if "READERS=0" not in threads:
        assert found.unreached == {"writer": 0, "reader": 0, "init": 0}


@pytest.mark.parametrize(
    "definitions",
    [
        "WRITERS=2 UPDATES=3 READERS=0",
        "WRITERS=2 UPDATES=3 READERS=1",
        "WRITERS=2 UPDATES=2 READERS=2",
        pytest.param("WRITERS=2 UPDATES=2 READERS=1 WORD_BITS=2", id="bitmap of several words"),
        pytest.param("WRITERS=2 UPDATES=3 SLOTS=6", id="a larger pool is never used up"),
    ],
)
def test_split_count_is_safe_in_longer_runs(checker: Checker, definitions: str) -> None:
    assert_holds(checker, checker.verify("split_count", definitions))


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
