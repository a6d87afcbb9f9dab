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

LEASHED_INLINE vfloat vload(const float* p) { return *reinterpret_cast<const vfloat_u*>(p); }
LEASHED_INLINE void vstore(float* p, vfloat v) { *reinterpret_cast<vfloat_u*>(p) = v; }
LEASHED_INLINE vfloat vset(float x) { return x - vfloat{}; }

// The square root, of each lane and of one float alike: GCC's vectors have none.
LEASHED_INLINE vfloat root(vfloat v) {
#if defined(__AVX512F__)
  return _mm512_maskz_sqrt_ps(0xffff, v);  // the plain one has GCC 12 warn of its own header
#elif defined(__AVX2__)
  return _mm256_sqrt_ps(v);
#elif defined(__x86_64__)
  return _mm_sqrt_ps(v);
#else
  return vsqrtq_f32(v);
#endif
}
LEASHED_INLINE float root(float x) { return __builtin_sqrtf(x); }

}  // namespace
}  // namespace leashed
