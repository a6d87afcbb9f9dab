"""A training as a user commands it, and the report that it leaves."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any


def report_of(kind: Sequence[str], words: Sequence[str]) -> dict[str, Any]:
    """That of ``leashed``, with the words of a kind, which begin with ``train`` or ``cluster up``, and those behind
    them.
    """
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder, "run", "run.json")
        alone = kind[0] == "train"
        where = ["--output", str(report)] if alone else ["--run", str(report.parent)]
        report.parent.mkdir(exist_ok=alone)
        command = [sys.executable, "-m", "leashed", *kind, *words, *where]
        subprocess.run(command, check=True, capture_output=True)
        said: dict[str, Any] = json.loads(report.read_text())
    return said
