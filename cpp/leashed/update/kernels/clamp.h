#pragma once

#include "leashed/base/simd.h"

namespace leashed {
namespace {

typedef double vdouble __attribute__((vector_size(kLanes * sizeof(double))));

// g within ±limit. NaN goes through: it is the second operand that both selections give then.
template <class V>
LEASHED_INLINE V clamp(V g, V limit) {
  const V low = -limit;
  g = low > g ? low : g;
  return limit < g ? limit : g;
}

}  // namespace
}  // namespace leashed
