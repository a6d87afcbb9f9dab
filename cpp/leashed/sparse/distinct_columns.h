// Rows of which none has a column twice, for models that are not linear in a column's value: what
// occurs more often is put where it comes first, with the sum of its values.
#pragma once

#include <cstdint>
#include <vector>

#include "leashed/base/aligned.h"
#include "leashed/data/sparse_rows.h"

namespace leashed {

class DistinctColumns {
 public:
  // Of rows that have been checked, and outlive this.
  DistinctColumns(const SparseRows& sparse, std::size_t rows, std::size_t features);

  // Those rows themselves where none of them has a column twice.
  const SparseRows& view() const { return view_; }

 private:
  SparseRows view_;
  std::vector<std::int64_t> offsets_;
  std::vector<std::int32_t> columns_;
  std::vector<float> values_;
};

}  // namespace leashed
