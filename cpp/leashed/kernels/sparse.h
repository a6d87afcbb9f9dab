// Kernels of linear models on sparse rows (data/sparse_rows.h). The weights of column j are the n
// floats at w + j·n, one for each output. Those that are called racy read and write floats that
// other threads read and write meanwhile (update/kernels/racy.h).
#pragma once

#include <cstddef>

#include "leashed/base/isa.h"
#include "leashed/data/sparse_rows.h"

namespace leashed {

struct SparseKernels {
  // out [count][n] = bias + rows · w; racy.
  void (*outputs)(const float* w, const float* bias, std::size_t n, const SparseRows& rows,
                  std::size_t count, float* out);
  // w += scale · rowsᵀ · residuals [count][n].
  void (*add)(float* w, std::size_t n, const SparseRows& rows, std::size_t count,
              const float* residuals, float scale);
  void (*add_racy)(float* w, std::size_t n, const SparseRows& rows, std::size_t count,
                   const float* residuals, float scale);
  // Adagrad on the columns of these rows, whose gradient is in `gradient`, indexed as w is, and is
  // set to 0; their accumulators lie `stride` behind. Racy, but for the gradient.
  void (*adagrad_racy)(float* w, std::size_t stride, std::size_t n, const SparseRows& rows,
                       std::size_t count, float* gradient, float lr, float epsilon);
};

const SparseKernels& sparse_kernels(Isa isa);

}  // namespace leashed
