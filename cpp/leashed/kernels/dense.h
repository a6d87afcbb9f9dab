// Kernels for dense layers: one matrix product with fused bias, activation or its derivative, and
// what goes with it. See dense.cc for how the micro-kernel works.
#pragma once

#include <cstddef>

#include "leashed/base/isa.h"

namespace leashed {

// Rows [row, end) of `length` floats that will be needed soon, from float `column` of the first on:
// a product fetches a few cache lines of them into the second-level cache after each of its tiles,
// so that they arrive while it computes.
struct RowsAhead {
  const float* const* row = nullptr;
  const float* const* end = nullptr;
  std::size_t length = 0;
  std::size_t column = 0;
};

// C [m][n] (row stride ldc) = or += A B, where A(i, k) = a[i * a_row + k * a_col] and B is
// row-major [k][n] with row stride ldb.
struct Gemm {
  std::size_t m, n, k;
  const float* a;
  std::size_t a_row, a_col = 1;
  const float* b;
  std::size_t ldb;
  float* c;
  std::size_t ldc;
  bool accumulate = false;
  const float* bias = nullptr;  // [n], added to every row
  bool relu = false;            // then max(0, ·); NaN stays NaN
  const float* gate = nullptr;  // [m][n], row stride ldc: C becomes 0 where gate is not above 0
  RowsAhead* ahead = nullptr;
};

struct DenseKernels {
  // `scratch` holds gemm_scratch(the larger of m and k) floats, on a cache line.
  void (*gemm)(const Gemm&, float* scratch);
  std::size_t (*gemm_scratch)(std::size_t longest);
  // out [columns][rows] = in [rows][columns]^T, with row strides.
  void (*transpose)(const float* in, std::size_t rows, std::size_t columns, std::size_t ld_in,
                    float* out, std::size_t ld_out);
  // out[j] (+)= sum over rows of in[i][j].
  void (*column_sums)(const float* in, std::size_t rows, std::size_t columns, std::size_t ld,
                      float* out, bool accumulate);
};

const DenseKernels& dense_kernels(Isa isa);

}  // namespace leashed
