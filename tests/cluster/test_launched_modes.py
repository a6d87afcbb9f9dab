"""Modes under launchers, torchrun, mpirun and srun: every rank is a trainer, and rank 0 starts the policy
server.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from cluster import slurm
from cluster.launchers import TORCHRUN, mpirun, torchrun_needed
from cluster.test_launched_tables import end, environment

from leashed.cluster.measures import counted
from leashed.cluster.supervisor import read_report

BATCH, PASSES = 32, 2
PROGRAM = f"""
import sys
from pathlib import Path
import numpy as np
import leashed as lsh

folder = Path(sys.argv[1])
cluster = lsh.cluster.join(policy_servers=1, folder=folder)
result = lsh.train(
    lsh.models.mlp(784, [8], 10), lsh.datasets.synthetic_digits(seed=0), mode=lsh.modes.GBA(iota=4), threads=2,
    batch_size={BATCH}, until=lsh.until(epochs={PASSES}), cluster=cluster,
)
np.save(folder / f"told-{{cluster.index}}.npy", result.parameters)
"""


def start(folder: Path, launcher: Sequence[str], env: dict[str, str]) -> subprocess.Popen[str]:
    program = folder.parent / "program.py"
    program.write_text(PROGRAM)
    folder.mkdir()
    return subprocess.Popen(
        [*launcher, str(program), str(folder)],
        env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip


def check(folder: Path) -> None:
    """That each example of two ranks' run was applied, or dropped by name, and that both have what the
    server held.
    """
    report = read_report(folder / "run-0")
    assert report is not None
    assert report["state"] == "ended", json.dumps(report)
    ledger = report["ledger"]
    assert ledger["complete"] == ledger["total"] > 0
    (server,) = counted(report, "policy-ps").values()
    assert server["lanes"] == 4
    assert server["departures"] == 0
    assert server["mode_applied"] + server["mode_stale"] == ledger["total"] * BATCH
    first, second = (np.load(folder / f"told-{rank}.npy") for rank in range(2))
    np.testing.assert_array_equal(first, second)


@pytest.mark.process
@torchrun_needed
def test_under_torchrun(tmp_path: Path) -> None:
    end(start(tmp_path / "run", TORCHRUN, environment()))
    check(tmp_path / "run")


@pytest.mark.process
def test_under_mpirun(tmp_path: Path) -> None:
    end(start(tmp_path / "run", mpirun(), environment()))
    check(tmp_path / "run")


@pytest.mark.process
@pytest.mark.skipif(slurm.missing() is not None, reason=str(slurm.missing()))
def test_under_srun(tmp_path: Path) -> None:
    with slurm.running(tmp_path / "slurm", [slurm.Node("n0")]) as env:
        end(start(tmp_path / "run", ["srun", "-n", "2", sys.executable], environment(**env)))
        check(tmp_path / "run")
