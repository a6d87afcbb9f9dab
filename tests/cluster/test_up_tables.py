"""``leashed cluster up`` of models that read tables, whose rows embedding servers hold."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import numpy as np
import pytest
from cluster import faults, written
from cluster.processes import pids
from cluster.test_up import PATIENCE, outlives

import leashed as lsh
from leashed import cli
from leashed.cluster import plan as plans
from leashed.cluster.measures import counted
from leashed.training.problems.problem import Problem

OTHERS = ("deepfm", "dcn", "wide_deep", "dien", "ecommerce")
MODELS = ("dlrm", "din", *(pytest.param(name, marks=pytest.mark.long) for name in OTHERS))


def given(folder: Path, model: str = "dlrm", rows: int = 3000) -> list[str]:
    """The arguments that train a small one on a file."""
    data, schema = written.clicks(folder, rows)
    of_file = ["--data", str(data), "--schema", str(schema), "--table-mib", "1"]
    return ["--model", model, *of_file, "--dim", "4", "--rule", "adagrad", "--lr", "0.05"]


def in_one_process(problem: Problem, epochs: int, resume: Path | None = None) -> lsh.TrainResult:
    """What a training by one thread comes to, of what ``given`` describes."""
    tables = lsh.models.tables.of(
        problem.model.tables, rule=lsh.Adagrad(0.05), seed=0, max_bytes=2**20
    )
    return lsh.train(
        problem.model,
        problem.train,
        init=lsh.Init("glorot", tables=tables),
        rule=lsh.Adagrad(0.05),
        discipline=lsh.Sequential(),
        batch_size=64,
        until=lsh.until(epochs=epochs),
        resume=resume,
    )


def check(folder: Path) -> dict:
    """What every run's end has; its report."""
    report = json.loads((folder / "run.json").read_text())
    assert report["state"] == "ended"
    ledger = report["ledger"]
    assert ledger["complete"] == ledger["total"]
    assert ledger["outstanding"] == ledger["free"] == 0
    assert pids(folder) == {}
    return report


def auc(folder: Path, report: dict) -> float:
    """Of the run's output, read from its folder, on its test set."""
    test = plans.read(folder / "plan.toml").train.problem().test
    trained = lsh.load(folder / "output")
    found = trained.evaluate(test)
    assert found.loss == pytest.approx(report["test_loss"])
    assert found.auc == pytest.approx(report["test_auc"], abs=1e-3)
    return found.auc


@pytest.mark.process
@pytest.mark.parametrize("model", MODELS)
def test_models_of_clicks_are_trained(model, tmp_path, capsys):
    folder = tmp_path / "run"
    up = ["cluster", "up", "--trainers", "2", "--embedding-servers", "2", "--epochs", "4"]
    assert cli.main([*up, *given(tmp_path, model), "--run", str(folder)]) == 0
    report = check(folder)
    assert report["ledger"]["total"] == 150  # 4 passes over 2,400 rows by 64
    assert sum(report["restarts"].values()) == 0
    assert auc(folder, report) > 0.7
    assert "test AUC" in capsys.readouterr().out
    trainers = counted(report, "trainer").values()
    assert sum(each["row_pushes"] for each in trainers) == 150
    assert sum(each["row_settled"] for each in trainers) == 300
    assert sum(each["row_lost"] for each in trainers) == 0
    packing = report["row_packing"]  # of tables that grow, of which both servers have a half
    count = len(lsh.load(folder / "output").tables)
    assert [each["tables"] for each in packing["servers"]] == [count, count]
    assert packing["imbalance"] == pytest.approx(1.0)
    began = json.loads((folder / "journal.jsonl").read_text().splitlines()[0])
    assert began["row_costs"] == {"one": packing["one"], "whole": packing["whole"]}
    tables = lsh.load(folder / "output").tables
    # (Of the 60 and 40 ids, and of none.)
    assert {table.statistics()["rows"] for table in tables.values()} == {41, 61}
    shares = [
        json.loads((folder / f"embedding-ps-{k}" / "manifest.json").read_text()) for k in (0, 1)
    ]
    assert [share["told"]["pushes"] for share in shares] == [150, 150]


@pytest.mark.process
def test_servers_pool_rows(tmp_path, capsys):
    folder = tmp_path / "run"
    up = ["cluster", "up", "--trainers", "2", "--embedding-servers", "2", "--epochs", "4"]
    up += ["--pooling", "servers"]
    assert cli.main([*up, *given(tmp_path), "--run", str(folder)]) == 0
    report = check(folder)
    assert auc(folder, report) > 0.7
    assert "by servers of 3 of 3 features of ids (from 0: 0, 1, 2)" in capsys.readouterr().out
    trainers = counted(report, "trainer").values()
    assert sum(each["row_pools"] for each in trainers) > 0
    assert sum(each["row_settled"] for each in trainers) == 300
    assert sum(each["row_cuts"] for each in trainers) == 0


