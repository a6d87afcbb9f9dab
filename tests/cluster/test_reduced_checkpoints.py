"""Checkpoints of runs whose workers sum among themselves, of one cut between two rounds; and runs that go on from
them, with other numbers of trainers, by the server, or in one process.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import made_clicks
import numpy as np
import pytest
from cluster import test_led_table_checkpoints
from cluster.led import led
from cluster.led_cuts import caught
from cluster.test_led_modes import DATA, MODEL, given, together
from cluster.test_led_table_checkpoints import went_on
from cluster.test_led_tables import GROWING, check_alike, rows_of

import leashed as lsh
from leashed.cluster.checkpoints import Checkpoint
from leashed.cluster.measures import counted

# (A live switch goes by time: of the whole run and of one that goes on they are at other batches.)
MODES = ["sync", "switching:m=4"]


def how(mode: Any, **more: Any) -> dict[str, Any]:
    asked = {"rule": lsh.rules.Momentum(0.05), "until": lsh.until(epochs=15), **more}
    return given(mode=mode, dense="all-reduce", **asked)


def by_server(asked: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in asked.items() if name != "dense"}


def on(folder: Path, begins: Path, asked: dict[str, Any], trainers: int = 1) -> tuple[Any, Any]:
    """What the first trainer of a run that goes on comes to, and the run's report."""
    with led(folder, MODEL, DATA, trainers, resume=begins, **asked) as run:
        results = together(run, asked, trainers)
        report = run.report()
    assert run.error is None
    assert report["ledger"]["resumed"] == Checkpoint(begins).account.used
    assert report["ledger"]["complete"] == report["ledger"]["total"]
    for each in results[1:]:
        np.testing.assert_array_equal(each.parameters, results[0].parameters)
    return results[0], report


@pytest.mark.parametrize("mode", MODES)
def test_one_worker_goes_on_to_the_bits_of_the_whole_run(mode: str, tmp_path: Path) -> None:
    asked = how(mode)
    begins, whole = caught(tmp_path / "run", tmp_path / "cut", MODEL, DATA, 1, asked)
    alone = lsh.train(MODEL, DATA, **by_server(asked))
    np.testing.assert_array_equal(whole.parameters, alone.parameters)  # a cut changes nothing
    found, report = on(tmp_path / "on", begins, asked)
    np.testing.assert_array_equal(found.parameters, alone.parameters)
    (server,) = counted(report, "policy-ps").values()
    assert server["reduced"] > 0
    assert server["lost_updates"] == server["strange"] == 0
    found, _ = on(tmp_path / "by-server", begins, by_server(asked))
    np.testing.assert_array_equal(found.parameters, alone.parameters)
    again = lsh.train(MODEL, DATA, **by_server(asked), resume=begins)
    np.testing.assert_array_equal(again.parameters, alone.parameters)


def test_what_a_server_has_summed_goes_on_among_workers(tmp_path: Path) -> None:
    asked = how("sync")
    begins, whole = caught(tmp_path / "run", tmp_path / "cut", MODEL, DATA, 1, by_server(asked))
    found, _ = on(tmp_path / "on", begins, asked)
    np.testing.assert_array_equal(found.parameters, whole.parameters)


@pytest.mark.parametrize("mode", [*MODES, "automatic:m=4"])
@pytest.mark.parametrize("trainers", [1, 3])
def test_other_numbers_of_trainers_go_on(mode: str, trainers: int, tmp_path: Path) -> None:
    asked = how(mode, threads=2)
    begins, _ = caught(tmp_path / "run", tmp_path / "cut", MODEL, DATA, 2, asked)
    found, report = on(tmp_path / "on", begins, asked, trainers)
    assert np.isfinite(found.parameters).all()
    (server,) = counted(report, "policy-ps").values()
    assert server["lost_updates"] == server["strange"] == 0


@pytest.mark.parametrize("rows", [made_clicks.ROWS, None], ids=["fixed", "growing"])
def test_tables_go_on_too(rows: int | None, tmp_path: Path) -> None:
    model = made_clicks.small(rows)
    data = made_clicks.clicks(model)
    asked = test_led_table_checkpoints.how("sync", dense="all-reduce")
    settings = {} if rows else {**GROWING, "admit_after": 2}
    told = {name: asked[name] for name in ("rule", "seed")}
    init = lsh.Init("glorot", lsh.tables.of(model.tables, **told, **settings))
    alone = lsh.train(model, data, init=init, **by_server(asked))
    begins, whole = caught(
        tmp_path / "run", tmp_path / "cut", model, data, 1, asked, tables=settings
    )
    np.testing.assert_array_equal(whole.parameters, alone.parameters)
    found, held = went_on(tmp_path / "on", begins, model, data, asked, **settings)
    np.testing.assert_array_equal(found.parameters, alone.parameters)
    check_alike(held, rows_of(alone.tables))
