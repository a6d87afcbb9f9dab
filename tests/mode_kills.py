"""A training by a mode in a process that is killed again and again, and goes on from its checkpoints.

    python tests/mode_kills.py NAME FOLDER

trains by that mode of ``LEDGERS``, from the checkpoint in the folder where there is one. After ``REACH``
gradients it stands and waits to be killed, so that none comes to its end before. What it trains is a ledger: parameter i is, of each gradient that was applied, how often it had
example i, over the gradients of an update. So what was lost, or applied twice, can be seen in the end.
"""

from __future__ import annotations

import itertools
import math
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import leashed as lsh
from leashed import models, modes

ROWS, BATCH, THREADS = 2000, 5, 3
# Of the 400 gradients of a run: enough for a checkpoint, and four times as many are not all.
REACH = 80
# And how many gradients an update is of; None: one or THREADS.
LEDGERS: dict[str, tuple[modes.Mode, int | None]] = {
    "asp": (modes.ASP(), 1),
    "ssp": (modes.SSP(s=1), 1),
    "gba": (modes.GBA(m=7, iota=10**6, divide_by_m=True), 7),
    "shat": (modes.SHAT(), 1),
    "switching": (
        modes.Switching(
            m=THREADS,
            iota=10**6,
            at=tuple((0.02 * k, ("gba", "sync")[k % 2]) for k in range(1, 1000)),
        ),
        None,
    ),
}


def ledger(reach: float = math.inf) -> Any:
    """Its examples are numbers of parameters; by SGD with a rate of 1 each counts one up."""
    calls = itertools.count()

    def gradient(
        theta: NDArray[np.float32], _x: Any, y: NDArray[np.int32], out: NDArray[np.float32]
    ) -> float:
        if next(calls) >= reach:
            threading.Event().wait()
        out[:] = 0
        np.subtract.at(out, y, 1)
        return float(theta[0] * 0 + 1)

    return models.external(gradient, dimension=ROWS, features=1, y="int32")


def train(name: str, folder: Path, reach: float = math.inf, **given: Any) -> lsh.TrainResult:
    checkpoint = folder / "run.safetensors"
    return lsh.train(
        ledger(reach),
        (np.zeros((ROWS, 1), np.float32), np.arange(ROWS, dtype=np.int32)),
        mode=LEDGERS[name][0],
        rule=lsh.SGD(1.0),
        init=np.zeros(ROWS, np.float32),
        until=lsh.until(epochs=1),
        threads=THREADS,
        batch_size=BATCH,
        **{
            "checkpoint": lsh.Checkpoint(checkpoint, updates=3),
            "resume": checkpoint if checkpoint.exists() else None,
            **given,
        },
    )


def check(name: str, counted: NDArray[np.float32]) -> None:
    """Every example was applied, and once."""
    gradients = LEDGERS[name][1]
    if gradients is not None:
        # Only the last update may be of fewer, where that divides by as many.
        np.testing.assert_allclose(counted * gradients, 1, rtol=1e-5)
        return
    assert (counted > 1 / THREADS - 1e-5).all()
    assert (counted < 1 + 1e-5).all()
    # Steps at whose end fewer were there than threads: at switches and at the end.
    assert counted.sum() >= ROWS / THREADS


if __name__ == "__main__":
    train(sys.argv[1], Path(sys.argv[2]), REACH)
