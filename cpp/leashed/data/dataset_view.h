#pragma once

#include <cstddef>
#include <cstdint>
#include <numeric>
#include <span>

#include "leashed/data/id_columns.h"
#include "leashed/data/sparse_rows.h"

namespace leashed {

// What rows are to give: a class each, or so many numbers each; and how much each of them counts,
// and to which user it was shown. The loss of a row and its gradient are multiplied by its weight,
// but a mean over rows divides by their number, not by the sum of the weights.
struct Targets {
  Targets() = default;
  Targets(const std::int32_t* l) : labels(l) {}
  Targets(const float* v, std::size_t each = 1) : values(v), width(each) {}

  const std::int32_t* labels = nullptr;
  const float* values = nullptr;  // [rows][width]
  std::size_t width = 1;
  const float* weights = nullptr;  // finite, not negative; null: all of them are 1
  // Whose AUC a row counts in (user_sample.h); null: nobody asks.
  const std::uint64_t* users = nullptr;

  Targets from(std::size_t row) const {
    Targets rest = *this;
    if (labels) rest.labels += row;
    if (values) rest.values += row * width;
    if (weights) rest.weights += row;
    if (users) rest.users += row;
    return rest;
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
  std::span<const IdFeature> ids = {};

  double mean_weight() const {
    if (!targets.weights) return 1;
    return std::accumulate(targets.weights, targets.weights + rows, 0.0) /
           static_cast<double>(rows);
  }
};

}  // namespace leashed
