// Adam with the largest second moment so far in place of the last (AMSGrad; Reddi, Kale and Kumar,
// 2018), as torch.optim has it: v̂ = max v / (1 − β₂ⁿ), the greatest v before its correction. SWAP
// decays both.
#pragma once

#include "leashed/update/adam.h"

namespace leashed {

struct Amsgrad : Adam {
  static constexpr const char* kName = "amsgrad";
  static constexpr std::size_t kStates = 3;  // m, v, max v
  static constexpr std::size_t kSquares = 2;

  using Adam::Adam;

  template <class Math, class V>
  [[gnu::always_inline]] static inline V step(V theta, V g, V* state, const Coefficients& c) {
    state[0] = state[0] + c.add1 * (g - state[0]);
    state[1] = Math::mean_of_squares(state[1], g, c.add2);
    state[2] = Math::larger(state[2], state[1]);
    return theta - Math::over_root(c.step, state[0], state[2], c.epsilon);
  }
};

}  // namespace leashed
