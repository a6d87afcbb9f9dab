// A record's factors are gone through in blocks of whole vectors: one block where k is 4, 8 or 16,
// and of any other k as many as it takes, the last ones of single floats. A row's columns are in
// the cache for all blocks after the first.
#include "leashed/kernels/factors.h"

#include "leashed/base/isa_table.h"
#include "leashed/kernels/factor_blocks.h"

namespace leashed {
namespace {

// A row's output. Every other entry is added to other sums, since an addition waits for the one
// before.
struct Output {
  template <std::size_t L, std::size_t N>
  LEASHED_BLOCK void block(std::size_t at) {
    using V = Lanes<L>;
    constexpr std::size_t kWays = N == 1 ? 2 : 1;
    typename V::Vector sum[kWays][N] = {}, squares[kWays][N] = {};
    float linear[kWays] = {};
    float unkept[N * L];
    float* keep = factors ? factors + row.before * k + at : unkept;
    const std::size_t step = factors ? k : 0;
    const auto add = [&](std::size_t way, std::int64_t j) LEASHED_RACY
        __attribute__((always_inline)) {
      const float* record = records + row.record(j, k);
      const float x = row.value(j);
      if (at == 0) linear[way] += x * load_one(record);
#pragma GCC unroll 4
      for (std::size_t n = 0; n < N; ++n) {
        const auto v = V::load_once(record + 1 + at + n * L);
        V::store(keep + n * L, v);
        sum[way][n] += x * v;
        squares[way][n] += (x * v) * (x * v);
      }
      keep += step;
    };
    // First the entries that others are fetched ahead of.
    const std::int64_t last = row.length - static_cast<std::int64_t>(kWays) + 1;
    const std::int64_t fetching = at == 0 ? min(last, fetched) : 0;
    std::int64_t j = 0;
    for (; j < fetching; j += static_cast<std::int64_t>(kWays)) {
#pragma GCC unroll 2
      for (std::size_t way = 0; way < kWays; ++way) {
        fetch(j + static_cast<std::int64_t>(way));
        add(way, j + static_cast<std::int64_t>(way));
      }
    }
    for (; j < last; j += static_cast<std::int64_t>(kWays)) {
#pragma GCC unroll 2
      for (std::size_t way = 0; way < kWays; ++way) add(way, j + static_cast<std::int64_t>(way));
    }
    for (; j < row.length; ++j) add(0, j);
    out += linear[0] + (kWays == 2 ? linear[kWays - 1] : 0);
    typename V::Vector pairs = {};
    for (std::size_t n = 0; n < N; ++n) {
      const auto all = kWays == 2 ? sum[0][n] + sum[kWays - 1][n] : sum[0][n];
      const auto own = kWays == 2 ? squares[0][n] + squares[kWays - 1][n] : squares[0][n];
      pairs += all * all - own;
      if (sums) V::store(sums + at + n * L, all);
    }
    out += 0.5f * V::total(pairs);
  }
  LEASHED_BLOCK void fetch(std::int64_t j) const {
    const float* record = records + row.record(j + kAhead, k);
    __builtin_prefetch(record);
    __builtin_prefetch(record + k);
    if (stride == 0) return;
    __builtin_prefetch(record + stride);
    __builtin_prefetch(record + stride + k);
  }

  static constexpr std::int64_t kAhead = 64;

  const float* records;
  std::size_t k;
  Entries row;
  std::int64_t fetched;  // entries of the row whose successors `kAhead` later may be fetched
  std::size_t stride;
  float* sums;
  float* factors;
  float out;
};

LEASHED_RACY void outputs(const float* records, const float* bias, std::size_t k,
                          const SparseRows& rows, std::size_t count, const FactorsAhead& ahead,
                          float* out, const FactorSums& kept) {
  for (std::size_t i = 0; i < count; ++i) {
    Output output{records,          k,
                  Entries(rows, i), ahead.end - Output::kAhead - rows.offsets[i] - 1,
                  ahead.stride,     kept.sums ? kept.sums + i * k : nullptr,
                  kept.factors,     load_one(bias)};
    in_blocks(k, output);
    out[i] = output.out;
  }
}

// Where a row's factors are read for its gradient: as they were kept, or as they are.
struct Kept {
  template <std::size_t L>
  LEASHED_BLOCK typename Lanes<L>::Vector read(const float*, std::size_t entry, std::size_t k,
                                               std::size_t factor) const {
    return Lanes<L>::load(factors + entry * k + factor);
  }
  const float* factors;
};
struct Current {
  template <std::size_t L>
  LEASHED_BLOCK typename Lanes<L>::Vector read(const float* record, std::size_t, std::size_t,
                                               std::size_t factor) const {
    return Lanes<L>::load_once(record + 1 + factor);
  }
};

// Where it is added: to records that others change meanwhile, or to a gradient of one's own, there
// to the record of the entry's column or of its place.
struct Shared {
  static constexpr bool kExact = false;
  LEASHED_BLOCK float* at(std::size_t record, std::size_t, std::size_t) const {
    return records + record;
  }
  template <std::size_t L>
  LEASHED_BLOCK void add(float* p, typename Lanes<L>::Vector x) const {
    Lanes<L>::store_once(p, Lanes<L>::load_once(p) + x);
  }
  float* records;
};
struct Own {
  static constexpr bool kExact = true;
  LEASHED_BLOCK float* at(std::size_t record, std::size_t entry, std::size_t k) const {
    return gradient + (places ? static_cast<std::size_t>(places[entry]) * (1 + k) : record);
  }
  template <std::size_t L>
  LEASHED_BLOCK void add(float* p, typename Lanes<L>::Vector x) const {
    Lanes<L>::store(p, Lanes<L>::load(p) + x);
  }
  float* gradient;
  const std::int32_t* places;
};

template <class Source, class Target>
struct Gradient {
  template <std::size_t L, std::size_t N>
  LEASHED_BLOCK void block(std::size_t at) {
    using V = Lanes<L>;
    typename V::Vector sum[N];
    for (std::size_t n = 0; n < N; ++n) sum[n] = V::load(sums + at + n * L);
    for (std::int64_t j = 0; j < row.length; ++j) {
      const std::size_t entry = row.before + static_cast<std::size_t>(j);
      const std::size_t record = row.record(j, k);
      float* to = target.at(record, entry, k);
      const float x = row.value(j), share = change * x;
      if (at == 0) target.template add<1>(to, share);
#pragma GCC unroll 4
      for (std::size_t n = 0; n < N; ++n) {
        const std::size_t factor = at + n * L;
        const auto v = source.template read<L>(records + record, entry, k, factor);
        // What is left of a column's own part by rounding is little, but not to rules that divide a
        // gradient by its size: a column that meets no other has none.
        const auto own = Target::kExact ? V::rounded(x * v) : x * v;
        target.template add<L>(to + 1 + factor, share * (sum[n] - own));
      }
    }
  }

