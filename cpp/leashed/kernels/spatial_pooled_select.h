// Gradients of convolution, ReLU and 2 × 2 max-pooling for square kernels of K = 3 and 5 with
// stride 1 (and no padding: see spatial_pooled_backward.cc), with AVX2 or AVX-512.
//
// Only one of the four convolution outputs under a pooled output has a gradient, another one in
// each image. Instead of multiplying the three zeros, each lane of a vector selects what belongs to
// its image: for the parameters the input under its output (by masks, one per row and column
// parity), for the input the weight that leads there (a permutation by position of a small table).
// So a pooled output costs K² multiply-adds and about 2K² selections, which run on other units,
// where the dense sum costs 4K² multiply-adds. (An infinite gradient turns into NaN at its
// window's inputs that the dense sum would leave alone.)
#pragma once

#include "leashed/kernels/spatial.h"
#include "leashed/kernels/spatial_correlate.h"
#include "leashed/kernels/spatial_positions.h"

namespace leashed {
namespace {

#if defined(__AVX512BW__)

using Mask = __mmask16;
LEASHED_INLINE vfloat select(Mask mask, vfloat no, vfloat yes) {
  return (vfloat)_mm512_mask_blend_ps(mask, (__m512)no, (__m512)yes);
}

// Which lanes of a pooled output pass its gradient, and where their maxima were.
struct Selection {
  Mask passes, odd_column, odd_row;

  explicit Selection(const std::uint8_t* position) {
    const __m128i at = _mm_loadu_si128(reinterpret_cast<const __m128i*>(position));
    passes = _mm_cmpneq_epi8_mask(at, _mm_set1_epi8(-1));
    odd_column = _mm_test_epi8_mask(at, _mm_set1_epi8(1));
    odd_row = _mm_test_epi8_mask(at, _mm_set1_epi8(2));
  }
};

#else

using Mask = vint;  // by sign
LEASHED_INLINE vfloat select(Mask mask, vfloat no, vfloat yes) { return mask < 0 ? yes : no; }

struct Selection {
  Mask passes, odd_column, odd_row;

