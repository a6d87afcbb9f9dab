"""Modes in which workers sum gradients among themselves while they are in Sync: the bits of a server that
sums, and every example once.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cluster.led import led
from cluster.processes import pids
from cluster.test_led_modes import DATA, MODEL, begun, given, together, whole

import leashed as lsh
from leashed import cli
from leashed.cluster import mode_table, plan, policy_server
from leashed.cluster.measures import counted


def summed(
    how: dict[str, Any], folder: Path, trainers: int, look_ahead: int | None = None
) -> tuple[Any, dict[str, float], Any]:
    """What the first of so many trainers has come to, what its policy server has counted, and the report."""
    with led(folder, MODEL, DATA, trainers=trainers, look_ahead=look_ahead, **how) as run:
        results = together(run, how, trainers)
        report = run.report()
    assert run.error is None
    assert report["state"] == "ended"
    for result in results[1:]:
        np.testing.assert_array_equal(result.parameters, results[0].parameters)
    (server,) = counted(report, "policy-ps").values()
    return results[0], server, report


@pytest.mark.parametrize("trainers", [1, 2])
def test_sync_by_all_reduce_has_the_bits_of_sync_by_the_server(trainers, tmp_path):
    how = given(mode="sync", threads=2, rule=lsh.rules.Adam(0.01))
    by_server, before, _ = summed(how, tmp_path / "server", trainers)
    how["dense"] = "all-reduce"
    found, server, report = summed(how, tmp_path / "reduced", trainers)
    np.testing.assert_array_equal(found.parameters, by_server.parameters)
    assert found.mode.applied == by_server.mode.applied
    assert server["pushes"] == 0 < before["pushes"]
    assert server["reduced"] == before["mode_updates"] == server["mode_updates"]
    assert server["lost_updates"] == server["strange"] == 0
    assert report["ledger"]["complete"] == report["ledger"]["total"]
    assert (
        f"{server['reduced']:,.0f} updates of sums" in dict(mode_table.facts(report))["all-reduce"]
    )


@pytest.mark.parametrize(
    "mode",
    [lsh.modes.Switching(m=4, at=((0.2, "gba"), (0.5, "sync"))), lsh.modes.Automatic(m=4)],
    ids=["switching", "automatic"],
)
def test_modes_that_switch_use_every_example_once(mode, tmp_path):
    how = given(mode=mode, threads=2, until=lsh.until(epochs=3), dense="all-reduce")
    _, server, report = summed(how, tmp_path, 2)
    total = report["ledger"]["total"] * 32
    assert server["mode_applied"] + server["mode_stale"] == total
    assert server["reduced"] > 0
    assert report["ledger"]["complete"] == report["ledger"]["total"]


def test_a_run_that_ends_early_has_what_its_workers_had(tmp_path):
    how = given(mode="sync", threads=2, until=lsh.until(epochs=1e5, seconds=0.5))
    found, server, _ = summed({**how, "dense": "all-reduce"}, tmp_path, 1)
    assert server["reduced"] > 0
    assert found.total_updates + server["lost_updates"] >= server["reduced"]
    assert server["lost_updates"] <= 1  # that all had voted for when the last one left
    assert np.any(found.parameters != lsh.train(MODEL, DATA, **given(mode="sync")).parameters)


def test_what_workers_do_not_sum_is_refused(tmp_path):
    def refused(match: str, **more: Any) -> None:
        how = {**given(mode="sync", dense="all-reduce"), **more}
        with pytest.raises(ValueError, match=match):
            lsh.train(MODEL, DATA, cluster=policy_server.Trainers(1), **how)

    refused("take Sync", mode="asp")
    refused("take Sync", mode="gba")
    refused("dense must be one of server, all-reduce", dense="ring")
    refused("leave one of the two out", staleness="power:k=2")
    record = lsh.Observe(record=str(tmp_path / "record"))
    refused("take sync, or leave one of the two out", mode="switching", observe=record)
    with pytest.raises(ValueError, match="take one policy server, or leave one of the two out"):
        plan.Plan(
            plan.Cluster(policy_ps=2, sync_ps=0),
            plan.Sync(kind="none"),
            plan.Train(mode="sync", dense="all-reduce", record="record"),
        )
    with pytest.raises(ValueError, match="start one"):
        lsh.train(MODEL, DATA, **given(mode="sync", dense="all-reduce"))


def test_a_trainer_that_pushes_is_no_member(tmp_path):
    how = given(mode="sync", dense="all-reduce")
    with led(tmp_path, MODEL, DATA, **how) as run:
        with pytest.raises(ValueError, match="dense is by the server here, and all-reduce by"):
            lsh.train(MODEL, DATA, **given(mode="sync"), cluster=run.cluster())
        run.close()


def command() -> list[str]:
    """The page's, without its first two words."""
    page = (Path(__file__).parents[2] / "docs" / "modes.md").read_text(encoding="utf-8")
    (found,) = re.findall(r"^\$ leashed (cluster up .*--dense .*)$", page, re.MULTILINE)
    return shlex.split(found)


@pytest.mark.process
def test_the_pages_command(tmp_path, capsys):
    folder = tmp_path / "run"
    assert cli.main([*command(), "--run", str(folder)]) == 0
    report = json.loads((folder / "run.json").read_text())
    assert report["state"] == "ended"
    assert report["ledger"]["complete"] == report["ledger"]["total"]
    assert report["test_accuracy"] > 0.8
    (server,) = counted(report, "policy-ps").values()
    assert server["reduced"] > 0
    assert server["lost_updates"] == 0
    assert "all-reduce" in capsys.readouterr().out


@pytest.mark.process(1)
@pytest.mark.parametrize("blow", [signal.SIGKILL, signal.SIGSTOP], ids=["killed", "stopped"])
def test_members_that_die_or_hang_cost_their_batch(blow, tmp_path):
    folder = tmp_path / "run"
    words = [*command(), "--epochs", "30", "--run", str(folder)]
    process = subprocess.Popen(
        [sys.executable, "-m", "leashed", *words],
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip
    try:
        begun(folder, 200, process)
        os.kill(pids(folder)["trainer-1"], blow)
        report = whole(folder, process)
    finally:
        process.kill()
    ledger = report["ledger"]
    (server,) = counted(report, "policy-ps").values()
    assert server["departures"] >= 1
    assert (
        server["mode_applied"] + server["mode_stale"] + server["lost_examples"]
        == ledger["total"] * 64
    )
