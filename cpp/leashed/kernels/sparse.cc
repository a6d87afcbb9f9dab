// One float at a time: a gather of 16 takes no less time than 16 loads, and needs rows long enough
// to fill it. What counts is that no addition waits for the one before it.
#include "leashed/kernels/sparse.h"

#include "leashed/base/isa_table.h"
#include "leashed/base/simd.h"
#include "leashed/update/kernels/racy.h"

namespace leashed {
namespace {

// Without values: all of them are 1.
template <bool valued>
LEASHED_INLINE LEASHED_RACY float product(const float* w, const std::int32_t* columns,
                                          const float* values, std::int64_t length) {
  const auto term = [=](std::int64_t j) LEASHED_RACY __attribute__((always_inline)) {
    return valued ? load_one(w + columns[j]) * values[j] : load_one(w + columns[j]);
  };
  float sums[4] = {};
  std::int64_t j = 0;
  for (; j + 4 <= length; j += 4) {
#pragma GCC unroll 4
    for (int k = 0; k < 4; ++k) sums[k] += term(j + k);
  }
  for (; j < length; ++j) sums[0] += term(j);
  return (sums[0] + sums[1]) + (sums[2] + sums[3]);
}

template <bool valued>
LEASHED_INLINE LEASHED_RACY void outputs_of(const float* w, const float* bias, std::size_t n,
                                            const SparseRows& rows, std::size_t count, float* out) {
  for (std::size_t row = 0; row < count; ++row) {
    const std::int64_t begin = rows.offsets[row], end = rows.offsets[row + 1];
    if (n == 1) {
      out[row] =
          load_one(bias) + product<valued>(w, rows.columns + begin,
                                           valued ? rows.values + begin : nullptr, end - begin);
      continue;
    }
    float* o = out + row * n;
    for (std::size_t k = 0; k < n; ++k) o[k] = load_one(bias + k);
    for (std::int64_t j = begin; j < end; ++j) {
      const float* weights = w + static_cast<std::size_t>(rows.columns[j]) * n;
      const float x = valued ? rows.values[j] : 1.0f;
      for (std::size_t k = 0; k < n; ++k) o[k] += x * load_one(weights + k);
    }
  }
}
LEASHED_RACY void outputs(const float* w, const float* bias, std::size_t n, const SparseRows& rows,
                          std::size_t count, float* out) {
  rows.values ? outputs_of<true>(w, bias, n, rows, count, out)
              : outputs_of<false>(w, bias, n, rows, count, out);
}

// Calls f(i, x): every float i of w that the rows touch, with what its gradient is increased by.
template <bool valued, class F>
LEASHED_INLINE void for_each_of(std::size_t n, const SparseRows& rows, std::size_t count,
                                const float* residuals, float scale, F f) {
  for (std::size_t row = 0; row < count; ++row) {
    const std::int64_t begin = rows.offsets[row], end = rows.offsets[row + 1];
    const float* r = residuals + row * n;
    if (n == 1) {
      const float change = scale * r[0];
      if (change == 0) continue;
      const std::int32_t* columns = rows.columns;
      const float* values = rows.values;
#pragma GCC unroll 4
      for (std::int64_t j = begin; j < end; ++j) {
        f(static_cast<std::size_t>(columns[j]), valued ? change * values[j] : change);
      }
      continue;
    }
    for (std::int64_t j = begin; j < end; ++j) {
      const std::size_t column = static_cast<std::size_t>(rows.columns[j]) * n;
      const float x = valued ? scale * rows.values[j] : scale;
      for (std::size_t k = 0; k < n; ++k) f(column + k, x * r[k]);
    }
  }
}
template <class F>
LEASHED_INLINE void for_each(std::size_t n, const SparseRows& rows, std::size_t count,
                             const float* residuals, float scale, F f) {
  rows.values ? for_each_of<true>(n, rows, count, residuals, scale, f)
              : for_each_of<false>(n, rows, count, residuals, scale, f);
}

void add(float* w, std::size_t n, const SparseRows& rows, std::size_t count, const float* residuals,
         float scale) {
  for_each(
      n, rows, count, residuals,
      scale, [w](std::size_t i, float x) __attribute__((always_inline)) { w[i] += x; });
}
LEASHED_RACY void add_racy(float* w, std::size_t n, const SparseRows& rows, std::size_t count,
                           const float* residuals, float scale) {
  for_each(
      n, rows, count, residuals,
      scale, [w](std::size_t i, float x) LEASHED_RACY __attribute__((always_inline)) {
        store_one(w + i, load_one(w + i) + x);
      });
}

LEASHED_RACY void adagrad_racy(float* w, std::size_t stride, std::size_t n, const SparseRows& rows,
                               std::size_t count, float* gradient, float lr, float epsilon) {
  const std::int64_t begin = rows.offsets[0], end = rows.offsets[count];
  for (std::int64_t j = begin; j < end; ++j) {
    const std::size_t column = static_cast<std::size_t>(rows.columns[j]) * n;
    for (std::size_t i = column; i < column + n; ++i) {
      const float g = gradient[i];
      if (g == 0) continue;  // nothing to add, or added where the column came first
      gradient[i] = 0;
      const float v = load_one(w + stride + i) + g * g;
      store_one(w + stride + i, v);
      store_one(w + i, load_one(w + i) - lr * g / (__builtin_sqrtf(v) + epsilon));
    }
  }
}

}  // namespace

extern const SparseKernels LEASHED_ISA_NAME(sparse_kernels);
const SparseKernels LEASHED_ISA_NAME(sparse_kernels) = {outputs, add, add_racy, adagrad_racy};

}  // namespace leashed
