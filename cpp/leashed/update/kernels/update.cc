#include "leashed/base/isa_table.h"
#include "leashed/base/simd.h"
#include "leashed/update/kernels.h"
#include "leashed/update/kernels/clamp.h"
#include "leashed/update/kernels/racy.h"

namespace leashed {
namespace {

LEASHED_RACY void copy_racy(float* to, const float* from, std::size_t n) {
  std::size_t i = 0;
  for (; i + kLanes <= n; i += kLanes) vstore(to + i, load_once(from + i));
  for (; i < n; ++i) to[i] = load_one(from + i);
}

LEASHED_RACY void merge_racy(float* shared, float* local, float* base, float factor, float weight,
                             std::size_t n) {
  std::size_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    const vfloat change = weight * (vload(local + i) * factor - vload(base + i));
    const vfloat sum = load_once(shared + i) + change;
    store_once(shared + i, sum);
    vstore(local + i, sum);
    vstore(base + i, sum);
  }
  for (; i < n; ++i) {
    const float sum = load_one(shared + i) + weight * (local[i] * factor - base[i]);
    store_one(shared + i, sum);
    local[i] = base[i] = sum;
  }
}

LEASHED_RACY void replace_racy(float* shared, const float* before, const float* after,
                               std::size_t n) {
  // Nothing is added where nothing has changed: of two infinite values the difference is NaN.
  std::size_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    const vfloat now = load_once(shared + i), old = vload(before + i), next = vload(after + i);
    store_once(shared + i, now == old ? next : next + (now - old));
  }
  for (; i < n; ++i) {
    const float now = load_one(shared + i);
    store_one(shared + i, now == before[i] ? after[i] : after[i] + (now - before[i]));
  }
}

LEASHED_RACY void scale_racy(float* v, float factor, std::size_t n) {
  std::size_t i = 0;
  for (; i + kLanes <= n; i += kLanes) store_once(v + i, load_once(v + i) * factor);
  for (; i < n; ++i) store_one(v + i, load_one(v + i) * factor);
}

// How far v goes towards 0; NaN where it is.
template <class V>
LEASHED_INLINE V way_of(V v, V above, V below) {
  const V low = -below;
  v = v > above ? above : v;
  return low > v ? low : v;
}

LEASHED_RACY void truncate_racy(float* v, float* above, float* below, float penalty,
                                std::size_t n) {
  std::size_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    const vfloat from = load_once(v + i);
    const vfloat from_above = load_once(above + i) + penalty;
    const vfloat from_below = load_once(below + i) + penalty;
    const vfloat way = way_of(from, from_above, from_below);
    store_once(v + i, from - way);
    store_once(above + i, from_above - way);
    store_once(below + i, from_below + way);
  }
  for (; i < n; ++i) {
    const float from = load_one(v + i);
    const float from_above = load_one(above + i) + penalty;
    const float from_below = load_one(below + i) + penalty;
    const float way = way_of(from, from_above, from_below);
    store_one(v + i, from - way);
    store_one(above + i, from_above - way);
    store_one(below + i, from_below + way);
  }
}

void mean(float* out, const float* const* vectors, std::size_t count, std::size_t offset,
          std::size_t n) {
  const float scale = 1.0f / static_cast<float>(count);
  std::size_t i = offset;
  const std::size_t end = offset + n;
  for (; i + kLanes <= end; i += kLanes) {
    vfloat sum = vload(vectors[0] + i);
    for (std::size_t v = 1; v < count; ++v) sum += vload(vectors[v] + i);
    vstore(out + i, sum * scale);
  }
  for (; i < end; ++i) {
    float sum = vectors[0][i];
    for (std::size_t v = 1; v < count; ++v) sum += vectors[v][i];
    out[i] = sum * scale;
  }
}

// In double precision, so that neither its range nor the order of the sum matters; four sums, since
// each addition waits for the one before it.
double sum_of_squares(const float* v, float clip, std::size_t begin, std::size_t end) {
  const vfloat limit = vset(clip);
  vdouble sums[4] = {};
  std::size_t i = begin;
  for (; i + 4 * kLanes <= end; i += 4 * kLanes) {
#pragma GCC unroll 4
    for (std::size_t j = 0; j < 4; ++j) {
      const vdouble wide =
          __builtin_convertvector(clamp(vload(v + i + j * kLanes), limit), vdouble);
      sums[j] += wide * wide;
    }
  }
  double total = 0;
  for (; i < end; ++i) {
    const double x = clamp(v[i], clip);
    total += x * x;
  }
  const vdouble sum = (sums[0] + sums[1]) + (sums[2] + sums[3]);
  for (std::size_t lane = 0; lane < kLanes; ++lane) total += sum[lane];
  return total;
}

// A float is finite where its bits, less the sign and as a whole number, are below infinity's.
// (Products with 0 would take one operation, but are slow where numbers are subnormal.)
typedef std::uint32_t vuint __attribute__((vector_size(kLanes * sizeof(std::uint32_t))));
constexpr std::uint32_t kInfinity = 0xff000000;

LEASHED_INLINE vuint shifted(const float* v) { return reinterpret_cast<vuint>(vload(v)) << 1; }
LEASHED_INLINE vuint larger(vuint a, vuint b) { return a > b ? a : b; }

// For n ≥ kLanes.
bool all_finite(const float* v, std::size_t n) {
  vuint largest[4] = {};
  std::size_t i = 0;
  for (; i + 4 * kLanes <= n; i += 4 * kLanes) {
#pragma GCC unroll 4
    for (std::size_t j = 0; j < 4; ++j) {
      largest[j] = larger(largest[j], shifted(v + i + j * kLanes));
    }
  }
  for (; i + kLanes <= n; i += kLanes) largest[0] = larger(largest[0], shifted(v + i));
  // The rest, with some of what was seen: a maximum may see a number twice.
  largest[1] = larger(largest[1], shifted(v + n - kLanes));
  const vuint all = larger(larger(largest[0], largest[1]), larger(largest[2], largest[3]));
  std::uint32_t most = 0;
  for (std::size_t lane = 0; lane < kLanes; ++lane) most = all[lane] > most ? all[lane] : most;
  return most < kInfinity;
}

std::size_t first_not_finite(const float* v, std::size_t n) {
  if (n >= kLanes && all_finite(v, n)) return n;
  std::size_t i = 0;
  while (i < n && __builtin_isfinite(v[i])) ++i;
  return i;
}

LEASHED_RACY void gather_racy(float* few, const float* all, const std::int64_t* indices,
                              std::size_t n) {
  for (std::size_t i = 0; i < n; ++i) few[i] = load_one(all + indices[i]);
}

LEASHED_RACY void scatter_racy(float* all, const float* few, const std::int64_t* indices,
                               std::size_t n) {
  for (std::size_t i = 0; i < n; ++i) store_one(all + indices[i], few[i]);
}

}  // namespace

extern const UpdateKernels LEASHED_ISA_NAME(update_kernels);
const UpdateKernels LEASHED_ISA_NAME(update_kernels) = {
    copy_racy, merge_racy,     replace_racy,     scale_racy,  truncate_racy,
    mean,      sum_of_squares, first_not_finite, gather_racy, scatter_racy};

}  // namespace leashed
