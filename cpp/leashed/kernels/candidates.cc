#include "leashed/kernels/candidates.h"

#include "leashed/base/isa_table.h"
#include "leashed/base/simd.h"

namespace leashed {
namespace {

LEASHED_INLINE float product(const float* a, const float* b, std::size_t n) {
  vfloat sums = {};
  std::size_t k = 0;
  for (; k + kLanes <= n; k += kLanes) sums += vload(a + k) * vload(b + k);
  float rest = 0;
  for (; k < n; ++k) rest += a[k] * b[k];
  for (std::size_t l = 0; l < kLanes; ++l) rest += sums[l];
  return rest;
}

void score(const float* u, std::size_t ld_u, const float* p, std::size_t ld_p, std::size_t rows,
           std::size_t n, float* out, std::size_t ld_out) {
  for (std::size_t i = 0; i < rows; ++i) {
    out[i * ld_out] = product(u + i * ld_u, p + i * ld_p, n);
  }
}

void score_backward(const CandidateKernels::ScoreBackward& b) {
  for (std::size_t i = 0; i < b.rows; ++i) {
    const float d = b.d[i * b.ld_d];
    const float *u = b.u + i * b.ld_u, *p = b.p + i * b.ld_p;
    float* const d_p = b.d_p + i * b.ld_p;
    for (std::size_t k = 0; k < b.n; ++k) d_p[k] = d * u[k];
    if (!b.d_u) continue;
    float* const d_u = b.d_u + i * b.ld_u;
    for (std::size_t k = 0; k < b.n; ++k) d_u[k] += d * p[k];
  }
}

void hide(const std::uint32_t* negatives, std::size_t count, const std::uint32_t* positives,
          std::size_t rows, float value, float* out, std::size_t ld_out) {
  for (std::size_t i = 0; i < rows; ++i) {
    const std::uint32_t positive = positives[i];
    float* const row = out + i * ld_out;
    for (std::size_t j = 0; j < count; ++j) row[j] = negatives[j] == positive ? value : row[j];
  }
}

}  // namespace

extern const CandidateKernels LEASHED_ISA_NAME(candidate_kernels);
const CandidateKernels LEASHED_ISA_NAME(candidate_kernels) = {score, score_backward, hide};

}  // namespace leashed
