// Rows of numbers and ids from Python: NumPy's arrays, held.
#pragma once

#include <optional>
#include <span>
#include <tuple>

#include "arrays.h"
#include "leashed/data/id_columns.h"
#include "leashed/data/scored_rows.h"

namespace leashed {

py::dict to_dict(const Scores& scores);

class PyClickRows {
 public:
  // Of each feature its ids, and where a row may have any number of them the offsets, and weights.
  using Column = std::tuple<py::array_t<std::uint64_t>, std::optional<py::array_t<std::int64_t>>,
                            std::optional<py::array_t<float>>>;

  // What is drawn for each batch: before which of the columns, how many ids, below which, and
  // whether log-uniformly.
  using Drawn = std::tuple<std::size_t, std::size_t, std::uint64_t, bool>;

  // most: of each feature how many ids of a row are read; empty: all of them.
  PyClickRows(FloatArray x, std::vector<Column> columns,
              const std::vector<std::optional<std::size_t>>& most, const std::vector<Drawn>& drawn);

  std::size_t rows() const { return static_cast<std::size_t>(x_.shape(0)); }
  std::size_t numbers() const { return static_cast<std::size_t>(x_.shape(1)); }
  const float* x() const { return x_.data(); }
  std::span<const IdFeature> ids() const { return ids_; }

 private:
  FloatArray x_;
  std::vector<Column> columns_;
  std::vector<IdFeature> ids_;
};

}  // namespace leashed
