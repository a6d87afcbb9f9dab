// Positions: one byte per lane in memory, one integer per lane in a register; -1 is stored as 255
// and loaded as that. (GCC 12 takes __builtin_convertvector apart into scalars
// here.)
#pragma once

#if defined(__x86_64__)
#include <immintrin.h>
#else
#include <arm_neon.h>
#endif

#include "leashed/base/simd.h"

namespace leashed {
namespace {

inline constexpr std::int32_t kNoPosition = 255;

#if defined(__AVX512F__)

LEASHED_INLINE vint load_positions(const std::uint8_t* from) {
  const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from));
  return (vint)_mm512_maskz_cvtepu8_epi32(0xffff, bytes);
}
LEASHED_INLINE void store_positions(std::uint8_t* to, vint position) {
  _mm_storeu_si128(reinterpret_cast<__m128i*>(to),
                   _mm512_maskz_cvtepi32_epi8(0xffff, (__m512i)position));
}

#elif defined(__AVX2__)

LEASHED_INLINE vint load_positions(const std::uint8_t* from) {
  return (vint)_mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(from)));
}
LEASHED_INLINE void store_positions(std::uint8_t* to, vint position) {
  const __m256i p = (__m256i)position;
  const __m128i words = _mm_packs_epi32(_mm256_castsi256_si128(p), _mm256_extracti128_si256(p, 1));
  _mm_storel_epi64(reinterpret_cast<__m128i*>(to), _mm_packs_epi16(words, words));
}

#elif defined(__x86_64__)

LEASHED_INLINE vint load_positions(const std::uint8_t* from) {
  std::int32_t bytes;
  std::memcpy(&bytes, from, sizeof bytes);
  return (vint)_mm_cvtepu8_epi32(_mm_cvtsi32_si128(bytes));
}
LEASHED_INLINE void store_positions(std::uint8_t* to, vint position) {
  const __m128i words = _mm_packs_epi32((__m128i)position, (__m128i)position);
  const std::int32_t bytes = _mm_cvtsi128_si32(_mm_packs_epi16(words, words));
  std::memcpy(to, &bytes, sizeof bytes);
}

#else

LEASHED_INLINE vint load_positions(const std::uint8_t* from) {
  std::uint32_t bytes;
  std::memcpy(&bytes, from, sizeof bytes);
  const uint16x8_t words = vmovl_u8(vreinterpret_u8_u32(vdup_n_u32(bytes)));
  return (vint)vmovl_u16(vget_low_u16(words));
}
LEASHED_INLINE void store_positions(std::uint8_t* to, vint position) {
  const uint16x4_t words = vmovn_u32((uint32x4_t)position);
  const uint8x8_t bytes = vmovn_u16(vcombine_u16(words, words));
  const std::uint32_t four = vget_lane_u32(vreinterpret_u32_u8(bytes), 0);
  std::memcpy(to, &four, sizeof four);
}

#endif

}  // namespace
}  // namespace leashed
