// The float32 multiply-add rate of a core at an instruction-set level, and measuring one thread's
// work against it.
#pragma once

#include <cstddef>

#include "leashed/base/isa.h"
#include "turns.h"

namespace bench {

// 12 independent chains of multiply-adds for `rounds` rounds; returns the FLOPs done. The volatile
// variable keeps the compiler from knowing or dropping the result.
template <class Vector>
__attribute__((always_inline)) inline double multiply_adds(std::size_t rounds) {
  static volatile float source = 0.999f;
  const Vector factor = source - Vector{};
  Vector sums[12] = {};
  for (std::size_t i = 0; i < rounds; ++i) {
#pragma GCC unroll 12
    for (int j = 0; j < 12; ++j) {
      sums[j] = sums[j] * factor + factor;
#if defined(__x86_64__)
      asm("" : "+v"(sums[j]));  // nothing is folded over rounds
#endif
    }
  }
  Vector total = {};
#pragma GCC unroll 12
  for (int j = 0; j < 12; ++j) total += sums[j];
  source = source + 0 * total[0];
  return static_cast<double>(rounds) * 12 * 2 * (sizeof(Vector) / sizeof(float));
}

typedef float Float4 __attribute__((vector_size(16)));
__attribute__((noinline)) inline double multiply_adds_base(std::size_t rounds) {
  return multiply_adds<Float4>(rounds);
}
#if defined(__x86_64__)
typedef float Float8 __attribute__((vector_size(32)));
typedef float Float16 __attribute__((vector_size(64)));
__attribute__((target("arch=x86-64-v4"))) inline double multiply_adds_v4(std::size_t rounds) {
  return multiply_adds<Float16>(rounds);
}
__attribute__((target("arch=x86-64-v3"))) inline double multiply_adds_v3(std::size_t rounds) {
  return multiply_adds<Float8>(rounds);
}
#endif

// Multiply-adds at that level; v2 has none and multiplies, then adds.
inline double multiply_adds(leashed::Isa isa, std::size_t rounds) {
#if defined(__x86_64__)
  if (isa == leashed::Isa::v4) return multiply_adds_v4(rounds);
  if (isa == leashed::Isa::v3) return multiply_adds_v3(rounds);
#endif
  static_cast<void>(isa);
  return multiply_adds_base(rounds);
}

struct Rate {
  double gflops, ceiling, ratio;  // medians; the ratio is the median of each turn's
  double cpu_share;
};

// Runs `work` of `flops` FLOPs for `seconds`, in turns with the ceiling.
inline Rate measure(leashed::Isa isa, const Work& work, double flops, double seconds) {
  constexpr std::size_t kRounds = 100000;
  const double ceiling_flops = multiply_adds(isa, 1) * kRounds;
  const Turns turns = take_turns({[isa] { multiply_adds(isa, kRounds); }, work}, seconds);
  return {flops / turns.median_seconds(1) * 1e-9, ceiling_flops / turns.median_seconds(0) * 1e-9,
          flops / ceiling_flops * turns.median_ratio(0, 1), turns.cpu_share};
}

}  // namespace bench
