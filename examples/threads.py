"""A training loop of one's own: Python threads that read and push through an Engine.

NumPy gives the GIL up in its products, so threads help; on free-threaded Python they always do.

python examples/threads.py [--threads 2]
"""

import argparse
from concurrent.futures import ThreadPoolExecutor

import numpy as np

import leashed as lsh

FEATURES, CLASSES, ROWS, BATCH = 64, 5, 20_000, 256


def loss_and_gradient(theta: np.ndarray, x: np.ndarray, y: np.ndarray) -> tuple[float, np.ndarray]:
    """Of softmax regression, theta being W [FEATURES, CLASSES] in one vector."""
    scores = x @ theta.reshape(FEATURES, CLASSES)
    scores -= scores.max(axis=1, keepdims=True)
    p = np.exp(scores)
    p /= p.sum(axis=1, keepdims=True)
    rows = np.arange(len(y))
    loss = -np.log(p[rows, y]).mean()
    p[rows, y] -= 1
    return float(loss), (x.T @ p).ravel() / np.float32(len(y))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--threads", type=int, default=2)
    threads = parser.parse_args().threads

    rng = np.random.default_rng(0)
    planted = rng.standard_normal((FEATURES, CLASSES)).astype(np.float32)
    x = rng.standard_normal((ROWS, FEATURES)).astype(np.float32)
    y = (x @ planted).argmax(axis=1)

    start = np.zeros(FEATURES * CLASSES, np.float32)
    with lsh.Engine(
        start, rule=lsh.Adam(0.01), discipline=lsh.Leashed(), workers=threads
    ) as engine:

        def work(seed: int) -> list[int]:
            rows = np.random.default_rng(seed)
            staleness = []
            for _ in range(400):
                batch = rows.integers(ROWS, size=BATCH)
                with engine.read() as theta:  # pinned: it never changes, and costs no copy
                    _, gradient = loss_and_gradient(theta, x[batch], y[batch])
                staleness.append(engine.push(gradient).staleness)
            return staleness

        with ThreadPoolExecutor(threads) as pool:
            staleness = [tau for part in pool.map(work, range(threads)) for tau in part]

        first, _ = loss_and_gradient(start, x, y)
        last, _ = loss_and_gradient(engine.parameters(), x, y)
        print(
            f"loss {first:.3f} to {last:.3f} in {engine.t} updates, "
            f"mean staleness {np.mean(staleness):.2f}"
        )
        assert last < first / 3


if __name__ == "__main__":
    main()
