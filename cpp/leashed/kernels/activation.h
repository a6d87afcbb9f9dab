// Activations: what a layer makes of each value by itself.
#pragma once

#include <cstddef>

#include "leashed/base/isa.h"

namespace leashed {

struct Activation {
  // x = f(x), in place; NaN stays NaN.
  void (*forward)(float* x, std::size_t n);
  // gradient *= f′, given f's result `out`.
  void (*backward)(const float* out, float* gradient, std::size_t n);
};

struct ActivationKernels {
  Activation relu;     // max(0, x); f′ = 0 where the result is not above 0
  Activation tanh;     // relative error under 5e-7
  Activation sigmoid;  // 1 / (1 + e^−x), relative error under 5e-7, 0 below −87.3
};

// One of them, of whatever instruction set.
using AnyActivation = Activation ActivationKernels::*;

const ActivationKernels& activation_kernels(Isa isa);

}  // namespace leashed
