// Adagrad as extreme-scale-asgd has it (Algorithm 2, lines 8 and 9): v ← v + ĝ²,
// θ ← θ − η ĝ / √(v + ε), ε inside of the root.
#pragma once

#include "leashed/update/adagrad.h"

namespace leashed {

struct AdagradPrinted : Adagrad {
  static constexpr const char* kName = "adagrad_printed";

  using Adagrad::Adagrad;

  template <class Math, class V>
  [[gnu::always_inline]] static inline V step(V theta, V g, V* state, const Coefficients& c) {
    state[0] = g * g + state[0];
    return theta - Math::over_root(c.lr, g, state[0] + c.epsilon, 0);
  }
};

}  // namespace leashed
