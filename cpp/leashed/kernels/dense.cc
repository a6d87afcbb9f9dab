// The matrix product. C is cut into panels of kPanel columns (two vectors) and a panel into tiles
// of up to kRows rows. A tile lives in registers while the whole of k runs past it: for each k two
// vectors of B are loaded, and each row's element of A is broadcast from where it lies, whatever
// its strides. So one micro-kernel serves X W (rows of X), X^T dY (columns of X) and dY W^T.
//
// The first tile of a panel reads B in place and leaves the panel behind in scratch, contiguous,
// where the other tiles read it: packing costs two stores per k and no pass of its own. Where few
// tiles or few rows of B make that not worth it, all read B in place. A panel narrower than its
// vectors is packed first, padded with zeros, so that only the epilogue knows about edges.
//
// Few columns would leave most of a vector empty: where A is given by columns the product is then
// computed transposed. Where C is one column it is a column of dot products, or, with A given by
// columns, a sum of these.
//
// Rows are dealt out evenly among the tiles (64 rows are 11 11 11 11 10 10 and not 12 12 12 12 12
// 4): a tile with few rows has too few independent sums to hide the latency of a multiply-add.
//
// The bias, the activation, its derivative and the sum with the old C are applied in registers.
#include "leashed/kernels/dense.h"

#include <array>
#include <cstring>
#include <utility>

#include "leashed/base/isa_table.h"
#include "leashed/base/simd.h"
#include "leashed/kernels/partial.h"

