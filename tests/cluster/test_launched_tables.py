"""Models with tables under launchers: torchrun, mpirun, srun, and several nodes, of which each has an
embedding server.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from cluster import namespaces, slurm, written
from cluster.launchers import TORCHRUN, mpirun, torchrun_needed
from cluster.test_joined_tables import clicks

import leashed as lsh
from leashed.cluster import checkpoints, opening, outcome, placing
from leashed.cluster import plan as plans
from leashed.cluster.measures import counted
from leashed.cluster.supervisor import read_report

TESTS = Path(__file__).parents[1]
PATIENCE = 200.0  # seconds
PROGRAM = """
import json, sys, warnings
from pathlib import Path
import leashed as lsh
from cluster.test_joined_tables import clicks, dlrm
folder, given = sys.argv[1], json.loads(sys.argv[2])
cluster = lsh.cluster.join(sync="easgd", folder=folder, **given)
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    result = lsh.train(
        dlrm(), clicks(), rule=lsh.Adagrad(0.05), batch_size=32, until=lsh.until(epochs=20), threads=1,
        cluster=cluster,
    )
told = {
    "output": result.config.get("cluster_output"),
    "warned": [str(one.message) for one in caught],
    "pushes": result.config["cluster"]["row_pushes"],
}
Path(folder, f"told-{cluster.index}").write_text(json.dumps(told))
"""
OURS = ("RANK", "WORLD_SIZE", "LOCAL_", "MASTER_", "OMPI_", "PMI", "MPI_", "SLURM_", "GROUP_")


def environment(**given: object) -> dict[str, str]:
    """This one without what a launcher says, but for what is given."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(OURS)}
    path = f"{TESTS}:{kept['PYTHONPATH']}" if "PYTHONPATH" in kept else str(TESTS)
    return {**kept, "PYTHONPATH": path, **{name: str(value) for name, value in given.items()}}


