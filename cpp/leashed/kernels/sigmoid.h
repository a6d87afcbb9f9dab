// σ and tanh of each lane. For kernel sources.
#pragma once

#include "leashed/base/simd.h"
#include "leashed/kernels/exponential.h"

namespace leashed {
namespace {

constexpr std::int32_t kSign = INT32_MIN;

LEASHED_INLINE vfloat negative(vfloat x) {  // −|x|
  return reinterpret_cast<vfloat>(reinterpret_cast<vint>(x) | kSign);
}

// 1 / (1 + e^−x), relative error under 5e-7; 0 below −87.3, NaN for NaN.
LEASHED_INLINE vfloat sigmoid(vfloat x) {
  const vfloat e = exp_negative(negative(x));
  const vfloat share = inverse(1.0f + e);
  return x < vfloat{} ? e * share : share;
}

// Relative error under 5e-7; NaN for NaN. Near 0, where 1 − e^−2|x| would lose what x has, by the
// polynomial of Cephes' tanhf.
LEASHED_INLINE vfloat tanh(vfloat x) {
  const vfloat e = exp_negative(2.0f * negative(x));
  const vfloat size = (1.0f - e) * inverse(1.0f + e);
  const vfloat far =
      reinterpret_cast<vfloat>(reinterpret_cast<vint>(size) | (reinterpret_cast<vint>(x) & kSign));
  const vfloat square = x * x;
  vfloat p = vset(-5.70498872745e-3f);
  p = p * square + vset(2.06390887954e-2f);
  p = p * square + vset(-5.37397155531e-2f);
  p = p * square + vset(1.33314422036e-1f);
  p = p * square + vset(-3.33332819422e-1f);
  const vfloat near = x + x * (square * p);
  return negative(x) > vset(-0.625f) ? near : far;
}

}  // namespace
}  // namespace leashed