  Source source;
  Target target;
  const float* records;
  std::size_t k;
  Entries row;
  const float* sums;
  float change;  // scale · the residual
};

template <class Source, class Target>
LEASHED_INLINE LEASHED_RACY void add_to(Source source, Target target, const float* records,
                                        std::size_t k, const SparseRows& rows, std::size_t count,
                                        const float* residuals, const float* sums, float scale) {
  for (std::size_t i = 0; i < count; ++i) {
    const float change = scale * residuals[i];
    if (change == 0) continue;
    Gradient<Source, Target> gradient{source,           target,       records, k,
                                      Entries(rows, i), sums + i * k, change};
    in_blocks(k, gradient);
  }
}

LEASHED_RACY void add(const float* records, std::size_t k, const SparseRows& rows,
                      std::size_t count, const float* residuals, const float* sums, float scale,
                      const std::int32_t* places, float* gradient) {
  add_to(Current{}, Own{gradient, places}, records, k, rows, count, residuals, sums, scale);
}

LEASHED_RACY void add_racy(float* records, std::size_t k, const SparseRows& rows, std::size_t count,
                           const float* residuals, const FactorSums& kept, float scale) {
  const Shared shared{records};
  if (kept.factors) {
    add_to(Kept{kept.factors}, shared, records, k, rows, count, residuals, kept.sums, scale);
  } else {
    add_to(Current{}, shared, records, k, rows, count, residuals, kept.sums, scale);
  }
}

// On a whole record: the weight, then the factors.
template <class Rule>
struct Stepped {
  template <std::size_t L, std::size_t N>
  LEASHED_BLOCK void block(std::size_t at) {
    if (at == 0) step<1>(0);
#pragma GCC unroll 4
    for (std::size_t n = 0; n < N; ++n) step<L>(1 + at + n * L);
  }
  template <std::size_t L>
  LEASHED_BLOCK void step(std::size_t at) {
    using V = Lanes<L>;
    const auto g = V::load(gradient + at);
    V::store(gradient + at, typename V::Vector{});
    rule.template step<L>(record + at, g);
  }

  Rule rule;
  float* record;
  float* gradient;
};

template <class Rule>
LEASHED_INLINE LEASHED_RACY void step_columns(Rule rule, float* records, std::size_t k,
                                              const std::int32_t* columns, std::size_t count,
                                              float* gradient) {
  for (std::size_t i = 0; i < count; ++i) {
    Stepped<Rule> stepped{rule, records + static_cast<std::size_t>(columns[i]) * (1 + k),
                          gradient + i * (1 + k)};
    in_blocks(k, stepped);
  }
}

LEASHED_RACY void sgd_racy(float* records, std::size_t k, const std::int32_t* columns,
                           std::size_t count, float* gradient, float lr) {
  step_columns(SgdStep{lr}, records, k, columns, count, gradient);
}
LEASHED_RACY void adagrad_racy(float* records, std::size_t stride, std::size_t k,
                               const std::int32_t* columns, std::size_t count, float* gradient,
                               float lr, float epsilon) {
  step_columns(AdagradStep{stride, lr, epsilon}, records, k, columns, count, gradient);
}

// Where a row's gradient goes that is all of the batch's.
struct Adagraded {
  static constexpr bool kExact = true;
  LEASHED_BLOCK float* at(std::size_t record, std::size_t, std::size_t) const {
    return records + record;
  }
  template <std::size_t L>
  LEASHED_BLOCK void add(float* p, typename Lanes<L>::Vector g) const {
    rule.template step<L>(p, g);
  }
  float* records;
  AdagradStep rule;
};

LEASHED_RACY void adagrad_row_racy(float* records, std::size_t stride, std::size_t k,
                                   const SparseRows& row, float residual, const float* sums,
                                   float scale, float lr, float epsilon) {
  const Adagraded target{records, {stride, lr, epsilon}};
  add_to(Current{}, target, records, k, row, 1, &residual, sums, scale);
}

}  // namespace

extern const FactorKernels LEASHED_ISA_NAME(factor_kernels);
const FactorKernels LEASHED_ISA_NAME(factor_kernels) = {outputs,  add,          add_racy,
                                                        sgd_racy, adagrad_racy, adagrad_row_racy};

}  // namespace leashed
