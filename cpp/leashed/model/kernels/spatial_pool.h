// Max-pooling. The rule is PyTorch's: the first maximum of a window wins, and NaN counts as larger
// than everything, so that it reaches the output. Part of spatial.cc.
#pragma once

#include "leashed/base/simd.h"
#include "leashed/model/kernels/spatial_correlate.h"
#include "leashed/model/kernels/spatial_positions.h"

namespace leashed {
namespace {

// max(0, x) that lets NaN through.
LEASHED_INLINE vfloat relu(vfloat x) { return vfloat{} > x ? vfloat{} : x; }

// The running maximum of a window and where it was (-1: nowhere, see rectify).
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
    position = value <= vfloat{} ? vint{} - 1 : position;
    value = relu(value);
  }
};

// The maximum of a 2 × 2 window, rectified, and where it is, without comparisons of floats, which
// would take turns with a convolution's multiply-adds: floats of which one is positive compare as
// the integers with their bits, and the sign of a difference tells the larger. That holds but for
// NaN and for differences of infinities: `suspect` then becomes NaN, and the result is worthless.
LEASHED_INLINE Maximum rectified_maximum(const vfloat (&window)[4], vfloat& suspect) {
  const auto larger = [](vint a, vint b) { return a > b ? a : b; };
  const vfloat upper_step = window[0] - window[1], lower_step = window[2] - window[3];
  const vint upper = larger((vint)window[0], (vint)window[1]);
  const vint lower = larger((vint)window[2], (vint)window[3]);
  const vfloat row_step = (vfloat)upper - (vfloat)lower;
  suspect += upper_step + lower_step;
  // Of each of these only the sign counts.
  const vint row = (vint)row_step >> 31;
  const vint column = ((vint)upper_step & ~row) | ((vint)lower_step & row);
  Maximum maximum;
  const vint best = larger(larger(upper, lower), vint{});
  const vint none = (best - 1) >> 31;
  maximum.value = (vfloat)best;
  maximum.position = (column >> 31 & 1) | (row & 2) | none;
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
