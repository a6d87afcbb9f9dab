// The heart of the convolution kernels: a tile of outputs held in registers while the sum over
// channels and kernel taps runs. Forward and backward-to-input are both this sum, with other steps.
// Part of spatial.cc.
#pragma once

#include <cstddef>

#include "leashed/base/simd.h"

namespace leashed {
namespace {

using Index = std::ptrdiff_t;

// std::min and std::max would be functions with external linkage.
LEASHED_INLINE Index min(Index a, Index b) { return b < a ? b : a; }
LEASHED_INLINE Index max(Index a, Index b) { return a < b ? b : a; }

// Accumulators of one tile: as many as registers allow beside the inputs and one weight.
#if defined(__AVX512F__) || defined(__aarch64__)
inline constexpr int kTile = 24;
#elif defined(__AVX2__)
inline constexpr int kTile = 12;
#else
inline constexpr int kTile = 8;
#endif

// out[t, y, x] = Σ over channel, i, j of w[t, channel, i, j] · in[channel, y, x, i, j], where every
// index moves by its own step, in floats.
struct Correlation {
  Index channels;
  Index in_channel, in_row, in_tap;  // per channel, kernel row, kernel column
  Index in_y, in_x;                  // from one output to the next
  Index w_tile, w_channel, w_row, w_tap;
};

// The part of the kernel that lies inside the image: rows [y0, y1), columns [x0, x1).
struct Taps {
  Index y0, y1, x0, x1;
};

// acc[t][y * X + x] += the sum above. KW is the number of kernel columns where it is known (then
// x0 = 0 and x1 = KW), else 0.
template <int T, int Y, int X, int KW>
LEASHED_INLINE void correlate(const Correlation& k, const Taps& taps, const float* w,
                              const float* in, vfloat (&acc)[T][Y * X]) {
  const Index x1 = KW ? KW : taps.x1;
  for (Index channel = 0; channel < k.channels; ++channel) {
    for (Index i = taps.y0; i < taps.y1; ++i) {
      const float* w_row = w + channel * k.w_channel + i * k.w_row;
      const float* in_row = in + channel * k.in_channel + i * k.in_row;
#pragma GCC unroll 5
      for (Index j = KW ? 0 : taps.x0; j < x1; ++j) {
        vfloat value[Y * X];
#pragma GCC unroll 24
        for (int p = 0; p < Y * X; ++p)
          value[p] = vload(in_row + j * k.in_tap + p / X * k.in_y + p % X * k.in_x);
#pragma GCC unroll 24
        for (int t = 0; t < T; ++t) {
          const vfloat weight = vset(w_row[t * k.w_tile + j * k.w_tap]);
#pragma GCC unroll 24
          for (int p = 0; p < Y * X; ++p) acc[t][p] += weight * value[p];
        }
      }
    }
  }
}

// The same for any width of the kernel, with the common ones unrolled.
template <int T, int Y, int X>
LEASHED_INLINE void correlate_any(const Correlation& k, const Taps& taps, const float* w,
                                  const float* in, vfloat (&acc)[T][Y * X]) {
  if (taps.x0 == 0 && taps.x1 == 3) {
    correlate<T, Y, X, 3>(k, taps, w, in, acc);
  } else if (taps.x0 == 0 && taps.x1 == 5) {
    correlate<T, Y, X, 5>(k, taps, w, in, acc);
  } else {
    correlate<T, Y, X, 0>(k, taps, w, in, acc);
  }
}

// Calls body.operator()<N>() for N = n, 1 <= n <= Max.
template <int Max, class Body>
LEASHED_INLINE void with_count(Index n, Body&& body) {
  if constexpr (Max > 1) {
    if (n < Max) return with_count<Max - 1>(n, body);
  }
  body.template operator()<Max>();
}

// Splits [0, n) into as few parts of at most Max as possible, of sizes as equal as possible, and
// calls body.operator()<size>(begin) for each.
template <int Max, class Body>
LEASHED_INLINE void in_parts(Index n, Body&& body) {
  const Index parts = (n + Max - 1) / Max;
  for (Index part = 0; part < parts; ++part) {
    const Index begin = n * part / parts, end = n * (part + 1) / parts;
    with_count<Max>(end - begin, [&]<int Size>() { body.template operator()<Size>(begin); });
  }
}

// One row of outputs x = 0..n, where those in [inner_begin, inner_end) see the whole kernel:
// calls body.operator()<X>(x) for tiles of X outputs inside (the last may overlap the one before),
// and of one output elsewhere.
template <int X, class Body>
LEASHED_INLINE void across_row(Index n, Index inner_begin, Index inner_end, Body&& body) {
  if (inner_end - inner_begin < X) inner_end = inner_begin = 0;
  for (Index x = 0; x < inner_begin; ++x) body.template operator()<1>(x);
  for (Index x = inner_begin; x < inner_end; x += X)
    body.template operator()<X>(min(x, inner_end - X));
  for (Index x = inner_end; x < n; ++x) body.template operator()<1>(x);
}

}  // namespace
}  // namespace leashed
