// Kernels between the rows of a table that a batch reads and what a model sees of them: one vector
// for each example. The rows are read while others write them (update/kernels/racy.h).
#pragma once

#include <cstddef>
#include <cstdint>

#include "leashed/base/isa.h"
#include "leashed/data/id_columns.h"

namespace leashed {

// What becomes of the rows r₁, r₂, … of one example, each multiplied by its entry's weight: their
// sum; their sum divided by their number; the largest of each float, of equals the first, or NaN
// where there is one; the rows one after another, the first `length` of them, padded with zeros.
// Of no rows: zeros.
enum class Pooling { sum, mean, max, sequence };

struct PooledRows {
  Pooling pooling;
  std::size_t dim;
  std::size_t length;  // of a sequence
  IdColumn column;
  const std::uint32_t* places;  // of each entry's row
  std::size_t first, count;     // the examples
  // Of each float of an example, the entry whose row was the largest: [count][dim]; of `max` only.
  std::uint32_t* largest;
};

struct EmbeddingKernels {
  // values: by place. out: [count][dim], of a sequence [count][length * dim], with row stride ld.
  void (*pool_racy)(const PooledRows&, const float* const* values, float* out, std::size_t ld);
  // Adds to the rows' gradients, [places][dim] with row stride `stride`, in the order of entries.
  void (*scatter)(const PooledRows&, const float* d_out, std::size_t ld, float* gradient,
                  std::size_t stride);
};

const EmbeddingKernels& embedding_kernels(Isa isa);

}  // namespace leashed
