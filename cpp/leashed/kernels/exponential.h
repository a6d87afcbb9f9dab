#pragma once

#include "leashed/base/simd.h"

namespace leashed {
namespace {

// e^x for x <= 0: 2^n e^r with |r| <= ln(2)/2 and e^r from its Taylor polynomial, relative error
// under 3e-7. 0 where the result would be denormal (x < -87.3); NaN for NaN.
LEASHED_INLINE vfloat exp_negative(vfloat x) {
  const vfloat shift = vset(12582912.0f);  // 1.5 * 2^23: adding it rounds to a whole number
  const vfloat shifted = x * vset(1.44269504f) + shift;
  const vfloat n = shifted - shift;
  const vfloat r = (x - n * vset(0.693359375f)) - n * vset(-2.12194440e-4f);  // ln 2 in two parts
  vfloat p = vset(1.0f / 5040);
  p = p * r + vset(1.0f / 720);
  p = p * r + vset(1.0f / 120);
  p = p * r + vset(1.0f / 24);
  p = p * r + vset(1.0f / 6);
  p = p * r + vset(0.5f);
  p = p * r + vset(1.0f);
  p = p * r + vset(1.0f);
  const vint exponent = (reinterpret_cast<vint>(shifted) + 127)
                        << 23;  // the shift falls out on top
  return x < vset(-87.3f) ? vfloat{} : p * reinterpret_cast<vfloat>(exponent);
}

}  // namespace
}  // namespace leashed
