"""Tables of embedding servers for loops that are not the engine's: ``Cluster.tables`` starts the servers."""

from __future__ import annotations

import itertools
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cluster.processes import child
from cluster.test_row_calls import batches, loop, pair
from warned import once

import leashed as lsh
from leashed.cluster.row_files import folder_of, rows_of
from leashed.cluster.supervisor import read_report
from leashed.models import TableSpec, tables

TESTS = Path(__file__).parents[1]
PATIENCE = 200.0  # seconds, far more than anything here takes
DIM = 4


def join(folder: Path, **given: Any) -> lsh.cluster.Cluster:
    """This process's place, which has it for itself."""
    of = {"rank": 0, "size": 1, "embedding_servers": 2, "look_ahead": 0, **given}
    return lsh.cluster.join(rendezvous="127.0.0.1", folder=folder, **of)


def await_(what: Callable[[], Any]) -> Any:
    """What it tells, once that is true."""
    end = time.monotonic() + PATIENCE
    while not (found := what()):
        assert time.monotonic() < end
        time.sleep(0.01)
    return found


@pytest.mark.process
@pytest.mark.parametrize("servers", [1, 2])
@pytest.mark.parametrize("rows", [500, None], ids=["fixed", "growing"])
def test_one_rank_has_the_bits_of_tables_of_its_process(
    rows: int | None, servers: int, tmp_path: Path
) -> None:
    given: dict[str, Any] = {"init": tables.uniform(0.2), "weight_decay": 1e-3}
    if rows is None:
        given |= {"max_bytes": 1 << 20, "admit_after": 2}
    rule, specs = lsh.Adam(0.01), pair(rows)
    local = tables.of(specs, rule=rule, seed=7, **given)
    folder = tmp_path / "run"
    with join(folder, embedding_servers=servers, tables=given).tables(
        specs, rule=rule, seed=7
    ) as served:
        for k, ids in enumerate(batches(20)):
            for name in ("a", "b") if k % 3 else ("a",):
                for of in (lsh.cluster.table(name), local[name]):
                    loop(of, ids, "versions" if k % 2 else "now")
        told = served["a"].lookup(np.arange(500))
        np.testing.assert_array_equal(told, local["a"].lookup(np.arange(500)))
    assert served.counters["pushes"] == 20 + 13
    assert served.counters["unsettled"] == served.counters["lost"] == 0
    assert served.output is not None
    assert served.output.folder == folder / "run-0" / "output"
    assert served.output.rows["applied"] == sum(t.statistics()["applied"] for t in local.values())
    assert served.output.tables == {}
    saved = [folder_of(folder / "run-0", k) for k in range(servers)]
    for found in (
        lsh.load(served.output.folder, served.model).tables,
        lsh.cluster.tables_of(served.model, saved),
    ):
        for name, table in local.items():
            assert set(found[name].ids()) == set(table.ids())
            np.testing.assert_array_equal(
                found[name].lookup(table.ids()), table.lookup(table.ids())
            )
            assert found[name].statistics()["steps"] == table.statistics()["steps"]
    report = read_report(folder / "run-0")
    assert report is not None
    assert report["state"] == "ended", report["reason"]


PROGRAM = """
import itertools, json, sys, time
from pathlib import Path
import numpy as np
from cluster.test_served_tables import counted, join
rank, folder, given = int(sys.argv[1]), Path(sys.argv[2]), json.loads(sys.argv[3])
mine = np.arange(rank, 40, 2)
both = np.concatenate([mine, np.arange(40, 60)])
step = np.full((len(both), 4), -1.0)
with counted(join(folder, rank=rank, size=2, grace=5.0, timeout=given["timeout"])) as served:
    table = served["t"]
    for _ in itertools.count() if given["dies"] and rank == 1 else range(given["steps"]):
        table.update(both, step)
        if given["dies"]:
            table.settle()
            (folder / f"rank-{rank}").touch()
    while given["dies"] and not (folder / "killed").exists():
        time.sleep(0.01)
    table.update(both, step)
    told = table.lookup(mine)[:, 0].tolist()
(folder / f"told-{rank}").write_text(json.dumps({"own": told, **served.counters}))
"""


def counted(cluster: lsh.cluster.Cluster) -> Any:
    """Rows that are how often they were updated, by gradients of −1."""
    return cluster.tables([TableSpec("t", DIM, 60)], rule=lsh.SGD(1.0))


