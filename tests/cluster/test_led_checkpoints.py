"""Checkpoints of runs by a mode over sockets, of one cut, which their policy server saves; and runs that go
on from them, with other numbers of trainers, or in one process.
"""

from __future__ import annotations

import itertools
import json
import shutil
import signal
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cluster import led_cuts
from cluster.led import led
from cluster.test_checkpoints import killed, made, running
from cluster.test_led_modes import DATA, MODEL, given, together
from cluster.test_up import PATIENCE

import leashed as lsh
from leashed import cli
from leashed.cluster import checkpoints, policy_server
from leashed.cluster.checkpoints import Checkpoint, newest
from leashed.cluster.led_checkpoint import going_on, save
from leashed.cluster.led_keeping import head_of

MODES = ["sync", "bsp:b2=3", "asp", "ssp:s=2", "hop_bs:m=2", "gba:m=4,iota=4", "switching:m=4"]
OWN = ["easgd:alpha=0.5,gap=2", "local_sgd:h=2", "shat"]


def how(mode: Any, **more: Any) -> dict[str, Any]:
    return given(mode=mode, rule=lsh.rules.Momentum(0.05), until=lsh.until(epochs=15), **more)


def caught(folder: Path, to: Path, trainers: int = 1, **asked: Any) -> tuple[Path, Any]:
    """A copy of a checkpoint of a run's midst, and what the run's first trainer came to."""
    return led_cuts.caught(folder, to, MODEL, DATA, trainers, asked)


@pytest.mark.parametrize("mode", MODES)
def test_one_worker_goes_on_to_the_bits_of_the_whole_run(mode, tmp_path):
    asked = how(mode)
    begins, whole = caught(tmp_path / "run", tmp_path / "cut", **asked)
    alone = lsh.train(MODEL, DATA, **asked)
    np.testing.assert_array_equal(whole.parameters, alone.parameters)  # a cut changes nothing
    used = Checkpoint(begins).account.used
    with led(tmp_path / "on", MODEL, DATA, resume=begins, **asked) as run:
        found = lsh.train(MODEL, DATA, **asked, cluster=run.cluster())
        report = run.report()
    assert run.error is None
    np.testing.assert_array_equal(found.parameters, alone.parameters)
    assert report["ledger"]["resumed"] == used
    assert report["ledger"]["complete"] == report["ledger"]["total"]
    again = lsh.train(MODEL, DATA, **asked, resume=begins)
    np.testing.assert_array_equal(again.parameters, alone.parameters)
    assert again.config["resumed_at"] > 0


def test_a_server_that_is_killed_while_it_reads_the_checkpoint_may_begin_again(
    tmp_path, monkeypatch
):
    asked = how("gba:m=3")
    begins, _ = caught(tmp_path / "run", tmp_path / "cut", **asked)
    reads, begun = [], policy_server.begun

    def reading(*given: Any) -> Any:
        reads.extend(head_of(path) for path in (tmp_path / "on").rglob("policy-ps-0.snapshot"))
        return begun(*given)

    monkeypatch.setattr(policy_server, "begun", reading)
    with led(tmp_path / "on", MODEL, DATA, resume=begins, **asked) as run:
        lsh.train(MODEL, DATA, **asked, cluster=run.cluster())
    assert run.error is None
    assert [told["batches"] for told in reads] == [0]  # the run's beginning


@pytest.mark.few(8)
@pytest.mark.parametrize("mode", [*MODES, *OWN])
@pytest.mark.parametrize("trainers", [1, 3])
def test_other_numbers_of_trainers_go_on(mode, trainers, tmp_path):
    asked = how(mode, threads=2)
    begins, _ = caught(tmp_path / "run", tmp_path / "cut", trainers=2, **asked)
    with led(tmp_path / "on", MODEL, DATA, trainers, resume=begins, **asked) as run:
        results = together(run, asked, trainers)
        report = run.report()
    assert run.error is None
    assert report["state"] == "ended"
    assert report["ledger"]["complete"] == report["ledger"]["total"]
    assert all(np.isfinite(one.parameters).all() for one in results)
    loaded = lsh.load(begins)
    assert np.isfinite(loaded.evaluate(DATA).loss)
    assert len(loaded.predict(DATA)) == len(DATA)


