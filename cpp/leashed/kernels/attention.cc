#include "leashed/kernels/attention.h"

#include "leashed/base/isa_table.h"
#include "leashed/base/simd.h"
#include "leashed/kernels/exponential.h"
#include "leashed/kernels/partial.h"

namespace leashed {
namespace {

LEASHED_INLINE float sum_of(vfloat v) {
  float sum = 0;
  for (std::size_t l = 0; l < kLanes; ++l) sum += v[l];
  return sum;
}

LEASHED_INLINE float product(const float* a, const float* b, std::size_t n) {
  vfloat sum = {};
  std::size_t k = 0;
  for (; k + kLanes <= n; k += kLanes) sum += vload(a + k) * vload(b + k);
  if (k < n) sum += vload_partial(a + k, n - k) * vload_partial(b + k, n - k);
  return sum_of(sum);
}

void dots(const float* v, const float* keys, std::size_t count, std::size_t dim, float* out,
          bool add) {
  for (std::size_t j = 0; j < count; ++j, keys += dim) {
    out[j] = (add ? out[j] : 0) + product(v, keys, dim);
  }
}

void combine(const float* s, const float* keys, std::size_t count, std::size_t dim, float* out,
             bool add) {
  for (std::size_t k = 0; k < dim; k += kLanes) {
    const std::size_t n = dim - k;
    vfloat sum = add ? vload_up_to(out + k, n) : vfloat{};
    for (std::size_t j = 0; j < count; ++j) sum += s[j] * vload_up_to(keys + j * dim + k, n);
    vstore_up_to(out + k, sum, n);
  }
}

void outer(const float* s, const float* v, std::size_t count, std::size_t dim, float* out,
           bool add) {
  for (std::size_t j = 0; j < count; ++j, out += dim) {
    for (std::size_t k = 0; k < dim; k += kLanes) {
      const std::size_t n = dim - k;
      const vfloat x = s[j] * vload_up_to(v + k, n);
      vstore_up_to(out + k, add ? vload_up_to(out + k, n) + x : x, n);
    }
  }
}

void softmax(const float* s, std::size_t count, float* out) {
  if (count == 0) return;
  float largest = s[0];
  for (std::size_t j = 1; j < count; ++j) largest = max(largest, s[j]);
  vfloat sums = {};
  const vfloat zero = {};
  for (std::size_t j = 0; j < count; j += kLanes) {
    const std::size_t n = count - j;
    vfloat x = exp_negative(vload_up_to(s + j, n) - largest);
    vstore_up_to(out + j, x, n);
    sums += n < kLanes ? vload_partial(out + j, n) : x + zero;
  }
  const float share = 1 / sum_of(sums);
  for (std::size_t j = 0; j < count; ++j) out[j] *= share;
}

void softmax_backward(const float* p, const float* d_out, std::size_t count, float* d_s) {
  const float mean = product(p, d_out, count);
  for (std::size_t j = 0; j < count; ++j) d_s[j] = p[j] * (d_out[j] - mean);
}

void pairs(const float* q, const float* keys, std::size_t count, std::size_t dim, float* out,
           std::size_t ld) {
  for (std::size_t j = 0; j < count; ++j, keys += dim, out += ld) {
    for (std::size_t k = 0; k < dim; k += kLanes) {
      const std::size_t n = dim - k;
      const vfloat key = vload_up_to(keys + k, n);
      vstore_up_to(out + k, key, n);
      vstore_up_to(out + dim + k, key * vload_up_to(q + k, n), n);
    }
  }
}

void pairs_backward(const AttentionKernels::PairsBackward& b) {
  for (std::size_t k = 0; k < b.dim; k += kLanes) {
    const std::size_t n = b.dim - k;
    const vfloat q = vload_up_to(b.q + k, n);
    vfloat d_q = {};
    for (std::size_t j = 0; j < b.count; ++j) {
      const float* d = b.d_pairs + j * b.ld + k;
      const std::size_t at = j * b.dim + k;
      const vfloat d_product = vload_up_to(d + b.dim, n);
      d_q += d_product * vload_up_to(b.keys + at, n);
      if (!b.d_keys) continue;
      const vfloat d_key = vload_up_to(d, n) + d_product * q;
      vstore_up_to(b.d_keys + at, b.adds_d_keys ? vload_up_to(b.d_keys + at, n) + d_key : d_key, n);
    }
    if (b.d_q) vstore_up_to(b.d_q + k, vload_up_to(b.d_q + k, n) + d_q, n);
  }
}

void fold(const float* w, std::size_t dim, std::size_t n, float* out) {
  const std::size_t size = dim * n;
  const float *query = w, *key = w + size, *difference = w + 2 * size, *product = w + 3 * size;
  for (std::size_t i = 0; i < size; ++i) out[i] = key[i] - difference[i];
  for (std::size_t i = 0; i < size; ++i) out[size + i] = product[i];
  for (std::size_t i = 0; i < size; ++i) out[2 * size + i] = query[i] + difference[i];
}

void unfold(const float* d_folded, std::size_t dim, std::size_t n, float* d_w, bool add) {
  const std::size_t size = dim * n;
  const float *key = d_folded, *product = key + size, *query = product + size;
  if (!add) {
    for (std::size_t i = 0; i < 4 * size; ++i) d_w[i] = 0;
  }
  for (std::size_t i = 0; i < size; ++i) d_w[i] += query[i];
  for (std::size_t i = 0; i < size; ++i) d_w[size + i] += key[i];
  for (std::size_t i = 0; i < size; ++i) d_w[2 * size + i] += query[i] - key[i];
  for (std::size_t i = 0; i < size; ++i) d_w[3 * size + i] += product[i];
}

}  // namespace

extern const AttentionKernels LEASHED_ISA_NAME(attention_kernels);
const AttentionKernels LEASHED_ISA_NAME(attention_kernels) = {
    dots, combine, outer, softmax, softmax_backward, pairs, pairs_backward, fold, unfold};

}  // namespace leashed
