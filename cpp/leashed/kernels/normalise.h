// Kernels of normalisation: what the columns of a batch come to, and columns shifted and scaled.
#pragma once

#include <cstddef>

#include "leashed/base/isa.h"

namespace leashed {

// Values and gradients are [rows][n], each with its row stride; what is one a column is [n].
struct NormaliseKernels {
  // The columns' means and, where it is not null, variances (of the rows there are: divided by
  // their number). Sums of many rows are exact to float's last bits: `partial` holds n floats,
  // `sums` n doubles.
  void (*moments)(const float* x, std::size_t ld, std::size_t rows, std::size_t n, float* mean,
                  float* variance, float* partial, double* sums);
  // out = (x − center) · scale + shift.
  struct Scale {
    const float *x, *center, *scale, *shift;
    float* out;
    std::size_t ld_x, ld_out, rows, n;
  };
  void (*scale)(const Scale&);
  // The columns' sums of d and of d · (x − center). `partial` holds 2 n floats, `sums` 2 n doubles,
  // which take the results, one after the other.
  struct Sums {
    const float *d, *x, *center;
    std::size_t ld_d, ld_x, rows, n;
  };
  void (*sums)(const Sums&, float* partial, double* sums);
  // d_x = or += d · a + (x − center) · b + c.
  struct InputGradient {
    const float *d, *x, *center, *a, *b, *c;
    float* d_x;
    std::size_t ld_d, ld_x, rows, n;  // d_x has the stride of x
    bool adds;
  };
  void (*input_gradient)(const InputGradient&);
};

const NormaliseKernels& normalise_kernels(Isa isa);

}  // namespace leashed
