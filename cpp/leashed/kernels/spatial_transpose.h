// In-register transposition, and sums over the images of a block, which rest on it.
#pragma once

#include "leashed/base/simd.h"

namespace leashed {
namespace {

// Exchanges the off-diagonal blocks of size S of every 2S × 2S block, for S = Half, Half / 2 … 1.
template <int S>
LEASHED_INLINE void transpose_blocks(vfloat (&m)[kLanes]) {
  vint upper, lower;
#pragma GCC unroll 16
  for (int l = 0; l < int{kLanes}; ++l) {
    upper[l] = l & S ? int{kLanes} + l - S : l;
    lower[l] = l & S ? int{kLanes} + l : l + S;
  }
#pragma GCC unroll 16
  for (int i = 0; i < int{kLanes}; ++i) {
    if (i & S) continue;
    const vfloat a = m[i], b = m[i + S];
    m[i] = __builtin_shuffle(a, b, upper);
    m[i + S] = __builtin_shuffle(a, b, lower);
  }
  if constexpr (S > 1) transpose_blocks<S / 2>(m);
}
LEASHED_INLINE void transpose(vfloat (&m)[kLanes]) { transpose_blocks<kLanes / 2>(m); }

// to[i] += the sum of the lanes of from[i], i < n.
inline void add_lane_sums(const float* from, std::size_t n, float* to) {
  std::size_t first = 0;
  for (; first + kLanes <= n; first += kLanes) {
    vfloat m[kLanes];
#pragma GCC unroll 16
    for (std::size_t i = 0; i < kLanes; ++i) m[i] = vload(from + (first + i) * kLanes);
    transpose(m);
#pragma GCC unroll 16
    for (std::size_t half = kLanes / 2; half > 0; half /= 2)
#pragma GCC unroll 16
      for (std::size_t i = 0; i < half; ++i) m[i] += m[i + half];
    vstore(to + first, vload(to + first) + m[0]);
  }
  for (; first < n; ++first) {
    float sum = 0;
    for (std::size_t i = 0; i < kLanes; ++i) sum += from[first * kLanes + i];
    to[first] += sum;
  }
}

}  // namespace
}  // namespace leashed
