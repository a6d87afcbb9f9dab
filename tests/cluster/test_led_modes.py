"""Training by a mode whose policy server is another process: of one worker the bits of one process, of
several every example once, or counted.
"""

from __future__ import annotations

import concurrent.futures
import json
import math
import os
import re
import shlex
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cluster.led import led
from cluster.processes import pids
from cluster.test_up import PATIENCE

import leashed as lsh
from leashed import cli
from leashed.cluster import joining, listening, mode_table, opening, policy_server
from leashed.cluster.measures import counted
from leashed.cluster.plan import Cluster, Plan, Sync, Train, write
from leashed.cluster.server_tending import ServerTending
from leashed.cluster.supervisor import read_report

DATA = lsh.datasets.synthetic_digits(seed=0).train
MODEL = lsh.models.mlp(784, [8], 10)
MODES = [
    lsh.modes.Sync(),
    lsh.modes.BSP(b2=3),
    lsh.modes.ASP(),
    lsh.modes.SSP(s=2),
    lsh.modes.DSSP(lower=1, upper=3),
    lsh.modes.HopBS(m=2),
    lsh.modes.HopBW(b3=0),
    lsh.modes.EASGD(alpha=0.5, gap=2),
    lsh.modes.LocalSGD(h=2),
    lsh.modes.GBA(m=4, iota=4),
    lsh.modes.Switching(m=4),
    lsh.modes.Automatic(m=4),
    lsh.modes.SHAT(),
    lsh.modes.SHATRoot(),
]


def given(**more: Any) -> dict[str, Any]:
    """How it is trained."""
    return {"until": lsh.until(epochs=0.5), "batch_size": 32, "threads": 1, **more}


@pytest.mark.parametrize("mode", MODES, ids=lambda mode: type(mode).__name__)
def test_one_worker_has_the_bits_of_one_process(mode, tmp_path):
    how = given(mode=mode, rule=lsh.rules.Momentum(0.05))
    alone = lsh.train(MODEL, DATA, **how)
    with led(tmp_path, MODEL, DATA, **how) as run:
        found = lsh.train(MODEL, DATA, **how, cluster=run.cluster())
        report = run.report()
    assert run.error is None
    assert found.reason == alone.reason == "epochs"
    np.testing.assert_array_equal(found.parameters, alone.parameters)
    assert report["state"] == "ended"
    ledger = report["ledger"]
    assert ledger["complete"] == ledger["total"] == 157
    assert found.mode.applied == alone.mode.applied
    assert found.mode.exchanges == alone.mode.exchanges


def together(
    run: Any, how: dict[str, Any], trainers: int, model: Any = MODEL, data: Any = DATA
) -> list[lsh.TrainResult]:
    """What each trainer has come to."""
    with concurrent.futures.ThreadPoolExecutor(trainers) as pool:
        each = [
            pool.submit(lsh.train, model, data, **how, cluster=run.cluster(k))
            for k in range(trainers)
        ]
        return [one.result() for one in each]


@pytest.mark.parametrize("mode", ["sync", "gba:iota=2", "local_sgd:h=2"])
def test_several_trainers_have_what_the_server_holds(mode, tmp_path):
    how = given(mode=mode, until=lsh.until(epochs=4), threads=2)
    with led(tmp_path, MODEL, DATA, trainers=2, **how) as run:
        results = together(run, how, 2)
        report = run.report()
    assert run.error is None
    first, second = results
    np.testing.assert_array_equal(first.parameters, second.parameters)
    assert first.final_loss < 0.8 * math.log(10)  # (how many gradients are too old is chance)
    pushed = [result.mode.worker_examples for result in results]
    assert [len(each) for each in pushed] == [2, 2]
    assert [each.sum() for each in pushed] == [result.examples for result in results]
    assert report["state"] == "ended"
    assert report["ledger"]["complete"] == report["ledger"]["total"]
    (server,) = counted(report, "policy-ps").values()
    examples = report["ledger"]["total"] * 32
    told = [server[f"mode_{name}"] for name in ("applied", "stale", "late", "straggler")]
    assert sum(told) == examples or server["mode_exchanges"] > 0
    assert server["lanes"] == 4
    trainers = counted(report, "trainer").values()
    assert sum(each["examples"] for each in trainers) == examples
    assert sum(result.examples for result in results) == examples
    assert sum(each["batches_used"] for each in trainers) == server["pushes"]


