// FTRL-Proximal (McMahan et al., "Ad click prediction: a view from the trenches", 2013): with
// z ← z + ĝ − σθ, σ = (√(n + ĝ²) − √n) / α, n ← n + ĝ² and D = (β + √n) / α + λ₂,
// θ = 0 where |z| ≤ λ₁, else −(z − sign(z) λ₁) / D.
//
// z grows for ever, and says of a θ to begin with that it is forgotten. Kept in its place is
// s = z + Dθ, which is z clamped to ±λ₁ and 0 at first, so that θ begins where it is given:
// u = s + ĝ − Dθ with the new D, s ← clamp(u, ±λ₁), θ ← θ − (ĝ + s_before − s) / D.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>

#include "leashed/base/choice.h"
#include "leashed/update/coefficients.h"

namespace leashed {

struct Ftrl {
  static constexpr const char* kName = "ftrl";
  static constexpr std::size_t kStates = 2;   // s, n
  static constexpr std::size_t kSquares = 0;  // n is the scale that s is of
  static constexpr bool kKeepsUntouched = false;

  explicit Ftrl(const Choice& c) : l1(c["l1"]), l2(c["l2"]), beta(c["beta"]) {}
  float initial_state() const { return 0; }

  void coefficients(double lr, std::uint64_t, Coefficients& c) const {
    constexpr double kLargest = std::numeric_limits<float>::max();
    c.step = static_cast<float>(lr > 0 ? std::min(1 / lr, kLargest) : kLargest);
    c.add1 = static_cast<float>(l1);
    c.epsilon = static_cast<float>(beta + lr * l2);  // αD = √n + this
  }

  template <class Math, class V>
  [[gnu::always_inline]] static inline V step(V theta, V g, V* state, const Coefficients& c) {
    const V zero = {}, most = zero + c.add1, least = -most;
    const V pull = g + state[0];
    state[1] = g * g + state[1];
    const V own = Math::finite((Math::root(state[1]) + c.epsilon) * c.step) * theta;
    const V u = pull - Math::rounded(own);
    state[0] = u > most ? most : u < least ? least : u;
    const V next = theta - Math::over_root(c.lr, pull - state[0], state[1], c.epsilon);
    return (u <= most) & (u >= least) ? zero : next;
  }

  double l1, l2, beta;
};

}  // namespace leashed
