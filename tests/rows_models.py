"""One model over tables four times: as a graph, in Python, in C and in Numba.

Its output is w · [x, a · b, c] + bias, where a is the sum of an example's rows of feature 0, b that
of feature 1, of the same table, and c the mean of those of feature 2.
"""

from __future__ import annotations

import ctypes
import subprocess
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from made_clicks import ROWS
from numpy.typing import NDArray

import leashed as lsh
from leashed import gradients
from leashed.models import BatchRows, Concat, Dense, Dot, Embedding, External, Graph, Input

NUMBERS, ITEM, OTHER = 3, 6, 10  # values of x, and of a row of each table
D = NUMBERS + 1 + OTHER + 1
ITEMS = lsh.models.TableSpec("items", ITEM, ROWS)
OTHERS = lsh.models.TableSpec("others", OTHER, ROWS)
IDS = (ITEMS, ITEMS, OTHERS)

Array = NDArray[np.float32]


def graph() -> Graph:
    a, b, c = Embedding(ITEMS), Embedding(ITEMS), Embedding(OTHERS, "mean")
    return Graph(Concat(Input(NUMBERS), Dot(a, b), c) >> Dense(1))


def external(gradient: Any, **changes: Any) -> External:
    arguments = {"dimension": D, "features": NUMBERS, "ids": IDS, **changes}
    return lsh.models.external(gradient, **arguments)


