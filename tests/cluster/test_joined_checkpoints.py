"""Checkpoints of a whole run whose trainers somebody else has started (``cluster.join``), and runs that go
on from them.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cluster.processes import running
from cluster.test_joined_tables import RULE, clicks, dlrm, join
from cluster.test_up import PATIENCE

import leashed as lsh
from leashed.cluster import checkpoints
from leashed.cluster.checkpoints import Checkpoint

HOW: dict[str, Any] = {
    "rule": RULE, "seed": 3, "batch_size": 32, "discipline": "sequential",
    "until": lsh.until(epochs=120), "observe": lsh.Observe(every=0.5),
}  # fmt: skip
TOTAL = 3750
PROGRAM = """
import sys
from pathlib import Path

import leashed as lsh
from cluster.test_joined_checkpoints import train

train(Path(sys.argv[1]), **eval(sys.argv[2]))
"""


def train(folder: Path, *, tables: bool = True, resume: Any = None, **given: Any) -> Any:
    """One trainer with one thread, whose run is killed or is not."""
    model = dlrm() if tables else lsh.models.mlp(3, [8], 2)
    data: Any = clicks()
    if not tables:
        data = lsh.datasets.Dataset.from_arrays(data.x, (data.y > 0).astype(np.int64))
        given = {"embedding_servers": 0, **given}
    cluster = join(folder, checkpoint_every=0.2, **given)
    return lsh.train(model, data, cluster=cluster, resume=resume, **HOW)


def killed(folder: Path, program: str = PROGRAM, **given: Any) -> Path:
    """The folder of a run that was killed behind a checkpoint of its midst, all of it."""
    process = subprocess.Popen(
        [sys.executable, "-c", program, str(folder), repr(given)],
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])},
    )
    run, deadline = folder / "run-0", time.monotonic() + PATIENCE
    with process:
        try:
            while True:
                assert process.poll() is None
                assert time.monotonic() < deadline
                with contextlib.suppress(FileNotFoundError):  # or it has gone meanwhile
                    if Checkpoint(checkpoints.newest(run)).account.used > 0:
                        break
                time.sleep(0.01)
        finally:
            process.kill()
    while any(str(run) in words for words in running().values()):  # its children end with it
        assert time.monotonic() < deadline
        time.sleep(0.01)
    return run


@pytest.mark.process
def test_one_trainer_goes_on_to_the_bits_of_a_run_that_was_not_killed(tmp_path: Path) -> None:
    """From the run's folder over three servers, and from that run's own checkpoint over one."""
    whole = train(tmp_path / "whole")
    run = killed(tmp_path / "killed")
    used = Checkpoint(checkpoints.newest(run)).account.used
    assert 0 < used < TOTAL
    newest = checkpoints.newest(run)
    for name, servers, begins in (("three", 3, run), ("one", 1, newest)):
        other = train(tmp_path / name, embedding_servers=servers, resume=begins)
        np.testing.assert_array_equal(other.parameters, whole.parameters)
        assert other.config["cluster"]["batches_used"] == TOTAL - used
        tables = lsh.load(whole.config["cluster_output"]).tables
        for table, found in lsh.load(other.config["cluster_output"]).tables.items():
            ids = tables[table].ids()
            np.testing.assert_array_equal(found.ids(), ids)
            np.testing.assert_array_equal(found.lookup(ids), tables[table].lookup(ids))
    assert newest.is_dir()


@pytest.mark.process
def test_it_goes_on_in_one_process(tmp_path: Path) -> None:
    whole = train(tmp_path / "whole")
    run = killed(tmp_path / "killed")
    alone = lsh.train(dlrm(), clicks(), resume=checkpoints.newest(run), **HOW)
    np.testing.assert_array_equal(alone.parameters, whole.parameters)


@pytest.mark.process
def test_models_without_tables_have_checkpoints_too(tmp_path: Path) -> None:
    whole = train(tmp_path / "whole", tables=False)
    run = killed(tmp_path / "killed", tables=False)
    other = train(tmp_path / "other", tables=False, resume=run)
    np.testing.assert_array_equal(other.parameters, whole.parameters)
