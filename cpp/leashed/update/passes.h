// The fused passes of the update rules: one pass over theta, gradient and state per update. Each
// rule's formula is written once (rules.h); here is what it is instantiated to.
#pragma once

#include <cstddef>

#include "leashed/base/isa.h"
#include "leashed/update/coefficients.h"

namespace leashed {

// A rule by its place in the list of rules.h. Whoever needs no formula does without the list, so
// that a change of one compiles little.
enum class Arithmetic : std::size_t {};

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
  std::size_t states, squares;

  Pass operator()(Mode mode, bool measure, const Coefficients& c) const {
    return (c.bare() ? bare : full)[measure][static_cast<std::size_t>(mode)];
  }
};

struct PassTable {
  const RulePasses* rules;
  const RulePasses& operator[](Arithmetic a) const { return rules[static_cast<std::size_t>(a)]; }
};

const PassTable& pass_table(Isa isa = default_isa());

}  // namespace leashed
