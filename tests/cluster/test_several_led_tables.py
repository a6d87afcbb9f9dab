"""Tables by a mode with several policy servers, of which each has a part of the rows as of the parameters:
of one worker, and in rounds of several, the bits of one process; a server that dies costs the run, and
writes no false output.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
from pathlib import Path
from typing import Any

import made_clicks
import numpy as np
import pytest
from cluster import test_joined_tables
from cluster.led import led
from cluster.processes import pids
from cluster.test_led_modes import begun, together, up, whole
from cluster.test_led_tables import GROWING, MODES, check_alike, clicks_of, given, rows_of

import leashed as lsh
from leashed import cli
from leashed.cluster import mode_table, parameter_shards, policy_server, row_files
from leashed.cluster.led_rows import folder_of
from leashed.cluster.measures import counted
from leashed.cluster.mode_report import heard
from leashed.training import request

Array = np.ndarray[Any, Any]


def trained(
    folder: Path,
    model: Any,
    data: Any,
    how: dict[str, Any],
    trainers: int = 1,
    servers: int = 2,
    shards: str = "memorywise",
    **tables: Any,
) -> tuple[list[lsh.TrainResult], dict[str, Array], dict[str, Any]]:
    """What trainers have come to, the rows, and the report."""
    placed = {"servers": servers, "shards": shards, "tables": tables}
    with led(folder, model, data, trainers=trainers, **placed, **how) as run:
        results = together(run, how, trainers, model, data)
        report = run.report()
        run.close()
    assert run.error is None
    assert report["state"] == "ended"
    assert report["ledger"]["complete"] == report["ledger"]["total"]
    places = [folder_of(folder, k) for k in range(servers)]
    joined = row_files.joined_of(places, model.tables, report["run"])
    assert [heard(one) for one in joined.counters] == joined.pushes
    return results, rows_of(joined.tables), report


@pytest.mark.few(8)
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
    applied = sum(one.statistics()["applied"] for one in alone.tables.values())
    servers = counted(report, "policy-ps")
    assert sum(each["row_updates"] for each in servers.values()) == applied
    for server in servers.values():
        assert server["lookups"] == server["pushes"]
        assert server["reads"] > 0
        assert server["row_updates"] > 0
    told_by = [name for name, _ in mode_table.facts(report)]
    assert {"rows", "rows of policy server 1"} <= set(told_by)


@pytest.mark.parametrize("servers", [2, 3])
@pytest.mark.parametrize("kind", ["bags", "weights"])
def test_shared_tables_that_are_spread_or_whole(kind: str, servers: int, tmp_path: Path) -> None:
    model = made_clicks.shared()
    data = made_clicks.clicks(model, kind=kind)
    how = given(mode="asp", rule=lsh.rules.Adam(0.01))
    alone = lsh.train(model, data, **how)
    (found,), held, _ = trained(tmp_path, model, data, how, servers=servers, shards="packed")
    np.testing.assert_array_equal(found.parameters, alone.parameters)
    check_alike(held, rows_of(alone.tables))


def test_a_server_without_a_row(tmp_path: Path) -> None:
    model = made_clicks.small(2)
    data = made_clicks.clicks(model, rows=2)
    how = given(mode="gba:iota=4")
    alone = lsh.train(model, data, **how)
    with led(tmp_path, model, data, servers=3, **how) as run:
        found = lsh.train(model, data, **how, cluster=run.cluster())
    assert run.error is None
    np.testing.assert_array_equal(found.parameters, alone.parameters)


def test_gradients_of_ones_own(tmp_path: Path) -> None:
    model, data = test_joined_tables.factors(), test_joined_tables.clicks()
    how = given(mode="gba:iota=4", rule=lsh.rules.Adam(0.01))
    alone = lsh.train(model, data, **how)
    (found,), held, _ = trained(tmp_path, model, data, how)
    np.testing.assert_array_equal(found.parameters, alone.parameters)
    check_alike(held, rows_of(alone.tables))


@pytest.mark.parametrize("servers", [2, 3])
@pytest.mark.parametrize("mode", ["sync", "switching:m=4"])
def test_rounds_of_several_have_the_bits_of_threads(
    mode: str, servers: int, tmp_path: Path
) -> None:
    model = made_clicks.shared()
    data = made_clicks.clicks(model)
    how = given(mode=mode, staleness=lsh.staleness.power(0.5))
    alone = lsh.train(model, data, **{**how, "threads": 4})
    results, held, _ = trained(
        tmp_path, model, data, {**how, "threads": 2}, trainers=2, servers=servers
    )
    for found in results:
        np.testing.assert_array_equal(found.parameters, alone.parameters)
    check_alike(held, rows_of(alone.tables))


@pytest.mark.parametrize("mode", ["gba:iota=2", "asp", "hop_bw:b3=1", "ssp:s=2"])
def test_several_trainers_learn(mode: str, tmp_path: Path) -> None:
    model = made_clicks.small(None)
    data = made_clicks.clicks(model)
    how = given(mode=mode, threads=2, until=lsh.until(epochs=20))
    results, held, report = trained(tmp_path, model, data, how, trainers=2, **GROWING)
    first, second = results
    np.testing.assert_array_equal(first.parameters, second.parameters)
    assert first.final_loss < 0.5
    assert first.final_loss == second.final_loss
    servers = counted(report, "policy-ps").values()
    assert sum(each["rows"] for each in servers) >= sum(len(rows) for rows in held.values())
    for server in servers:
        assert server["row_refused"] == 0
        told = [server[f"mode_{name}"] for name in ("applied", "stale", "late", "straggler")]
        assert sum(told) == report["ledger"]["total"] * how["batch_size"]


def test_rows_are_where_the_terms_say() -> None:
    model = made_clicks.shared()
    features = model.native.features_of_tables
    owners = parameter_shards.owners(model.tables, features, 2)
    assert sorted(owners) == [-1, 0]
    assert parameter_shards.owners(model.tables, features, 1) == []
    with pytest.raises(ValueError, match=r"policy_servers must be 256 at most .*, got 257"):
        parameter_shards.owners(model.tables, features, 257)
    place = policy_server.Trainers(1, 2)
    unsaid = {"discipline": None, "staleness": None}
    asked = request.of(
        model, made_clicks.clicks(model), cluster=place, **{**unsaid, **given(mode="asp")}
    )
    made = asked.led(asked.source(1))
    assert made.owners == owners
    told = type(made).of_json(json.loads(json.dumps(made.to_json())), made.theta)
    assert told.terms == made.terms
    placement = told.placement
    assert placement is not None
    for table, owner in enumerate(owners):
        there = [any(placement.shards(table, server)) for server in range(2)]
        assert there == ([True, True] if owner < 0 else [owner == 0, owner == 1])


def command() -> list[str]:
    """The page's of several with tables, without its first word."""
    page = (Path(__file__).parents[2] / "docs" / "modes.md").read_text(encoding="utf-8")
    pattern = r"^\$ leashed (cluster up .*--policy-servers 2 .*--model dlrm.*)$"
    (found,) = re.findall(pattern, page, re.MULTILINE)
    return shlex.split(found)


