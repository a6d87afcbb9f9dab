"""Checkpoints of runs by a mode on several policy servers, of which each has a part of the parameters, and of
the rows of tables: one position of the first's log on all of them; and runs that go on from them on other
numbers of servers, or in one process.
"""

from __future__ import annotations

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
from cluster.test_led_modes import DATA, MODEL, together
from cluster.test_led_tables import GROWING, Array, check_alike, clicks_of, given, rows_of

import leashed as lsh
from leashed import _core, cli
from leashed.cluster import checkpoints, led_held, led_part, led_parts, row_files
from leashed.cluster.checkpoints import Checkpoint, newest
from leashed.cluster.led_rows import folder_of
from leashed.cluster.measures import counted

HOLDS = lsh.modes.Switching(m=4, at=((0.0, "gba"),))  # gradients that wait for others


def how(mode: Any, **more: Any) -> dict[str, Any]:
    return given(mode=mode, **{"until": lsh.until(epochs=100), **more})


def went_on(
    folder: Path,
    begins: Path,
    model: Any,
    data: Any,
    asked: dict[str, Any],
    servers: int,
    trainers: int = 1,
) -> tuple[Any, dict[str, Array]]:
    """What a run that goes on comes to, and its rows."""
    described = getattr(model, "tables", ())
    settings = GROWING if described else None
    with led(
        folder, model, data, trainers, resume=begins, servers=servers, tables=settings, **asked
    ) as run:
        found, *_ = together(run, asked, trainers, model, data)
        report = run.report()
        run.ended()
        places = [folder_of(run._run.folder, k) for k in range(servers)]
        rows = {}
        if described:
            rows = rows_of(row_files.joined_of(places, described, report["run"]).tables)
    assert run.error is None
    assert report["ledger"]["resumed"] == Checkpoint(begins).account.used
    assert report["ledger"]["complete"] == report["ledger"]["total"]
    return found, rows


@pytest.mark.parametrize("mode", ["sync", HOLDS], ids=["sync", "switching"])
def test_other_numbers_of_servers_go_on_to_the_bits_of_the_whole_run(
    mode: Any, tmp_path: Path
) -> None:
    model = made_clicks.small(None)
    data = made_clicks.clicks(model)
    asked = how(mode, until=lsh.until(epochs=100 if mode == "sync" else 200))

    def holds(folder: Path) -> bool:
        begin, end = json.loads((folder / led_parts.TOLD).read_text())["rows"]
        return mode == "sync" or begin < end

    begins, whole = caught(
        tmp_path / "run", tmp_path / "cut", model, data, 1, asked, holds, servers=2, tables=GROWING
    )
    assert not list(begins.glob("*.part"))
    told = {"rule": asked["rule"], "seed": asked["seed"], **GROWING}
    init = lsh.Init("glorot", lsh.tables.of(model.tables, **told))
    alone = lsh.train(model, data, init=init, **asked, resume=begins)
    np.testing.assert_array_equal(alone.parameters, whole.parameters)
    for servers in (1, 3):
        found, held = went_on(tmp_path / str(servers), begins, model, data, asked, servers)
        np.testing.assert_array_equal(found.parameters, whole.parameters)
        check_alike(held, rows_of(alone.tables))
    loaded = lsh.load(begins)
    assert np.isfinite(loaded.evaluate(data).loss)


@pytest.mark.parametrize("mode", [HOLDS, "bsp:b2=3"], ids=["switching", "bsp"])
def test_tables_that_are_each_whole_on_a_server_wait_with_their_gradients(
    mode: Any, tmp_path: Path
) -> None:
    model = made_clicks.small()
    data = made_clicks.clicks(model)
    asked = how(mode)

    def holds(folder: Path) -> bool:
        told = json.loads((folder / led_parts.TOLD).read_text())
        assert sorted(told["owners"]) == [0, 1]
        assert len(told["strides"]) == len(model.tables)
        begin, end = told["rows"]
        return bool(begin < end)

    begins, whole = caught(
        tmp_path / "run", tmp_path / "cut", model, data, 1, asked, holds, servers=2, tables={}
    )
    told = {"rule": asked["rule"], "seed": asked["seed"]}
    init = lsh.Init("glorot", lsh.tables.of(model.tables, **told))
    alone = lsh.train(model, data, init=init, **asked, resume=begins)
    np.testing.assert_array_equal(alone.parameters, whole.parameters)
    for servers in (2, 1):
        found, held = went_on(tmp_path / str(servers), begins, model, data, asked, servers)
        np.testing.assert_array_equal(found.parameters, whole.parameters)
        check_alike(held, rows_of(alone.tables))


