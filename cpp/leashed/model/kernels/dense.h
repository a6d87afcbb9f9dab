// Kernels for dense layers: one matrix product with fused bias, activation or its derivative, and
// softmax with cross-entropy. Owned by network.cc; see dense.cc for how the micro-kernel works.
#pragma once

#include <cstddef>
#include <cstdint>

#include "leashed/base/isa.h"

namespace leashed {

// C [M][N] (row stride ldc) = or += A B, where A(i, k) = a[i * a_row + k * a_col] and B is
// row-major [K][N] with row stride ldb.
struct Gemm {
  std::size_t m, n, k;
  const float* a;
  std::size_t a_row, a_col;
  const float* b;
  std::size_t ldb;
  float* c;
  std::size_t ldc;
  bool accumulate = false;
  const float* bias = nullptr;  // [N], added to every row
  bool relu = false;            // then max(0, ·)
  const float* gate = nullptr;  // [M][N], row stride ldc: C becomes 0 where gate is not above 0
};

struct DenseKernels {
  void (*gemm)(const Gemm&, float* scratch);
  // Floats of scratch that gemm needs for products up to this size.
  std::size_t (*gemm_scratch)(std::size_t m, std::size_t n, std::size_t k);
  // out [columns][rows] = in [rows][columns]^T, with row strides.
  void (*transpose)(const float* in, std::size_t rows, std::size_t columns, std::size_t ld_in,
                    float* out, std::size_t ld_out);
  // out[j] (+)= sum over rows of in[i][j].
  void (*column_sums)(const float* in, std::size_t rows, std::size_t columns, std::size_t ld,
                      float* out, bool accumulate);
  // logits [rows][classes] → probabilities in place; returns the sum of -log p[label].
  double (*softmax_cross_entropy)(float* logits, std::size_t rows, std::size_t classes,
                                  std::size_t ld, const std::int32_t* labels);
};

const DenseKernels& dense_kernels(Isa isa);

}  // namespace leashed