def test_what_a_policy_server_does_not_lead_is_refused(tmp_path):
    def refused(match: str, **more: Any) -> None:
        place = policy_server.Trainers(1)
        with pytest.raises(ValueError, match=match):
            lsh.train(MODEL, DATA, **{**given(mode="gba"), **more}, cluster=place)

    refused("take sync, or local_sgd", mode=lsh.modes.Swarm(h=1))
    refused("take sync, or local_sgd", mode=lsh.modes.Ensemble())
    refused("give epochs, or seconds", until=lsh.until(updates=5), mode="sync", dense="all-reduce")
    refused("lsh.save keeps the result", checkpoint=str(tmp_path / "there"))
    refused("give mode as well", mode=None)
    assert not (tmp_path / "there").exists()


def test_a_trainer_whose_mode_switches_at_another_time_is_turned_away(tmp_path):
    how = given(mode=lsh.modes.Switching(at=((5.0, "gba"),)))
    with led(tmp_path, MODEL, DATA, **how) as run:
        with pytest.raises(
            ValueError, match=r'mode.at is \[\] here, and \[\[5.0, "gba"\]\] in the run'
        ):
            lsh.train(
                MODEL, DATA, **given(mode="switching"), cluster=run.cluster(patience=PATIENCE)
            )
        run.close()


def least(link: socket.socket) -> None:
    """The kernel's least buffers, so that no frame goes or comes in one piece."""
    for which in (socket.SO_SNDBUF, socket.SO_RCVBUF):
        link.setsockopt(socket.SOL_SOCKET, which, 1)


@pytest.mark.parametrize("mode", ["sync", "gba:m=2,iota=4", "local_sgd:h=2"])
def test_through_the_least_buffers_all_comes_whole(mode, monkeypatch, tmp_path):
    for side in (listening, opening):
        monkeypatch.setattr(side, "prepare", least)
    model = lsh.models.mlp(784, [2], 10)
    few = lsh.until(epochs=0.03)  # ten batches: each frame waits for many acknowledgements
    how = given(mode=mode, until=few)
    alone = lsh.train(model, DATA, **how)
    with led(tmp_path / "one", model, DATA, **how) as run:
        found = lsh.train(model, DATA, **how, cluster=run.cluster())
    assert run.error is None
    np.testing.assert_array_equal(found.parameters, alone.parameters)
    how = given(mode=mode, until=few, threads=2)
    with led(tmp_path / "two", model, DATA, trainers=2, **how) as run:
        first, second = together(run, how, 2, model)
        report = run.report()
    assert run.error is None
    np.testing.assert_array_equal(first.parameters, second.parameters)
    assert report["ledger"]["complete"] == report["ledger"]["total"]
    (server,) = counted(report, "policy-ps").values()
    assert server["departures"] == 0
    told = sum(server[f"mode_{name}"] for name in ("applied", "stale", "late", "straggler"))
    assert told == report["ledger"]["total"] * 32 or server["mode_exchanges"] > 0


def test_a_cluster_without_a_policy_server_trains_by_no_mode():
    place = policy_server.Trainers(1)
    place.policy_servers = 0
    with pytest.raises(ValueError, match="start a policy server"):
        lsh.train(MODEL, DATA, **given(mode="gba"), cluster=place)


