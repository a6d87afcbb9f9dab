// Max-pooling. The rule is PyTorch's: the first maximum of a window wins, and NaN counts as larger
// than everything, so that it reaches the output. Part of spatial.cc.
#pragma once

#include "leashed/base/simd.h"
#include "leashed/model/kernels/spatial_correlate.h"
#include "leashed/model/kernels/spatial_positions.h"

namespace leashed {
namespace {

inline constexpr std::uint8_t kNoPosition = 255;

// max(0, x) that lets NaN through.
LEASHED_INLINE vfloat relu(vfloat x) { return vfloat{} > x ? vfloat{} : x; }

// The running maximum of a window and where it was.
struct Maximum {
  vfloat value = vset(-__builtin_inff());
  vint position = {};

  __attribute__((always_inline)) void take(vfloat x, std::int32_t at) {
    const vint larger = (x > value) | (x != x);
    value = larger ? x : value;
    position = larger ? at - vint{} : position;
  }
  // max(0, ·); no gradient passes where that is 0.
  __attribute__((always_inline)) void rectify() {
    position = value <= vfloat{} ? kNoPosition - vint{} : position;
    value = relu(value);
  }
};

// The maximum of a 2 × 2 window without NaN, rectified, and where it is. Floats that are not
// negative compare as the integers with their bits; integer units are idle while a convolution
// runs, where comparisons of floats would take turns with its multiply-adds.
LEASHED_INLINE Maximum rectified_maximum(const vfloat (&window)[4]) {
  vint bits[4];
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    const vint x = (vint)window[i];
    bits[i] = x > 0 ? x : vint{};
  }
  const auto larger = [](vint a, vint b) { return a > b ? a : b; };
  // All bits where a < b; both are not negative.
  const auto less = [](vint a, vint b) { return (a - b) >> 31; };
  const vint upper = larger(bits[0], bits[1]), lower = larger(bits[2], bits[3]);
  const vint best = larger(upper, lower);
  const vint in_lower = less(upper, lower);
  const vint upper_right = less(bits[0], bits[1]), lower_right = less(bits[2], bits[3]);
  const vint right = (lower_right & in_lower) | (upper_right & ~in_lower);
  const vint none = (best - 1) >> 31;
  Maximum maximum;
  maximum.value = (vfloat)best;
  maximum.position = ((right & 1) | (in_lower & 2) | none) & kNoPosition;
  return maximum;
}

void pool_forward(const PoolShape& s, const float* in, float* out, std::uint8_t* position) {
  const Index size = s.size, width = s.width;
  for (std::size_t c = 0; c < s.channels; ++c, in += s.height * s.width * kLanes) {
    for (std::size_t y = 0; y < s.out_height; ++y) {
      for (std::size_t x = 0; x < s.out_width; ++x, out += kLanes, position += kLanes) {
        const float* window = in + (y * s.stride * s.width + x * s.stride) * kLanes;
        Maximum best;
        for (Index i = 0; i < size; ++i)
          for (Index j = 0; j < size; ++j)
            best.take(vload(window + (i * width + j) * Index{kLanes}),
                      static_cast<std::int32_t>(i * size + j));
        vstore(out, best.value);
        store_positions(position, best.position);
      }
    }
  }
}

// Adds each output's gradient at its position to d_in, which holds zeros (or, where windows
// overlap, what their neighbours left).
void pool_backward(const PoolShape& s, const float* d_out, const std::uint8_t* position,
                   float* d_in) {
  const Index size = s.size, width = s.width;
  const std::size_t plane = s.height * s.width * kLanes;
  std::memset(d_in, 0, s.channels * plane * sizeof(float));
  for (std::size_t c = 0; c < s.channels; ++c, d_in += plane) {
    for (std::size_t y = 0; y < s.out_height; ++y) {
      for (std::size_t x = 0; x < s.out_width; ++x, d_out += kLanes, position += kLanes) {
        float* window = d_in + (y * s.stride * s.width + x * s.stride) * kLanes;
        const vfloat d = vload(d_out);
        const vint at = load_positions(position);
        for (Index i = 0; i < size; ++i) {
          for (Index j = 0; j < size; ++j) {
            float* cell = window + (i * width + j) * Index{kLanes};
            const vint here = at == static_cast<std::int32_t>(i * size + j) - vint{};
            vstore(cell, vload(cell) + (here ? d : vfloat{}));
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace leashed
