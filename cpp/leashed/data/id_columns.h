// Features that are ids: each stands for a row of a table, which is no part of the parameter
// vector.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>

#include "leashed/data/negatives.h"

namespace leashed {

// A feature of a dataset: row i has the one id at ids[i · stride], or, where there are offsets,
// those at offsets[i] up to offsets[i + 1], which may be none.
struct IdFeature {
  const std::uint64_t* ids = nullptr;
  std::size_t stride = 1;
  const std::int64_t* offsets = nullptr;  // [rows + 1]
  const float* weights = nullptr;         // of each id at offsets; null: 1
  // Of a row that has more ids only its first so many are read.
  std::size_t most = std::numeric_limits<std::size_t>::max();
  // Where there are any, they are in place of all that: drawn anew for each batch, whose first
  // example has them all.
  Negatives negatives = {};
};

// The same of a batch, gathered: example i has the ids at offsets[i] up to offsets[i + 1], or the
// one at i where offsets is null.
struct IdColumn {
  const std::uint64_t* ids = nullptr;
  const std::uint32_t* offsets = nullptr;  // [size + 1], from 0
  const float* weights = nullptr;          // of each id; null: 1

  // (In kernels too, of which the linker may not share one level's with another's.)
  [[gnu::always_inline]] std::size_t begin(std::size_t i) const { return offsets ? offsets[i] : i; }
  [[gnu::always_inline]] std::size_t end(std::size_t i) const {
    return offsets ? offsets[i + 1] : i + 1;
  }
};

// The rows of one table that a batch reads, each once, in the order of their first appearance, the
// features that share the table one after another.
struct TableRows {
  std::size_t count = 0;
  std::size_t dim = 0;
  std::size_t stride = 0;                // floats from one gradient to the next, dim at least
  const float* const* values = nullptr;  // [count] → dim floats, which others may write meanwhile
  float* gradient = nullptr;             // [count][stride], 0 at first, added to; null: not wanted
};

}  // namespace leashed
