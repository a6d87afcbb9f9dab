// Loads and stores of the first `count` lanes of a vector (0 < count <= kLanes), touching no memory
// beyond them. For kernel sources.
#pragma once

#include "leashed/base/simd.h"

#if defined(__AVX2__)
#include <immintrin.h>
#endif

namespace leashed {
namespace {

#if defined(__AVX512F__)

LEASHED_INLINE __mmask16 lane_mask(std::size_t count) {
  return static_cast<__mmask16>((1u << count) - 1);
}
LEASHED_INLINE vfloat vload_partial(const float* p, std::size_t count, float fill = 0) {
  return _mm512_mask_loadu_ps(_mm512_set1_ps(fill), lane_mask(count), p);
}
LEASHED_INLINE void vstore_partial(float* p, vfloat v, std::size_t count) {
  _mm512_mask_storeu_ps(p, lane_mask(count), v);
}

#elif defined(__AVX2__)

LEASHED_INLINE __m256i lane_mask(std::size_t count) {
  return _mm256_cmpgt_epi32(_mm256_set1_epi32(static_cast<int>(count)),
                            _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}
LEASHED_INLINE vfloat vload_partial(const float* p, std::size_t count, float fill = 0) {
  const __m256i mask = lane_mask(count);
  return _mm256_blendv_ps(_mm256_set1_ps(fill), _mm256_maskload_ps(p, mask),
                          _mm256_castsi256_ps(mask));
}
LEASHED_INLINE void vstore_partial(float* p, vfloat v, std::size_t count) {
  _mm256_maskstore_ps(p, lane_mask(count), v);
}

#else

LEASHED_INLINE vfloat vload_partial(const float* p, std::size_t count, float fill = 0) {
  float lanes[kLanes];
  for (std::size_t i = 0; i < kLanes; ++i) lanes[i] = i < count ? p[i] : fill;
  return vload(lanes);
}
LEASHED_INLINE void vstore_partial(float* p, vfloat v, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) p[i] = v[i];
}

#endif

// The first `count` lanes, or all where there are more.
LEASHED_INLINE vfloat vload_up_to(const float* p, std::size_t count) {
  return count >= kLanes ? vload(p) : vload_partial(p, count);
}
LEASHED_INLINE void vstore_up_to(float* p, vfloat v, std::size_t count) {
  if (count >= kLanes) {
    vstore(p, v);
  } else {
    vstore_partial(p, v, count);
  }
}

}  // namespace
}  // namespace leashed
