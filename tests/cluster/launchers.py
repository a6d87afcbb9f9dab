"""What launchers are started with, or that they are not here."""

from __future__ import annotations

import importlib.util
import shutil
import sys
from pathlib import Path

import pytest

TORCHRUN = (sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2")
torchrun_needed = pytest.mark.skipif(
    importlib.util.find_spec("torch") is None,
    reason="NOTHING WAS TESTED UNDER TORCHRUN: PyTorch is not installed",
)


def mpiexec() -> str | None:
    """Python's own, or the system's."""
    beside = Path(sys.executable).parent / "mpiexec"
    return str(beside) if beside.exists() else shutil.which("mpiexec")


def mpirun() -> list[str]:
    """A Python program as two ranks; where there is no launcher the test is skipped."""
    if (found := mpiexec()) is None:
        pytest.skip("NOTHING WAS TESTED UNDER MPIRUN: no mpiexec (pip install mpich)")
    return [found, "-n", "2", sys.executable]
