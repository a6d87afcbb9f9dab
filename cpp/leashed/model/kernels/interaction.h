// Kernels for products between vectors of one example: all their dot products, and the second-order
// term of a factorisation machine. See interaction.cc for how they work.
#pragma once

#include <cstddef>

#include "leashed/base/isa.h"

namespace leashed {

// `n` vectors of `dim` floats an example: vector j of example i is at at[j] + i * strides[j].
struct Vectors {
  std::size_t n, dim;
  const float* const* at;
  const std::size_t* strides;
};

// Where the gradients with respect to them go, at the same strides: at[j] is null where nobody
// needs one, and adds[j] tells whether it is added to what is there.
struct VectorGradients {
  float* const* at;
  const bool* adds;
};

struct InteractionKernels {
  // Floats of scratch, on a cache line, for either kernel of dot products.
  std::size_t (*dot_scratch)(std::size_t n, std::size_t dim);
  // out [rows][n (n − 1) / 2] = vᵢ·vⱼ of the pairs i < j, in the order (0, 1), (0, 2), (1, 2),
  // (0, 3), …, with row stride ld.
  void (*dot)(const Vectors&, std::size_t rows, float* out, std::size_t ld, float* scratch);
  void (*dot_backward)(const Vectors&, std::size_t rows, const float* d_out, std::size_t ld,
                       const VectorGradients&, float* scratch);

  // out [rows][1] = ½ Σ_k ((Σⱼ vⱼₖ)² − Σⱼ vⱼₖ²).
  void (*fm)(const Vectors&, std::size_t rows, float* out, std::size_t ld);
  void (*fm_backward)(const Vectors&, std::size_t rows, const float* d_out, std::size_t ld,
                      const VectorGradients&);
};

const InteractionKernels& interaction_kernels(Isa isa);

}  // namespace leashed
