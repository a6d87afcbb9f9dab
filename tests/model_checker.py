"""SPIN, on the models in ``models/``, for the tests of each."""

from __future__ import annotations

import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

MODELS = Path(__file__).resolve().parents[1] / "models"

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

    def verify(
        self, model: str, definitions: str, *, cycles: bool = False, large: bool = False
    ) -> Verification:
        """Search ``models/<model>.pml`` with ``definitions`` ("WRITERS=2 UPDATES=1 ...").

        Assertions and deadlocks by default; with ``cycles``, non-progress cycles as well. ``large``:
        of more than a million states, where compiling with optimisation pays.
        """
        flags = [f"-D{definition}" for definition in definitions.split()]
        self._run("spin", *flags, "-a", str(MODELS / f"{model}.pml"))
        mode = "-DNP" if cycles else "-DSAFETY"
        speed = "-O1" if large else "-O0"
        self._run("gcc", "-w", speed, mode, "-DCOLLAPSE", "-DMEMLIM=2000", "-o", "pan", "pan.c")
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


def assert_holds(checker: Checker, found: Verification, document: Path) -> None:
    """No error in the whole state space, and the document has the number of states."""
    assert (found.errors, found.violated, found.complete) == (0, "", True)
    if DOCUMENTED_SPIN in checker.version:
        states = f"{found.states:,}"
        assert states in document.read_text(), f"{document} lacks the measured {states} states"