def test_what_does_not_fit_is_refused_by_name(tmp_path):
    asked = how("gba:m=4", threads=2)
    begins, _ = caught(tmp_path / "run", tmp_path / "cut", **asked)

    tries = itertools.count()

    def refused(match: str, **more: Any) -> None:
        other = {**asked, **more}
        with (
            pytest.raises(ValueError, match=match),
            led(tmp_path / f"never-{next(tries)}", MODEL, DATA, resume=begins, **other),
        ):
            raise AssertionError

    refused(r"mode was gba\(.*m=4.*\) and is sync\(.*\); give the same", mode="sync")
    refused(r"mode was gba\(.*\) and is gba\(.*m=3", mode="gba:m=3")
    refused("rule was momentum.* and is adam", rule=lsh.rules.Adam(0.01))
    refused("staleness was none.* and is", staleness=lsh.staleness.cutoff(2))
    with pytest.raises(
        ValueError, match="has 2 workers and is to have 3; give threads=2, or go on"
    ):
        lsh.train(MODEL, DATA, **{**asked, "threads": 3}, resume=begins)
    with pytest.raises(ValueError, match="record is not for runs with a mode that go on"):
        lsh.train(
            MODEL, DATA, **asked, resume=begins, observe=lsh.Observe(record=tmp_path / "run.trace")
        )
    with pytest.raises(ValueError, match="its policy server has saved all"):
        Checkpoint(begins).file(0)
    (begins / "policy-ps-0.json").write_text("{}")
    refused("policy-ps-0.json is damaged")


def test_where_no_manifest_comes_the_former_cut_stays(tmp_path, monkeypatch):
    asked = how("sync")
    folder = tmp_path / "run"
    real, fails = checkpoints.write, []

    def write(*arguments: Any) -> None:
        if (folder / "checkpoints").exists() and fails:
            raise OSError("killed before the manifest")
        real(*arguments)
        fails.append(True)

    monkeypatch.setattr(checkpoints, "write", write)
    with led(folder, MODEL, DATA, checkpoint_every=0.02, **asked) as run:
        lsh.train(MODEL, DATA, **asked, cluster=run.cluster())
        report = run.report()
    assert run.error is None
    assert report["state"] == "ended"
    begins = newest(folder)
    assert begins.name == "1"
    assert any(p.name != "1" for p in begins.parent.iterdir())
    alone = lsh.train(MODEL, DATA, **asked)
    with led(tmp_path / "on", MODEL, DATA, resume=begins, **asked) as run:
        found = lsh.train(MODEL, DATA, **asked, cluster=run.cluster())
    np.testing.assert_array_equal(found.parameters, alone.parameters)


def test_where_there_are_enough_updates_already_none_is_made(tmp_path):
    begins, _ = caught(tmp_path / "run", tmp_path / "cut", **how("sync"))
    asked = {**how("sync"), "until": lsh.until(updates=1)}
    with led(tmp_path / "on", MODEL, DATA, resume=begins, **asked) as run:
        found = lsh.train(MODEL, DATA, **asked, cluster=run.cluster())
    assert run.error is None
    np.testing.assert_array_equal(found.parameters, lsh.load(begins).parameters)


def test_a_command_that_comes_due_while_a_cut_is_saved_is_still_to_come(tmp_path):
    asked = how(lsh.modes.Switching(m=4, at=((3.0, "gba"), (5.0, "sync"), (7.0, "gba"))))
    with led(tmp_path / "run", MODEL, DATA, **asked) as run:
        server = run.led.server(1, 1)
        commands = sorted(run.led.commands)
        for left in (1, 2, 3):
            folder = tmp_path / str(left)
            saved = save(folder, run.led, server, 5.5, commands[-left:])
            told = {"total": 9, "next": 1, "open": []}
            checkpoints.write(folder, told, {"policy-ps-0": saved})
            on = going_on(run.led, Checkpoint(folder))
            assert policy_server.Commands(on, None).left == commands[-left:]


