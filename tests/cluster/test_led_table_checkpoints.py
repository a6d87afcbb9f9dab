"""Checkpoints of runs by a mode over sockets whose models read tables: rows, gradients that wait and the mode
are of one cut; and runs that go on from them.
"""

from __future__ import annotations

import itertools
import json
import re
from pathlib import Path
from typing import Any

import made_clicks
import numpy as np
import pytest
from cluster.led import led
from cluster.led_cuts import caught
from cluster.test_checkpoints import killed
from cluster.test_led_modes import together
from cluster.test_led_tables import GROWING, Array, check_alike, clicks_of, given, rows_of, saved

import leashed as lsh
from leashed import cli
from leashed.cluster import checkpoints
from leashed.cluster.checkpoints import Checkpoint, newest

MODES = ["sync", "bsp:b2=3", "ssp:s=2", "gba:m=4,iota=4", "switching:m=4", "shat"]


def how(mode: str, **more: Any) -> dict[str, Any]:
    return given(mode=mode, **{"rule": lsh.Adagrad(0.05), "until": lsh.until(epochs=100), **more})


def went_on(
    folder: Path,
    begins: Path,
    model: Any,
    data: Any,
    asked: dict[str, Any],
    trainers: int = 1,
    **settings: Any,
) -> tuple[Any, dict[str, Array]]:
    """What a run that goes on comes to, and its rows."""
    with led(folder, model, data, trainers, resume=begins, tables=settings, **asked) as run:
        found, *_ = together(run, asked, trainers, model, data)
        report = run.report()
        rows = saved(run, model, report)
    assert run.error is None
    assert report["ledger"]["resumed"] == Checkpoint(begins).account.used
    assert report["ledger"]["complete"] == report["ledger"]["total"]
    return found, rows


@pytest.mark.parametrize("rows", [made_clicks.ROWS, None], ids=["fixed", "growing"])
@pytest.mark.parametrize("mode", MODES)
def test_one_worker_goes_on_to_the_bits_of_the_whole_run(
    mode: str, rows: int | None, tmp_path: Path
) -> None:
    model = made_clicks.small(rows)
    data = made_clicks.clicks(model)
    asked = how(mode, staleness=lsh.staleness.power(0.5))
    settings = {} if rows else {**GROWING, "admit_after": 2}
    told = {name: asked[name] for name in ("rule", "seed", "staleness")}

    def tables() -> dict[str, lsh.Table]:
        return lsh.tables.of(model.tables, **told, **settings)

    alone = lsh.train(model, data, init=lsh.Init("glorot", tables()), **asked)
    begins, whole = caught(
        tmp_path / "run", tmp_path / "cut", model, data, 1, asked, tables=settings
    )
    np.testing.assert_array_equal(whole.parameters, alone.parameters)
    found, held = went_on(tmp_path / "on", begins, model, data, asked, **settings)
    np.testing.assert_array_equal(found.parameters, alone.parameters)
    check_alike(held, rows_of(alone.tables))
    again = lsh.train(model, data, init=lsh.Init("glorot", tables()), **asked, resume=begins)
    np.testing.assert_array_equal(again.parameters, alone.parameters)
    check_alike(rows_of(again.tables), rows_of(alone.tables))


@pytest.mark.parametrize("mode", ["sync", "gba:m=4,iota=4"])
def test_other_numbers_of_trainers_go_on(mode: str, tmp_path: Path) -> None:
    model = made_clicks.small(None)
    data = made_clicks.clicks(model)
    asked = how(mode, threads=2)
    begins, _ = caught(tmp_path / "run", tmp_path / "cut", model, data, 2, asked, tables=GROWING)
    for trainers in (1, 3):
        found, held = went_on(
            tmp_path / str(trainers), begins, model, data, asked, trainers, **GROWING
        )
        assert np.isfinite(found.parameters).all()
        assert found.final_loss < 0.5
        assert all(np.isfinite(rows).all() for rows in held.values())
    loaded = lsh.load(begins)
    assert set(loaded.tables) == {one.name for one in model.tables}
    assert loaded.evaluate(data).loss < 0.65
    assert len(loaded.predict(data)) == len(data)


