"""A Numba cfunc against the same logistic regression in C, both called by the engine's threads.

    python -m bench.external

Interleaved turns in one run, with 1 and with as many threads as there are processors. The C
function is compiled here with the flags of the engine's own kernels for this CPU. One JSON object
per line; ``numba_to_c`` is the median of the ratios of examples per second of a turn.
"""

from __future__ import annotations

import ctypes
import json
import os
import statistics
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import numba
import numpy as np

import leashed as lsh
from bench import machine
from leashed.machine import cores

FEATURES = int(os.environ.get("LEASHED_BENCH_FEATURES", "784"))
ROWS = 20_000
BATCH = 64
TURNS = 15
SECONDS = 0.2

C = """
#include <math.h>
#include "leashed.h"
float logistic(const float* theta, const float* x, const int64_t* rows, const int32_t* y,
               int64_t batch, float* gradient, void* workspace, void* user_data) {
  (void)workspace, (void)user_data;
  float loss = 0;
  for (int j = 0; j < FEATURES; ++j) gradient[j] = 0;
  for (int64_t i = 0; i < batch; ++i) {
    const float* row = x + rows[i] * FEATURES;
    const float sign = (float)(2 * y[i] - 1);
    float margin = 0;
    for (int j = 0; j < FEATURES; ++j) margin += theta[j] * row[j];
    margin *= sign;
    loss += log1pf(expf(-margin));
    const float slope = -sign / ((1 + expf(margin)) * (float)batch);
    for (int j = 0; j < FEATURES; ++j) gradient[j] += slope * row[j];
  }
  return loss / (float)batch;
}
"""


def in_c() -> Any:
    folder = Path(tempfile.mkdtemp())
    (folder / "logistic.c").write_text(C)
    subprocess.run(
        ["cc", "-O3", "-march=native", "-mprefer-vector-width=512", "-ffast-math", "-shared", "-fPIC",
         f"-DFEATURES={FEATURES}", f"-I{lsh.get_include()}", "logistic.c", "-o", "logistic.so"],
        cwd=folder, check=True,
    )  # fmt: skip
    library = ctypes.CDLL(str(folder / "logistic.so"))
    return ctypes.cast(library.logistic, lsh.gradients.c_type())


def in_numba() -> Any:
    @numba.cfunc(lsh.gradients.signature(), fastmath=True)
    def logistic(theta, x, rows, y, batch, gradient, workspace, user_data):  # type: ignore[no-untyped-def] # noqa: ARG001
        weights = numba.carray(theta, FEATURES)
        examples = numba.carray(x, (1 << 40, FEATURES))
        index = numba.carray(rows, batch)
        label = numba.carray(y, batch)
        out = numba.carray(gradient, FEATURES)
        for j in range(FEATURES):
            out[j] = 0
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

    return logistic


def main() -> None:
    rng = np.random.default_rng(0)
    x = rng.standard_normal((ROWS, FEATURES)).astype(np.float32)
    y = (x @ rng.standard_normal(FEATURES) > 0).astype(np.int32)
    functions = {"c": in_c(), "numba": in_numba()}
    models: dict[str, Any] = {
        name: lsh.models.external(f, dimension=FEATURES, features=FEATURES)
        for name, f in functions.items()
    }
    # The engine's own, where it has one.
    if hasattr(lsh.models, "logistic_regression"):
        models["built_in"] = lsh.models.logistic_regression(FEATURES)
    print(json.dumps({"machine": machine.describe(), "numba": numba.__version__}))
    for threads in sorted({1, cores()}):
        turns: dict[str, list[float]] = {name: [] for name in models}
        for _ in range(TURNS):
            for name, model in models.items():
                result = lsh.train(
                    model, (x, y), rule=lsh.SGD(0.01), discipline=lsh.Hogwild(copy=False),
                    threads=threads, batch_size=BATCH, until=lsh.until(seconds=SECONDS),
                    evaluate_every=10 * SECONDS,
                )  # fmt: skip
                turns[name].append(result.examples / result.elapsed)
        ratios = {
            f"numba_to_{name}": round(
                statistics.median(a / b for a, b in zip(turns["numba"], other, strict=True)), 3
            )
            for name, other in turns.items()
            if name != "numba"
        }
        eps = {f"{name}_eps": round(statistics.median(values)) for name, values in turns.items()}
        print(json.dumps({"features": FEATURES, "threads": threads, **eps, **ratios}), flush=True)


if __name__ == "__main__":
    main()
