// Kernels around the update rules' own passes (passes.h). copy_racy reads floats that other threads
// write meanwhile (kernels/racy.h).
#pragma once

#include <cstddef>
#include <cstdint>

#include "leashed/base/isa.h"

namespace leashed {

struct UpdateKernels {
  void (*copy_racy)(float* to, const float* from, std::size_t n);
  // shared[i] += weight · (factor · local[i] − base[i]); the sum is the new local[i] and base[i].
  void (*merge_racy)(float* shared, float* local, float* base, float factor, float weight,
                     std::size_t n);
  // shared[i] ← after[i] where it is before[i] yet; what others have added since is kept.
  void (*replace_racy)(float* shared, const float* before, const float* after, std::size_t n);
  // v[i] *= factor.
  void (*scale_racy)(float* v, float factor, std::size_t n);
  // above[i] and below[i] grow by the penalty; then v[i] goes that far towards 0, and no farther,
  // and they change by what it went.
  void (*truncate_racy)(float* v, float* above, float* below, float penalty, std::size_t n);
  // out = the mean of `count` vectors, each read from `offset` on; out may be one of them.
  void (*mean)(float* out, const float* const* vectors, std::size_t count, std::size_t offset,
               std::size_t n);
  // Σ clamp(v[i], ±clip)² over [begin, end).
  double (*sum_of_squares)(const float* v, float clip, std::size_t begin, std::size_t end);
  // The first i where v[i] is NaN or infinite; n: all are finite.
  std::size_t (*first_not_finite)(const float* v, std::size_t n);
  // few[i] ← all[indices[i]], and back.
  void (*gather_racy)(float* few, const float* all, const std::int64_t* indices, std::size_t n);
  void (*scatter_racy)(float* all, const float* few, const std::int64_t* indices, std::size_t n);
};

const UpdateKernels& update_kernels(Isa isa = default_isa());

}  // namespace leashed
