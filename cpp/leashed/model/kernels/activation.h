// Kernels for what stands after a layer on its own: softmax with cross-entropy, and ReLU where it
// is not fused with the layer before it.
#pragma once

#include <cstddef>
#include <cstdint>

#include "leashed/base/isa.h"

namespace leashed {

struct ActivationKernels {
  // logits [rows][classes] → class probabilities, both with row stride ld (out may be logits).
  // Returns the sum of -log p[label], finite for every finite logit, NaN if any logit is NaN;
  // 0 if labels is null.
  double (*softmax)(const float* logits, std::size_t rows, std::size_t classes, std::size_t ld,
                    const std::int32_t* labels, float* out);
  // Probabilities → gradient with respect to the logits, in place: (p - [class == label]) * scale.
  void (*softmax_backward)(float* p, std::size_t rows, std::size_t classes, std::size_t ld,
                           const std::int32_t* labels, float scale);
  // x = max(0, x), in place; NaN stays NaN.
  void (*relu)(float* x, std::size_t n);
  // gradient = 0 where out, the result of relu, is not above 0.
  void (*relu_backward)(const float* out, float* gradient, std::size_t n);
};

const ActivationKernels& activation_kernels(Isa isa);

}  // namespace leashed
