#include "leashed/kernels/sparse_product.h"

#include "leashed/base/isa_table.h"
#include "leashed/base/simd.h"
#include "leashed/kernels/partial.h"

namespace leashed {
namespace {

constexpr std::int64_t kAhead = 8;  // rows of w, which lie anywhere

LEASHED_INLINE const float* row_of(const float* w, std::size_t n, std::int32_t column) {
  return w + static_cast<std::size_t>(column) * n;
}

// So many vectors of a row of the result, the last of `last` floats.
template <std::size_t vectors>
LEASHED_INLINE void part(const float* w, const float* bias, std::size_t n, const SparseRows& rows,
                         std::int64_t begin, std::int64_t end, float* out, std::size_t last) {
  vfloat sums[vectors];
  const auto load = [last](const float* from, std::size_t i) __attribute__((always_inline)) {
    return vload_up_to(from + i * kLanes, i + 1 == vectors ? last : kLanes);
  };
#pragma GCC unroll 4
  for (std::size_t i = 0; i < vectors; ++i) sums[i] = load(bias, i);
  for (std::int64_t j = begin; j < end; ++j) {
    if (j + kAhead < end) __builtin_prefetch(row_of(w, n, rows.columns[j + kAhead]));
    const float* weights = row_of(w, n, rows.columns[j]);
    const float x = rows.values ? rows.values[j] : 1.0f;
#pragma GCC unroll 4
    for (std::size_t i = 0; i < vectors; ++i) sums[i] += x * load(weights, i);
  }
#pragma GCC unroll 4
  for (std::size_t i = 0; i < vectors; ++i) {
    vstore_up_to(out + i * kLanes, sums[i], i + 1 == vectors ? last : kLanes);
  }
}

void product(const float* w, const float* bias, std::size_t n, const SparseRows& rows,
             std::size_t count, float* out, std::size_t stride) {
  constexpr std::size_t kVectors = 4;
  for (std::size_t row = 0; row < count; ++row) {
    const std::int64_t begin = rows.offsets[row], end = rows.offsets[row + 1];
    float* o = out + row * stride;
    std::size_t k = 0;
    for (; k + kVectors * kLanes <= n; k += kVectors * kLanes) {
      part<kVectors>(w + k, bias + k, n, rows, begin, end, o + k, kLanes);
    }
    for (; k < n; k += kLanes) part<1>(w + k, bias + k, n, rows, begin, end, o + k, n - k);
  }
}

void add_transposed(float* w, std::size_t n, const SparseRows& rows, std::size_t count,
                    const float* d, std::size_t stride) {
  for (std::size_t row = 0; row < count; ++row) {
    const std::int64_t begin = rows.offsets[row], end = rows.offsets[row + 1];
    const float* from = d + row * stride;
    for (std::int64_t j = begin; j < end; ++j) {
      if (j + kAhead < end) __builtin_prefetch(row_of(w, n, rows.columns[j + kAhead]), 1);
      float* weights = w + static_cast<std::size_t>(rows.columns[j]) * n;
      const float x = rows.values ? rows.values[j] : 1.0f;
      for (std::size_t k = 0; k < n; k += kLanes) {
        const vfloat sum = vload_up_to(weights + k, n - k) + x * vload_up_to(from + k, n - k);
        vstore_up_to(weights + k, sum, n - k);
      }
    }
  }
}

}  // namespace

extern const SparseProductKernels LEASHED_ISA_NAME(sparse_product_kernels);
const SparseProductKernels LEASHED_ISA_NAME(sparse_product_kernels) = {product, add_transposed};

}  // namespace leashed
