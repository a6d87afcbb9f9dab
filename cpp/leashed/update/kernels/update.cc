// Every update kernel uses the same expression, current − step · gradient, in the vector part and in
// the tail, so that all disciplines give the same bits for the same inputs.
#include "leashed/base/isa_table.h"
#include "leashed/base/simd.h"
#include "leashed/update/kernels.h"

namespace leashed {
namespace {

void sgd(float* next, const float* current, const float* gradient, float step, std::size_t n) {
  const vfloat steps = vset(step);
  std::size_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    vstore(next + i, vload(current + i) - steps * vload(gradient + i));
  }
  for (; i < n; ++i) next[i] = current[i] - step * gradient[i];
}

// Volatile accesses: exactly one load and one store of each element, whatever other threads do.
#define LEASHED_RACY __attribute__((no_sanitize("thread")))
typedef volatile vfloat_u racy_vfloat;

LEASHED_RACY void sgd_racy(float* theta, const float* gradient, float step, std::size_t n) {
  const vfloat steps = vset(step);
  std::size_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    auto* lanes = reinterpret_cast<racy_vfloat*>(theta + i);
    const vfloat_u current = *lanes;
    *lanes = current - steps * vload(gradient + i);
  }
  for (; i < n; ++i) {
    auto* lane = const_cast<volatile float*>(theta + i);
    const float current = *lane;
    *lane = current - step * gradient[i];
  }
}

LEASHED_RACY void copy_racy(float* to, const float* from, std::size_t n) {
  std::size_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    vstore(to + i, *reinterpret_cast<const racy_vfloat*>(from + i));
  }
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
const UpdateKernels LEASHED_ISA_NAME(update_kernels) = {sgd, sgd_racy, copy_racy, mean};

}  // namespace leashed
