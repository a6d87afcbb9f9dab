"""Logistic regression whose gradient is a Numba function: native threads call it without the GIL.

python examples/numba_logistic_regression.py [--threads 2]
"""

import argparse

import numba
import numpy as np

import leashed as lsh

FEATURES = 40
ROWS = 20_000


@numba.njit(fastmath=True)
def loss_and_slope(margin, label):
    """Of log(1 + exp(margin)) − label · margin; labels are 0 and 1."""
    sign = np.float32(2 * label - 1)
    e = np.exp(-sign * margin)
    return np.log1p(e), -sign * e / (np.float32(1) + e)


def logistic(features):
    """The mean logistic loss of a batch of rows of so many features, and its gradient.

    Four rows at a time: the weights and the gradient are loaded and stored a quarter as often.
    """

    @numba.cfunc(lsh.gradients.signature(), fastmath=True)
    def gradient(theta, x, rows, y, batch, gradient, workspace, user_data):  # noqa: ARG001
        weights = numba.carray(theta, features)
        examples = numba.carray(x, (1 << 40, features))
        index = numba.carray(rows, batch)
        label = numba.carray(y, batch)
        out = numba.carray(gradient, features)
        out[:] = 0
        loss = np.float32(0)
        share = np.float32(1) / np.float32(batch)
        zero = np.float32(0)
        for i in range(0, batch - 3, 4):
            a, b = examples[index[i]], examples[index[i + 1]]
            c, d = examples[index[i + 2]], examples[index[i + 3]]
            ma, mb, mc, md = zero, zero, zero, zero
            for j in range(features):
                ma += weights[j] * a[j]
                mb += weights[j] * b[j]
                mc += weights[j] * c[j]
                md += weights[j] * d[j]
            la, sa = loss_and_slope(ma, label[i])
            lb, sb = loss_and_slope(mb, label[i + 1])
            lc, sc = loss_and_slope(mc, label[i + 2])
            ld, sd = loss_and_slope(md, label[i + 3])
            loss += la + lb + lc + ld
            for j in range(features):
                out[j] += share * (sa * a[j] + sb * b[j] + sc * c[j] + sd * d[j])
        for i in range(batch - batch % 4, batch):
            row = examples[index[i]]
            margin = zero
            for j in range(features):
                margin += weights[j] * row[j]
            part, slope = loss_and_slope(margin, label[i])
            loss += part
            for j in range(features):
                out[j] += share * slope * row[j]
        return loss * share

    return gradient


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--threads", type=int, default=None)
    threads = parser.parse_args().threads

    rng = np.random.default_rng(0)
    x = rng.standard_normal((ROWS, FEATURES)).astype(np.float32)
    planted = rng.standard_normal(FEATURES).astype(np.float32)
    y = (x @ planted + 0.5 * rng.standard_normal(ROWS) > 0).astype(np.int32)

    model = lsh.models.external(
        logistic(FEATURES), dimension=FEATURES, features=FEATURES, name="logistic"
    )
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