@pytest.mark.parametrize("mode", ["asp", "gba:m=7,iota=1"])
def test_the_account_of_a_run_that_ends_early_is_of_its_end(mode, tmp_path):
    how = given(mode=mode, until=lsh.until(epochs=1e5, seconds=0.5), threads=2)
    with led(tmp_path, MODEL, DATA, trainers=2, **how) as run:
        results = together(run, how, 2)
        report = run.report()
    assert report["state"] == "ended"
    (server,) = counted(report, "policy-ps").values()
    trained = sum(result.examples for result in results)
    cut = sum(each["mode_left_out"] for each in counted(report, "trainer").values())
    assert 0 < server["mode_pushed"] <= trained + cut
    assert trained <= server["mode_pushed"] + 4 * 32  # pushes that had gone, and nobody read
    assert report["ledger"]["complete"] == server["mode_pushed"] // 32
    assert report["ledger"]["twice"] <= 4
    for result in results:
        assert result.updates[-1] == result.total_updates
    told = dict(mode_table.facts(report))["examples"]
    waited = server["mode_pushed"] - sum(
        server[f"mode_{name}"] for name in ("applied", "stale", "late", "straggler", "missing")
    )
    assert ("waited for others" in told) == (waited > 0)


def test_a_session_that_fails_ends_its_training(monkeypatch, tmp_path):
    """At once, and with that error: nobody tends connections with the server any more."""

    def fails(*_: Any) -> None:
        raise MemoryError("no room for a connection")

    monkeypatch.setattr(ServerTending, "tend", fails)
    how = given(mode="gba")
    with led(tmp_path, MODEL, DATA, **how) as run:
        with pytest.raises(MemoryError, match="no room for a connection"):
            lsh.train(MODEL, DATA, **how, cluster=run.cluster(patience=2 * PATIENCE))
        run.close()


def test_more_batches_than_are_asked_for_at_once_are_leased(tmp_path):
    how = given(mode="gba", until=lsh.until(epochs=1e6, seconds=0.3), batch_size=1)
    with led(tmp_path, MODEL, DATA, **how) as run:
        found = lsh.train(MODEL, DATA, **how, cluster=run.cluster())
        report = run.report()
    assert run.error is None
    assert found.reason == "seconds"
    assert report["ledger"]["total"] > 1 << 32
    assert report["ledger"]["granted"] >= 2


@pytest.mark.process
@pytest.mark.parametrize("servers", [1, 2])
def test_where_a_policy_server_does_not_come_the_run_ends_by_its_name(servers, monkeypatch):
    real = joining._command

    def command(home: Path) -> Callable[[str, int], Sequence[str]]:
        def of(role: str, index: int) -> Sequence[str]:
            if (role, index) == ("policy-ps", servers - 1):
                return [sys.executable, "-c", "raise SystemExit('no memory')"]
            return real(home)(role, index)

        return of

    monkeypatch.setattr(joining, "_command", command)
    cluster = lsh.cluster.join(policy_servers=servers, rank=0, size=1)
    who = "policy server 1" if servers > 1 else "the policy server"
    with (
        pytest.warns(RuntimeWarning, match=f"{who} has ended with status 1: no memory"),
        pytest.warns(RuntimeWarning, match="the run has failed: no trainer has handed in"),
    ):
        found = lsh.train(MODEL, DATA, **given(mode="gba"), cluster=cluster)
    assert found.reason == "interrupted"
    assert "no memory" in found.config["cluster_ended"]


def command(*, tables: bool = False) -> list[str]:
    """The page's, of a model that reads tables or not, without its first two words."""
    page = (Path(__file__).parents[2] / "docs" / "modes.md").read_text(encoding="utf-8")
    every = re.findall(r"^\$ leashed (cluster up .*)$", page, re.MULTILINE)
    others = ("policy-servers 2", "--dense")
    plain = [one for one in every if not any(other in one for other in others)]
    (found,) = [one for one in plain if ("dlrm" in one) == tables]
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
    found = lsh.load(folder / "output.safetensors").evaluate(lsh.datasets.synthetic_digits().test)
    assert found.accuracy == pytest.approx(report["test_accuracy"])
    told = capsys.readouterr().out
    assert "policy server" in told
    assert "mode gba:iota=4" in told
    assert "trainer 0 (the policy server's parameters)" in told
    (server,) = counted(report, "policy-ps").values()
    assert server["mode_applied"] + server["mode_stale"] == report["ledger"]["total"] * 64


