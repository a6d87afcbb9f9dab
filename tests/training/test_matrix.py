"""Everything goes with everything, but for what the table of abilities says, with its reason."""

from __future__ import annotations

import importlib
from pathlib import Path

import matrix
import pytest

from leashed.training import abilities

running = importlib.import_module("leashed.training.run")


def test_everything_goes_with_everything(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And trains: the loss ends lower than it began."""
    monkeypatch.setattr(running, "PROBE_SECONDS", 0.01)
    sentences = [str(refused) for refused in abilities.REFUSED]
    cells = list(matrix.cells(tmp_path))
    assert len(cells) == 771
    refused = {cell[:3]: cell[3].split(": ", 1)[1] for cell in cells if cell[3] is not None}
    assert not {cell: why for cell, why in refused.items() if why not in sentences}
    assert len(refused) <= 0.03 * len(cells)
