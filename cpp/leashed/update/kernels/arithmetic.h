// The arithmetic of each update rule: theta, the gradient ĝ, the rule's states and the update's
// coefficients in, theta and states out, for a vector of parameters. The formulas are those of
// torch.optim, to float32 rounding. Where two products are added, one is rounded() first: else the
// compiler chooses which of them it fuses with the addition, and might choose differently from one
// pass to the next.
//
// Where a step divides by √v + ε, coefficients hold 2η and 2ε (twice_root), and Adam's correction
// of v, which is one of both.
#pragma once

#include "leashed/base/simd.h"
#include "leashed/update/passes.h"

namespace leashed {
namespace {

// θ ← θ − η ĝ (leashed-sgd, eq. 1).
struct SgdArithmetic {
  static constexpr std::size_t kStates = 0;
  static constexpr bool kAccumulates = false;
  LEASHED_INLINE vfloat step(vfloat theta, vfloat g, vfloat*, const Coefficients& c) {
    return theta - c.lr * g;
  }
};

// b ← μ b + ĝ, θ ← θ − η b.
struct MomentumArithmetic {
  static constexpr std::size_t kStates = 1;
  static constexpr bool kAccumulates = false;
  LEASHED_INLINE vfloat step(vfloat theta, vfloat g, vfloat* state, const Coefficients& c) {
    state[0] = c.momentum * state[0] + g;
    return theta - c.lr * state[0];
  }
};

// b ← μ b + ĝ, θ ← θ − η (ĝ + μ b).
struct NesterovArithmetic {
  static constexpr std::size_t kStates = 1;
  static constexpr bool kAccumulates = false;
  LEASHED_INLINE vfloat step(vfloat theta, vfloat g, vfloat* state, const Coefficients& c) {
    state[0] = c.momentum * state[0] + g;
    return theta - c.lr * (g + c.momentum * state[0]);
  }
};

// v ← v + ĝ², θ ← θ − η ĝ / (√v + ε).
struct AdagradArithmetic {
  static constexpr std::size_t kStates = 1;
  static constexpr bool kAccumulates = true;
  LEASHED_INLINE vfloat step(vfloat theta, vfloat g, vfloat* state, const Coefficients& c) {
    state[0] = g * g + state[0];
    return theta - c.lr * g * inverse(twice_root(state[0], c.epsilon));
  }
};

// v ← v + (1 − α)(ĝ² − v), θ ← θ − η ĝ / (√v + ε).
struct RmspropArithmetic {
  static constexpr std::size_t kStates = 1;
  static constexpr bool kAccumulates = true;
  LEASHED_INLINE vfloat step(vfloat theta, vfloat g, vfloat* state, const Coefficients& c) {
    state[0] = state[0] + c.add2 * (g * g - state[0]);
    return theta - c.lr * g * inverse(twice_root(state[0], c.epsilon));
  }
};

// m ← m + (1 − β₁)(ĝ − m), v ← v + (1 − β₂)(ĝ² − v), θ ← θ − η m̂ / (√v̂ + ε).
struct AdamArithmetic {
  static constexpr std::size_t kStates = 2;
  static constexpr bool kAccumulates = true;
  LEASHED_INLINE vfloat step(vfloat theta, vfloat g, vfloat* state, const Coefficients& c) {
    state[0] = state[0] + c.add1 * (g - state[0]);
    state[1] = state[1] + c.add2 * (g * g - state[1]);
    return theta - c.lr * state[0] * inverse(twice_root(state[1], c.epsilon));
  }
};

}  // namespace
}  // namespace leashed
