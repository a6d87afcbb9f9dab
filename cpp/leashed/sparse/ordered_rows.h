// A copy of sparse rows for training: the rows shuffled, and the columns numbered anew, those that
// occur most often first. Weights that are used often then share few cache lines, and how far to
// the front a weight stands tells how often it changes (replicas.h).
#pragma once

#include <cstdint>
#include <vector>

#include "leashed/base/aligned.h"
#include "leashed/data/dataset_view.h"
#include "leashed/sparse/column_shape.h"

namespace leashed {

// Throws Error, naming the row, where these are no `rows` sparse rows of `features` columns with
// finite values, among `entries` columns and values.
void check_rows(const SparseRows& sparse, std::size_t rows, std::size_t features,
                std::size_t entries);

class OrderedRows {
 public:
  // The rows must have been checked. The shuffle depends on `seed` alone.
  OrderedRows(const SparseRows& sparse, std::size_t rows, std::size_t features, std::uint64_t seed);
  // No rows, and columns that keep their numbers, of which any may occur.
  explicit OrderedRows(std::size_t features);
  // Other rows, not shuffled, with the columns of `like`.
  OrderedRows(const SparseRows& sparse, std::size_t rows, const OrderedRows& like);

  SparseRows view() const { return {offsets_.data(), columns_.data(), values_.data()}; }
  std::size_t rows() const { return offsets_.size() - 1; }
  std::size_t features() const { return rank_.size(); }
  // Columns that occur; the others have the last numbers.
  std::size_t active() const { return active_; }

  // Of each active column, the mean square of its values over all rows; null where there are none.
  const float* mean_squares() const { return rows() > 0 ? mean_squares_.data() : nullptr; }

  // What belongs to the rows, so many to each, in their order.
  template <class T>
  std::vector<T> shuffled(const T* given, std::size_t width = 1) const {
    std::vector<T> result(rows() * width);
    for (std::size_t i = 0; i < rows(); ++i) {
      const auto from = static_cast<std::size_t>(from_.empty() ? i : from_[i]);
      for (std::size_t k = 0; k < width; ++k) result[i * width + k] = given[from * width + k];
    }
    return result;
  }
  // What belongs to the columns, by their new numbers.
  template <class T>
  std::vector<T> renumbered(const std::vector<T>& given) const {
    std::vector<T> result(features());
    for (std::size_t i = 0; i < result.size(); ++i) {
      result[static_cast<std::size_t>(rank_[i])] = given[i];
    }
    return result;
  }
  // Parameters [features][width], [intercepts] to the intercepts first and the others in the
  // columns' order, and back.
  std::vector<float> ordered(const float* theta, const ColumnShape& shape) const;
  std::vector<float> original(const std::vector<float>& theta, const ColumnShape& shape) const;

 private:
  void number_columns(const SparseRows& sparse, std::size_t rows);
  void copy(const SparseRows& sparse);

  std::vector<std::int32_t> rank_;   // the new number of a column
  std::vector<std::uint32_t> from_;  // the place that a row comes from; empty: its own
  std::size_t active_ = 0;
  std::vector<float> mean_squares_;
  AlignedArray<std::int64_t> offsets_;
  AlignedArray<std::int32_t> columns_;
  AlignedArray<float> values_;  // empty: all of them are 1
};

}  // namespace leashed
