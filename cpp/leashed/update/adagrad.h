// Adagrad: v ← v + ĝ², θ ← θ − η ĝ / (√v + ε).
#pragma once

#include <cstddef>
#include <cstdint>

#include "leashed/base/choice.h"
#include "leashed/update/coefficients.h"

namespace leashed {

struct Adagrad {
  static constexpr const char* kName = "adagrad";
  static constexpr std::size_t kStates = 1;  // v
  static constexpr std::size_t kSquares = 1;
  static constexpr bool kKeepsUntouched = true;

  explicit Adagrad(const Choice& c) : epsilon(c["eps"]), initial(c["initial_accumulator"]) {}
  float initial_state() const { return static_cast<float>(initial); }

  void coefficients(double, std::uint64_t, Coefficients& c) const {
    c.epsilon = static_cast<float>(epsilon);
  }

  template <class Math, class V>
  [[gnu::always_inline]] static inline V step(V theta, V g, V* state, const Coefficients& c) {
    state[0] = g * g + state[0];
    return theta - Math::over_root(c.lr, g, state[0], c.epsilon);
  }

  double epsilon, initial;
};

}  // namespace leashed
