#include "leashed/kernels/spatial_maximum.h"
#include "leashed/kernels/spatial_outputs.h"
#include "leashed/kernels/spatial_parts.h"

namespace leashed {
namespace {

// Where filters [f, f + F) of a pooled output go.
template <int F>
LEASHED_INLINE void store_pooled(const PoolShape& p, Index f, Index y, Index x,
                                 const Maximum (&best)[F], float* out, std::uint8_t* position) {
  const Index height = p.out_height, width = p.out_width;
#pragma GCC unroll 24
  for (int t = 0; t < F; ++t) {
    const Index at = (((f + t) * height + y) * width + x) * kStep;
    vstore(out + at, best[t].value);
    store_positions(position + at, best[t].position);
  }
}

// One pooled output of any window and any part of the image: convolution after convolution.
template <int F>
__attribute__((noinline)) void pool_one(const ConvShape& s, const PoolShape& p,
                                        const Correlation& k, const float* w, const float* b,
                                        const float* in, Index f, Index y, Index x, float* out,
                                        std::uint8_t* position) {
  const Index size = p.size, stride = p.stride;
  Maximum best[F];
  for (Index i = 0; i < size; ++i) {
    for (Index j = 0; j < size; ++j) {
      vfloat acc[F][1];
      for (int t = 0; t < F; ++t) acc[t][0] = vset(b[f + t]);
      const Index cy = y * stride + i, cx = x * stride + j;
      correlate<0, Steps::kAny, F, 1, 1>(k, taps_inside(s, cy, cx), w + f * k.w_tile,
                                         tap_origin(s, in, cy, cx), acc);
      for (int t = 0; t < F; ++t) best[t].take(acc[t][0], static_cast<std::int32_t>(i * size + j));
    }
  }
  for (Maximum& maximum : best) maximum.rectify();
  store_pooled<F>(p, f, y, x, best, out, position);
}

// Filters in a tile of 2 × 2 outputs each; with AVX2's 16 registers two run faster where the inputs
// of a whole kernel row then stay in registers.
template <int K>
constexpr int kPooledFilters = kTile == 12 && K == 3 ? 2 : kTile / 4;

// Windows of 2 × 2, where their four convolutions see the whole kernel: one tile of registers. The
// result is NaN where NaN or infinity came up; then some maxima may be wrong.
template <int K, Steps S>
vfloat pool_squares(const ConvShape& s, const PoolShape& p, const Correlation& k, const float* w,
                    const float* b, const float* in, float* out, std::uint8_t* position) {
  const Index out_height = p.out_height, out_width = p.out_width, stride = p.stride;
  const Span rows = whole_outputs(s.stride, s.padding, s.height, s.kernel_h, s.out_height);
  const Span columns = whole_outputs(s.stride, s.padding, s.width, s.kernel_w, s.out_width);
  const Taps whole = {0, static_cast<Index>(s.kernel_h), 0, static_cast<Index>(s.kernel_w)};
  vfloat suspect = {};
  in_parts<kPooledFilters<K>>(s.filters, [&]<int F>(Index f) {
    for (Index y = 0; y < out_height; ++y) {
      const bool inside = y * stride >= rows.begin && y * stride + 2 <= rows.end;
      for (Index x = 0; x < out_width; ++x) {
        if (!inside || x * stride < columns.begin || x * stride + 2 > columns.end) {
          pool_one<F>(s, p, k, w, b, in, f, y, x, out, position);
          continue;
        }
        vfloat acc[F][4];
#pragma GCC unroll 24
        for (int t = 0; t < F; ++t)
#pragma GCC unroll 24
          for (int i = 0; i < 4; ++i) acc[t][i] = vset(b[f + t]);
        correlate<K, S, F, 2, 2>(k, whole, w + f * k.w_tile,
                                 tap_origin(s, in, y * stride, x * stride), acc);
        Maximum best[F];
#pragma GCC unroll 24
        for (int t = 0; t < F; ++t) best[t] = rectified_maximum(acc[t], suspect);
        store_pooled<F>(p, f, y, x, best, out, position);
      }
    }
  });
  return suspect;
}

}  // namespace

namespace LEASHED_SPATIAL {

void conv_relu_pool_forward(const ConvShape& s, const PoolShape& p, const float* w, const float* b,
                            const float* in, float* out, std::uint8_t* position) {
  const Correlation k = forward_correlation(s);
  if (p.size == 2) {
    vfloat suspect;
    with_kernel<Steps::kForward>(s.stride, s.kernel_w, [&]<int K, Steps S>() {
      suspect = pool_squares<K, S>(s, p, k, w, b, in, out, position);
    });
    bool nan = false;
    for (std::size_t i = 0; i < kLanes; ++i) nan |= suspect[i] != suspect[i];
    if (!nan) return;
  }
  in_parts<kPooledFilters<0>>(s.filters, [&]<int F>(Index f) {
    for (std::size_t y = 0; y < p.out_height; ++y)
      for (std::size_t x = 0; x < p.out_width; ++x)
        pool_one<F>(s, p, k, w, b, in, f, y, x, out, position);
  });
}

}  // namespace LEASHED_SPATIAL
}  // namespace leashed
