"""Four processes train one vector, without a lock between them: logistic regression in NumPy.

    python examples/four_processes.py [PROCESSES] [SECONDS]

Each process computes gradients on the published vector, where it lies in shared memory, and
publishes its updates by compare-and-swap. Kill any of them: the others go on.
"""

from __future__ import annotations

import multiprocessing
import os
import sys
import time

import numpy as np
from numpy.typing import NDArray

import leashed as lsh

FEATURES = 200
BATCH = 256


def examples(seed: int, n: int) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Examples of two classes, told apart by a hyperplane that is the same for every seed."""
    normal = np.random.default_rng(0).standard_normal(FEATURES).astype(np.float32)
    x = np.random.default_rng([1, seed]).standard_normal((n, FEATURES), dtype=np.float32)
    return x, (x @ normal > 0).astype(np.float32)


def loss_and_gradient(
    theta: NDArray[np.float32], x: NDArray[np.float32], y: NDArray[np.float32]
) -> tuple[float, NDArray[np.float32]]:
    """Of logistic regression, means over the examples."""
    score = x @ theta
    probability = 0.5 + 0.5 * np.tanh(0.5 * score)  # 1 / (1 + exp(-score)), which would overflow
    loss = np.mean(np.logaddexp(0.0, score) - y * score)
    return float(loss), x.T @ (probability - y) / np.float32(len(y))


def work(name: str, worker: int, seconds: float) -> None:
    """Train for a while on examples of this process's own."""
    x, y = examples(worker + 1, 20_000)
    rng = np.random.default_rng(worker)
    with lsh.SharedVector.attach(name) as vector:
        end = time.monotonic() + seconds
        while True:
            rows = rng.integers(len(x), size=BATCH)
            with vector.read() as theta:
                _, gradient = loss_and_gradient(theta, x[rows], y[rows])
            vector.push(gradient)
            if time.monotonic() > end:
                break


def main(processes: int = 4, seconds: float = 2.0) -> None:
    """Start the processes, wait for them, and tell what they have learnt."""
    context = multiprocessing.get_context("spawn")
    x, y = examples(0, 5_000)
    with lsh.SharedVector.create(
        f"example.{os.getpid()}",
        np.zeros(FEATURES, np.float32),
        rule=lsh.Adam(0.005),
        participants=processes + 1,
    ) as vector:
        workers = [
            context.Process(target=work, args=(vector.name, worker, seconds))
            for worker in range(processes)
        ]
        for process in workers:
            process.start()
        for process in workers:
            process.join()
        with vector.read() as theta:
            loss, _ = loss_and_gradient(theta, x, y)
            accuracy = np.mean((x @ theta > 0) == (y > 0))
        print(
            f"{processes} processes, {vector.t} updates: loss {np.log(2):.3f} → {loss:.3f}, "
            f"accuracy {100 * accuracy:.1f}%"
        )


if __name__ == "__main__":
    main(*(kind(text) for kind, text in zip((int, float), sys.argv[1:], strict=False)))
