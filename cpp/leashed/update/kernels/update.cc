// Every update kernel uses the same expression, current − step · gradient, in the vector part and
// in the tail, so that all disciplines give the same bits for the same inputs.
#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "leashed/base/isa_table.h"
#include "leashed/base/simd.h"
#include "leashed/update/kernels.h"

namespace leashed {
namespace {

#if defined(__x86_64__)
LEASHED_INLINE void stream(float* p, vfloat v) {
#if defined(__AVX512F__)
  _mm512_stream_ps(p, v);
#elif defined(__AVX2__)
  _mm256_stream_ps(p, v);
#else
  _mm_stream_ps(p, v);
#endif
}
#endif

void sgd(float* next, const float* current, const float* gradient, float step, std::size_t n) {
  const vfloat steps = vset(step);
  std::size_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    vstore(next + i, vload(current + i) - steps * vload(gradient + i));
  }
  for (; i < n; ++i) next[i] = current[i] - step * gradient[i];
}

// Stores that bypass the caches: nothing is read to be overwritten, nothing useful is evicted.
void sgd_stream(float* next, const float* current, const float* gradient, float step,
                std::size_t n) {
#if defined(__x86_64__)
  const vfloat steps = vset(step);
  std::size_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    stream(next + i, vload(current + i) - steps * vload(gradient + i));
  }
  for (; i < n; ++i) next[i] = current[i] - step * gradient[i];
  // Such stores are not ordered by the release that publishes the vector; this orders them.
  _mm_sfence();
#else
  sgd(next, current, gradient, step, n);
#endif
}

#define LEASHED_RACY __attribute__((no_sanitize("thread")))
#if defined(__x86_64__)
#define LEASHED_VECTOR_REGISTER "+v"
#else
#define LEASHED_VECTOR_REGISTER "+w"
#endif

// Exactly one load or one store, which the compiler can neither repeat, split nor move, whatever
// other threads do to the same floats. (A volatile vector would do, but GCC then ignores that it
// may be unaligned.)
LEASHED_INLINE LEASHED_RACY vfloat load_once(const float* p) {
  vfloat v = vload(p);
  asm volatile("" : LEASHED_VECTOR_REGISTER(v) : : "memory");
  return v;
}
LEASHED_INLINE LEASHED_RACY void store_once(float* p, vfloat v) {
  vstore(p, v);
  asm volatile("" : : : "memory");
}

LEASHED_RACY void sgd_racy(float* theta, const float* gradient, float step, std::size_t n) {
  const vfloat steps = vset(step);
  std::size_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    store_once(theta + i, load_once(theta + i) - steps * vload(gradient + i));
  }
  for (; i < n; ++i) {
    auto* lane = const_cast<volatile float*>(theta + i);
    const float current = *lane;
    *lane = current - step * gradient[i];
  }
}

LEASHED_RACY void copy_racy(float* to, const float* from, std::size_t n) {
  std::size_t i = 0;
  for (; i + kLanes <= n; i += kLanes) vstore(to + i, load_once(from + i));
  for (; i < n; ++i) to[i] = *const_cast<const volatile float*>(from + i);
}

void mean(float* out, const float* const* vectors, std::size_t count, std::size_t offset,
          std::size_t n) {
  const float scale = 1.0f / static_cast<float>(count);
  std::size_t i = offset;
  const std::size_t end = offset + n;
  for (; i + kLanes <= end; i += kLanes) {
    vfloat sum = vload(vectors[0] + i);
    for (std::size_t v = 1; v < count; ++v) sum += vload(vectors[v] + i);
    vstore(out + i, sum * scale);
  }
  for (; i < end; ++i) {
    float sum = vectors[0][i];
    for (std::size_t v = 1; v < count; ++v) sum += vectors[v][i];
    out[i] = sum * scale;
  }
}

}  // namespace

extern const UpdateKernels LEASHED_ISA_NAME(update_kernels);
const UpdateKernels LEASHED_ISA_NAME(update_kernels) = {sgd, sgd_stream, sgd_racy, copy_racy, mean};

}  // namespace leashed
