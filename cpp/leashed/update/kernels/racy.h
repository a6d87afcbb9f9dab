// Loads and stores for floats that other threads write and read meanwhile (Hogwild): the only
// places where that happens. Each is exactly one instruction, which the compiler can neither
// repeat, split nor move; each 4-byte lane is atomic on the hardware, and ThreadSanitizer is told
// to look away.
#pragma once

#include "leashed/base/simd.h"

#define LEASHED_RACY __attribute__((no_sanitize("thread")))

namespace leashed {
namespace {

// (A volatile vector would do, but GCC then ignores that it may be unaligned.)
LEASHED_INLINE LEASHED_RACY vfloat load_once(const float* p) {
  vfloat v = vload(p);
  asm volatile("" : LEASHED_VECTOR_REGISTER(v) : : "memory");
  return v;
}
LEASHED_INLINE LEASHED_RACY void store_once(float* p, vfloat v) {
  vstore(p, v);
  asm volatile("" : : : "memory");
}
LEASHED_INLINE LEASHED_RACY float load_one(const float* p) {
  return *const_cast<const volatile float*>(p);
}
LEASHED_INLINE LEASHED_RACY void store_one(float* p, float x) {
  *const_cast<volatile float*>(p) = x;
}

}  // namespace
}  // namespace leashed
