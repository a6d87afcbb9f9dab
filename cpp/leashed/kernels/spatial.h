// Kernels for layers over images, vectorised over the batch: a block is `lanes` images in the
// layout [channel][row][column][image], so every load is contiguous whatever the kernel size,
// stride or padding, and no image is ever unrolled into a matrix (no im2col). Unused lanes of a
// block hold zeros on input and zero gradients on output.
#pragma once

#include <cstddef>
#include <cstdint>

#include "leashed/base/isa.h"

namespace leashed {

struct ConvShape {
  std::size_t channels, height, width;      // input
  std::size_t filters, kernel_h, kernel_w;  // W is [filters][channels][kernel_h][kernel_w]
  std::size_t stride, padding;
  std::size_t out_height, out_width;
};

struct PoolShape {
  std::size_t channels, height, width;  // input
  std::size_t size, stride;
  std::size_t out_height, out_width;
};

struct SpatialKernels {
  std::size_t lanes;

  // rows[0..count) (count <= lanes), each of `features` floats → out [features][lanes].
  void (*gather)(const float* const* rows, std::size_t count, std::size_t features, float* out);

  // out = conv(in) + b, then max(0, ·) if relu.
  void (*conv_forward)(const ConvShape&, const float* w, const float* b, const float* in,
                       float* out, bool relu);
  // The same with ReLU, followed by pooling, without storing what lies between: out and `position`
  // (one byte per output: which element of the window was the maximum, row-major in the window, or
  // 255 where the maximum was not above 0 so that no gradient passes).
  void (*conv_relu_pool_forward)(const ConvShape&, const PoolShape&, const float* w, const float* b,
                                 const float* in, float* out, std::uint8_t* position);
  // dw += sum over the block, db += likewise; dw and db are plain [..] arrays of floats.
  void (*conv_backward_parameters)(const ConvShape&, const float* in, const float* d_out, float* dw,
                                   float* db, float* scratch);
  // d_in = the gradient with respect to the input (overwritten).
  void (*conv_backward_input)(const ConvShape&, const float* w, const float* d_out, float* d_in);
  // Floats of scratch that conv_backward_parameters needs.
  std::size_t (*conv_scratch)(const ConvShape&);

  // conv_relu_pool_forward backwards, likewise without storing the gradient that lies between where
  // that is faster: d_out and position are those of the pooled output. Prefer these to
  // pool_backward followed by the two above.
  void (*conv_relu_pool_backward_parameters)(const ConvShape&, const PoolShape&, const float* in,
                                             const float* d_out, const std::uint8_t* position,
                                             float* dw, float* db, float* scratch);
  void (*conv_relu_pool_backward_input)(const ConvShape&, const PoolShape&, const float* w,
                                        const float* d_out, const std::uint8_t* position,
                                        float* d_in, float* scratch);
  // Floats of scratch that either needs.
  std::size_t (*conv_relu_pool_scratch)(const ConvShape&, const PoolShape&);

  void (*pool_forward)(const PoolShape&, const float* in, float* out, std::uint8_t* position);
  // d_in (overwritten) from d_out through the stored positions; 255 passes nothing.
  void (*pool_backward)(const PoolShape&, const float* d_out, const std::uint8_t* position,
                        float* d_in);
};

const SpatialKernels& spatial_kernels(Isa isa);

}  // namespace leashed
