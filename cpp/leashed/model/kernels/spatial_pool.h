// Max-pooling. The rule is PyTorch's: the first maximum of a window wins, and NaN counts as larger
// than everything, so that it reaches the output. Part of spatial.cc.
#pragma once

#include "leashed/base/simd.h"
#include "leashed/model/kernels/spatial_correlate.h"

namespace leashed {
namespace {

inline constexpr std::uint8_t kNoPosition = 255;

typedef std::uint8_t vbyte __attribute__((vector_size(kLanes)));

LEASHED_INLINE void store_positions(std::uint8_t* to, vint position) {
  const vbyte bytes = __builtin_convertvector(position, vbyte);
  std::memcpy(to, &bytes, sizeof bytes);
}

LEASHED_INLINE vint load_positions(const std::uint8_t* from) {
  vbyte bytes;
  std::memcpy(&bytes, from, sizeof bytes);
  return __builtin_convertvector(bytes, vint);
}

// max(0, x) that lets NaN through.
LEASHED_INLINE vfloat relu(vfloat x) { return vfloat{} > x ? vfloat{} : x; }

// The running maximum of a window and where it was.
struct Maximum {
  vfloat value = vset(-__builtin_inff());
  vint position = {};

  __attribute__((always_inline)) void take(vfloat x, std::int32_t at) {
    const vint larger = (x > value) | (x != x);
    value = larger ? x : value;
    position = larger ? at - vint{} : position;
  }
  // max(0, ·); no gradient passes where that is 0.
  __attribute__((always_inline)) void rectify() {
    position = value <= vfloat{} ? kNoPosition - vint{} : position;
    value = relu(value);
  }
};

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

}  // namespace
}  // namespace leashed
