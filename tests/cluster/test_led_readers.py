"""Runs by modes whose rows readers read: of one worker the bits of ``leashed train --mode`` on the same file."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cluster.led import led
from cluster.test_joined_readers import join, numbers
from cluster.test_led_modes import MODES, together
from cluster.test_readers import PLAIN, begun, criteo_lines, plain_lines
from cluster.test_up import outlives

import leashed as lsh
from leashed import stream
from leashed.cluster.measures import counted

MODEL = lsh.models.mlp(2, [4], 2)


def given(**more: Any) -> dict[str, Any]:
    """How it is trained; of two passes over 1,000 rows the last batch has fewer than others."""
    return {"until": lsh.until(epochs=2), "batch_size": 64, "threads": 1, **more}


@pytest.mark.parametrize("mode", MODES, ids=lambda mode: type(mode).__name__)
def test_one_worker_has_the_bits_of_one_process(mode: Any, tmp_path: Path) -> None:
    rows, how = numbers(tmp_path), given(mode=mode, rule=lsh.rules.Momentum(0.05))
    alone = lsh.train(MODEL, rows, **how)
    with led(tmp_path / "run", MODEL, rows, **how, readers=1) as run:
        found = lsh.train(MODEL, rows, **how, cluster=run.cluster())
        report = run.report()
    assert run.error is None
    assert found.reason == alone.reason == "epochs"
    np.testing.assert_array_equal(found.parameters, alone.parameters)
    assert report["state"] == "ended"
    assert report["ledger"]["complete"] == report["ledger"]["total"] == 32
    assert found.mode.applied == alone.mode.applied
    assert found.mode.exchanges == alone.mode.exchanges


def test_rows_of_tables_too(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_bytes(plain_lines(1000))
    rows, how = stream.csv(tmp_path / "a.csv", PLAIN), given(mode="gba:m=2", rule=lsh.Adagrad(0.05))
    model = lsh.models.dlrm(dim=4).shaped(rows)
    alone = lsh.train(model, rows, **how)
    with led(tmp_path / "run", model, rows, **how, readers=1) as run:
        found = lsh.train(model, rows, **how, cluster=run.cluster())
    assert run.error is None
    np.testing.assert_array_equal(found.parameters, alone.parameters)


@pytest.mark.parametrize("mode", ["sync", "gba:iota=2", "local_sgd:h=2"])
def test_several_trainers_have_every_row_once(mode: str, tmp_path: Path) -> None:
    rows, how = numbers(tmp_path), given(mode=mode, threads=2, until=lsh.until(epochs=40))
    with led(tmp_path / "run", MODEL, rows, trainers=2, **how, readers=2) as run:
        first, second = together(run, how, 2, MODEL, rows)
        report = run.report()
    assert run.error is None
    np.testing.assert_array_equal(first.parameters, second.parameters)
    assert report["ledger"]["complete"] == report["ledger"]["total"] == 625
    (server,) = counted(report, "policy-ps").values()
    told = [server[f"mode_{name}"] for name in ("applied", "stale", "late", "straggler")]
    assert sum(told) == 40_000 or server["mode_exchanges"] > 0
    assert sum(each["examples"] for each in counted(report, "trainer").values()) == 40_000


def test_what_a_trainer_had_that_goes_is_read_again(tmp_path: Path) -> None:
    rows, how = numbers(tmp_path), given(mode="asp", until=lsh.until(epochs=40))
    early = {**how, "until": lsh.until(epochs=40, seconds=0.05)}
    with led(tmp_path / "run", MODEL, rows, trainers=2, **how, readers=1) as run:
        gone = lsh.train(MODEL, rows, **early, cluster=run.cluster(1))
        found = lsh.train(MODEL, rows, **how, cluster=run.cluster(0))
        report = run.report()
    assert run.error is None
    assert (gone.reason, found.reason) == ("seconds", "epochs")
    assert report["ledger"]["complete"] == report["ledger"]["total"] == 625
    (server,) = counted(report, "policy-ps").values()
    assert server["mode_applied"] == 40_000


def test_a_pipe_is_refused_by_name(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    cluster = join(tmp_path / "run", policy_servers=1, readers=1)
    data = stream.csv(pipe, {"y": stream.Label(), "a": stream.Number(), "b": stream.Number()})
    with pytest.raises(ValueError, match="write the rows into a file, or train on one machine"):
        lsh.train(MODEL, data, **given(mode="gba"), cluster=cluster)


@pytest.mark.process
def test_the_command_where_a_trainer_is_killed(tmp_path: Path) -> None:
    (tmp_path / "a.tsv").write_bytes(criteo_lines(6000))
    (tmp_path / "t.tsv").write_bytes(criteo_lines(1000, 9))
    words = [
        "--model",
        "dlrm",
        "--data",
        str(tmp_path / "*a.tsv"),
        "--test",
        str(tmp_path / "t.tsv"),
    ]
    words += ["--dim", "4", "--table-mib", "4", "--run", str(tmp_path / "run"), "--epochs", "60"]
    words += ["--trainers", "2", "--readers", "1", "--mode", "gba:iota=4"]
    outlives(["cluster", "up", *words], tmp_path / "run", "trainer-1", begun)
    report = json.loads((tmp_path / "run" / "run.json").read_text())
    assert report["state"] == "ended"
    assert report["ledger"]["complete"] == report["ledger"]["total"] == 5625
    assert report["test_auc"] > 0.8
    (server,) = counted(report, "policy-ps").values()
    assert server["mode_applied"] + server["mode_stale"] == 360_000
