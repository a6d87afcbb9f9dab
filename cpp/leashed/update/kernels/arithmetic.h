// The arithmetic of each update rule: theta, the gradient ĝ, the rule's states and the update's
// coefficients in, theta and states out, for a vector of parameters. The order of operations is
// that of torch.optim, so that results agree to float32 rounding.
// Where two products are added, one is rounded() first: else the compiler chooses which of them it
// fuses with the addition, and might choose differently from one pass to the next.
#pragma once

#include "leashed/base/simd.h"
#include "leashed/update/passes.h"

namespace leashed {
namespace {

// θ ← θ − η ĝ (leashed-sgd, eq. 1).
struct SgdArithmetic {
  static constexpr std::size_t kStates = 0;
  LEASHED_INLINE vfloat step(vfloat theta, vfloat g, vfloat*, const Coefficients& c) {
    return theta - c.lr * g;
  }
};

// b ← μ b + ĝ, θ ← θ − η b.
struct MomentumArithmetic {
  static constexpr std::size_t kStates = 1;
  LEASHED_INLINE vfloat step(vfloat theta, vfloat g, vfloat* state, const Coefficients& c) {
    state[0] = c.momentum * state[0] + g;
    return theta - c.lr * state[0];
  }
};

// b ← μ b + ĝ, θ ← θ − η (ĝ + μ b).
struct NesterovArithmetic {
  static constexpr std::size_t kStates = 1;
  LEASHED_INLINE vfloat step(vfloat theta, vfloat g, vfloat* state, const Coefficients& c) {
    state[0] = c.momentum * state[0] + g;
    return theta - c.lr * (g + c.momentum * state[0]);
  }
};

// v ← keep v + ĝ², θ ← θ − η ĝ / (√v + ε); keep is 1, or SWAP's λ₀ at the end of a period.
struct AdagradArithmetic {
  static constexpr std::size_t kStates = 1;
  LEASHED_INLINE vfloat step(vfloat theta, vfloat g, vfloat* state, const Coefficients& c) {
    state[0] = c.keep2 * state[0] + rounded(g * g);
    return theta - c.lr * g * inverse(root(state[0]) + c.epsilon);
  }
};

// v ← ρ v + (1 − ρ) ĝ², θ ← θ − η ĝ / (√v + ε).
struct RmspropArithmetic {
  static constexpr std::size_t kStates = 1;
  LEASHED_INLINE vfloat step(vfloat theta, vfloat g, vfloat* state, const Coefficients& c) {
    state[0] = rounded(c.keep2 * state[0]) + c.add2 * (g * g);
    return theta - c.lr * g * inverse(root(state[0]) + c.epsilon);
  }
};

// m ← m + (1 − β₁)(ĝ − m), v ← β₂ v + (1 − β₂) ĝ²,
// θ ← θ − η / (1 − β₁ᵗ) · m / (√v / √(1 − β₂ᵗ) + ε).
struct AdamArithmetic {
  static constexpr std::size_t kStates = 2;
  LEASHED_INLINE vfloat step(vfloat theta, vfloat g, vfloat* state, const Coefficients& c) {
    state[0] = state[0] + c.add1 * (g - state[0]);
    state[1] = rounded(c.keep2 * state[1]) + c.add2 * (g * g);
    return theta - c.lr * state[0] * inverse(root(state[1]) * c.correction + c.epsilon);
  }
};

}  // namespace
}  // namespace leashed
