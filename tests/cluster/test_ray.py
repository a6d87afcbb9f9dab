"""A run over Ray: an actor per process, which starts it again when it dies."""

from __future__ import annotations

import importlib
import importlib.util
import json
import os
import subprocess
import sys
import types
from pathlib import Path

import numpy as np
import pytest
from cluster import written

import leashed as lsh
from leashed.cluster.measures import counted
from leashed.cluster.plan import Cluster, Plan

over_ray = pytest.mark.skipif(
    importlib.util.find_spec("ray") is None or importlib.util.find_spec("msgspec") is None,
    reason="NOTHING WAS TESTED OVER RAY: ray or msgspec is not installed",
)


def ended(script, home, *arguments):
    """What a script has told last, as JSON, in a process of its own whose HOME is there: Ray keeps its token
    in that.
    """
    process = subprocess.run(
        [sys.executable, "-c", script, *map(str, arguments)],
        env={**os.environ, "HOME": str(home), "PYTHONPATH": str(Path(__file__).parents[1])},
        capture_output=True,
        text=True,
        check=False,
        timeout=280,
    )
    assert process.returncode == 0, process.stderr
    return json.loads(process.stdout.splitlines()[-1])


DRIVER = """
import json, os, signal, sys, threading, time
from pathlib import Path

import ray
from cluster.processes import running

from leashed.cluster import plan as plans
from leashed.cluster.ray import up

folder = Path(sys.argv[1])


def processes():
    return {
        pid: words for pid, words in running().items()
        if "leashed.cluster.role" in words and any(word.startswith(str(folder)) for word in words)
    }


def kill():
    "One trainer, as soon as it is there."
    while True:
        for pid, line in processes().items():
            if "trainer" in line and line[line.index("--index") + 1] == "1":
                os.kill(pid, signal.SIGKILL)
                return
        time.sleep(0.02)


ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, object_store_memory=2**27)
data = json.dumps(sys.argv[2])
plan = plans.parse(f"[cluster]\\ntrainers = 2\\n[train]\\nepochs = 1\\ndata = {data}\\n", folder)
try:
    up(plan, options={"parameter-ps": {}})
except ValueError as error:
    refused = str(error)
killer = threading.Thread(target=kill, daemon=True)
killer.start()
report = up(plan, options={role: {"num_cpus": 0.25} for role in plans.ROLES})
killer.join()
try:
    up(plan)
except FileExistsError as error:
    again = str(error)
deadline = time.monotonic() + 30
while processes() and time.monotonic() < deadline:
    time.sleep(0.1)
keys = [str(path) for path in folder.rglob("key")]
print(json.dumps({**report, "refused_options": refused, "refused_folder": again, "left": list(processes().values()), "keys": keys}))
ray.shutdown()
"""


@pytest.mark.process
@over_ray
def test_a_run_over_ray_survives_a_killed_trainer(tmp_path):
    report = ended(DRIVER, tmp_path, tmp_path, written.digits(tmp_path / "digits"))
    assert report["state"] == "ended"
    assert report["restarts"] == {"master": 0, "sync-ps-0": 0, "trainer-0": 0, "trainer-1": 1}
    ledger = report["ledger"]
    assert ledger["complete"] == ledger["total"]
    assert ledger["outstanding"] == ledger["free"] == 0
    assert report["folder"] == str(tmp_path / "run" / "master")
    model, parameters = lsh.load(tmp_path / "run" / "master" / "output.safetensors")
    assert len(parameters) == model.dimension
    assert "unknown role 'parameter-ps'" in report["refused_options"]
    assert "has a run already, which is over (ended: " in report["refused_folder"]
    assert report["left"] == []
    assert report["keys"] == []