@pytest.mark.process
def test_servers_get_no_more_of_tables_than_they_have_room_for(tmp_path, capsys):
    up = ["cluster", "up", "--trainers", "1", "--embedding-servers", "2", "--data", "clicks"]
    up += ["--model", "dlrm", "--rows", "2000", "--dim", "4", "--rule", "adagrad", "--sync", "none"]
    run = tmp_path / "run"
    assert cli.main([*up, "--run", str(run), "--embedding-mib", "0.01"]) == 2
    assert "no room on 2 embedding servers of 0.0100 MiB each" in capsys.readouterr().err
    assert not run.exists()
    assert cli.main([*up, "--run", str(run), "--embedding-mib", "60"]) == 0
    report = check(run)
    assert [each["tables"] for each in report["row_packing"]["servers"]] == [13, 13]
    assert report["terms"]["rows"]["room"] == 60 * 2**20


@pytest.mark.process(2)
@pytest.mark.parametrize(
    "how",
    [
        ["--sync", "easgd", "--when", "every:iterations=5"],
        ["--sync", "ma", "--look-ahead", "0", "--embedding-loops", "2"],
        ["--sync", "none", "--transport", "tcp", "--threads", "2", "--discipline", "hogwild"],
    ],
)
def test_the_dense_part_is_kept_in_sync_by_any_synchroniser(how, tmp_path):
    folder = tmp_path / "run"
    up = ["cluster", "up", "--trainers", "2", "--embedding-servers", "3", "--epochs", "4", *how]
    assert cli.main([*up, *given(tmp_path), "--run", str(folder)]) == 0
    assert auc(folder, check(folder)) > 0.7


@pytest.mark.process(2)
@pytest.mark.parametrize(
    ("norm", "pooling"), [(None, "auto"), ("batch", "auto"), (None, "servers")]
)
def test_one_trainer_comes_to_what_one_process_does(norm, pooling, tmp_path):
    """To the bit, where nothing is looked up ahead, nor pooled by several servers."""
    folder = tmp_path / "run"
    up = ["cluster", "up", "--trainers", "1", "--embedding-servers", "2", "--look-ahead", "0"]
    up += ["--sync", "none", "--epochs", "2", "--discipline", "sequential"]
    up += [] if norm is None else ["--norm", norm]
    up += ["--pooling", pooling]
    assert cli.main([*up, *given(tmp_path), "--run", str(folder)]) == 0
    found = lsh.load(folder / "output")
    plan = plans.read(folder / "plan.toml")
    problem = plan.train.problem()
    alone = in_one_process(problem, epochs=2)
    off = 0.0 if pooling == "auto" else 1e-4
    np.testing.assert_allclose(found.parameters, alone.parameters, rtol=0, atol=off)
    if norm is not None:
        np.testing.assert_array_equal(found.statistics, alone.statistics)
    for name, table in alone.tables.items():
        ids = np.sort(table.ids())
        np.testing.assert_array_equal(np.sort(found.tables[name].ids()), ids)
        rows = found.tables[name].lookup(ids)
        np.testing.assert_allclose(rows, table.lookup(ids), rtol=0, atol=off)


@pytest.mark.process(2)
@pytest.mark.parametrize(
    ("name", "pooling"),
    [
        ("trainer-1", "auto"),
        ("embedding-ps-0", "auto"),
        ("embedding-ps-0", "servers"),
        ("master-0", "auto"),
    ],
)
def test_what_is_killed_comes_back(name, pooling, tmp_path):
    folder = tmp_path / "run"
    up = ["--trainers", "2", "--embedding-servers", "2", "--epochs", "100", "--run", str(folder)]
    up += ["--pooling", pooling]
    outlives(["cluster", "up", *given(tmp_path), *up], folder, name, _snapshots)
    report = check(folder)
    restarted = {key for key, times in report["restarts"].items() if times}
    assert restarted == {name.removesuffix("-0") if name == "master-0" else name}
    assert auc(folder, report) > 0.62  # 100 passes learn by heart
    if name == "embedding-ps-0":  # each side has counted the pushes that were not in its snapshot
        server, trainers = counted(report, "embedding-ps")[0], counted(report, "trainer").values()
        if server["lookups"]:  # (else they had done all by then, and ask for nothing any more)
            assert server["lost"] <= sum(each["row_lost"] for each in trainers)


@pytest.mark.process
def test_statistics_come_out_of_who_was_killed_too(tmp_path):
    """The trainer's next life goes on with what the one before had averaged."""
    train = faults.clicks(tmp_path, norm="batch", batch_size=64)
    plan = faults.make_plan(
        tmp_path / "run", "none", "background", train=train, epochs=400, trainers=1, sync_ps=0,
        embedding_ps=1, keep=0.2, timeout=5.0,
    )  # fmt: skip
    played = faults.play(plan, [(-0.6, faults.Fault("trainer-0", None))])
    assert played.injector.injected
    faults.outcome.conclude(played.report, played.folder, plan, plan.train.problem(), {}, {})
    report = check(played.folder)
    last = report["summaries"]["trainer-0"]
    assert last["batches_used"] < last["statistics_batches"]
    assert auc(played.folder, report) > 0.6  # (after as many passes)


