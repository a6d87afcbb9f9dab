// Kernels on rows of values, element by element, and the cross layer.
#pragma once

#include <cstddef>

#include "leashed/base/isa.h"

namespace leashed {

struct ElementwiseKernels {
  // to [rows][n] = or += from, with row strides.
  void (*copy)(const float* from, std::size_t ld_from, float* to, std::size_t ld_to,
               std::size_t rows, std::size_t n, bool add);
  // to = or += a · b.
  void (*multiply)(const float* a, std::size_t ld_a, const float* b, std::size_t ld_b, float* to,
                   std::size_t ld_to, std::size_t rows, std::size_t n, bool add);
  // out = x₀ (x·w) + b + x; the x·w are kept, [rows].
  void (*cross)(const float* x0, std::size_t ld_x0, const float* x, std::size_t ld_x,
                const float* w, const float* b, float* out, std::size_t ld_out, std::size_t rows,
                std::size_t n, float* kept);
  // Given d_out, at out's stride, and what was kept: adds to d_w and d_b, and writes, or adds to,
  // d_x0 and then d_x, at the strides of x0 and x, where they are not null.
  struct CrossBackward {
    const float *x0, *x, *w, *d_out, *kept;
    std::size_t ld_x0, ld_x, ld_out, rows, n;
    float *d_w, *d_b, *d_x0, *d_x;
    bool adds_d_x0, adds_d_x;
  };
  void (*cross_backward)(const CrossBackward&);
};

const ElementwiseKernels& elementwise_kernels(Isa isa);

}  // namespace leashed
