"""The policy server of workers who sum among themselves, killed, and started again: the run goes on from what it
had kept, no example is lost or of use twice, and the report tells what was trained anew.
"""

from __future__ import annotations

import contextlib
import random
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cluster.test_led_keeping import ENOUGH, LONG, clicks, closed, kill, plan_of, played, rows_of
from cluster.test_led_modes import started, whole
from cluster.test_up import PATIENCE

import leashed as lsh
from leashed.cluster import mode_table
from leashed.cluster.measures import counted

REDUCES = {"dense": "all-reduce", **LONG}
SHORT = {**REDUCES, "epochs": 40.0}


def accounted(report: dict[str, Any], server: dict[str, float]) -> None:
    """What the server has heard that ever was, and what of that was undone, adds up."""
    heard = server["pushed_examples"] + server["summed_examples"]
    assert heard == server["mode_pushed"]
    sent = sum(each["examples"] for each in counted(report, "trainer").values())
    # What was on its way at each kill: pushes that nobody heard, and sums of which nobody was told that they count.
    ways = ENOUGH * len(counted(report, "trainer")) * 64
    assert abs(heard + server["undone_examples"] - sent) <= ways
    told = dict(mode_table.facts(report))["policy server"]
    assert f"; {server['undone_examples']:,.0f} examples" in told


@pytest.mark.process(1)
@pytest.mark.parametrize("mode", ["sync", "automatic:m=2"])
def test_a_run_goes_on_when_its_policy_server_is_killed(mode: str, tmp_path: Path) -> None:
    report, server = played(tmp_path / "run", 2, 2, mode=mode, **SHORT)
    assert report["test_accuracy"] > 0.8
    assert server["lost_updates"] == 0
    assert server["reduced"] > 0
    accounted(report, server)


@pytest.mark.process
@pytest.mark.long
def test_one_worker_has_the_bits_of_one_process(tmp_path: Path) -> None:
    how = {"mode": "sync", "rule": "momentum"}
    report, server = played(tmp_path / "run", 1, **how, **REDUCES)
    problem = lsh.cluster.plan.read(tmp_path / "run" / "plan.toml").problem()
    alone = lsh.train(
        problem.model,
        problem.train,
        mode="sync",
        rule=lsh.rules.Momentum(0.05),
        threads=1,
        batch_size=64,
        until=lsh.until(epochs=100),
    )
    found = lsh.load(tmp_path / "run" / "output.safetensors").parameters
    np.testing.assert_array_equal(found, alone.parameters)
    assert server["mode_updates"] == server["reduced"] == alone.total_updates
    accounted(report, server)


@pytest.mark.process
@pytest.mark.long
def test_it_is_killed_in_each_phase_of_a_run_that_switches(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    process = started("--plan", str(plan_of(folder, 2, mode="switching:m=2,iota=4", **REDUCES)))
    try:
        for phase in ("gba", "sync", None):
            assert kill(folder, process, random.Random(0))
            deadline = time.monotonic() + PATIENCE
            while phase is not None:
                with contextlib.suppress(OSError):  # it is not back yet
                    lsh.cluster.command(folder, phase)
                    break
                assert time.monotonic() < deadline
                time.sleep(0.05)
        report = whole(folder, process)
    finally:
        process.kill()
    server = closed(report, 64)
    assert server["restarts"] == 3
    assert server["undone_commands"] == server["lost_updates"] == 0
    assert server["mode_commands"] == 2
    assert server["reduced"] > 0
    assert server["pushes"] > 0
    accounted(report, server)


@pytest.mark.process
@pytest.mark.long
@pytest.mark.parametrize("trainers", [1, 2])
def test_rows_are_of_the_moment_of_what_the_run_goes_on_from(trainers: int, tmp_path: Path) -> None:
    how = {**clicks(tmp_path, "sync"), "dense": "all-reduce"}
    report, server = played(tmp_path / "killed", trainers, **how)
    assert report["test_auc"] > 0.6
    assert server["undone_examples"] > 0
    if trainers > 1:
        return
    process = started("--plan", str(plan_of(tmp_path / "lives", 1, **how)))
    try:
        lived = closed(whole(tmp_path / "lives", process), 30)
    finally:
        process.kill()
    assert server["mode_updates"] == lived["mode_updates"]
    parameters, tables = rows_of(tmp_path / "killed")
    alone, others = rows_of(tmp_path / "lives")
    np.testing.assert_array_equal(parameters, alone)
    for name, rows in tables.items():
        np.testing.assert_array_equal(rows, others[name], err_msg=name)
