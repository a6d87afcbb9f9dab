// RMSprop by the variance, centered: v ← α v + (1 − α) ĝ², ḡ ← α ḡ + (1 − α) ĝ,
// θ ← θ − η ĝ / (√(v − ḡ²) + ε), the variance at least 0 whatever rounding makes of it.
#pragma once

#include "leashed/update/rmsprop.h"

namespace leashed {

struct CenteredRmsprop : Rmsprop {
  static constexpr const char* kName = "centered_rmsprop";
  static constexpr std::size_t kStates = 2;   // v, ḡ
  static constexpr std::size_t kSquares = 0;  // v may not shrink without ḡ

  using Rmsprop::Rmsprop;

  // Else the variance of one thread's ḡ and another's v would be 0. (Less a little, for rounding.)
  template <class Math, class V>
  [[gnu::always_inline]] static inline void mend(V* state, const Coefficients& c) {
    state[0] = Math::larger(state[0], (c.swaps ? 0 : 0.99f) * state[1] * state[1]);
  }

  template <class Math, class V>
  [[gnu::always_inline]] static inline V step(V theta, V g, V* state, const Coefficients& c) {
    state[0] = Math::mean_of_squares(state[0], g, c.add2);
    state[1] = state[1] + c.add2 * (g - state[1]);
    const V variance = Math::at_least_0(state[0] - Math::finite(state[1] * state[1]));
    return theta - Math::over_root(c.lr, g, variance, c.epsilon);
  }
};

}  // namespace leashed
