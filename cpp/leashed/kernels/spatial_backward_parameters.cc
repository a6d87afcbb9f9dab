#include "leashed/kernels/spatial_outputs.h"
#include "leashed/kernels/spatial_parameter_sums.h"
#include "leashed/kernels/spatial_parts.h"

namespace leashed {
namespace {

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

}  // namespace

namespace LEASHED_SPATIAL {

std::size_t conv_scratch(const ConvShape& s) {
  return s.filters * (s.channels * s.kernel_h * s.kernel_w + 1) * kLanes;
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

}  // namespace LEASHED_SPATIAL
}  // namespace leashed
