#include "leashed/kernels/normalise.h"

#include "leashed/base/isa_table.h"
#include "leashed/base/simd.h"

namespace leashed {
namespace {

// Rows whose sums are kept in floats: few enough for what is rounded not to add up.
constexpr std::size_t kTogether = 64;

// Adds term(row, sums of so many columns) over the rows.
template <class Term>
LEASHED_INLINE void sum_rows(std::size_t rows, std::size_t columns, float* partial, double* sums,
                             Term term) {
  for (std::size_t k = 0; k < columns; ++k) sums[k] = 0;
  for (std::size_t first = 0; first < rows; first += kTogether) {
    for (std::size_t k = 0; k < columns; ++k) partial[k] = 0;
    const std::size_t end = min(first + kTogether, rows);
    for (std::size_t row = first; row < end; ++row) term(row, partial);
    for (std::size_t k = 0; k < columns; ++k) sums[k] += static_cast<double>(partial[k]);
  }
}

void moments(const float* x, std::size_t ld, std::size_t rows, std::size_t n, float* mean,
             float* variance, float* partial, double* sums) {
  const double count = static_cast<double>(rows);
  sum_rows(rows, n, partial, sums, [=](std::size_t row, float* to) {
    const float* from = x + row * ld;
    for (std::size_t k = 0; k < n; ++k) to[k] += from[k];
  });
  for (std::size_t k = 0; k < n; ++k) mean[k] = static_cast<float>(sums[k] / count);
  if (!variance) return;
  sum_rows(rows, n, partial, sums, [=](std::size_t row, float* to) {
    const float* from = x + row * ld;
    for (std::size_t k = 0; k < n; ++k) {
      const float off = from[k] - mean[k];
      to[k] += off * off;
    }
  });
  for (std::size_t k = 0; k < n; ++k) variance[k] = static_cast<float>(sums[k] / count);
}

void scale(const NormaliseKernels::Scale& s) {
  const float *x = s.x, *center = s.center, *by = s.scale, *shift = s.shift;
  float* out = s.out;
  for (std::size_t row = 0; row < s.rows; ++row, x += s.ld_x, out += s.ld_out) {
    for (std::size_t k = 0; k < s.n; ++k) out[k] = (x[k] - center[k]) * by[k] + shift[k];
  }
}

void sums(const NormaliseKernels::Sums& s, float* partial, double* sums) {
  const float *d = s.d, *x = s.x, *center = s.center;
  const std::size_t n = s.n, ld_d = s.ld_d, ld_x = s.ld_x;
  sum_rows(s.rows, 2 * n, partial, sums, [=](std::size_t row, float* to) {
    const float *d_row = d + row * ld_d, *x_row = x + row * ld_x;
    float* const products = to + n;
    for (std::size_t k = 0; k < n; ++k) {
      to[k] += d_row[k];
      products[k] += d_row[k] * (x_row[k] - center[k]);
    }
  });
}

void input_gradient(const NormaliseKernels::InputGradient& g) {
  const float *d = g.d, *x = g.x, *center = g.center, *a = g.a, *b = g.b, *c = g.c;
  float* to = g.d_x;
  for (std::size_t row = 0; row < g.rows; ++row, d += g.ld_d, x += g.ld_x, to += g.ld_x) {
    if (g.adds) {
      for (std::size_t k = 0; k < g.n; ++k) to[k] += d[k] * a[k] + (x[k] - center[k]) * b[k] + c[k];
    } else {
      for (std::size_t k = 0; k < g.n; ++k) to[k] = d[k] * a[k] + (x[k] - center[k]) * b[k] + c[k];
    }
  }
}

}  // namespace

extern const NormaliseKernels LEASHED_ISA_NAME(normalise_kernels);
const NormaliseKernels LEASHED_ISA_NAME(normalise_kernels) = {moments, scale, sums, input_gradient};

}  // namespace leashed
