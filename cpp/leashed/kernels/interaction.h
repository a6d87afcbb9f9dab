// Kernels for products between vectors of one example: all their dot products, and the second-order
// term of a factorisation machine. See interaction.cc for how they work.
#pragma once

#include <cstddef>
#include <cstdint>

#include "leashed/base/isa.h"

namespace leashed {

// One of the vectors that examples have: example i has the one at at + i * stride or, where there
// are `values`, the row of a table at values[places[i]], which others may write meanwhile.
struct Vector {
  const float* at;
  std::size_t stride;
  const float* const* values = nullptr;
  const std::uint32_t* places = nullptr;
};

// Where its gradient goes: likewise to at + i * stride, or to at + places[i] * stride; nowhere
// where `at` is null.
struct VectorGradient {
  float* at;
  std::size_t stride;
  const std::uint32_t* places;
  bool adds;  // to what is there, and does not overwrite it
};

// `n` vectors of `dim` floats an example.
struct Vectors {
  std::size_t n, dim;
  const Vector* vectors;
};

struct InteractionKernels {
  // Floats that dot_racy() keeps of so many rows, on a cache line, set to 0 once; and floats of
  // scratch.
  std::size_t (*dot_kept)(std::size_t n, std::size_t dim, std::size_t rows);
  std::size_t (*dot_scratch)(std::size_t n, std::size_t dim);
  // out [rows][n (n − 1) / 2] = vᵢ·vⱼ of the pairs i < j, in the order (0, 1), (0, 2), (1, 2),
  // (0, 3), …, with row stride ld. Rows of tables are read while others write them
  // (update/kernels/racy.h), once: what was read is kept.
  void (*dot_racy)(const Vectors&, std::size_t rows, float* out, std::size_t ld, float* kept,
                   float* scratch);
  // After dot_racy() of the same rows.
  void (*dot_backward)(std::size_t n, std::size_t dim, const float* kept, std::size_t rows,
                       const float* d_out, std::size_t ld, const VectorGradient*);

  // out [rows][1] = ½ Σ_k ((Σⱼ vⱼₖ)² − Σⱼ vⱼₖ²), of vectors that are no rows of tables.
  void (*fm)(const Vectors&, std::size_t rows, float* out, std::size_t ld);
  void (*fm_backward)(const Vectors&, std::size_t rows, const float* d_out, std::size_t ld,
                      const VectorGradient*);
};

const InteractionKernels& interaction_kernels(Isa isa);

}  // namespace leashed
