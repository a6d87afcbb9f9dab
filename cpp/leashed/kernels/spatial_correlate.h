// The heart of the convolution kernels: a tile of outputs held in registers while the sum over
// channels and kernel taps runs. Forward and backward-to-input are both this sum, with other steps.
#pragma once

#include <cstddef>

#include "leashed/base/simd.h"

namespace leashed {
namespace {

using Index = std::ptrdiff_t;

// Of any two whole numbers, such as a literal 0 and an Index.
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
// Filters (or channels) in a tile, at most.
inline constexpr int kTileFilters = kTile == 24 ? 8 : 4;

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

// How the inputs of neighbouring outputs and taps lie where that is known: one next to the other in
// the same direction (convolution with stride 1), in opposite directions (its gradient), anyhow.
enum class Steps { kForward, kBackward, kAny };

// acc[t][y * X + x] += the sum above, where K columns of taps are known to lie inside (K = 0: those
// in `taps`). With known steps, w_tap = 1, w_row = K and in_y = in_row, and the compiler turns most
// addresses into constants.
template <int K, Steps S, int T, int Y, int X>
LEASHED_INLINE void correlate(const Correlation& k, const Taps& taps, const float* w,
                              const float* in, vfloat (&acc)[T][Y * X]) {
  const Index in_x = S == Steps::kAny ? k.in_x : Index{kLanes};
  const Index in_tap = S == Steps::kAny ? k.in_tap : S == Steps::kForward ? in_x : -in_x;
  const Index in_y = S == Steps::kAny ? k.in_y : k.in_row;
  const Index w_tap = S == Steps::kAny ? k.w_tap : 1;
  const Index w_row = S == Steps::kAny ? k.w_row : K;
  for (Index channel = 0; channel < k.channels; ++channel) {
    const float* w_at = w + channel * k.w_channel + taps.y0 * w_row;
    const float* in_at = in + channel * k.in_channel + taps.y0 * k.in_row;
    for (Index i = taps.y0; i < taps.y1; ++i, w_at += w_row, in_at += k.in_row) {
      const auto tap = [&](Index j) __attribute__((always_inline)) {
        vfloat value[Y * X];
#pragma GCC unroll 24
        for (int p = 0; p < Y * X; ++p)
          value[p] = vload(in_at + j * in_tap + p / X * in_y + p % X * in_x);
#pragma GCC unroll 24
        for (int t = 0; t < T; ++t) {
          const vfloat weight = vset(w_at[t * k.w_tile + j * w_tap]);
#pragma GCC unroll 24
          for (int p = 0; p < Y * X; ++p) acc[t][p] += weight * value[p];
        }
      };
      if constexpr (K > 0) {
#pragma GCC unroll 5
        for (Index j = 0; j < K; ++j) tap(j);
      } else {
#pragma GCC unroll 1
        for (Index j = taps.x0; j < taps.x1; ++j) tap(j);
      }
    }
  }
}

// Calls body.operator()<K, steps>() with K the width of the kernel and the known steps where both
// are common, else with 0 and kAny.
template <Steps Known, class Body>
LEASHED_INLINE void with_kernel(Index stride, Index kernel_w, Body&& body) {
  if (stride == 1 && kernel_w == 3) {
    body.template operator()<3, Known>();
  } else if (stride == 1 && kernel_w == 5) {
    body.template operator()<5, Known>();
  } else {
    body.template operator()<0, Steps::kAny>();
  }
}

// Calls body.operator()<N>() for N = n, where n is a size that in_parts<Max> uses.
template <int Max, int N, class Body>
LEASHED_INLINE void with_count(Index n, Body&& body) {
  if constexpr (N > 1) {
    if (n < N) return with_count<Max, N - 1>(n, body);
  }
  if constexpr (N == Max || (N != 5 && N != 7)) body.template operator()<N>();
}

// Splits [0, n) into as few parts of at most Max as possible, of sizes as equal as possible, and
// calls body.operator()<size>(begin) for each. To keep the code small, 5 and 7 are only used as
// Max.
template <int Max, class Body>
LEASHED_INLINE void in_parts(Index n, Body&& body) {
  for (Index begin = 0; begin < n;) {
    const Index parts = (n - begin + Max - 1) / Max;
    Index size = (n - begin + parts - 1) / parts;
    if (size < Max && (size == 5 || size == 7)) size = 4;
    with_count<Max, Max>(size, [&]<int Size>() { body.template operator()<Size>(begin); });
    begin += size;
  }
}

// One row of outputs x = 0..n: calls inside.operator()<X>(x) for tiles of X outputs in
// [begin, end), where they see every column of the kernel (the last tile may overlap the one before
// it), and outside(x) for the others.
template <int X, class Inside, class Outside>
LEASHED_INLINE void across_row(Index n, Index begin, Index end, Inside&& inside,
                               Outside&& outside) {
  if (end - begin < X) end = begin = 0;
  for (Index x = 0; x < begin; ++x) outside(x);
  for (Index x = begin; x < end; x += X) inside.template operator()<X>(min(x, end - X));
  for (Index x = end; x < n; ++x) outside(x);
}

}  // namespace
}  // namespace leashed
