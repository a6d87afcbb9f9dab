#include "leashed/kernels/field_factors.h"

#include "leashed/base/isa_table.h"
#include "leashed/kernels/factor_blocks.h"

namespace leashed {
namespace {

// Sums and with them the row's output. What an entry that is alone in its field has with itself is
// set to 0, which it is: of what rounding leaves of it Adagrad would make a whole step.
struct Sums {
  template <std::size_t L, std::size_t N>
  LEASHED_BLOCK void block(std::size_t at) {
    using V = Lanes<L>;
    typename V::Vector with_itself[N] = {};
    for (std::int64_t j = 0; j < row.length; ++j) {
      const float* record = records + row.record(j, shape.width);
      const float x = row.value(j);
      const FieldEntry& entry = fields.entries[j];
      if (at == 0) {
        out += x * load_one(record);
        if (j < fetched) fetch(j + kAhead);
      }
      if (entry.first) {
        add<L, N, true>(record + 1 + at, x, entry.place, at);
      } else {
        add<L, N, false>(record + 1 + at, x, entry.place, at);
      }
      float* own = sum(entry.place, entry.place, at);
      const float* v = record + 1 + entry.field * shape.k + at;
#pragma GCC unroll 4
      for (std::size_t n = 0; n < N; ++n) {
        if (entry.alone) {
          V::store(own + n * L, typename V::Vector{});
        } else {
          const auto xv = x * V::load_once(v + n * L);
          with_itself[n] += xv * xv;
        }
      }
    }
    typename V::Vector pairs = {};
#pragma GCC unroll 4
    for (std::size_t n = 0; n < N; ++n) pairs -= 0.5f * with_itself[n];
    for (std::size_t f = 0; f < fields.count; ++f) {
#pragma GCC unroll 4
      for (std::size_t n = 0; n < N; ++n) {
        const auto same = V::load(sum(f, f, at) + n * L);
        pairs += 0.5f * same * same;
      }
      for (std::size_t g = f + 1; g < fields.count; ++g) {
#pragma GCC unroll 4
        for (std::size_t n = 0; n < N; ++n) {
          pairs += V::load(sum(f, g, at) + n * L) * V::load(sum(g, f, at) + n * L);
        }
      }
    }
    out += V::total(pairs);
  }

  // An entry's factors, from `factors` on, to the sums of its field.
  template <std::size_t L, std::size_t N, bool first>
  LEASHED_BLOCK void add(const float* factors, float x, std::size_t place, std::size_t at) const {
    using V = Lanes<L>;
    for (std::size_t r = 0; r < fields.run_count; ++r) {
      const FieldRun run = fields.runs[r];
      const float* v = factors + run.first * shape.k;
      float* to = sum(run.place, place, at);
      for (std::uint32_t i = 0; i < run.length; ++i) {
#pragma GCC unroll 4
        for (std::size_t n = 0; n < N; ++n) {
          const auto xv = x * V::load_once(v + n * L);
          V::store(to + n * L, first ? xv : V::load(to + n * L) + xv);
        }
        v += shape.k;
        to += line;
      }
    }
  }
  // Of the factors that entries of the field at place g have for the one at place f.
  LEASHED_BLOCK float* sum(std::size_t f, std::size_t g, std::size_t at) const {
    return sums + f * line + g * shape.k + at;
  }
  // The fields of a row that is still to come are, likely, those of this one.
  LEASHED_BLOCK void fetch(std::int64_t j) const {
    const float* record = records + row.record(j, shape.width);
    __builtin_prefetch(record);
    if (shape.stride != 0) __builtin_prefetch(record + shape.stride);
    for (std::size_t r = 0; r < fields.run_count; ++r) {
      const FieldRun run = fields.runs[r];
      const std::size_t end = 1 + (run.first + run.length) * shape.k;
      for (std::size_t i = 1 + run.first * shape.k; i < end + kLine - 1; i += kLine) {
        const std::size_t at = min(i, end - 1);
        __builtin_prefetch(record + at);
        if (shape.stride != 0) __builtin_prefetch(record + shape.stride + at);
      }
    }
  }

  static constexpr std::int64_t kAhead = 16;
  static constexpr std::size_t kLine = 16;

