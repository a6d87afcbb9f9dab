"""The record of a run by a mode over sockets, which its policy server writes: made again by one thread, and
in virtual time, it has the run's bits, whoever has died.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cluster.led import led
from cluster.test_led_modes import DATA, MODEL, MODES, begun, given, together
from cluster.test_up import PATIENCE, pids

import leashed as lsh
from leashed import cli
from leashed.cluster.plan import Plan, Train


def recorded(path: Path) -> lsh.Observe:
    return lsh.Observe(record=path / "run.trace")


def check(path: Path, parameters: np.ndarray | None = None) -> Any:
    """Both have the bits of the run's end."""
    made = lsh.replay(path / "run.trace", MODEL, DATA)
    assert made.ended
    assert made.difference == 0
    if parameters is not None:
        np.testing.assert_array_equal(made.parameters, parameters)
    played = lsh.simulation.recorded(path / "run.trace", MODEL, DATA)
    np.testing.assert_array_equal(played.result.parameters, made.parameters)
    assert played.result.total_updates == made.updates
    return made


@pytest.mark.parametrize("mode", MODES, ids=lambda mode: type(mode).__name__)
def test_a_record_of_several_trainers_has_their_bits(mode, tmp_path):
    how = given(mode=mode, rule=lsh.rules.Momentum(0.05), threads=2, observe=recorded(tmp_path))
    with led(tmp_path / "run", MODEL, DATA, trainers=2, **how) as run:
        first, second = together(run, how, 2)
        run.report()
    assert run.error is None
    np.testing.assert_array_equal(first.parameters, second.parameters)
    made = check(tmp_path, first.parameters)
    assert made.config["threads"] == 4
    assert made.updates == first.total_updates


def test_a_record_is_played_over_the_runs_own_time(tmp_path):
    how = given(mode="gba", until=lsh.until(epochs=2), observe=recorded(tmp_path))
    with led(tmp_path / "run", MODEL, DATA, **how) as run:
        found = lsh.train(MODEL, DATA, **how, cluster=run.cluster())
        run.report()
    played = lsh.simulation.recorded(tmp_path / "run.trace", every=1e-3)
    assert len(played.result.loss) > 3
    assert played.result.reason == "epochs"
    assert played.mode is not None
    assert played.mode.applied == found.mode.applied
    np.testing.assert_array_equal(played.result.parameters, found.parameters)


def test_what_cannot_be_played_is_refused_by_name(tmp_path):
    path = tmp_path / "run.trace"
    lsh.train(MODEL, DATA, until=lsh.until(updates=3), threads=1, observe=lsh.Observe(record=path))
    with pytest.raises(ValueError, match="is of a run without a mode"):
        lsh.simulation.recorded(path)
    few = lsh.until(epochs=0.1)
    lsh.train(MODEL, DATA, mode="ensemble", until=few, threads=1, observe=lsh.Observe(record=path))
    with pytest.raises(ValueError, match=r"look at each other's models.*leashed.replay makes"):
        lsh.simulation.recorded(path)
    with pytest.raises(ValueError, match="every must be"):
        lsh.simulation.recorded(path, every=0.0)


def test_a_record_without_a_policy_server_is_refused():
    with pytest.raises(ValueError, match="record is not for runs with sync"):
        Plan(train=Train(record="there.trace"))


def up(folder: Path, *more: str) -> subprocess.Popen[str]:
    words = ["cluster", "up", "--trainers", "3", "--epochs", "30", "--run", str(folder)]
    words += ["--record", str(folder.parent / "run.trace"), *more]
    return subprocess.Popen(
        [sys.executable, "-m", "leashed", *words],
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip


@pytest.mark.process(1)
@pytest.mark.parametrize("mode", ["gba:m=3", "local_sgd:h=2"])
def test_a_record_of_trainers_that_die_has_their_bits(mode, tmp_path, capsys):
    folder = tmp_path / "run"
    process = up(folder, "--mode", mode)
    try:
        begun(folder, 200, process)
        there = pids(folder)
        os.kill(there["trainer-1"], signal.SIGKILL)
        os.kill(there["trainer-2"], signal.SIGSTOP)
        told, _ = process.communicate(timeout=PATIENCE)
    finally:
        process.kill()
    assert process.returncode == 0, told
    assert cli.main(["replay", str(tmp_path / "run.trace")]) == 0
    assert "the recorded one, bit for bit" in capsys.readouterr().out
    output = lsh.load(folder / "output.safetensors")
    made = lsh.replay(tmp_path / "run.trace")
    np.testing.assert_array_equal(made.parameters, output.parameters)
    played = lsh.simulation.recorded(tmp_path / "run.trace")
    np.testing.assert_array_equal(played.result.parameters, output.parameters)


@pytest.mark.process
def test_a_record_goes_as_far_as_its_policy_server_has_lived(tmp_path):
    folder = tmp_path / "run"
    process = up(folder, "--mode", "gba:m=3", "--epochs", "1000")
    try:
        begun(folder, 100, process)
        os.kill(pids(folder)["policy-ps-0"], signal.SIGKILL)
        process.communicate(timeout=PATIENCE)
    finally:
        process.kill()
    made = lsh.replay(tmp_path / "run.trace")
    assert not made.ended
    assert made.updates >= 30
    played = lsh.simulation.recorded(tmp_path / "run.trace")
    np.testing.assert_array_equal(played.result.parameters, made.parameters)
    assert played.result.reason == "seconds"


@pytest.mark.process
def test_a_record_of_trainers_that_join(tmp_path):
    how = given(mode="gba:m=2", observe=recorded(tmp_path))
    cluster = lsh.cluster.join(policy_servers=1, rank=0, size=1)
    found = lsh.train(MODEL, DATA, **how, cluster=cluster)
    check(tmp_path, found.parameters)
