// Sparse rows from Python: NumPy's arrays, held, and their copy for training.
#pragma once

#include <mutex>

#include "arrays.h"
#include "leashed/columns/sparse_model.h"
#include "leashed/sparse/distinct_columns.h"
#include "leashed/sparse/ordered_rows.h"

namespace leashed {

class PySparseRows {
 public:
  PySparseRows(py::array_t<std::int64_t, py::array::c_style> indptr, LabelArray indices,
               FloatArray data, std::size_t features);

  std::size_t rows() const { return static_cast<std::size_t>(indptr_.size()) - 1; }
  std::size_t features() const { return features_; }
  // As the model takes them. Where it takes no column twice, what is made for it is made at the
  // first call, without the GIL, and kept.
  SparseRows view_for(const SparseModel& model) const;

  // The copy of such a view for that seed; made and kept likewise, until another is asked for.
  std::shared_ptr<const OrderedRows> ordered(const SparseRows& view, std::uint64_t seed) const;
  // Of the rows as they were given.
  std::shared_ptr<const OrderedRows> ordered(std::uint64_t seed) const {
    return ordered(view(), seed);
  }

 private:
  SparseRows view() const { return {indptr_.data(), indices_.data(), data_.data()}; }

  py::array_t<std::int64_t, py::array::c_style> indptr_;
  LabelArray indices_;
  FloatArray data_;
  std::size_t features_;
  mutable std::mutex mutex_;
  mutable std::unique_ptr<const DistinctColumns> distinct_;
  mutable std::shared_ptr<const OrderedRows> ordered_;
  mutable const std::int32_t* ordered_from_ = nullptr;
  mutable std::uint64_t seed_ = 0;
};

}  // namespace leashed
