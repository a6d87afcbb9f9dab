#include "leashed/kernels/spatial_parts.h"
#include "leashed/kernels/spatial_transpose.h"

namespace leashed {
namespace LEASHED_SPATIAL {

void gather(const float* const* rows, std::size_t count, std::size_t features, float* out) {
  std::size_t first = 0;
  for (; first + kLanes <= features; first += kLanes) {
    vfloat m[kLanes];
#pragma GCC unroll 16
    for (std::size_t i = 0; i < kLanes; ++i) m[i] = i < count ? vload(rows[i] + first) : vfloat{};
    transpose(m);
#pragma GCC unroll 16
    for (std::size_t i = 0; i < kLanes; ++i) vstore(out + (first + i) * kLanes, m[i]);
  }
  for (; first < features; ++first)
    for (std::size_t i = 0; i < kLanes; ++i)
      out[first * kLanes + i] = i < count ? rows[i][first] : 0.0f;
}

}  // namespace LEASHED_SPATIAL
}  // namespace leashed