  const float* records;
  FieldShape shape;
  Entries row;
  RowFields fields;
  std::int64_t fetched;  // entries of the row whose successors `kAhead` later may be fetched
  std::size_t line;      // a field's sums
  float* sums;
  float out;
};

LEASHED_RACY float output(const float* records, const float* bias, const FieldShape& shape,
                          const SparseRows& row, const RowFields& fields, std::int64_t end,
                          float* sums) {
  Sums work{records,
            shape,
            Entries(row, 0),
            fields,
            end - Sums::kAhead - row.offsets[0],
            fields.count * shape.k,
            sums,
            load_one(bias)};
  in_blocks(shape.k, work);
  return work.out;
}

// Where a gradient goes: to parameters that others change meanwhile, by a rule or as it is, or to a
// gradient of one's own.
struct Shared {
  template <std::size_t L>
  LEASHED_BLOCK void add(float* p, typename Lanes<L>::Vector g) const {
    Lanes<L>::store_once(p, Lanes<L>::load_once(p) + g);
  }
};
struct Own {
  template <std::size_t L>
  LEASHED_BLOCK void add(float* p, typename Lanes<L>::Vector g) const {
    Lanes<L>::store(p, Lanes<L>::load(p) + g);
  }
};
struct Adagraded {
  template <std::size_t L>
  LEASHED_BLOCK void add(float* p, typename Lanes<L>::Vector g) const {
    rule.template step<L>(p, g);
  }
  AdagradStep rule;
};

// An entry's gradient by the factors for some fields.
template <class Target>
struct Added {
  template <std::size_t L, std::size_t N>
  LEASHED_BLOCK void block(std::size_t at) {
    using V = Lanes<L>;
#pragma GCC unroll 4
    for (std::size_t n = 0; n < N; ++n) {
      target.template add<L>(to + at + n * L, share * V::load(sums + at + n * L));
    }
  }

  Target target;
  float* to;
  const float* sums;
  float share;
};

// sums of an entry's own field −= what it has with itself, which is kept, and put back.
template <bool back>
struct WithItself {
  template <std::size_t L, std::size_t N>
  LEASHED_BLOCK void block(std::size_t at) {
    using V = Lanes<L>;
#pragma GCC unroll 4
    for (std::size_t n = 0; n < N; ++n) {
      float *sum = own + at + n * L, *keep = kept + at + n * L;
      if (back) {
        V::store(sum, V::load(keep));
      } else {
        const auto all = V::load(sum);
        V::store(keep, all);
        V::store(sum, all - V::rounded(x * V::load_once(factors + at + n * L)));
      }
    }
  }

  float *own, *kept;
  const float* factors;
  float x;
};

template <class Target>
LEASHED_INLINE LEASHED_RACY void add_to(Target target, const float* records,
                                        const FieldShape& shape, const SparseRows& rows,
                                        const RowFields& fields, float* sums, float scale,
                                        const std::int32_t* places, float* gradient) {
  if (scale == 0) return;
  const Entries row(rows, 0);
  const std::size_t k = shape.k, line = fields.count * k;
  for (std::int64_t j = 0; j < row.length; ++j) {
    const FieldEntry& entry = fields.entries[j];
    const std::size_t record = row.record(j, shape.width);
    float* to =
        gradient + (places ? static_cast<std::size_t>(places[j]) * (1 + shape.width) : record);
    const float x = row.value(j), share = scale * x;
    float* of_field = sums + entry.place * line;
    float* own = of_field + entry.place * k;
    const float* factors = records + record + 1 + entry.field * k;
    if (!entry.alone) {
      WithItself<false> less{own, sums + fields.count * line, factors, x};
      in_blocks(k, less);
    }
    target.template add<1>(to, share);
    for (std::size_t r = 0; r < fields.run_count; ++r) {
      const FieldRun run = fields.runs[r];
      Added<Target> added{target, to + 1 + run.first * k, of_field + run.place * k, share};
      in_blocks(run.length * k, added);
    }
    if (!entry.alone) {
      WithItself<true> back{own, sums + fields.count * line, factors, x};
      in_blocks(k, back);
    }
  }
}

LEASHED_RACY void add(const float* records, const FieldShape& shape, const SparseRows& row,
                      const RowFields& fields, float* sums, float scale, const std::int32_t* places,
                      float* gradient) {
  add_to(Own{}, records, shape, row, fields, sums, scale, places, gradient);
}
LEASHED_RACY void add_racy(float* records, const FieldShape& shape, const SparseRows& row,
                           const RowFields& fields, float* sums, float scale) {
  add_to(Shared{}, records, shape, row, fields, sums, scale, nullptr, records);
}
LEASHED_RACY void adagrad_racy(float* records, const FieldShape& shape, const SparseRows& row,
                               const RowFields& fields, float* sums, float scale, float lr,
                               float epsilon) {
  add_to(Adagraded{{shape.stride, lr, epsilon}}, records, shape, row, fields, sums, scale, nullptr,
         records);
}

}  // namespace

extern const FieldFactorKernels LEASHED_ISA_NAME(field_factor_kernels);
const FieldFactorKernels LEASHED_ISA_NAME(field_factor_kernels) = {output, add, add_racy,
                                                                   adagrad_racy};

}  // namespace leashed
