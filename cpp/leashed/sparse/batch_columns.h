// The columns of a batch's rows, each once, for gradients that are summed up over the batch.
#pragma once

#include <cstdint>
#include <vector>

#include "leashed/data/sparse_rows.h"

namespace leashed {

class BatchColumns {
 public:
  explicit BatchColumns(std::size_t features) : place_(features) {}

  void collect(const SparseRows& rows, std::size_t count);

  const std::int32_t* columns() const { return columns_.data(); }
  std::size_t size() const { return columns_.size(); }
  // Of each entry its column's place among them.
  const std::int32_t* of_entry() const { return of_entry_.data(); }

 private:
  std::vector<std::int32_t> place_, columns_, of_entry_;
};

}  // namespace leashed
