#include "leashed/kernels/elementwise.h"

#include "leashed/base/isa_table.h"
#include "leashed/base/simd.h"

namespace leashed {
namespace {

void copy(const float* from, std::size_t ld_from, float* to, std::size_t ld_to, std::size_t rows,
          std::size_t n, bool add) {
  for (std::size_t row = 0; row < rows; ++row, from += ld_from, to += ld_to) {
    if (add) {
      for (std::size_t k = 0; k < n; ++k) to[k] += from[k];
    } else {
      for (std::size_t k = 0; k < n; ++k) to[k] = from[k];
    }
  }
}

void multiply(const float* a, std::size_t ld_a, const float* b, std::size_t ld_b, float* to,
              std::size_t ld_to, std::size_t rows, std::size_t n, bool add) {
  for (std::size_t row = 0; row < rows; ++row, a += ld_a, b += ld_b, to += ld_to) {
    if (add) {
      for (std::size_t k = 0; k < n; ++k) to[k] += a[k] * b[k];
    } else {
      for (std::size_t k = 0; k < n; ++k) to[k] = a[k] * b[k];
    }
  }
}

LEASHED_INLINE float product(const float* a, const float* b, std::size_t n) {
  vfloat sums[2] = {};
  std::size_t k = 0;
  for (; k + 2 * kLanes <= n; k += 2 * kLanes) {
    sums[0] += vload(a + k) * vload(b + k);
    sums[1] += vload(a + k + kLanes) * vload(b + k + kLanes);
  }
  float rest = 0;
  for (; k < n; ++k) rest += a[k] * b[k];
  const vfloat sum = sums[0] + sums[1];
  for (std::size_t l = 0; l < kLanes; ++l) rest += sum[l];
  return rest;
}

void cross(const float* x0, std::size_t ld_x0, const float* x, std::size_t ld_x, const float* w,
           const float* b, float* out, std::size_t ld_out, std::size_t rows, std::size_t n,
           float* kept) {
  for (std::size_t row = 0; row < rows; ++row, x0 += ld_x0, x += ld_x, out += ld_out) {
    const float s = kept[row] = product(x, w, n);
    for (std::size_t k = 0; k < n; ++k) out[k] = x0[k] * s + b[k] + x[k];
  }
}

void cross_backward(const ElementwiseKernels::CrossBackward& b) {
  const float *x0 = b.x0, *x = b.x, *d_out = b.d_out;
  float *d_x0 = b.d_x0, *d_x = b.d_x;
  for (std::size_t row = 0; row < b.rows; ++row) {
    const float s = b.kept[row];
    const float ds = product(d_out, x0, b.n);
    for (std::size_t k = 0; k < b.n; ++k) b.d_w[k] += ds * x[k];
    for (std::size_t k = 0; k < b.n; ++k) b.d_b[k] += d_out[k];
    if (d_x0) {
      for (std::size_t k = 0; k < b.n; ++k) d_x0[k] = (b.adds_d_x0 ? d_x0[k] : 0) + s * d_out[k];
      d_x0 += b.ld_x0;
    }
    if (d_x) {
      for (std::size_t k = 0; k < b.n; ++k) {
        d_x[k] = (b.adds_d_x ? d_x[k] : 0) + d_out[k] + ds * b.w[k];
      }
      d_x += b.ld_x;
    }
    x0 += b.ld_x0;
    x += b.ld_x;
    d_out += b.ld_out;
  }
}

}  // namespace

extern const ElementwiseKernels LEASHED_ISA_NAME(elementwise_kernels);
const ElementwiseKernels LEASHED_ISA_NAME(elementwise_kernels) = {copy, multiply, cross,
                                                                  cross_backward};

}  // namespace leashed
