// Which fields a row has: for kernels that go through these alone (kernels/field_factors.h).
#pragma once

#include <cstdint>
#include <vector>

#include "leashed/data/sparse_rows.h"
#include "leashed/kernels/field_factors.h"

namespace leashed {

class FieldFinder {
 public:
  // Fields are below this.
  explicit FieldFinder(std::size_t fields);

  // Of the first row, field_of being each column's; until the next call.
  RowFields find(const std::uint16_t* field_of, const SparseRows& row);

 private:
  std::vector<std::uint64_t> present_;  // a bit each; none is set between calls
  std::vector<std::uint32_t> place_, entries_of_;
  std::vector<FieldRun> runs_;
  std::vector<FieldEntry> entries_;
};

}  // namespace leashed
