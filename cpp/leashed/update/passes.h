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
// is the gradient that a rule sees, shrink · θ the parameter that it changes.
struct Coefficients {
  float scale = 1;  // of the gradient: clipping by norm, staleness
  float clip = std::numeric_limits<float>::infinity();  // by value
  float coupled = 0;                                    // weight decay added to the gradient
  float shrink = 1;  // weight decay apart from the gradient: 1 − ηλ
  float lr = 0;      // η; Adam: with the first moment's bias correction
  float momentum = 0;
  float add1 = 0;             // first moment: m ← m + add1 · (ĝ − m)
  float keep2 = 0, add2 = 0;  // squares: v ← keep2 · v + add2 · ĝ²
  float correction = 0;       // of √v
  float epsilon = 0;
};

// next[i] from current[i] and gradient[i] for i in [begin, end), state k being at i + (k + 1) ·
// stride; next may be current. Returns Σ (next[i] − current[i])² over theta where it measures,
// else 0.
using Pass = double (*)(float* next, const float* current, std::size_t stride,
                        const float* gradient, std::size_t begin, std::size_t end,
                        const Coefficients& coefficients);

struct RulePasses {
  Pass apply;
  Pass stream;  // past the caches
  Pass racy;    // in place, while others read and write the same floats
  Pass racy_stream;
  Pass measured, measured_stream, measured_racy, measured_racy_stream;
  std::size_t states;
};

struct PassTable {
  RulePasses rules[kArithmetics];
  const RulePasses& operator[](Arithmetic a) const { return rules[static_cast<std::size_t>(a)]; }
};

const PassTable& pass_table(Isa isa = default_isa());

}  // namespace leashed
