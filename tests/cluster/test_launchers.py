"""Places under launchers as they are: torchrun, mpirun and srun start two processes each."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest
from cluster import slurm
from cluster.launchers import TORCHRUN, mpirun, torchrun_needed

PROGRAM = """
import dataclasses, json, os, sys
from leashed.cluster import placing
place = placing.find(os.environ)
with open(os.path.join(sys.argv[1], str(place.rank)), "w") as file:
    json.dump(dataclasses.asdict(place), file)
"""


def places(tmp_path, *launcher, **given):
    """What two processes found, by rank; with this in their environment too."""
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    ours = ("RANK", "WORLD_SIZE", "LOCAL_", "MASTER_", "OMPI_", "PMI", "MPI_", "SLURM_")
    env = {name: value for name, value in os.environ.items() if not name.startswith(ours)} | given
    ended = subprocess.run(
        [*launcher, str(program), str(tmp_path)],
        env=env,
        capture_output=True,
        text=True,
        check=False,
        timeout=200,
    )
    assert ended.returncode == 0, ended.stderr
    return [json.loads((tmp_path / str(rank)).read_text()) for rank in range(2)]


def expected(rank, told_by):
    where = {"host": "127.0.0.1", "port": 28_471}
    return {"rank": rank, "size": 2, **where, "local_rank": rank, "told_by": told_by}


@pytest.mark.process
@torchrun_needed
def test_under_torchrun(tmp_path):
    assert places(tmp_path, *TORCHRUN) == [expected(rank, "torchrun") for rank in range(2)]


@pytest.mark.process
def test_under_mpirun(tmp_path):
    found = places(tmp_path, *mpirun())
    assert found[0]["told_by"] in {"MPICH", "Open MPI"}
    assert found == [expected(rank, found[0]["told_by"]) for rank in range(2)]


@pytest.mark.process
@pytest.mark.skipif(slurm.missing() is not None, reason=str(slurm.missing()))
def test_under_srun(tmp_path):
    with slurm.running(tmp_path / "slurm", [slurm.Node("n0")]) as env:
        for mpi in ("none", "pmi2"):
            found = places(tmp_path, "srun", f"--mpi={mpi}", "-n", "2", sys.executable, **env)
            assert found == [expected(rank, "Slurm") for rank in range(2)]
        # A job's script is no rank of it.
        script = tmp_path / "script.sh"
        script.write_text(f"#!/bin/sh\n{sys.executable} {tmp_path / 'program.py'} {tmp_path}\n")
        ended = subprocess.run(
            ["sbatch", "--wait", "-n", "2", "-o", str(tmp_path / "said"), str(script)],
            env=os.environ | env, cwd=tmp_path, check=False, timeout=200,
        )  # fmt: skip
    assert ended.returncode == 1
    assert (
        "was this started by srun, and not by the job's script itself"
        in (tmp_path / "said").read_text()
    )