def start(
    folder: Path, launcher: Sequence[str], env: dict[str, str], **given: Any
) -> subprocess.Popen[str]:
    program = folder.parent / "program.py"
    program.write_text(PROGRAM)
    folder.mkdir(exist_ok=True)
    return subprocess.Popen(
        [*launcher, str(program), str(folder), json.dumps({"embedding_servers": "nodes", **given})],
        env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip


def end(*processes: subprocess.Popen[str]) -> None:
    """Waits for all of them."""
    try:
        said = [process.communicate(timeout=PATIENCE)[0] for process in processes]
    finally:
        for process in processes:
            process.kill()
    assert [process.returncode for process in processes] == [0] * len(processes), "\n".join(said)


def check(folder: Path, servers: int) -> list[dict[str, Any]]:
    """What two ranks told, whose run has had so many embedding servers."""
    report = read_report(folder / "run-0")
    assert report is not None
    assert report["state"] == "ended", report["reason"]
    ledger = report["ledger"]
    assert ledger["complete"] == ledger["total"] == 625  # 20 passes over 1,000 rows by 32
    assert {one["index"] for one in report["members"] if one["role"] == "embedding-ps"} == set(
        range(servers)
    )
    told = [json.loads((folder / f"told-{rank}").read_text()) for rank in range(2)]
    assert sum(one["pushes"] for one in told) == 625
    assert told[1]["output"] is None
    return told


def check_output(folder: Path, told: dict[str, Any]) -> None:
    """That rank 0 has written it."""
    assert told["output"] == str(folder / "run-0" / "output")
    assert lsh.load(folder / "run-0" / "output").evaluate(clicks()).auc > 0.8


@pytest.mark.process
@torchrun_needed
@pytest.mark.parametrize("servers", ["nodes", 2])
def test_under_torchrun(servers: object, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    end(start(folder, TORCHRUN, environment(), embedding_servers=servers))
    told = check(folder, 1 if servers == "nodes" else 2)
    check_output(folder, told[0])


@pytest.mark.process
def test_under_mpirun(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    end(start(folder, mpirun(), environment()))
    check_output(folder, check(folder, 1)[0])


@pytest.mark.process
@pytest.mark.skipif(slurm.missing() is not None, reason=str(slurm.missing()))
def test_under_srun(tmp_path: Path) -> None:
    with slurm.running(tmp_path / "slurm", [slurm.Node("n0")]) as env:
        for servers in ("nodes", 2):
            folder = tmp_path / f"run-of-{servers}"
            launcher = ["srun", "-n", "2", sys.executable]
            end(start(folder, launcher, environment(**env), embedding_servers=servers))
            check_output(folder, check(folder, 1 if servers == "nodes" else 2)[0])


@pytest.mark.process
@pytest.mark.skipif(slurm.missing() is not None, reason=str(slurm.missing()))
@pytest.mark.skipif(namespaces.missing() is not None, reason=str(namespaces.missing()))
@pytest.mark.parametrize("shared", [True, False], ids=["one file system", "two of them"])
def test_srun_on_two_nodes(shared: bool, tmp_path: Path) -> None:
    """Nodes are namespaces with a network between them and names of their own; Slurm's list tells where
    rank 0 is. Where they share no folder, that of one has the name of the other's.
    """
    folder, other = tmp_path / "run", tmp_path / "other"
    for each in (folder, other):
        each.mkdir()
    key, hosts = tmp_path / "key", tmp_path / "hosts"
    opening.make_key(key)
    names = {namespaces.HERE: "n0", namespaces.THERE: "n1"}
    hosts.write_text("".join(f"{address} {name}\n" for address, name in names.items()))
    with namespaces.link() as link:
        nodes = []
        for (address, name), namespace in zip(names.items(), (link.near, link.far), strict=True):
            mounts = f"mount --bind {hosts} /etc/hosts"
            if not shared and name == "n1":
                mounts += f" && mount --bind {other} {folder}"
            # ("ip netns exec" would hide /sys/fs/cgroup, which slurmd needs.)
            within = ("nsenter", f"--net=/run/netns/{namespace}", "unshare", "--mount")
            nodes.append(
                slurm.Node(name, address, (*within, "sh", "-c", f'{mounts} && exec "$@"', "sh"))
            )
        with slurm.running(tmp_path / "slurm", nodes) as env:
            launcher = [*nodes[0].inside, "srun", "-N", "2", "-n", "2", sys.executable]
            end(start(folder, launcher, environment(**env), key=str(key), patience=60.0))
    if not shared:
        (other / "told-1").rename(folder / "told-1")
        assert not (other / "run-0").exists()
    told = check(folder, 2)
    check_output(folder, told[0])
    assert not any("rank 0" in each or "output" in each for one in told for each in one["warned"])


NODES = {
    "torchrun": lambda rank: {
        "RANK": rank, "WORLD_SIZE": 2, "LOCAL_RANK": 0, "LOCAL_WORLD_SIZE": 1, "MASTER_ADDR": "127.0.0.1",
    },
    "Slurm": lambda rank: {
        "SLURM_PROCID": rank, "SLURM_STEP_NUM_TASKS": 2, "SLURM_LOCALID": 0, "SLURM_NNODES": 2,
        "SLURM_JOB_NODELIST": "127.0.0.1,other", "SLURM_JOB_ID": 7,
    },
    "Open MPI": lambda rank: {
        "OMPI_COMM_WORLD_RANK": rank, "OMPI_COMM_WORLD_SIZE": 2, "OMPI_COMM_WORLD_LOCAL_RANK": 0,
        "OMPI_COMM_WORLD_LOCAL_SIZE": 1, "MASTER_ADDR": "127.0.0.1",
    },
}  # fmt: skip


@pytest.mark.process(2)
@pytest.mark.parametrize("launcher", NODES)
def test_each_node_has_a_server(launcher: str, tmp_path: Path) -> None:
    """As the launcher tells of two nodes, which are one here."""
    folder = tmp_path / "run"
    end(
        *(
            start(folder, [sys.executable], environment(**NODES[launcher](rank)), timeout=20.0)
            for rank in range(2)
        )
    )
    check_output(folder, check(folder, 2)[0])
    assert (folder / "run-0" / "embedding-ps-0").is_dir()
    assert (folder / "node-1" / "run-0" / "embedding-ps-1").is_dir()


@pytest.mark.process
@pytest.mark.skipif(namespaces.missing() is not None, reason=str(namespaces.missing()))
@pytest.mark.parametrize("shared", [True, False], ids=["one file system", "two of them"])
def test_nodes_that_are_two_machines(shared: bool, tmp_path: Path) -> None:
    """Two namespaces with a network between them, no loopback in common, and a key in a file."""
    folders = [tmp_path / "run", tmp_path / ("run" if shared else "other")]
    key = tmp_path / "key"
    opening.make_key(key)
    with namespaces.link() as link:
        end(
            *(
                start(
                    folders[rank],
                    link.inside(namespace, [sys.executable]),
                    environment(**{**NODES["torchrun"](rank), "MASTER_ADDR": namespaces.HERE}),
                    key=str(key),
                    patience=20.0,
                    checkpoint_every=0.3,
                )
                for rank, namespace in enumerate((link.near, link.far))
            )
        )
    if not shared:
        (folders[1] / "told-1").rename(folders[0] / "told-1")
    told = check(folders[0], 2)
    check_output(folders[0], told[0])
    assert told[0]["warned"] == told[1]["warned"] == []
    checkpoint = checkpoints.found(folders[0] / "run-0")
    assert checkpoint is not None
    checkpoint.check()


@pytest.mark.parametrize(
    ("told", "place", "found"),
    [
        ("torchrun", {"RANK": 5, "WORLD_SIZE": 6, "LOCAL_RANK": 1, "LOCAL_WORLD_SIZE": 2}, (2, 3)),
        (
            "Slurm",
            {"SLURM_PROCID": 4, "SLURM_STEP_NUM_TASKS": 8, "SLURM_LOCALID": 0, "SLURM_NNODES": 2,
             "SLURM_JOB_NODELIST": "n[1-2]"},
            (1, 2),
        ),
        ("MPICH", {"PMI_RANK": 1, "PMI_SIZE": 2, "MPI_LOCALRANKID": 1, "MPI_LOCALNRANKS": 2}, (0, 1)),
    ],
)  # fmt: skip
def test_the_node_of_a_rank(told: str, place: dict[str, int], found: tuple[int, int]) -> None:
    words = {"MASTER_ADDR": "there", **{name: str(value) for name, value in place.items()}}
    at = placing.find(words)
    assert at.told_by == told
    assert placing.node(words, at) == found


@pytest.mark.parametrize(
    ("place", "told"),
    [
        ({"RANK": 1, "WORLD_SIZE": 3, "LOCAL_RANK": 1, "LOCAL_WORLD_SIZE": 2}, "nodes have not as many"),
        ({"RANK": 1, "WORLD_SIZE": 4, "LOCAL_RANK": 0, "LOCAL_WORLD_SIZE": 2}, "or not in a row; give"),
        ({"RANK": 1, "WORLD_SIZE": 4, "LOCAL_RANK": 0}, "torchrun does not tell how many ranks"),
        (
            {"SLURM_PROCID": 1, "SLURM_STEP_NUM_TASKS": 3, "SLURM_LOCALID": 0, "SLURM_NNODES": 2},
            "3 ranks are not as many on each of 2 nodes",
        ),
    ],
)  # fmt: skip
def test_nodes_that_are_not_alike_are_refused(place: dict[str, int], told: str) -> None:
    words = {"MASTER_ADDR": "there", **{name: str(value) for name, value in place.items()}}
    with pytest.raises(ValueError, match=told):
        placing.node(words, placing.find(words))


PLAN = """
[cluster]
master = "{master}:28500"
key = "key"
trainers = 2
embedding_ps = 2
sync_ps = 1
run = "run"
grace = 20.0

[sync]
kind = "easgd"

[train]
model = "dlrm"
data = "{data}"
schema = "{schema}"
table_mib = 1.0
dim = 4
rule = "adagrad"
lr = 0.05
epochs = {epochs}
"""


@pytest.mark.process
@pytest.mark.skipif(namespaces.missing() is not None, reason=str(namespaces.missing()))
@pytest.mark.parametrize("cut", [0.0, 1.0], ids=["all the time", "with the link down for a while"])
def test_a_plan_by_hand_on_two_machines(cut: float, tmp_path: Path) -> None:
    """Trainers on one, all servers on the other, of two namespaces with no loopback in common."""
    data, schema = written.clicks(tmp_path, 3000)
    text = PLAN.format(
        master=namespaces.HERE, data=data, schema=schema, epochs=60.0 if cut else 4.0
    )
    (tmp_path / "plan.toml").write_text(text, encoding="utf-8")
    opening.make_key(tmp_path / "key")
    (tmp_path / "run").mkdir()
    processes: list[subprocess.Popen[str]] = []
    roles = [
        ("master", 0),
        ("sync-ps", 0),
        *((k, i) for k in ("embedding-ps", "trainer") for i in (0, 1)),
    ]
    with namespaces.link() as link:
        for role, index in roles:
            words = [role, "--plan", str(tmp_path / "plan.toml"), "--index", str(index)]
            program = [sys.executable, "-m", "leashed", "cluster", "role", *words]
            where = link.far if role == "trainer" else link.near
            processes.append(
                subprocess.Popen(
                    link.inside(where, program), env=environment(), text=True,
                    stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                )
            )  # fmt: skip
        if cut:
            _wait_for_pushes(tmp_path / "run", processes)
            link.down()
            time.sleep(cut)
            link.up()
        end(*processes)
    report = read_report(tmp_path / "run")
    assert report is not None
    assert report["state"] == "ended"
    assert report["ledger"]["complete"] == report["ledger"]["total"] > 0
    trainers = counted(report, "trainer").values()
    # Nothing was lost, and nothing came twice.
    assert sum(each["row_lost"] for each in trainers) == 0
    settled = sum(each["row_settled"] for each in trainers)
    plan = plans.read(tmp_path / "plan.toml")
    whole = outcome.conclude(report, tmp_path / "run", plan, plan.train.problem(), {}, {})
    servers = counted(whole, "embedding-ps").values()
    assert sum(each["pushes"] for each in servers) == settled
    assert whole["test_auc"] > 0.6
    assert lsh.load(tmp_path / "run" / "output").tables


def _wait_for_pushes(folder: Path, processes: Sequence[subprocess.Popen[str]]) -> None:
    deadline = time.monotonic() + PATIENCE
    while True:
        report = read_report(folder)
        if report is not None:
            told = counted(report, "trainer").values()
            if len(told) == 2 and all(each.get("row_pushes", 0.0) > 50 for each in told):
                return
        assert time.monotonic() < deadline
        assert all(process.poll() is None for process in processes)
        time.sleep(0.05)
