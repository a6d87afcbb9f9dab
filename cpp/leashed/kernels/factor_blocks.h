// What the kernels of factorisation machines have in common, for kernel sources: vectors of other
// lengths than kLanes, records in blocks of them, a row's entries, and steps of rules.
#pragma once

#include "leashed/base/simd.h"
#include "leashed/data/sparse_rows.h"
#include "leashed/update/kernels/math.h"
#include "leashed/update/kernels/racy.h"

namespace leashed {
namespace {

#define LEASHED_BLOCK [[gnu::always_inline]] LEASHED_RACY inline

// So many floats, aligned and not. (GCC takes no sizes of vectors from templates.)
template <std::size_t L>
struct Floats;
#define LEASHED_FLOATS(L)                                                               \
  template <>                                                                           \
  struct Floats<L> {                                                                    \
    typedef float Vector __attribute__((vector_size(4 * L)));                           \
    typedef float Unaligned __attribute__((vector_size(4 * L), aligned(4), may_alias)); \
  };
LEASHED_FLOATS(4)
LEASHED_FLOATS(8)
LEASHED_FLOATS(16)

// L floats side by side; L is kLanes at most.
template <std::size_t L>
struct Lanes {
  using Vector = typename Floats<L>::Vector;
  using Unaligned = typename Floats<L>::Unaligned;

  LEASHED_INLINE Vector load(const float* p) { return *reinterpret_cast<const Unaligned*>(p); }
  LEASHED_INLINE void store(float* p, Vector v) { *reinterpret_cast<Unaligned*>(p) = v; }
  // As load_once and store_once of whole vectors.
  LEASHED_INLINE LEASHED_RACY Vector load_once(const float* p) {
    Vector v = load(p);
    asm volatile("" : LEASHED_VECTOR_REGISTER(v) : : "memory");
    return v;
  }
  LEASHED_INLINE LEASHED_RACY void store_once(float* p, Vector v) {
    store(p, v);
    asm volatile("" : : : "memory");
  }
  // A product as it is rounded, never fused with what it is taken from.
  LEASHED_INLINE Vector rounded(Vector product) {
    asm("" : LEASHED_VECTOR_REGISTER(product));
    return product;
  }
  LEASHED_INLINE float total(Vector v) {
    float sum = 0;
    for (std::size_t i = 0; i < L; ++i) sum += v[i];
    return sum;
  }
  LEASHED_INLINE Vector root(Vector v) {
#if defined(__AVX512F__)
    if constexpr (L == 16) return _mm512_maskz_sqrt_ps(0xffff, v);
#endif
#if defined(__AVX2__)
    if constexpr (L == 8) return _mm256_sqrt_ps(v);
#endif
#if defined(__x86_64__)
    if constexpr (L == 4) return _mm_sqrt_ps(v);
#else
    if constexpr (L == 4) return vsqrtq_f32(v);
#endif
  }
};
template <>
struct Lanes<1> {
  typedef float Vector;

  LEASHED_INLINE float load(const float* p) { return *p; }
  LEASHED_INLINE void store(float* p, float x) { *p = x; }
  LEASHED_INLINE LEASHED_RACY float load_once(const float* p) { return load_one(p); }
  LEASHED_INLINE LEASHED_RACY void store_once(float* p, float x) { store_one(p, x); }
  LEASHED_INLINE float rounded(float product) {
    asm("" : LEASHED_VECTOR_REGISTER(product));
    return product;
  }
  LEASHED_INLINE float total(float x) { return x; }
  LEASHED_INLINE float root(float x) { return __builtin_sqrtf(x); }
};

// work.block<L, N>(at) for blocks of N vectors of L factors, which begin with factor `at`.
template <class Work>
LEASHED_INLINE LEASHED_RACY void in_blocks(std::size_t k, Work& work) {
  constexpr std::size_t k8 = kLanes < 8 ? kLanes : 8;
  switch (k) {
    case 4:
      return work.template block<4, 1>(0);
    case 8:
      return work.template block<k8, 8 / k8>(0);
    case 16:
      return work.template block<kLanes, 16 / kLanes>(0);
    default:
      break;
  }
  std::size_t at = 0;
  for (; at + kLanes <= k; at += kLanes) work.template block<kLanes, 1>(at);
  for (; at + 4 <= k; at += 4) work.template block<4, 1>(at);
  for (; at < k; ++at) work.template block<1, 1>(at);
}

// One row. (Without branches on what is the same for all entries, of which there are few enough
// instructions for that to count.)
struct Entries {
  Entries(const SparseRows& rows, std::size_t row)
      : columns(rows.columns + rows.offsets[row]),
        values(rows.values ? rows.values + rows.offsets[row] : &kOne),
        mask(rows.values ? ~std::int64_t{0} : 0),
        length(rows.offsets[row + 1] - rows.offsets[row]),
        before(static_cast<std::size_t>(rows.offsets[row] - rows.offsets[0])) {}
  LEASHED_BLOCK float value(std::int64_t j) const { return values[j & mask]; }
  LEASHED_BLOCK std::size_t record(std::int64_t j, std::size_t k) const {
    return static_cast<std::size_t>(columns[j]) * (1 + k);
  }

  static constexpr float kOne = 1;

  const std::int32_t* columns;
  const float* values;
  std::int64_t mask;
  std::int64_t length;
  std::size_t before;  // entries of the rows before it
};

// Rules on parameters whose gradient is known.
struct SgdStep {
  template <std::size_t L>
  LEASHED_BLOCK void step(float* p, typename Lanes<L>::Vector g) const {
    Lanes<L>::store_once(p, Lanes<L>::load_once(p) - lr * g);
  }
  float lr;
};
struct AdagradStep {
  template <std::size_t L>
  LEASHED_BLOCK void step(float* p, typename Lanes<L>::Vector g) const {
    using V = Lanes<L>;
    const auto v = V::load_once(p + stride) + g * g;
    V::store_once(p + stride, v);
    const typename V::Vector zero = {};
    typename V::Vector change;
    if constexpr (L == kLanes) {
      change = Math::over_root(lr, g, v, epsilon);
    } else {
      change = lr * g / (V::root(v) + epsilon);
    }
    V::store_once(p, V::load_once(p) - (g == zero ? zero : change));
  }
  std::size_t stride;
  float lr, epsilon;
};

}  // namespace
}  // namespace leashed
