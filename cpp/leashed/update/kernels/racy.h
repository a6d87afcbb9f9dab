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

#if defined(__AVX2__) && !defined(__AVX512F__)
LEASHED_INLINE __m256i first_lanes(std::size_t n) {
  return _mm256_cmpgt_epi32(_mm256_set1_epi32(static_cast<int>(n)),
                            _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}
#endif
// The first n lanes of a vector, fewer than it has, and nothing behind them; the others are 0.
LEASHED_INLINE LEASHED_RACY vfloat load_some_once(const float* p, std::size_t n) {
#if defined(__AVX512F__)
  vfloat v = _mm512_maskz_loadu_ps(static_cast<__mmask16>((1u << n) - 1), p);
#elif defined(__AVX2__)
  vfloat v = _mm256_maskload_ps(p, first_lanes(n));
#else
  vfloat v = {};
  for (std::size_t j = 0; j < n; ++j) v[j] = load_one(p + j);
#endif
  asm volatile("" : LEASHED_VECTOR_REGISTER(v) : : "memory");
  return v;
}
LEASHED_INLINE LEASHED_RACY void store_some_once(float* p, vfloat v, std::size_t n) {
#if defined(__AVX512F__)
  _mm512_mask_storeu_ps(p, static_cast<__mmask16>((1u << n) - 1), v);
#elif defined(__AVX2__)
  _mm256_maskstore_ps(p, first_lanes(n), v);
#else
  for (std::size_t j = 0; j < n; ++j) store_one(p + j, v[j]);
#endif
  asm volatile("" : : : "memory");
}

}  // namespace
}  // namespace leashed
