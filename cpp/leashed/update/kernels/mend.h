// What a rule does about states of which others have stored a part (rules.h).
#pragma once

#include "leashed/base/simd.h"
#include "leashed/update/kernels/math.h"

namespace leashed {
namespace {

// States that were loaded where others write.
template <class Rule, bool racy>
LEASHED_INLINE void mend(vfloat* state, const Coefficients& c) {
  if constexpr (racy && requires { Rule::template mend<Math>(state, c); }) {
    Rule::template mend<Math>(state, c);
  }
}

}  // namespace
}  // namespace leashed
