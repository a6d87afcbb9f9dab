"""Runs by a mode over policy servers of which processes of all roles are killed, stopped and cut off."""

from __future__ import annotations

from pathlib import Path

import pytest
from cluster import faults, mode_faults


@pytest.mark.process
@pytest.mark.parametrize(
    "first", range(3), ids=["one server", "two servers", "all-reduce"]
)  # of SETTINGS
def test_4_faults_in_a_row(first: int, tmp_path: Path) -> None:
    """``python tests/cluster/mode_faults.py --faults 200`` for more."""
    assert mode_faults.attempts(4, first, tmp_path, mean=0.5, first=first) == 0


@pytest.mark.process
@pytest.mark.parametrize(
    ("seconds", "servers", "dense"),
    [(6.0, 1, "all-reduce"), (6.0, 2, "server")],
    ids=["hangs, and workers sum", "hangs"],
)
def test_the_policy_server_that_is_lost_is_named(
    seconds: float | None, servers: int, dense: str, tmp_path: Path
) -> None:
    plan = mode_faults.make_plan(tmp_path / "run", "sync", servers, dense, 1000.0)
    fault = faults.Fault("policy-ps-0", seconds)
    played = faults.play(plan, [(-0.5, fault)], mode_faults.begun)
    assert mode_faults.check(played).startswith("policy server 0 is lost")
