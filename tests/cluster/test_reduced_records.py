"""The record of a run by Sync whose workers sum among themselves: made again by one thread, and in virtual time, it
has the run's bits.
"""

from __future__ import annotations

import os
import signal
from pathlib import Path

import made_clicks
import numpy as np
import pytest
from cluster.led import led
from cluster.processes import pids
from cluster.test_led_modes import DATA, MODEL, begun, given, together, up, whole
from cluster.test_led_records import check, recorded

import leashed as lsh
from leashed.cluster import policy_server
from leashed.cluster.measures import counted
from leashed.training import request


@pytest.mark.parametrize("trainers", [1, 2])
def test_a_record_has_the_bits_of_the_run(trainers: int, tmp_path: Path) -> None:
    how = given(mode="sync", threads=2, rule=lsh.rules.Adam(0.01), dense="all-reduce")
    how["observe"] = lsh.Observe(record=tmp_path / "run.trace", every=0.05)
    with led(tmp_path / "run", MODEL, DATA, trainers=trainers, **how) as run:
        results = together(run, how, trainers)
        run.report()
    assert run.error is None
    made = check(tmp_path, results[0].parameters)
    assert made.updates == results[0].total_updates
    assert made.config["threads"] == 2 * trainers


def test_what_is_not_recorded_is_refused_by_name(tmp_path: Path) -> None:
    clicks = made_clicks.small(None)
    of_clicks = made_clicks.clicks(clicks)
    for model, data, mode, why in (
        (MODEL, DATA, "switching", "by Switching and Automatic, since .* take sync"),
        (MODEL, DATA, "automatic", "by Switching and Automatic, since .* take sync"),
        (clicks, of_clicks, "sync", "rows are looked up once more"),
    ):
        how = given(mode=mode, dense="all-reduce", observe=recorded(tmp_path))
        unsaid = {"discipline": None, "staleness": None, "seed": 0, "rule": None}
        with pytest.raises(ValueError, match=why):
            request.of(model, data, cluster=policy_server.Trainers(1), **{**unsaid, **how})


@pytest.mark.long
@pytest.mark.process
def test_one_whose_updates_are_lost_ends_before_them(tmp_path: Path) -> None:
    """With the only one who had them; who comes in its place goes on from what the server has."""
    folder, trace = tmp_path / "run", tmp_path / "run.trace"
    more = ("--trainers", "1", "--mode", "sync", "--dense", "all-reduce", "--record", str(trace))
    process = up(folder, *more, "--epochs", "40")
    try:
        begun(folder, 200, process)
        os.kill(pids(folder)["trainer-0"], signal.SIGKILL)
        report = whole(folder, process)
    finally:
        process.kill()
    (server,) = counted(report, "policy-ps").values()
    assert server["lost_updates"] > 0
    assert "updates were lost with all workers" in (folder / "policy-ps-0.log").read_text()
    made = lsh.replay(trace)
    assert not made.ended
    assert 0 < made.updates < server["mode_updates"]


@pytest.mark.long
@pytest.mark.process
def test_members_that_die_or_hang(tmp_path: Path) -> None:
    folder, trace = tmp_path / "run", tmp_path / "run.trace"
    process = up(
        folder, "--mode", "sync", "--dense", "all-reduce", "--record", str(trace), "--epochs", "40"
    )
    try:
        begun(folder, 200, process)
        there = pids(folder)
        os.kill(there["trainer-1"], signal.SIGKILL)
        os.kill(there["trainer-2"], signal.SIGSTOP)
        report = whole(folder, process)
    finally:
        process.kill()
    (server,) = counted(report, "policy-ps").values()
    assert server["lost_updates"] == 0
    made = lsh.replay(trace)
    assert made.ended
    assert made.difference == 0
    output = lsh.load(folder / "output.safetensors")
    np.testing.assert_array_equal(made.parameters, output.parameters)
