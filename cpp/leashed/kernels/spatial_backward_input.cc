#include "leashed/kernels/spatial_outputs.h"
#include "leashed/kernels/spatial_parts.h"

namespace leashed {
namespace LEASHED_SPATIAL {

// Inputs (Y, X) with (Y + padding) mod stride = phase_y, (X + padding) mod stride = phase_x are
// reached by the taps phase_y + i · stride, phase_x + j · stride, from outputs (q_y − i, q_x −
// j): for each pair of phases a correlation whose input steps go backwards.
void conv_backward_input(const ConvShape& s, const float* w, const float* d_out, float* d_in) {
  const Index stride = s.stride, padding = s.padding, height = s.height, width = s.width;
  const Index out_height = s.out_height, out_width = s.out_width;
  const Index kernel_h = s.kernel_h, kernel_w = s.kernel_w;
  Correlation k;
  k.channels = s.filters;
  k.in_channel = out_height * out_width * kStep;
  k.in_row = -out_width * kStep;
  k.in_tap = -kStep;
  k.in_y = out_width * kStep;
  k.in_x = kStep;
  k.w_tile = kernel_h * kernel_w;
  k.w_channel = s.channels * s.kernel_h * s.kernel_w;
  k.w_row = stride * kernel_w;
  k.w_tap = stride;
  const auto taps_of = [&](Index phase, Index kernel) {
    return phase < kernel ? (kernel - phase + stride - 1) / stride : 0;
  };
  // The first coordinate inside the image with that phase.
  const auto first_of = [&](Index phase) { return (phase - padding % stride + stride) % stride; };
  in_parts<kTileFilters>(s.channels, [&]<int C>(Index c) {
    for (Index phase_y = 0; phase_y < stride; ++phase_y) {
      const Index taps_y = taps_of(phase_y, kernel_h);
      for (Index phase_x = 0; phase_x < stride; ++phase_x) {
        const Index taps_x = taps_of(phase_x, kernel_w);
        const Index x0 = first_of(phase_x), q_x0 = (x0 + padding - phase_x) / stride;
        const Index columns = x0 < width ? (width - x0 + stride - 1) / stride : 0;
        const Index begin = max(0, taps_x - 1 - q_x0), end = min(columns, out_width - q_x0);
        const float* w_phase = w + c * k.w_tile + phase_y * kernel_w + phase_x;
        for (Index row = first_of(phase_y); row < height; row += stride) {
          const Index q_y = (row + padding - phase_y) / stride;
          const Index tap_begin = max(0, q_y - out_height + 1), tap_end = min(taps_y, q_y + 1);
          const auto tile = [&]<int K, Steps S, int X>(Index column) {
            const Index q_x = q_x0 + column;
            const Taps taps = {tap_begin, tap_end, max(0, q_x - out_width + 1),
                               min(taps_x, q_x + 1)};
            vfloat acc[C][X] = {};
            correlate<K, S, C, 1, X>(k, taps, w_phase, d_out + (q_y * out_width + q_x) * kStep,
                                     acc);
#pragma GCC unroll 24
            for (int i = 0; i < C; ++i)
#pragma GCC unroll 24
              for (int j = 0; j < X; ++j)
                vstore(
                    d_in + (((c + i) * height + row) * width + x0 + (column + j) * stride) * kStep,
                    acc[i][j]);
          };
          const auto outside = [&](Index column) __attribute__((noinline)) {
            tile.template operator()<0, Steps::kAny, 1>(column);
          };
          with_kernel<Steps::kBackward>(stride, kernel_w, [&]<int K, Steps S>() {
            across_row<kTile / C>(
                columns, begin, end,
                [&]<int X>(Index column) { tile.template operator()<K, S, X>(column); }, outside);
          });
        }
      }
    }
  });
}

}  // namespace LEASHED_SPATIAL
}  // namespace leashed
