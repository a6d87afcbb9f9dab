// What a gradient of a convolution's parameters ends with: sums over the images of a block.
#pragma once

#include "leashed/kernels/spatial.h"
#include "leashed/kernels/spatial_transpose.h"

namespace leashed {
namespace {

// Adds the lane sums of dW, and of db behind them, to dw and db.
void add_parameter_sums(const ConvShape& s, const float* sums, float* dw, float* db) {
  const std::size_t weights = s.filters * s.channels * s.kernel_h * s.kernel_w;
  add_lane_sums(sums, weights, dw);
  add_lane_sums(sums + weights * kLanes, s.filters, db);
}

}  // namespace
}  // namespace leashed
