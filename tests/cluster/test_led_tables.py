"""Tables by a mode whose policy server is another process: of one worker, and in rounds of several, the bits
of one process; of all that it was told every example once, or counted.
"""

from __future__ import annotations

import concurrent.futures
import json
import os
import re
import signal
from pathlib import Path
from typing import Any

import made_clicks
import numpy as np
import pytest
from cluster import test_joined_tables, test_up_tables
from cluster.led import led
from cluster.processes import pids
from cluster.test_led_modes import begun, command, up
from cluster.test_up import PATIENCE

import leashed as lsh
from leashed import cli
from leashed.cluster import mode_row_table, row_files
from leashed.cluster.led_rows import folder_of
from leashed.cluster.measures import counted

MODES = [
    "sync",
    "bsp:b2=3",
    "asp",
    "ssp:s=2",
    "hop_bw:b3=0",
    "gba:m=4,iota=4",
    "switching:m=4",
    "shat",
]
RULES = [lsh.rules.SGD(0.1), lsh.Adagrad(0.05), lsh.rules.Adam(0.01), lsh.rules.FTRL(0.1)]
GROWING = {"max_bytes": 1 << 22}
Array = np.ndarray[Any, Any]


def given(**more: Any) -> dict[str, Any]:
    """How it is trained."""
    return {
        "until": lsh.until(epochs=3), "batch_size": 32, "threads": 1, "rule": lsh.Adagrad(0.05), "seed": 2, **more,
    }  # fmt: skip


def rows_of(tables: dict[str, lsh.Table]) -> dict[str, Array]:
    ids = np.arange(made_clicks.ROWS, dtype=np.uint64)
    return {name: table.lookup(ids) for name, table in tables.items()}


def saved(run: Any, model: Any, report: dict[str, Any]) -> dict[str, Array]:
    """The rows that a policy server has left."""
    run.close()
    return rows_of(
        row_files.joined_of([folder_of(run._run.folder)], model.tables, report["run"]).tables
    )


def check_alike(one: dict[str, Array], other: dict[str, Array]) -> None:
    assert one.keys() == other.keys()
    for name, rows in one.items():
        np.testing.assert_array_equal(rows, other[name], err_msg=name)


def trained(
    folder: Path,
    model: Any,
    data: Any,
    how: dict[str, Any],
    trainers: int = 1,
    look_ahead: int | None = None,
    **tables: Any,
) -> tuple[list[lsh.TrainResult], dict[str, Array], dict[str, Any]]:
    """What trainers have come to, the rows, and the report."""
    of = {"tables": tables, "look_ahead": look_ahead}
    with led(folder, model, data, trainers=trainers, **of, **how) as run:
        with concurrent.futures.ThreadPoolExecutor(trainers) as pool:
            each = [
                pool.submit(lsh.train, model, data, **how, cluster=run.cluster(k))
                for k in range(trainers)
            ]
            results = [one.result() for one in each]
        report = run.report()
        rows = saved(run, model, report)
    assert run.error is None
    assert report["state"] == "ended"
    assert report["ledger"]["complete"] == report["ledger"]["total"]
    return results, rows, report


@pytest.mark.parametrize("rows", [made_clicks.ROWS, None], ids=["fixed", "growing"])
@pytest.mark.parametrize("mode", MODES)
def test_one_worker_has_the_bits_of_one_process(
    mode: str, rows: int | None, tmp_path: Path
) -> None:
    model = made_clicks.small(rows)
    data = made_clicks.clicks(model)
    how = given(mode=mode, validation=made_clicks.clicks(model, seed=1))
    settings = {} if rows else GROWING
    told = {"rule": how["rule"], "seed": how["seed"], **settings}
    init = lsh.Init("glorot", lsh.tables.of(model.tables, **told))
    alone = lsh.train(model, data, init=init, **how)
    (found,), held, report = trained(tmp_path, model, data, {**how, "init": "glorot"}, **settings)
    np.testing.assert_array_equal(found.parameters, alone.parameters)
    check_alike(held, rows_of(alone.tables))
    assert found.final_loss == alone.final_loss
    assert found.mode.applied == alone.mode.applied
    (server,) = counted(report, "policy-ps").values()
    assert server["lookups"] == server["pushes"]
    assert server["reads"] > 0
    assert server["row_updates"] == sum(
        one.statistics()["applied"] for one in alone.tables.values()
    )


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: type(rule).__name__)
@pytest.mark.parametrize("kind", ["bags", "weights"])
def test_rules_bags_and_shared_tables(kind: str, rule: Any, tmp_path: Path) -> None:
    model = made_clicks.shared()
    data = made_clicks.clicks(model, kind=kind)
    how = given(mode="asp", rule=rule)
    alone = lsh.train(model, data, **how)
    (found,), held, _ = trained(tmp_path, model, data, how)
    np.testing.assert_array_equal(found.parameters, alone.parameters)
    check_alike(held, rows_of(alone.tables))