@pytest.mark.process
def test_the_pages_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "run"
    assert cli.main([*command(), "--run", str(folder)]) == 0
    report = json.loads((folder / "run.json").read_text())
    assert report["state"] == "ended"
    assert report["ledger"]["complete"] == report["ledger"]["total"]
    assert sum(report["restarts"].values()) == 0
    assert report["test_auc"] > 0.65
    loaded = lsh.load(folder / "output")
    assert set(loaded.tables) == {one.name for one in loaded.model.tables}
    told = capsys.readouterr().out
    assert re.search(r"^rows +[\d,]+ in ", told, re.MULTILINE)
    assert re.search(r"^rows of policy server 1 +[\d,]+ in ", told, re.MULTILINE)
    assert not report["rows_behind"]


@pytest.mark.process(1)
@pytest.mark.parametrize("mode", ["sync", "gba:iota=4"])
@pytest.mark.parametrize("blow", [signal.SIGKILL, signal.SIGSTOP], ids=["killed", "stopped"])
def test_a_trainer_that_dies_or_hangs_costs_no_example(
    blow: signal.Signals, mode: str, tmp_path: Path
) -> None:
    folder = tmp_path / "run"
    data = clicks_of(tmp_path)
    process = up(folder, *data, "--epochs", "400", "--policy-servers", "2", "--mode", mode)
    try:
        begun(folder, 100, process)
        os.kill(pids(folder)["trainer-1"], blow)
        report = whole(folder, process)
    finally:
        process.kill()
    servers = counted(report, "policy-ps")
    assert servers[0]["departures"] >= 1
    assert (folder / "output").is_dir()


@pytest.mark.process
def test_one_that_joins_has_the_output_of_one_process(tmp_path: Path) -> None:
    model = made_clicks.small(None, norm=lsh.models.BatchNorm())
    data = made_clicks.clicks(model)
    how = given(mode="gba:iota=4", staleness=lsh.staleness.power(0.5))
    settings = {**GROWING, "admit_after": 2}
    told = {name: how[name] for name in ("rule", "seed", "staleness")}
    init = lsh.Init("glorot", lsh.tables.of(model.tables, **told, **settings))
    alone = lsh.train(model, data, init=init, **how)
    cluster = lsh.cluster.join(
        policy_servers=2, rank=0, size=1, folder=tmp_path / "run", tables=settings, collect=True
    )
    found = lsh.train(model, data, **how, cluster=cluster)
    np.testing.assert_array_equal(found.parameters, alone.parameters)
    np.testing.assert_array_equal(found.statistics, alone.statistics)
    check_alike(rows_of(found.tables), rows_of(alone.tables))
    output = tmp_path / "run" / "run-0" / "output"
    assert found.config["cluster_output"] == str(output)
    check_alike(rows_of(lsh.load(output).tables), rows_of(alone.tables))