def pooled(rows: BatchRows, f: int, share: bool = False) -> tuple[Array, Any, Any]:
    """The sums of a feature's rows by example, and of each entry its example and weight."""
    lengths = np.diff(rows.offsets[f])
    example = np.repeat(np.arange(len(lengths)), lengths)
    weight = rows.weights[f][:, None]
    if share:
        weight = weight / lengths[example][:, None].astype(np.float32)
    values = rows.values[f // 2][rows.places[f]]
    sums = np.zeros((len(lengths), values.shape[1]), np.float32)
    np.add.at(sums, example, weight * values)
    return sums, example, weight


def forward(theta: Array, x: Array, rows: BatchRows) -> tuple[Array, Array, list[Any]]:
    features = [pooled(rows, f, share=f == 2) for f in range(3)]
    a, b, c = (sums for sums, _, _ in features)
    inputs = np.column_stack([x, (a * b).sum(1), c])
    return inputs @ theta[:-1] + theta[-1], inputs, features


def mean_loss(o: Array, y: NDArray[np.int32]) -> float:
    return float(np.mean(np.logaddexp(0, o) - y * o))


def python_gradient(
    theta: Array, x: Array, y: NDArray[np.int32], rows: BatchRows, out: Array
) -> float:
    o, inputs, ((a, of_a, weight_a), (b, of_b, weight_b), (_, of_c, weight_c)) = forward(
        theta, x, rows
    )
    slope = ((0.5 + 0.5 * np.tanh(o / 2)) - y).astype(np.float32) / len(y)
    out[:-1] = slope @ inputs
    out[-1] = slope.sum()
    cross = (slope * theta[NUMBERS])[:, None]
    items, others = rows.gradients
    np.add.at(items, rows.places[0], weight_a * (cross * b)[of_a])
    np.add.at(items, rows.places[1], weight_b * (cross * a)[of_b])
    c = slope[:, None] * theta[NUMBERS + 1 : -1]
    np.add.at(others, rows.places[2], weight_c * c[of_c])
    return mean_loss(o, y)


def python_loss(theta: Array, x: Array, y: NDArray[np.int32], rows: BatchRows) -> float:
    return mean_loss(forward(theta, x, rows)[0], y)


def python_logits(theta: Array, x: Array, rows: BatchRows) -> Array:
    return forward(theta, x, rows)[0]


# Gradient, loss and logits in one function: it writes what is not null.
C_BODY = """
  enum { N = 3, K = 6, M = 10 };
  const float* w = theta;
  float loss = 0;
  if (workspace) *(int64_t*)workspace += 1;
  if (gradient) for (int j = 0; j <= N + 1 + M; ++j) gradient[j] = 0;
  for (int64_t i = 0; i < batch; ++i) {
    const int64_t* o0 = offsets + i;
    const int64_t* o1 = o0 + batch + 1;
    const int64_t* o2 = o1 + batch + 1;
    const float* row = x + rows[i] * N;
    float a[K] = {0}, b[K] = {0}, c[M] = {0}, cross = 0, o = w[N + 1 + M];
    for (int64_t e = o0[0]; e < o0[1]; ++e)
      for (int j = 0; j < K; ++j) a[j] += weights[e] * values[places[e] + j];
    for (int64_t e = o1[0]; e < o1[1]; ++e)
      for (int j = 0; j < K; ++j) b[j] += weights[e] * values[places[e] + j];
    for (int64_t e = o2[0]; e < o2[1]; ++e)
      for (int j = 0; j < M; ++j) c[j] += weights[e] * values[places[e] + j] / (float)(o2[1] - o2[0]);
    for (int j = 0; j < K; ++j) cross += a[j] * b[j];
    for (int j = 0; j < N; ++j) o += w[j] * row[j];
    o += w[N] * cross;
    for (int j = 0; j < M; ++j) o += w[N + 1 + j] * c[j];
    if (logits) logits[i] = o;
    if (!y) continue;
    loss += (log1pf(expf(-fabsf(o))) + (o > 0 ? o : 0) - (float)y[i] * o) / (float)batch;
    if (!gradient) continue;
    float slope = (1 / (1 + expf(-o)) - (float)y[i]) / (float)batch;
    for (int j = 0; j < N; ++j) gradient[j] += slope * row[j];
    gradient[N] += slope * cross;
    for (int j = 0; j < M; ++j) gradient[N + 1 + j] += slope * c[j];
    gradient[N + 1 + M] += slope;
    for (int64_t e = o0[0]; e < o0[1]; ++e)
      for (int j = 0; j < K; ++j) row_gradients[places[e] + j] += weights[e] * slope * w[N] * b[j];
    for (int64_t e = o1[0]; e < o1[1]; ++e)
      for (int j = 0; j < K; ++j) row_gradients[places[e] + j] += weights[e] * slope * w[N] * a[j];
    for (int64_t e = o2[0]; e < o2[1]; ++e)
      for (int j = 0; j < M; ++j)
        row_gradients[places[e] + j] += weights[e] / (float)(o2[1] - o2[0]) * slope * w[N + 1 + j];
  }
  return loss;
"""
C_SOURCE = f"""
#include <math.h>
#include "leashed.h"
float model(const float* theta, const float* x, const int64_t* rows, const int32_t* y,
            int64_t batch, const int64_t* offsets, const int64_t* places, const float* weights,
            const int64_t* counts, const float* values, float* gradient, float* row_gradients,
            float* logits, void* workspace, void* user_data) {{{C_BODY}}}
/* The sum of the distinct rows, by their counts. */
float rows_read(const float* theta, const float* x, const int64_t* rows, const int32_t* y,
                int64_t batch, const int64_t* offsets, const int64_t* places, const float* weights,
                const int64_t* counts, const float* values, float* gradient, float* row_gradients,
                float* logits, void* workspace, void* user_data) {{
  float sum = 0;
  for (int64_t i = 0; i < counts[0] * 6 + counts[1] * 10; ++i) sum += values[i];
  return sum;
}}
/* Whose loss is finite, and a row's gradient not. */
float bad_row(const float* theta, const float* x, const int64_t* rows, const int32_t* y,
              int64_t batch, const int64_t* offsets, const int64_t* places, const float* weights,
              const int64_t* counts, const float* values, float* gradient, float* row_gradients,
              float* logits, void* workspace, void* user_data) {{
  for (int j = 0; gradient && j < 15; ++j) gradient[j] = 0;
  if (row_gradients) row_gradients[counts[0] * 6 + counts[1] * 10 - 1] = NAN;
  return 1;
}}
const leashed_gradient_rows checks[] = {{model, rows_read, bad_row}};
const char* signature(void) {{ return LEASHED_GRADIENT_ROWS; }}
"""


def c_library(folder: Path) -> ctypes.CDLL:
    (folder / "rows.c").write_text(C_SOURCE)
    command = ["cc", "-O2", "-shared", "-fPIC", f"-I{lsh.get_include()}", "rows.c", "-lm"]
    subprocess.run([*command, "-o", "rows.so"], cwd=folder, check=True)
    return ctypes.CDLL(str(folder / "rows.so"))


def c_function(library: ctypes.CDLL, name: str = "model") -> Any:
    return ctypes.cast(library[name], gradients.c_type(rows=True))


@cache
def numba_gradient() -> Any:
    import numba  # noqa: PLC0415  an optional dependency

    n, k, m = NUMBERS, ITEM, OTHER

    @numba.cfunc(gradients.signature(rows=True))
    def gradient(
        theta,
        x,
        rows,
        y,
        batch,
        offsets,
        places,
        weights,
        counts,  # noqa: ARG001
        values,
        out,
        row_gradients,
        logits,  # noqa: ARG001
        workspace,  # noqa: ARG001
        user_data,  # noqa: ARG001
    ):
        w, g = numba.carray(theta, n + m + 2), numba.carray(out, n + m + 2)
        examples = numba.carray(x, (1 << 40, n))
        number, label = numba.carray(rows, batch), numba.carray(y, batch)
        begin = numba.carray(offsets, (3, batch + 1))
        entries = begin[2, batch]
        place, weight = numba.carray(places, entries), numba.carray(weights, entries)
        value, change = numba.carray(values, 1 << 40), numba.carray(row_gradients, 1 << 40)
        a, b, c = np.zeros(k), np.zeros(k), np.zeros(m)
        g[:] = 0
        loss = 0.0
        for i in range(batch):
            a[:], b[:], c[:] = 0, 0, 0
            for e in range(begin[0, i], begin[0, i + 1]):
                for j in range(k):
                    a[j] += weight[e] * value[place[e] + j]
            for e in range(begin[1, i], begin[1, i + 1]):
                for j in range(k):
                    b[j] += weight[e] * value[place[e] + j]
            several = max(begin[2, i + 1] - begin[2, i], 1)
            for e in range(begin[2, i], begin[2, i + 1]):
                for j in range(m):
                    c[j] += weight[e] * value[place[e] + j] / several
            cross = 0.0
            for j in range(k):
                cross += a[j] * b[j]
            o = w[n + m + 1] + w[n] * cross
            for j in range(n):
                o += w[j] * examples[number[i], j]
            for j in range(m):
                o += w[n + 1 + j] * c[j]
            loss += (np.log1p(np.exp(-abs(o))) + max(o, 0.0) - label[i] * o) / batch
            slope = (1 / (1 + np.exp(-o)) - label[i]) / batch
            for j in range(n):
                g[j] += slope * examples[number[i], j]
            g[n] += slope * cross
            for j in range(m):
                g[n + 1 + j] += slope * c[j]
            g[n + m + 1] += slope
            for e in range(begin[0, i], begin[0, i + 1]):
                for j in range(k):
                    change[place[e] + j] += weight[e] * slope * w[n] * b[j]
            for e in range(begin[1, i], begin[1, i + 1]):
                for j in range(k):
                    change[place[e] + j] += weight[e] * slope * w[n] * a[j]
            for e in range(begin[2, i], begin[2, i + 1]):
                for j in range(m):
                    change[place[e] + j] += weight[e] / several * slope * w[n + 1 + j]
        return loss

    return gradient