def test_gradients_of_ones_own(tmp_path: Path) -> None:
    model, data = test_joined_tables.factors(), test_joined_tables.clicks()
    how = given(mode="gba:iota=4", rule=lsh.rules.Adam(0.01))
    alone = lsh.train(model, data, **how)
    (found,), held, _ = trained(tmp_path, model, data, how)
    np.testing.assert_array_equal(found.parameters, alone.parameters)
    check_alike(held, rows_of(alone.tables))


def test_rounds_of_several_have_the_bits_of_threads(tmp_path: Path) -> None:
    model = made_clicks.small()
    data = made_clicks.clicks(model)
    how = given(mode="sync", staleness=lsh.staleness.power(0.5))
    alone = lsh.train(model, data, **{**how, "threads": 4})
    results, held, _ = trained(tmp_path, model, data, {**how, "threads": 2}, trainers=2)
    for found in results:
        np.testing.assert_array_equal(found.parameters, alone.parameters)
    check_alike(held, rows_of(alone.tables))


@pytest.mark.parametrize("mode", ["gba:iota=2", "asp"])
def test_several_trainers_learn(mode: str, tmp_path: Path) -> None:
    model = made_clicks.small(None)
    data = made_clicks.clicks(model)
    how = given(mode=mode, threads=2, until=lsh.until(epochs=20))
    results, held, report = trained(tmp_path, model, data, how, trainers=2, **GROWING)
    first, second = results
    np.testing.assert_array_equal(first.parameters, second.parameters)
    assert first.final_loss < 0.5
    assert first.final_loss == second.final_loss
    (server,) = counted(report, "policy-ps").values()
    assert server["rows"] >= sum(len(rows) for rows in held.values())
    assert server["row_refused"] == 0
    assert 1.0 < server["row_moved"] / server["row_least"] < 1.5
    assert "times the least" in dict(mode_row_table.facts(report))["bytes of rows"]
    told = [server[f"mode_{name}"] for name in ("applied", "stale", "late", "straggler")]
    assert sum(told) == report["ledger"]["total"] * how["batch_size"]


def test_a_loss_that_is_waited_for_ends_it(tmp_path: Path) -> None:
    model = made_clicks.small()
    data = made_clicks.clicks(model)
    how = given(mode="asp", until=lsh.until(epochs=500, loss=0.55))
    with led(tmp_path, model, data, **how) as run:
        found = lsh.train(model, data, **how, cluster=run.cluster())
    assert found.outcome == "converged"
    assert found.final_loss <= 0.55


def clicks_of(folder: Path) -> list[str]:
    """The arguments that train a small DLRM on a file."""
    return test_up_tables.given(folder)


def join(folder: Path | None, **more: Any) -> lsh.cluster.Cluster:
    """This process's place, which has it for itself."""
    where = {} if folder is None else {"folder": folder}
    return lsh.cluster.join(policy_servers=1, rank=0, size=1, **where, **more)


@pytest.mark.process
def test_one_that_joins_has_the_output_of_one_process(tmp_path: Path) -> None:
    model = made_clicks.small(None, norm=lsh.models.BatchNorm())
    data = made_clicks.clicks(model)
    how = given(mode="gba:iota=4", staleness=lsh.staleness.power(0.5))
    settings = {**GROWING, "admit_after": 2}
    told = {name: how[name] for name in ("rule", "seed", "staleness")}
    init = lsh.Init("glorot", lsh.tables.of(model.tables, **told, **settings))
    alone = lsh.train(model, data, init=init, **how)
    cluster = join(tmp_path / "run", tables=settings, collect=True)
    found = lsh.train(model, data, **how, cluster=cluster)
    np.testing.assert_array_equal(found.parameters, alone.parameters)
    np.testing.assert_array_equal(found.statistics, alone.statistics)
    check_alike(rows_of(found.tables), rows_of(alone.tables))
    assert found.rows == alone.rows
    output = tmp_path / "run" / "run-0" / "output"
    assert found.config["cluster_output"] == str(output)
    loaded = lsh.load(output)
    np.testing.assert_array_equal(loaded.parameters, alone.parameters)
    check_alike(rows_of(loaded.tables), rows_of(alone.tables))


