// The float32 multiply-add rate of one core at an instruction-set level, and measuring work against
// it: both run in turns of about a millisecond, because what a virtual CPU gives changes from one
// moment to the next.
#pragma once

#include <algorithm>
#include <cstddef>
#include <functional>
#include <vector>

#include "leashed/base/clock.h"
#include "leashed/base/isa.h"

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
};

inline double median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + static_cast<long>(values.size() / 2),
                   values.end());
  return values[values.size() / 2];
}

// Runs `work` of `flops` FLOPs for `seconds`, in turns with the ceiling, on the thread's own clock:
// on a shared machine the time it waited for a CPU says nothing about its kernels.
inline Rate measure(leashed::Isa isa, const std::function<void()>& work, double flops,
                    double seconds) {
  const auto timed = [](const auto& f) {
    const double start = leashed::thread_seconds();
    f();
    return leashed::thread_seconds() - start;
  };
  work();
  const auto repeats = std::max<std::size_t>(1, static_cast<std::size_t>(1e-3 / timed(work)));
  std::vector<double> rates, ceilings, ratios;
  for (const double start = leashed::now(); leashed::now() - start < seconds;) {
    double done = 0;
    const double ceiling_time = timed([&] { done = multiply_adds(isa, 100000); });
    const double time = timed([&] {
      for (std::size_t i = 0; i < repeats; ++i) work();
    });
    rates.push_back(flops * static_cast<double>(repeats) / time * 1e-9);
    ceilings.push_back(done / ceiling_time * 1e-9);
    ratios.push_back(rates.back() / ceilings.back());
  }
  return {median(rates), median(ceilings), median(ratios)};
}

}  // namespace bench
