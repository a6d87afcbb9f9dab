"""Models with tables that are objects of somebody's program: ``cluster.join`` starts embedding servers."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import made_clicks
import numpy as np
import pytest
from cluster import inside
from cluster.processes import child
from warned import once

import leashed as lsh
from leashed import _core
from leashed.cluster import joined_output, table_terms
from leashed.cluster.fingerprint import of_tables
from leashed.cluster.session import Output, Reached
from leashed.cluster.supervisor import read_report
from leashed.cluster.trainer_session import Session
from leashed.models import Graph, tables
from leashed.training.rows_read import RowsRead

RULE = lsh.Adagrad(0.05)
GROWING = {"max_bytes": 1 << 22}


def join(folder: Path, **given: Any) -> lsh.cluster.Cluster:
    """This process's place, which has it for itself."""
    of = {"rank": 0, "size": 1, "servers": 0, "embedding_servers": 2, **given}
    of.setdefault("look_ahead", 0 if of["embedding_servers"] else None)
    return lsh.cluster.join(rendezvous="127.0.0.1", folder=folder, **of)


def clicks(features: int = 2, rows: int = 300) -> lsh.datasets.ClickDataset:
    random = np.random.default_rng(4)
    x, ids = (
        random.normal(size=(1000, 3)).astype(np.float32),
        random.integers(0, rows, (1000, features)),
    )
    return lsh.datasets.ClickDataset.from_arrays(x, ids, x[:, 0] + ids[:, 0] % 2 > 0.5)


def factors() -> Any:
    """Gradients of one's own."""
    users, items = (lsh.models.TableSpec(name, 8, 300) for name in ("users", "items"))

    def logits(theta: Any, x: Any, rows: Any) -> Any:
        user, item = (rows.values[t][rows.places[t]] for t in range(2))
        return x @ theta[:3] + theta[3] + (user * item).sum(1)

    def gradient(theta: Any, x: Any, y: Any, rows: Any, out: Any) -> Any:
        o = logits(theta, x, rows)
        slope = (1 / (1 + np.exp(-o)) - y) / len(y)
        out[:3], out[3] = slope @ x, slope.sum()
        for t in range(2):
            other = rows.values[1 - t][rows.places[1 - t]]
            np.add.at(rows.gradients[t], rows.places[t], slope[:, None] * other)
        return np.mean(np.logaddexp(0, o) - y * o)

    return lsh.models.external(
        gradient, dimension=4, features=3, ids=[users, items], logits=logits, name="factors"
    )


def own_graph() -> Graph:
    return made_clicks.shared()


KINDS: dict[str, tuple[Callable[[], Any], Callable[[Any], Any], dict[str, Any], dict[str, Any]]] = {
    "of the zoo": (
        lambda: lsh.models.dlrm(300, 8, 3, bottom=(8,), top=(8,), categories=2),
        lambda _: clicks(),
        {},
        {},
    ),
    "of the zoo, normalised": (
        lambda: lsh.models.dlrm(
            300, 8, 3, bottom=(8,), top=(8,), categories=2, norm=lsh.models.BatchNorm()
        ),
        lambda _: clicks(),
        {},
        {},
    ),
    "a graph of one's own": (
        own_graph,
        lambda graph: made_clicks.clicks(graph, kind="bags"),
        {"init": tables.uniform(0.1), "weight_decay": 0.01},
        {"rule": lsh.SWAP(lsh.Adagrad(lsh.schedules.step(0.05, every=20)), period=7)},
    ),
    "tables that grow": (
        lambda: made_clicks.small(None),
        lambda _: clicks(),
        {**GROWING, "admit_after": 2},
        {"staleness": lsh.staleness.power(0.5)},
    ),
    "gradients in Python": (factors, lambda _: clicks(), {}, {"rule": lsh.Adam(0.01)}),
}


