// Dot products between n vectors of one example are the lower triangle of V Vᵀ, [n][n]. Nothing is
// summed across a vector's lanes: with Vᵀ at hand, [dim][n], a tile of the triangle is Σ_k of one
// column of Vᵀ, element by element, times that row of Vᵀ from 0 on. On the way back a vector's
// gradient is Σᵢ g(i, j) vᵢ, whose coefficients lie in two places: for i < j one after another, for
// i > j a row of the triangle apart. A tile of gradients lives in registers while all of V runs
// past it, and of the triangle nothing is computed or multiplied twice.
#include "leashed/kernels/interaction.h"

#include <cstdint>
#include <utility>

#include "leashed/base/isa_table.h"
#include "leashed/base/simd.h"
#include "leashed/kernels/partial.h"
#include "leashed/update/kernels/racy.h"

namespace leashed {
namespace {

// Sums of a tile of V vectors a row, its vectors and a broadcast must fit the registers, those of
// the way back also one address a row.
#if defined(__AVX512F__) || defined(__aarch64__)
template <std::size_t V>
constexpr std::size_t kRows = V == 1 ? 16 : 12;  // of 32 registers
constexpr std::size_t kRowsBack = 10;
#else
template <std::size_t V>
constexpr std::size_t kRows = V == 1 ? 8 : 6;  // of 16
constexpr std::size_t kRowsBack = 5;
#endif

constexpr std::size_t round_up(std::size_t n) { return (n + kLanes - 1) / kLanes * kLanes; }
constexpr std::size_t triangle(std::size_t j) { return j * (j - 1) / 2; }  // where row j begins

// Exchanges, in all pairs of rows that differ in bit S of their number, the lanes that do.
template <std::size_t S, std::size_t... L>
LEASHED_INLINE void exchange(vfloat (&r)[kLanes], std::index_sequence<L...>) {
  constexpr vint low = {static_cast<std::int32_t>(L & S ? kLanes + (L ^ S) : L)...};
  constexpr vint high = {static_cast<std::int32_t>(L & S ? kLanes + L : L | S)...};
#pragma GCC unroll 16
  for (std::size_t i = 0; i < kLanes; ++i) {
    if (i & S) continue;
    const vfloat a = r[i], b = r[i | S];
    r[i] = __builtin_shuffle(a, b, low);
    r[i | S] = __builtin_shuffle(a, b, high);
  }
}

// out = inᵀ, kLanes rows and columns of it.
LEASHED_INLINE void transpose(const float* in, std::size_t ld_in, float* out, std::size_t ld_out) {
  constexpr auto lanes = std::make_index_sequence<kLanes>();
  vfloat r[kLanes];
#pragma GCC unroll 16
  for (std::size_t i = 0; i < kLanes; ++i) r[i] = vload(in + i * ld_in);
  exchange<1>(r, lanes);
  exchange<2>(r, lanes);
  if constexpr (kLanes > 4) exchange<4>(r, lanes);
  if constexpr (kLanes > 8) exchange<8>(r, lanes);
#pragma GCC unroll 16
  for (std::size_t i = 0; i < kLanes; ++i) vstore(out + i * ld_out, r[i]);
}

LEASHED_INLINE const float* vector_of(const Vector& v, std::size_t row) {
  return v.values ? v.values[v.places[row]] : v.at + row * v.stride;
}
LEASHED_INLINE float* gradient_of(const VectorGradient& d, std::size_t row) {
  return d.at + (d.places ? d.places[row] : row) * d.stride;
}

LEASHED_INLINE LEASHED_RACY vfloat load_racy(const float* p, std::size_t count) {
  if (count >= kLanes) return load_once(p);
  float lanes[kLanes] = {};
  for (std::size_t i = 0; i < count; ++i) lanes[i] = load_one(p + i);
  return vload(lanes);
}

// The vectors of one example, [n][round_up(dim)], padded with zeros.
LEASHED_INLINE LEASHED_RACY void collect(const Vectors& v, std::size_t row, float* out) {
  const std::size_t ld = round_up(v.dim);
  for (std::size_t j = 0; j < v.n; ++j, out += ld) {
    const float* from = vector_of(v.vectors[j], row);
    for (std::size_t k = 0; k < v.dim; k += kLanes) {
      vstore(out + k, load_racy(from + k, v.dim - k));
    }
  }
}

// Rows of tables that are needed soon, a few at a time beside the work: many at once would wait for
// each other.
LEASHED_INLINE void fetch(const float* row, std::size_t dim) {
  constexpr std::size_t kLine = 64 / sizeof(float);
  for (std::size_t k = 0; k < dim; k += kLine) __builtin_prefetch(row + k);
}

// Rows [j, j + R) of the triangle in columns [column, column + V * kLanes), of Vᵀ with stride ld.
template <std::size_t R, std::size_t V>
void dot_tile(const float* transposed, std::size_t ld, std::size_t dim, std::size_t j,
              std::size_t column, float* out) {
  vfloat sum[R][V] = {};
  const float* t = transposed;
  for (std::size_t k = 0; k < dim; ++k, t += ld) {
    vfloat tv[V];
#pragma GCC unroll 2
    for (std::size_t v = 0; v < V; ++v) tv[v] = vload(t + column + v * kLanes);
#pragma GCC unroll 16
    for (std::size_t r = 0; r < R; ++r) {
      const vfloat x = vset(t[j + r]);
#pragma GCC unroll 2
      for (std::size_t v = 0; v < V; ++v) sum[r][v] += x * tv[v];
    }
  }
#pragma GCC unroll 16
  for (std::size_t r = 0; r < R; ++r) {
    float* row = out + triangle(j + r);
#pragma GCC unroll 2
    for (std::size_t v = 0; v < V; ++v) {
      const std::size_t from = column + v * kLanes;
      if (from < j + r) vstore_up_to(row + from, sum[r][v], j + r - from);
    }
  }
}

// (Not std::array, whose operators the linker may share between instruction-set levels.)
template <class F, std::size_t N>
struct Tiles {
  F of[N];
};

using DotTile = void (*)(const float*, std::size_t, std::size_t, std::size_t, std::size_t, float*);
template <std::size_t V, std::size_t... I>
constexpr Tiles<DotTile, sizeof...(I)> make_dot_tiles(std::index_sequence<I...>) {
  return {{dot_tile<I + 1, V>...}};
}
template <std::size_t V>
constexpr Tiles<DotTile, kRows<V>> dot_tiles =
    make_dot_tiles<V>(std::make_index_sequence<kRows<V>>());

// Rows [begin, end) of the triangle, whose columns end in the same vector, dealt out evenly among
// tiles of V vectors from `column` on.
template <std::size_t V>
LEASHED_INLINE void dot_tiles_of(const float* transposed, std::size_t ld, std::size_t dim,
                                 std::size_t begin, std::size_t end, std::size_t column,
                                 float* out) {
  const std::size_t tiles = (end - begin + kRows<V> - 1) / kRows<V>;
  for (std::size_t i = 0, j = begin; i < tiles; ++i) {
    const std::size_t count = (end - j + tiles - i - 1) / (tiles - i);
    dot_tiles<V>.of[count - 1](transposed, ld, dim, j, column, out);
    j += count;
  }
}

// The last row's vectors are read in blocks of kLanes.
std::size_t dot_kept(std::size_t n, std::size_t dim, std::size_t rows) {
  return (rows * n + kLanes) * round_up(dim);
}
std::size_t dot_scratch(std::size_t n, std::size_t dim) { return round_up(n) * round_up(dim); }

LEASHED_RACY void dot_racy(const Vectors& v, std::size_t rows, float* out, std::size_t ld,
                           float* kept, float* transposed) {
  const std::size_t height = round_up(v.n), width = round_up(v.dim);
  for (std::size_t row = 0; row < rows; ++row, out += ld, kept += v.n * width) {
    collect(v, row, kept);
    for (std::size_t j = 0; j < height; j += kLanes) {
      for (std::size_t k = 0; k < width; k += kLanes) {
        transpose(kept + j * width + k, width, transposed + k * height + j, height);
      }
    }
    for (std::size_t begin = 1, end; begin < v.n; begin = end) {
      const std::size_t columns = round_up(begin);
      end = min(v.n, columns + 1);
      for (std::size_t j = begin; j < end && row + 1 < rows; ++j) {
        if (v.vectors[j].values) fetch(vector_of(v.vectors[j], row + 1), v.dim);
      }
      std::size_t column = 0;
      for (; column + kLanes < columns; column += 2 * kLanes) {
        dot_tiles_of<2>(transposed, height, v.dim, begin, end, column, out);
      }
      if (column < columns) {
        dot_tiles_of<1>(transposed, height, v.dim, begin, end, column, out);
      }
    }
  }
}

// The gradients of vectors [j, j + R) in V * kLanes of their floats, from `column` on.
template <std::size_t R, std::size_t V>
void dot_back_tile(std::size_t n, std::size_t dim, const float* v, const float* g, std::size_t row,
                   std::size_t j, std::size_t column, const VectorGradient* d) {
  const std::size_t ld = round_up(dim);
  const float* g_row[R];
#pragma GCC unroll 10
  for (std::size_t r = 0; r < R; ++r) g_row[r] = g + triangle(j + r);
  vfloat sum[R][V] = {};
  const float* other = v + column;
  const auto add = [&](auto coefficient) __attribute__((always_inline)) {
    vfloat x[V];
#pragma GCC unroll 2
    for (std::size_t k = 0; k < V; ++k) x[k] = vload(other + k * kLanes);
#pragma GCC unroll 10
    for (std::size_t r = 0; r < R; ++r) {
      const vfloat c = vset(coefficient(r));
#pragma GCC unroll 2
      for (std::size_t k = 0; k < V; ++k) sum[r][k] += c * x[k];
    }
    other += ld;
  };
  for (std::size_t i = 0; i < j; ++i) add([&](std::size_t r) { return g_row[r][i]; });
#pragma GCC unroll 10
  for (std::size_t i = 0; i < R; ++i) {
    vfloat x[V];
#pragma GCC unroll 2
    for (std::size_t k = 0; k < V; ++k) x[k] = vload(other + k * kLanes);
#pragma GCC unroll 10
    for (std::size_t r = 0; r < R; ++r) {
      if (r == i) continue;
      const vfloat c = vset(r < i ? g_row[i][j + r] : g_row[r][j + i]);
#pragma GCC unroll 2
      for (std::size_t k = 0; k < V; ++k) sum[r][k] += c * x[k];
    }
    other += ld;
  }
  const float* below = g + triangle(j + R) + j;
  for (std::size_t i = j + R; i < n; ++i) {
    add([&](std::size_t r) { return below[r]; });
    below += i;
  }
#pragma GCC unroll 10
  for (std::size_t r = 0; r < R; ++r) {
    const VectorGradient& own = d[j + r];
    if (!own.at) continue;
    float* to = gradient_of(own, row) + column;
#pragma GCC unroll 2
    for (std::size_t k = 0; k < V; ++k) {
      const std::size_t count = dim - column - k * kLanes;
      vfloat x = sum[r][k];
      if (own.adds) x += vload_up_to(to + k * kLanes, count);
      vstore_up_to(to + k * kLanes, x, count);
    }
  }
}

using DotBackTile = void (*)(std::size_t, std::size_t, const float*, const float*, std::size_t,
                             std::size_t, std::size_t, const VectorGradient*);
template <std::size_t V, std::size_t... I>
constexpr Tiles<DotBackTile, sizeof...(I)> make_dot_back_tiles(std::index_sequence<I...>) {
  return {{dot_back_tile<I + 1, V>...}};
}
template <std::size_t V>
constexpr Tiles<DotBackTile, kRowsBack> dot_back_tiles =
    make_dot_back_tiles<V>(std::make_index_sequence<kRowsBack>());

void dot_backward(std::size_t n, std::size_t dim, const float* kept, std::size_t rows,
                  const float* d_out, std::size_t ld, const VectorGradient* d) {
  const std::size_t width = round_up(dim), tiles = (n + kRowsBack - 1) / kRowsBack;
  for (std::size_t row = 0; row < rows; ++row, d_out += ld, kept += n * width) {
    for (std::size_t i = 0, j = 0; i < tiles; ++i) {
      const std::size_t count = (n - j + tiles - i - 1) / (tiles - i);
      for (std::size_t k = j; k < j + count && row + 1 < rows; ++k) {
        if (d[k].at && d[k].places) fetch(gradient_of(d[k], row + 1), dim);
      }
      std::size_t column = 0;
      for (; column + kLanes < width; column += 2 * kLanes) {
        dot_back_tiles<2>.of[count - 1](n, dim, kept, d_out, row, j, column, d);
      }
      if (column < width) dot_back_tiles<1>.of[count - 1](n, dim, kept, d_out, row, j, column, d);
      j += count;
    }
  }
}

void fm(const Vectors& v, std::size_t rows, float* out, std::size_t ld) {
  for (std::size_t row = 0; row < rows; ++row) {
    vfloat total = {};
    for (std::size_t k = 0; k < v.dim; k += kLanes) {
      vfloat sum = {}, squares = {};
      for (std::size_t j = 0; j < v.n; ++j) {
        const vfloat x = vload_up_to(vector_of(v.vectors[j], row) + k, v.dim - k);
        sum += x;
        squares += x * x;
      }
      total += rounded(sum * sum) - squares;  // exactly 0 of one vector alone
    }
    float lanes = 0;
    for (std::size_t l = 0; l < kLanes; ++l) lanes += total[l];
    out[row * ld] = 0.5f * lanes;
  }
}

void fm_backward(const Vectors& v, std::size_t rows, const float* d_out, std::size_t ld,
                 const VectorGradient* d) {
  for (std::size_t row = 0; row < rows; ++row) {
    const vfloat g = vset(d_out[row * ld]);
    for (std::size_t k = 0; k < v.dim; k += kLanes) {
      const std::size_t count = v.dim - k;
      vfloat sum = {};
      for (std::size_t j = 0; j < v.n; ++j) {
        sum += vload_up_to(vector_of(v.vectors[j], row) + k, count);
      }
      for (std::size_t j = 0; j < v.n; ++j) {
        if (!d[j].at) continue;
        float* to = gradient_of(d[j], row) + k;
        vfloat x = g * (sum - vload_up_to(vector_of(v.vectors[j], row) + k, count));
        if (d[j].adds) x += vload_up_to(to, count);
        vstore_up_to(to, x, count);
      }
    }
  }
}

}  // namespace

extern const InteractionKernels LEASHED_ISA_NAME(interaction_kernels);
const InteractionKernels LEASHED_ISA_NAME(interaction_kernels) = {
    dot_kept, dot_scratch, dot_racy, dot_backward, fm, fm_backward};

}  // namespace leashed
