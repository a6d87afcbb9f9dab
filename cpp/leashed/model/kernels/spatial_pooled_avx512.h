// Gradients of convolution, ReLU and 2 × 2 max-pooling with AVX-512, for square kernels of K = 3
// and 5 with stride 1 (and no padding: see spatial_pooled_backward.h).
//
// Only one of the four convolution outputs under a pooled output has a gradient, another one in
// each image. Instead of multiplying the three zeros, each lane of a vector selects what belongs to
// its image: for the parameters the input under its output (by masks, one per row and column
// parity), for the input the weight that leads there (a permutation by position of a small table).
// So a pooled output costs K² multiply-adds and about 2K² selections, which run on other units,
// where the dense sum costs 4K² multiply-adds. Part of spatial.cc.
#pragma once

#include <immintrin.h>

#include "leashed/model/kernels/spatial_correlate.h"
#include "leashed/model/kernels/spatial_pool.h"

namespace leashed {
namespace {

// The gradient of one pooled output in 16 images: zero where none passes.
struct PooledGradient {
  __m512 d;
  __m128i position;

  PooledGradient(const float* d_out, const std::uint8_t* at)
      : position(_mm_loadu_si128(reinterpret_cast<const __m128i*>(at))) {
    const __mmask16 passes = _mm_cmpneq_epi8_mask(position, _mm_set1_epi8(-1));
    d = _mm512_maskz_loadu_ps(passes, d_out);
  }
  __mmask16 odd_column() const { return _mm_test_epi8_mask(position, _mm_set1_epi8(1)); }
  __mmask16 odd_row() const { return _mm_test_epi8_mask(position, _mm_set1_epi8(2)); }
};

// sums[(f, c), taps (0..K, kx..kx+T)] over all positions, for filters f..f+F of channel c.
template <int K, int F, int T>
void pooled_sum_taps(const PoolShape& p, const float* in, Index in_width, const float* d_out,
                     const std::uint8_t* position, Index filter_step, float* sums) {
  const Index plane = p.out_height * p.out_width * kLanes;
  const Index row = in_width * Index{kLanes};
  __m512 acc[F][K][T];
#pragma GCC unroll 2
  for (int f = 0; f < F; ++f)
#pragma GCC unroll 5
    for (int i = 0; i < K; ++i)
#pragma GCC unroll 5
      for (int j = 0; j < T; ++j) acc[f][i][j] = _mm512_setzero_ps();
  for (std::size_t y = 0; y < p.out_height; ++y) {
    const float* window = in + 2 * static_cast<Index>(y) * row;
    for (std::size_t x = 0; x < p.out_width; ++x, window += 2 * kLanes) {
      __m512 d[F], above[F][T];
      __mmask16 odd_column[F], odd_row[F];
#pragma GCC unroll 2
      for (int f = 0; f < F; ++f) {
        const PooledGradient g(d_out + f * plane, position + f * plane);
        d[f] = g.d;
        odd_column[f] = g.odd_column();
        odd_row[f] = g.odd_row();
      }
      d_out += kLanes;
      position += kLanes;
#pragma GCC unroll 6
      for (int i = 0; i <= K; ++i) {
        __m512 value[T + 1];
#pragma GCC unroll 6
        for (int j = 0; j <= T; ++j) value[j] = _mm512_loadu_ps(window + i * row + j * kLanes);
#pragma GCC unroll 2
        for (int f = 0; f < F; ++f) {
#pragma GCC unroll 5
          for (int j = 0; j < T; ++j) {
            const __m512 here = _mm512_mask_blend_ps(odd_column[f], value[j], value[j + 1]);
            if (i > 0)
              acc[f][i - 1][j] = _mm512_fmadd_ps(
                  d[f], _mm512_mask_blend_ps(odd_row[f], above[f][j], here), acc[f][i - 1][j]);
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
        _mm512_storeu_ps(sums + f * filter_step + (i * K + j) * Index{kLanes}, acc[f][i][j]);
}

// Lane sums of dW into sums [filters][channels][K][K][lanes] and of db behind it.
template <int K>
void pooled_parameter_sums(const ConvShape& s, const PoolShape& p, const float* in,
                           const float* d_out, const std::uint8_t* position, float* sums) {
  constexpr int kFilters = K == 3 ? 2 : 1, kTaps = 3;
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
    __m512 even = _mm512_setzero_ps(), odd = even;  // two chains of additions
    for (Index i = 0; i < plane; i += kLanes) {
      const PooledGradient g(d_out + i, position + i);
      const __m512 sum = even + g.d;
      even = odd;
      odd = sum;
    }
    _mm512_storeu_ps(sums + f * kLanes, even + odd);
  }
}

// A window's (K + 1)² inputs in groups of 4, and for each group a table of 16 weights: entry
// 4 · input + position is the weight between that input and the output at that position, or 0.
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

// d_in [channels][height][width] from the pooled gradient; tables need
// filters · channels · kWindowTable<K> floats.
template <int K>
void pooled_input_gradient(const ConvShape& s, const PoolShape& p, const float* w,
                           const float* d_out, const std::uint8_t* position, float* d_in,
                           float* tables) {
  constexpr int kGroups = (K + 1) * (K + 1) / 4;
  constexpr int kPart = K == 3 ? 4 : 3;  // groups per pass: 4 accumulators each
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
        for (int part = 0; part < kGroups; part += kPart) {
          float* cell[4 * kPart];
          __m512 acc[4 * kPart];
#pragma GCC unroll 16
          for (int i = 0; i < 4 * kPart; ++i) {
            const int index = 4 * part + i;
            cell[i] = window + (index / (K + 1) * width + index % (K + 1)) * Index{kLanes};
            acc[i] = _mm512_loadu_ps(cell[i]);
          }
          for (Index f = 0; f < filters; ++f) {
            const PooledGradient g(d_out + f * plane + at, position + f * plane + at);
            const float* table = tables + (f * channels + c) * kWindowTable<K> + 16 * part;
            const vint positions = load_positions(position + f * plane + at);
            vint entry[4];
#pragma GCC unroll 4
            for (int i = 0; i < 4; ++i) entry[i] = positions + 4 * i;
#pragma GCC unroll 4
            for (int group = 0; group < kPart; ++group) {
              const vfloat weights = vload(table + 16 * group);
#pragma GCC unroll 4
              for (int i = 0; i < 4; ++i)
                acc[4 * group + i] =
                    _mm512_fmadd_ps(g.d, __builtin_shuffle(weights, entry[i]), acc[4 * group + i]);
            }
          }
#pragma GCC unroll 16
          for (int i = 0; i < 4 * kPart; ++i) _mm512_storeu_ps(cell[i], acc[i]);
        }
      }
    }
  }
}

}  // namespace
}  // namespace leashed