def start(folder: Path, **given: Any) -> list[subprocess.Popen[str]]:
    """Two ranks of a loop."""
    path = f"{TESTS}:{os.environ['PYTHONPATH']}" if "PYTHONPATH" in os.environ else str(TESTS)
    told = json.dumps({"steps": 300, "dies": False, "timeout": 30.0, **given})
    return [
        subprocess.Popen(
            [sys.executable, "-c", PROGRAM, str(rank), str(folder), told],
            env={**os.environ, "PYTHONPATH": path},
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        )
        for rank in range(2)
    ]  # fmt: skip


def output(folder: Path) -> Any:
    """The rows that have come out, as who was not there reads them."""
    model = lsh.models.external(
        print, dimension=1, features=0, ids=[TableSpec("t", DIM, 60)], name="tables"
    )
    return lsh.load(folder / "run-0" / "output", model).tables["t"].lookup(np.arange(60))


@pytest.mark.process
def test_two_ranks_update_the_same_rows(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    ranks = start(folder)
    try:
        said = [each.communicate(timeout=PATIENCE)[0] for each in ranks]
    finally:
        for each in ranks:
            each.kill()
    assert [each.returncode for each in ranks] == [0, 0], "\n".join(said)
    begun = lsh.tables.of([TableSpec("t", DIM, 60)])["t"].lookup(np.arange(60))
    told = [json.loads((folder / f"told-{rank}").read_text()) for rank in range(2)]
    for rank in range(2):
        mine = np.arange(rank, 40, 2)
        np.testing.assert_allclose(told[rank]["own"], begun[mine, 0] + 301, rtol=1e-4)
        assert told[rank]["pushes"] == 301
        assert told[rank]["settled"] == 602
        assert told[rank]["lost"] == told[rank]["unsettled"] == 0
    rows = output(folder)
    np.testing.assert_allclose(rows[:40], begun[:40] + 301, rtol=1e-4)
    np.testing.assert_allclose(rows[40:], begun[40:] + 602, rtol=1e-4)
    report = read_report(folder / "run-0")
    assert report is not None
    assert report["state"] == "ended", report["reason"]
    for k in range(2):
        saved = rows_of(folder_of(folder / "run-0", k), k).told
        assert saved["pushes"] == saved["counters"]["apart"] == 602


@pytest.mark.process
def test_a_rank_that_is_killed_leaves_the_others_going(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    ranks = start(folder, dies=True, timeout=3.0)
    try:
        await_(lambda: (folder / "rank-1").exists() or ranks[1].poll() is not None)
        ranks[1].kill()
        ranks[1].communicate()
        await_(lambda: (folder / "rank-0").exists() or ranks[0].poll() is not None)
        (folder / "killed").touch()
        said = ranks[0].communicate(timeout=PATIENCE)[0]
    finally:
        for each in ranks:
            each.kill()
    assert ranks[0].returncode == 0, said
    told = json.loads((folder / "told-0").read_text())
    assert (told["pushes"], told["settled"]) == (301, 602)
    begun = lsh.tables.of([TableSpec("t", DIM, 60)])["t"].lookup(np.arange(60))
    rows = output(folder)
    np.testing.assert_allclose(rows[0:40:2], begun[0:40:2] + 301, rtol=1e-4)
    # Of the other rank each update is there once, or was not made.
    theirs = np.unique(np.round(rows[1:40:2] - begun[1:40:2]))
    assert len(theirs) <= 2
    assert theirs.min() >= 1


@pytest.mark.process
def test_what_a_server_loses_that_is_killed_is_counted(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    home = tmp_path / "run" / "run-0"
    cluster = join(tmp_path / "run", tables={"init": tables.zeros()})
    ids = np.arange(60)
    pushes = 0

    def push(served: Any) -> None:
        nonlocal pushes
        served["t"].update(ids, np.full((60, DIM), -1.0))
        pushes += 1

    with counted(cluster) as served:
        manifest = home / "embedding-ps-1" / "manifest.json"
        while not manifest.exists():
            push(served)
        for _ in range(50):
            push(served)
        served.settle()
        pid = child(home, "embedding-ps", 1)
        assert pid is not None
        os.kill(pid, signal.SIGKILL)
        for _ in range(50):
            push(served)
        served.settle()
        told = dict(served.counters)
        rows = served["t"].lookup(ids)
    assert "embedding-ps-1 ended by SIGKILL, and is started again" in capfd.readouterr().err
    assert told["pushes"] == pushes
    assert told["settled"] == 2 * pushes
    assert told["unsettled"] == told["expired"] == told["not_finite"] == 0
    assert told["cuts"] >= 1
    found = np.unique(rows)
    assert set(found) <= {pushes, pushes - told["lost"]}
    assert found.max() == pushes
    assert found.min() == pushes - told["lost"]
    assert served.output is not None
    saved = lsh.load(served.output.folder, served.model).tables["t"].lookup(ids)
    np.testing.assert_array_equal(saved, rows)


@pytest.mark.process
def test_who_leaves_by_an_exception_ends_its_servers_and_their_rows_stay(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    ids = np.arange(60)

    def train() -> Any:
        with counted(join(folder, tables={"init": tables.zeros()}, grace=3.0)) as served:
            served["t"].update(ids, np.full((60, DIM), -1.0))
            served.settle()
            raise ArithmeticError("of the loop")

    with (
        once("the run has failed: stopped by"),
        pytest.raises(ArithmeticError, match="of the loop"),
    ):
        train()
    assert not (folder / "run-0" / "output").exists()
    saved = [folder_of(folder / "run-0", k) for k in range(2)]
    rows = lsh.cluster.tables_of([TableSpec("t", DIM, 60)], saved)["t"].lookup(ids)
    assert (rows == 1).all()


@pytest.mark.process
def test_rank_0_has_the_tables_where_they_are_wanted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    cluster = lsh.cluster.join(rank=0, size=1, embedding_servers=1, collect=True)
    with cluster.tables([TableSpec("t", DIM, 60)], rule=lsh.SGD(1.0), threads=2) as served:
        served["t"].update([1], np.ones((1, DIM)))
        expected = served["t"].lookup(np.arange(60))
    assert served.output is not None
    np.testing.assert_array_equal(served.output.tables["t"].lookup(np.arange(60)), expected)
    assert not list(tmp_path.glob("*/run-*"))


def test_what_does_not_go_together_is_refused_by_name(tmp_path: Path) -> None:
    spec = TableSpec("t", DIM, 60)
    bad: list[tuple[dict[str, Any], Any, dict[str, Any], str]] = [
        (
            {"embedding_servers": 0, "look_ahead": None},
            [spec],
            {},
            "cluster has no embedding servers",
        ),
        ({"sync": "easgd"}, [spec], {}, "sync is for leashed.train"),
        ({}, [], {}, r"tables must be a list of leashed\.models\.TableSpec, one at least"),
        ({}, spec, {}, "tables must be a list"),
        ({}, [spec, "u"], {}, r"tables\[1\] must be a leashed.models.TableSpec, got 'u'"),
        ({}, [spec, spec], {}, "tables has one TableSpec twice"),
        ({}, [spec, TableSpec("t", 8, 60)], {}, "two tables are called 't'"),
        ({}, [spec], {"rule": lsh.Momentum(0.1)}, "Momentum would have to move rows"),
        ({}, [spec], {"seed": -1}, "seed must be"),
        ({}, [spec], {"threads": 0}, "threads must be"),
        ({}, [spec], {"threads": 70_000}, "threads must be at most 65536"),
        ({"checkpoint_every": 5.0}, [spec], {}, "checkpoint_every is for leashed.train"),
    ]
    for k, (joined, specs, given, told) in enumerate(bad):
        with pytest.raises((TypeError, ValueError), match=told):
            join(tmp_path / str(k), **joined).tables(specs, **given)


@pytest.mark.process
def test_who_has_other_tables_is_turned_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "run"
    monkeypatch.setattr(
        "leashed.cluster.joining._joins", itertools.repeat(0)
    )  # as of two processes
    with join(folder, size=2).tables([TableSpec("t", DIM, 60)]) as served:
        others: list[tuple[int, dict[str, Any], str]] = [
            (61, {}, r'tables is \[\["t", 4, 61\]\] here, and \[\["t", 4, 60\]\] in the run'),
            (60, {"seed": 1}, "seed is 1 here, and 0 in the run"),
            (60, {"rule": lsh.SGD(0.5)}, "rows is .* here, and .* in the run"),
        ]
        for rows, given, told in others:
            with pytest.raises(ValueError, match=told):
                join(folder, rank=1, size=2).tables([TableSpec("t", DIM, rows)], **given)
        served["t"].lookup([1])