def test_nothing_is_left_of_a_run_that_has_ended(tmp_path):
    asked = how("sync")
    with led(tmp_path, MODEL, DATA, checkpoint_every=10.0, **asked) as run:
        found = lsh.train(MODEL, DATA, **asked, cluster=run.cluster())
    begins = Checkpoint(newest(tmp_path))
    assert begins.complete
    np.testing.assert_array_equal(lsh.load(begins.folder).parameters, found.parameters)
    with pytest.raises(ValueError, match="nothing is left of it; leashed"):
        going_on(run.led, begins)


UP = ("--mode", "sync", "--lr", "0.1", "--epochs", "200", "--hidden", "8")


@pytest.mark.process
@pytest.mark.long
def test_a_killed_run_goes_on_by_command(tmp_path):
    folder = tmp_path / "run"
    begins = Checkpoint(killed(folder, "--trainers", "1", *UP))
    used = begins.account.used
    assert 0 < used < begins.told["total"]
    three = tmp_path / "three"
    shutil.copytree(folder, three)
    up = ["cluster", "up", "--trainers", "1", *UP, "--run", str(tmp_path / "whole")]
    assert cli.main(up) == 0
    assert cli.main(["cluster", "resume", str(folder)]) == 0
    report = json.loads((folder / "run.json").read_text())
    assert report["ledger"]["resumed"] == used
    whole = lsh.load(tmp_path / "whole" / "output.safetensors")
    on = lsh.load(folder / "output.safetensors")
    np.testing.assert_array_equal(on.parameters, whole.parameters)
    other = ("--trainers", "3", "--look-ahead", "1")
    assert cli.main(["cluster", "resume", str(three), *other]) == 0
    report = json.loads((three / "run.json").read_text())
    assert report["state"] == "ended"
    assert report["ledger"]["complete"] == report["ledger"]["total"]
    assert report["test_accuracy"] > 0.6


@pytest.mark.process
def test_a_checkpoint_is_whole_after_ctrl_c(tmp_path):
    folder = tmp_path / "run"
    for pause in (0.0, 0.05, 0.15):
        shutil.rmtree(folder, ignore_errors=True)
        with running(folder, "--trainers", "2", *UP, "--epochs", "1000") as process:
            made(folder, process)
            time.sleep(pause)
            process.send_signal(signal.SIGINT)
            process.communicate(timeout=PATIENCE)
        begins = Checkpoint(newest(folder))
        begins.check()
        assert np.isfinite(lsh.load(begins.folder).parameters).all()


@pytest.mark.process
def test_trainers_that_join_have_checkpoints_and_go_on(tmp_path):
    asked = how("gba:m=2", threads=1)
    one = lsh.cluster.join(
        policy_servers=1, rank=0, size=1, folder=tmp_path / "one", checkpoint_every=0.2
    )
    asked["until"] = lsh.until(epochs=1e5, seconds=3.0)
    lsh.train(MODEL, DATA, **asked, cluster=one)
    begins = newest(tmp_path / "one" / "run-0")
    batches = Checkpoint(begins).account.used
    asked["until"] = lsh.until(epochs=(batches + 200) / (len(DATA) / 32))
    two = lsh.cluster.join(policy_servers=1, rank=0, size=1, folder=tmp_path / "two")
    found = lsh.train(MODEL, DATA, **asked, cluster=two, resume=tmp_path / "one" / "run-0")
    assert found.reason == "epochs"
    assert 0 < found.examples <= 201 * 32
    alone = lsh.train(MODEL, DATA, **asked, resume=begins)
    np.testing.assert_array_equal(found.parameters, alone.parameters)
