// Gradients of convolution, ReLU and max-pooling together, from the gradient of the pooled output
// and the stored positions. Part of spatial.cc.
#pragma once

#include "leashed/model/kernels/spatial_backward.h"
#include "leashed/model/kernels/spatial_pool.h"

namespace leashed {
namespace {

std::size_t conv_relu_pool_scratch(const ConvShape& s, const PoolShape&) {
  return conv_scratch(s) + s.filters * s.out_height * s.out_width * kLanes;
}

void conv_relu_pool_backward_parameters(const ConvShape& s, const PoolShape& p, const float* in,
                                        const float* d_out, const std::uint8_t* position, float* dw,
                                        float* db, float* scratch) {
  float* d_conv = scratch + conv_scratch(s);
  pool_backward(p, d_out, position, d_conv);
  conv_backward_parameters(s, in, d_conv, dw, db, scratch);
}

void conv_relu_pool_backward_input(const ConvShape& s, const PoolShape& p, const float* w,
                                   const float* d_out, const std::uint8_t* position, float* d_in,
                                   float* scratch) {
  pool_backward(p, d_out, position, scratch);
  conv_backward_input(s, w, scratch, d_in);
}

}  // namespace
}  // namespace leashed
