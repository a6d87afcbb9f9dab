// The maximum of a window. The rule is PyTorch's: the first maximum wins, and NaN counts as larger
// than everything, so that it reaches the output.
#pragma once

#include "leashed/base/simd.h"
#include "leashed/kernels/spatial_positions.h"
#include "leashed/kernels/spatial_rectify.h"

namespace leashed {
namespace {

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

}  // namespace
}  // namespace leashed
