// Vectors of floats for kernel sources (compiled once per instruction-set level): `vfloat` of
// `kLanes` floats through GCC's vector extensions, with loads and stores of any alignment.
// Everything here has internal linkage; see CMakeLists.txt for why.
#pragma once

#if defined(__x86_64__)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

#include <cstddef>
#include <cstdint>
#include <cstring>

#if !defined(LEASHED_ISA)
#error "simd.h belongs in kernel sources, which are compiled once per instruction-set level"
#endif

namespace leashed {
namespace {

#if defined(__AVX512F__)
inline constexpr std::size_t kLanes = 16;
#elif defined(__AVX2__)
inline constexpr std::size_t kLanes = 8;
#else
inline constexpr std::size_t kLanes = 4;
#endif

typedef float vfloat __attribute__((vector_size(kLanes * sizeof(float))));
typedef std::int32_t vint __attribute__((vector_size(kLanes * sizeof(std::int32_t))));
// The same, at any address and aliasing any float.
typedef float vfloat_u __attribute__((vector_size(kLanes * sizeof(float)), aligned(4), may_alias));

#define LEASHED_INLINE static inline __attribute__((always_inline))

// std::min and std::max would be functions with external linkage.
template <class T>
LEASHED_INLINE T min(T a, T b) {
  return b < a ? b : a;
}
template <class T>
LEASHED_INLINE T max(T a, T b) {
  return a < b ? b : a;
}

LEASHED_INLINE vfloat vload(const float* p) { return *reinterpret_cast<const vfloat_u*>(p); }
LEASHED_INLINE void vstore(float* p, vfloat v) { *reinterpret_cast<vfloat_u*>(p) = v; }
LEASHED_INLINE vfloat vset(float x) { return x - vfloat{}; }

#if defined(__x86_64__)
#define LEASHED_VECTOR_REGISTER "+v"
#else
#define LEASHED_VECTOR_REGISTER "+w"
#endif

// A product as it is rounded, never fused with what is added to it.
LEASHED_INLINE vfloat rounded(vfloat product) {
  asm("" : LEASHED_VECTOR_REGISTER(product));
  return product;
}

// max(v, low) and min(v, high) for limits that are at least 0, by the bits as whole numbers, which
// takes less time than by floats. What has its sign bit set is less than any limit, NaN or not.
LEASHED_INLINE vfloat at_least(vfloat v, float low) {
  const vint bits = reinterpret_cast<vint>(v), limit = reinterpret_cast<vint>(vset(low));
  return reinterpret_cast<vfloat>(bits > limit ? bits : limit);
}
LEASHED_INLINE vfloat at_most(vfloat v, float high) {
  const vint bits = reinterpret_cast<vint>(v), limit = reinterpret_cast<vint>(vset(high));
  return reinterpret_cast<vfloat>(bits < limit ? bits : limit);
}

// Square roots and inverses of each lane. The unit that takes roots and divides is slow and stalls
// its neighbours: updates would wait for it and not for memory. So from AVX2 on it is an estimate
// and a Newton step, which leaves the last bit or two of the mantissa uncertain. Inverses take
// normal numbers up to 2^125. The root of infinity is NaN there, of ∞ · 0 and so with its sign bit
// set.

// 2 √v + addend: the step's own factor of ½ is left to the caller.
LEASHED_INLINE vfloat twice_root(vfloat v, float addend) {
#if defined(__AVX2__)
  v = at_least(v, 0x1p-126f);  // for the estimate at 0
#if defined(__AVX512F__)
  const vfloat inverse = _mm512_maskz_rsqrt14_ps(0xffff, v);
#else
  const vfloat inverse = _mm256_rsqrt_ps(v);
#endif
  const vfloat estimate = v * inverse;
  return estimate * (3.0f - estimate * inverse) + addend;
#elif defined(__x86_64__)
  return 2.0f * _mm_sqrt_ps(v) + addend;
#else
  return 2.0f * vsqrtq_f32(v) + addend;
#endif
}

LEASHED_INLINE vfloat inverse(vfloat v) {
#if defined(__AVX2__)
#if defined(__AVX512F__)
  const vfloat estimate = _mm512_maskz_rcp14_ps(0xffff, v);
#else
  const vfloat estimate = _mm256_rcp_ps(v);
#endif
  return estimate + estimate * (1.0f - v * estimate);
#else
  return 1.0f / v;
#endif
}

}  // namespace
}  // namespace leashed
