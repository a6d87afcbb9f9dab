// The logistic function of outputs, for losses that are made of it. For kernel sources.
#pragma once

#include <cmath>
#include <cstddef>

#include "leashed/base/simd.h"

namespace leashed {
namespace {

// The probability's distance to z, and the loss.
struct Judged {
  float residual;
  double loss;
};
LEASHED_INLINE Judged judge(float o, float z) {
  const double m = o;
  const double e = std::exp(-std::fabs(m));
  return {static_cast<float>((m < 0 ? e / (1 + e) : 1 / (1 + e)) - z),
          (m > 0 ? m : 0) + std::log1p(e) - z * m};
}

// predict() of such losses: of each output for itself.
[[maybe_unused]] void predict_logistic(float* o, std::size_t rows, std::size_t n, std::size_t ld) {
  for (std::size_t row = 0; row < rows; ++row, o += ld) {
    for (std::size_t k = 0; k < n; ++k) o[k] = judge(o[k], 0).residual;
  }
}

}  // namespace
}  // namespace leashed
