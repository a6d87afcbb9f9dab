// ReLU in registers.
#pragma once

#include "leashed/base/simd.h"

namespace leashed {
namespace {

// max(0, x) that lets NaN through.
LEASHED_INLINE vfloat relu(vfloat x) { return vfloat{} > x ? vfloat{} : x; }

}  // namespace
}  // namespace leashed