def begun(folder: Path, least: int, process: subprocess.Popen[str]) -> None:
    """Waits until so many batches are done."""
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        assert process.poll() is None
        report = read_report(folder) if folder.exists() else None
        if report is not None and report["ledger"]["complete"] >= least:
            return
        time.sleep(0.05)
    raise AssertionError("nothing is trained")


def started(*words: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "leashed", "cluster", "up", *words],
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip


def whole(folder: Path, process: subprocess.Popen[str]) -> dict[str, Any]:
    """The report of a run once it has ended by itself, with all batches done."""
    told, _ = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0, told
    report: dict[str, Any] = json.loads((folder / "run.json").read_text())
    assert report["state"] == "ended"
    assert report["ledger"]["complete"] == report["ledger"]["total"]
    return report


def up(folder: Path, *more: str) -> subprocess.Popen[str]:
    words = ["--trainers", "3", "--mode", "gba:m=3", "--epochs", "120", *more]
    return started(*words, "--run", str(folder))


def patiently_up(folder: Path) -> subprocess.Popen[str]:
    """The same run, whose policy server waits for a master for as long as a busy machine may take to start
    one: of a server that does not another would have the place, and the run would be lost.
    """
    cluster = Cluster(trainers=3, sync_ps=0, policy_ps=1, run=folder, grace=PATIENCE / 2)
    plan = Plan(cluster, Sync("none"), Train(mode="gba:m=3", epochs=120.0))
    write(folder.with_suffix(".toml"), plan)
    return started("--plan", str(folder.with_suffix(".toml")))


@pytest.mark.process(1)
@pytest.mark.parametrize(
    ("names", "blow"),
    [
        (["trainer-1"], signal.SIGKILL),
        (["trainer-1"], signal.SIGSTOP),
        (["trainer-0", "trainer-2"], signal.SIGKILL),
        (["trainer-0", "trainer-2"], signal.SIGSTOP),
        (["master-0", "trainer-1"], signal.SIGKILL),
    ],
    ids=["killed", "stopped", "two killed", "two stopped", "master and trainer killed"],
)
def test_leases_of_trainers_that_die_or_hang_are_others(names, blow, tmp_path):
    folder = tmp_path / "run"
    process = patiently_up(folder) if "master-0" in names else up(folder)
    try:
        begun(folder, 200, process)
        there = pids(folder)
        for name in names:
            os.kill(there[name], blow)
        report = whole(folder, process)
    finally:
        process.kill()
    ledger = report["ledger"]
    (server,) = counted(report, "policy-ps").values()
    fates = ("mode_applied", "mode_stale", "mode_late", "mode_straggler")
    assert sum(server[name] for name in fates) == ledger["total"] * 64 + server["mode_late"]
    assert server["departures"] >= sum(name != "master-0" for name in names)
    assert report["test_accuracy"] > 0.9


@pytest.mark.process
@pytest.mark.parametrize("kind", ["all-reduce", "without what it kept"])
def test_a_run_without_its_policy_server_says_so(kind, tmp_path):
    folder = tmp_path / "run"
    mode = ["--mode", "sync", "--dense", kind] if kind == "all-reduce" else []
    process = up(folder, "--epochs", "1000", *mode)
    try:
        begun(folder, 100, process)
        os.kill(pids(folder)["policy-ps-0"], signal.SIGKILL)
        for path in folder.glob("policy-ps-0.snapshot*"):
            path.unlink(missing_ok=True)
        told, _ = process.communicate(timeout=PATIENCE)
    finally:
        process.kill()
    assert process.returncode == 1
    assert "policy server 0 is lost" in told
    assert pids(folder) == {}
