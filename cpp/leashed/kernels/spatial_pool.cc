#include "leashed/kernels/spatial_correlate.h"
#include "leashed/kernels/spatial_maximum.h"
#include "leashed/kernels/spatial_parts.h"

namespace leashed {
namespace LEASHED_SPATIAL {

void pool_forward(const PoolShape& s, const float* in, float* out, std::uint8_t* position) {
  const Index size = s.size, width = s.width;
  for (std::size_t c = 0; c < s.channels; ++c, in += s.height * s.width * kLanes) {
    for (std::size_t y = 0; y < s.out_height; ++y) {
      for (std::size_t x = 0; x < s.out_width; ++x, out += kLanes, position += kLanes) {
        const float* window = in + (y * s.stride * s.width + x * s.stride) * kLanes;
        Maximum best;
        for (Index i = 0; i < size; ++i)
          for (Index j = 0; j < size; ++j)
            best.take(vload(window + (i * width + j) * Index{kLanes}),
                      static_cast<std::int32_t>(i * size + j));
        vstore(out, best.value);
        store_positions(position, best.position);
      }
    }
  }
}

// Adds each output's gradient at its position to d_in, which holds zeros (or, where windows
// overlap, what their neighbours left).
void pool_backward(const PoolShape& s, const float* d_out, const std::uint8_t* position,
                   float* d_in) {
  const Index size = s.size, width = s.width;
  const std::size_t plane = s.height * s.width * kLanes;
  std::memset(d_in, 0, s.channels * plane * sizeof(float));
  for (std::size_t c = 0; c < s.channels; ++c, d_in += plane) {
    for (std::size_t y = 0; y < s.out_height; ++y) {
      for (std::size_t x = 0; x < s.out_width; ++x, d_out += kLanes, position += kLanes) {
        float* window = d_in + (y * s.stride * s.width + x * s.stride) * kLanes;
        const vfloat d = vload(d_out);
        const vint at = load_positions(position);
        for (Index i = 0; i < size; ++i) {
          for (Index j = 0; j < size; ++j) {
            float* cell = window + (i * width + j) * Index{kLanes};
            const vint here = at == static_cast<std::int32_t>(i * size + j) - vint{};
            vstore(cell, vload(cell) + (here ? d : vfloat{}));
          }
        }
      }
    }
  }
}

}  // namespace LEASHED_SPATIAL
}  // namespace leashed
