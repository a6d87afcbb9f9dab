#pragma once

#include <cstddef>
#include <cstdint>

#include "leashed/data/sparse_rows.h"

namespace leashed {

// What rows are to give: a class each, or a number each.
struct Targets {
  Targets() = default;
  Targets(const std::int32_t* l) : labels(l) {}
  Targets(const float* v) : values(v) {}

  const std::int32_t* labels = nullptr;
  const float* values = nullptr;

  Targets from(std::size_t row) const {
    return labels ? Targets(labels + row) : Targets(values ? values + row : nullptr);
  }
};

// A dataset that somebody else owns: row-major x [rows][features], or sparse rows, and what each
// row is to give.
struct DatasetView {
  const float* x;
  Targets targets;
  std::size_t rows;
  std::size_t features;
  SparseRows sparse = {};
};

}  // namespace leashed
