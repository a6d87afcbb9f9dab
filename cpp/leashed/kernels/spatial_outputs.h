// Which outputs of a convolution see which taps of its kernel, and where its inputs lie.
#pragma once

#include "leashed/kernels/spatial.h"
#include "leashed/kernels/spatial_correlate.h"

namespace leashed {
namespace {

inline constexpr Index kStep = kLanes;

inline Correlation forward_correlation(const ConvShape& s) {
  const Index width = s.width, kernel = s.kernel_h * s.kernel_w;
  Correlation k;
  k.channels = s.channels;
  k.in_channel = s.height * s.width * kLanes;
  k.in_row = width * kStep;
  k.in_tap = kStep;
  k.in_y = s.stride * s.width * kLanes;
  k.in_x = s.stride * kLanes;
  k.w_tile = k.channels * kernel;
  k.w_channel = kernel;
  k.w_row = s.kernel_w;
  k.w_tap = 1;
  return k;
}

// Along one axis: the kernel taps [begin, end) of output `at` that lie inside the image.
struct Span {
  Index begin, end;
};
LEASHED_INLINE Span taps_inside(Index at, Index stride, Index padding, Index size, Index kernel) {
  const Index first = at * stride - padding;
  return {max(0, -first), min(kernel, size - first)};
}
LEASHED_INLINE Taps taps_inside(const ConvShape& s, Index y, Index x) {
  const Span rows = taps_inside(y, s.stride, s.padding, s.height, s.kernel_h);
  const Span columns = taps_inside(x, s.stride, s.padding, s.width, s.kernel_w);
  return {rows.begin, rows.end, columns.begin, columns.end};
}

// Along one axis: the outputs [begin, end) that see the whole kernel.
LEASHED_INLINE Span whole_outputs(Index stride, Index padding, Index size, Index kernel,
                                  Index outputs) {
  const Index begin = (padding + stride - 1) / stride;
  const Index room = size + padding - kernel;
  const Index end = room < 0 ? 0 : min(outputs, room / stride + 1);
  return {begin, max(begin, end)};
}

// in + the (possibly outside) place of tap (0, 0) of output (y, x).
LEASHED_INLINE const float* tap_origin(const ConvShape& s, const float* in, Index y, Index x) {
  const Index stride = s.stride, padding = s.padding, width = s.width;
  return in + ((y * stride - padding) * width + x * stride - padding) * kStep;
}

}  // namespace
}  // namespace leashed
