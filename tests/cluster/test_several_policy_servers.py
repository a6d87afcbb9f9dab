"""Modes on several policy servers, each with a part of the parameters: the bits of one, every example once
or counted, and what cannot be is refused by name.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cluster.led import led
from cluster.processes import pids
from cluster.test_led_modes import DATA, MODEL, MODES, PATIENCE, begun, given, together, up, whole

import leashed as lsh
from leashed import cli
from leashed.cluster import mode_table, policy_follower, policy_server
from leashed.cluster import plan as plans
from leashed.cluster.measures import counted
from leashed.cluster.messages import Servers
from leashed.training.led_mode import SHARDINGS, LedMode


@pytest.mark.few(8)
@pytest.mark.parametrize("mode", MODES, ids=lambda mode: type(mode).__name__)
def test_one_worker_has_the_bits_of_one_process(mode, tmp_path):
    how = given(mode=mode, rule=lsh.rules.Momentum(0.05))
    alone = lsh.train(MODEL, DATA, **how)
    with led(tmp_path, MODEL, DATA, servers=3, **how) as run:
        found = lsh.train(MODEL, DATA, **how, cluster=run.cluster())
        report = run.report()
    assert run.error is None
    assert found.reason == alone.reason == "epochs"
    np.testing.assert_array_equal(found.parameters, alone.parameters)
    assert report["ledger"]["complete"] == report["ledger"]["total"] == 157
    assert found.mode.applied == alone.mode.applied
    assert found.mode.exchanges == alone.mode.exchanges
    servers = counted(report, "policy-ps")
    assert sorted(servers) == [0, 1, 2]
    assert len({each["mode_updates"] for each in servers.values()}) == 1
    assert {each["mode_applied"] for each in servers.values()} == {alone.mode.applied}


@pytest.mark.parametrize("shards", SHARDINGS)
def test_sync_has_the_bits_of_one_server(shards, tmp_path):
    how = given(mode="sync", threads=2)
    with led(tmp_path / "one", MODEL, DATA, trainers=2, **how) as run:
        one = together(run, how, 2)[0]
    with led(tmp_path / "two", MODEL, DATA, trainers=2, servers=2, shards=shards, **how) as run:
        first, second = together(run, how, 2)
    assert run.error is None
    np.testing.assert_array_equal(first.parameters, one.parameters)
    np.testing.assert_array_equal(second.parameters, one.parameters)


@pytest.mark.parametrize("mode", ["gba:iota=2", "asp", "hop_bw:b3=1", "local_sgd:h=2"])
def test_several_trainers_have_what_the_servers_hold(mode, tmp_path):
    how = given(mode=mode, until=lsh.until(epochs=2), threads=2)
    with led(tmp_path, MODEL, DATA, trainers=2, servers=2, **how) as run:
        first, second = together(run, how, 2)
        report = run.report()
    assert run.error is None
    np.testing.assert_array_equal(first.parameters, second.parameters)
    ledger, servers = report["ledger"], counted(report, "policy-ps")
    assert ledger["complete"] == ledger["total"]
    if servers[0]["mode_exchanges"] == 0.0:
        fates = ("mode_applied", "mode_stale", "mode_straggler")
        assert sum(servers[0][name] for name in fates) == ledger["total"] * 32
        assert sum(servers[1][name] for name in fates) == ledger["total"] * 32
    assert [name for name, _ in mode_table.facts(report)][-1] == "policy server 1"
    assert len(mode_table.servers(report).rows) == 2


def test_what_several_do_not_do_is_refused(tmp_path):
    def refused(match: str, servers: int = 2, **more: Any) -> None:
        place = policy_server.Trainers(1, servers)
        with pytest.raises(ValueError, match=match):
            lsh.train(MODEL, DATA, **{**given(mode="gba"), **more}, cluster=place)

    refused(
        "record is not for .* several policy servers", observe=lsh.Observe(record=tmp_path / "a")
    )
    place = policy_server.Trainers(1, 2)

    def led_by(servers: int = 2, shards: str = "memorywise", **more: Any) -> LedMode:
        unsaid = {"discipline": None, "staleness": None, "seed": 0, "rule": None}
        place = policy_server.Trainers(1, servers, shards)
        asked = policy_server.request.of(
            MODEL, DATA, cluster=place, **{**unsaid, **given(mode="gba"), **more}
        )
        return asked.led(asked.source(1))

    with pytest.raises(ValueError, match="policy_servers must be 1 with clip_norm"):
        led_by(rule=lsh.rules.SGD(0.1, clip_norm=1.0))
    with pytest.raises(ValueError, match="policy_servers must be 1 with a staleness policy that"):
        led_by(staleness=lsh.staleness.tail_tau())
    with pytest.raises(ValueError, match="policy_servers must be 2 at most with shards layerwise"):
        led_by(3, "layerwise")
    assert led_by(2).terms != led_by(2, "layerwise").terms
    assert place.policy_servers == 2


def test_a_first_server_that_is_never_reached_is_named(tmp_path, monkeypatch):
    """As where its port is closed to the machine of the second."""

    def closed(*_: object, **__: object) -> None:
        raise ConnectionRefusedError("the port is closed")

    monkeypatch.setattr(policy_follower, "connect", closed)
    monkeypatch.setattr(policy_follower, "_AWAY", 0.5)
    with led(tmp_path, MODEL, DATA, servers=2, **given(mode="sync")) as run:
        deadline = time.monotonic() + PATIENCE
        while run.error is None:
            assert time.monotonic() < deadline
            time.sleep(0.01)
    assert isinstance(run.error, ConnectionError)
    assert re.search(
        r"policy server 0 at 127\S+ is not reached .*: the port is closed", str(run.error)
    )


class Refused:
    """A server whose connection to the first has ended whenever it is there."""

    there = False

    @property
    def follows(self) -> bool:
        self.there = not self.there
        return self.there


def test_a_first_server_that_refuses_again_and_again_is_named(monkeypatch):
    monkeypatch.setattr(policy_follower, "_AWAY", 0.3)
    monkeypatch.setattr(policy_follower.Following, "_connect", lambda *_: None)
    nobody: Any = None
    server: Any = Refused()
    following = policy_follower.Following(server, nobody, nobody)
    following.told(Servers(1, {"policy-ps": {0: "127.0.0.1:1"}}))

    def tend() -> None:
        for _ in range(200):
            following.tend()
            time.sleep(0.01)

    with pytest.raises(ConnectionError, match=r"policy server 0 .* it ends the connection"):
        tend()


def plan(cluster: str = "", train: str = "", mode: str = "gba") -> plans.Plan:
    text = f'[cluster]\npolicy_ps = 2\n{cluster}\n[train]\nmode = "{mode}"\n{train}\n'
    return plans.parse(text, Path("/nowhere"))


def test_plans_of_several():
    made = plan('shards = "packed"')
    assert (made.cluster.policy_ps, made.cluster.shards) == (2, "packed")
    assert plans.parse(made.text(), Path("/nowhere")).cluster.shards == "packed"
    with pytest.raises(ValueError, match="shards must be one of layerwise"):
        plan('shards = "thirds"')
    with pytest.raises(ValueError, match=r"cluster.shards is for several policy servers"):
        plans.parse('[cluster]\nshards = "packed"\n[train]\nmode = "gba"\n', Path("/nowhere"))
    with pytest.raises(ValueError, match=r"record is not for .* several policy servers"):
        plan(train='record = "a.trace"')
    with pytest.raises(ValueError, match="policy_servers must be 1 with clip_norm"):
        plan(train='rule = "sgd:clip_norm=1"')
    with pytest.raises(ValueError, match="shards is for several policy servers"):
        lsh.cluster.join(policy_servers=1, rank=0, size=1, shards="packed")
    with pytest.raises(ValueError, match="shards must be one of"):
        lsh.cluster.join(policy_servers=2, rank=0, size=1, shards="thirds")


def command() -> list[str]:
    """The page's of several, without its first word."""
    page = (Path(__file__).parents[2] / "docs" / "modes.md").read_text(encoding="utf-8")
    (found,) = re.findall(
        r"^\$ leashed (cluster up .*--policy-servers 2 --shards .*)$", page, re.MULTILINE
    )
    return shlex.split(found)


