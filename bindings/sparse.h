// Sparse rows from Python: NumPy's arrays, held, and their copy for training.
#pragma once

#include <mutex>

#include "arrays.h"
#include "leashed/sparse/ordered_rows.h"

namespace leashed {

class PySparseRows {
 public:
  PySparseRows(py::array_t<std::int64_t, py::array::c_style> indptr, LabelArray indices,
               FloatArray data, std::size_t features);

  std::size_t rows() const { return static_cast<std::size_t>(indptr_.size()) - 1; }
  std::size_t features() const { return features_; }
  SparseRows view() const { return {indptr_.data(), indices_.data(), data_.data()}; }

  // The copy for that seed; made at the first call, without the GIL, and kept for the next.
  std::shared_ptr<const OrderedRows> ordered(std::uint64_t seed) const;

 private:
  py::array_t<std::int64_t, py::array::c_style> indptr_;
  LabelArray indices_;
  FloatArray data_;
  std::size_t features_;
  mutable std::mutex mutex_;
  mutable std::shared_ptr<const OrderedRows> ordered_;
  mutable std::uint64_t seed_ = 0;
};

}  // namespace leashed
