"""All-reduce of models that read tables: gradients of parameters are summed among workers, those of rows go to
the policy server that has them; the bits of a server that sums, and every row's gradient once.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import made_clicks
import numpy as np
import pytest
from cluster.processes import pids
from cluster.test_led_modes import begun, whole
from cluster.test_led_tables import GROWING, check_alike, given, rows_of, trained

import leashed as lsh
from leashed import cli
from leashed.cluster.measures import counted

SWITCHING = [
    lsh.modes.Switching(m=4, at=((0.1, "gba"), (0.4, "sync"), (0.6, "gba"))),
    lsh.modes.Automatic(m=4),
]


@pytest.mark.parametrize("rows", [made_clicks.ROWS, None], ids=["fixed", "growing"])
def test_one_worker_has_the_bits_of_one_process(rows: int | None, tmp_path: Path) -> None:
    model = made_clicks.small(rows)
    data = made_clicks.clicks(model)
    how = given(mode="sync", rule=lsh.rules.Adam(lsh.schedules.cosine(0.01, total=39)))
    settings = {} if rows else GROWING
    told = {"rule": how["rule"], "seed": how["seed"], **settings}
    init = lsh.Init("glorot", lsh.tables.of(model.tables, **told))
    alone = lsh.train(model, data, init=init, **how)
    how |= {"init": "glorot", "dense": "all-reduce"}
    (found,), held, report = trained(tmp_path, model, data, how, **settings)
    np.testing.assert_array_equal(found.parameters, alone.parameters)
    check_alike(held, rows_of(alone.tables))
    (server,) = counted(report, "policy-ps").values()
    assert server["reduced"] == server["lookups"] == report["ledger"]["total"]
    assert server["pushes"] == server["lost_updates"] == server["strange"] == 0
    assert server["row_updates"] == sum(
        one.statistics()["applied"] for one in alone.tables.values()
    )


@pytest.mark.parametrize("kind", ["bags", "weights"])
@pytest.mark.parametrize("rule", [lsh.Adagrad(0.05), lsh.rules.FTRL(0.1)], ids=["adagrad", "ftrl"])
def test_several_have_the_bits_of_a_server_that_sums(
    kind: str, rule: lsh.Rule, tmp_path: Path
) -> None:
    model = made_clicks.shared()
    data = made_clicks.clicks(model, kind=kind)
    how = given(mode="sync", threads=2, rule=rule)
    results, rows, before = trained(tmp_path / "server", model, data, how, trainers=2)
    how["dense"] = "all-reduce"
    reduced, held, report = trained(tmp_path / "reduced", model, data, how, trainers=2)
    for found in reduced:
        np.testing.assert_array_equal(found.parameters, results[0].parameters)
    check_alike(held, rows)
    (summed,), (server,) = (counted(each, "policy-ps").values() for each in (before, report))
    assert server["row_updates"] == summed["row_updates"] > 0
    assert server["pushes"] == server["strange"] == 0 < summed["pushes"]


@pytest.mark.parametrize("mode", SWITCHING, ids=["switching", "automatic"])
def test_one_worker_that_switches_has_the_bits_of_a_server_that_sums(
    mode: lsh.Mode, tmp_path: Path
) -> None:
    model = made_clicks.small(None)
    data = made_clicks.clicks(model)
    # (Of one gradient an update in Sync and in GBA alike, since when it switches is chance.)
    how = given(mode=replace(mode, m=1), until=lsh.until(epochs=100))
    (alone,), rows, _ = trained(tmp_path / "server", model, data, how, **GROWING)
    how["dense"] = "all-reduce"
    (found,), held, report = trained(tmp_path / "reduced", model, data, how, **GROWING)
    np.testing.assert_array_equal(found.parameters, alone.parameters)
    check_alike(held, rows)
    (server,) = counted(report, "policy-ps").values()
    assert server["reduced"] > 0
    assert server["strange"] == 0


@pytest.mark.parametrize("mode", SWITCHING, ids=["switching", "automatic"])
def test_several_that_switch_use_every_example_once(mode: lsh.Mode, tmp_path: Path) -> None:
    model = made_clicks.small(None)
    data = made_clicks.clicks(model)
    how = given(mode=mode, threads=2, until=lsh.until(epochs=40), dense="all-reduce")
    results, _, report = trained(tmp_path, model, data, how, trainers=2, **GROWING)
    (server,) = counted(report, "policy-ps").values()
    used = sum(server[f"mode_{name}"] for name in ("applied", "stale", "straggler"))
    assert used == report["ledger"]["total"] * how["batch_size"]
    assert server["reduced"] > 0
    assert server["lost_updates"] == server["strange"] == 0
    for found in results:
        np.testing.assert_array_equal(found.parameters, results[0].parameters)
        assert found.final_loss < 0.5


def test_a_gradient_of_rows_that_is_not_finite_ends_the_run(tmp_path: Path) -> None:
    model = made_clicks.small()
    data = made_clicks.clicks(model)
    how = given(mode="sync", rule=lsh.SGD(1e30), dense="all-reduce")
    with pytest.raises((RuntimeError, RuntimeWarning), match="not finite"):
        trained(tmp_path, model, data, how)


def words(*more: str) -> list[str]:
    return [
        "cluster", "up", "--trainers", "3", "--policy-servers", "1", "--mode", "switching", "--dense", "all-reduce",
        "--model", "dlrm", "--data", "clicks", *more,
    ]  # fmt: skip


@pytest.mark.process
def test_the_pages_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "run"
    assert cli.main([*words(), "--run", str(folder)]) == 0
    report = json.loads((folder / "run.json").read_text())
    assert report["state"] == "ended"
    assert report["ledger"]["complete"] == report["ledger"]["total"]
    assert report["test_auc"] > 0.65
    (server,) = counted(report, "policy-ps").values()
    assert server["reduced"] > 0
    assert server["lost_updates"] == server["strange"] == 0
    assert "all-reduce" in capsys.readouterr().out


@pytest.mark.process(1)
@pytest.mark.parametrize("blow", [signal.SIGKILL, signal.SIGSTOP], ids=["killed", "stopped"])
def test_members_that_die_or_hang_cost_their_batch(blow: signal.Signals, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    process = subprocess.Popen(
        [sys.executable, "-m", "leashed", *words("--epochs", "10", "--run", str(folder))],
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip
    try:
        begun(folder, 100, process)
        os.kill(pids(folder)["trainer-1"], blow)
        report = whole(folder, process)
    finally:
        process.kill()
    (server,) = counted(report, "policy-ps").values()
    assert server["departures"] >= 1
    used: Any = server["mode_applied"] + server["mode_stale"] + server["lost_examples"]
    assert used == report["ledger"]["total"] * 64
