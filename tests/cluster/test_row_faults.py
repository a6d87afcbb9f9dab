"""Runs with rows at embedding servers of which processes of all roles are killed, stopped and cut off."""

from __future__ import annotations

from pathlib import Path

import pytest
from cluster import row_faults


@pytest.mark.process
def test_5_faults_in_a_row(tmp_path: Path) -> None:
    """``python tests/cluster/row_faults.py --faults 500`` for more."""
    assert row_faults.attempts(5, 1, tmp_path, mean=0.5) == 0
