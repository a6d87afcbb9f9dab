"""The command, where NumPy is all that is installed beside it."""

from __future__ import annotations

import subprocess
import sys

import pytest

EXTRAS = "matplotlib mpi4py msgspec onnx pandas prometheus_client pyarrow ray rich sklearn torch zstandard"
HIDDEN = f"""
import sys
sys.modules.update(dict.fromkeys({EXTRAS!r}.split()))
from leashed.cli import main
sys.exit(main(sys.argv[1:]))
"""


@pytest.mark.parametrize(
    "words", [["--version"], ["--help"], ["train", "--help"], ["cluster", "up", "--help"]]
)
def test_it_starts(words: list[str]) -> None:
    told = subprocess.run(
        [sys.executable, "-c", HIDDEN, *words], capture_output=True, text=True, check=False
    )
    assert told.returncode == 0, told.stderr
    assert told.stdout


def test_a_cluster_names_what_it_needs() -> None:
    told = subprocess.run(
        [sys.executable, "-c", HIDDEN, "cluster", "up", "--trainers", "2"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert told.returncode == 2
    assert "leashed[cluster]" in told.stderr
