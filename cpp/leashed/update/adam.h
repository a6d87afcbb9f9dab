// Adam, and AdamW where weight decay is decoupled: m ← β₁ m + (1 − β₁) ĝ, v ← β₂ v + (1 − β₂) ĝ²,
// θ ← θ − η m̂ / (√v̂ + ε) with m̂ = m / (1 − β₁ⁿ), v̂ = v / (1 − β₂ⁿ), n updates with this one. With
// SWAP v is decayed; m, a mean of the last few gradients, is not.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>

#include "leashed/base/choice.h"
#include "leashed/update/coefficients.h"

namespace leashed {

struct Adam {
  static constexpr const char* kName = "adam";
  static constexpr std::size_t kStates = 2;  // m, v
  static constexpr std::size_t kSquares = 1;
  static constexpr bool kKeepsUntouched = false;
  static constexpr float kSlack = 0.9f;  // for rounding: what one thread has made is never mended

  explicit Adam(const Choice& c) : beta1(c["beta1"]), beta2(c["beta2"]), epsilon(c["eps"]) {}
  float initial_state() const { return 0; }

  // The corrections of both moments are in the step, that of v in ε as well.
  void coefficients(double lr, std::uint64_t updates, Coefficients& c) const {
    const double n = static_cast<double>(updates) + 1;
    const double root_of_correction = std::sqrt(1 - std::pow(beta2, n));
    c.step = static_cast<float>(lr * root_of_correction / (1 - std::pow(beta1, n)));
    c.add1 = static_cast<float>(1 - beta1);
    c.add2 = static_cast<float>(1 - beta2);
    c.epsilon = static_cast<float>(epsilon * root_of_correction);
  }

  // Of two threads' moments, m of one that was first to have a gradient and v of one before it, or
  // the other's: m / (√0 + ε) would be a step of any length. By Cauchy and Schwarz
  // m² ≤ v · (1 − β₁)² / (1 − β₂) · Σ (β₁²/β₂)ⁱ, whatever the gradients, where β₁² < β₂ and nobody
  // makes v less.
  template <class Math, class V>
  [[gnu::always_inline]] static inline void mend(V* state, const Coefficients& c) {
    const float left = 1 - c.add2 - (1 - c.add1) * (1 - c.add1);  // β₂ − β₁²
    const float least = kSlack * c.add2 * left / ((1 - c.add2) * c.add1 * c.add1);
    state[1] = Math::larger(state[1], (left > 0 && !c.swaps ? least : 0) * state[0] * state[0]);
  }

  template <class Math, class V>
  [[gnu::always_inline]] static inline V step(V theta, V g, V* state, const Coefficients& c) {
    state[0] = state[0] + c.add1 * (g - state[0]);
    state[1] = Math::mean_of_squares(state[1], g, c.add2);
    return theta - Math::over_root(c.step, state[0], state[1], c.epsilon);
  }

  double beta1, beta2, epsilon;
};

}  // namespace leashed
