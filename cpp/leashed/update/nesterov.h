// SGD with Nesterov's momentum: b ← μ b + ĝ, θ ← θ − η (ĝ + μ b).
#pragma once

#include <cstddef>
#include <cstdint>

#include "leashed/base/choice.h"
#include "leashed/update/coefficients.h"

namespace leashed {

struct Nesterov {
  static constexpr const char* kName = "nesterov";
  static constexpr std::size_t kStates = 1;  // b
  static constexpr std::size_t kSquares = 0;
  static constexpr bool kKeepsUntouched = false;

  explicit Nesterov(const Choice& c) : momentum(c["momentum"]) {}
  float initial_state() const { return 0; }

  void coefficients(double, std::uint64_t, Coefficients& c) const {
    c.momentum = static_cast<float>(momentum);
  }

  template <class Math, class V>
  [[gnu::always_inline]] static inline V step(V theta, V g, V* state, const Coefficients& c) {
    state[0] = c.momentum * state[0] + g;
    return theta - c.lr * (g + c.momentum * state[0]);
  }

  double momentum;
};

}  // namespace leashed