@pytest.mark.process
def test_the_pages_command(tmp_path, capsys):
    folder = tmp_path / "run"
    assert cli.main([*command(), "--run", str(folder)]) == 0
    report = json.loads((folder / "run.json").read_text())
    assert report["state"] == "ended"
    assert report["ledger"]["complete"] == report["ledger"]["total"]
    assert sum(report["restarts"].values()) == 0
    assert report["test_accuracy"] > 0.5  # of most runs 0.9, of few 0.7; by chance 0.1
    assert sorted(counted(report, "policy-ps")) == [0, 1]
    assert "policy server 1" in capsys.readouterr().out


@pytest.mark.process(1)
@pytest.mark.parametrize("blow", [signal.SIGKILL, signal.SIGSTOP], ids=["killed", "stopped"])
def test_a_trainer_that_dies_or_hangs_costs_its_parts(blow, tmp_path):
    folder = tmp_path / "run"
    process = up(folder, "--mode", "sync", "--policy-servers", "2")
    try:
        begun(folder, 200, process)
        os.kill(pids(folder)["trainer-1"], blow)
        report = whole(folder, process)
    finally:
        process.kill()
    ledger = report["ledger"]
    servers = counted(report, "policy-ps")
    assert servers[0]["mode_applied"] == ledger["total"] * 64
    assert servers[1]["mode_applied"] + servers[1]["mode_missing"] == ledger["total"] * 64
    assert servers[0]["departures"] >= 1
    assert report["test_accuracy"] > 0.9


@pytest.mark.process(2)
@pytest.mark.parametrize(
    "more", [{"mode": "gba"}, {"mode": "sync", "dense": "all-reduce"}], ids=str
)
def test_joined_trainers_start_several(more):
    cluster = lsh.cluster.join(policy_servers=2, shards="layerwise", rank=0, size=1)
    found = lsh.train(MODEL, DATA, **given(**more), cluster=cluster)
    alone = lsh.train(MODEL, DATA, **given(mode=more["mode"]))
    np.testing.assert_array_equal(found.parameters, alone.parameters)
