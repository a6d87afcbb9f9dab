// Kernels of sampled logits beside the products with the negatives, which are dense ones.
#pragma once

#include <cstddef>
#include <cstdint>

#include "leashed/base/isa.h"

namespace leashed {

struct CandidateKernels {
  // out[i ld_out] = u_i · p_i, of vectors of n floats.
  void (*score)(const float* u, std::size_t ld_u, const float* p, std::size_t ld_p,
                std::size_t rows, std::size_t n, float* out, std::size_t ld_out);
  // Given d_i = d[i ld_d], the gradient with respect to that: d_u_i += d_i p_i, where d_u is not
  // null (at the stride of u), and d_p_i = d_i u_i (at that of p).
  struct ScoreBackward {
    const float *d, *u, *p;
    std::size_t ld_d, ld_u, ld_p, rows, n;
    float *d_u, *d_p;
  };
  void (*score_backward)(const ScoreBackward&);
  // out[i][j] = value, where negatives[j] is positives[i].
  void (*hide)(const std::uint32_t* negatives, std::size_t count, const std::uint32_t* positives,
               std::size_t rows, float value, float* out, std::size_t ld_out);
};

const CandidateKernels& candidate_kernels(Isa isa);

}  // namespace leashed
