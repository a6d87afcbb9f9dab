"""Modes in which workers sum gradients among themselves while they are in Sync, on several policy servers: the
bits of servers that sum, rows of tables among them, every example once; checkpoints; live switches and deaths.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import made_clicks
import numpy as np
import pytest
from cluster.led import led
from cluster.led_cuts import caught
from cluster.processes import pids
from cluster.test_led_modes import DATA, MODEL, begun, given, together, whole
from cluster.test_led_tables import GROWING, check_alike, rows_of
from cluster.test_led_tables import given as of_tables
from cluster.test_several_led_checkpoints import went_on
from cluster.test_several_led_tables import trained

import leashed as lsh
from leashed import cli
from leashed.cluster import mode_table
from leashed.cluster.measures import counted


def check_summed(report: dict[str, Any], batch_size: int) -> None:
    """Every example is in an update, or counted, and nothing else is, on all servers alike."""
    first, *others = counted(report, "policy-ps").values()
    fates = ("mode_applied", "mode_stale", "mode_straggler", "lost_examples")
    used: Any = sum(first[name] for name in fates)
    assert used == report["ledger"]["total"] * batch_size
    assert first["reduced"] > 0
    assert first["strange"] == 0
    for other in others:
        assert other["mode_applied"] + other["mode_missing"] == first["mode_applied"]
        assert other["strange"] == 0


@pytest.mark.parametrize("servers", [2, 3])
def test_sync_has_the_bits_of_servers_that_sum(servers: int, tmp_path: Path) -> None:
    how = given(mode="sync", threads=2, rule=lsh.rules.Adam(0.01))
    found = {}
    for dense in ("server", "all-reduce"):
        asked = {**how, "dense": dense}
        with led(tmp_path / dense, MODEL, DATA, trainers=2, servers=servers, **asked) as run:
            found[dense] = together(run, asked, 2)
            report = run.report()
        assert run.error is None
    for result in found["all-reduce"]:
        np.testing.assert_array_equal(result.parameters, found["server"][0].parameters)
    check_summed(report, 32)
    assert "all-reduce" in dict(mode_table.facts(report))
    assert {each["pushes"] for each in counted(report, "policy-ps").values()} == {0}


@pytest.mark.parametrize("mode", ["sync", "switching:m=4"])
def test_rows_have_the_bits_of_servers_that_sum(mode: str, tmp_path: Path) -> None:
    model = made_clicks.shared()
    data = made_clicks.clicks(model)
    how = of_tables(mode=mode, threads=2, rule=lsh.Adagrad(0.05))
    alone = lsh.train(model, data, **{**how, "threads": 4})
    how["dense"] = "all-reduce"
    results, held, report = trained(tmp_path, model, data, how, trainers=2)
    for found in results:
        np.testing.assert_array_equal(found.parameters, alone.parameters)
    check_alike(held, rows_of(alone.tables))
    check_summed(report, how["batch_size"])


def test_one_worker_that_switches_has_the_bits_of_servers_that_sum(tmp_path: Path) -> None:
    model = made_clicks.small(None)
    data = made_clicks.clicks(model)
    # (Of one gradient an update in Sync and in GBA alike, since when it switches is chance.)
    mode = lsh.modes.Switching(m=1, at=((0.1, "gba"), (0.4, "sync"), (0.6, "gba")))
    how = of_tables(mode=mode, until=lsh.until(epochs=100))
    (alone,), rows, _ = trained(tmp_path / "server", model, data, how, **GROWING)
    how["dense"] = "all-reduce"
    (found,), held, report = trained(tmp_path / "reduced", model, data, how, **GROWING)
    np.testing.assert_array_equal(found.parameters, alone.parameters)
    check_alike(held, rows)
    check_summed(report, how["batch_size"])


@pytest.mark.parametrize(
    "mode",
    [lsh.modes.Switching(m=4, at=((0.2, "gba"), (0.5, "sync"))), lsh.modes.Automatic(m=4)],
    ids=["switching", "automatic"],
)
def test_several_that_switch_use_every_example_once(mode: lsh.Mode, tmp_path: Path) -> None:
    model = made_clicks.small(None)
    data = made_clicks.clicks(model)
    how = of_tables(mode=mode, threads=2, until=lsh.until(epochs=40), dense="all-reduce")
    results, _, report = trained(tmp_path, model, data, how, trainers=2, **GROWING)
    check_summed(report, how["batch_size"])
    for found in results:
        np.testing.assert_array_equal(found.parameters, results[0].parameters)
        assert found.final_loss < 0.5


def test_a_run_that_ends_early_has_what_its_workers_had(tmp_path: Path) -> None:
    how = given(mode="sync", threads=2, until=lsh.until(epochs=1e5, seconds=0.5))
    how["dense"] = "all-reduce"
    with led(tmp_path, MODEL, DATA, servers=2, **how) as run:
        (found,) = together(run, how, 1)
        report = run.report()
    assert run.error is None
    first, second = counted(report, "policy-ps").values()
    assert first["reduced"] > 0
    assert first["lost_updates"] <= 1  # that all had voted for when the last one left
    assert first["mode_updates"] == second["mode_updates"]
    assert found.total_updates + first["lost_updates"] >= first["reduced"]


@pytest.mark.parametrize("mode", ["sync", "switching:m=4"])
def test_checkpoints_go_on_to_the_bits_of_the_whole_run(mode: str, tmp_path: Path) -> None:
    model = made_clicks.small(None)
    data = made_clicks.clicks(model)
    asked = of_tables(mode=mode, until=lsh.until(epochs=100), dense="all-reduce")
    begins, whole_run = caught(
        tmp_path / "run", tmp_path / "cut", model, data, 1, asked, servers=2, tables=GROWING
    )
    by_server = {name: value for name, value in asked.items() if name != "dense"}
    told = {"rule": asked["rule"], "seed": asked["seed"], **GROWING}
    init = lsh.Init("glorot", lsh.tables.of(model.tables, **told))
    alone = lsh.train(model, data, init=init, **by_server)
    np.testing.assert_array_equal(whole_run.parameters, alone.parameters)
    for servers, how in ((1, asked), (2, by_server), (3, asked)):
        found, held = went_on(tmp_path / str(servers), begins, model, data, how, servers)
        np.testing.assert_array_equal(found.parameters, alone.parameters)
        check_alike(held, rows_of(alone.tables))


def words(folder: Path, *more: str) -> list[str]:
    return [
        "cluster", "up", "--trainers", "2", "--policy-servers", "2", "--mode", "switching", "--dense", "all-reduce",
        "--model", "dlrm", "--data", "clicks", "--run", str(folder), *more,
    ]  # fmt: skip


def started(folder: Path, *more: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "leashed", *words(folder, *more)],
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip


@pytest.mark.process
def test_a_run_is_switched_by_commands(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    process = started(folder, "--epochs", "3")
    try:
        begun(folder, 50, process)
        assert cli.main(["cluster", "command", str(folder), "gba"]) == 0
        begun(folder, 200, process)
        assert cli.main(["cluster", "command", str(folder), "sync"]) == 0
        report = whole(folder, process)
    finally:
        process.kill()
    check_summed(report, 64)
    first, second = counted(report, "policy-ps").values()
    assert first["commands"] == 2
    assert first["pushes"] > 0 < second["pushes"]
    assert first["lost_updates"] == second["mode_missing"] == 0
    assert first["mode_updates"] == second["mode_updates"]
    assert report["test_auc"] > 0.58


@pytest.mark.process(0)
@pytest.mark.parametrize("blow", [signal.SIGKILL, signal.SIGSTOP], ids=["killed", "stopped"])
def test_members_that_die_or_hang_cost_their_batch(blow: signal.Signals, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    process = started(folder, "--epochs", "10")
    try:
        begun(folder, 100, process)
        os.kill(pids(folder)["trainer-1"], blow)
        report = whole(folder, process)
    finally:
        process.kill()
    check_summed(report, 64)
    assert counted(report, "policy-ps")[0]["departures"] >= 1
    assert json.loads((folder / "run.json").read_text())["state"] == "ended"
