// Products of sparse rows (data/sparse_rows.h) with a matrix w [columns][n], as wide as a dense
// layer: of each value in a row one row of w.
#pragma once

#include <cstddef>

#include "leashed/base/isa.h"
#include "leashed/data/sparse_rows.h"

namespace leashed {

struct SparseProductKernels {
  // out [count][n], with that row stride, = bias + rows · w.
  void (*product)(const float* w, const float* bias, std::size_t n, const SparseRows& rows,
                  std::size_t count, float* out, std::size_t stride);
  // w += rowsᵀ · d, [count][n] with that row stride.
  void (*add_transposed)(float* w, std::size_t n, const SparseRows& rows, std::size_t count,
                         const float* d, std::size_t stride);
};

const SparseProductKernels& sparse_product_kernels(Isa isa);

}  // namespace leashed