@pytest.mark.process(2)
@pytest.mark.parametrize("kind", KINDS)
def test_one_trainer_has_the_bits_of_one_process(kind: str, tmp_path: Path) -> None:
    make, data_of, given, choices = KINDS[kind]
    model = make()
    data = data_of(model)
    how: dict[str, Any] = {
        "rule": RULE, "seed": 3, "batch_size": 32, "until": lsh.until(epochs=2),
        "discipline": lsh.Sequential(), **choices,
    }  # fmt: skip
    cluster = join(tmp_path / "run", tables=given)
    served = lsh.train(model, data, cluster=cluster, **how)
    here = tables.of(
        model.tables, rule=how["rule"], staleness=how.get("staleness"), seed=3, **(GROWING | given)
    )
    alone = lsh.train(model, data, init=lsh.Init(model.init(3, "glorot"), here), **how)
    np.testing.assert_array_equal(served.parameters, alone.parameters)
    assert served.tables == {}
    output = tmp_path / "run" / "run-0" / "output"
    assert served.config["cluster_output"] == str(output)
    given_model = (model,) if isinstance(model, lsh.models.External) else ()
    found = lsh.load(output, *given_model)
    np.testing.assert_array_equal(found.parameters, alone.parameters)
    np.testing.assert_array_equal(served.statistics, alone.statistics)
    if alone.statistics.size:
        np.testing.assert_array_equal(found.statistics, alone.statistics)
    for name, table in alone.tables.items():
        ids = table.ids()
        np.testing.assert_array_equal(found.tables[name].ids(), ids)
        np.testing.assert_array_equal(found.tables[name].lookup(ids), table.lookup(ids))
    report = read_report(tmp_path / "run" / "run-0")
    assert report is not None
    assert report["state"] == "ended"


def dlrm() -> Graph:
    return lsh.models.dlrm(300, 8, 3, bottom=(8,), top=(8,), categories=2)


def train(model: Any, cluster: lsh.cluster.Cluster, **given: Any) -> lsh.TrainResult:
    how: dict[str, Any] = {"rule": RULE, "batch_size": 32, "until": lsh.until(epochs=2), **given}
    return lsh.train(model, clicks(), cluster=cluster, **how)


@pytest.mark.process
def test_tables_are_brought_home_where_they_are_wanted(tmp_path: Path) -> None:
    model = factors()
    result = train(model, join(tmp_path / "run", collect=True))
    assert set(result.tables) == {"users", "items"}
    loss = model.evaluate(result.parameters, clicks(), result.tables)
    # (Evaluated at the end of a run, beside its training, the rows are those of the servers.)
    assert loss == pytest.approx(result.loss[-1], rel=1e-5)
    found = lsh.load(tmp_path / "run" / "run-0" / "output", model)
    np.testing.assert_array_equal(
        found.predict(clicks()), model.predict(result.parameters, clicks(), result.tables)[:, 0]
    )


@pytest.mark.process
def test_without_a_folder_nothing_is_left_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    cluster = lsh.cluster.join(rank=0, size=1, servers=0, embedding_servers=1, collect=True)
    result = train(dlrm(), cluster)
    assert len(result.tables) == 2
    assert not list(tmp_path.glob("*/run-*"))


@pytest.mark.process
def test_each_training_of_a_process_has_an_output(tmp_path: Path) -> None:
    cluster = join(tmp_path / "run", embedding_servers=1)
    for run in range(2):
        result = train(dlrm(), cluster)
        assert result.config["cluster_output"] == str(tmp_path / "run" / f"run-{run}" / "output")
        auc = lsh.load(result.config["cluster_output"]).evaluate(clicks()).auc
        assert auc == pytest.approx(result.auc[-1], abs=1e-3)