@pytest.mark.parametrize("mode", ["hop_bw:b3=0", "local_sgd:h=2"])
def test_one_servers_checkpoint_goes_on_on_several(mode: str, tmp_path: Path) -> None:
    asked = {
        **how(mode, until=lsh.until(epochs=15)),
        "rule": lsh.rules.Momentum(0.05),
        "threads": 2,
    }
    begins, _ = caught(tmp_path / "run", tmp_path / "cut", MODEL, DATA, 2, asked)
    for servers, trainers in ((3, 1), (2, 3)):
        found, _ = went_on(tmp_path / str(servers), begins, MODEL, DATA, asked, servers, trainers)
        assert np.isfinite(found.parameters).all()


def test_servers_that_are_of_other_moments_make_no_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = made_clicks.small(None)
    data = made_clicks.clicks(model)
    asked = how("sync")
    folder = tmp_path / "run"
    real, made = led_parts.join, []

    def join(place: Path, servers: int) -> dict[str, list[str]]:
        if made:
            path = place / led_part.name_of(1)
            with path.open("rb") as file:
                *rest, numbers = (np.load(file, allow_pickle=False) for _ in range(8))
            numbers[-1] -= 1
            checkpoints.put_array(path, *rest, numbers)
        made.append(True)
        return real(place, servers)

    monkeypatch.setattr(led_parts, "join", join)
    with led(folder, model, data, checkpoint_every=0.02, servers=2, tables=GROWING, **asked) as run:
        whole = lsh.train(model, data, **asked, cluster=run.cluster())
        report = run.report()
    assert run.error is None
    assert report["checkpoints"]["made"] == 1
    assert re.search(
        r"policy server 1 is at line \d+ of the log, and the first at \d+", json.dumps(report)
    )
    begins = newest(folder)
    assert begins.name == "1"
    Checkpoint(begins).check()
    found, _ = went_on(tmp_path / "on", begins, model, data, asked, 2)
    np.testing.assert_array_equal(found.parameters, whole.parameters)


def test_held_rows_are_taken_apart_and_joined() -> None:
    random = np.random.default_rng(0)
    strides = [8, 32]
    placement = _core.RowPlacement([(True, -1), (True, 1)], [k % 3 for k in range(256)])

    def held(count: int, stride: int) -> Any:
        ids = random.permutation(1000)[:count].astype(np.uint64)
        versions = random.integers(0, 9, count).astype(np.uint64)
        there = random.integers(0, 2, count).astype(np.uint64)
        gradients = random.normal(size=(count, stride)).astype(np.float32)
        return led_held.Held(np.arange(3, dtype=np.uint64), ids, versions, there, gradients)

    slots = [[held(n, stride) for stride in strides] for n in (7, 0, 40)]
    words = led_held.words_of(slots)
    held_there = list(led_held.slots(words, strides))
    parts = [led_held.words_of(led_held.own(held_there, placement, k)) for k in range(3)]
    tables = [led_held.tables_of([-1, 1], k) for k in range(3)]
    assert tables == [[0], [0, 1], [0]]
    each = [
        led_held.slots(part, [strides[t] for t in its])
        for part, its in zip(parts, tables, strict=True)
    ]
    whole = led_held.join(
        [led_held.among(one, its, strides) for one, its in zip(each, tables, strict=True)]
    )
    for was, now in zip(slots, led_held.slots(whole, strides), strict=True):
        for one, other in zip(was, now, strict=True):
            np.testing.assert_array_equal(other.missed, one.missed)
            for column in range(1, 5):
                order, same = np.argsort(one.ids), np.argsort(other.ids)
                np.testing.assert_array_equal(other[column][same], one[column][order])
    with pytest.raises(ValueError, match="rows is damaged"):
        list(led_held.slots(words[:-1], strides))


@pytest.mark.process
def test_a_killed_run_goes_on_by_command(tmp_path: Path, capsys: Any) -> None:
    folder, data = tmp_path / "run", clicks_of(tmp_path)
    more = ("--mode", "sync", *data, "--epochs", "100")
    used = Checkpoint(
        killed(folder, "--trainers", "1", "--policy-servers", "2", "--shards", "packed", *more)
    ).account.used
    whole = tmp_path / "whole"
    assert cli.main(["cluster", "up", "--trainers", "1", *more, "--run", str(whole)]) == 0
    go_on = ["cluster", "resume", str(folder)]
    for count, told in (("0", "start a policy server"), ("-1", "--policy-servers must be")):
        assert cli.main([*go_on, "--policy-servers", count]) == 2
        assert told in capsys.readouterr().err
    places = {1: tmp_path / "one", 3: tmp_path / "three", 2: folder}
    for servers, place in places.items():
        others = [] if servers == 2 else ["--policy-servers", str(servers), "--run", str(place)]
        assert cli.main([*go_on, *others]) == 0
    one = lsh.load(whole / "output")
    for servers, place in places.items():
        report = json.loads((place / "run.json").read_text())
        assert report["ledger"]["resumed"] == used
        assert len(counted(report, "policy-ps")) == servers
        on = lsh.load(place / "output")
        np.testing.assert_array_equal(on.parameters, one.parameters)