@pytest.mark.parametrize(
    ("more", "settings", "why"),
    [
        ({}, {}, "folder must be given with policy_servers for a model that reads tables"),
        ({"collect": True}, {"init": "tables"}, "leave init.tables out"),
        ({"collect": True}, {"mode": "easgd:alpha=0.5,gap=2"}, "modes whose workers send models"),
    ],
    ids=["no folder", "given tables", "models"],
)
def test_what_is_not_there_yet_is_refused_by_name(
    more: dict[str, Any], settings: dict[str, Any], why: str, tmp_path: Path
) -> None:
    model = made_clicks.small()
    if "folder" in more:
        more = {**more, "folder": tmp_path / "run"}
    if "init" in settings:
        settings = {"init": lsh.Init("glorot", lsh.tables.of(model.tables))}
    how = {**given(mode="asp"), **settings}
    cluster = lsh.cluster.join(policy_servers=1, rank=0, size=1, **more)
    with pytest.raises(ValueError, match=why):
        lsh.train(model, made_clicks.clicks(model), **how, cluster=cluster)


@pytest.mark.process
def test_the_pages_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "run"
    assert cli.main([*command(tables=True), "--run", str(folder)]) == 0
    report = json.loads((folder / "run.json").read_text())
    assert report["state"] == "ended"
    assert report["ledger"]["complete"] == report["ledger"]["total"]
    assert report["test_auc"] > 0.65
    loaded = lsh.load(folder / "output")
    assert set(loaded.tables) == {one.name for one in loaded.model.tables}
    told = capsys.readouterr().out
    assert re.search(r"^rows +[\d,]+ in ", told, re.MULTILINE)
    (server,) = counted(report, "policy-ps").values()
    fates = ("mode_applied", "mode_stale", "mode_late", "mode_straggler")
    assert (
        sum(server[name] for name in fates) == report["ledger"]["total"] * 64 + server["mode_late"]
    )
    assert server["row_updates"] > 0


@pytest.mark.process(1)
@pytest.mark.parametrize("blow", [signal.SIGKILL, signal.SIGSTOP], ids=["killed", "stopped"])
def test_a_trainer_that_dies_or_hangs_costs_no_example(
    blow: signal.Signals, tmp_path: Path
) -> None:
    folder = tmp_path / "run"
    data = clicks_of(tmp_path)
    process = up(folder, *data, "--epochs", "1000")
    try:
        begun(folder, 100, process)
        os.kill(pids(folder)["trainer-1"], blow)
        told, _ = process.communicate(timeout=PATIENCE)
    finally:
        process.kill()
    assert process.returncode == 0, told
    report = json.loads((folder / "run.json").read_text())
    assert report["state"] == "ended"
    assert report["ledger"]["complete"] == report["ledger"]["total"]
    (server,) = counted(report, "policy-ps").values()
    fates = ("mode_applied", "mode_stale", "mode_late", "mode_straggler")
    assert (
        sum(server[name] for name in fates) == report["ledger"]["total"] * 64 + server["mode_late"]
    )
    assert server["departures"] >= 1
    assert (folder / "output").is_dir()


@pytest.mark.process
def test_a_run_without_its_policy_server_says_so(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    process = up(folder, *clicks_of(tmp_path), "--epochs", "100000")
    try:
        begun(folder, 100, process)
        os.kill(pids(folder)["policy-ps-0"], signal.SIGKILL)
        for path in folder.glob("policy-ps-0.snapshot*"):  # of which it would go on
            path.unlink(missing_ok=True)
        told, _ = process.communicate(timeout=PATIENCE)
    finally:
        process.kill()
    assert process.returncode == 1
    assert "policy server 0 is lost" in told
    assert pids(folder) == {}
    assert not (folder / "output").exists()


@pytest.mark.process
def test_a_server_that_is_told_to_end_leaves_its_rows(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    process = up(folder, *clicks_of(tmp_path), "--epochs", "100000")
    try:
        begun(folder, 100, process)
        process.send_signal(signal.SIGINT)
        told, _ = process.communicate(timeout=PATIENCE)
    finally:
        process.kill()
    assert process.returncode == 130, told
    rows = row_files.rows_of(folder_of(folder), 0)
    assert rows.told["pushes"] >= 100
    assert rows.tables