  explicit Selection(const std::uint8_t* position) {
    const vint at = load_positions(position);
    passes = at - kNoPosition;
    odd_column = at << 31;
    odd_row = at << 30;
  }
};

#endif

// The gradient of one pooled output: zero where none passes.
LEASHED_INLINE vfloat passing(const Selection& at, const float* d_out) {
  return select(at.passes, vfloat{}, vload(d_out));
}

// sums[f, taps (0..K, 0..T)] over all positions, for F filters of one channel.
template <int K, int F, int T>
void pooled_sum_taps(const PoolShape& p, const float* in, Index in_width, const float* d_out,
                     const std::uint8_t* position, Index filter_step, float* sums) {
  const Index plane = p.out_height * p.out_width * kLanes;
  const Index row = in_width * Index{kLanes};
  vfloat acc[F][K][T] = {};
  for (std::size_t y = 0; y < p.out_height; ++y) {
    const float* window = in + 2 * static_cast<Index>(y) * row;
    for (std::size_t x = 0; x < p.out_width; ++x, window += 2 * kLanes) {
      vfloat d[F], above[F][T];
      Mask odd_column[F], odd_row[F];
#pragma GCC unroll 2
      for (int f = 0; f < F; ++f) {
        const Selection at(position + f * plane);
        d[f] = passing(at, d_out + f * plane);
        odd_column[f] = at.odd_column;
        odd_row[f] = at.odd_row;
      }
      d_out += kLanes;
      position += kLanes;
#pragma GCC unroll 6
      for (int i = 0; i <= K; ++i) {
        vfloat value[T + 1];
#pragma GCC unroll 6
        for (int j = 0; j <= T; ++j) value[j] = vload(window + i * row + j * Index{kLanes});
#pragma GCC unroll 2
        for (int f = 0; f < F; ++f) {
#pragma GCC unroll 5
          for (int j = 0; j < T; ++j) {
            const vfloat here = select(odd_column[f], value[j], value[j + 1]);
            if (i > 0) acc[f][i - 1][j] += d[f] * select(odd_row[f], above[f][j], here);
            above[f][j] = here;
          }
        }
      }
    }
  }
#pragma GCC unroll 2
  for (int f = 0; f < F; ++f)
#pragma GCC unroll 5
    for (int i = 0; i < K; ++i)
#pragma GCC unroll 5
      for (int j = 0; j < T; ++j)
        vstore(sums + f * filter_step + (i * K + j) * Index{kLanes}, acc[f][i][j]);
}

// Lane sums of dW into sums [filters][channels][K][K][lanes], and of db behind them.
template <int K>
void pooled_parameter_sums(const ConvShape& s, const PoolShape& p, const float* in,
                           const float* d_out, const std::uint8_t* position, float* sums) {
  constexpr int kFilters = kTile == 24 && K == 3 ? 2 : 1, kTaps = kTile == 24 || K == 3 ? 3 : 2;
  const Index in_plane = s.height * s.width * kLanes;
  const Index plane = p.out_height * p.out_width * kLanes;
  const Index channels = s.channels, kernel = K * K * Index{kLanes};
  for (Index c = 0; c < channels; ++c) {
    in_parts<kFilters>(s.filters, [&]<int F>(Index f) {
      in_parts<kTaps>(K, [&]<int T>(Index kx) {
        pooled_sum_taps<K, F, T>(p, in + c * in_plane + kx * Index{kLanes}, s.width,
                                 d_out + f * plane, position + f * plane, channels * kernel,
                                 sums + (f * channels + c) * kernel + kx * Index{kLanes});
      });
    });
  }
  sums += s.filters * s.channels * K * K * kLanes;
  for (std::size_t f = 0; f < s.filters; ++f, d_out += plane, position += plane) {
    vfloat sum = {};
    for (Index i = 0; i < plane; i += kLanes) sum += passing(Selection(position + i), d_out + i);
    vstore(sums + f * kLanes, sum);
  }
}

// A window's (K + 1)² inputs, and for each a table of 4 weights: that between the input and the
// output at each position, or 0.
template <int K>
constexpr Index kWindowTable = (K + 1) * (K + 1) * 4;

template <int K>
void fill_window_table(const float* w, float* table) {
  for (int row = 0; row <= K; ++row)
    for (int column = 0; column <= K; ++column)
      for (int at = 0; at < 4; ++at) {
        const int i = row - at / 2, j = column - at % 2;
        *table++ = i >= 0 && i < K && j >= 0 && j < K ? w[i * K + j] : 0.0f;
      }
}

// d_in from the pooled gradient; tables need filters · channels · kWindowTable<K> floats.
template <int K>
void pooled_input_gradient(const ConvShape& s, const PoolShape& p, const float* w,
                           const float* d_out, const std::uint8_t* position, float* d_in,
                           float* tables) {
  constexpr int kInputs = (K + 1) * (K + 1);
  constexpr int kPart = K == 5 ? 12 : kTile == 24 ? 16 : 8;  // inputs per pass, in registers
  constexpr int kGroup = kLanes / 4;                         // tables in a vector
  const Index plane = p.out_height * p.out_width * kLanes;
  const Index channels = s.channels, filters = s.filters, out_width = p.out_width;
  const Index height = s.height, width = s.width;
  for (Index i = 0; i < filters * channels; ++i)
    fill_window_table<K>(w + i * K * K, tables + i * kWindowTable<K>);
  std::memset(d_in, 0, channels * height * width * kLanes * sizeof(float));
  for (Index y = 0; y < static_cast<Index>(p.out_height); ++y) {
    for (Index c = 0; c < channels; ++c) {
      for (Index x = 0; x < out_width; ++x) {
        const Index at = (y * out_width + x) * Index{kLanes};
        float* window = d_in + ((c * height + 2 * y) * width + 2 * x) * Index{kLanes};
#pragma GCC unroll 3
        for (int part = 0; part < kInputs; part += kPart) {
          float* input[kPart];
          vfloat acc[kPart];
#pragma GCC unroll 16
          for (int i = 0; i < kPart; ++i) {
            const int row = (part + i) / (K + 1), column = (part + i) % (K + 1);
            input[i] = window + (row * width + column) * Index{kLanes};
            acc[i] = vload(input[i]);
          }
          for (Index f = 0; f < filters; ++f) {
            const vint positions = load_positions(position + f * plane + at);
            const vfloat d = passing(Selection(position + f * plane + at), d_out + f * plane + at);
            const float* table = tables + (f * channels + c) * kWindowTable<K> + 4 * part;
            vint entry[kGroup];
#pragma GCC unroll 4
            for (int i = 0; i < kGroup; ++i) entry[i] = positions + 4 * i;
#pragma GCC unroll 8
            for (int i = 0; i < kPart; i += kGroup) {
              const vfloat weights = vload(table + 4 * i);
#pragma GCC unroll 4
              for (int j = 0; j < kGroup; ++j)
                acc[i + j] += d * __builtin_shuffle(weights, entry[j]);
            }
          }
#pragma GCC unroll 16
          for (int i = 0; i < kPart; ++i) vstore(input[i], acc[i]);
        }
      }
    }
  }
}

}  // namespace
}  // namespace leashed
