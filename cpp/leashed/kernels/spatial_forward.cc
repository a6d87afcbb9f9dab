#include "leashed/kernels/spatial_outputs.h"
#include "leashed/kernels/spatial_parts.h"
#include "leashed/kernels/spatial_rectify.h"

namespace leashed {
namespace {

// Filters [f, f + F) at outputs x..x+X of row y.
template <int K, Steps S, int F, int X>
void forward_tile(const ConvShape& s, const Correlation& k, const Taps& taps, const float* w,
                  const float* b, const float* in, float* out, bool rectified, Index f, Index y,
                  Index x) {
  vfloat acc[F][X];
#pragma GCC unroll 24
  for (int i = 0; i < F; ++i)
#pragma GCC unroll 24
    for (int j = 0; j < X; ++j) acc[i][j] = vset(b[f + i]);
  correlate<K, S, F, 1, X>(k, taps, w + f * k.w_tile, tap_origin(s, in, y, x), acc);
  const Index height = s.out_height, width = s.out_width;
#pragma GCC unroll 24
  for (int i = 0; i < F; ++i)
#pragma GCC unroll 24
    for (int j = 0; j < X; ++j)
      vstore(out + (((f + i) * height + y) * width + x + j) * kStep,
             rectified ? relu(acc[i][j]) : acc[i][j]);
}

}  // namespace

namespace LEASHED_SPATIAL {

void conv_forward(const ConvShape& s, const float* w, const float* b, const float* in, float* out,
                  bool rectified) {
  const Correlation k = forward_correlation(s);
  const Index out_width = s.out_width, out_height = s.out_height;
  const Span whole = whole_outputs(s.stride, s.padding, s.width, s.kernel_w, out_width);
  in_parts<kTileFilters>(s.filters, [&]<int F>(Index f) {
    const auto outside = [&](Index y, Index x) {
      forward_tile<0, Steps::kAny, F, 1>(s, k, taps_inside(s, y, x), w, b, in, out, rectified, f, y,
                                         x);
    };
    with_kernel<Steps::kForward>(s.stride, s.kernel_w, [&]<int K, Steps S>() {
      for (Index y = 0; y < out_height; ++y) {
        const Taps taps = taps_inside(s, y, whole.begin);
        across_row<kTile / F>(
            out_width, whole.begin, whole.end,
            [&]<int X>(Index x) {
              forward_tile<K, S, F, X>(s, k, taps, w, b, in, out, rectified, f, y, x);
            },
            [&](Index x) { outside(y, x); });
      }
    });
  });
}

}  // namespace LEASHED_SPATIAL
}  // namespace leashed
