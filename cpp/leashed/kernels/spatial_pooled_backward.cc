// Gradients of convolution, ReLU and max-pooling together, from the gradient of the pooled output
// and the stored positions.
#include "leashed/base/simd.h"
#include "leashed/kernels/spatial_parts.h"
#if defined(__AVX2__)
#include "leashed/kernels/spatial_parameter_sums.h"
#include "leashed/kernels/spatial_pooled_select.h"
#endif

namespace leashed {
namespace {

// Where windows are 2 × 2 and the kernel 3 × 3 or 5 × 5 with stride 1, AVX2 and AVX-512 skip the
// zeros that pooling leaves; elsewhere they are stored and the plain kernels follow.
LEASHED_INLINE bool skips_zeros(const ConvShape& s, const PoolShape& p) {
#if defined(__AVX2__)
  return p.size == 2 && p.stride == 2 && s.stride == 1 && s.kernel_h == s.kernel_w &&
         (s.kernel_w == 3 || s.kernel_w == 5);
#else
  return static_cast<void>(s), static_cast<void>(p), false;
#endif
}

std::size_t padded_size(const ConvShape& s) {
  return s.padding ? s.channels * (s.height + 2 * s.padding) * (s.width + 2 * s.padding) * kLanes
                   : 0;
}

#if defined(__AVX2__)

// Calls copy(place in the image, place in the padded image, floats) for every row.
template <class Copy>
void each_padded_row(const ConvShape& s, Copy&& copy) {
  const std::size_t width = s.width + 2 * s.padding, height = s.height + 2 * s.padding;
  for (std::size_t c = 0; c < s.channels; ++c)
    for (std::size_t y = 0; y < s.height; ++y)
      copy((c * s.height + y) * s.width * kLanes,
           ((c * height + y + s.padding) * width + s.padding) * kLanes, s.width * kLanes);
}

// The same convolution over an image with its padding made explicit.
ConvShape padded_shape(ConvShape s) {
  s.height += 2 * s.padding;
  s.width += 2 * s.padding;
  s.padding = 0;
  return s;
}

#endif

}  // namespace

namespace LEASHED_SPATIAL {

std::size_t conv_relu_pool_scratch(const ConvShape& s, const PoolShape& p) {
  if (!skips_zeros(s, p)) return conv_scratch(s) + s.filters * s.out_height * s.out_width * kLanes;
  const std::size_t sums = conv_scratch(s);
  const std::size_t tables = s.filters * s.channels * (s.kernel_h + 1) * (s.kernel_w + 1) * 4;
  return (sums < tables ? tables : sums) + padded_size(s);
}

void conv_relu_pool_backward_parameters(const ConvShape& s, const PoolShape& p, const float* in,
                                        const float* d_out, const std::uint8_t* position, float* dw,
                                        float* db, float* scratch) {
#if defined(__AVX2__)
  if (skips_zeros(s, p)) {
    if (s.padding) {
      float* padded = scratch + conv_scratch(s);
      std::memset(padded, 0, padded_size(s) * sizeof(float));
      each_padded_row(s, [&](std::size_t from, std::size_t to, std::size_t n) {
        std::memcpy(padded + to, in + from, n * sizeof(float));
      });
      in = padded;
    }
    const auto sums = s.kernel_w == 3 ? pooled_parameter_sums<3> : pooled_parameter_sums<5>;
    sums(padded_shape(s), p, in, d_out, position, scratch);
    add_parameter_sums(s, scratch, dw, db);
    return;
  }
#endif
  float* d_conv = scratch + conv_scratch(s);
  pool_backward(p, d_out, position, d_conv);
  conv_backward_parameters(s, in, d_conv, dw, db, scratch);
}

void conv_relu_pool_backward_input(const ConvShape& s, const PoolShape& p, const float* w,
                                   const float* d_out, const std::uint8_t* position, float* d_in,
                                   float* scratch) {
#if defined(__AVX2__)
  if (skips_zeros(s, p)) {
    const ConvShape whole = padded_shape(s);
    float* padded = s.padding ? scratch : d_in;
    const auto gradient = s.kernel_w == 3 ? pooled_input_gradient<3> : pooled_input_gradient<5>;
    gradient(whole, p, w, d_out, position, padded, scratch + padded_size(s));
    if (s.padding)
      each_padded_row(s, [&](std::size_t to, std::size_t from, std::size_t n) {
        std::memcpy(d_in + to, padded + from, n * sizeof(float));
      });
    return;
  }
#endif
  pool_backward(p, d_out, position, scratch);
  conv_backward_input(s, w, scratch, d_in);
}

}  // namespace LEASHED_SPATIAL
}  // namespace leashed
