// RMSprop: v ← α v + (1 − α) ĝ², θ ← θ − η ĝ / (√v + ε).
#pragma once

#include <cstddef>
#include <cstdint>

#include "leashed/base/choice.h"
#include "leashed/update/coefficients.h"

namespace leashed {

struct Rmsprop {
  static constexpr const char* kName = "rmsprop";
  static constexpr std::size_t kStates = 1;  // v
  static constexpr std::size_t kSquares = 1;
  static constexpr bool kKeepsUntouched = false;

  explicit Rmsprop(const Choice& c) : alpha(c["alpha"]), epsilon(c["eps"]) {}
  float initial_state() const { return 0; }

  void coefficients(double, std::uint64_t, Coefficients& c) const {
    c.add2 = static_cast<float>(1 - alpha);
    c.epsilon = static_cast<float>(epsilon);
  }

  template <class Math, class V>
  [[gnu::always_inline]] static inline V step(V theta, V g, V* state, const Coefficients& c) {
    state[0] = Math::mean_of_squares(state[0], g, c.add2);
    return theta - Math::over_root(c.lr, g, state[0], c.epsilon);
  }

  double alpha, epsilon;
};

}  // namespace leashed
