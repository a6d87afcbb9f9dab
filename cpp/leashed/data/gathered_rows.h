// Sparse rows from several places, copied so that they lie one after another.
#pragma once

#include <cstdint>
#include <vector>

#include "leashed/data/sparse_rows.h"

namespace leashed {

class GatheredRows {
 public:
  void clear() {
    offsets_.assign(1, 0);
    columns_.clear();
    values_.clear();
  }
  void add(const SparseRows& rows, std::size_t count) {
    const std::int64_t begin = rows.offsets[0], end = rows.offsets[count];
    const std::int64_t shift = offsets_.back() - begin;
    for (std::size_t i = 1; i <= count; ++i) offsets_.push_back(rows.offsets[i] + shift);
    columns_.insert(columns_.end(), rows.columns + begin, rows.columns + end);
    if (rows.values) values_.insert(values_.end(), rows.values + begin, rows.values + end);
  }
  // Null values where none of those added has any: all have, or none.
  SparseRows view() const {
    return {offsets_.data(), columns_.data(), values_.empty() ? nullptr : values_.data()};
  }

 private:
  std::vector<std::int64_t> offsets_;
  std::vector<std::int32_t> columns_;
  std::vector<float> values_;
};

}  // namespace leashed
