// Kernels of a gated recurrent unit, for one example at one step, element by element.
//
// With i the step's input, h the state before and a the attention that the step gets, 1 in a plain
// unit (Zhou et al., "Deep Interest Evolution Network for Click-Through Rate Prediction", 2019,
// eqs. 2 to 5, 15 and 16):
//   u = σ(i W_u + b_u + h U_u),  r = σ(i W_r + b_r + h U_r),  c = tanh(i W_c + b_c + r ∘ (h U_c)),
//   h' = (1 − a u) ∘ h + a u ∘ c.
#pragma once

#include <cstddef>

#include "leashed/base/isa.h"

namespace leashed {

struct GatedKernels {
  // Given gates = i W + b and hidden = h U, both [3 units] in the order u, r, c: writes the next
  // state, and u, r and c over `gates`.
  void (*forward)(float* gates, const float* hidden, const float* before, float attention,
                  std::size_t units, float* after);
  // What forward() had and gave, and the gradient with respect to h': writes those with respect to
  // i W + b and to h U over `gates` and `hidden`, and over d_state the one with respect to h as far
  // as it comes directly. Returns the one with respect to a.
  float (*backward)(float* gates, float* hidden, const float* before, float attention,
                    std::size_t units, float* d_state);
};

const GatedKernels& gated_kernels(Isa isa);

}  // namespace leashed