TABLES = """
import json, sys
from pathlib import Path

import ray

import leashed.cluster.ray as rays
from leashed.cluster import plan as plans

folder, data, schema, readers = sys.argv[1:]
ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, object_store_memory=2**27)
text = [
    "[cluster]", "trainers = 2", "embedding_ps = 2", "[sync]", "kind = 'easgd'", "[train]",
    "model = 'dlrm'", f"data = {json.dumps(data)}", f"schema = {json.dumps(schema)}", "table_mib = 1.0",
    "dim = 4", "rule = 'adagrad'", "lr = 0.05", "epochs = 4",
]
if int(readers):
    text.insert(1, f"readers = {readers}")
    text.append(f"test = {json.dumps(data)}")
places, rays._PIECE = rays._places, 10_000


def apart(actors, hosts, run, holds):
    "As if the second embedding server were on a machine of its own."
    return places(actors, {**hosts, ("embedding-ps", 1): "elsewhere"}, run, holds)


rays._places = apart
plan = plans.parse("\\n".join(text), Path(folder))
report = rays.up(plan, options={role: {"num_cpus": 0.25} for role in plans.ROLES})
print(json.dumps(report))
ray.shutdown()
"""


@pytest.mark.process(1)
@over_ray
@pytest.mark.parametrize("readers", [0, 2])
def test_a_run_over_ray_has_embedding_servers(readers, tmp_path):
    """Each an actor; their rows are joined where the master is, the second's copied there."""
    files = [str(path) for path in written.clicks(tmp_path, 3000)]
    report = ended(TABLES, tmp_path, tmp_path, *files, readers)
    assert report["state"] == "ended"
    assert report["ledger"]["complete"] == report["ledger"]["total"] > 0
    assert report["rows_behind"] == {}
    master = tmp_path / "run" / "master"
    assert (master / "embedding-ps-1" / "manifest.json").exists()
    assert not (master / "embedding-ps-0").exists()
    trained = lsh.load(master / "output")
    assert {table.statistics()["rows"] for table in trained.tables.values()} == {41, 61}
    assert report["test_auc"] > 0.7
    told = [(run / "rows.index").read_text() for run in (tmp_path / "run").glob("*/") if readers]
    assert len(set(told)) == int(readers > 0)  # counted once
    assert len(told) == (readers and 8)


CUTS = """
import _thread, json, sys, threading, time
from dataclasses import replace
from pathlib import Path

import ray

import leashed.cluster.ray as rays
from leashed.cluster import plan as plans
from leashed.cluster.checkpoints import Checkpoint, newest

folder, data, schema = sys.argv[1:]
text = [
    "[cluster]", "trainers = 1", "embedding_ps = 2", "look_ahead = 0", "checkpoint_every = 0.3", "[sync]",
    "kind = 'none'", "[train]", "model = 'dlrm'", f"data = {json.dumps(data)}",
    f"schema = {json.dumps(schema)}", "table_mib = 1.0", "dim = 4", "rule = 'adagrad'", "lr = 0.05",
    "epochs = 600", "discipline = 'sequential'",
]
plan = plans.parse("\\n".join(text), Path(folder))


ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, object_store_memory=2**27)


def up(name, **given):
    at = replace(plan, cluster=replace(plan.cluster, run=Path(folder) / name, **given))
    return rays.up(at, options={role: {"num_cpus": 0.25} for role in plans.ROLES})


def used(run):
    try:
        return Checkpoint(newest(run)).account.used
    except FileNotFoundError:
        return 0


def end():
    while used(Path(folder) / "broken") == 0:
        time.sleep(0.01)
    _thread.interrupt_main()  # and with it all processes end


whole = up("whole")
threading.Thread(target=end, daemon=True).start()
try:
    up("broken")
except KeyboardInterrupt:
    pass
report = up("more", embedding_ps=1, resume=Path(folder) / "broken")
ray.shutdown()
print(json.dumps([whole["folder"], report["folder"], report["ledger"], used(Path(folder) / "broken")]))
"""


@pytest.mark.process
@pytest.mark.long
@over_ray
def test_a_run_over_ray_goes_on_from_its_checkpoint(tmp_path):
    """To the bits of one that was not broken off, on another number of servers."""
    files = [str(path) for path in written.clicks(tmp_path, 3000)]
    whole, more, ledger, used = ended(CUTS, tmp_path, tmp_path, *files)
    assert ledger["complete"] == ledger["total"] > ledger["resumed"] == used > 0
    alone, other = lsh.load(f"{whole}/output"), lsh.load(f"{more}/output")
    np.testing.assert_array_equal(alone.parameters, other.parameters)
    for name, table in alone.tables.items():
        ids = np.sort(table.ids())
        np.testing.assert_array_equal(np.sort(other.tables[name].ids()), ids)
        np.testing.assert_array_equal(other.tables[name].lookup(ids), table.lookup(ids))


