"""Train the model of ridge.pyx, after ``python setup.py build_ext --inplace``."""

import numpy as np
import ridge

import leashed as lsh

FEATURES = 20
ROWS = 10_000
EVALUATED_AT_ONCE = 256  # the workspace must hold the residuals of as many rows


def main() -> None:
    rng = np.random.default_rng(0)
    x = rng.standard_normal((ROWS, FEATURES)).astype(np.float32)
    planted = rng.standard_normal(FEATURES).astype(np.float32)
    y = x @ planted + 0.1 * rng.standard_normal(ROWS).astype(np.float32)

    model = lsh.models.external(
        lsh.gradients.from_cython(ridge, "ridge"),
        dimension=FEATURES,
        features=FEATURES,
        y="float32",
        workspace_bytes=4 * EVALUATED_AT_ONCE,
        name="ridge",
    )
    result = lsh.train(
        model,
        (x, y),
        rule=lsh.Adam(0.05),
        discipline=lsh.Leashed(),
        batch_size=32,
        until=lsh.until(loss_fraction=0.01, epochs=50),
    )
    error = np.abs(result.parameters - planted).max()
    print(f"{result.outcome}: loss {result.loss[-1]:.4f}, largest error {error:.3f}")
    assert result.outcome == "converged"


if __name__ == "__main__":
    main()
