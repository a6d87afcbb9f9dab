"""Logistic regression whose gradient is a Numba function: native threads call it without the GIL.

python examples/numba_logistic_regression.py [--threads 2]
"""

import argparse

import numba
import numpy as np

import leashed as lsh

FEATURES = 40
ROWS = 20_000


@numba.cfunc(lsh.gradients.signature(), fastmath=True)
def logistic(theta, x, rows, y, batch, gradient, workspace, user_data):  # noqa: ARG001
    """Mean logistic loss over the batch; writes its gradient."""
    weights = numba.carray(theta, FEATURES)
    examples = numba.carray(x, (1 << 40, FEATURES))
    index = numba.carray(rows, batch)
    label = numba.carray(y, batch)
    out = numba.carray(gradient, FEATURES)
    out[:] = 0
    loss = np.float32(0)
    for i in range(batch):
        row = examples[index[i]]
        sign = np.float32(2 * label[i] - 1)
        margin = np.float32(0)
        for j in range(FEATURES):
            margin += weights[j] * row[j]
        margin *= sign
        loss += np.log1p(np.exp(-margin))
        slope = -sign / ((np.float32(1) + np.exp(margin)) * np.float32(batch))
        for j in range(FEATURES):
            out[j] += slope * row[j]
    return loss / np.float32(batch)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--threads", type=int, default=None)
    threads = parser.parse_args().threads

    rng = np.random.default_rng(0)
    x = rng.standard_normal((ROWS, FEATURES)).astype(np.float32)
    planted = rng.standard_normal(FEATURES).astype(np.float32)
    y = (x @ planted + 0.5 * rng.standard_normal(ROWS) > 0).astype(np.int32)

    model = lsh.models.external(logistic, dimension=FEATURES, features=FEATURES, name="logistic")
    result = lsh.train(
        model,
        (x, y),
        rule=lsh.SGD(0.5),
        discipline=lsh.Hogwild(),
        threads=threads,
        batch_size=64,
        until=lsh.until(loss_fraction=0.2, epochs=50),
    )
    accuracy = ((x @ result.parameters > 0) == y).mean()
    print(f"{result.outcome}: loss {result.loss[-1]:.3f}, accuracy {accuracy:.3f}")
    assert accuracy > 0.9


if __name__ == "__main__":
    main()