namespace leashed {
namespace {

// Two vectors times kRows sums, two vectors of B and one broadcast must fit the registers.
#if defined(__AVX512F__) || defined(__aarch64__)
constexpr std::size_t kRows = 12;  // of 32 registers
#else
constexpr std::size_t kRows = 6;  // of 16
#endif
constexpr std::size_t kPanel = 2 * kLanes;

// The panel of B that a tile multiplies with, and where its columns lie in C, bias and gate.
struct Panel {
  const float* b;
  std::size_t ldb;
  std::size_t column;
  std::size_t width;  // columns, at most V * kLanes
};

// Keeps GCC from working out the addresses of all rows at once, for which it has no registers (it
// then takes vector registers, and the multiply-adds wait for integers).
template <class T>
LEASHED_INLINE T* opaque(T* p) {
  asm("" : "+r"(p));
  return p;
}

// f(sum of a vector, its row in a matrix that starts at p with row stride ld, v), unrolled: the
// tile stays in registers.
template <std::size_t R, std::size_t V, class T, class F>
LEASHED_INLINE void each(vfloat (&sum)[R][V], T* p, std::size_t ld, F f) {
#pragma GCC unroll 12
  for (std::size_t r = 0; r < R; ++r) {
#pragma GCC unroll 2
    for (std::size_t v = 0; v < V; ++v) f(sum[r][v], p, v);
    p = opaque(p + ld);
  }
}

// From the sums of R rows at c to C itself. `load` and `store` know how many columns there are.
template <std::size_t R, std::size_t V, class Load, class Store>
LEASHED_INLINE void finish(const Gemm& g, std::size_t row, std::size_t column, vfloat (&sum)[R][V],
                           Load load, Store store) {
  const vfloat zero = {};
  const std::size_t first = row * g.ldc + column;
  if (g.accumulate) {
    each(sum, g.c + first, g.ldc, [&](vfloat& x, const float* p, auto v) { x += load(p, v); });
  }
  if (g.bias) {
    each(sum, g.bias + column, 0, [&](vfloat& x, const float* p, auto v) { x += load(p, v); });
  }
  if (g.relu) {
    each(sum, g.c, 0, [&](vfloat& x, const float*, auto) { x = x < zero ? zero : x; });
  }
  if (g.gate) {
    each(sum, g.gate + first, g.ldc,
         [&](vfloat& x, const float* p, auto v) { x = load(p, v) > zero ? x : zero; });
  }
  each(sum, g.c + first, g.ldc, [&](vfloat& x, float* p, auto v) { store(p, v, x); });
}

// The same for `rows` rows of V sums at the right edge of C, where a panel is not full.
template <std::size_t V>
__attribute__((noinline)) void finish_edge(const Gemm& g, const Panel& panel, std::size_t row,
                                           vfloat (*sum)[V], std::size_t rows) {
  const std::size_t rest = panel.width - (V - 1) * kLanes;
  const auto load = [&](const float* p, std::size_t v) {
    return v + 1 < V ? vload(p + v * kLanes) : vload_partial(p + v * kLanes, rest);
  };
  const auto store = [&](float* p, std::size_t v, vfloat x) {
    if (v + 1 < V) {
      vstore(p + v * kLanes, x);
    } else {
      vstore_partial(p + v * kLanes, x, rest);
    }
  };
  for (std::size_t r = 0; r < rows; ++r) {
    vfloat one[1][V];
    std::memcpy(one, sum + r, sizeof one);
    finish<1, V>(g, row + r, panel.column, one, load, store);
  }
}

// Rows [row, row + R) of a panel V vectors wide. Packs B into `packed` as it goes if Pack.
template <std::size_t R, std::size_t V, bool Pack>
void tile(const Gemm& g, const Panel& panel, std::size_t row, [[maybe_unused]] float* packed) {
  // Row r is at group[r / 4] + (r % 4) * stride: addresses that need few registers.
  constexpr std::size_t kGroups = (R + 3) / 4;
  const std::size_t stride = g.a_row, a_step = g.a_col, b_step = panel.ldb;
  const float* group[kGroups];
  group[0] = g.a + row * stride;
  for (std::size_t i = 1; i < kGroups; ++i) group[i] = opaque(group[i - 1]) + 4 * stride;

  vfloat sum[R][V] = {};
  const float* b = panel.b;
  for (std::size_t k = g.k; k > 0; --k) {
    vfloat bv[V];
#pragma GCC unroll 2
    for (std::size_t v = 0; v < V; ++v) bv[v] = vload(b + v * kLanes);
    if constexpr (Pack) {
      // B's rows lie apart, where no hardware follows.
#pragma GCC unroll 2
      for (std::size_t v = 0; v < V; ++v) __builtin_prefetch(b + 8 * b_step + v * kLanes);
#pragma GCC unroll 2
      for (std::size_t v = 0; v < V; ++v) vstore(packed + v * kLanes, bv[v]);
      packed += V * kLanes;
    }
#pragma GCC unroll 12
    for (std::size_t r = 0; r < R; ++r) {
      const vfloat x = vset(group[r / 4][(r % 4) * stride]);
#pragma GCC unroll 2
      for (std::size_t v = 0; v < V; ++v) sum[r][v] += x * bv[v];
    }
#pragma GCC unroll 3
    for (std::size_t i = 0; i < kGroups; ++i) group[i] += a_step;
    b += b_step;
  }
  if (panel.width < V * kLanes) {
    vfloat edge[R][V];
    std::memcpy(edge, sum, sizeof sum);
    finish_edge<V>(g, panel, row, edge, R);
    return;
  }
  finish<R, V>(
      g, row, panel.column, sum,
      [](const float* p, std::size_t v) { return vload(p + v * kLanes); },
      [](float* p, std::size_t v, vfloat x) { vstore(p + v * kLanes, x); });
}

using Tile = void (*)(const Gemm&, const Panel&, std::size_t row, float* packed);

// tiles[r - 1]: the tile of r rows.
template <std::size_t V, bool Pack, std::size_t... I>
constexpr std::array<Tile, kRows> make_tiles(std::index_sequence<I...>) {
  return {tile<I + 1, V, Pack>...};
}
template <std::size_t V, bool Pack>
constexpr std::array<Tile, kRows> tiles = make_tiles<V, Pack>(std::make_index_sequence<kRows>());

// B's columns [column, column + width) → packed [k][V * kLanes], padded with zeros.
template <std::size_t V>
void pack(const Gemm& g, std::size_t column, std::size_t width, float* packed) {
  for (std::size_t k = 0; k < g.k; ++k) {
    const float* b = g.b + k * g.ldb + column;
    for (std::size_t v = 0; v + 1 < V; ++v) vstore(packed + v * kLanes, vload(b + v * kLanes));
    constexpr std::size_t kLast = (V - 1) * kLanes;
    vstore(packed + kLast, vload_partial(b + kLast, width - kLast));
    packed += V * kLanes;
  }
}

// A few lines: more would wait for memory, fewer would not have all rows there in time.
LEASHED_INLINE void fetch(RowsAhead& ahead) {
  constexpr std::size_t kLine = 64 / sizeof(float);
  for (int line = 0; line < 8 && ahead.row != ahead.end; ++line) {
    __builtin_prefetch(*ahead.row + ahead.column, 0, 2);
    ahead.column += kLine;
    if (ahead.column >= ahead.length) {
      ahead.column = 0;
      ++ahead.row;
    }
  }
}

constexpr std::size_t divide_up(std::size_t n, std::size_t d) { return (n + d - 1) / d; }

template <std::size_t V>
void multiply_panel(const Gemm& g, std::size_t column, std::size_t width, float* scratch) {
  const std::size_t count = divide_up(g.m, kRows);
  const std::size_t rows = g.m / count;
  const std::size_t longer = g.m % count;  // so many tiles have one row more
  Panel panel = {g.b + column, g.ldb, column, width};
  const Panel packed = {scratch, V * kLanes, column, width};
  const auto* kernels = &tiles<V, false>;
  if (width < V * kLanes) {
    pack<V>(g, column, width, scratch);
    panel = packed;
  } else if (count > 2 && g.k > 32) {
    kernels = &tiles<V, true>;
  }
  for (std::size_t i = 0, row = 0; i < count; ++i) {
    const std::size_t r = rows + (i < longer ? 1 : 0);
    (*kernels)[r - 1](g, panel, row, scratch);
    if (g.ahead) fetch(*g.ahead);
    row += r;
    if (kernels == &tiles<V, true>) panel = packed;
    kernels = &tiles<V, false>;
  }
}

void multiply(const Gemm& g, float* scratch) {
  for (std::size_t column = 0; column < g.n; column += kPanel) {
    const std::size_t width = min(kPanel, g.n - column);
    if (width > kLanes) {
      multiply_panel<2>(g, column, width, scratch);
    } else {
      multiply_panel<1>(g, column, width, scratch);
    }
  }
}

void transpose(const float* in, std::size_t rows, std::size_t columns, std::size_t ld_in,
               float* out, std::size_t ld_out) {
  typedef float float4 __attribute__((vector_size(16)));
  typedef float float4_u __attribute__((vector_size(16), aligned(4), may_alias));
  std::size_t i = 0;
  for (; i + 4 <= rows; i += 4) {
    std::size_t j = 0;
    for (; j + 4 <= columns; j += 4) {
      const float* p = in + i * ld_in + j;
      const float4 a = *reinterpret_cast<const float4_u*>(p);
      const float4 b = *reinterpret_cast<const float4_u*>(p + ld_in);
      const float4 c = *reinterpret_cast<const float4_u*>(p + 2 * ld_in);
      const float4 d = *reinterpret_cast<const float4_u*>(p + 3 * ld_in);
      const float4 ab_low = __builtin_shufflevector(a, b, 0, 4, 1, 5);
      const float4 ab_high = __builtin_shufflevector(a, b, 2, 6, 3, 7);
      const float4 cd_low = __builtin_shufflevector(c, d, 0, 4, 1, 5);
      const float4 cd_high = __builtin_shufflevector(c, d, 2, 6, 3, 7);
      float* q = out + j * ld_out + i;
      *reinterpret_cast<float4_u*>(q) = __builtin_shufflevector(ab_low, cd_low, 0, 1, 4, 5);
      *reinterpret_cast<float4_u*>(q + ld_out) =
          __builtin_shufflevector(ab_low, cd_low, 2, 3, 6, 7);
      *reinterpret_cast<float4_u*>(q + 2 * ld_out) =
          __builtin_shufflevector(ab_high, cd_high, 0, 1, 4, 5);
      *reinterpret_cast<float4_u*>(q + 3 * ld_out) =
          __builtin_shufflevector(ab_high, cd_high, 2, 3, 6, 7);
    }
    for (; j < columns; ++j) {
      for (std::size_t r = i; r < i + 4; ++r) out[j * ld_out + r] = in[r * ld_in + j];
    }
  }
  for (; i < rows; ++i) {
    for (std::size_t j = 0; j < columns; ++j) out[j * ld_out + i] = in[i * ld_in + j];
  }
}

// C^T = B^T A^T, whose vectors run along A's columns.
void multiply_transposed(const Gemm& g, float* scratch) {
  Gemm swapped = {.m = g.n,
                  .n = g.m,
                  .k = g.k,
                  .a = g.b,
                  .a_row = 1,
                  .a_col = g.ldb,
                  .b = g.a,
                  .ldb = g.a_col,
                  .c = scratch,
                  .ldc = g.m,
                  .accumulate = g.accumulate,
                  .ahead = g.ahead};
  if (g.accumulate) transpose(g.c, g.m, g.n, g.ldc, scratch, g.m);
  multiply(swapped, scratch + g.m * kPanel);
  transpose(scratch, g.n, g.m, g.m, g.c, g.ldc);
}

// The sums of kLanes vectors' lanes, in order. Of two vectors whose numbers differ in one bit, one
// is made: the lanes whose number has not that bit are sums of two of the first's, the others of
// the second's. Half of what is moved for that stays in its lane, which costs less than to cross.
template <std::size_t Bit>
LEASHED_INLINE vfloat sums(vfloat (&v)[kLanes]) {
  vint stays, crosses;
  for (std::size_t i = 0; i < kLanes; ++i) {
    const std::size_t from = i & Bit ? kLanes : 0;
    stays[i] = static_cast<std::int32_t>(from + i);
    crosses[i] = static_cast<std::int32_t>(from + (i ^ Bit));
  }
#pragma GCC unroll 8
  for (std::size_t i = 0; i < Bit; ++i) {
    v[i] =
        __builtin_shuffle(v[i], v[i + Bit], stays) + __builtin_shuffle(v[i], v[i + Bit], crosses);
  }
  if constexpr (Bit > 1) return sums<Bit / 2>(v);
  return v[0];
}
LEASHED_INLINE vfloat sums(vfloat (&v)[kLanes]) { return sums<kLanes / 2>(v); }

// From `rows` rows' sums to C's only column.
LEASHED_INLINE void finish_column(const Gemm& g, std::size_t row, std::size_t rows, vfloat x) {
  const vfloat zero = {};
  float lanes[kLanes];
  vstore(lanes, zero);
  float* c = g.c + row * g.ldc;
  x += vset(g.bias ? *g.bias : 0);
  if (g.accumulate) {
    for (std::size_t r = 0; r < rows; ++r) lanes[r] = c[r * g.ldc];
    x += vload(lanes);
  }
  if (g.relu) x = x < zero ? zero : x;
  if (g.gate) {
    for (std::size_t r = 0; r < rows; ++r) lanes[r] = g.gate[(row + r) * g.ldc];
    x = vload(lanes) > zero ? x : zero;
  }
  vstore(lanes, x);
#pragma GCC unroll 4
  for (std::size_t r = 0; r < rows; ++r) c[r * g.ldc] = lanes[r];
}

// kLanes rows of A, each contiguous, times the contiguous B: each waits for nothing but its own
// last sum. `Rest`: k fills no whole vectors.
template <bool Rest>
void multiply_rows(const Gemm& g, std::size_t row) {
  const std::size_t stride = g.a_row, rest = g.k % kLanes;
  const float* group[kLanes / 4];  // as in tile
  group[0] = g.a + row * stride;
  for (std::size_t i = 1; i < kLanes / 4; ++i) group[i] = opaque(group[i - 1]) + 4 * stride;
  const float* b = g.b;
  vfloat v[kLanes] = {};
  for (const float* end = g.b + (g.k - rest); b != end; b += kLanes) {
    const vfloat x = vload(b);
#pragma GCC unroll 16
    for (std::size_t r = 0; r < kLanes; ++r) v[r] += vload(group[r / 4] + (r % 4) * stride) * x;
#pragma GCC unroll 4
    for (std::size_t i = 0; i < kLanes / 4; ++i) group[i] += kLanes;
  }
  if constexpr (Rest) {
    const vfloat x = vload_partial(b, rest);
#pragma GCC unroll 16
    for (std::size_t r = 0; r < kLanes; ++r) {
      v[r] += vload_partial(group[r / 4] + (r % 4) * stride, rest) * x;
    }
  }
  finish_column(g, row, kLanes, sums(v));
}

// C's only column: rows of dot products.
void multiply_vector(const Gemm& g) {
  const std::size_t rest = g.k % kLanes, whole = g.k - rest;
  std::size_t row = 0;
  for (; row + kLanes <= g.m; row += kLanes) {
    rest > 0 ? multiply_rows<true>(g, row) : multiply_rows<false>(g, row);
  }
  if (row == g.m) return;
  vfloat v[kLanes] = {};
  for (std::size_t r = 0; row + r < g.m; ++r) {
    const float* a = g.a + (row + r) * g.a_row;
    for (std::size_t k = 0; k < whole; k += kLanes) v[r] += vload(a + k) * vload(g.b + k);
    if (rest > 0) v[r] += vload_partial(a + whole, rest) * vload_partial(g.b + whole, rest);
  }
  finish_column(g, row, g.m - row, sums(v));
}

// Rows [row, row + rows) of C's only column, A being given by columns: V vectors, the last of them
// in part where Edge. The sums over every kWays-th k are independent.
template <std::size_t V, bool Edge>
void multiply_columns(const Gemm& g, std::size_t row, std::size_t rows) {
  constexpr std::size_t kWays = 8 / V;
  const std::size_t last = rows - (V - 1) * kLanes;
  const auto load = [=](const float* p, std::size_t v) __attribute__((always_inline)) {
    return Edge && v + 1 == V ? vload_partial(p + v * kLanes, last) : vload(p + v * kLanes);
  };
  vfloat sum[kWays][V] = {};
  const float* a = g.a + row;
  const float* b = g.b;
  std::size_t k = g.k;
  for (; k >= kWays; k -= kWays) {
#pragma GCC unroll 8
    for (std::size_t way = 0; way < kWays; ++way) {
      const vfloat x = vset(*b);
#pragma GCC unroll 4
      for (std::size_t v = 0; v < V; ++v) sum[way][v] += x * load(a, v);
      a += g.a_col;
      b += g.ldb;
    }
  }
  for (; k > 0; --k, a += g.a_col, b += g.ldb) {
    const vfloat x = vset(*b);
#pragma GCC unroll 4
    for (std::size_t v = 0; v < V; ++v) sum[0][v] += x * load(a, v);
  }
  float found[V * kLanes];
#pragma GCC unroll 4
  for (std::size_t v = 0; v < V; ++v) {
#pragma GCC unroll 3
    for (std::size_t half = kWays / 2; half > 0; half /= 2) {
#pragma GCC unroll 4
      for (std::size_t way = 0; way < half; ++way) sum[way][v] += sum[way + half][v];
    }
    vstore(found + v * kLanes, sum[0][v]);
  }
  float* c = g.c + row * g.ldc;
  for (std::size_t i = 0; i < rows; ++i) {
    c[i * g.ldc] = g.accumulate ? c[i * g.ldc] + found[i] : found[i];
  }
}

// As many rows from that one on as V vectors hold, and are there. Returns the next row.
template <std::size_t V>
std::size_t multiply_block(const Gemm& g, std::size_t row) {
  const std::size_t rows = min(V * kLanes, g.m - row);
  rows < V* kLanes ? multiply_columns<V, true>(g, row, rows)
                   : multiply_columns<V, false>(g, row, rows);
  if (g.ahead) fetch(*g.ahead);
  return row + rows;
}

// C's only column, A being given by columns: their sum.
void multiply_column(const Gemm& g) {
  for (std::size_t row = 0; row < g.m;) {
    const std::size_t rest = g.m - row;
    row = rest > 3 * kLanes ? multiply_block<4>(g, row)
          : rest > kLanes   ? multiply_block<2>(g, row)
                            : multiply_block<1>(g, row);
  }
}

void gemm(const Gemm& g, float* scratch) {
  const bool narrow = g.n < kPanel && g.n % kLanes != 0;
  if (narrow && g.a_row == 1 && !g.bias && !g.relu && !g.gate) {
    g.n == 1 ? multiply_column(g) : multiply_transposed(g, scratch);
  } else if (g.n == 1 && g.a_col == 1 && g.ldb == 1) {
    multiply_vector(g);
  } else if (g.m > 0) {
    multiply(g, scratch);
  }
}

// A packed panel, and in front of it a transposed C, each at most `longest` long.
std::size_t gemm_scratch(std::size_t longest) { return 2 * longest * kPanel; }

void column_sums(const float* in, std::size_t rows, std::size_t columns, std::size_t ld, float* out,
                 bool accumulate) {
  for (std::size_t j = 0; j < columns; j += kLanes) {
    const std::size_t count = columns - j;
    const bool whole = count >= kLanes;
    const auto load = [&](const float* p) { return whole ? vload(p) : vload_partial(p, count); };
    vfloat sum = accumulate ? load(out + j) : vfloat{};
    for (std::size_t i = 0; i < rows; ++i) sum += load(in + i * ld + j);
    if (whole) {
      vstore(out + j, sum);
    } else {
      vstore_partial(out + j, sum, count);
    }
  }
}

}  // namespace

extern const DenseKernels LEASHED_ISA_NAME(dense_kernels);
const DenseKernels LEASHED_ISA_NAME(dense_kernels) = {gemm, gemm_scratch, transpose, column_sums};

}  // namespace leashed