def _snapshots(folder: Path) -> bool:
    """Whether each server has written rows, after batches were trained."""
    return all((folder / f"embedding-ps-{k}" / "manifest.json").exists() for k in (0, 1))


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ([], "embedding servers"),
        (["--embedding-servers", "1", "--threads", "auto"], "give a number"),
        (["--embedding-servers", "1", "--discipline", "synchronous"], "another discipline"),
        (["--embedding-servers", "1", "--stream"], "streams"),
        (["--embedding-servers", "-1"], "--embedding-servers must be at least 0"),
    ],
)
def test_what_does_not_go_is_refused_before_anything_starts(wrong, told, tmp_path, capsys):
    run = tmp_path / "run"
    assert cli.main(["cluster", "up", *given(tmp_path), *wrong, "--run", str(run)]) == 2
    assert told in capsys.readouterr().err
    assert not run.exists()


def _started(folder: Path, arguments: list[str]) -> subprocess.Popen[str]:
    """``leashed cluster up``, of a terminal's job; once servers have rows."""
    up = ["--trainers", "2", "--embedding-servers", "2", "--epochs", "100000", "--run", str(folder)]
    process = subprocess.Popen(
        [sys.executable, "-m", "leashed", "cluster", "up", *arguments, *up],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        env={**os.environ, "FORCE_COLOR": "1"},  # by which the view is shown to a pipe too
    )
    deadline = time.monotonic() + PATIENCE
    while not _snapshots(folder) or len(pids(folder)) < 6:
        assert time.monotonic() < deadline
        assert process.poll() is None, process.communicate()
        time.sleep(0.02)
    return process


@pytest.mark.process(2)
@pytest.mark.parametrize("whom", ["the job", "the first process"])
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=["Ctrl-C", "SIGTERM"])
def test_an_interrupted_run_has_an_output(number, whom, tmp_path):
    """Whose tables have all pushes, whoever has heard of the interruption first."""
    folder = tmp_path / "run"
    with _started(folder, [*given(tmp_path), "--sync", "easgd"]) as process:
        if whom == "the job":
            os.killpg(process.pid, number)
        else:
            process.send_signal(number)
        out, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == 130, err
    assert "leashed: interrupted" in err
    assert "Traceback" not in err
    assert pids(folder) == {}
    assert not (folder / "key").exists()
    report = json.loads((folder / "run.json").read_text())
    assert report["state"] in {"failed", "incomplete"}
    assert "test AUC" in out
    assert auc(folder, report) > 0.6
    assert report["rows_behind"] == {}
    trainers, servers = (counted(report, role).values() for role in ("trainer", "embedding-ps"))
    # (A trainer that ended at once may not know of its last ones, of each of its workers.)
    settled = sum(each["row_settled"] for each in trainers)
    assert sum(each["pushes"] for each in servers) >= settled > 0
    assert sum(each["row_lost"] for each in trainers) == 0


@pytest.mark.process
def test_a_run_is_seen_while_it_goes_on(tmp_path, capsys):
    """By its status, its metrics and its view: both kinds of servers, and no trouble."""
    pytest.importorskip("rich", reason="NOT TESTED: rich is not installed")
    pytest.importorskip(
        "prometheus_client", reason="NOT TESTED: prometheus-client is not installed"
    )
    folder = tmp_path / "run"
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    seen = [*given(tmp_path), "--sync", "easgd", "--view", "--prometheus", str(port)]
    with _started(folder, seen) as process:
        address = f"http://127.0.0.1:{port}/metrics"
        wanted = ('role="embedding-ps"} 2.0', 'role="sync-ps"} 1.0', 'role="trainer"} 2.0')
        deadline = time.monotonic() + PATIENCE
        while True:
            with urllib.request.urlopen(address) as answer:
                text = answer.read().decode()
            rows = re.findall(r'leashed_embedding_rows{embedding_server="(\d)"} ([\d.]+)', text)
            pushes = re.findall(r'leashed_row_settled_total{trainer="\d"} ([\d.]+)', text)
            moved = re.search(r'leashed_server_bytes_in_total{server="0"} [1-9]', text)
            counts = all(f"leashed_members{{{each}" in text for each in wanted)
            if counts and len(rows) == len(pushes) == 2 and min(map(float, pushes)) > 0 and moved:
                break
            assert time.monotonic() < deadline, text
            time.sleep(0.1)
        assert cli.main(["cluster", "status", str(folder)]) == 0
        told = capsys.readouterr().out
        assert told.startswith("running")
        assert "not reached" not in told
        assert "not there" not in told
        time.sleep(0.5)  # for a report that the view shows
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == 130, err
    assert "embedding server" in err