@pytest.mark.process
def test_an_embedding_server_that_is_killed_is_started_again(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    home = tmp_path / "run" / "run-0"
    killed = threading.Event()

    def kill() -> None:
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            if (home / "embedding-ps-1" / "manifest.json").exists():
                pid = child(home, "embedding-ps", 1)
                if pid is not None:
                    os.kill(pid, signal.SIGKILL)
                    killed.set()
                    return
            time.sleep(0.01)

    killer = threading.Thread(target=kill)
    killer.start()
    result = train(dlrm(), join(tmp_path / "run"), until=lsh.until(seconds=6))
    killer.join()
    assert killed.is_set()
    assert "embedding-ps-1 ended by SIGKILL, and is started again" in capfd.readouterr().err
    told = result.config["cluster"]
    report = read_report(home)
    assert report is not None
    servers = [each for each in report["members"] if each["role"] == "embedding-ps"]
    assert len(servers) == 3
    assert told["row_settled"] > told["row_lost"] >= 0
    assert lsh.load(home / "output").evaluate(clicks()).auc > 0.6


@pytest.mark.process
def test_an_output_that_cannot_be_written_is_told_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("leashed.base.memory.available", lambda: 1000)
    with once("more than 50% of the memory left; what servers have saved is there"):
        result = train(dlrm(), join(tmp_path / "run", collect=True))
    assert result.tables == {}
    assert "cluster_output" not in result.config
    assert (tmp_path / "run" / "run-0" / "embedding-ps-1" / "manifest.json").exists()


def test_rows_that_rank_0_does_not_see_are_told_of(tmp_path: Path) -> None:
    home = tmp_path / "run-0"
    there = [home / "embedding-ps-0", tmp_path / "node-1" / "run-0" / "embedding-ps-1"]
    reached = Reached("run", dlrm(), np.zeros(1, np.float32), None)
    with once(f"{there[1]} has not come; that node has it, in the folder that was given there, "):
        assert joined_output.write(there, home, reached, 1.0, collect=False) is None


def test_rows_that_were_not_saved_at_the_end_are_told_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written = Output(tmp_path / "output", {}, np.zeros(1, np.float32), {})
    monkeypatch.setattr(joined_output.served_output, "write", lambda *_, **__: written)
    folders = [tmp_path / "embedding-ps-0", tmp_path / "embedding-ps-1"]
    (tmp_path / "embedding-ps-0.saved").touch()
    reached = Reached("run", dlrm(), np.zeros(1, np.float32), None)
    with once(
        "embedding-ps-1 has not saved its rows at the end, and they are of its last snapshot; "
    ):
        assert joined_output.write(folders, tmp_path, reached, 1.0, collect=False) is written
    (tmp_path / "embedding-ps-1.saved").touch()
    assert joined_output.write(folders, tmp_path, reached, 1.0, collect=False) is written


def test_what_does_not_go_together_is_refused_by_name(tmp_path: Path) -> None:
    bad: list[tuple[dict[str, Any], str]] = [
        ({"folder": None}, "folder must be given with embedding_servers: .* collect=True"),
        ({"embedding_servers": "trainers"}, 'embedding_servers must be a number or "nodes"'),
        ({"embedding_servers": -1}, "embedding_servers must be at least 0"),
        ({"embedding_servers": "nodes"}, "arguments does not tell how many ranks a node has; give"),
        ({"embedding_servers": 0, "collect": True}, "collect is for embedding servers"),
        ({"embedding_servers": 0, "tables": GROWING}, "tables is for embedding servers"),
        ({"embedding_servers": 0, "look_ahead": 2}, "look_ahead is for embedding servers"),
        ({"embedding_servers": 0, "pooling": "rows"}, "pooling is for embedding servers"),
        ({"tables": {"rule": RULE}}, "tables may have init, .*, got 'rule'; rule, staleness and"),
        ({"tables": {"evict": "first"}}, "evict must be None"),
        ({"tables": {"share": 2}}, "share must be at most 1"),
        ({"tables": {"share": 0.5, **GROWING}}, "tables has share and max_bytes"),
        ({"look_ahead": 6}, "look_ahead must be at most 5"),
        ({"patience": 0}, "patience must be"),
    ]
    for given, told in bad:
        with pytest.raises(ValueError, match=told):
            join(given.pop("folder", tmp_path / "run"), **given)
    with pytest.raises(TypeError, match=r"tables must map arguments of leashed\.tables\.of"):
        join(tmp_path / "run", tables=[1])
    assert not (tmp_path / "run").exists()


TWO = """
import sys

import leashed as lsh
from cluster.test_joined_tables import dlrm, join, train

rank, folder = int(sys.argv[1]), sys.argv[2]
place = join(folder, rank=rank, size=2, embedding_servers=1, grace=3.0, timeout=2.0)
result = train(dlrm(), place, until=lsh.until(epochs=100_000))
print(result.reason, result.config["cluster_ended"])
"""


@pytest.mark.process
def test_who_trains_when_rank_0_is_killed_ends_with_what_it_has(tmp_path: Path) -> None:
    """Though its threads wait for rows of a server that is gone with it."""
    folder = tmp_path / "run"
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])}
    ranks = [
        subprocess.Popen(
            [sys.executable, "-c", TWO, str(rank), str(folder)],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for rank in range(2)
    ]
    try:
        trained = False
        while not trained:
            time.sleep(0.1)
            assert [rank.poll() for rank in ranks] == [None, None]
            report = read_report(folder / "run-0") if (folder / "run-0").exists() else None
            metrics = {} if report is None else report["metrics"]
            trained = metrics.get("trainer-1", {}).get("row_pushes", 0) > 0
        ranks[0].kill()
        told, _ = ranks[1].communicate(timeout=200)
    finally:
        for rank in ranks:
            rank.kill()
            rank.communicate()
    assert ranks[1].returncode == 0, told
    assert "RuntimeWarning: the run ended before its training did (the master is away" in told
    assert told.splitlines()[-1].startswith("interrupted the master is away for more than 3 s")


@pytest.mark.process
@pytest.mark.long
def test_a_master_that_hangs_for_good_is_not_waited_for(tmp_path: Path) -> None:
    """By rank 0, which has lost it: there is nobody who could still need its servers."""
    home = tmp_path / "run" / "run-0"
    over = threading.Event()
    stopped = []

    def stop() -> None:
        while not over.wait(0.05):
            report = read_report(home) if home.exists() else None
            metrics = {} if report is None else report["metrics"]
            if metrics.get("trainer-0", {}).get("row_pushes", 0) > 0:
                stopped.append(child(home, "master", 0))
                os.kill(stopped[0], signal.SIGSTOP)
                break
        if not over.wait(100):  # (what waits for it is to end, too)
            stopped.append(None)
            os.kill(stopped[0], signal.SIGKILL)

    stopping = threading.Thread(target=stop)
    stopping.start()
    try:
        with once(
            "the run ended before its training did (the master is away for more than 2 s",
            "has not saved its rows at the end",
        ):
            result = train(
                dlrm(), join(tmp_path / "run", grace=2.0), until=lsh.until(epochs=100_000)
            )
    finally:
        over.set()
        stopping.join()
    assert len(stopped) == 1
    assert lsh.load(result.config["cluster_output"]).evaluate(clicks()).auc > 0.4


@pytest.mark.process
def test_a_session_that_fails_ends_its_training(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By what it failed with, though batches are there that nobody has taken."""
    turn = Session._turn

    def fails(session: Session) -> None:
        turn(session)
        assert session.rows is not None
        if session.rows.counters()["pushes"] > 0:
            raise OSError("of the session")

    monkeypatch.setattr(Session, "_turn", fails)
    monkeypatch.setattr(_core.Leases, "end", lambda *_: None)  # which none who waits would see
    with once("the run has failed: stopped by"), pytest.raises(OSError, match="of the session"):
        train(dlrm(), join(tmp_path / "run"), until=lsh.until(epochs=100_000))


def test_a_model_and_its_servers_go_together(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"models that read tables, .*join\(embedding_servers=2\)"):
        train(dlrm(), join(tmp_path / "0", embedding_servers=0))
    with pytest.raises(ValueError, match="leave embedding_servers out"):
        lsh.train(
            lsh.models.mlp(784, [8], 10),
            lsh.datasets.synthetic_digits(n=100),
            cluster=join(tmp_path / "1"),
        )
    cluster = join(tmp_path / "3")
    with pytest.raises(ValueError, match="join without embedding_servers"):
        lsh.Engine(np.zeros(4, np.float32), cluster=cluster, batches=3)
    with pytest.raises(
        ValueError, match=r"leave init.tables out, and give lsh.cluster.join\(tables="
    ):
        train(
            dlrm(),
            join(tmp_path / "2"),
            init=lsh.Init("glorot", tables.of(dlrm().tables, rule=RULE)),
        )
    assert not list(tmp_path.glob("*/run-*"))


RULES = [
    lsh.SGD(0.1, decoupled=True),
    lsh.Adagrad(lsh.schedules.warmup(lsh.schedules.cosine(0.1, total=100), steps=5)),
    lsh.SWAP(lsh.Adagrad(0.1), period=9, decay=0.5, as_printed=True),
    lsh.Adam(0.01, amsgrad=True),
    lsh.RMSprop(0.01, centered=True, clip_value=2.0),
    lsh.FTRL(0.1),
    tables.RowwiseAdagrad(0.1),
]
POLICIES = [
    lsh.staleness.none(),
    lsh.staleness.table([1.0, 0.5]),
    lsh.staleness.stage_aware(lsh.staleness.inverse()),
]


@pytest.mark.parametrize("policy", POLICIES, ids=lambda policy: policy.label)
@pytest.mark.parametrize("rule", RULES, ids=str)
def test_a_server_is_told_all_of_its_tables(rule: lsh.Rule, policy: Any) -> None:
    read = RowsRead(dlrm().tables, [0, 1], rule, policy, 5)
    given = {"init": tables.uniform(0.3), "admit_after": 2, "evict": "age", "max_bytes": 1 << 20}
    terms = table_terms.TableTerms(read, 3, given, 2)
    found = table_terms.TableTerms.of_json(json.loads(json.dumps(terms.to_json())))
    assert found.read.rule.choice() == rule.choice()
    assert found.read.rule == rule
    assert repr(found.read.staleness.choice()) == repr(policy.choice())
    assert list(found.read.tables) == list(read.tables)
    assert (found.settings, found.servers, found.here) == (terms.settings, 3, 2)
    assert (list(found.read.features), found.read.seed) == ([0, 1], 5)


def test_who_joins_with_other_settings_of_tables_is_turned_away(tmp_path: Path) -> None:
    def words(folder: str, **given: Any) -> Any:
        return join(tmp_path / folder, tables=given).words

    given = {"init": tables.uniform(0.3), "admit_after": np.int64(2), "max_bytes": 1 << 20}
    read = RowsRead(dlrm().tables, [0, 1], RULE, lsh.staleness.none(), 5)
    told = json.dumps(table_terms.TableTerms(read, 2, given).to_json(), default=np.int64.item)
    servers = table_terms.TableTerms.of_json(json.loads(told)).to_json()["settings"]
    assert words("0", **given) == of_tables(servers)
    assert join(tmp_path / "1", embedding_servers=0).words == {}
    data, model = lsh.datasets.synthetic_digits(n=100).train, lsh.models.mlp(784, [2], 10)
    with inside.run(tmp_path / "run", model.dimension, fingerprint=words("2")) as run:
        other = run.cluster(words=words("3", admit_after=2))
        with pytest.raises(ValueError, match=r'tables is {"admit_after": 2} here, and {} in the'):
            lsh.train(model, data, until=lsh.until(epochs=1), cluster=other)
