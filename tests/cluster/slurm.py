"""Slurm on this machine, its daemons and as many nodes as are asked for, where it is installed."""

from __future__ import annotations

import contextlib
import getpass
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

_PATIENCE = 60.0  # seconds
_CONFIGURED = """
ClusterName=leashed
SlurmctldHost={host}({address})
SlurmctldPort={port}
AuthType=auth/none
CredType=cred/none
SlurmUser={user}
SlurmdUser={user}
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/linear
SwitchType=switch/none
MpiDefault=none
ReturnToService=2
KillWait=5
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SlurmdParameters=config_overrides
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/%n.pid
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""


def missing() -> str | None:
    """Why there can be none here; None: there can."""
    paths = f"{os.environ['PATH']}:/usr/sbin:/sbin"
    lacking = [one for one in ("slurmctld", "slurmd", "srun") if not shutil.which(one, path=paths)]
    if lacking:
        return f"NOTHING WAS TESTED UNDER SRUN: no {', '.join(lacking)} (.ci/require ci)"
    if not os.path.ismount("/sys/fs/cgroup"):
        return "NOTHING WAS TESTED UNDER SRUN: slurmd needs cgroups, and /sys/fs/cgroup is no mount"
    return None


@dataclass(frozen=True)
class Node:
    """A node, which is this machine.

    Attributes:
        name: of it.
        address: where its daemon listens.
        inside: what starts a program there.
    """

    name: str
    address: str = "127.0.0.1"
    inside: tuple[str, ...] = ()


@contextlib.contextmanager
def running(folder: Path, nodes: Sequence[Node]) -> Iterator[dict[str, str]]:
    """The controller runs on the first node. Gives what of the environment srun needs."""
    folder.mkdir()
    with contextlib.ExitStack() as ports:
        # On a node of its own a port is as free as here, or there is nobody to have it.
        free = [ports.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(3)]
        controller, *own = (each.getsockname()[1] for each in free)
    configured = folder / "slurm.conf"
    text = _CONFIGURED.format(
        host=socket.gethostname(),
        address=nodes[0].address,
        port=controller,
        user=getpass.getuser(),
        folder=folder,
    )
    for node, port in zip(nodes, own, strict=False):
        text += (
            f"NodeName={node.name} NodeHostname={socket.gethostname()} NodeAddr={node.address} "
            f"Port={port} CPUs=2 State=UNKNOWN\n"
        )
    configured.write_text(text)
    env = {
        **os.environ,
        "SLURM_CONF": str(configured),
        "PATH": f"{os.environ['PATH']}:/usr/sbin:/sbin",
    }
    given = ["-D", "-f", str(configured)]
    with contextlib.ExitStack() as daemons:

        def start(node: Node, name: str, *words: str) -> None:
            log = daemons.enter_context((folder / f"{name}.log").open("w"))
            process = subprocess.Popen(
                [*node.inside, *words, *given], env=env, stdout=log, stderr=subprocess.STDOUT
            )
            daemons.callback(process.wait, 30)
            daemons.callback(process.terminate)

        (folder / "state").mkdir()
        start(nodes[0], "slurmctld", "slurmctld")
        for node in nodes:
            (folder / node.name).mkdir()
            start(node, node.name, "slurmd", "-N", node.name)
        _wait_until_idle(nodes, env, folder)
        yield {"SLURM_CONF": env["SLURM_CONF"], "PATH": env["PATH"]}


def _wait_until_idle(nodes: Sequence[Node], env: Mapping[str, str], folder: Path) -> None:
    end = time.monotonic() + _PATIENCE
    while True:
        told = subprocess.run(
            [*nodes[0].inside, "sinfo", "-h", "-N", "-o", "%t"],
            env=dict(env), capture_output=True, text=True, check=False,
        )  # fmt: skip
        if told.stdout.split() == ["idle"] * len(nodes):
            return
        logs = "\n".join(each.read_text() for each in sorted(folder.glob("*.log")))
        assert time.monotonic() < end, told.stdout + told.stderr + logs
        time.sleep(0.1)
