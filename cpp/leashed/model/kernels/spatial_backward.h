// Gradients of a convolution from the gradient of its output. Part of spatial.cc.
#pragma once

#include "leashed/model/kernels/spatial_correlate.h"
#include "leashed/model/kernels/spatial_forward.h"
#include "leashed/model/kernels/spatial_transpose.h"

namespace leashed {
namespace {

std::size_t conv_scratch(const ConvShape& s) {
  return s.filters * (s.channels * s.kernel_h * s.kernel_w + 1) * kLanes;
}

// Along one axis: the outputs [begin, end) whose tap `tap` lies inside the image.
LEASHED_INLINE Span outputs_with_tap(Index tap, Index stride, Index padding, Index size,
                                     Index outputs) {
  const Index begin = max(0, (padding - tap + stride - 1) / stride);
  const Index room = size - 1 + padding - tap;
  const Index end = room < 0 ? 0 : min(outputs, room / stride + 1);
  return {begin, max(begin, end)};
}

// sums[f][taps kx..kx+T of kernel row ky, channel c] over all positions, for F filters, held in
// registers throughout.
template <int F, int T, bool Unit>
void sum_taps(const ConvShape& s, const float* in, const float* d_out, Index f, Index c, Index ky,
              Index kx, float* sums) {
  const Index width = s.width, height = s.height, out_width = s.out_width;
  const Index out_plane = s.out_height * s.out_width * kLanes;
  const Index stride = s.stride, padding = s.padding;
  const Span rows = outputs_with_tap(ky, stride, padding, height, s.out_height);
  Span columns[T];
  for (int t = 0; t < T; ++t)
    columns[t] = outputs_with_tap(kx + t, stride, padding, width, out_width);
  const Index left = columns[0].begin, right = max(left, columns[T - 1].end);

  vfloat acc[F][T] = {};
  for (Index y = rows.begin; y < rows.end; ++y) {
    const float* in_row =
        in + ((c * height + y * stride - padding + ky) * width - padding + kx) * kStep;
    const float* d_row = d_out + f * out_plane + y * out_width * kStep;
#pragma GCC unroll 5
    for (int t = 0; t < T; ++t) {
      const auto one_tap = [&](Index x) {
#pragma GCC unroll 8
        for (int i = 0; i < F; ++i)
          acc[i][t] +=
              vload(d_row + i * out_plane + x * kStep) * vload(in_row + (x * stride + t) * kStep);
      };
      for (Index x = columns[t].begin; x < min(left, columns[t].end); ++x) one_tap(x);
      for (Index x = right; x < columns[t].end; ++x) one_tap(x);
    }
    for (Index x = left; x < right; ++x) {
      vfloat value[T];
#pragma GCC unroll 5
      for (int t = 0; t < T; ++t) value[t] = vload(in_row + ((Unit ? x : x * stride) + t) * kStep);
#pragma GCC unroll 8
      for (int i = 0; i < F; ++i) {
        const vfloat d = vload(d_row + i * out_plane + x * kStep);
#pragma GCC unroll 5
        for (int t = 0; t < T; ++t) acc[i][t] += d * value[t];
      }
    }
  }
  const Index kernel_w = s.kernel_w, kernel_h = s.kernel_h, channels = s.channels;
  for (int i = 0; i < F; ++i)
    for (int t = 0; t < T; ++t)
      vstore(sums + ((((f + i) * channels + c) * kernel_h + ky) * kernel_w + kx + t) * kStep,
             acc[i][t]);
}

// Adds the lane sums of dW, and of db behind them, to dw and db.
void add_parameter_sums(const ConvShape& s, const float* sums, float* dw, float* db) {
  const std::size_t weights = s.filters * s.channels * s.kernel_h * s.kernel_w;
  add_lane_sums(sums, weights, dw);
  add_lane_sums(sums + weights * kLanes, s.filters, db);
}

void conv_backward_parameters(const ConvShape& s, const float* in, const float* d_out, float* dw,
                              float* db, float* scratch) {
  const Index channels = s.channels, kernel_h = s.kernel_h;
  for (Index c = 0; c < channels; ++c) {
    in_parts<5>(s.kernel_w, [&]<int T>(Index kx) {
      in_parts<(kTile / T < 8 ? kTile / T : 8)>(s.filters, [&]<int F>(Index f) {
        const auto sum = s.stride == 1 ? sum_taps<F, T, true> : sum_taps<F, T, false>;
        for (Index ky = 0; ky < kernel_h; ++ky) sum(s, in, d_out, f, c, ky, kx, scratch);
      });
    });
  }
  const std::size_t weights = s.filters * s.channels * s.kernel_h * s.kernel_w;
  const std::size_t positions = s.out_height * s.out_width;
  float* sums = scratch + weights * kLanes;
  for (std::size_t f = 0; f < s.filters; ++f, d_out += positions * kLanes) {
    vfloat acc[4] = {};
    for (std::size_t i = 0; i < positions; ++i) acc[i % 4] += vload(d_out + i * kLanes);
    vstore(sums + f * kLanes, (acc[0] + acc[1]) + (acc[2] + acc[3]));
  }
  add_parameter_sums(s, scratch, dw, db);
}

// Inputs (Y, X) with (Y + padding) mod stride = phase_y, (X + padding) mod stride = phase_x are
// reached by the taps phase_y + i · stride, phase_x + j · stride, from outputs (q_y − i, q_x − j):
// for each pair of phases a correlation whose input steps go backwards.
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

}  // namespace
}  // namespace leashed
