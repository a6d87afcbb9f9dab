// ReLU where it is not fused with the layer before it.
#pragma once

#include <cstddef>

#include "leashed/base/isa.h"

namespace leashed {

struct ActivationKernels {
  // x = max(0, x), in place; NaN stays NaN.
  void (*relu)(float* x, std::size_t n);
  // gradient = 0 where out, the result of relu, is not above 0.
  void (*relu_backward)(const float* out, float* gradient, std::size_t n);
};

const ActivationKernels& activation_kernels(Isa isa);

}  // namespace leashed
