#include "leashed/kernels/embedding.h"

#include "leashed/base/isa_table.h"
#include "leashed/base/simd.h"
#include "leashed/kernels/partial.h"
#include "leashed/update/kernels/racy.h"

namespace leashed {
namespace {

constexpr std::uint32_t kNone = 0xffffffff;

LEASHED_INLINE float weight_of(const PooledRows& p, std::size_t entry) {
  return p.column.weights ? p.column.weights[entry] : 1.0f;
}

// The row that comes so many entries later, on its way into the cache.
LEASHED_INLINE void fetch(const PooledRows& p, const float* const* values, std::size_t entry,
                          std::size_t end) {
  constexpr std::size_t kAhead = 12, kLine = 64 / sizeof(float);
  if (entry + kAhead >= end) return;
  const float* row = values[p.places[entry + kAhead]];
  for (std::size_t k = 0; k < p.dim; k += kLine) __builtin_prefetch(row + k);
  __builtin_prefetch(row + p.dim - 1);
}

// out[k] = f(row[k], out[k]) for all floats of a row.
template <class F>
LEASHED_INLINE LEASHED_RACY void with_row(const float* row, std::size_t dim, float* out, F f) {
  std::size_t k = 0;
  for (; k + kLanes <= dim; k += kLanes) vstore(out + k, f(load_once(row + k), vload(out + k)));
  for (; k < dim; ++k) out[k] = f(vset(load_one(row + k)), vset(out[k]))[0];
}

LEASHED_INLINE void fill(float* out, std::size_t n) {
  for (std::size_t k = 0; k < n; ++k) out[k] = 0;
}

LEASHED_INLINE LEASHED_RACY void add_rows(const PooledRows& p, const float* const* values,
                                          std::size_t begin, std::size_t end, std::size_t last,
                                          float* out) {
  fill(out, p.dim);
  for (std::size_t e = begin; e < end; ++e) {
    fetch(p, values, e, last);
    const vfloat weight = vset(weight_of(p, e));
    with_row(values[p.places[e]], p.dim, out,
             [=](vfloat x, vfloat sum) { return sum + weight * x; });
  }
  if (p.pooling == Pooling::mean && end > begin) {
    const float share = 1.0f / static_cast<float>(end - begin);
    for (std::size_t k = 0; k < p.dim; ++k) out[k] *= share;
  }
}

LEASHED_INLINE LEASHED_RACY void largest_of(const PooledRows& p, const float* const* values,
                                            std::size_t begin, std::size_t end, float* out,
                                            std::uint32_t* largest) {
  fill(out, p.dim);
  for (std::size_t k = 0; k < p.dim; ++k) largest[k] = kNone;
  for (std::size_t e = begin; e < end; ++e) {
    const float* row = values[p.places[e]];
    const float weight = weight_of(p, e);
    for (std::size_t k = 0; k < p.dim; ++k) {
      const float x = weight * load_one(row + k);
      if (largest[k] != kNone && !(x > out[k]) && x == x) continue;
      if (largest[k] != kNone && out[k] != out[k]) continue;
      out[k] = x;
      largest[k] = static_cast<std::uint32_t>(e);
    }
  }
}

LEASHED_INLINE LEASHED_RACY void line_up(const PooledRows& p, const float* const* values,
                                         std::size_t begin, std::size_t end, float* out) {
  const std::size_t count = min(end - begin, p.length);
  for (std::size_t i = 0; i < count; ++i) {
    const vfloat weight = vset(weight_of(p, begin + i));
    with_row(values[p.places[begin + i]], p.dim, out + i * p.dim,
             [=](vfloat x, vfloat) { return weight * x; });
  }
  fill(out + count * p.dim, (p.length - count) * p.dim);
}

// One row an example, as it is.
LEASHED_RACY void copy_rows(const PooledRows& p, const float* const* values, float* out,
                            std::size_t ld) {
  const std::size_t last = p.first + p.count;
  for (std::size_t i = p.first; i < last; ++i, out += ld) {
    fetch(p, values, i, last);
    with_row(values[p.places[i]], p.dim, out, [](vfloat x, vfloat) { return x; });
  }
}

LEASHED_INLINE bool one_each(const PooledRows& p) {
  return !p.column.offsets && !p.column.weights &&
         (p.pooling == Pooling::sum || p.pooling == Pooling::mean);
}

LEASHED_RACY void pool_racy(const PooledRows& p, const float* const* values, float* out,
                            std::size_t ld) {
  if (one_each(p)) return copy_rows(p, values, out, ld);
  const std::size_t last = p.column.end(p.first + p.count - 1);
  for (std::size_t i = 0; i < p.count; ++i, out += ld) {
    const std::size_t begin = p.column.begin(p.first + i), end = p.column.end(p.first + i);
    if (p.pooling == Pooling::max) {
      largest_of(p, values, begin, end, out, p.largest + i * p.dim);
    } else if (p.pooling == Pooling::sequence) {
      line_up(p, values, begin, end, out);
    } else {
      add_rows(p, values, begin, end, last, out);
    }
  }
}

// to += weight * d.
LEASHED_INLINE void add(float* to, const float* d, float weight, std::size_t dim) {
  std::size_t k = 0;
  for (; k + kLanes <= dim; k += kLanes) vstore(to + k, vload(to + k) + weight * vload(d + k));
  for (; k < dim; ++k) to[k] += weight * d[k];
}

void scatter(const PooledRows& p, const float* d_out, std::size_t ld, float* gradient,
             std::size_t stride) {
  for (std::size_t i = 0; i < p.count; ++i, d_out += ld) {
    const std::size_t begin = p.column.begin(p.first + i), end = p.column.end(p.first + i);
    if (p.pooling == Pooling::max) {
      const std::uint32_t* largest = p.largest + i * p.dim;
      for (std::size_t k = 0; k < p.dim; ++k) {
        if (largest[k] == kNone) continue;
        gradient[p.places[largest[k]] * stride + k] += weight_of(p, largest[k]) * d_out[k];
      }
      continue;
    }
    const bool sequence = p.pooling == Pooling::sequence;
    const std::size_t count = sequence ? min(end - begin, p.length) : end - begin;
    const float share = p.pooling == Pooling::mean ? 1.0f / static_cast<float>(count) : 1.0f;
    for (std::size_t e = 0; e < count; ++e) {
      add(gradient + p.places[begin + e] * stride, d_out + (sequence ? e * p.dim : 0),
          share * weight_of(p, begin + e), p.dim);
    }
  }
}

}  // namespace

extern const EmbeddingKernels LEASHED_ISA_NAME(embedding_kernels);
const EmbeddingKernels LEASHED_ISA_NAME(embedding_kernels) = {pool_racy, scatter};

}  // namespace leashed
