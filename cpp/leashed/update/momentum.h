// SGD with momentum: b ← μ b + (1 − δ) ĝ, θ ← θ − η b. The first update is not dampened: δ = 0.
#pragma once

#include <cstddef>
#include <cstdint>

#include "leashed/base/choice.h"
#include "leashed/update/coefficients.h"

namespace leashed {

struct Momentum {
  static constexpr const char* kName = "momentum";
  static constexpr std::size_t kStates = 1;  // b
  static constexpr std::size_t kSquares = 0;
  static constexpr bool kKeepsUntouched = false;

  explicit Momentum(const Choice& c)
      : momentum(c["momentum"]), dampening(c.value("dampening", 0)) {}
  float initial_state() const { return 0; }

  void coefficients(double, std::uint64_t updates, Coefficients& c) const {
    c.momentum = static_cast<float>(momentum);
    if (updates == 0 || dampening == 0) return;
    const auto added = static_cast<float>(1 - dampening);
    c.scale *= added;
    c.coupled *= added;
  }

  template <class Math, class V>
  [[gnu::always_inline]] static inline V step(V theta, V g, V* state, const Coefficients& c) {
    state[0] = c.momentum * state[0] + g;
    return theta - c.lr * state[0];
  }

  double momentum, dampening;
};

}  // namespace leashed