LED = """
import json, os, signal, sys, threading, time
from pathlib import Path

import ray
from cluster.processes import running

import leashed.cluster.ray as rays
from leashed.cluster import plan as plans
from leashed.cluster.supervisor import read_report

folder, data = sys.argv[1:]
text = [
    "[cluster]", "trainers = 2", "[train]", "mode = 'gba:iota=4'", "lr = 0.2", "epochs = 4",
    f"data = {json.dumps(data)}",
]


def pid(role):
    for each, words in running().items():
        if "leashed.cluster.role" in words and role in words and any(folder in w for w in words):
            return each
    return None


def kill(name, role):
    "Once it trains."
    path = Path(folder) / name / "master"
    while True:
        report = read_report(path) if path.exists() else None
        if report and report["ledger"]["complete"] > 20 and (found := pid(role)):
            return os.kill(found, signal.SIGKILL)
        time.sleep(0.02)


ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, object_store_memory=2**27)
told = {}
for name, role in (("without", None), ("trainer", "trainer"), ("server", "policy-ps")):
    words = text if role is None else [*text[:-2], "epochs = 400", text[-1]]
    plan = plans.parse("\\n".join([words[0], f"run = '{folder}/{name}'", *words[1:]]), Path(folder))
    if role is not None:
        threading.Thread(target=kill, args=(name, role), daemon=True).start()
    try:
        told[name] = rays.up(plan, options={each: {"num_cpus": 0.25} for each in plans.ROLES})
    except ChildProcessError as error:
        told[name] = str(error)
ray.shutdown()
print(json.dumps(told))
"""


@pytest.mark.process
@pytest.mark.long
@over_ray
def test_a_run_over_ray_has_a_policy_server(tmp_path):
    """An actor like the others. A trainer that is killed costs its leases; the server, the run."""
    data = written.digits(tmp_path / "digits")
    told = ended(LED, tmp_path, tmp_path / "runs", data)
    for name in ("without", "trainer"):
        report = told[name]
        assert report["state"] == "ended"
        assert report["ledger"]["complete"] == report["ledger"]["total"] > 0
        (server,) = counted(report, "policy-ps").values()
        fates = ("applied", "stale", "late", "straggler")
        pushed = sum(server[f"mode_{fate}"] for fate in fates)
        assert pushed == report["ledger"]["total"] * 64 + server["mode_late"]
        assert report["output"].endswith("(the policy server's parameters)")
        assert (Path(report["folder"]) / "policy-ps-0.npz").exists()  # it was brought
    assert told["trainer"]["restarts"]["trainer-0"] + told["trainer"]["restarts"]["trainer-1"] == 1
    assert "policy server 0 is lost" in json.dumps(told["server"])


def test_ray_is_asked_for_where_it_is_not(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    monkeypatch.delitem(sys.modules, "leashed.cluster.ray", raising=False)
    with pytest.raises(ImportError, match=r"pip install leashed\[ray\]"):
        importlib.import_module("leashed.cluster.ray")


def test_a_server_that_has_never_begun_has_no_rows(monkeypatch, tmp_path):
    """So nobody fails to copy them, and there is a report, which says so."""
    monkeypatch.setitem(sys.modules, "ray", types.SimpleNamespace())
    monkeypatch.delitem(sys.modules, "leashed.cluster.ray", raising=False)
    process = importlib.import_module("leashed.cluster.ray")._Process("embedding-ps", 0)
    del sys.modules["leashed.cluster.ray"]
    folder = process._planned(Plan(Cluster(run=tmp_path)).text()).cluster.run
    assert process.rows() == []
    (folder / "embedding-ps-0").mkdir()
    (folder / "embedding-ps-0" / "1.table0").write_bytes(b"12345")
    assert process.rows() == [("1.table0", 5)]