def test_what_does_not_fit_is_refused_by_name(tmp_path: Path) -> None:
    model = made_clicks.small(None)
    data = made_clicks.clicks(model)
    asked = how("gba:m=4")
    begins, _ = caught(tmp_path / "run", tmp_path / "cut", model, data, 1, asked, tables=GROWING)
    tries = itertools.count()

    def refused(match: str, model: Any = model, settings: Any = GROWING, **more: Any) -> None:
        folder = tmp_path / f"never-{next(tries)}"
        others = {**asked, **more}
        data = made_clicks.clicks(model)
        with led(folder, model, data, 1, resume=begins, tables=settings, **others) as run:
            run.ended()
        assert isinstance(run.error, ValueError)
        assert re.search(match, str(run.error)), run.error

    refused("admit_after.* 0.* 2", settings={**GROWING, "admit_after": 2})
    refused("it is of another model", made_clicks.shared(rows=None))
    refused("it is of another model", made_clicks.small())
    told = {"rule": asked["rule"], "seed": 2, "admit_after": 2, **GROWING}
    init = lsh.Init("glorot", lsh.tables.of(model.tables, **told))
    with pytest.raises(ValueError, match="admit_after of table c0 was 1 and is 2"):
        lsh.train(model, data, init=init, **asked, resume=begins)
    (begins / "policy-ps-0" / "manifest.json").write_text("{}")
    refused(r"policy-ps-0/manifest.json is damaged")


def test_where_no_manifest_comes_the_former_cut_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = made_clicks.small(None)
    data = made_clicks.clicks(model)
    asked = how("sync")
    folder = tmp_path / "run"
    real, made = checkpoints.write, []

    def write(*arguments: Any) -> None:
        if made:
            raise OSError("killed before the manifest")
        real(*arguments)
        made.append(True)

    monkeypatch.setattr(checkpoints, "write", write)
    with led(folder, model, data, checkpoint_every=0.02, tables=GROWING, **asked) as run:
        whole = lsh.train(model, data, **asked, cluster=run.cluster())
        held = saved(run, model, run.report())
    assert run.error is None
    begins = newest(folder)
    assert begins.name == "1"
    assert any(place.name != "1" for place in begins.parent.iterdir())
    Checkpoint(begins).check()
    found, rows = went_on(tmp_path / "on", begins, model, data, asked, **GROWING)
    np.testing.assert_array_equal(found.parameters, whole.parameters)
    check_alike(rows, held)


@pytest.mark.process
def test_a_killed_run_goes_on_by_command(tmp_path: Path) -> None:
    folder, data = tmp_path / "run", clicks_of(tmp_path)
    more = ("--mode", "gba:m=4", *data, "--epochs", "100")
    begins = Checkpoint(killed(folder, "--trainers", "1", *more))
    used = begins.account.used
    assert 0 < used < begins.told["total"]
    assert (
        cli.main(["cluster", "up", "--trainers", "1", *more, "--run", str(tmp_path / "whole")]) == 0
    )
    assert cli.main(["cluster", "resume", str(folder)]) == 0
    assert json.loads((folder / "run.json").read_text())["ledger"]["resumed"] == used
    whole, on = (lsh.load(each / "output") for each in (tmp_path / "whole", folder))
    np.testing.assert_array_equal(on.parameters, whole.parameters)


@pytest.mark.process
def test_trainers_that_join_have_checkpoints_and_go_on(tmp_path: Path) -> None:
    model = made_clicks.small(None)
    data = made_clicks.clicks(model)
    asked = how("gba:m=2", until=lsh.until(epochs=1e5, seconds=1.0))
    one = lsh.cluster.join(
        policy_servers=1,
        rank=0,
        size=1,
        folder=tmp_path / "one",
        checkpoint_every=0.2,
        tables=GROWING,
    )
    lsh.train(model, data, **asked, cluster=one)
    begins = newest(tmp_path / "one" / "run-0")
    batches = Checkpoint(begins).account.used
    asked["until"] = lsh.until(epochs=(batches + 200) / (len(data) / 32))
    two = lsh.cluster.join(
        policy_servers=1, rank=0, size=1, folder=tmp_path / "two", tables=GROWING, collect=True
    )
    found = lsh.train(model, data, **asked, cluster=two, resume=tmp_path / "one" / "run-0")
    init = lsh.Init("glorot", lsh.tables.of(model.tables, rule=asked["rule"], seed=2, **GROWING))
    alone = lsh.train(model, data, init=init, **asked, resume=begins)
    np.testing.assert_array_equal(found.parameters, alone.parameters)
    check_alike(rows_of(found.tables), rows_of(alone.tables))
