// The fused passes of the update rules: one pass over theta, gradient and state per update. Each
// rule's arithmetic is written once (kernels/arithmetic.h); here is what it is instantiated to.
#pragma once

#include <cstddef>
#include <limits>

#include "leashed/base/isa.h"

namespace leashed {

enum class Arithmetic : std::size_t { sgd, momentum, nesterov, adagrad, rmsprop, adam };
inline constexpr std::size_t kArithmetics = 6;

// The numbers of one update, the same for all parameters. ĝ = scale · clamp(g, ±clip) + coupled · θ
// is the gradient that a rule sees, shrink · θ the parameter that it changes. A rule that
// accumulates squares sees keep · v of its last state.
struct Coefficients {
  float scale = 1;  // of the gradient: clipping by norm, staleness
  float lr = 0;     // η; what else arithmetic.h says
  float momentum = 0;
  float add1 = 0, add2 = 0;  // weight of what is new in the first and the second moment
  float epsilon = 0;
  // The bare passes take these to be as they are here.
  float clip = std::numeric_limits<float>::infinity();  // by value
  float coupled = 0;                                    // weight decay added to the gradient
  float shrink = 1;  // weight decay apart from the gradient: 1 − ηλ
  float keep = 1;    // SWAP's λ

  bool bare() const {
    return clip == std::numeric_limits<float>::infinity() && coupled == 0 && shrink == 1 &&
           keep == 1;
  }
};

// next[i] from current[i] and gradient[i] for i in [begin, end), state k being at i + (k + 1) ·
// stride; next may be current. Returns Σ (next[i] − current[i])² over theta where it measures,
// else 0.
using Pass = double (*)(float* next, const float* current, std::size_t stride,
                        const float* gradient, std::size_t begin, std::size_t end,
                        const Coefficients& coefficients);

// How a pass writes: through the caches or past them (stores.h), and in a buffer that others read
// and write meanwhile (racy, in place) or not.
enum class Mode : std::size_t { cached, streamed, racy, racy_streamed };
inline constexpr std::size_t kModes = 4;
constexpr bool races(Mode mode) { return mode == Mode::racy || mode == Mode::racy_streamed; }
constexpr bool streams(Mode mode) { return mode == Mode::streamed || mode == Mode::racy_streamed; }

struct RulePasses {
  // By whether they measure and by mode. In the second-level cache the bare ones are faster.
  Pass bare[2][kModes], full[2][kModes];
  std::size_t states;

  Pass operator()(Mode mode, bool measure, const Coefficients& c) const {
    return (c.bare() ? bare : full)[measure][static_cast<std::size_t>(mode)];
  }
};

struct PassTable {
  RulePasses rules[kArithmetics];
  const RulePasses& operator[](Arithmetic a) const { return rules[static_cast<std::size_t>(a)]; }
};

const PassTable& pass_table(Isa isa = default_isa());

}  // namespace leashed
