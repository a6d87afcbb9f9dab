// What the formulas of the update rules are made of, for a vector of parameters.
#pragma once

#include "leashed/base/simd.h"

namespace leashed {
namespace {

// A mean or sum of squares may overflow, and is infinite from then on: what it divides is 0, as in
// PyTorch, at every instruction-set level.
struct Math {
  LEASHED_INLINE vfloat rounded(vfloat product) { return leashed::rounded(product); }
  LEASHED_INLINE vfloat at_least_0(vfloat v) { return at_least(v, 0); }
  // For v from 0 on.
  LEASHED_INLINE vfloat finite(vfloat v) { return at_most(v, __FLT_MAX__); }
  LEASHED_INLINE vfloat larger(vfloat a, vfloat b) { return a > b ? a : b; }  // b where it is NaN

  // The root of v, from 0 on; where that is infinite, of the largest number.
  LEASHED_INLINE vfloat root(vfloat v) { return 0.5f * twice_root(finite(v), 0); }

  // lr · x / (√v + ε).
  LEASHED_INLINE vfloat over_root(float lr, vfloat x, vfloat v, float epsilon) {
    vfloat factor = inverse(twice_root(v, 2 * epsilon));
#if defined(__AVX2__)
    factor = at_least(factor, 0);  // the NaN of v = ∞
#endif
    return 2 * lr * x * factor;
  }

  // The mean v of squares with one more, of the weight `add`. (∞ − ∞ is NaN.)
  LEASHED_INLINE vfloat mean_of_squares(vfloat v, vfloat g, float add) {
    return v + add * (g * g - finite(v));
  }
};

}  // namespace
}  // namespace leashed
